//! What is in a record of either journal: one commit in the journal itself, many in the history.
//!
//! A pack is `(source 16, length 4, commit)*`, where source is the place that the commit had in the journal. Commits without
//! payloads are small, and a durable write is at least a block of the disk; and a pack is there as a whole or not at all, so
//! that a move that fails in the middle leaves the history with its commits in their order, each once.

use eventlog::segment::{Position, Record};

use super::catch_up::CatchUpError;
use super::table::Pointer;
use crate::ledger::codec::{self, CodecError, Heading};
use crate::ledger::record as ledger;

/// What the journal's records are.
pub(super) const KIND_COMMIT: u8 = 1;
/// What those of the history are.
pub(super) const KIND_PACK: u8 = 2;

const SOURCE_BYTES: usize = 16;
const LENGTH_BYTES: usize = 4;

/// A commit, where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed<'a> {
    /// Of the record that it is in.
    pub(super) position: Position,
    pub(super) time_unix_ms: u64,
    /// Where it had been in the journal, if it is in the history.
    pub(super) source: Option<Position>,
    bytes: &'a [u8],
}

impl Packed<'_> {
    pub(super) fn heading(&self) -> Result<Heading, CatchUpError> {
        codec::heading(self.bytes, self.time_unix_ms).map_err(|source| self.broken(source))
    }

    pub(super) fn pointer(&self) -> Result<Pointer, CatchUpError> {
        Ok(Pointer::new(&self.heading()?, self.position))
    }

    pub(super) fn records(&self) -> Result<Vec<ledger::Record>, CatchUpError> {
        codec::decode(self.bytes, self.time_unix_ms).map_err(|source| self.broken(source))
    }

    fn broken(&self, source: CodecError) -> CatchUpError {
        CatchUpError::Codec { at: self.position, source }
    }
}

/// The commits of a record, in their order. An error ends them.
pub(super) fn commits(record: &Record) -> Commits<'_> {
    Commits { record, left: Some(&record.payload) }
}

#[derive(Debug)]
pub(super) struct Commits<'a> {
    record: &'a Record,
    left: Option<&'a [u8]>,
}

impl<'a> Iterator for Commits<'a> {
    type Item = Result<Packed<'a>, CatchUpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.left.take()?;
        let (at, kind) = (self.record.position, self.record.kind);
        let packed = |source, bytes| Packed { position: at, time_unix_ms: self.record.time_unix_ms, source, bytes };
        match kind {
            KIND_COMMIT => Some(Ok(packed(None, bytes))),
            KIND_PACK if bytes.is_empty() => None,
            KIND_PACK => Some(match split(bytes) {
                Some((source, commit, left)) => {
                    self.left = Some(left);
                    Ok(packed(Some(source), commit))
                }
                None => Err(CatchUpError::Codec { at, source: CodecError::Malformed("a part is missing".into()) }),
            }),
            kind => Some(Err(CatchUpError::Kind { at, kind })),
        }
    }
}

/// The first commit of a pack, and what is behind it.
fn split(bytes: &[u8]) -> Option<(Position, &[u8], &[u8])> {
    let (source, rest) = bytes.split_at_checked(SOURCE_BYTES)?;
    let (length, rest) = rest.split_at_checked(LENGTH_BYTES)?;
    let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (commit, left) = rest.split_at_checked(length)?;
    Some((Position::from_bytes(source.try_into().ok()?), commit, left))
}

/// Puts a commit behind those of a pack.
pub(super) fn push(pack: &mut Vec<u8>, source: Position, commit: &[u8]) {
    let length = u32::try_from(commit.len()).expect("no commit is longer than a segment");
    pack.extend_from_slice(&source.to_bytes());
    pack.extend_from_slice(&length.to_le_bytes());
    pack.extend_from_slice(commit);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, payload: Vec<u8>) -> Record {
        let position = Position::from_bytes([1; 16]);
        Record { position, stream: 0, sequence: 0, time_unix_ms: 7, kind, payload: payload.into() }
    }

    fn sources(record: &Record) -> Vec<Option<(Option<Position>, Vec<u8>)>> {
        commits(record).map(|packed| packed.ok().map(|packed| (packed.source, packed.bytes.to_vec()))).collect()
    }

    #[test]
    fn a_pack_has_what_was_put_in_it() {
        let place = |n: u8| Position::from_bytes([n; 16]);
        let mut pack = Vec::new();
        push(&mut pack, place(1), b"one");
        push(&mut pack, place(2), b"");
        push(&mut pack, place(3), b"three");
        let whole = sources(&record(KIND_PACK, pack.clone()));
        let commit = |n, bytes: &[u8]| Some((Some(place(n)), bytes.to_vec()));
        assert_eq!(whole, [commit(1, b"one"), commit(2, b""), commit(3, b"three")]);
        for cut in 1..pack.len() {
            let part = sources(&record(KIND_PACK, pack[..cut].to_vec()));
            let is_between = cut == 23 || cut == 43;
            assert_eq!(part.last().unwrap().is_none(), !is_between, "cut at {cut}");
        }
        assert_eq!(sources(&record(KIND_COMMIT, b"x".to_vec())), [Some((None, b"x".to_vec()))]);
        assert_eq!(sources(&record(9, b"x".to_vec())), [None]);
    }
}
