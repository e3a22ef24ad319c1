//! Holding on to a lease.

use super::batch::{Found, LEASE_MS_MAX, number};
use super::sql;
use crate::ids::RunId;
use crate::ledger::store::AppendError;
use crate::postgres::Pool;

/// For so many ms from now on, by the database's clock; 0 lets go of it.
pub(super) async fn renew(pool: &Pool, run: RunId, lease: u64, span_ms: u64) -> Result<(), AppendError> {
    let unavailable = |fault: crate::postgres::Fault| AppendError::Unavailable(fault.to_string().into());
    let (id, span) = (run.as_bytes().as_slice(), number(span_ms.min(LEASE_MS_MAX)));
    let renewed = pool.rows(sql::RENEW, &[&id, &number(lease), &span]).await.map_err(unavailable)?;
    if !renewed.is_empty() {
        return Ok(());
    }
    let heads = pool.rows(sql::HEADS, &[&vec![id]]).await.map_err(unavailable)?;
    let Some(row) = heads.first() else { return Err(AppendError::Conflict { seq: 0 }) };
    let odd = || AppendError::Unavailable("the database has a head that nobody can read".into());
    let mut head = Found::read(row).ok_or_else(odd)?.head;
    // It was not in force a moment ago, and no lease comes into force again.
    head.renew(lease, 0)
}
