//! Reading a journal into the index: from where the index is to the durable end.

use eventlog::segment::{Cursor, Journal, Position, ReadError as SegmentError};

use super::index::IndexError;
use super::pack;
use super::table::Pointer;
use crate::ledger::codec::CodecError;

/// Commits of one batch of the index.
const CHUNK: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum CatchUpError {
    #[error("the ledger's journal: {0}")]
    Segment(#[from] SegmentError),
    #[error("the record at {at} of the ledger: {source}")]
    Codec { at: Position, source: CodecError },
    #[error("the record at {at} of the ledger is of a kind, {kind}, that this version does not write")]
    Kind { at: Position, kind: u8 },
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// A cursor at the place, or at the oldest record where the place was trimmed.
pub(super) fn cursor(journal: &Journal, from: Option<Position>) -> Result<Cursor, SegmentError> {
    match journal.read(from.unwrap_or(Position::START)) {
        Err(SegmentError::Trimmed { .. }) => journal.read(Position::START),
        other => other,
    }
}

/// How far it came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CaughtUp {
    /// Behind the last record that was read.
    pub(super) end: Option<Position>,
    /// Where the last record that was moved had been in the journal.
    pub(super) source: Option<Position>,
    pub(super) commits: u64,
}

/// Enters all that is durable from there on, by `enter`.
pub(super) fn catch_up(
    journal: &Journal,
    from: Option<Position>,
    enter: impl Fn(&[Pointer]) -> Result<(), IndexError>,
) -> Result<CaughtUp, CatchUpError> {
    let mut cursor = cursor(journal, from)?;
    let mut done = CaughtUp { end: from, ..CaughtUp::default() };
    let mut pointers = Vec::new();
    while let Some(record) = cursor.next_record()? {
        for commit in pack::commits(&record) {
            let commit = commit?;
            pointers.push(commit.pointer()?);
            done.source = commit.source.or(done.source);
            done.commits += 1;
        }
        done.end = Some(record.position.after());
        if pointers.len() >= CHUNK {
            enter(&pointers)?;
            pointers.clear();
        }
    }
    enter(&pointers)?;
    Ok(done)
}
