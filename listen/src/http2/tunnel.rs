//! A stream behind CONNECT, as a connection (RFC 9113, §8.5): bytes are DATA, an end is `END_STREAM`, and a reset is
//! `RST_STREAM`. What is not taken stays in the stream's window, and holds its writer up.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::meter::{Meter, PART_EARNS};
use super::stream::{Incoming, poll_room};

/// See the module's essay.
pub(crate) struct Tunnel {
    recv: Incoming,
    /// None once it was given up.
    send: Option<SendStream<Bytes>>,
    meter: Meter,
    resets: Resets,
    /// Of the last frame, what was not read yet.
    left: Bytes,
    /// The end was said.
    ended: bool,
}

impl Tunnel {
    pub(super) fn new(recv: Incoming, send: SendStream<Bytes>, meter: Meter, resets: Resets) -> Self {
        Self { recv, send: Some(send), meter, resets, left: Bytes::new(), ended: false }
    }

    /// What is behind it broke (§8.5): the client sees no clean end.
    pub(crate) fn abort(&mut self) {
        self.resets.list().extend(self.send.take());
    }

    fn send(&mut self) -> io::Result<&mut SendStream<Bytes>> {
        self.send.as_mut().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// Streams that are to be reset. The codec forgets what a stream has said and what was not sent yet when it is reset; so
/// the connection does that, once it has sent what it can.
#[derive(Clone, Default)]
pub(super) struct Resets(Arc<Mutex<Vec<SendStream<Bytes>>>>);

impl Resets {
    /// Resets them. True if there were any.
    pub(super) fn run(&self) -> bool {
        let streams = std::mem::take(&mut *self.list());
        let any = !streams.is_empty();
        for mut stream in streams {
            stream.send_reset(Reason::CONNECT_ERROR);
        }
        any
    }

    fn list(&self) -> MutexGuard<'_, Vec<SendStream<Bytes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reset(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.left.is_empty() {
            match ready!(self.recv.poll_data(cx)) {
                Some(Ok(data)) => self.left = data,
                Some(Err(error)) => return Poll::Ready(Err(reset(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.left.len().min(space.remaining());
        space.put_slice(&self.left[..length]);
        self.left.advance(length);
        if self.left.is_empty() {
            // A frame's memory need not last as long as the tunnel.
            self.left = Bytes::new();
        }
        self.recv.flow_control().release_capacity(length).map_err(reset)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let send = self.send()?;
        let room = ready!(poll_room(send, cx, bytes.len()))?;
        send.send_data(Bytes::copy_from_slice(&bytes[..room]), false).map_err(reset)?;
        self.meter.earn(PART_EARNS);
        Poll::Ready(Ok(room))
    }

    /// The connection's own task sends what it was given.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.ended, true) {
            self.send()?.send_data(Bytes::new(), true).map_err(reset)?;
        }
        Poll::Ready(Ok(()))
    }
}
