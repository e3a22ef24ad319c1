//! Reading a directory without taking part in it: no lock, no epoch, no repair, nothing written.
//!
//! For commands beside a running process and for when none runs. What a living process has appended when the view is
//! opened is seen to its end: the last batch is made durable first. It may be one whose sender has no answer yet, or is
//! told that it failed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use domain::Clock;

use super::catalog::{Catalog, SegmentInfo};
use super::cursor::{Cursor, ReadError};
use super::damage::Damage;
use super::epoch::Case;
use super::names::{TRIM_MARK, lock_path};
use super::options::{SyncMode, WhenFull};
use super::position::Position;
use super::queue::{Load, Queue};
use super::recover::{Listing, OpenError, enter, header_log_id, stored_log_id};
use super::scan::Manner;
use super::shared::{Parts, Settings, Shared};
use super::storage::{Space, Storage, read_or_nothing};
use super::trim_mark::decode_mark;

/// A directory of segments, open for reading only.
#[derive(Debug)]
pub struct View {
    shared: Arc<Shared>,
}

impl View {
    /// Looks at what is there. A directory that does not exist is an empty one.
    pub fn open(storage: Arc<dyn Storage>, directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let listing = match Listing::read(&*storage, directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Listing::default(),
            Err(error) => return Err(OpenError::io("listing the log")(error)),
        };
        let log = match stored_log_id(&*storage, directory).map_err(OpenError::io("the log's id"))? {
            Some(log) => Some(log),
            None if listing.segments.is_empty() => None,
            None => header_log_id(&*storage, directory).map_err(OpenError::io("the log's id"))?,
        };
        let log = log.unwrap_or_default();
        let mark =
            read_or_nothing(&*storage, &directory.join(TRIM_MARK), 4096).map_err(OpenError::io("the trim mark"))?;
        let trimmed = mark.and_then(|bytes| decode_mark(&log, &bytes)).unwrap_or(Position::START);
        let mut catalog = Catalog::new(trimmed);
        let mut foreign = BTreeSet::new();
        let epochs = listing.epochs();
        for epoch in epochs.iter().copied() {
            let lock = lock_path(directory, epoch);
            let live = storage.is_locked(&lock).map_err(OpenError::io("the lock of an epoch"))?;
            let manner = if live { Manner::Live } else { Manner::Settled };
            let files = &listing.segments;
            let case = Case {
                storage: &*storage,
                directory,
                log,
                epoch,
                files,
                trimmed,
                manner,
                whole: false,
                read_only: true,
            };
            let judged = case.judge(&mut |_| {})?;
            if live {
                foreign.insert(epoch);
            }
            enter(&mut catalog, epoch, live, &judged);
        }
        // Everything that is there lies in epochs before this one, which nobody has.
        let epoch = epochs.last().map_or(1, |last| last.saturating_add(1));
        let settings = Settings {
            directory: directory.to_owned(),
            segment_bytes: 0,
            when_full: WhenFull::Refuse,
            reserve_bytes: 0,
            recycle_max: 0,
            sync: SyncMode::Auto,
            read_only: true,
        };
        let queue = Queue::new(Load::default(), Arc::clone(&clock));
        let space = Space::default();
        let (observer, belief) = (None, None);
        let parts = Parts { settings, storage, clock, observer, log, epoch, queue, catalog, foreign, space, belief };
        Ok(Self { shared: Arc::new(Shared::new(parts)) })
    }

    /// Behind everything that this view has.
    pub fn durable(&self) -> Position {
        self.shared.durable()
    }

    /// Reads from a place on: one that was given out, or `Position::START` for the oldest record that is left.
    pub fn read(&self, from: Position) -> Result<Cursor, ReadError> {
        Cursor::new(Arc::clone(&self.shared), from)
    }

    /// Reads one segment alone, whatever its state.
    pub fn read_segment(&self, segment: super::position::SegmentId) -> Cursor {
        Cursor::of_segment(Arc::clone(&self.shared), segment)
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.shared.catalog().segments.values().copied().collect()
    }

    /// Bytes of the file system that may still be used; 0 if it does not say.
    pub fn bytes_free(&self) -> u64 {
        self.shared.storage.space(&self.shared.settings.directory).map_or(0, |space| space.free)
    }

    /// Known damage.
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.catalog().damage.clone()
    }
}
