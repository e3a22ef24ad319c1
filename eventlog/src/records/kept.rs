//! How far back everything is kept, over restarts. What was dropped cannot be asked any more when it was from, so that is
//! written down.

use std::io;
use std::path::Path;

use super::chunk::{u32_at, u64_at};
use crate::segment::storage::{Storage, read_or_nothing};
use crate::segment::{KEPT_TIME, SegmentId};

const MAGIC: [u8; 8] = *b"TGkept\x00\x01";
const BYTES: usize = 8 + 8 + 8 + 4 + 4;

/// What was lost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// The newest time of anything that was dropped; 0 before anything was.
    pub(super) lost_unix_ms: u64,
    /// The oldest segment that was there when this was written. One that is missing since was dropped by a process that
    /// came to no more.
    pub(super) oldest: SegmentId,
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Whole(Kept),
    /// There is none, or it does not read.
    Nothing,
}

impl Kept {
    /// Of a store that nobody has looked into.
    pub(super) const NOTHING: Self = Self { lost_unix_ms: 0, oldest: SegmentId { epoch: 0, sequence: 0 } };

    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.lost_unix_ms.to_le_bytes());
        bytes.extend_from_slice(&self.oldest.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.oldest.sequence.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.len() == BYTES && bytes[..8] == MAGIC;
        let kept = whole.then(|| Self {
            lost_unix_ms: u64_at(bytes, 8),
            oldest: SegmentId { epoch: u64_at(bytes, 16), sequence: u32_at(bytes, 24) },
        })?;
        (kept.encode() == bytes).then_some(kept)
    }

    pub(super) fn read(storage: &dyn Storage, directory: &Path) -> io::Result<Stored> {
        let bytes = read_or_nothing(storage, &directory.join(KEPT_TIME), 4096)?;
        Ok(bytes.and_then(|bytes| Self::decode(&bytes)).map_or(Stored::Nothing, Stored::Whole))
    }

    pub(super) fn write(self, storage: &dyn Storage, directory: &Path) -> io::Result<()> {
        storage.put(&directory.join(KEPT_TIME), &self.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_whole_or_nothing() {
        let kept = Kept { lost_unix_ms: 1_790_000_000_000, oldest: SegmentId { epoch: 3, sequence: 9 } };
        let bytes = kept.encode();
        assert_eq!(Kept::decode(&bytes), Some(kept));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!((Kept::decode(&flipped), Kept::decode(&bytes[..at])), (None, None));
        }
    }
}
