//! Bytes under a tenant, a kind and a name, in parts: what is too large for a row, or is needed on every node.
//!
//! Its row and its parts come and go in one transaction, so that what is there is whole. Whoever keeps what is there already
//! makes it young: its age counts from when it was kept last, by the database's clock.

use bytes::Bytes;
use domain::TenantId;
use tokio::time::timeout_at;

use super::fault::Fault;
use super::flight::{Statement, fly};
use super::pool::{Pool, Tries};

/// What a blob is. The number is in the table, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An input or an output, under its digest.
    Payload = 0,
    /// An event that runs began with, under its id.
    Event = 1,
}

/// A row of a part: far below what any server takes, and few enough for a payload of the usual bound.
const PART_BYTES: usize = 1 << 20;

/// Largest blob: a transaction of it takes a second or two of an ordinary network, which is within the time for an answer.
pub const BLOB_BYTES_MAX: u64 = 64 << 20;

/// The database's clock, in milliseconds since the Unix epoch.
macro_rules! now_ms {
    () => {
        "(extract(epoch from now()) * 1000)::bigint"
    };
}

/// Tenant, kind, name.
const TOUCH: &str = concat!(
    "UPDATE tidegate_blobs SET kept_at = greatest(kept_at, ",
    now_ms!(),
    ") WHERE tenant = $1 AND kind = $2 AND name = $3 RETURNING bytes"
);
/// Arrays of: tenant, kind, name.
const TOUCH_ALL: &str = concat!(
    "UPDATE tidegate_blobs AS b SET kept_at = greatest(b.kept_at, ",
    now_ms!(),
    ") FROM unnest($1::text[], $2::smallint[], $3::bytea[]) AS c (tenant, kind, name) \
     WHERE b.tenant = c.tenant AND b.kind = c.kind AND b.name = c.name"
);
/// Tenant, kind, name, bytes.
const KEEP: &str = concat!(
    "INSERT INTO tidegate_blobs (tenant, kind, name, bytes, kept_at) VALUES ($1, $2, $3, $4, ",
    now_ms!(),
    ") ON CONFLICT (tenant, kind, name) DO UPDATE SET kept_at = greatest(tidegate_blobs.kept_at, excluded.kept_at)"
);
/// Tenant, kind, name, part, body.
const KEEP_PART: &str = "INSERT INTO tidegate_blob_parts (tenant, kind, name, part, body) VALUES ($1, $2, $3, $4, $5) \
                         ON CONFLICT (tenant, kind, name, part) DO NOTHING";
/// Tenant, kind, name, most bytes.
const FETCH: &str = "SELECT b.bytes, p.body FROM tidegate_blobs b LEFT JOIN tidegate_blob_parts p \
                       ON p.tenant = b.tenant AND p.kind = b.kind AND p.name = b.name AND b.bytes <= $4 \
                     WHERE b.tenant = $1 AND b.kind = $2 AND b.name = $3 ORDER BY p.part";
/// Age in milliseconds, how many. What was kept meanwhile is young, and stays.
const SWEEP: &str = concat!(
    "DELETE FROM tidegate_blobs WHERE kept_at < ",
    now_ms!(),
    " - $1 AND (tenant, kind, name) IN (SELECT tenant, kind, name FROM tidegate_blobs WHERE kept_at < ",
    now_ms!(),
    " - $1 ORDER BY kept_at LIMIT $2) RETURNING bytes"
);

/// Which blob.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blob<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) kind: Kind,
    pub(crate) name: &'a [u8],
}

/// Why there are no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is not there, or not any more.
    Gone,
    /// What is there is not as long as it says, or longer than whoever asks knows it to be.
    Damaged,
    Fault(Fault),
}

impl From<Fault> for Missing {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Keeps it, durably; what is there under the name already only becomes young. Whoever has much to send asks first whether it
/// is ([`touch`]).
pub(crate) async fn keep(pool: &Pool, name: Blob<'_>, bytes: &Bytes) -> Result<(), Fault> {
    let mut tries = Tries::new(pool.settings.answer_within);
    loop {
        let fault = match timeout_at(tries.until, try_keep(pool, name, bytes)).await {
            Ok(Ok(())) => return Ok(()),
            // Done twice it is what it is done once.
            Ok(Err(fault @ (Fault::Undone(_) | Fault::Unknown(_)))) => fault,
            Ok(Err(fault)) => return Err(fault),
            Err(_) => return Err(tries.given_up()),
        };
        tries.again_after(fault).await?;
    }
}

async fn try_keep(pool: &Pool, name: Blob<'_>, bytes: &Bytes) -> Result<(), Fault> {
    let Blob { tenant, kind, name } = name;
    let (tenant, kind) = (tenant.as_str(), kind as i16);
    let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let parts: Vec<(i16, &[u8])> = (0..).zip(bytes.chunks(PART_BYTES)).collect();
    let mut statements = vec![Statement { sql: KEEP, params: vec![&tenant, &kind, &name, &length] }];
    statements.extend(
        parts.iter().map(|(part, body)| Statement { sql: KEEP_PART, params: vec![&tenant, &kind, &name, part, body] }),
    );
    let mut session = pool.session().await?;
    fly(&mut session, &statements).await?;
    session.give_back();
    Ok(())
}

/// Makes it young; false where it is not there.
pub(crate) async fn touch(pool: &Pool, name: Blob<'_>) -> Result<bool, Fault> {
    let Blob { tenant, kind, name } = name;
    let rows = pool.rows(TOUCH, &[&tenant.as_str(), &(kind as i16), &name]).await?;
    Ok(!rows.is_empty())
}

/// Makes many young, of those that are there.
pub(crate) async fn touch_all(pool: &Pool, names: &[(TenantId, Kind, Box<[u8]>)]) -> Result<(), Fault> {
    let tenants: Vec<&str> = names.iter().map(|(tenant, ..)| tenant.as_str()).collect();
    let kinds: Vec<i16> = names.iter().map(|(_, kind, _)| *kind as i16).collect();
    let of: Vec<&[u8]> = names.iter().map(|(.., name)| &**name).collect();
    pool.rows(TOUCH_ALL, &[&tenants, &kinds, &of]).await.map(drop)
}

/// All of it, if it has no more bytes than that.
pub(crate) async fn fetch(pool: &Pool, name: Blob<'_>, bytes_max: u64) -> Result<Bytes, Missing> {
    let Blob { tenant, kind, name } = name;
    let bytes_max = i64::try_from(bytes_max.min(BLOB_BYTES_MAX)).unwrap_or(i64::MAX);
    let rows = pool.rows(FETCH, &[&tenant.as_str(), &(kind as i16), &name, &bytes_max]).await?;
    let first = rows.first().ok_or(Missing::Gone)?;
    let length = first.try_get::<_, i64>(0).ok().and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or(Missing::Damaged)?;
    let mut bytes = Vec::new();
    for row in &rows {
        let part: Option<&[u8]> = row.try_get(1).map_err(|_| Missing::Damaged)?;
        bytes.extend_from_slice(part.unwrap_or_default());
    }
    if bytes.len() == length { Ok(bytes.into()) } else { Err(Missing::Damaged) }
}

/// Drops what was kept last so long ago, at most `max` of it. Gives how many bytes each had.
pub(crate) async fn sweep(pool: &Pool, age_ms: i64, max: i64) -> Result<Vec<u64>, Fault> {
    let rows = pool.rows(SWEEP, &[&age_ms, &max]).await?;
    Ok(rows
        .iter()
        .map(|row| row.try_get::<_, i64>(0).ok().and_then(|bytes| bytes.try_into().ok()).unwrap_or(0))
        .collect())
}
