//! Memory that direct I/O takes, without `unsafe`: more than is needed is allocated, and an aligned range of it used.

use std::fmt;

/// Address and length alignment; every disk's logical block divides it.
const ALIGN: usize = 4096;

/// Zeroed bytes that begin at a multiple of 4096 in memory. Never grows: growing would move it.
pub(crate) struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    pub(crate) fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        // `align_offset` may give up (it says so with usize::MAX); it does so in const evaluation only. An
        // unaligned buffer would still be correct: the write fails with EINVAL and nothing is acknowledged.
        let start = if start < ALIGN { start } else { 0 };
        Self { bytes, start, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Shows `len` bytes from now on, with what was in them last. False, and nothing is changed: it is too small.
    pub(crate) fn show(&mut self, len: usize) -> bool {
        let fits = len <= self.bytes.len() - self.start;
        if fits {
            self.len = len;
        }
        fits
    }

    /// Shows only the first `len` bytes from now on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_block() {
        for len in [0, 1, 4096, 12_345] {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_slice().as_ptr().align_offset(ALIGN), 0);
            assert_eq!(buf.as_slice(), vec![0; len]);
        }
    }

    #[test]
    fn shows_no_more_than_it_has() {
        let mut buf = AlignedBuf::zeroed(8192);
        buf.as_mut_slice()[4096] = 7;
        buf.truncate(1);
        assert!(buf.show(4097) && buf.as_slice()[4096] == 7);
        assert!(!buf.show(8192 + ALIGN + 1));
        assert_eq!(buf.len(), 4097);
    }
}
