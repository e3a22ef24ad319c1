//! What is known of one lane's segments: the observer that a journal tells what it commits, and the place where
//! readers ask which records of a segment they want.
//!
//! A segment of this process is in `growing` while it is appended to and in `known` once it is sealed; segments
//! of earlier processes come to `known` at open. A sealed segment's index stays in memory until its side file
//! can be read, which is at the next seal: one or two per lane, never more than `IN_MEMORY_MAX`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use domain::EventId;

use super::place::spot_of;
use super::stored::{Share, StoredBytes};
use crate::codec::decode_key;
use crate::index::{ActiveIndex, Row, SideFault, SideIndex, Source, Summary, TenantTotal, Wanted, encode};
use crate::segment::{
    self, RecordView, SegmentId, SegmentInfo, SegmentObserver, SegmentState, SideFile, SideReader, Storage,
};
use crate::stat::Trimmed;

/// Kind of an event's record in a journal.
pub(crate) const KIND_EVENT: u8 = 1;

/// Most indexes of sealed segments that stay in memory when side files cannot be written. Behind that they are
/// dropped, and a segment is read when somebody asks for it.
pub(crate) const IN_MEMORY_MAX: usize = 4;

/// How far the clock may have been set back between a delivery's receipt and its append, so that a damaged segment is
/// still read for it: more than any correction of a clock that is kept in step.
const CLOCK_STEP_MS: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct LaneIndex {
    me: Weak<Self>,
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    stored: Arc<StoredBytes>,
    growing: Mutex<BTreeMap<SegmentId, Growing>>,
    known: RwLock<BTreeMap<SegmentId, Known>>,
    /// Those of the known ones that another process may still append to.
    unfinished: Mutex<BTreeSet<SegmentId>>,
    /// How often another process's segments became readable to their end, and how many of those times the segments
    /// were taken up since.
    settled: AtomicU64,
    taken_up: AtomicU64,
    /// Records and bytes of events that were trimmed since the lane was opened.
    trimmed: Mutex<Trimmed>,
}

/// The index of a segment that is appended to.
#[derive(Debug, Clone)]
pub(crate) struct Growing {
    pub(crate) index: ActiveIndex,
    /// When its first record was appended.
    first_unix_ms: Option<u64>,
    /// Every record of the segment is in the index. Else readers go through the segment itself, so that what is
    /// wrong with it comes out.
    pub(crate) whole: bool,
}

/// A segment that takes no more records.
#[derive(Debug, Clone)]
struct Known {
    info: SegmentInfo,
    whole: bool,
    summary: Summary,
    /// What it has of whom, in the order of its index.
    shares: Arc<[Share]>,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Memory(Arc<ActiveIndex>),
    Side(SideIndex),
    /// The index was dropped and is built again when somebody asks.
    Absent,
}

/// What an index says about a segment.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Found(T),
    /// The index does not cover the segment's records: read them.
    NotIndexed,
    /// The index has to be built again first.
    Broken(SideFault),
}

impl Growing {
    pub(crate) fn new() -> Self {
        Self { index: ActiveIndex::default(), first_unix_ms: None, whole: true }
    }

    /// Adds a record; says whose it is, if it is an event.
    pub(crate) fn add<'a>(&mut self, record: &RecordView<'a>) -> Option<&'a str> {
        self.first_unix_ms.get_or_insert(record.time_unix_ms);
        let key = if record.kind == KIND_EVENT { decode_key(record.payload).ok() } else { None };
        let Some(key) = key else {
            self.whole = false;
            return None;
        };
        let tenant = self.index.tenant(key.tenant);
        let row = Row {
            id: key.id,
            endpoint: record.stream,
            received_unix_ms: key.received_unix_ms,
            spot: spot_of(record.position),
            tenant,
        };
        self.index.push(row, record.payload.len() as u64);
        Some(key.tenant)
    }
}

impl Known {
    /// Which of the tenants of its index this one is.
    fn nth_tenant(&self, number: Option<u32>) -> Option<u32> {
        let number = number?;
        let nth = self.shares.iter().position(|share| share.tenant == number)?;
        u32::try_from(nth).ok()
    }
}

impl LaneIndex {
    pub(crate) fn new(storage: Arc<dyn Storage>, directory: PathBuf, stored: Arc<StoredBytes>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            storage,
            directory,
            stored,
            growing: Mutex::default(),
            known: RwLock::default(),
            unfinished: Mutex::default(),
            settled: AtomicU64::new(0),
            taken_up: AtomicU64::new(0),
            trimmed: Mutex::default(),
        })
    }

    fn growing(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Growing>> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfinished(&self) -> MutexGuard<'_, BTreeSet<SegmentId>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> RwLockReadGuard<'_, BTreeMap<SegmentId, Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<SegmentId, Known>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is the segment known to its end?
    pub(crate) fn is_finished(&self, segment: SegmentId) -> bool {
        self.known().get(&segment).is_some_and(|entry| entry.info.state != SegmentState::Foreign)
    }

    /// Is the segment known to its end, and are there records that its index does not have?
    pub(crate) fn is_lossy(&self, segment: SegmentId) -> bool {
        self.known().get(&segment).is_some_and(|entry| entry.info.state != SegmentState::Foreign && !entry.whole)
    }

    /// How often another process has ended, if not all of them have been taken up.
    pub(crate) fn unsettled(&self) -> Option<u64> {
        let settled = self.settled.load(Ordering::Acquire);
        (settled != self.taken_up.load(Ordering::Acquire)).then_some(settled)
    }

    /// What had ended by then is known to its end.
    pub(crate) fn set_taken_up(&self, settled: u64) {
        self.taken_up.store(settled, Ordering::Release);
    }

    pub(crate) fn knows(&self, segment: SegmentId) -> bool {
        // In this order, as everywhere: a segment goes from growing to known.
        self.growing().contains_key(&segment) || self.known().contains_key(&segment)
    }

    /// Is there a segment, here or further on, that another process may still append to?
    pub(crate) fn has_unfinished_from(&self, segment: SegmentId) -> bool {
        self.unfinished().last().is_some_and(|last| *last >= segment)
    }

    /// Segments that take no more records of this process.
    pub(crate) fn known_segments(&self) -> Vec<SegmentId> {
        self.known().keys().copied().collect()
    }

    /// A segment that another process appends to: readers go through it, and wait at its end.
    pub(crate) fn take_up_unfinished(&self, info: &SegmentInfo) {
        let (summary, shares) = (Summary::default(), Arc::default());
        let entry = Known { info: *info, whole: false, summary, shares, form: Form::Absent };
        self.known_mut().entry(info.id).or_insert(entry);
        self.unfinished().insert(info.id);
    }

    /// Takes up a segment of an earlier process by its side file; false if that cannot be used.
    pub(crate) fn take_up(&self, info: &SegmentInfo) -> bool {
        match self.open_side(info) {
            Ok((side, totals)) => {
                self.learn(info, true, *side.summary(), &totals, Form::Side(side));
                true
            }
            Err(fault) => {
                tracing::warn!(segment = %info.id, directory = %self.directory.display(), %fault,
                    "the index of a segment is built again");
                false
            }
        }
    }

    /// Takes up a segment whose records were read.
    pub(crate) fn take_up_rebuilt(&self, info: &SegmentInfo, rebuilt: Growing) {
        let index = Arc::new(rebuilt.index);
        self.learn(info, rebuilt.whole, *index.summary(), index.totals(), Form::Memory(Arc::clone(&index)));
    }

    /// The index of a known segment was built again. One that was trimmed meanwhile stays gone.
    pub(crate) fn replace(&self, info: &SegmentInfo, rebuilt: Growing) {
        if let Some(entry) = self.known_mut().get_mut(&info.id) {
            let (summary, shares) = (*rebuilt.index.summary(), self.stored.add_segment(rebuilt.index.totals()));
            let form = Form::Memory(Arc::new(rebuilt.index));
            let before = std::mem::replace(entry, Known { info: *info, whole: rebuilt.whole, summary, shares, form });
            self.stored.remove_segment(&before.shares);
        }
    }

    /// The segment is not there any more.
    pub(crate) fn forget(&self, segment: SegmentId) {
        let Some(entry) = self.known_mut().remove(&segment) else { return };
        self.unfinished().remove(&segment);
        self.stored.remove_segment(&entry.shares);
        let (records, bytes) = (u64::from(entry.summary.records), entry.summary.bytes);
        if entry.info.state != SegmentState::Foreign {
            self.trimmed.lock().unwrap_or_else(PoisonError::into_inner).add(Trimmed { segments: 1, records, bytes });
        }
    }

    fn learn(&self, info: &SegmentInfo, whole: bool, summary: Summary, totals: &[TenantTotal], form: Form) {
        let shares = self.stored.add_segment(totals);
        let mut known = self.known_mut();
        let before = known.insert(info.id, Known { info: *info, whole, summary, shares, form });
        drop(known);
        if let Some(before) = before {
            self.stored.remove_segment(&before.shares);
        }
        self.unfinished().remove(&info.id);
    }

    fn open_side(&self, info: &SegmentInfo) -> Result<(SideIndex, Vec<TenantTotal>), SideFault> {
        let reader = segment::open_side(&*self.storage, &self.directory, info)?
            .ok_or(SideFault::Damaged("there is none, or it is of other batches"))?;
        SideIndex::open(&reader, (info.id.epoch, info.id.sequence))
    }

    /// Bytes of a side file for a segment that has a whole index in memory.
    pub(crate) fn side_bytes(&self, segment: SegmentId) -> Option<Vec<u8>> {
        let index = {
            let known = self.known();
            let entry = known.get(&segment).filter(|entry| entry.whole)?;
            let Form::Memory(index) = &entry.form else { return None };
            Arc::clone(index)
        };
        Some(encode((segment.epoch, segment.sequence), &index))
    }

    /// How many indexes of segments that take no more records are in memory.
    #[cfg(test)]
    pub(crate) fn in_memory(&self) -> usize {
        self.known().values().filter(|entry| matches!(entry.form, Form::Memory(_))).count()
    }

    /// Lets go of indexes in memory whose side files can be read, and of the oldest ones beyond the bound.
    pub(crate) fn settle_in_memory(&self) {
        let held: Vec<SegmentInfo> = {
            let known = self.known();
            known.values().filter(|entry| matches!(entry.form, Form::Memory(_))).map(|entry| entry.info).collect()
        };
        let too_many = held.len().saturating_sub(IN_MEMORY_MAX);
        for (nth, info) in held.iter().enumerate() {
            let (form, totals) = match self.open_side(info) {
                Ok((side, totals)) => (Form::Side(side), Some(totals)),
                Err(_) if nth < too_many => (Form::Absent, None),
                Err(_) => continue,
            };
            if let Some(entry) = self.known_mut().get_mut(&info.id) {
                if let (Form::Side(side), Some(totals)) = (&form, totals) {
                    // Of the same records; the order of its tenants is what its tables go by.
                    entry.summary = *side.summary();
                    let before = std::mem::replace(&mut entry.shares, self.stored.add_segment(&totals));
                    self.stored.remove_segment(&before);
                }
                entry.form = form;
            }
        }
    }

    /// The first segment at or behind this one.
    pub(crate) fn at_or_behind(&self, segment: SegmentId) -> Option<SegmentId> {
        // In this order: a segment goes from growing to known, so it is seen in one of them.
        let growing = self.growing().range(segment..).next().map(|(id, _)| *id);
        let known = self.known().range(segment..).next().map(|(id, _)| *id);
        [growing, known].into_iter().flatten().min()
    }

    pub(crate) fn behind(&self, segment: SegmentId) -> Option<SegmentId> {
        let range = (Bound::Excluded(segment), Bound::Unbounded);
        let growing = self.growing().range(range).next().map(|(id, _)| *id);
        let known = self.known().range(range).next().map(|(id, _)| *id);
        [growing, known].into_iter().flatten().min()
    }

    /// The last segment before this one.
    pub(crate) fn before(&self, segment: SegmentId) -> Option<SegmentId> {
        let growing = self.growing().range(..segment).next_back().map(|(id, _)| *id);
        let known = self.known().range(..segment).next_back().map(|(id, _)| *id);
        growing.max(known)
    }

    /// Where the records of a segment that takes no more end.
    pub(crate) fn info(&self, segment: SegmentId) -> Option<SegmentInfo> {
        self.known().get(&segment).map(|entry| entry.info)
    }

    /// Places of what is wanted in one segment, in order.
    pub(crate) fn select(&self, segment: SegmentId, wanted: &Wanted<'_>) -> Answer<Vec<u32>> {
        let growing = self.growing().get(&segment).map(|growing| {
            let tenant = wanted.tenant.map(|name| growing.index.known_tenant(name).unwrap_or(u32::MAX));
            (growing.whole, wanted.meets(growing.index.summary()).then(|| growing.index.snapshot()), tenant)
        });
        match growing {
            Some((false, ..)) => return Answer::NotIndexed,
            Some((true, rows, tenant)) => {
                return Answer::Found(rows.map(|rows| rows.select(wanted, tenant)).unwrap_or_default());
            }
            None => {}
        }
        let Some(entry) = self.known().get(&segment).cloned() else { return Answer::NotIndexed };
        if !entry.whole {
            return Answer::NotIndexed;
        }
        let tenant = match wanted.tenant.map(|name| entry.nth_tenant(self.stored.number(name))) {
            // The segment has nothing of this tenant.
            Some(None) => return Answer::Found(Vec::new()),
            Some(Some(nth)) => Some(nth),
            None => None,
        };
        if !wanted.meets(&entry.summary) {
            return Answer::Found(Vec::new());
        }
        match &entry.form {
            Form::Memory(index) => Answer::Found(index.snapshot().select(wanted, tenant)),
            Form::Side(side) => self.ask_side(&entry.info, |reader| side.select(reader, wanted, tenant)),
            Form::Absent => Answer::Broken(SideFault::Damaged("it was not kept")),
        }
    }

    /// Segments that can hold an id of this time, oldest first. One that its index does not cover can hold any that
    /// was received before the last append to it: everything in it was appended before the next segment's first
    /// record, or where there is none, before its own last one.
    pub(crate) fn candidates(&self, received_unix_ms: u64) -> Vec<SegmentId> {
        let (growing, mut next_unix_ms): (Vec<SegmentId>, _) = {
            let growing = self.growing();
            let first_unix_ms = growing.values().find_map(|growing| growing.first_unix_ms);
            let may = growing.iter().filter(|(_, g)| !g.whole || g.index.summary().holds_time(received_unix_ms));
            (may.map(|(id, _)| *id).collect(), first_unix_ms)
        };
        let mut found = growing;
        for (id, entry) in self.known().iter().rev() {
            let has_records = entry.info.records > 0;
            let last_unix_ms = next_unix_ms.or_else(|| has_records.then_some(entry.info.max_unix_ms));
            let may = if entry.whole {
                entry.summary.holds_time(received_unix_ms)
            } else {
                entry.info.state == SegmentState::Foreign
                    || last_unix_ms.is_none_or(|last| received_unix_ms <= last.saturating_add(CLOCK_STEP_MS))
            };
            if may {
                found.push(*id);
            }
            if has_records {
                next_unix_ms = Some(entry.info.min_unix_ms);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Where in one segment an id is.
    pub(crate) fn find(&self, segment: SegmentId, id: EventId) -> Answer<Option<u32>> {
        let growing = self.growing().get(&segment).map(|growing| (growing.whole, growing.index.snapshot_near(id)));
        match growing {
            Some((false, _)) => return Answer::NotIndexed,
            Some((true, rows)) => return Answer::Found(rows.find(id)),
            None => {}
        }
        let Some(entry) = self.known().get(&segment).cloned() else { return Answer::Found(None) };
        if !entry.whole {
            return Answer::NotIndexed;
        }
        match &entry.form {
            Form::Memory(index) => Answer::Found(index.snapshot_near(id).find(id)),
            Form::Side(side) => self.ask_side(&entry.info, |reader| side.find(reader, id)),
            Form::Absent => Answer::Broken(SideFault::Damaged("it was not kept")),
        }
    }

    fn ask_side<T>(&self, info: &SegmentInfo, ask: impl FnOnce(&SideReader) -> Result<T, SideFault>) -> Answer<T> {
        match segment::open_side(&*self.storage, &self.directory, info) {
            Ok(Some(reader)) => match ask(&reader) {
                Ok(answer) => Answer::Found(answer),
                Err(fault) => Answer::Broken(fault),
            },
            Ok(None) => Answer::Broken(SideFault::Damaged("it is gone")),
            Err(fault) => Answer::Broken(fault.into()),
        }
    }

    /// What was trimmed since this was asked last, for whichever reason.
    pub(crate) fn take_trimmed(&self) -> Trimmed {
        std::mem::take(&mut *self.trimmed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records and bytes of events, of all segments.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let mut totals = (0, 0);
        let mut add = |summary: &Summary| {
            totals.0 += u64::from(summary.records);
            totals.1 += summary.bytes;
        };
        self.growing().values().for_each(|growing| add(growing.index.summary()));
        self.known().values().for_each(|entry| add(&entry.summary));
        totals
    }
}

impl Source for SideReader {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        Self::read_exact_at(self, offset, into)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(Self::len(self))
    }
}

impl SegmentObserver for LaneIndex {
    fn committed(&self, segment: SegmentId, records: &mut dyn Iterator<Item = RecordView<'_>>) {
        let mut growing = self.growing();
        let index = growing.entry(segment).or_insert_with(Growing::new);
        let mut stored = self.stored.batch();
        for record in records {
            if let Some(tenant) = index.add(&record) {
                stored.add(tenant, record.payload.len() as u64);
            }
        }
    }

    fn sealed(&self, info: &SegmentInfo) -> Option<SideFile> {
        let sealed = self.growing().get(&info.id).cloned().unwrap_or_else(Growing::new);
        let index = Arc::new(sealed.index);
        let (summary, shares) = (*index.summary(), self.stored.keep_segment(index.totals()));
        let form = Form::Memory(Arc::clone(&index));
        // Known first, and only then no longer growing: a reader in between finds it.
        self.known_mut().insert(info.id, Known { info: *info, whole: sealed.whole, summary, shares, form });
        self.growing().remove(&info.id);
        if !sealed.whole {
            return None;
        }
        let (me, id) = (Weak::clone(&self.me), info.id);
        Some(Box::new(move || {
            if let Some(me) = me.upgrade() {
                me.settle_in_memory();
            }
            encode((id.epoch, id.sequence), &index)
        }))
    }

    fn settled(&self, epoch: u64) {
        tracing::debug!(epoch, "another process's segments can be read to their end");
        self.settled.fetch_add(1, Ordering::AcqRel);
    }

    fn trimmed(&self, segment: SegmentId) {
        self.forget(segment);
    }
}
