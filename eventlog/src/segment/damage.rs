//! Damage, by name: which bytes of which segment, and what is wrong with them.

use std::fmt;

use super::position::SegmentId;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DamageKind {
    /// A batch does not read, and a later one shows that it was once complete.
    Batch,
    /// A batch reads but is not the one that its successor was written after.
    Chain,
    /// The last batches of a segment are gone: the next segment was written after others.
    Tail,
    /// A segment in the middle of an epoch is not there.
    Missing,
    /// The file says that it is another segment, or of another log.
    Identity,
    /// The file is shorter than what was written to it.
    Truncated,
    /// The disk cannot read these bytes.
    Unreadable,
    /// The segment's header does not read. Its batches name themselves, so nothing is lost by it.
    Header,
    /// The segment's footer does not read or disagrees with the batches. The batches count; nothing is lost by it.
    Footer,
    /// The index behind the batches does not read or disagrees. It is rebuilt from them.
    Index,
    /// Bytes between batches that nothing reads are not zero.
    Padding,
    /// Sequences of a stream have a gap, or go back.
    Sequence,
}

impl DamageKind {
    /// Are there records that cannot be read, or not be trusted?
    pub fn loses_records(self) -> bool {
        match self {
            Self::Batch
            | Self::Chain
            | Self::Tail
            | Self::Missing
            | Self::Identity
            | Self::Truncated
            | Self::Unreadable
            | Self::Sequence => true,
            Self::Header | Self::Footer | Self::Index | Self::Padding => false,
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Chain => "chain",
            Self::Tail => "tail",
            Self::Missing => "missing",
            Self::Identity => "identity",
            Self::Truncated => "truncated",
            Self::Unreadable => "unreadable",
            Self::Header => "header",
            Self::Footer => "footer",
            Self::Index => "index",
            Self::Padding => "padding",
            Self::Sequence => "sequence",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Batch => "a batch does not read",
            Self::Chain => "a batch is not the one that its successor was written after",
            Self::Tail => "the last batches are gone",
            Self::Missing => "the segment is not there",
            Self::Identity => "the file is another segment's, or another log's",
            Self::Truncated => "the file is shorter than what was written to it",
            Self::Unreadable => "the disk cannot read it",
            Self::Header => "the header does not read (no record is lost by it)",
            Self::Footer => "the footer does not read or disagrees (no record is lost by it)",
            Self::Index => "the index does not read or disagrees (no record is lost by it)",
            Self::Padding => "unused bytes are not zero (no record is lost by it)",
            Self::Sequence => "the sequence of a stream has a gap",
        }
    }
}

/// A stretch of a segment that cannot be trusted, `offset..end` in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Damage {
    pub segment: SegmentId,
    pub offset: u64,
    pub end: u64,
    pub kind: DamageKind,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} offset {}: {}", self.segment, self.offset, self.kind.sentence())?;
        if self.end > self.offset { write!(f, " ({} bytes)", self.end - self.offset) } else { Ok(()) }
    }
}
