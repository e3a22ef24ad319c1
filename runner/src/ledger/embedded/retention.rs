//! Two tiers: all of it for days, without payloads for months, and then the run's id alone.
//!
//! **Details.** When the journal's oldest segment is over the age of details, its commits are appended to the history, in
//! their order, and the segment is dropped, whole. Payloads do not come along: those of runs that are over are
//! [`Kept::Expired`], those of runs that are still open move to the store of payloads, where a payload is a file that can be
//! dropped alone. So no run loses what it may still need, and no payload outlives its run's details because of what else is
//! in a segment.
//!
//! **Metadata.** The history's segments are dropped, oldest first, when they are over the rest of the age, and no open run
//! has records in them: one that waits for so long holds them, and `Retained` says so. Of what was dropped, the index keeps
//! the runs' ids for ever, so that none is admitted again.
//!
//! **Crashes.** Each commit of the history says where it had been in the journal, and they are in that order. So the last one
//! says how far the move had come, and it goes on behind that: nothing is lost, and nothing is there twice. The segment goes
//! only when all of it is in the history, durably, and the index leads there.

use std::collections::HashSet;
use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use domain::TenantId;
use eventlog::segment::{
    self, Cursor, Entry, Journal, Payload as SegmentPayload, Position, ReadError as SegmentError, Record as Stored,
    SegmentInfo, SegmentState,
};

use super::catch_up::CatchUpError;
use super::index::{IndexError, Place, Tier};
use super::pack::{self, KIND_PACK, Packed};
use super::table::Pointer;
use super::{Core, EmbeddedLedger, reading};
use crate::ids::RunId;
use crate::ledger::codec;
use crate::ledger::payloads::{PayloadDirectory, PayloadError};
use crate::ledger::record::{Body, Kept, Payload, Record};

/// How long what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// Everything, payloads included.
    pub detail: Duration,
    /// Everything but payloads; counted from the beginning, as `detail` is.
    pub metadata: Duration,
}

impl Default for Ages {
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self { detail: day * 14, metadata: day * 180 }
    }
}

/// What one pass has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    /// Segments that went from the journal to the history, and their commits.
    pub moved_segments: u64,
    pub moved_commits: u64,
    /// Places that did not read, and were dropped with their segments.
    pub damaged: u64,
    /// Segments of the history that were dropped.
    pub dropped_segments: u64,
    /// The oldest of them is over age, and an open run has records in it.
    pub is_held: bool,
    /// Stored payloads that were dropped.
    pub payloads: u64,
    pub payload_bytes: u64,
}

/// Why a pass came to no end. What it had done is done, and the next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum RetainError {
    #[error("appending to the ledger's history: {0}")]
    Append(#[from] segment::AppendError),
    #[error(transparent)]
    Read(#[from] CatchUpError),
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error("reading a run that waits: {0}")]
    Run(#[from] crate::ledger::store::ReadError),
    #[error("dropping segments or payloads of the ledger: {0}")]
    Io(#[from] io::Error),
    #[error("the ledger's index does not work: {0}")]
    Unavailable(Box<str>),
}

impl From<SegmentError> for RetainError {
    fn from(error: SegmentError) -> Self {
        Self::Read(error.into())
    }
}

impl From<IndexError> for RetainError {
    fn from(error: IndexError) -> Self {
        Self::Read(error.into())
    }
}

/// How far the move to the history has come.
#[derive(Debug)]
pub(super) struct Moved {
    /// Where the last commit that is there had been in the journal.
    source: Option<Position>,
    /// What is there and the index does not lead to, since that has failed.
    unindexed: Vec<Pointer>,
}

impl Moved {
    pub(super) fn new(source: Option<Position>) -> Self {
        Self { source, unindexed: Vec::new() }
    }
}

/// A payload is kept before the commit that names it: by no more than this, a worker that has no answer for long included.
const KEPT_BEFORE_MS: u64 = 3_600_000;

/// How long a look at how far the index is waits for the next.
const INDEX_PAUSE: Duration = Duration::from_millis(1);

impl EmbeddedLedger {
    /// Moves and drops what is over age. Blocks, for as long as reading a segment and writing a part of it takes, a segment
    /// after the other; appends and reads go on meanwhile. One pass at a time.
    pub fn retain(&self, ages: &Ages, payloads: &PayloadDirectory) -> Result<Retained, RetainError> {
        let core = &*self.core;
        let mut moved = core.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut retained = Retained::default();
        core.lead_to_moved(&mut moved)?;
        let before = before(&core.journal, ages.detail);
        while let Some(info) = due(&core.journal, before) {
            core.until_indexed()?;
            core.move_segment(&info, &mut moved, payloads, &mut retained)?;
            let trimmed = core.journal.trim_before(info.end_position())?;
            retained.moved_segments += trimmed.segments;
            // Another process that is there keeps it, and the next pass tries again.
            if trimmed.segments == 0 {
                break;
            }
        }
        // One that is hardly written to stays in a segment for ever, and is asked to leave it.
        core.journal.leave_old(before);
        core.drop_history(ages.metadata.saturating_sub(ages.detail), &mut retained)?;
        // What a run needs is found by it.
        core.until_indexed()?;
        let needed = core.needed(before)?;
        let swept = payloads.sweep(before.saturating_sub(KEPT_BEFORE_MS), |tenant, digest| {
            needed.contains(&(tenant.clone(), *digest))
        })?;
        (retained.payloads, retained.payload_bytes) = (swept.files, swept.bytes);
        Ok(retained)
    }
}

fn before(journal: &Journal, age: Duration) -> u64 {
    journal.trim_unix_ms().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Where the last commit that is in the history had been in the journal. Reads the last segment that has one.
pub(super) fn last_moved(history: &Journal) -> Result<Option<Position>, CatchUpError> {
    for info in history.segments().iter().rev() {
        let mut cursor = history.read_segment(info.id);
        let mut last = None;
        while let Some(record) = cursor.next_record()? {
            for commit in pack::commits(&record) {
                last = commit?.source.or(last);
            }
        }
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}

/// The oldest segment, if all in it is from before that.
fn due(journal: &Journal, before_unix_ms: u64) -> Option<SegmentInfo> {
    let oldest = journal.segments().first().copied()?;
    let is_complete = matches!(oldest.state, SegmentState::Sealed | SegmentState::Closed);
    let is_over = oldest.records == 0 || journal.latest_unix_ms(oldest.id, oldest.max_unix_ms) < before_unix_ms;
    (is_complete && is_over).then_some(oldest)
}

impl Core {
    /// Waits until the index has what is durable now.
    fn until_indexed(&self) -> Result<(), RetainError> {
        let commits = self.table.commits();
        loop {
            {
                let progress = self.progress.borrow();
                if let Some(failed) = &progress.failed {
                    return Err(RetainError::Unavailable(failed.as_ref().into()));
                }
                if progress.commits >= commits {
                    return Ok(());
                }
            }
            if self.progress.has_changed().is_err() {
                return Err(RetainError::Unavailable("the ledger is closed".into()));
            }
            std::thread::park_timeout(INDEX_PAUSE);
        }
    }

    /// Does the run go on, or may it? What is only pending may come to nothing.
    fn is_open(&self, run: RunId) -> bool {
        self.table.look(run).is_some_and(|known| !known.is_over || known.is_pending)
    }

    /// Appends to the history what is not there of this segment.
    fn move_segment(
        &self,
        info: &SegmentInfo,
        moved: &mut Moved,
        payloads: &PayloadDirectory,
        retained: &mut Retained,
    ) -> Result<(), RetainError> {
        // First that the index has it, durably: what is read from the history after a crash is then known to be in it.
        self.raise_mark(Tier::Journal, info.end_position())?;
        let mut cursor = self.journal.read_segment(info.id);
        let mut pack = Pack::begun(self.clock.unix_ms());
        while let Some(record) = next_whole(&mut cursor, retained)? {
            if moved.source.is_some_and(|source| record.position <= source) {
                continue;
            }
            for commit in pack::commits(&record) {
                let (pointer, bytes) = self.stripped(&commit?, pack.time_unix_ms, payloads)?;
                pack.push(pointer, record.position, &bytes);
            }
            if pack.bytes.len() >= self.pack_bytes {
                self.append_to_history(&mut pack, moved, retained)?;
            }
        }
        self.append_to_history(&mut pack, moved, retained)
    }

    /// The commit without what goes with its details.
    fn stripped(
        &self,
        commit: &Packed<'_>,
        time_unix_ms: u64,
        payloads: &PayloadDirectory,
    ) -> Result<(Pointer, Vec<u8>), RetainError> {
        let heading = commit.heading()?;
        let mut records = commit.records()?;
        let is_open = self.is_open(heading.run);
        for payload in records.iter_mut().filter_map(payload_of) {
            if is_open {
                payloads.move_out(&heading.tenant, payload)?;
            }
            if !is_open || matches!(payload.kept, Kept::Truncated(_) | Kept::Beginning(_)) {
                payload.kept = Kept::Expired;
            }
        }
        let bodies: Vec<Body> = records.into_iter().map(|record| record.body).collect();
        Ok((Pointer::new(&heading, Position::START), codec::encode(&heading, &bodies, time_unix_ms)))
    }

    /// Makes the pack durable, and lets the index lead there.
    fn append_to_history(
        &self,
        pack: &mut Pack,
        moved: &mut Moved,
        retained: &mut Retained,
    ) -> Result<(), RetainError> {
        let next = Pack::begun(self.clock.unix_ms());
        let Pack { time_unix_ms, bytes, mut pointers, last: Some(last) } = std::mem::replace(pack, next) else {
            return Ok(());
        };
        let entry =
            Entry { stream: 0, time_unix_ms, kind: KIND_PACK, payload: SegmentPayload::from(bytes), check: None };
        let appended = self.history.append(entry).wait()?;
        for pointer in &mut pointers {
            pointer.position = appended.position;
        }
        // It is there, whatever comes of the rest: it must not be moved again.
        moved.source = Some(last);
        retained.moved_commits += pointers.len() as u64;
        moved.unindexed = pointers;
        self.lead_to_moved(moved)
    }

    /// Lets the index lead to what was moved last. Before it does, no segment may go.
    fn lead_to_moved(&self, moved: &mut Moved) -> Result<(), RetainError> {
        let Some(last) = moved.unindexed.last().copied() else { return Ok(()) };
        self.index.moved(&moved.unindexed)?;
        self.raise_mark(Tier::History, last.position.after())?;
        moved.unindexed.clear();
        Ok(())
    }

    fn raise_mark(&self, tier: Tier, to: Position) -> Result<(), RetainError> {
        if self.index.mark(tier)?.is_none_or(|mark| mark < to) {
            self.index.set_mark(tier, to)?;
        }
        Ok(())
    }

    fn drop_history(&self, age: Duration, retained: &mut Retained) -> Result<(), RetainError> {
        let before = before(&self.history, age);
        while let Some(info) = due(&self.history, before) {
            let mut pointers = Vec::new();
            let mut cursor = self.history.read_segment(info.id);
            while let Some(record) = next_whole(&mut cursor, retained)? {
                for commit in pack::commits(&record) {
                    let pointer = commit?.pointer()?;
                    if self.is_open(pointer.run) {
                        retained.is_held = true;
                        return Ok(());
                    }
                    pointers.push(pointer);
                }
            }
            self.index.forget(&pointers)?;
            // Durably, before the records go.
            let mark = self.index.mark(Tier::History)?;
            self.index.set_mark(Tier::History, mark.unwrap_or_else(|| info.end_position()))?;
            let trimmed = self.history.trim_before(info.end_position())?;
            retained.dropped_segments += trimmed.segments;
            if trimmed.segments == 0 {
                break;
            }
        }
        self.history.leave_old(before);
        Ok(())
    }

    /// Payloads that runs may still need although they are over age: those of open runs that are in the history, or on their
    /// way there, in a segment that has some which are over age and others that are not.
    fn needed(&self, before_unix_ms: u64) -> Result<HashSet<(TenantId, [u8; 32])>, RetainError> {
        let mut needed = HashSet::new();
        let segments = self.journal.segments();
        let old = segments.iter().rfind(|info| info.records > 0 && info.min_unix_ms < before_unix_ms);
        let old = old.map(SegmentInfo::end_position);
        for run in self.table.open_runs() {
            let places = self.index.places(run)?;
            let is_old = |place: &&Place| place.tier == Tier::History || old.is_some_and(|old| place.position < old);
            for place in places.iter().take_while(is_old) {
                for mut record in reading::read_commit(self, run, place)? {
                    let tenant = record.tenant.clone();
                    if let Some(payload) = payload_of(&mut record)
                        && matches!(payload.kept, Kept::Stored)
                    {
                        needed.insert((tenant, payload.digest));
                    }
                }
            }
        }
        Ok(needed)
    }
}

/// Commits on their way to the history.
#[derive(Debug)]
struct Pack {
    /// Of the move: ages in the history count from there.
    time_unix_ms: u64,
    bytes: Vec<u8>,
    pointers: Vec<Pointer>,
    /// Where the last of them is in the journal.
    last: Option<Position>,
}

impl Pack {
    fn begun(time_unix_ms: u64) -> Self {
        Self { time_unix_ms, bytes: Vec::new(), pointers: Vec::new(), last: None }
    }

    fn push(&mut self, pointer: Pointer, source: Position, commit: &[u8]) {
        pack::push(&mut self.bytes, source, commit);
        self.pointers.push(pointer);
        self.last = Some(source);
    }
}

/// The next record that reads. What does not read is lost where it is, and would be anywhere: it is told, and does not hold up
/// the rest for ever.
fn next_whole(cursor: &mut Cursor, retained: &mut Retained) -> Result<Option<Stored>, RetainError> {
    loop {
        match cursor.next_record() {
            Err(SegmentError::Damaged(damage)) if cursor.skip_damage() => {
                tracing::error!(%damage, "damage in the ledger: what is there is dropped with its segment");
                retained.damaged += 1;
            }
            other => return Ok(other?),
        }
    }
}

/// The payload of a record, if it has one.
pub(super) fn payload_of(record: &mut Record) -> Option<&mut Payload> {
    record.body.payload_mut()
}
