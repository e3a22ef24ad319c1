//! The segments of a journal as this process knows them. Whoever reads asks here how far each one goes.

use std::collections::BTreeMap;

use super::damage::{Damage, DamageKind};
use super::format::{HEADER_BLOCK, Hash};
use super::position::{Position, SegmentId};

/// In which state a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    /// This writer appends to it.
    Active,
    /// Complete, its footer not written (yet).
    Closed,
    /// Complete, with a footer in it or beside it.
    Sealed,
    /// Another process that lives appends to its epoch; known up to what was there when we looked.
    Foreign,
}

/// What is known of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    pub id: SegmentId,
    pub state: SegmentState,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the file up to the end of the batches.
    pub end: u64,
    pub records: u64,
    /// Earliest and latest time of its records; both 0 without records.
    pub min_unix_ms: u64,
    pub max_unix_ms: u64,
    /// Hash over all batches up to its end.
    pub root: [u8; 32],
}

impl SegmentInfo {
    /// Where its first record is, or would be.
    pub fn first(&self) -> Position {
        Position::at(self.id, HEADER_BLOCK, 0)
    }

    /// The place behind its last record.
    pub fn end_position(&self) -> Position {
        Position::at(self.id, self.end, 0)
    }

    pub(crate) fn empty(id: SegmentId, state: SegmentState, file_bytes: u64, root: Hash) -> Self {
        let end = HEADER_BLOCK;
        Self { id, state, file_bytes, end, records: 0, min_unix_ms: 0, max_unix_ms: 0, root }
    }
}

#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) segments: BTreeMap<SegmentId, SegmentInfo>,
    /// Known damage, in order. Never shrinks but by trimming.
    pub(crate) damage: Vec<Damage>,
    /// Everything before this was trimmed.
    pub(crate) trimmed: Position,
    /// Trimmed files that wait for reuse, by name.
    pub(crate) recyclable: Vec<String>,
}

impl Catalog {
    pub(crate) fn new(trimmed: Position) -> Self {
        Self { segments: BTreeMap::new(), damage: Vec::new(), trimmed, recyclable: Vec::new() }
    }

    pub(crate) fn next_after(&self, id: SegmentId) -> Option<SegmentId> {
        let behind = (std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded);
        self.segments.range(behind).next().map(|(id, _)| *id)
    }

    /// What is missing between this segment and the next.
    pub(crate) fn missing_after(&self, id: SegmentId) -> Option<Damage> {
        let next = self.next_after(id).unwrap_or(SegmentId { epoch: u64::MAX, sequence: 0 });
        // Of a segment that is not there itself, those in front of it count too.
        let there = self.segments.range(..=id).next_back().map(|(id, _)| *id);
        let between = |id| there.is_none_or(|there| there < id) && id < next;
        self.damage.iter().find(|d| d.kind == DamageKind::Missing && between(d.segment)).copied()
    }

    /// Damage that only the neighbours of a batch show: the batch itself reads. (Of the other kinds a reader finds
    /// out by itself, and saves what is whole around them.)
    pub(crate) fn hidden_damage_at(&self, id: SegmentId, offset: u64) -> Option<Damage> {
        let covers = |d: &Damage| (d.offset..d.end).contains(&offset) || (d.offset, d.end) == (offset, offset);
        self.damage.iter().find(|d| d.segment == id && d.kind == DamageKind::Chain && covers(d)).copied()
    }

    /// Damage at the very end of a segment: what should be there is gone.
    pub(crate) fn damage_behind(&self, id: SegmentId) -> Option<Damage> {
        let behind = |kind| matches!(kind, DamageKind::Tail | DamageKind::Truncated | DamageKind::Identity);
        self.damage.iter().find(|d| d.segment == id && behind(d.kind)).copied()
    }

    pub(crate) fn add_damage(&mut self, damage: Damage) {
        let known = |d: &Damage| {
            d.segment == damage.segment && d.kind.loses_records() && d.offset <= damage.offset && damage.end <= d.end
        };
        if damage.kind.loses_records() && self.damage.iter().any(known) {
            return;
        }
        if let Err(at) = self.damage.binary_search_by_key(&key(&damage), key) {
            self.damage.insert(at, damage);
        }
    }

    pub(crate) fn bytes_used(&self) -> u64 {
        self.segments.values().map(|info| info.file_bytes).sum()
    }
}

fn key(damage: &Damage) -> (SegmentId, u64, u64, &'static str) {
    (damage.segment, damage.offset, damage.end, damage.kind.label())
}
