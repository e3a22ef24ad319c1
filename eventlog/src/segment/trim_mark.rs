//! How far was trimmed, in a file beside the segments: the log's id and a position, whole or not at all.

use std::io;
use std::path::Path;

use super::format::LogId;
use super::names::TRIM_MARK;
use super::position::Position;
use super::storage::{Storage, read_or_nothing};

const MARK_BYTES: usize = 8 + 16 + 16 + 4;
const MARK_MAGIC: [u8; 8] = *b"TGtrimd\x01";

pub(crate) fn encode_mark(log: &LogId, trimmed: Position) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MARK_BYTES);
    bytes.extend_from_slice(&MARK_MAGIC);
    bytes.extend_from_slice(log);
    bytes.extend_from_slice(&trimmed.to_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn decode_mark(log: &LogId, bytes: &[u8]) -> Option<Position> {
    let position: [u8; 16] = bytes.get(24..40)?.try_into().ok()?;
    let position = Position::from_bytes(position);
    (bytes == encode_mark(log, position)).then_some(position)
}

/// How far anybody trimmed, as the disk says it; `None` if it says nothing that makes sense. An error that says nothing
/// of the mark (no memory, too many open files) is one: taken for no mark, it would let the mark go back.
pub(crate) fn stored_mark(storage: &dyn Storage, directory: &Path, log: &LogId) -> io::Result<Option<Position>> {
    let mark = read_or_nothing(storage, &directory.join(TRIM_MARK), 4096)?;
    Ok(mark.and_then(|bytes| decode_mark(log, &bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_whole_or_nothing() {
        let mark = encode_mark(&[3; 16], Position::new(5, 77));
        assert_eq!(decode_mark(&[3; 16], &mark), Some(Position::new(5, 77)));
        assert_eq!(decode_mark(&[4; 16], &mark), None);
        for at in 0..mark.len() {
            let mut flipped = mark.clone();
            flipped[at] ^= 0x10;
            assert_eq!(decode_mark(&[3; 16], &flipped), None);
            assert_eq!(decode_mark(&[3; 16], &mark[..at]), None);
        }
    }
}
