//! What is to be written and has not been yet.
//!
//! Small pieces (heads, chunk sizes, frames of some bytes) are put together, so that what is ready together leaves in one
//! segment. Large ones stay where they lie and are gathered by the kernel.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

/// From here on a copy costs more than another entry in the list of what is gathered.
const COPIED_BYTES_MAX: usize = 4 * 1024;

/// Pieces that are gathered at a time.
const GATHERED_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Bytes>,
    /// Small ones, behind all others.
    tail: BytesMut,
    bytes: usize,
    /// The connection may hold on to what was written last, until it is flushed.
    unflushed: bool,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Is everything on its way to the client?
    pub(crate) fn is_out(&self) -> bool {
        self.bytes == 0 && !self.unflushed
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Adds a copy.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Adds a piece, without a copy where that is worth it.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES_MAX {
            return self.copy(&bytes);
        }
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
        self.bytes += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Writes some of it, in order, and says how much. There is something to be written.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<usize>> {
        let written = if self.pieces.is_empty() {
            ready!(Pin::new(to).poll_write(cx, &self.tail))?
        } else {
            let mut slices = [IoSlice::new(&[]); GATHERED_MAX];
            let pieces = self.pieces.iter().map(|piece| &piece[..]).chain([&self.tail[..]]);
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(pieces) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            ready!(Pin::new(to).poll_write_vectored(cx, &slices[..count]))?
        };
        self.forget(written);
        self.unflushed = true;
        if written == 0 { Poll::Ready(Err(io::ErrorKind::WriteZero.into())) } else { Poll::Ready(Ok(written)) }
    }

    /// Takes some of it from the front, at most so much, without a copy. There is something to be taken.
    pub(crate) fn take(&mut self, most: usize) -> Bytes {
        let taken = match self.pieces.front_mut() {
            Some(first) if first.len() > most => first.split_to(most),
            Some(_) => self.pieces.pop_front().unwrap_or_default(),
            None => self.tail.split_to(most.min(self.tail.len())).freeze(),
        };
        self.bytes -= taken.len();
        taken
    }

    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(to).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn forget(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.pieces.front_mut() {
            if written < first.len() {
                return first.advance(written);
            }
            written -= first.len();
            self.pieces.pop_front();
        }
        self.tail.advance(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes so many bytes at a time.
    struct Narrow {
        most: usize,
        taken: Vec<u8>,
        writes: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.most);
            self.taken.extend_from_slice(&bytes[..taken]);
            self.writes += 1;
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = all.len().min(self.most);
            self.taken.extend_from_slice(&all[..taken]);
            self.writes += 1;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn write_out(outbox: &mut Outbox, most: usize) -> Narrow {
        let mut to = Narrow { most, taken: Vec::new(), writes: 0 };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !outbox.is_empty() {
            assert!(outbox.poll_write(&mut cx, &mut to).is_ready());
        }
        to
    }

    #[test]
    fn a_head_and_what_is_ready_with_it_leave_together() {
        let mut outbox = Outbox::default();
        outbox.copy(b"head");
        outbox.push(Bytes::from_static(b"small"));
        outbox.push(Bytes::from(vec![b'x'; 70_000]));
        outbox.copy(b"end");
        assert_eq!(outbox.len(), 70_012);
        let to = write_out(&mut outbox, usize::MAX);
        assert!(to.writes == 1 && to.taken.starts_with(b"headsmallx") && to.taken.ends_with(b"xend"));
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_went_in(
            pieces in prop::collection::vec((1..9000_usize, any::<u8>()), 1..20),
            most in 1..20_000_usize,
        ) {
            let (mut outbox, mut all) = (Outbox::default(), Vec::new());
            for (length, byte) in pieces {
                all.extend(std::iter::repeat_n(byte, length));
                outbox.push(vec![byte; length].into());
            }
            let mut taken = Vec::new();
            while !outbox.is_empty() {
                let part = outbox.take(most);
                prop_assert!(!part.is_empty() && part.len() <= most);
                taken.extend_from_slice(&part);
                prop_assert_eq!(outbox.len(), all.len() - taken.len());
            }
            prop_assert_eq!(taken, all);
        }

        #[test]
        fn what_goes_in_comes_out_in_order(
            pieces in prop::collection::vec((0..9000_usize, any::<u8>()), 0..40),
            most in 1..20_000_usize,
        ) {
            let (mut outbox, mut all) = (Outbox::default(), Vec::new());
            for (length, byte) in pieces {
                let piece = vec![byte; length];
                all.extend_from_slice(&piece);
                outbox.push(piece.into());
                prop_assert_eq!(outbox.len(), all.len());
            }
            prop_assert_eq!(write_out(&mut outbox, most.max(all.len() / 200)).taken, all);
        }
    }
}
