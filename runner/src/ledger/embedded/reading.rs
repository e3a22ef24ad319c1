//! Reading one run: its places from the index, each of its commits from the journal that has it.

use std::sync::Arc;

use domain::TenantId;
use eventlog::segment::{self, Cursor, ReadError as SegmentError};

use super::Core;
use super::catch_up::CatchUpError;
use super::index::{Place, Tier};
use super::pack;
use crate::ids::RunId;
use crate::ledger::record::Record;
use crate::ledger::store::ReadError;

/// How often the places are asked for again, since what was there has been moved to the history meanwhile.
const LOOKS_MAX: usize = 5;

/// Why a commit is not read where it should be.
enum Miss {
    /// It is not there any more: the index has another place for it by now.
    Moved,
    Error(ReadError),
}

pub(super) async fn read(core: Arc<Core>, tenant: TenantId, run: RunId) -> Result<Vec<Record>, ReadError> {
    until_indexed(&core).await?;
    let reading = tokio::task::spawn_blocking(move || read_here(&core, &tenant, run)).await;
    reading.unwrap_or_else(|_| Err(ReadError::Unavailable("its thread ended".into())))
}

/// Waits until the index has what is durable now.
async fn until_indexed(core: &Core) -> Result<(), ReadError> {
    let commits = core.table.commits();
    let mut progress = core.progress.clone();
    let reached = progress.wait_for(|progress| progress.commits >= commits || progress.failed.is_some()).await;
    // Its thread is gone when the ledger is closed: then it has all.
    match reached.ok().and_then(|progress| progress.failed.clone()) {
        Some(failed) => Err(ReadError::Unavailable(failed.as_ref().into())),
        None => Ok(()),
    }
}

pub(super) fn read_here(core: &Core, tenant: &TenantId, run: RunId) -> Result<Vec<Record>, ReadError> {
    for _ in 0..LOOKS_MAX {
        let places = core.index.places(run).map_err(|error| ReadError::Unavailable(error.to_string().into()))?;
        match read_places(core, tenant, run, &places) {
            Ok(records) => return Ok(records),
            Err(Miss::Moved) => {}
            Err(Miss::Error(error)) => return Err(error),
        }
    }
    Err(ReadError::Damaged(format!("records of run {run} are not where the index says").into()))
}

fn read_places(core: &Core, tenant: &TenantId, run: RunId, places: &[Place]) -> Result<Vec<Record>, Miss> {
    let mut records = Vec::new();
    // What it begins with was dropped: it is past its retention, and the rest says nothing without it.
    if places.first().is_some_and(|place| place.first != 1) {
        return Ok(records);
    }
    let mut next = 1;
    for place in places {
        if place.first != next {
            let hole = format!("run {run} has no record {next}");
            return Err(Miss::Error(ReadError::Damaged(hole.into())));
        }
        next += u64::from(place.count);
        records.append(&mut read_place(core, tenant, run, place)?);
    }
    Ok(records)
}

/// The records of one commit; reads no more than the batch that it is in.
fn read_place(core: &Core, tenant: &TenantId, run: RunId, place: &Place) -> Result<Vec<Record>, Miss> {
    let records = read_any(core, run, place)?;
    if let Some(other) = records.iter().find(|record| record.tenant != *tenant) {
        let (found, asked) = (other.tenant.clone(), tenant.clone());
        return Err(Miss::Error(ReadError::Tenant { run, found, asked }));
    }
    Ok(records)
}

/// The same for what is no reader of a tenant.
pub(super) fn read_commit(core: &Core, run: RunId, place: &Place) -> Result<Vec<Record>, ReadError> {
    read_any(core, run, place).map_err(|miss| match miss {
        Miss::Moved => ReadError::Trimmed,
        Miss::Error(error) => error,
    })
}

fn read_any(core: &Core, run: RunId, place: &Place) -> Result<Vec<Record>, Miss> {
    let record = stored(core, place)?;
    let damaged = |error: CatchUpError| Miss::Error(ReadError::Damaged(error.to_string().into()));
    for commit in pack::commits(&record) {
        let commit = commit.map_err(damaged)?;
        let heading = commit.heading().map_err(damaged)?;
        if (heading.run, heading.first, heading.count) == (run, place.first, place.count) {
            return commit.records().map_err(damaged);
        }
    }
    let other = format!("the record at {} is not the one of run {run} that it should be", place.position);
    Err(Miss::Error(ReadError::Damaged(other.into())))
}

fn stored(core: &Core, place: &Place) -> Result<segment::Record, Miss> {
    if place.tier == Tier::Journal
        && let Some(record) = core.recent.get(place.position)
    {
        return Ok(record);
    }
    let near = match place.tier {
        Tier::Journal => &core.near.journal,
        Tier::History => &core.near.history,
    };
    cursor_at(core, place)
        .and_then(|cursor| near.record(cursor))
        .map_err(|error| missed(&error))?
        .filter(|record| record.position == place.position)
        .ok_or(Miss::Moved)
}

fn cursor_at(core: &Core, place: &Place) -> Result<Cursor, SegmentError> {
    match place.tier {
        Tier::Journal => core.journal.read(place.position),
        Tier::History => core.history.read(place.position),
    }
}

fn missed(error: &SegmentError) -> Miss {
    match error {
        SegmentError::Trimmed { .. } | SegmentError::NoSuchPosition(_) => Miss::Moved,
        SegmentError::Damaged(damage) => Miss::Error(ReadError::Damaged(damage.to_string().into())),
        SegmentError::Io { .. } => Miss::Error(ReadError::Unavailable(error.to_string().into())),
    }
}
