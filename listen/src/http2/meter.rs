//! Sees every frame of a client before the codec does, and counts those that get no work done ([`frames`](crate::frames)).
//!
//! A stream costs its client nothing and us a call; a frame that opens none can still cost us an answer, a wake-up, a look
//! through a table, and DATA for a stream that is over costs us whatever its client likes. Who has used up one of the
//! connection's allowances is cut off.
//!
//! It knows too since when a header section has been coming in, or any frame but DATA: the codec would wait for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::STREAM_BYTES;
use crate::frames::{
    Allowance, CONTINUATION, DATA, END_HEADERS, Frames, HEADERS, Seen as Sight, UNTAKEN_BYTES, UNTAKEN_EACH_SECOND,
    weight,
};

/// The preface's bytes (RFC 9113, §3.4).
const PREFACE_BYTES: usize = 24;

/// At once: a client that opens a hundred streams, changes its mind about all of them, and does so again four times.
const BURST: u32 = 1_000;
/// And that much more each second: a ping or a change of a window every ten milliseconds.
const EACH_SECOND: u32 = 100;
/// For the head of an answer: the stream's own two frames, and two more that its client may have had to say.
pub(super) const HEAD_EARNS: u32 = 4;
/// For a part of a body: the windows of its stream and of the connection are moved for it.
pub(super) const PART_EARNS: u32 = 2;

/// What the meter has seen; shared by the connection, which acts on it, and its streams, which earn.
#[derive(Debug, Clone)]
pub(super) struct Meter(Arc<Mutex<Seen>>);

impl Meter {
    /// Of a connection with so many streams at a time.
    pub(super) fn new(streams_max: u32) -> Self {
        Self(Arc::new(Mutex::new(Seen::new(streams_max, Instant::now()))))
    }

    /// Something was sent that the client may have to say something to.
    pub(super) fn earn(&self, frames: u32) {
        self.seen().allowance.earn(frames.into());
    }

    /// What a frame of DATA held was taken.
    pub(super) fn took(&self, bytes: usize) {
        self.seen().untaken.earn(weight(bytes).into());
    }

    /// Nobody takes any more of a stream, by our own will. What its client sends before it knows is no fault of it: a window
    /// of it, and once for a stream.
    pub(super) fn gave_up(&self) {
        self.seen().untaken.earn(STREAM_BYTES.into());
    }

    /// Is an allowance used up? Nothing more is read then.
    pub(super) fn is_flooded(&self) -> bool {
        let seen = self.seen();
        seen.allowance.is_used_up() || seen.untaken.is_used_up()
    }

    /// Since when something has been coming in that is not whole, and is no body's.
    pub(super) fn coming_since(&self) -> Option<Instant> {
        self.seen().since
    }

    /// No step leaves the state half changed.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Seen {
    /// Of the preface, what has not come yet.
    preface: usize,
    frames: Frames,
    /// A header section has begun and not ended.
    in_headers: bool,
    since: Option<Instant>,
    allowance: Allowance,
    /// Bytes of DATA that nobody has taken.
    untaken: Allowance,
}

impl Seen {
    fn new(streams_max: u32, now: Instant) -> Self {
        let windows = STREAM_BYTES.saturating_mul(streams_max);
        Self {
            preface: PREFACE_BYTES,
            frames: Frames::default(),
            in_headers: false,
            since: None,
            allowance: Allowance::new(BURST, EACH_SECOND, now),
            untaken: Allowance::new(windows.saturating_add(UNTAKEN_BYTES), UNTAKEN_EACH_SECOND, now),
        }
    }

    /// These bytes have come.
    fn feed(&mut self, mut bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        self.allowance.refill(now);
        self.untaken.refill(now);
        let skipped = self.preface.min(bytes.len());
        self.preface -= skipped;
        bytes = &bytes[skipped..];
        let Self { frames, in_headers, since, allowance, untaken, .. } = self;
        frames.feed(bytes, |sight| match sight {
            Sight::Begun(frame, cost) => {
                if matches!(frame.kind, HEADERS | CONTINUATION) {
                    *in_headers = !frame.has(END_HEADERS);
                }
                allowance.spend(cost);
            }
            Sight::Data(bytes) => untaken.spend(weight(bytes)),
            Sight::OnlyPadding(cost) => allowance.spend(cost),
            // The next one is another matter, unless it goes on with a header section.
            Sight::Ended(_) if *in_headers => {}
            Sight::Ended(_) => *since = None,
        });
        let is_part = frames.is_in_head() || *in_headers || frames.under_way().is_some_and(|frame| frame.kind != DATA);
        *since = if is_part { since.or(Some(now)) } else { None };
    }
}

/// A connection that is metered.
#[derive(Debug)]
pub(super) struct Metered<T> {
    inner: T,
    meter: Meter,
}

impl<T> Metered<T> {
    pub(super) fn new(inner: T, meter: &Meter) -> Self {
        Self { inner, meter: meter.clone() }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Metered<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Nobody is woken: whoever polls the connection looks at the meter right after.
        if self.meter.is_flooded() {
            return Poll::Pending;
        }
        let before = space.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, space))?;
        self.meter.seen().feed(&space.filled()[before..], Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Metered<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frames::{END_STREAM, PADDED, SETTINGS};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(9 + payload, 7);
        frame
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let now = Instant::now();
        let mut all = PREFACE.to_vec();
        for one in [
            frame(SETTINGS, 0, 18),
            frame(PING, 0, 8),
            frame(HEADERS, END_HEADERS, 300),
            frame(DATA, 0, 70_000),
            frame(DATA, 0, 0),
            frame(DATA, END_STREAM, 0),
            frame(0xee, 0, 3),
        ] {
            all.extend(one);
        }
        for step in [1, 7, 9, 24, 100, all.len()] {
            let mut seen = Seen::new(100, now);
            for part in all.chunks(step) {
                seen.feed(part, now);
            }
            assert_eq!((seen.allowance.left(), seen.since), (BURST - 8, None), "{step}");
        }
    }

    #[test]
    fn who_does_nothing_else_uses_the_allowance_up() {
        let now = Instant::now();
        let mut seen = Seen::new(100, now);
        seen.feed(PREFACE, now);
        for _ in 0..BURST {
            seen.feed(&frame(PING, 0, 8), now);
        }
        assert!(!seen.allowance.is_used_up());
        let later = now + Duration::from_secs(1);
        for _ in 0..EACH_SECOND {
            seen.feed(&frame(PING, 0, 8), later);
        }
        assert!(!seen.allowance.is_used_up());
        seen.feed(&frame(PING, 0, 8), later);
        assert!(seen.allowance.is_used_up());
        // Padding that flow control would let through for ever.
        let mut padded = Seen::new(100, now);
        padded.feed(PREFACE, now);
        for _ in 0..=BURST {
            padded.feed(&[0, 0, 1, DATA, PADDED, 0, 0, 0, 1, 0], now);
        }
        assert!(padded.allowance.is_used_up());
    }

    #[test]
    fn data_that_nobody_takes_is_bounded_and_what_is_taken_is_not() {
        let now = Instant::now();
        let most = 100 * STREAM_BYTES + UNTAKEN_BYTES;
        for (length, frames) in [(16 << 10, most / (16 << 10)), (1, most / 256)] {
            let meter = Meter(Arc::new(Mutex::new(Seen::new(100, now))));
            meter.seen().feed(PREFACE, now);
            for _ in 0..3 * frames {
                meter.seen().feed(&frame(DATA, 0, length), now);
                meter.took(length);
            }
            for _ in 0..frames {
                meter.seen().feed(&frame(DATA, 0, length), now);
            }
            assert!(!meter.is_flooded(), "{length}");
            meter.seen().feed(&frame(DATA, 0, length), now);
            assert!(meter.is_flooded(), "{length}");
        }
    }

    #[test]
    fn what_is_half_there_is_known_since_when() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut seen = Seen::new(100, now);
        seen.feed(PREFACE, now);
        // Part of a head, then part of a payload: it is one frame, and began once.
        let ping = frame(PING, 0, 8);
        seen.feed(&ping[..3], at(1));
        seen.feed(&ping[3..12], at(2));
        assert_eq!(seen.since, Some(at(1)));
        seen.feed(&ping[12..], at(3));
        assert_eq!(seen.since, None);
        // A header section is one as long as it goes on, whatever whole frames it comes in.
        seen.feed(&frame(HEADERS, 0, 10), at(4));
        seen.feed(&frame(CONTINUATION, 0, 10), at(5));
        assert_eq!(seen.since, Some(at(4)));
        seen.feed(&frame(CONTINUATION, END_HEADERS, 10), at(6));
        assert_eq!(seen.since, None);
        // A body is somebody else's matter; a frame after it is not.
        let data = frame(DATA, 0, 100);
        seen.feed(&data[..50], at(7));
        assert_eq!(seen.since, None);
        seen.feed(&[&data[50..], &ping[..1]].concat(), at(8));
        assert_eq!(seen.since, Some(at(8)));
        // One that ends and one that begins in the same read are two.
        seen.feed(&[&ping[1..], &ping[..1]].concat(), at(9));
        assert_eq!(seen.since, Some(at(9)));
    }
}
