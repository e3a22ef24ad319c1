//! Checking a directory offline: every checksum, the chain, footers, indexes, padding, sequences.

use std::collections::HashMap;
use std::path::Path;

use super::damage::{Damage, DamageKind};
use super::epoch::{Case, Torn};
use super::format::{Footer, decode_index, encode_index};
use super::look::Looked;
use super::names::{TRIM_MARK, lock_path};
use super::position::{Position, SegmentId};
use super::recover::{Listing, OpenError, header_log_id, stored_log_id};
use super::scan::{Manner, Sums};
use super::storage::{Storage, read_or_nothing};
use super::trim_mark::decode_mark;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub segments: Vec<SegmentReport>,
    pub records: u64,
    pub batches: u64,
    /// Bytes of batches, padding included.
    pub bytes: u64,
    pub damage: Vec<Damage>,
    pub torn: Vec<Torn>,
    pub disowned: Vec<Torn>,
    /// Epochs whose process appends right now: checked up to what was there.
    pub live_epochs: Vec<u64>,
}

/// One segment of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentReport {
    pub id: SegmentId,
    pub sealed: bool,
    pub records: u64,
    pub batches: u64,
    pub end: u64,
    pub file_bytes: u64,
    pub min_unix_ms: u64,
    pub max_unix_ms: u64,
}

impl Report {
    /// Is everything there that should be, as it should be? Torn tails are no fault.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }
}

pub(crate) fn verify(storage: &dyn Storage, directory: &Path) -> Result<Report, OpenError> {
    let mut report = Report::default();
    let listing = Listing::read(storage, directory).map_err(OpenError::io("listing the log"))?;
    let stored = stored_log_id(storage, directory).map_err(OpenError::io("the log's id"))?;
    let log = match stored {
        Some(log) => Some(log),
        None => header_log_id(storage, directory).map_err(OpenError::io("the log's id"))?,
    };
    let Some(log) = log else { return Ok(report) };
    let mark = read_or_nothing(storage, &directory.join(TRIM_MARK), 4096).map_err(OpenError::io("the trim mark"))?;
    let trimmed = mark.and_then(|bytes| decode_mark(&log, &bytes)).unwrap_or(Position::START);
    for epoch in listing.epochs() {
        let live = storage.is_locked(&lock_path(directory, epoch)).map_err(OpenError::io("the lock of an epoch"))?;
        let manner = if live { Manner::Live } else { Manner::Settled };
        let files = &listing.segments;
        let case = Case { storage, directory, log, epoch, files, trimmed, manner, whole: true, read_only: true };
        let mut sequences = Sequences::default();
        let mut judged = case.judge(&mut |record| sequences.see(record.position, record.stream, record.sequence))?;
        if live {
            report.live_epochs.push(epoch);
        }
        for looked in &judged.segments {
            judged.damage.extend(compare(looked));
            report.add(looked);
        }
        // Where records are lost for a known reason, the gap that they leave is no news.
        let lossy: Vec<SegmentId> =
            judged.damage.iter().filter(|d| d.kind.loses_records()).map(|d| d.segment).collect();
        let news = |gap: &&Damage| lossy.iter().all(|segment| *segment > gap.segment) && judged.disowned.is_empty();
        judged.damage.extend(sequences.gaps.iter().filter(news).copied().collect::<Vec<_>>());
        report.damage.append(&mut judged.damage);
        report.torn.append(&mut judged.torn);
        report.disowned.append(&mut judged.disowned);
    }
    report.damage.sort_by_key(|damage| (damage.segment, damage.offset));
    report.damage.dedup();
    Ok(report)
}

impl Report {
    fn add(&mut self, looked: &Looked) {
        let sums = looked.held.sums;
        self.records += sums.records;
        self.batches += sums.batches;
        self.bytes += sums.end.saturating_sub(super::format::HEADER_BLOCK);
        self.segments.push(SegmentReport {
            id: looked.id,
            sealed: looked.sealed.is_some(),
            records: sums.records,
            batches: sums.batches,
            end: sums.end,
            file_bytes: looked.file_bytes,
            min_unix_ms: sums.min_unix_ms,
            max_unix_ms: sums.max_unix_ms,
        });
    }
}

/// Does the footer say what the batches say?
fn compare(looked: &Looked) -> Vec<Damage> {
    let segment = looked.id;
    let mut found = Vec::new();
    // A write that the power cut short may have left, behind the records of the last batch, what a recycled file held.
    // Recovery clears that away.
    let last = looked.held.before_last.filter(|_| looked.sealed.is_none()).map(|(before, _)| before.end);
    for offset in looked.held.dirty_padding.iter().filter(|offset| Some(**offset) != last) {
        found.push(Damage { segment, offset: *offset, end: *offset, kind: DamageKind::Padding });
    }
    let Some(footer) = looked.sealed.filter(|_| looked.scanned) else { return found };
    let lossy = looked.held.damage.iter().any(|damage| damage.kind.loses_records());
    if !lossy && Sums::of(&footer) != looked.held.sums {
        found.push(Damage { segment, offset: footer.end, end: footer.end, kind: DamageKind::Footer });
    }
    if !lossy && !index_agrees(&footer, looked) {
        let offset = footer.index_offset;
        found.push(Damage { segment, offset, end: offset, kind: DamageKind::Index });
    }
    found
}

fn index_agrees(footer: &Footer, looked: &Looked) -> bool {
    let index = encode_index(&looked.held.index);
    let known_broken = looked.held.damage.iter().any(|damage| damage.kind == DamageKind::Index);
    known_broken
        || (index.len() == footer.index_bytes as usize
            && crc32c::crc32c(&index) == footer.index_crc
            && decode_index(&index) == looked.held.index)
}

/// Follows the dense sequences of an epoch.
#[derive(Debug, Default)]
struct Sequences {
    last: HashMap<u64, u64>,
    gaps: Vec<Damage>,
}

/// Enough to see what is going on.
const GAPS_MAX: usize = 1000;

impl Sequences {
    fn see(&mut self, position: Position, stream: u64, sequence: u64) {
        let before = if stream == 0 { None } else { self.last.insert(stream, sequence) };
        let fits = before.is_none_or(|before| before.checked_add(1) == Some(sequence));
        if !fits && self.gaps.len() < GAPS_MAX {
            let offset = position.file_offset();
            self.gaps.push(Damage { segment: position.segment(), offset, end: offset, kind: DamageKind::Sequence });
        }
    }
}
