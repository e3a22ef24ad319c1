//! Dropping the oldest segments, whole.
//!
//! Always from the front: a position before the first segment was trimmed, a hole behind it is damage. How far was
//! trimmed is written down first, so that what a crash leaves half done is finished at the next open.

use std::io;
use std::path::Path;

use super::catalog::{SegmentInfo, SegmentState};
use super::format::LogId;
use super::names::{self, Name, TRIM_MARK, end_path, free_name, lock_path, segment_path, side_path};
use super::position::{Position, SegmentId};
use super::settle;
use super::shared::{Shared, locked};
use super::storage::{Storage, WriteMode, ignore_missing, is_full};
use super::trim_mark::{encode_mark, stored_mark};

/// What becomes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It waits for reuse, if few enough do.
    File,
    /// Its space goes back to the file system.
    Nothing,
}

/// What a trim dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trimmed {
    pub segments: u64,
    pub records: u64,
    pub bytes: u64,
}

impl Trimmed {
    fn add(&mut self, info: &SegmentInfo) {
        self.segments += 1;
        self.records += info.records;
        self.bytes += info.file_bytes;
    }
}

/// Drops segments from the front while `wanted` says so. The active segment and those of another living process
/// stay; so does everything while a newer process lives in the directory: it is the one that trims.
pub(crate) fn trim(shared: &Shared, keep: Keep, wanted: impl Fn(&SegmentInfo) -> bool) -> io::Result<Trimmed> {
    settle::settle_all(shared)?;
    let _one_at_a_time = locked(&shared.maintenance);
    if superseded(shared)? {
        return Ok(Trimmed::default());
    }
    // A newer process that has ended may have come further than this one knows: the mark never goes back.
    let mut trimmed = finish_elsewhere(shared)?;
    let victims: Vec<SegmentInfo> = {
        let foreign = locked(&shared.foreign).clone();
        let droppable = |info: &SegmentInfo| {
            matches!(info.state, SegmentState::Sealed | SegmentState::Closed) && !foreign.contains(&info.id.epoch)
        };
        shared.catalog().segments.values().copied().take_while(|info| droppable(info) && wanted(info)).collect()
    };
    let Some(last) = victims.last() else { return Ok(trimmed) };
    let directory = &shared.settings.directory;
    // Nor does it go back where an earlier trim wrote it down and could not finish.
    let mark = last.end_position().max(shared.catalog().trimmed);
    let dir = Dir { storage: &*shared.storage, directory, log: &shared.log };
    dir.write_mark(mark, &victims, &mut || drop_recyclable(shared))?;
    {
        let mut catalog = shared.catalog();
        catalog.trimmed = catalog.trimmed.max(mark);
    }
    for info in &victims {
        drop_segment(shared, info, keep)?;
        trimmed.add(info);
    }
    shared.storage.sync_directory(directory)?;
    Ok(trimmed)
}

/// Where the marks are.
struct Dir<'a> {
    storage: &'a dyn Storage,
    directory: &'a Path,
    log: &'a LogId,
}

impl Dir<'_> {
    /// Writes down how far was trimmed. That takes a block, which a full disk does not have, and nothing but trimming
    /// would free one: so what nobody needs goes first. `drop_idle` gives up one trimmed file; false without any.
    fn write_mark(
        &self,
        mark: Position,
        victims: &[SegmentInfo],
        drop_idle: &mut dyn FnMut() -> io::Result<bool>,
    ) -> io::Result<()> {
        let (path, bytes) = (self.directory.join(TRIM_MARK), encode_mark(self.log, mark));
        loop {
            match self.storage.put(&path, &bytes) {
                Err(error) if is_full(&error) => {}
                result => return result,
            }
            if !drop_idle()? {
                break;
            }
        }
        // Indexes of what is about to go.
        for info in victims {
            ignore_missing(self.storage.remove(&side_path(self.directory, info.id)))?;
        }
        match self.storage.put(&path, &bytes) {
            Err(error) if is_full(&error) => {}
            result => return result,
        }
        // In place, into the block that the last mark has. The mark is smaller than a sector, which a disk writes whole
        // or not at all.
        let file = match self.storage.open_write(&path, WriteMode::Buffered) {
            Ok(file) if file.len()? == bytes.len() as u64 => file,
            Ok(_) => return Err(io::ErrorKind::StorageFull.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(io::ErrorKind::StorageFull.into()),
            Err(error) => return Err(error),
        };
        file.write_at(0, &bytes)?;
        file.sync()
    }
}

/// Gives the space of a trimmed file back to the file system; false if none waits for reuse.
pub(crate) fn drop_recyclable(shared: &Shared) -> io::Result<bool> {
    let Some(name) = shared.catalog().recyclable.pop() else { return Ok(false) };
    ignore_missing(shared.storage.remove(&shared.settings.directory.join(name)))?;
    Ok(true)
}

fn mark_on_disk(shared: &Shared) -> io::Result<Option<Position>> {
    stored_mark(&*shared.storage, &shared.settings.directory, &shared.log)
}

/// Drops what another process had trimmed: its mark is durable, and what it left behind of the files goes. What this
/// process wrote nobody else trims while it lives, whatever the mark says.
fn finish_elsewhere(shared: &Shared) -> io::Result<Trimmed> {
    let mut trimmed = Trimmed::default();
    let Some(mark) = mark_on_disk(shared)? else { return Ok(trimmed) };
    let behind: Vec<SegmentInfo> = {
        let mut catalog = shared.catalog();
        catalog.trimmed = catalog.trimmed.max(mark);
        let of_mark = catalog.segments.range(..=mark.segment()).map(|(_, info)| *info);
        of_mark.filter(|info| info.id.epoch != shared.epoch).collect()
    };
    for info in &behind {
        drop_segment(shared, info, Keep::Nothing)?;
        trimmed.add(info);
    }
    Ok(trimmed)
}

/// The segment's file is gone without our doing. If the mark on the disk says that another process trimmed it, this one
/// knows it from now on; true then.
pub(crate) fn trimmed_elsewhere(shared: &Shared, id: SegmentId) -> io::Result<bool> {
    let Some(mark) = mark_on_disk(shared)? else { return Ok(false) };
    let by_others = |id: SegmentId| id <= mark.segment() && id.epoch != shared.epoch;
    if !by_others(id) {
        return Ok(false);
    }
    let mut catalog = shared.catalog();
    catalog.trimmed = catalog.trimmed.max(mark);
    catalog.segments.retain(|id, _| !by_others(*id));
    catalog.damage.retain(|damage| !by_others(damage.segment));
    Ok(true)
}

/// Drops one; false if there is none to drop.
pub(crate) fn drop_oldest(shared: &Shared, keep: Keep) -> io::Result<bool> {
    let Some(oldest) = shared.catalog().segments.keys().next().copied() else { return Ok(false) };
    let trimmed = trim(shared, keep, |info| info.id == oldest)?;
    if trimmed.segments > 0 {
        tracing::warn!(segment = %oldest, records = trimmed.records, "dropped for want of space");
    }
    Ok(trimmed.segments > 0)
}

/// Does a newer process live here? The lock file of one that ended is kept: that alone says nothing.
pub(crate) fn superseded(shared: &Shared) -> io::Result<bool> {
    let directory = &shared.settings.directory;
    for file in shared.storage.list(directory)? {
        if let Some(Name::Lock(epoch)) = names::parse(&file.name)
            && epoch > shared.epoch
            && shared.storage.is_locked(&lock_path(directory, epoch))?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn drop_segment(shared: &Shared, info: &SegmentInfo, keep: Keep) -> io::Result<()> {
    let directory = &shared.settings.directory;
    let whole = info.file_bytes == shared.settings.segment_bytes;
    let room = {
        // Readers first: from here on they are told that it is trimmed.
        let mut catalog = shared.catalog();
        catalog.segments.remove(&info.id);
        catalog.damage.retain(|damage| damage.segment != info.id);
        catalog.recyclable.len() < shared.settings.recycle_max
    };
    let path = segment_path(directory, info.id);
    if keep == Keep::File && whole && room {
        let name = free_name(info.id);
        ignore_missing(shared.storage.rename(&path, &directory.join(&name)))?;
        shared.catalog().recyclable.push(name);
    } else {
        ignore_missing(shared.storage.remove(&path))?;
    }
    ignore_missing(shared.storage.remove(&end_path(directory, info.id)))?;
    ignore_missing(shared.storage.remove(&side_path(directory, info.id)))?;
    if let Some(observer) = &shared.observer {
        observer.trimmed(info.id);
    }
    Ok(())
}
