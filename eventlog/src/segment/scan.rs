//! Reading one segment whole, and judging what it says.
//!
//! A batch that does not read with none behind it is a torn tail: it was being written when the power went, and was
//! never acknowledged. A batch that does not read with one behind it was once complete, since the writer begins no
//! batch before the one in front is durable: that is damage.

use super::damage::{Damage, DamageKind};
use super::format::{Footer, HEADER_BLOCK, Hash, Identity, IndexEntry, Invalid, RecordView, Records, note_index};
use super::position::SegmentId;
use super::window::{NoBatchReason, Window};

/// Sums over the batches of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) end: u64,
    pub(crate) records: u64,
    pub(crate) batches: u64,
    pub(crate) min_unix_ms: u64,
    pub(crate) max_unix_ms: u64,
    /// Hash of the last batch; `None` without one.
    pub(crate) root: Option<Hash>,
}

impl Sums {
    pub(crate) fn of(footer: &Footer) -> Self {
        Self {
            end: footer.end,
            records: footer.records,
            batches: footer.batches,
            min_unix_ms: footer.min_unix_ms,
            max_unix_ms: footer.max_unix_ms,
            root: (footer.batches > 0).then_some(footer.root),
        }
    }

    pub(crate) fn none() -> Self {
        Self { end: HEADER_BLOCK, records: 0, batches: 0, min_unix_ms: 0, max_unix_ms: 0, root: None }
    }
}

/// What a segment holds, as far as its batches were read or its footer says.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) sums: Sums,
    /// The same without the last batch, and what that one named as its predecessor.
    pub(crate) before_last: Option<(Sums, Hash)>,
    /// What the first batch named as its predecessor.
    pub(crate) first_previous: Option<Hash>,
    pub(crate) index: Vec<IndexEntry>,
    pub(crate) damage: Vec<Damage>,
    /// A batch was begun at the end and is not whole.
    pub(crate) torn: bool,
    /// The padding of these batches is not zero.
    pub(crate) dirty_padding: Vec<u64>,
}

impl Scan {
    pub(crate) fn none() -> Self {
        Self {
            sums: Sums::none(),
            before_last: None,
            first_previous: None,
            index: Vec::new(),
            damage: Vec::new(),
            torn: false,
            dirty_padding: Vec::new(),
        }
    }
}

/// How a scan goes about what does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nobody writes: look behind it, and judge.
    Settled,
    /// Somebody may be writing right there: what there is ends here, for now.
    Live,
}

/// A look at every record on the way.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&RecordView<'_>);

/// Reads batches from the first one to `limit`. `known_end` is where a footer says that they end.
pub(crate) fn scan(
    window: &mut Window,
    identity: &Identity,
    limit: u64,
    known_end: Option<u64>,
    manner: Manner,
    visit: Visit<'_>,
) -> Scan {
    let limit = known_end.unwrap_or(limit);
    let mut scanner = Scanner { identity: *identity, scan: Scan::none(), last_start: None };
    let mut offset = HEADER_BLOCK;
    while offset < limit {
        match scanner.read(window, offset, limit, visit) {
            Ok(next) => offset = next,
            Err(failure) => {
                scanner.scan.torn = failure.named;
                if manner == Manner::Live {
                    break;
                }
                let later = window.find_batch(identity, failure.resume, limit);
                // A footer says how far the batches go; without one, only a later batch says that there were more.
                let until = match (later, known_end, failure.kind) {
                    (Some(later), ..) => later,
                    (None, Some(end), _) => end,
                    (None, None, DamageKind::Unreadable) => limit,
                    (None, None, _) => break,
                };
                scanner.scan.torn = false;
                scanner.damage(offset, until, failure.kind);
                offset = until;
            }
        }
    }
    scanner.scan
}

struct Failure {
    kind: DamageKind,
    resume: u64,
    /// It calls itself the batch that belongs here.
    named: bool,
}

struct Scanner {
    identity: Identity,
    scan: Scan,
    /// Where the batch that `sums.root` is of begins; `None` at the start and behind damage.
    last_start: Option<u64>,
}

impl Scanner {
    fn segment(&self) -> SegmentId {
        self.identity.segment
    }

    fn damage(&mut self, offset: u64, end: u64, kind: DamageKind) {
        self.scan.damage.push(Damage { segment: self.segment(), offset, end, kind });
        if kind != DamageKind::Chain {
            self.scan.sums.end = end;
            self.last_start = None;
            self.scan.before_last = None;
        }
    }

    fn read(&mut self, window: &mut Window, offset: u64, limit: u64, visit: Visit<'_>) -> Result<u64, Failure> {
        let raw = window.batch(&self.identity, offset, limit).map_err(|failure| {
            let (kind, named) = match failure.reason {
                NoBatchReason::Unreadable => (DamageKind::Unreadable, false),
                NoBatchReason::Invalid(invalid) => (DamageKind::Batch, invalid != Invalid::Absent),
            };
            Failure { kind, resume: failure.resume, named }
        })?;
        let next = offset + raw.header.padded();
        let broken = Failure { kind: DamageKind::Batch, resume: next, named: true };
        let mut sums = self.scan.sums;
        for record in Records::new(&self.identity, offset, &raw.header, &raw.bytes) {
            let Ok(record) = record else { return Err(broken) };
            let time = record.view.time_unix_ms;
            sums.min_unix_ms = if sums.records == 0 { time } else { sums.min_unix_ms.min(time) };
            sums.max_unix_ms = sums.max_unix_ms.max(time);
            sums.records += 1;
        }
        for record in Records::new(&self.identity, offset, &raw.header, &raw.bytes).flatten() {
            visit(&record.view);
        }
        if let (Some(start), Some(root)) = (self.last_start, self.scan.sums.root)
            && root != raw.header.previous
        {
            self.damage(start, offset, DamageKind::Chain);
        }
        if self.scan.sums.batches == 0 && self.scan.damage.is_empty() {
            self.scan.first_previous = Some(raw.header.previous);
        }
        let before = self.scan.sums;
        note_index(&mut self.scan.index, offset, before.records, before.max_unix_ms);
        self.scan.before_last = Some((before, raw.header.previous));
        self.last_start = Some(offset);
        sums.end = next;
        sums.batches += 1;
        sums.root = Some(*blake3::hash(&raw.bytes).as_bytes());
        self.scan.sums = sums;
        self.note_padding(window, offset, u64::from(raw.header.bytes), limit);
        Ok(next)
    }

    fn note_padding(&mut self, window: &mut Window, offset: u64, bytes: u64, limit: u64) {
        let padded = super::format::padded(bytes);
        let whole = window.get(offset, padded, limit).unwrap_or_default();
        let padding = usize::try_from(bytes).ok().and_then(|from| whole.get(from..)).unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            self.scan.dirty_padding.push(offset);
        }
    }
}
