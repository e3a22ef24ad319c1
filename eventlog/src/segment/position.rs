//! Places in a journal.

use std::fmt;
use std::str::FromStr;

/// Batches begin on multiples of this, which leaves the low 12 bits of an offset for the record's index.
pub(crate) const BLOCK: u64 = 4096;
const INDEX_MASK: u64 = BLOCK - 1;

/// A segment of a journal: the writer's epoch and the segment's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    pub epoch: u64,
    pub sequence: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}", self.epoch, self.sequence)
    }
}

/// A place in a journal: of a record, or behind one. Opaque to everybody above the segment layer; it orders as
/// the records do, within one journal.
///
/// Inside: the writer's epoch, the segment, the batch's offset in the file and the record's index in the batch,
/// so that going to a position is one read and never a search.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    epoch: u64,
    /// segment (32 bits), block in the file (20 bits), index in the batch (12 bits).
    offset: u64,
}

/// A text or bytes that are no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a position: 32 characters of 0-9 a-f")]
pub struct ParsePositionError;

impl Position {
    /// Before everything that any journal holds.
    pub const START: Self = Self { epoch: 0, offset: 0 };

    pub(crate) const fn new(epoch: u64, offset: u64) -> Self {
        Self { epoch, offset }
    }

    pub(crate) fn at(segment: SegmentId, file_offset: u64, index: u32) -> Self {
        debug_assert!(file_offset.is_multiple_of(BLOCK) && u64::from(index) < BLOCK, "the batch begins on a block");
        Self { epoch: segment.epoch, offset: batch_offset(segment.sequence, file_offset) | u64::from(index) }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The writer's epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn segment(&self) -> SegmentId {
        let sequence = u32::try_from(self.offset >> 32).unwrap_or(u32::MAX);
        SegmentId { epoch: self.epoch, sequence }
    }

    pub(crate) fn file_offset(&self) -> u64 {
        self.offset & 0xffff_ffff & !INDEX_MASK
    }

    pub(crate) fn index(&self) -> u32 {
        u32::try_from(self.offset & INDEX_MASK).unwrap_or(0)
    }

    /// The place right behind this record: where a reader that has dealt with it goes on.
    #[must_use]
    pub fn after(&self) -> Self {
        // A batch has at most 4,095 records, so the index behind the last one still fits.
        Self { epoch: self.epoch, offset: self.offset.saturating_add(1) }
    }

    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Any 16 bytes are a place; a journal answers for those that it does not have.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let [mut epoch, mut offset] = [[0; 8]; 2];
        epoch.copy_from_slice(&bytes[..8]);
        offset.copy_from_slice(&bytes[8..]);
        Self { epoch: u64::from_be_bytes(epoch), offset: u64::from_be_bytes(offset) }
    }
}

/// What a batch header calls its base position.
pub(crate) fn batch_offset(segment: u32, file_offset: u64) -> u64 {
    (u64::from(segment) << 32) | file_offset
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.epoch, self.offset)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ParsePositionError);
        }
        let (epoch, offset) = text.split_at(16);
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| ParsePositionError);
        Ok(Self { epoch: number(epoch)?, offset: number(offset)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn forms_go_there_and_back_and_sort_alike(a: (u64, u64), b: (u64, u64)) {
            let (a, b) = (Position::new(a.0, a.1), Position::new(b.0, b.1));
            prop_assert_eq!(Position::from_bytes(a.to_bytes()), a);
            prop_assert_eq!(a.to_string().parse::<Position>(), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }

        #[test]
        fn parts_go_there_and_back(epoch: u64, sequence: u32, block in 0_u64..(1 << 20), index in 0_u32..4095) {
            let segment = SegmentId { epoch, sequence };
            let position = Position::at(segment, block * BLOCK, index);
            prop_assert_eq!(position.segment(), segment);
            prop_assert_eq!(position.file_offset(), block * BLOCK);
            prop_assert_eq!(position.index(), index);
            prop_assert_eq!(position.after().index(), index + 1);
        }
    }

    #[test]
    fn text_is_strict() {
        for text in ["", "0", &"0".repeat(31), &"0".repeat(33), &"A".repeat(32), &"+".repeat(32), "é"] {
            assert_eq!(text.parse::<Position>(), Err(ParsePositionError), "{text}");
        }
    }
}
