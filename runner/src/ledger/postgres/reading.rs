//! Runs, the tail, and what is claimable.

use std::sync::{Arc, Mutex, PoisonError};

use domain::TenantId;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::batch::{class_of, number, run_id};
use super::position::Places;
use super::sql;
use crate::ids::RunId;
use crate::ledger::codec;
use crate::ledger::record::Record;
use crate::ledger::store::{Claimable, ReadError, Tail, TailPosition};
use crate::postgres::{Fault, Pool, SHARDS};

/// Of all shards in one page of the tail: each has an eighth of it.
const PAGE_BYTES_MAX: i64 = 16 << 20;
/// Most records of a page, whatever is asked for.
const PAGE_RECORDS_MAX: usize = 4096;

pub(super) async fn read(pool: &Pool, tenant: &TenantId, run: RunId) -> Result<Vec<Record>, ReadError> {
    let rows = pool.rows(sql::READ, &[&run.as_bytes().as_slice()]).await.map_err(|fault| unavailable(&fault))?;
    let mut records: Vec<Record> = Vec::new();
    for row in &rows {
        let read = records_of(row)?;
        if let Some(foreign) = read.iter().find(|record| record.tenant != *tenant) {
            return Err(ReadError::Tenant { run, found: foreign.tenant.clone(), asked: tenant.clone() });
        }
        records.extend(read);
    }
    if records.iter().zip(1..).any(|(record, seq)| record.seq != seq || record.run != run) {
        return Err(ReadError::Damaged(format!("records of run {run} are missing").into()));
    }
    Ok(records)
}

/// The records of a commit. Columns and body say the same twice, and are compared.
pub(super) fn records_of(row: &Row) -> Result<Vec<Record>, ReadError> {
    let odd = |what: &str| ReadError::Damaged(format!("a commit of the table {what}").into());
    let column = |_| odd("has a column that nobody can read");
    let run = run_id(row.try_get(0).map_err(column)?).ok_or_else(|| odd("has no run"))?;
    let body: &[u8] = row.try_get(5).map_err(column)?;
    let mut records = codec::decode(body, 0).map_err(|error| odd(&format!("of run {run}: {error}")))?;
    let (first, count): (i64, i64) = (row.try_get(1).map_err(column)?, row.try_get(2).map_err(column)?);
    let tenant: &str = row.try_get(3).map_err(column)?;
    let lease = row.try_get::<_, i64>(4).map_err(column)?;
    let lease = u64::try_from(lease).map_err(|_| odd("has a negative lease"))?;
    if usize::try_from(count) != Ok(records.len()) {
        return Err(odd(&format!("of run {run} has another number of records")));
    }
    for (record, seq) in records.iter_mut().zip(first..) {
        if record.run != run || number(record.seq) != seq || record.tenant.as_str() != tenant {
            return Err(odd(&format!("of run {run} is another's")));
        }
        record.lease = lease;
    }
    Ok(records)
}

pub(super) async fn tail(pool: &Pool, from: &TailPosition, max: usize) -> Result<Tail, ReadError> {
    let mut places = Places::parse(from)?;
    let max = max.min(PAGE_RECORDS_MAX);
    let each = number(max.div_ceil(usize::from(SHARDS)) as u64);
    let bytes = PAGE_BYTES_MAX / i64::from(SHARDS);
    let shards: Vec<i16> = (0..i16::from(SHARDS)).collect();
    let params: Vec<[&(dyn ToSql + Sync); 4]> =
        shards.iter().zip(&places.0).map(|(shard, place)| [shard as _, place as _, &each as _, &bytes as _]).collect();
    let params: Vec<&[&(dyn ToSql + Sync)]> = params.iter().map(<[_; 4]>::as_slice).collect();
    let pages = pool.rows_of_each(sql::TAIL, &params).await.map_err(|fault| unavailable(&fault))?;
    let first = places.first();
    let mut records = Vec::new();
    for shard in (0..pages.len()).map(|nth| (nth + first) % pages.len()) {
        let (page, place) = (&pages[shard], &mut places.0[shard]);
        take_page(page, place, max, &mut records)?;
    }
    Ok(Tail { records, next: places.position() })
}

/// Records behind a place, which may be in the middle of a commit, until there are as many as were asked for.
fn take_page(page: &[Row], place: &mut i64, max: usize, records: &mut Vec<Record>) -> Result<(), ReadError> {
    for row in page {
        let odd = |_| ReadError::Damaged("a commit of the table has no place".into());
        let last: i64 = row.try_get(6).map_err(odd)?;
        let commit = records_of(row)?;
        let before = last - number(commit.len() as u64);
        for (record, at) in commit.into_iter().zip(before + 1..).filter(|(_, at)| *at > *place).collect::<Vec<_>>() {
            if records.len() == max {
                return Ok(());
            }
            records.push(record);
            *place = at;
        }
    }
    Ok(())
}

/// Where each look for claimable runs goes on: behind which time and run.
pub(super) type After = Mutex<(i64, Vec<u8>)>;

/// A portion, behind the one before; behind the last it begins anew. So however many there are, whoever asks again and again
/// is given all of them.
pub(super) async fn claimable(
    pool: &Pool,
    after: &After,
    now_unix_ms: u64,
    max: usize,
) -> Result<Vec<Claimable>, ReadError> {
    // One less: the last is what waits for somebody.
    let (now, max) = (number(now_unix_ms).min(i64::MAX - 1), number(max as u64));
    let (at, run) = after.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut rows = pool.rows(sql::CLAIMABLE, &[&now, &max, &at, &run]).await.map_err(|fault| unavailable(&fault))?;
    if rows.is_empty() && !run.is_empty() {
        let (at, run) = (0_i64, Vec::<u8>::new());
        rows = pool.rows(sql::CLAIMABLE, &[&now, &max, &at, &run]).await.map_err(|fault| unavailable(&fault))?;
    }
    let claimable = |row: &Row| {
        let unsigned = |at: usize| u64::try_from(row.try_get::<_, i64>(at).ok()?).ok();
        let tenant = TenantId::parse(row.try_get(0).ok()?).ok()?;
        let (run, class) = (run_id(row.try_get(1).ok()?)?, class_of(row.try_get(4).ok()?)?);
        Some(Claimable { tenant, run, seq: unsigned(2)?, lease: unsigned(3)?, class })
    };
    let read: Option<Vec<Claimable>> = rows.iter().map(claimable).collect();
    let read = read.ok_or_else(|| ReadError::Damaged("a head of the table is none".into()))?;
    let last = rows.last().filter(|_| number(rows.len() as u64) == max);
    let next = last.and_then(|row| Some((row.try_get(5).ok()?, row.try_get(1).ok()?)));
    *after.lock().unwrap_or_else(PoisonError::into_inner) = next.unwrap_or_default();
    Ok(read)
}

pub(super) async fn open_runs(pool: &Pool) -> Result<u64, ReadError> {
    let rows = pool.rows(sql::OPEN, &[]).await.map_err(|fault| unavailable(&fault))?;
    let count = rows.first().and_then(|row| u64::try_from(row.try_get::<_, i64>(0).ok()?).ok());
    count.ok_or_else(|| ReadError::Damaged("the heads of the table cannot be counted".into()))
}

/// How far the tail is: more whenever anybody appends.
pub(super) async fn progress(pool: &Pool) -> Result<Option<i64>, Fault> {
    let rows = pool.rows(sql::PROGRESS, &[]).await?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()))
}

/// Looks again and again for what others append.
#[derive(Debug)]
pub(super) struct Looking {
    pub(super) pool: Arc<Pool>,
    pub(super) changes: watch::Sender<u64>,
    /// Why nobody answered the last time.
    pub(super) told: watch::Sender<Option<Box<str>>>,
}

impl Looking {
    /// Tells of it from where it was `seen` on, for as long as anybody holds the ledger. Of a database that does not answer it
    /// tells once, and once when it does again.
    pub(super) async fn run(self, mut seen: Option<i64>) {
        loop {
            sleep(self.pool.settings.poll_every).await;
            let (found, fault) = match progress(&self.pool).await {
                Ok(found) => (Some(found), None),
                Err(fault) => (None, Some(Box::<str>::from(fault.to_string()))),
            };
            match (self.told.borrow().is_some(), &fault) {
                (false, Some(fault)) => tracing::error!(%fault, "the ledger's database does not answer"),
                (true, None) => tracing::info!("the ledger's database answers again"),
                (true, Some(_)) | (false, None) => {}
            }
            self.told.send_replace(fault);
            if found.is_some_and(|found| found != seen) {
                seen = found.unwrap_or(seen);
                self.changes.send_modify(|change| *change += 1);
            }
        }
    }
}

pub(super) fn unavailable(fault: &Fault) -> ReadError {
    ReadError::Unavailable(fault.to_string().into())
}
