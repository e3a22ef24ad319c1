//! Two tiers, as the embedded engine has them: all of a run for days, without inputs and outputs for months, and then its id
//! alone, so that it is never admitted again.
//!
//! Ages are those of runs, by the database's clock, from when they were over: nothing of a run that is open is taken, however
//! old it is, and a re-run makes a run young. What stands beside the ledger (stored payloads, events) is kept as long as the
//! details of a run that names it.
//!
//! **Bounded.** Each statement is about a few runs, and no pass holds a lock for longer than one of them takes. Any number of
//! nodes may do so at once: what one has done the others find done.
//!
//! **Crashes.** A run loses its details, or all its records, in one transaction, on the condition that nothing was appended
//! since it was looked at. What was not come to is found by the next pass.

use std::time::Duration;

use tokio_postgres::Row;

use super::PostgresLedger;
use super::batch::{number, run_id};
use super::blobs::named_by;
use super::{reading, sql};
use crate::ids::RunId;
use crate::ledger::codec::{self, Heading, Turn};
use crate::ledger::embedded::Ages;
use crate::ledger::record::{Body, Kept, Record};
use crate::ledger::store::ReadError;
use crate::postgres::{Fault, Statement, blobs, fly};

/// Runs that are asked for at a time.
const PAGE: i64 = 128;
/// Stored payloads and events that go with one statement, each of a few megabytes at most.
const BLOBS: i64 = 32;

/// What a record names is kept before it: by no more than this, a worker that has no answer for long included.
const KEPT_BEFORE: Duration = Duration::from_hours(1);

/// What one pass has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    /// Runs whose inputs and outputs were dropped.
    pub stripped: u64,
    /// Runs of which only the id is left.
    pub dropped: u64,
    /// Commits that do not read: nothing was taken of them.
    pub damaged: u64,
    /// Stored payloads and events that were dropped.
    pub blobs: u64,
    pub blob_bytes: u64,
}

/// Why a pass came to no end. What it had done is done, and the next one goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetainError {
    #[error(transparent)]
    Database(#[from] Fault),
    #[error("reading a run: {0}")]
    Read(#[from] ReadError),
}

impl PostgresLedger {
    /// Drops what is over age.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn retain(&self, ages: &Ages) -> Result<Retained, RetainError> {
        let mut retained = Retained::default();
        self.strip_old(millis(ages.detail), &mut retained).await?;
        self.drop_old(millis(ages.metadata.max(ages.detail)), &mut retained).await?;
        self.keep_named(millis(ages.detail)).await?;
        loop {
            let age = millis(ages.detail.saturating_add(KEPT_BEFORE));
            let swept = blobs::sweep(&self.pool, age, BLOBS).await?;
            retained.blobs += swept.len() as u64;
            retained.blob_bytes += swept.iter().sum::<u64>();
            if swept.len() < usize::try_from(BLOBS).unwrap_or(usize::MAX) {
                return Ok(retained);
            }
        }
    }

    async fn strip_old(&self, age_ms: i64, retained: &mut Retained) -> Result<(), RetainError> {
        loop {
            let over = self.over(0, age_ms).await?;
            let before = retained.stripped;
            for (run, token) in &over {
                retained.stripped += u64::from(self.strip(*run, *token, &mut retained.damaged).await?);
            }
            // Where none was done the rest is for the next pass: others see to it.
            if over.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) || retained.stripped == before {
                return Ok(());
            }
        }
    }

    /// Runs that have been over for so long.
    async fn over(&self, kept: i16, age_ms: i64) -> Result<Vec<(RunId, i64)>, RetainError> {
        let rows = self.pool.rows(sql::OVER, &[&kept, &age_ms, &PAGE]).await?;
        let read: Option<_> = rows.iter().map(|row| Some((run_of(row)?, row.try_get(1).ok()?))).collect();
        Ok(read.ok_or_else(|| ReadError::Damaged("a head of the table is none".into()))?)
    }

    /// Takes inputs and outputs of a run away, unless somebody has appended to it since. A commit that does not read is told,
    /// and goes with the run's records: it keeps nothing else from going.
    async fn strip(&self, run: RunId, token: i64, damaged: &mut u64) -> Result<bool, RetainError> {
        let id = run.as_bytes().as_slice();
        let rows = self.pool.rows(sql::READ, &[&id]).await?;
        let (mut firsts, mut bodies) = (Vec::new(), Vec::new());
        for row in &rows {
            let records = match reading::records_of(row) {
                Ok(records) => records,
                Err(fault) => {
                    tracing::error!(%run, %fault, "a commit of the ledger does not read");
                    *damaged += 1;
                    continue;
                }
            };
            if let Some((first, bare)) = bare(&records) {
                firsts.push(first);
                bodies.push(bare);
            }
        }
        let statements = [
            Statement { sql: sql::BARE, params: vec![&id, &token] },
            Statement { sql: sql::STRIP, params: vec![&id, &token, &firsts, &bodies] },
        ];
        let mut session = self.pool.session().await?;
        let answers = fly(&mut session, &statements).await?;
        session.give_back();
        Ok(answers.first().is_some_and(|done| !done.is_empty()))
    }

    async fn drop_old(&self, age_ms: i64, retained: &mut Retained) -> Result<(), RetainError> {
        loop {
            let over = self.over(1, age_ms).await?;
            if over.is_empty() {
                return Ok(());
            }
            let runs: Vec<&[u8]> = over.iter().map(|(run, _)| run.as_bytes().as_slice()).collect();
            let statements = [
                Statement { sql: sql::FORGET, params: vec![&runs] },
                Statement { sql: sql::DROP, params: vec![&runs] },
            ];
            let mut session = self.pool.session().await?;
            fly(&mut session, &statements).await?;
            session.give_back();
            retained.dropped += over.len() as u64;
        }
    }

    /// Makes young what runs name that are older than the age and have all their details: those that go on for long, and those
    /// that did and have not been over for that long.
    async fn keep_named(&self, age_ms: i64) -> Result<(), RetainError> {
        let mut after = (i64::MIN, Vec::<u8>::new());
        loop {
            let old = self.pool.rows(sql::WHOLE, &[&age_ms, &PAGE, &after.0, &after.1]).await?;
            let Some(last) = old.last() else { return Ok(()) };
            let odd = |_| ReadError::Damaged("a head of the table is none".into());
            after = (last.try_get(1).map_err(odd)?, last.try_get(0).map_err(odd)?);
            let runs: Vec<&[u8]> = old.iter().filter_map(|row| row.try_get(0).ok()).collect();
            let mut named = Vec::new();
            for row in &self.pool.rows(sql::NAMING, &[&runs]).await? {
                match reading::records_of(row) {
                    Ok(records) => named.extend(records.iter().flat_map(named_by)),
                    // Its run cannot be read, and needs nothing.
                    Err(fault) => tracing::error!(%fault, "a commit of the ledger does not read"),
                }
            }
            blobs::touch_all(&self.pool, &named).await?;
        }
    }
}

fn millis(age: Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

fn run_of(row: &Row) -> Option<RunId> {
    run_id(row.try_get(0).ok()?)
}

/// A commit without its inputs and outputs, by the sequence of its first record; none where it has none.
fn bare(records: &[Record]) -> Option<(i64, Vec<u8>)> {
    let first = records.first()?;
    let mut bodies: Vec<Body> = records.iter().map(|record| record.body.clone()).collect();
    let mut is_changed = false;
    for payload in bodies.iter_mut().filter_map(Body::payload_mut) {
        is_changed |= payload.kept != Kept::Expired;
        payload.kept = Kept::Expired;
    }
    let heading = Heading {
        tenant: first.tenant.clone(),
        run: first.run,
        first: first.seq,
        count: u16::try_from(records.len()).ok()?,
        // It is a column of its own.
        lease: 0,
        at_unix_ms: first.at_unix_ms,
        turn: Turn::of(&bodies),
    };
    is_changed.then(|| (number(first.seq), codec::encode(&heading, &bodies, 0)))
}
