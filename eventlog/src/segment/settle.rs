//! Epochs of processes that lived when we looked, and have ended since.

use std::io;

use super::names::lock_path;
use super::recover::{Listing, OpenError, Opening, enter};
use super::shared::{Shared, locked};

/// Judges every foreign epoch that has ended.
pub(crate) fn settle_all(shared: &Shared) -> io::Result<()> {
    let epochs: Vec<u64> = locked(&shared.foreign).iter().copied().collect();
    for epoch in epochs {
        settle(shared, epoch)?;
    }
    Ok(())
}

/// True if the epoch has ended; its segments are known to their end from now on.
pub(crate) fn settle(shared: &Shared, epoch: u64) -> io::Result<bool> {
    if shared.settings.read_only {
        return Ok(false);
    }
    let storage = &*shared.storage;
    let directory = &shared.settings.directory;
    let _one_at_a_time = locked(&shared.maintenance);
    if !locked(&shared.foreign).contains(&epoch) {
        return Ok(true);
    }
    if storage.is_locked(&lock_path(directory, epoch))? {
        return Ok(false);
    }
    let listing = Listing::read(storage, directory)?;
    let opening = Opening {
        storage,
        directory,
        clock: &*shared.clock,
        log: shared.log,
        own: shared.epoch,
        segment_bytes: shared.settings.segment_bytes,
        recycle_max: shared.settings.recycle_max,
    };
    let trimmed = shared.catalog().trimmed;
    let judged = opening.epoch(epoch, false, trimmed, &listing.segments).map_err(|error| match error {
        OpenError::Io { source, .. } => source,
        OpenError::LaterVersion(_)
        | OpenError::Options(_)
        | OpenError::DirectRefused
        | OpenError::NoEpochLeft { .. } => io::Error::other(error.to_string()),
    })?;
    enter(&mut shared.catalog(), epoch, false, &judged);
    locked(&shared.foreign).remove(&epoch);
    for damage in &judged.damage {
        tracing::error!(%damage, "damage in the log");
    }
    if let Some(observer) = &shared.observer {
        observer.settled(epoch);
    }
    Ok(true)
}
