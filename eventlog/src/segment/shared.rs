//! What the writer, its helper, cursors and the journal's handle have in common.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use domain::Clock;
use tokio::sync::watch;

use super::catalog::{Catalog, SegmentInfo, SegmentState};
use super::damage::Damage;
use super::format::{HEADER_BLOCK, Identity, LogId};
use super::observer::SegmentObserver;
use super::options::{SyncMode, WhenFull};
use super::position::{Position, SegmentId};
use super::queue::Queue;
use super::stat::Rate;
use super::storage::{Space, Storage, WriteMode};
use super::trim_clock::{Belief, TrimClock};

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) directory: PathBuf,
    pub(crate) segment_bytes: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) reserve_bytes: u64,
    pub(crate) recycle_max: usize,
    pub(crate) sync: SyncMode,
    /// A view: nothing is repaired or settled.
    pub(crate) read_only: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) heals: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct SpaceView {
    pub(crate) space: Space,
    pub(crate) looked: Duration,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Option<Arc<dyn SegmentObserver>>,
    pub(crate) log: LogId,
    pub(crate) epoch: u64,
    pub(crate) queue: Queue,
    catalog: Mutex<Catalog>,
    /// How files are written: what the file system took when the first segment was made.
    pub(crate) mode: OnceLock<WriteMode>,
    /// Offset part of the durable position; the epoch is ours.
    durable: AtomicU64,
    pub(crate) changes: watch::Sender<Position>,
    /// The segment that is written, as of its last batch; the catalog has its sums only when it is left.
    pub(crate) growing: Mutex<Option<SegmentInfo>>,
    /// Epochs of other processes that lived when we last looked.
    pub(crate) foreign: Mutex<BTreeSet<u64>>,
    /// Held by whoever renames, removes or settles segments, so that there is one at a time.
    pub(crate) maintenance: Mutex<()>,
    pub(crate) counters: Counters,
    pub(crate) rate: Mutex<Rate>,
    pub(crate) space: Mutex<SpaceView>,
    pub(crate) trim_clock: Mutex<TrimClock>,
    /// Held by whoever writes down what is believed: an older belief must not come last.
    pub(crate) keeping: Mutex<()>,
}

/// How far a segment can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) end: u64,
    /// Nothing will be added.
    pub(crate) complete: bool,
    pub(crate) state: SegmentState,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Changes under these locks are single steps that do not panic in between.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Option<Arc<dyn SegmentObserver>>,
    pub(crate) log: LogId,
    pub(crate) epoch: u64,
    pub(crate) queue: Queue,
    pub(crate) catalog: Catalog,
    pub(crate) foreign: BTreeSet<u64>,
    pub(crate) space: Space,
    /// What retention believed when that was written down last.
    pub(crate) belief: Option<Belief>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        let start = Position::at(SegmentId { epoch: parts.epoch, sequence: 0 }, HEADER_BLOCK, 0);
        let now = parts.clock.monotonic();
        let times = parts.catalog.segments.values().filter(|info| info.records > 0);
        let newest = times.map(|info| info.max_unix_ms).max();
        let last = parts.catalog.segments.keys().next_back().copied();
        let trim_clock = TrimClock::new(&*parts.clock, parts.belief, newest, start.segment(), last);
        Self {
            settings: parts.settings,
            storage: parts.storage,
            clock: parts.clock,
            observer: parts.observer,
            log: parts.log,
            epoch: parts.epoch,
            queue: parts.queue,
            catalog: Mutex::new(parts.catalog),
            mode: OnceLock::new(),
            durable: AtomicU64::new(start.offset()),
            changes: watch::Sender::new(start),
            growing: Mutex::new(None),
            foreign: Mutex::new(parts.foreign),
            maintenance: Mutex::new(()),
            counters: Counters::default(),
            rate: Mutex::new(Rate::new(now)),
            space: Mutex::new(SpaceView { space: parts.space, looked: now }),
            trim_clock: Mutex::new(trim_clock),
            keeping: Mutex::new(()),
        }
    }

    /// The time now, as far as retention believes the clock.
    pub(crate) fn believed_unix_ms(&self) -> u64 {
        let last = self.last_segment();
        locked(&self.trim_clock).unix_ms(&*self.clock, last)
    }

    /// The last segment that may have a record, or gets one now. Not the durable place's: a batch that is on its way may
    /// be the first of the next.
    pub(crate) fn last_segment(&self) -> SegmentId {
        let durable = self.durable().segment();
        self.catalog().segments.keys().next_back().map_or(durable, |last| durable.max(*last))
    }

    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        locked(&self.catalog)
    }

    /// How files are written; before the first segment was made it makes no difference.
    pub(crate) fn mode(&self) -> WriteMode {
        self.mode.get().copied().unwrap_or(WriteMode::Buffered)
    }

    pub(crate) fn identity(&self, segment: SegmentId) -> Identity {
        Identity { log: self.log, segment }
    }

    pub(crate) fn durable(&self) -> Position {
        Position::new(self.epoch, self.durable.load(Ordering::Acquire))
    }

    /// Lets readers go up to here.
    pub(crate) fn publish(&self, durable: Position) {
        self.durable.store(durable.offset(), Ordering::Release);
    }

    /// How far the segment can be read; `None` if there is none of that id.
    pub(crate) fn limit(&self, id: SegmentId) -> Option<Limit> {
        let catalog = self.catalog();
        let info = *catalog.segments.get(&id)?;
        let durable = self.durable();
        let (end, complete) = match info.state {
            SegmentState::Active if durable.segment() == id => (durable.file_offset(), false),
            SegmentState::Active => (HEADER_BLOCK, false),
            SegmentState::Closed | SegmentState::Sealed => (info.end, true),
            SegmentState::Foreign => (info.end, false),
        };
        Some(Limit { end, complete, state: info.state })
    }

    pub(crate) fn alarm(&self, damage: Damage) {
        self.catalog().add_damage(damage);
    }
}
