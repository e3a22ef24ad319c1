//! What is known of the segments: the observer that the journal tells what it commits and drops, and the place where a
//! walk asks which chunks of a segment it wants.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use domain::Clock;

use super::Query;
use super::side::{MemoryIndex, SideIndex};
use crate::index::SideFault;
use crate::segment::{
    RecordView, SegmentId, SegmentInfo, SegmentObserver, SegmentState, SideFile, SideReader, Storage, open_side,
};

/// Most indexes in memory of segments that take no more records: those whose side file is not there (yet). What is beyond
/// is read again when somebody asks.
const IN_MEMORY_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Indexes {
    me: Weak<Self>,
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    growing: BTreeMap<SegmentId, MemoryIndex>,
    /// Of segments that take no more records.
    complete: BTreeMap<SegmentId, (SegmentInfo, Arc<MemoryIndex>)>,
    /// Side files that were opened once: 64 bytes a segment.
    sides: BTreeMap<SegmentId, SideIndex>,
    /// The newest time of each segment that takes no more records.
    times: BTreeMap<SegmentId, u64>,
    /// The newest time of what was dropped since the store was opened; 0 for nothing.
    lost_unix_ms: u64,
}

/// What an index says.
#[derive(Debug)]
pub(super) struct Selected {
    /// Places of chunks, in the order of the log.
    pub(super) spots: Vec<u32>,
    /// What of the segment the index does not have.
    pub(super) faults: Vec<String>,
}

impl Indexes {
    pub(super) fn new(storage: Arc<dyn Storage>, directory: PathBuf, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), storage, directory, clock, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chunks of a segment that may have what is wanted; `None` if there is no index: the segment is to be read then.
    pub(super) fn select(&self, info: &SegmentInfo, query: &Query) -> Option<Selected> {
        let state = self.state();
        if let Some(growing) = state.growing.get(&info.id) {
            return Some(of(growing, query));
        }
        if let Some((_, complete)) = state.complete.get(&info.id) {
            let index = Arc::clone(complete);
            drop(state);
            return Some(of(&index, query));
        }
        let known = state.sides.get(&info.id).copied();
        drop(state);
        if !matches!(info.state, SegmentState::Sealed | SegmentState::Closed) {
            return None;
        }
        if known.is_some_and(|side| side.misses(query)) {
            return Some(Selected { spots: Vec::new(), faults: Vec::new() });
        }
        match self.ask_side(info, known, query) {
            Ok(spots) => Some(Selected { spots, faults: Vec::new() }),
            Err(fault) => {
                tracing::info!(segment = %info.id, %fault, "the index of a segment of records is built again");
                self.state().sides.remove(&info.id);
                None
            }
        }
    }

    fn ask_side(&self, info: &SegmentInfo, known: Option<SideIndex>, query: &Query) -> Result<Vec<u32>, SideFault> {
        let reader = self.reader(info)?;
        let side = known.map_or_else(|| SideIndex::open(&reader, info.id), Ok)?;
        self.state().sides.insert(info.id, side);
        if side.misses(query) { Ok(Vec::new()) } else { side.select(&reader, query) }
    }

    fn reader(&self, info: &SegmentInfo) -> Result<SideReader, SideFault> {
        let reader = open_side(&*self.storage, &self.directory, info)?;
        reader.ok_or(SideFault::Damaged("there is none, or it is of other batches"))
    }

    /// Keeps the index of a segment that was read.
    pub(super) fn keep(&self, info: SegmentInfo, index: Arc<MemoryIndex>) {
        self.state().complete.insert(info.id, (info, index));
        self.let_go();
    }

    /// Lets go of indexes in memory whose side files are there, and of the oldest ones beyond the bound.
    fn let_go(&self) {
        let held: Vec<SegmentInfo> = self.state().complete.values().map(|(info, _)| *info).collect();
        for info in held.into_iter().filter(|info| self.reader(info).is_ok()) {
            self.is_beside(info.id);
        }
        let mut state = self.state();
        while state.complete.len() > IN_MEMORY_MAX {
            state.complete.pop_first();
        }
    }

    /// The side file of this segment was written: its index need not stay in memory.
    pub(super) fn is_beside(&self, segment: SegmentId) {
        self.state().complete.remove(&segment);
    }

    /// Takes note of how new segments are, for when they are dropped; and forgets those before the oldest.
    pub(super) fn learn(&self, segments: &[SegmentInfo]) {
        let mut state = self.state();
        let no_more = |info: &&SegmentInfo| matches!(info.state, SegmentState::Sealed | SegmentState::Closed);
        state.times.extend(segments.iter().filter(no_more).map(|info| (info.id, info.max_unix_ms)));
        if let Some(oldest) = segments.first() {
            state.times = state.times.split_off(&oldest.id);
        }
    }

    /// The newest time of what was dropped since this was asked last; 0 for nothing.
    pub(super) fn take_lost(&self) -> u64 {
        std::mem::take(&mut self.state().lost_unix_ms)
    }

    #[cfg(test)]
    pub(super) fn in_memory(&self) -> usize {
        self.state().complete.len()
    }
}

fn of(index: &MemoryIndex, query: &Query) -> Selected {
    Selected { spots: index.select(query), faults: index.faults.clone() }
}

impl SegmentObserver for Indexes {
    fn committed(&self, segment: SegmentId, records: &mut dyn Iterator<Item = RecordView<'_>>) {
        let mut state = self.state();
        let growing = state.growing.entry(segment).or_default();
        records.for_each(|record| growing.add(&record));
    }

    fn sealed(&self, info: &SegmentInfo) -> Option<SideFile> {
        let mut state = self.state();
        let index = Arc::new(state.growing.remove(&info.id).unwrap_or_default());
        state.complete.insert(info.id, (*info, Arc::clone(&index)));
        state.times.insert(info.id, info.max_unix_ms);
        drop(state);
        let (me, id) = (Weak::clone(&self.me), info.id);
        Some(Box::new(move || {
            // The ones before have their files by now.
            if let Some(me) = me.upgrade() {
                me.let_go();
            }
            index.encode(id)
        }))
    }

    fn settled(&self, epoch: u64) {
        tracing::debug!(epoch, "another process's records can be read to their end");
    }

    fn trimmed(&self, segment: SegmentId) {
        let now = self.clock.unix_ms();
        let mut state = self.state();
        state.growing.remove(&segment);
        state.complete.remove(&segment);
        state.sides.remove(&segment);
        // One that nobody took note of may have been as new as any. A time that is to come was written under a clock that
        // was wrong.
        let newest = state.times.remove(&segment).map_or(now, |at| at.min(now));
        state.lost_unix_ms = state.lost_unix_ms.max(newest);
    }
}
