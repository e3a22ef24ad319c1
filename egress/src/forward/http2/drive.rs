//! The task of a connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::STREAMS_UNTOLD;
use super::connection::{Fate, Gate};
use super::liveness::Liveness;
use super::pace::{Pace, Paced};

/// Reads and writes what can be read and written, until the connection has ended: by its peer, by silence, by saying too
/// much, or because nobody holds it any more.
pub(super) struct Drive<S: AsyncRead + AsyncWrite + Unpin> {
    pub(super) connection: client::Connection<Paced<S>, Bytes>,
    pub(super) liveness: Option<Liveness>,
    pub(super) pace: Arc<Pace>,
    pub(super) gate: Arc<Gate>,
    /// Whom to tell.
    pub(super) changed: Arc<Notify>,
    pub(super) streams_max: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Drive<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.pace.begin();
        // What went wrong is told to those whose streams it ended.
        if Pin::new(&mut this.connection).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.pace.is_flooded() {
            this.gate.end(Fate::Flooded);
            return Poll::Ready(());
        }
        let streams_max = this.connection.max_concurrent_send_streams();
        if streams_max != this.streams_max {
            this.streams_max = streams_max;
            this.gate.allow(streams_max);
            this.changed.notify_waiters();
        }
        let is_busy = this.gate.is_busy();
        let is_dead = this.liveness.as_mut().map_or(Poll::Pending, |it| it.poll(cx, &this.pace, is_busy));
        // Dropping the connection ends its streams and closes its socket.
        is_dead.map(|()| this.gate.end(Fate::Dead))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Drop for Drive<S> {
    fn drop(&mut self) {
        self.gate.shut();
        self.changed.notify_waiters();
    }
}

/// Not the peer's word.
pub(super) fn is_told(streams_max: usize) -> bool {
    streams_max != STREAMS_UNTOLD
}
