//! Reading a segment's file in aligned pieces, and batches out of them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::aligned::AlignedBuf;
use super::format::{BatchHeader, Identity, Invalid};
use super::position::BLOCK;
use super::storage::StorageFile;

/// The first read is small (one record may be all that is wanted), later ones double up to the largest.
const READ_BYTES_MIN: u64 = 16 << 10;
const READ_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<dyn StorageFile>,
    start: u64,
    bytes: Bytes,
    /// What `bytes` shows. Read into again where nobody has anything of it any more: fresh memory has to be cleared first.
    piece: Option<Arc<AlignedBuf>>,
    next_bytes: u64,
}

/// A piece that somebody may have a part of.
#[derive(Debug)]
struct Lent(Arc<AlignedBuf>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// A batch's header and exactly its bytes.
#[derive(Debug, Clone)]
pub(crate) struct RawBatch {
    pub(crate) header: BatchHeader,
    pub(crate) bytes: Bytes,
}

/// Why there is no batch at a place, and where looking for the next one makes sense.
#[derive(Debug)]
pub(crate) struct NoBatch {
    pub(crate) reason: NoBatchReason,
    pub(crate) resume: u64,
}

#[derive(Debug)]
pub(crate) enum NoBatchReason {
    Invalid(Invalid),
    /// The disk does not give it.
    Unreadable,
}

impl Window {
    pub(crate) fn new(file: Arc<dyn StorageFile>) -> Self {
        Self { file, start: 0, bytes: Bytes::new(), piece: None, next_bytes: READ_BYTES_MIN }
    }

    /// `len` bytes from `offset`, a multiple of 4096, or as many as there are before `limit` and the file's end.
    pub(crate) fn get(&mut self, offset: u64, len: u64, limit: u64) -> io::Result<Bytes> {
        let len = len.min(limit.saturating_sub(offset));
        if let Some(found) = self.have(offset, len) {
            return Ok(found);
        }
        let ahead = self.next_bytes.max(len).min(limit - offset);
        let whole = self.load(offset, ahead);
        if whole.is_err() && ahead > len {
            // What lies ahead may be unreadable while this is not.
            self.load(offset, len)?;
        } else {
            whole?;
        }
        self.next_bytes = (self.next_bytes * 2).min(READ_BYTES_MAX);
        let there = len.min(self.bytes.len() as u64);
        Ok(self.have(offset, there).unwrap_or_default())
    }

    fn have(&self, offset: u64, len: u64) -> Option<Bytes> {
        let from = offset.checked_sub(self.start)?;
        let to = from.checked_add(len)?;
        if to > self.bytes.len() as u64 {
            return None;
        }
        Some(self.bytes.slice(usize::try_from(from).ok()?..usize::try_from(to).ok()?))
    }

    fn load(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize::try_from(len.div_ceil(BLOCK) * BLOCK).map_err(io::Error::other)?;
        self.bytes = Bytes::new();
        let last = self.piece.take().and_then(Arc::into_inner);
        let again = last.and_then(|mut last| last.show(len).then_some(last));
        let mut piece = again.unwrap_or_else(|| AlignedBuf::zeroed(len));
        let read = self.file.read_at(offset, piece.as_mut_slice())?;
        piece.truncate(read);
        let piece = Arc::new(piece);
        self.start = offset;
        self.bytes = Bytes::from_owner(Lent(Arc::clone(&piece)));
        self.piece = Some(piece);
        Ok(())
    }

    /// The batch that begins at `offset`; no byte at or behind `limit` is looked at. Checks the header only: the
    /// records have checksums of their own.
    pub(crate) fn batch(&mut self, identity: &Identity, offset: u64, limit: u64) -> Result<RawBatch, NoBatch> {
        let failed = |reason, resume| NoBatch { reason, resume };
        let block = self.get(offset, BLOCK, limit).map_err(|_| failed(NoBatchReason::Unreadable, offset + BLOCK))?;
        let header = BatchHeader::decode(identity, offset, limit.saturating_sub(offset), &block)
            .map_err(|invalid| failed(NoBatchReason::Invalid(invalid), offset + BLOCK))?;
        let resume = offset + header.padded();
        let bytes =
            self.get(offset, u64::from(header.bytes), limit).map_err(|_| failed(NoBatchReason::Unreadable, resume))?;
        if bytes.len() as u64 != u64::from(header.bytes) {
            return Err(failed(NoBatchReason::Invalid(Invalid::Broken), resume));
        }
        Ok(RawBatch { header, bytes })
    }

    /// The next place at or behind `from` where a batch header of this segment reads.
    pub(crate) fn find_batch(&mut self, identity: &Identity, from: u64, limit: u64) -> Option<u64> {
        let mut offset = from;
        while offset < limit {
            // A block that cannot be read holds no batch that could be used.
            if let Ok(block) = self.get(offset, BLOCK, limit)
                && BatchHeader::decode(identity, offset, limit - offset, &block).is_ok()
            {
                return Some(offset);
            }
            offset += BLOCK;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At each place its block's number.
    #[derive(Debug)]
    struct Numbered;

    impl StorageFile for Numbered {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            for (at, byte) in (offset..).zip(&mut *into) {
                *byte = u8::try_from(at / BLOCK % 251).map_err(io::Error::other)?;
            }
            Ok(into.len())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(u64::MAX)
        }
    }

    #[test]
    fn a_piece_is_read_into_again_and_never_while_somebody_has_some_of_it() {
        let mut window = Window::new(Arc::new(Numbered));
        let mut get = |block: u64| window.get(block * BLOCK, BLOCK, u64::MAX).unwrap();
        // Past the pieces that grow.
        let far = [0, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000].map(|block| drop(get(block)));
        assert_eq!(far.len(), 9);
        let kept = get(9_000);
        let (at, was) = (kept.as_ptr(), kept.clone());
        let next = get(10_000);
        assert_ne!(next.as_ptr(), at, "it is somebody's");
        assert_eq!(kept, was);
        let at = next.as_ptr();
        drop(next);
        let again = get(11_000);
        assert_eq!(again.as_ptr(), at, "it is nobody's any more");
        assert!(again.iter().all(|byte| u64::from(*byte) == 11_000 % 251));
    }
}
