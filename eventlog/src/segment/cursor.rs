//! Reading: durable records in order, from any place, and never past damage without being told to.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::catalog::SegmentState;
use super::damage::{Damage, DamageKind};
use super::format::{HEADER_BLOCK, Identity, Records};
use super::names::segment_path;
use super::position::{Position, SegmentId};
use super::settle;
use super::shared::{Limit, Shared};
use super::storage::WriteMode;
use super::trim;
use super::window::{NoBatchReason, RawBatch, Window};

/// A durable record. Its payload shares memory with the piece of the file that it was read in (up to 1 MiB, or the
/// whole of a larger batch): copy what is kept for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub position: Position,
    pub stream: u64,
    pub sequence: u64,
    pub time_unix_ms: u64,
    pub kind: u8,
    pub payload: Bytes,
}

/// Why there is no next record.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// `Cursor::skip_damage` goes on behind it.
    #[error("damage in the log: {0}")]
    Damaged(Damage),
    #[error("the records there were trimmed; the oldest ones left are at {oldest}")]
    Trimmed { oldest: Position },
    /// No record ever began there, or it is ahead of everything that is durable.
    #[error("there is no position {0} in this log")]
    NoSuchPosition(Position),
    #[error("reading segment {segment}: {source}")]
    Io { segment: SegmentId, source: io::Error },
}

/// Walks durable records. Reads block (they are reads of a file); at the durable end it says `None` and may be asked
/// again later. It has a file handle of its own and stands in nobody's way.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
    /// The next record to give out.
    at: Position,
    /// Reads this segment alone.
    only: Option<SegmentId>,
    open: Option<(SegmentId, SegmentState, Window)>,
    batch: Option<Batch>,
    /// Where the last error said that there is damage, until it is skipped.
    met: Option<Met>,
    /// Damage that was skipped since the segment was entered: what has no bytes of its own is met only once. There are
    /// few kinds of that, each once a segment; the others are forgotten on the way.
    passed: Vec<Damage>,
    /// The batch at the position was found by following the log, so that its not being one is damage.
    trusted: bool,
}

#[derive(Debug, Clone, Copy)]
struct Met {
    damage: Damage,
    resume: Position,
}

#[derive(Debug)]
struct Batch {
    identity: Identity,
    offset: u64,
    raw: RawBatch,
    /// Bytes and records of it that are behind us.
    done: usize,
    index: u32,
}

/// A batch that was read, for other cursors at a place in it.
#[derive(Debug, Clone)]
pub(super) struct HeldBatch {
    segment: SegmentId,
    offset: u64,
    raw: RawBatch,
}

impl HeldBatch {
    pub(super) fn is_at(&self, at: Position) -> bool {
        (self.segment, self.offset) == (at.segment(), at.file_offset())
    }

    pub(super) fn bytes(&self) -> usize {
        self.raw.bytes.len()
    }
}

impl Batch {
    fn new(identity: Identity, offset: u64, raw: RawBatch, index: u32) -> Self {
        let mut batch = Self { identity, offset, raw, done: super::format::BATCH_HEADER_BYTES, index: 0 };
        batch.forward(index);
        batch
    }

    fn end(&self) -> u64 {
        self.offset + self.raw.header.padded()
    }

    fn records(&self) -> Records<'_> {
        Records::new(&self.identity, self.offset, &self.raw.header, &self.raw.bytes).resume(self.done, self.index)
    }

    /// The next record, `None` behind the last one; an error where it does not read.
    fn step(&mut self) -> Option<Result<Record, ()>> {
        let Ok(located) = self.records().next()? else { return Some(Err(())) };
        let view = located.view;
        let record = Record {
            position: view.position,
            stream: view.stream,
            sequence: view.sequence,
            time_unix_ms: view.time_unix_ms,
            kind: view.kind,
            payload: self.raw.bytes.slice(located.payload.clone()),
        };
        self.done = located.payload.end;
        self.index += 1;
        Some(Ok(record))
    }
}

impl Cursor {
    pub(crate) fn new(shared: Arc<Shared>, from: Position) -> Result<Self, ReadError> {
        let cursor = Self {
            shared,
            at: from,
            only: None,
            open: None,
            batch: None,
            met: None,
            passed: Vec::new(),
            trusted: from == Position::START,
        };
        cursor.admit(from)?;
        Ok(cursor)
    }

    pub(crate) fn of_segment(shared: Arc<Shared>, id: SegmentId) -> Self {
        let at = Position::at(id, HEADER_BLOCK, 0);
        Self { shared, at, only: Some(id), open: None, batch: None, met: None, passed: Vec::new(), trusted: true }
    }

    /// Is this a place that can have been given out?
    fn admit(&self, from: Position) -> Result<(), ReadError> {
        if from == Position::START {
            return Ok(());
        }
        if from > self.shared.durable() && !self.is_beginning(from) {
            return Err(ReadError::NoSuchPosition(from));
        }
        self.not_trimmed(from)
    }

    /// The beginning of a segment that is there. A reader waits at it while nothing of the segment is durable, since what
    /// was before it may be trimmed.
    fn is_beginning(&self, at: Position) -> bool {
        let id = at.segment();
        at == Position::at(id, HEADER_BLOCK, 0) && self.shared.limit(id).is_some()
    }

    fn not_trimmed(&self, at: Position) -> Result<(), ReadError> {
        let catalog = self.shared.catalog();
        if at != Position::START && at < catalog.trimmed && !catalog.segments.contains_key(&at.segment()) {
            let oldest = catalog.segments.values().next().map_or(catalog.trimmed, super::catalog::SegmentInfo::first);
            return Err(ReadError::Trimmed { oldest });
        }
        Ok(())
    }

    /// The place to come back to: everything before it was given out (or skipped).
    pub fn position(&self) -> Position {
        self.at
    }

    /// The next durable record, `None` at the end of what is durable.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        if let Some(met) = self.met {
            return Err(ReadError::Damaged(met.damage));
        }
        loop {
            if let Some(batch) = &mut self.batch {
                match batch.step() {
                    Some(Ok(record)) => {
                        self.at = record.position.after();
                        return Ok(Some(record));
                    }
                    Some(Err(())) => self.record_damage()?,
                    None => {
                        self.at = Position::at(batch.identity.segment, batch.end(), 0);
                        self.batch = None;
                    }
                }
            }
            if !self.load()? {
                return Ok(None);
            }
        }
    }

    /// The batch at hand.
    pub(super) fn held(&self) -> Option<HeldBatch> {
        let Batch { identity, offset, raw, .. } = self.batch.as_ref()?;
        Some(HeldBatch { segment: identity.segment, offset: *offset, raw: raw.clone() })
    }

    /// Makes a batch that another one has read the one at hand, where it is that of the place. False: it has to be read.
    pub(super) fn hold(&mut self, held: HeldBatch) -> bool {
        let HeldBatch { segment: id, offset, raw } = held;
        let is_there = (id, offset) == (self.at.segment(), self.at.file_offset())
            && self.shared.limit(id).is_some_and(|limit| offset < limit.end)
            && self.shared.catalog().hidden_damage_at(id, offset).is_none();
        if is_there {
            self.batch = Some(Batch::new(self.shared.identity(id), offset, raw, self.at.index()));
            self.trusted = true;
        }
        is_there
    }

    /// Goes on behind the damage that the last error named. True if there was some.
    pub fn skip_damage(&mut self) -> bool {
        let Some(met) = self.met.take() else { return false };
        if met.resume != self.at {
            // Behind it, and behind all that was skipped at this place.
            self.passed.clear();
        }
        self.passed.push(met.damage);
        if self.batch.as_ref().is_none_or(|batch| {
            (batch.identity.segment, batch.offset) != (met.resume.segment(), met.resume.file_offset())
        }) {
            self.batch = None;
        }
        self.at = met.resume;
        if let Some(batch) = &mut self.batch {
            // Only behind a record of the batch at hand: its length was plausible and the next record reads.
            batch.index = met.resume.index();
            batch.done = usize::try_from(met.damage.end - batch.offset).unwrap_or(usize::MAX);
        }
        true
    }

    fn meet(&mut self, damage: Damage, resume: Position) -> ReadError {
        self.met = Some(Met { damage, resume });
        ReadError::Damaged(damage)
    }

    /// Is the segment gone, by our own doing or another's?
    fn is_trimmed(&self, id: SegmentId) -> Result<bool, ReadError> {
        if self.shared.limit(id).is_none() {
            return Ok(true);
        }
        trim::trimmed_elsewhere(&self.shared, id).map_err(|source| ReadError::Io { segment: id, source })
    }

    /// A record of the batch at hand does not read. If the one behind it does, only this one is lost.
    /// Of a segment that went away meanwhile nothing is damaged: its file is another segment's by now.
    fn record_damage(&mut self) -> Result<(), ReadError> {
        let Some(batch) = &self.batch else { return Err(ReadError::NoSuchPosition(self.at)) };
        let id = batch.identity.segment;
        if self.is_trimmed(id)? {
            self.open = None;
            self.batch = None;
            return self.not_trimmed(self.at);
        }
        let at = batch.done as u64;
        let behind = batch.records().length().filter(|next| {
            batch.index + 1 < batch.raw.header.records
                && batch.records().resume(*next, batch.index + 1).next().is_some_and(|record| record.is_ok())
        });
        let (end, resume) = match behind {
            Some(next) => (batch.offset + next as u64, Position::at(id, batch.offset, batch.index + 1)),
            None => (batch.end(), Position::at(id, batch.end(), 0)),
        };
        let damage = Damage { segment: id, offset: batch.offset + at, end, kind: DamageKind::Batch };
        self.shared.alarm(damage);
        Err(self.meet(damage, resume))
    }

    /// Makes the batch at the position the one at hand, going on to the next segment where one ends. False at the end
    /// of what is durable.
    fn load(&mut self) -> Result<bool, ReadError> {
        loop {
            let id = self.at.segment();
            let Some(limit) = self.shared.limit(id) else {
                if !self.leave(id)? {
                    return Ok(false);
                }
                continue;
            };
            let offset = self.at.file_offset().max(HEADER_BLOCK);
            if offset < limit.end {
                self.load_batch(id, offset, limit)?;
                return Ok(true);
            }
            if !limit.complete {
                let ended = limit.state == SegmentState::Foreign && self.settled(id)?;
                if ended {
                    continue;
                }
                return Ok(false);
            }
            if offset > limit.end && self.only.is_none() {
                return Err(ReadError::NoSuchPosition(self.at));
            }
            let behind = self.shared.catalog().damage_behind(id).filter(|damage| !self.passed.contains(damage));
            if let Some(damage) = behind {
                return Err(self.meet(damage, self.at));
            }
            if !self.leave(id)? {
                return Ok(false);
            }
        }
    }

    fn settled(&self, id: SegmentId) -> Result<bool, ReadError> {
        settle::settle(&self.shared, id.epoch).map_err(|source| ReadError::Io { segment: id, source })
    }

    /// Goes to the segment behind this one. False if there is none.
    fn leave(&mut self, id: SegmentId) -> Result<bool, ReadError> {
        if self.only.is_some() {
            return Ok(false);
        }
        self.not_trimmed(self.at)?;
        let (next, missing) = {
            let catalog = self.shared.catalog();
            (catalog.next_after(id), catalog.missing_after(id))
        };
        if let Some(damage) = missing.filter(|damage| !self.passed.contains(damage)) {
            return Err(self.meet(damage, self.at));
        }
        let Some(next) = next else { return Ok(false) };
        self.at = Position::at(next, HEADER_BLOCK, 0);
        self.trusted = true;
        self.passed.clear();
        Ok(true)
    }

    fn load_batch(&mut self, id: SegmentId, offset: u64, limit: Limit) -> Result<(), ReadError> {
        let hidden = self.shared.catalog().hidden_damage_at(id, offset);
        if let Some(damage) = hidden.filter(|damage| !self.passed.contains(damage)) {
            let resume = Position::at(id, damage.end.min(limit.end), 0);
            return Err(self.meet(damage, resume));
        }
        let identity = self.shared.identity(id);
        let window = self.window(id, limit)?;
        match window.batch(&identity, offset, limit.end) {
            Ok(raw) => {
                let index = if self.at.file_offset() == offset { self.at.index() } else { 0 };
                self.batch = Some(Batch::new(identity, offset, raw, index));
                self.trusted = true;
                Ok(())
            }
            Err(failure) => {
                let kind = match failure.reason {
                    NoBatchReason::Invalid(_) => DamageKind::Batch,
                    NoBatchReason::Unreadable => DamageKind::Unreadable,
                };
                let end = window.find_batch(&identity, failure.resume, limit.end).unwrap_or(limit.end);
                self.not_a_batch(id, offset, end, kind)
            }
        }
    }

    /// What does not read where a batch should be is damage, unless the segment went away meanwhile (its file is
    /// another segment's by now), or nobody but the caller says that a batch should be there.
    fn not_a_batch(&mut self, id: SegmentId, offset: u64, end: u64, kind: DamageKind) -> Result<(), ReadError> {
        self.open = None;
        if self.is_trimmed(id)? {
            return self.not_trimmed(self.at);
        }
        if !self.trusted && !self.begins_batch(id, offset)? {
            return Err(ReadError::NoSuchPosition(self.at));
        }
        let damage = Damage { segment: id, offset, end, kind };
        self.shared.alarm(damage);
        tracing::error!(%damage, "damage in the log");
        Err(self.meet(damage, Position::at(id, end, 0)))
    }

    /// Does following the segment from its start lead to this offset?
    fn begins_batch(&mut self, id: SegmentId, offset: u64) -> Result<bool, ReadError> {
        let Some(limit) = self.shared.limit(id) else { return Ok(false) };
        let identity = self.shared.identity(id);
        let window = self.window(id, limit)?;
        let mut at = HEADER_BLOCK;
        while at < offset {
            at = match window.batch(&identity, at, limit.end) {
                Ok(raw) => at + raw.header.padded(),
                Err(failure) => window.find_batch(&identity, failure.resume, limit.end).unwrap_or(offset),
            };
        }
        Ok(at == offset)
    }

    /// The segment's file. One that is still written is read past the page cache.
    fn window(&mut self, id: SegmentId, limit: Limit) -> Result<&mut Window, ReadError> {
        let stale = self.open.as_ref().is_none_or(|(open, state, _)| (*open, *state) != (id, limit.state));
        if stale {
            let settled = matches!(limit.state, SegmentState::Sealed | SegmentState::Closed);
            let mode = if settled { WriteMode::Buffered } else { WriteMode::Direct };
            let path = segment_path(&self.shared.settings.directory, id);
            let file = match self.shared.storage.open_read(&path, mode) {
                Ok(file) => file,
                Err(source) => {
                    if self.is_trimmed(id)? {
                        self.not_trimmed(self.at)?;
                    }
                    return Err(ReadError::Io { segment: id, source });
                }
            };
            self.open = Some((id, limit.state, Window::new(file)));
        }
        match &mut self.open {
            Some((_, _, window)) => Ok(window),
            None => Err(ReadError::NoSuchPosition(self.at)),
        }
    }
}

impl Batch {
    /// Passes over records by their lengths; those that do not read are met when it is their turn.
    fn forward(&mut self, index: u32) {
        while self.index < index.min(self.raw.header.records) {
            let Some(next) = self.records().length() else { break };
            self.done = next;
            self.index += 1;
        }
    }
}
