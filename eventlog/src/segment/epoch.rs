//! Judging the segments of one epoch together: the chain of hashes says where each one ends.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::catalog::{SegmentInfo, SegmentState};
use super::damage::{Damage, DamageKind};
use super::endfile;
use super::format::{Footer, HEADER_BLOCK, Hash, Identity, LogId, encode_index};
use super::look::{How, Looked, Place};
use super::names::{end_path, segment_path};
use super::position::{Position, SegmentId};
use super::scan::{Manner, Visit};
use super::storage::{Storage, WriteMode};
use super::window::Window;

/// Something that was begun at the end of a segment and never acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn {
    pub segment: SegmentId,
    pub offset: u64,
}

/// The segments of an epoch that ended, or of one that lives.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) segments: Vec<Looked>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) torn: Vec<Torn>,
    /// Whole batches that the writer had given up (their waiters were told so) before it went on elsewhere.
    pub(crate) disowned: Vec<Torn>,
}

/// Why an epoch could not be judged.
#[derive(Debug)]
pub(crate) enum EpochError {
    Io(SegmentId, io::Error),
    LaterVersion(SegmentId),
}

/// What there is to judge.
pub(crate) struct Case<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) directory: &'a Path,
    pub(crate) log: LogId,
    pub(crate) epoch: u64,
    /// Sizes of the segments' files.
    pub(crate) files: &'a BTreeMap<SegmentId, u64>,
    pub(crate) trimmed: Position,
    pub(crate) manner: Manner,
    /// Reads every batch, whatever the footers say.
    pub(crate) whole: bool,
    /// Nothing may be changed: no process that opens the directory for good is asking.
    pub(crate) read_only: bool,
}

impl Case<'_> {
    fn place(&self, segment: SegmentId) -> Place<'_> {
        let identity = Identity { log: self.log, segment };
        Place { storage: self.storage, directory: self.directory, identity }
    }

    pub(crate) fn judge(&self, visit: Visit<'_>) -> Result<Epoch, EpochError> {
        let mut epoch = Epoch::default();
        if self.epoch < self.trimmed.epoch() {
            // Trimming goes from the front: of this epoch nothing is left but files that a crash kept.
            return Ok(epoch);
        }
        let sync = self.manner == Manner::Settled && !self.read_only;
        let how = How { manner: self.manner, whole: self.whole, sync };
        let first = SegmentId { epoch: self.epoch, sequence: 0 };
        let mut expected = first.sequence;
        if self.trimmed.epoch() == self.epoch {
            expected = self.trimmed.segment().sequence.saturating_add(1);
        }
        // Hash of the last batch so far, if that is known.
        let mut carry = (expected == 0).then(|| self.place(first).identity.seed());
        for (id, file_bytes) in self.files.range(first..=SegmentId { sequence: u32::MAX, ..first }) {
            if id.sequence < expected {
                // Trimmed, but for the file.
                continue;
            }
            if id.sequence != expected {
                let missing = SegmentId { sequence: expected, ..*id };
                epoch.damage.push(Damage { segment: missing, offset: 0, end: 0, kind: DamageKind::Missing });
                carry = None;
            }
            expected = id.sequence.saturating_add(1);
            let looked = self
                .place(*id)
                .look(*file_bytes, how, visit)
                .map_err(|error| EpochError::Io(*id, error))?
                .map_err(|_| EpochError::LaterVersion(*id))?;
            let linked = self.link(&mut epoch, carry, &looked);
            if !linked && self.manner == Manner::Live {
                // The writer went on between two looks of ours: what is behind is for the next time.
                break;
            }
            let lost = looked
                .held
                .damage
                .iter()
                .any(|damage| damage.kind.loses_records() && damage.end >= looked.held.sums.end);
            carry = if lost { None } else { looked.held.sums.root.or(carry) };
            epoch.segments.push(looked);
        }
        self.conclude(&mut epoch);
        Ok(epoch)
    }

    /// Makes durable what was read of a segment that somebody else writes. For whoever only looks, it may be shown then;
    /// whether its writer will own it is not known yet, so that whoever reads on behind it must not have seen it.
    fn make_durable(&self, segment: SegmentId) -> bool {
        let file = self.storage.open_read(&segment_path(self.directory, segment), WriteMode::Buffered);
        file.and_then(|file| file.sync()).is_ok()
    }

    /// Compares the end of what is before with what the segment's first batch names. False if they do not meet.
    fn link(&self, epoch: &mut Epoch, carry: Option<Hash>, looked: &Looked) -> bool {
        let before =
            epoch.segments.last().filter(|before| before.id.sequence.checked_add(1) == Some(looked.id.sequence));
        let before = before.map(|before| (before.id, before.scanned));
        let worth_a_read = before.is_some_and(|(_, scanned)| scanned);
        let named = match looked.held.first_previous {
            None if worth_a_read && !looked.scanned => self.place(looked.id).first_previous(looked.file_bytes),
            named => named,
        };
        let (Some(carry), Some(named)) = (carry, named) else { return true };
        if carry == named {
            return true;
        }
        // The last batch that has records, in whichever segment: was it given up?
        let last = epoch.segments.iter_mut().rev().find(|before| before.held.sums.batches > 0);
        if let Some(last) = last
            && let Some((sums, previous)) = last.held.before_last
            && previous == named
        {
            epoch.disowned.push(Torn { segment: last.id, offset: sums.end });
            last.held.sums = sums;
            last.held.index.retain(|entry| entry.file_offset < sums.end);
            last.held.dirty_padding.retain(|offset| *offset < sums.end);
            last.held.torn = false;
            return true;
        }
        if self.manner == Manner::Settled {
            let neighbour = epoch.segments.last_mut().filter(|last| Some(last.id) == before.map(|(id, _)| id));
            if let Some(last) = neighbour {
                let (segment, end) = (last.id, last.held.sums.end);
                last.held.damage.push(Damage { segment, offset: end, end, kind: DamageKind::Tail });
            } else {
                // The first batches of the epoch are not the first ones that were written.
                let at = HEADER_BLOCK;
                epoch.damage.push(Damage { segment: looked.id, offset: at, end: at, kind: DamageKind::Chain });
            }
        }
        false
    }

    fn conclude(&self, epoch: &mut Epoch) {
        if self.manner == Manner::Live {
            // The last batch may not be durable yet. The one in front of it is, or it would not be the last.
            if let Some(last) = epoch.segments.iter_mut().rev().find(|looked| looked.held.sums.batches > 0)
                && last.sealed.is_none()
                && let Some((sums, _)) = last.held.before_last
                && !(self.read_only && self.make_durable(last.id))
            {
                last.held.sums = sums;
            }
        }
        for looked in &epoch.segments {
            if looked.held.torn && self.manner == Manner::Settled {
                epoch.torn.push(Torn { segment: looked.id, offset: looked.held.sums.end });
            }
            epoch.damage.extend(looked.held.damage.iter().copied());
        }
    }
}

impl Looked {
    pub(crate) fn info(&self, state: SegmentState) -> SegmentInfo {
        SegmentInfo {
            id: self.id,
            state,
            file_bytes: self.file_bytes,
            end: self.held.sums.end,
            records: self.held.sums.records,
            min_unix_ms: self.held.sums.min_unix_ms,
            max_unix_ms: self.held.sums.max_unix_ms,
            root: self.held.sums.root.unwrap_or_default(),
        }
    }

    /// Writes down where the segment ends, so that the next open need not read it.
    pub(crate) fn record_end(&mut self, case: &Case<'_>, now_unix_ms: u64, cut: bool) -> io::Result<()> {
        let index = encode_index(&self.held.index);
        let footer = Footer {
            identity: Identity { log: case.log, segment: self.id },
            last: self.sealed.is_some_and(|footer| footer.last),
            end: self.held.sums.end,
            index_offset: 0,
            index_bytes: u32::try_from(index.len()).map_err(io::Error::other)?,
            index_crc: crc32c::crc32c(&index),
            records: self.held.sums.records,
            batches: self.held.sums.batches,
            min_unix_ms: self.held.sums.min_unix_ms,
            max_unix_ms: self.held.sums.max_unix_ms,
            root: self.held.sums.root.unwrap_or_default(),
            sealed_unix_ms: now_unix_ms,
        };
        let kept: Vec<Damage> = self.held.damage.iter().filter(|damage| damage.kind.loses_records()).copied().collect();
        let Some(bytes) = endfile::encode(&footer, &index, &kept) else { return Ok(()) };
        if self.sealed.is_none() {
            self.clear_padding(case)?;
        }
        case.storage.put(&end_path(case.directory, self.id), &bytes)?;
        self.sealed = Some(footer);
        if cut && kept.is_empty() && self.held.sums.end < self.file_bytes {
            // Nothing behind the end was ever acknowledged. Its space goes back: a process that is killed often would
            // fill the disk with empty tails.
            let file = case.storage.open_write(&segment_path(case.directory, self.id), WriteMode::Buffered)?;
            file.set_len(self.held.sums.end)?;
            file.sync()?;
            self.file_bytes = self.held.sums.end;
        }
        Ok(())
    }

    /// The write that the power cut short may have brought the records of the last batch, and not the zeros behind them:
    /// there is what a recycled file held.
    fn clear_padding(&self, case: &Case<'_>) -> io::Result<()> {
        let last =
            self.held.before_last.map(|(before, _)| before.end).filter(|last| self.held.dirty_padding.contains(last));
        let Some(last) = last else { return Ok(()) };
        let place = case.place(self.id);
        let path = segment_path(case.directory, self.id);
        let mut window = Window::new(case.storage.open_read(&path, WriteMode::Buffered)?);
        let Ok(batch) = window.batch(&place.identity, last, self.held.sums.end) else { return Ok(()) };
        let end = last + u64::from(batch.header.bytes);
        let stale = usize::try_from(self.held.sums.end.saturating_sub(end)).map_err(io::Error::other)?;
        let file = case.storage.open_write(&path, WriteMode::Buffered)?;
        file.write_at(end, &vec![0; stale])?;
        file.sync()
    }
}
