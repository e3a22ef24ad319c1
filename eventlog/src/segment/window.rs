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
    next_bytes: u64,
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
        Self { file, start: 0, bytes: Bytes::new(), next_bytes: READ_BYTES_MIN }
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
        let len = len.div_ceil(BLOCK) * BLOCK;
        let mut buffer = AlignedBuf::zeroed(usize::try_from(len).map_err(io::Error::other)?);
        let read = self.file.read_at(offset, buffer.as_mut_slice())?;
        buffer.truncate(read);
        self.start = offset;
        self.bytes = Bytes::from_owner(buffer);
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
