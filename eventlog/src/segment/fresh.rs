//! A fresh segment after an error of the disk: tried for until one has proved that what is written can be read.

use std::io;
use std::sync::atomic::Ordering;

use super::make::{Made, make_segment, prove};
use super::names::segment_path;
use super::options::Backoff;
use super::position::SegmentId;
use super::shared::Shared;
use super::storage::is_full;
use super::trim::drop_recyclable;

/// Tries until a fresh segment has proved the disk; `None` if the queue was closed before.
pub(crate) fn fresh(shared: &Shared, heal: Backoff, id: SegmentId) -> Option<Made> {
    let mut pause = heal.first;
    loop {
        if shared.queue.pause(pause) {
            return None;
        }
        match make_proved(shared, id) {
            Ok(made) => {
                shared.counters.heals.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(segment = %made.id, "a fresh segment has proved the log's disk: appends go on");
                return Some(made);
            }
            Err(error) => tracing::error!(%error, "the log's disk still fails"),
        }
        pause = (pause * 2).min(heal.max);
    }
}

/// Makes a segment of fresh blocks: those of a trimmed file may be what the disk fails on. On a full disk the trimmed
/// files give their room up for it, and so does one that was prepared under this name and never written to.
fn make_proved(shared: &Shared, id: SegmentId) -> io::Result<Made> {
    // Once: what lies under this name after that, an attempt of this very call has made.
    let mut own_given_up = false;
    loop {
        match make_segment(shared, id, None).and_then(|made| prove_made(shared, made)) {
            Err(error) if is_full(&error) && give_room_up(shared, id, &mut own_given_up)? => {}
            made => return made,
        }
    }
}

/// False if there is nothing to be given up.
fn give_room_up(shared: &Shared, id: SegmentId, own_given_up: &mut bool) -> io::Result<bool> {
    if drop_recyclable(shared)? {
        return Ok(true);
    }
    if std::mem::replace(own_given_up, true) {
        return Ok(false);
    }
    match shared.storage.remove(&segment_path(&shared.settings.directory, id)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

fn prove_made(shared: &Shared, made: Made) -> io::Result<Made> {
    prove(&*shared.storage, &shared.settings.directory, &made.header).map(|()| made)
}
