//! One direction of a tunnel.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// One read of a tunnel that carries little. It lies on the stack and only for the moment of the read.
const LITTLE_BYTES: usize = 8 << 10;
/// One read of a tunnel that carries much: system calls cost little beside the copying then.
const MUCH_BYTES: usize = 64 << 10;
/// One read of a tunnel whose reader keeps up with that: what is passed on at once wakes its reader once, and waking costs
/// more than copying. A reader that stops costs what it has not taken of one such read.
const MOST_BYTES: usize = 256 << 10;
/// So many reads are passed on before others on this thread have their turn.
const ROUNDS_MAX: usize = 16;

/// Bytes on their way from one side to the other. It has memory only while bytes are on their way: between a read and
/// the write of the last byte of it. It reads on only when all has been written, so a reader that does not read costs
/// one buffer and stops its writer.
#[derive(Debug)]
pub(super) struct Flow {
    /// What was read.
    held: Vec<u8>,
    /// How much of that was written.
    written: usize,
    state: State,
    /// Whether something was written since the last flush. Sockets do not mind; streams with a buffer of their own do.
    is_unflushed: bool,
    /// How much the next read takes at most.
    room: usize,
    /// How many bytes may still be read.
    allowance: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The writer has ended; its reader is told when it has everything.
    Ending,
    /// The reader was told.
    Ended,
    /// The reader takes nothing any more.
    Broken,
}

/// Why a direction cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// Its writer's connection broke.
    Writer,
    /// More came than may.
    TooMuch,
}

impl Flow {
    /// Begins with what was read already.
    pub(super) fn new(first: Vec<u8>, bytes_max: Option<u64>) -> Self {
        let allowance = bytes_max.unwrap_or(u64::MAX).saturating_sub(first.len() as u64);
        Self { held: first, written: 0, state: State::Open, is_unflushed: false, room: LITTLE_BYTES, allowance }
    }

    /// Whether nothing will pass any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Ended | State::Broken)
    }

    /// Whether its reader went away before its writer had ended.
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Whether something has come that its reader does not have yet: bytes, or the end behind them. An end of the tunnel
    /// cuts it off.
    pub(super) fn holds(&self) -> bool {
        match self.state {
            State::Open => self.written < self.held.len() || self.is_unflushed,
            State::Ending => true,
            State::Ended | State::Broken => false,
        }
    }

    /// Moves what can be moved, and says whether that was anything. The task is woken when there is more.
    pub(super) fn poll_move<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        count: &AtomicU64,
    ) -> Result<bool, Stopped>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut has_passed = false;
        for _ in 0..ROUNDS_MAX {
            if self.is_over() {
                return Ok(has_passed);
            }
            match self.poll_deliver(cx, to, count, &mut has_passed) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    // What the other direction still has may well be the reason for it, such as an early answer: it
                    // goes on. Nothing is read here any more, so the writer is not told that its bytes arrived.
                    self.state = State::Broken;
                    self.release();
                    return Ok(has_passed);
                }
                Poll::Pending => return Ok(has_passed),
            }
            if self.is_over() {
                return Ok(has_passed);
            }
            match self.poll_fetch(cx, from) {
                Poll::Ready(Ok(0)) => self.state = State::Ending,
                Poll::Ready(Ok(count)) => {
                    has_passed = true;
                    self.allowance = self.allowance.checked_sub(count as u64).ok_or(Stopped::TooMuch)?;
                }
                Poll::Ready(Err(_)) => return Err(Stopped::Writer),
                Poll::Pending => {
                    self.release();
                    self.poll_flush(cx, to);
                    return Ok(has_passed);
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(has_passed)
    }

    /// Writes what is held, and then the end if it has come.
    fn poll_deliver<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
        count: &AtomicU64,
        has_passed: &mut bool,
    ) -> Poll<io::Result<()>> {
        while self.written < self.held.len() {
            let written = match Pin::new(&mut *to).poll_write(cx, &self.held[self.written..]) {
                Poll::Ready(written) => written?,
                Poll::Pending => {
                    self.room = self.room.min(MUCH_BYTES);
                    self.poll_flush(cx, to);
                    return Poll::Pending;
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.is_unflushed = true;
            *has_passed = true;
            count.fetch_add(written as u64, Ordering::Relaxed);
        }
        if self.state == State::Ending {
            self.release();
            ready!(Pin::new(to).poll_shutdown(cx))?;
            self.state = State::Ended;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, where all that was read before has been written.
    fn poll_fetch<R: AsyncRead + Unpin>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<usize>> {
        self.held.clear();
        self.written = 0;
        let count = if self.room > LITTLE_BYTES {
            self.held.reserve(self.room);
            // The future holds nothing between polls: it is one `poll_read` into memory that was not cleared for it.
            let mut space = (&mut self.held).limit(self.room);
            ready!(pin!(from.read_buf(&mut space)).poll(cx))?
        } else {
            let mut space = [MaybeUninit::uninit(); LITTLE_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            ready!(Pin::new(from).poll_read(cx, &mut read))?;
            self.held.extend_from_slice(read.filled());
            read.filled().len()
        };
        self.room = match count {
            _ if count < LITTLE_BYTES => LITTLE_BYTES,
            _ if count < self.room => self.room,
            LITTLE_BYTES => MUCH_BYTES,
            _ => MOST_BYTES,
        };
        Poll::Ready(Ok(count))
    }

    /// An error will come back with the next write.
    fn poll_flush<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, to: &mut W) {
        if self.is_unflushed && Pin::new(to).poll_flush(cx).is_ready() {
            self.is_unflushed = false;
        }
    }

    fn release(&mut self) {
        self.held = Vec::new();
        self.written = 0;
    }
}
