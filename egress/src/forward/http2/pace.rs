//! A socket that is read so much at a time, and says what was read.
//!
//! Frames without a body (interim answers, resets) are bounded by no window. A task that reads all that there is would
//! pile them up before those whom they are for get to run. How many of them there may be is the meter's matter
//! (`meter.rs`).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use listen::frames::weight;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::STREAM_WINDOW;
use super::meter::{Earned, Meter};

/// Bytes that are read before others have their turn: four frames of the usual size.
const TURN_BYTES: usize = 64 << 10;

/// What is known of a socket's reading.
#[derive(Debug, Default)]
pub(super) struct Pace {
    left: AtomicUsize,
    read: AtomicU64,
    answers: AtomicU64,
    /// For what was sent, and not given to the meter yet.
    earned: AtomicU64,
    /// For what was taken, the same.
    taken: AtomicU64,
    is_flooded: AtomicBool,
}

impl Pace {
    /// A turn begins.
    pub(super) fn begin(&self) {
        self.left.store(TURN_BYTES, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Frames of answers so far, which began.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Something was sent that the peer may say so many frames to.
    pub(super) fn earn(&self, frames: u64) {
        self.earned.fetch_add(frames, Ordering::Relaxed);
    }

    /// What a frame of DATA held was taken.
    pub(super) fn took(&self, bytes: usize) {
        self.taken.fetch_add(weight(bytes).into(), Ordering::Relaxed);
    }

    /// Nobody takes any more of a stream, by our own will. What its peer sends before it knows is no fault of it: a window of
    /// it, and once for a stream.
    pub(super) fn gave_up(&self) {
        self.taken.fetch_add(STREAM_WINDOW.into(), Ordering::Relaxed);
    }

    /// Whether it has said more than it may. Nothing more is read then.
    pub(super) fn is_flooded(&self) -> bool {
        self.is_flooded.load(Ordering::Relaxed)
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    meter: Meter,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, pace: Arc<Pace>) -> Self {
        Self { stream, pace, meter: Meter::new(Instant::now()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Nobody is woken: whoever polls the connection looks right after.
        if self.meter.is_flooded() {
            return Poll::Pending;
        }
        let left = self.pace.left.load(Ordering::Relaxed);
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        self.pace.left.store(left.saturating_sub(read), Ordering::Relaxed);
        self.pace.read.fetch_add(read as u64, Ordering::Relaxed);
        if read > 0 {
            let frames = self.pace.earned.swap(0, Ordering::Relaxed);
            let earned = Earned { frames, bytes: self.pace.taken.swap(0, Ordering::Relaxed) };
            let answers = self.meter.feed(&buf.filled()[before..], earned, Instant::now());
            self.pace.answers.fetch_add(answers, Ordering::Relaxed);
            self.pace.is_flooded.store(self.meter.is_flooded(), Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
