//! Connections that are taken over: tunnels behind CONNECT, and what a protocol switch leads to.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode};
use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::connection::Socket;
use crate::exchange::Exchange;
use crate::http::{Form, Version};
use crate::observer::Phase;
use crate::timer::Elapsed;
use crate::wire;

/// Whoever has taken a connection.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A reply that takes the connection: 2xx to CONNECT, or 101 to a request that asks to switch.
///
/// The head is written and seen off first, then whoever takes the connection is run. So a handler dials, answers plainly
/// if that fails, and takes over when it knows where to. What the client sent right behind its head is read first from
/// [`Raw`]. The connection counts as open until the future that `run` makes has ended, and a drain waits for that.
pub struct Takeover {
    pub status: StatusCode,
    /// Written as they are, but for those that frame a message: a tunnel has no length.
    pub headers: HeaderMap,
    run: Box<dyn FnOnce(Raw) -> Running + Send>,
}

impl Takeover {
    pub fn new<R, F>(status: StatusCode, headers: HeaderMap, run: R) -> Self
    where
        R: FnOnce(Raw) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self { status, headers, run: Box::new(|raw| Box::pin(run(raw))) }
    }

    /// Does the request ask for a connection to be taken over in this way?
    pub(crate) fn suits(&self, exchange: &mut Exchange) -> bool {
        let head = &exchange.head;
        let asked = if self.status == StatusCode::SWITCHING_PROTOCOLS {
            head.version() == Version::Http11 && head.get_all("upgrade").next().is_some()
        } else {
            head.form() == Form::Authority && self.status.is_success()
        };
        // What follows has to be the tunnel's and not the rest of a message.
        asked && exchange.consume_unread()
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("status", &self.status).field("headers", &self.headers).finish_non_exhaustive()
    }
}

/// A connection as it is, without HTTP. Reading gives first what had arrived already. Writes of less than a segment may
/// be held back until [`flush`](tokio::io::AsyncWriteExt::flush); `tokio::io::copy_bidirectional` does that by itself.
pub struct Raw {
    stream: Stream,
    arrived: Bytes,
    peer: SocketAddr,
    local: SocketAddr,
    draining: Draining,
}

impl Raw {
    /// What has arrived and was not read yet.
    pub fn arrived(&self) -> &[u8] {
        &self.arrived
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// To learn of a drain, so that idle tunnels end first.
    pub fn draining(&self) -> Draining {
        self.draining.clone()
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("peer", &self.peer).field("arrived", &self.arrived.len()).finish_non_exhaustive()
    }
}

impl AsyncRead for Raw {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.arrived.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, space);
        }
        let length = self.arrived.len().min(space.remaining());
        space.put_slice(&self.arrived[..length]);
        self.arrived.advance(length);
        if self.arrived.is_empty() {
            // A tunnel may last: its first bytes need not.
            self.arrived = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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

/// Knows whether the service drains.
#[derive(Debug, Clone)]
pub struct Draining(watch::Receiver<bool>);

impl Draining {
    pub(crate) fn new(draining: watch::Receiver<bool>) -> Self {
        Self(draining)
    }

    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the drain begins, at once if it has. Given up waiting for, it can be asked again.
    pub async fn begins(&mut self) {
        // An error is a service that is gone, which is a drain if anything is.
        let _begun = self.0.wait_for(|draining| *draining).await;
    }
}

/// Writes the head, and gives what is to run: nothing of the request is kept while that lasts. Nothing where the client
/// has gone.
pub(crate) async fn hand_over(exchange: Exchange, takeover: Box<Takeover>) -> Running {
    let nobody = || Box::pin(std::future::ready(()));
    let Exchange { mut gate, mut socket, .. } = exchange;
    let head = wire::switch(takeover.status, &takeover.headers);
    match socket.timer.within(socket.site.settings.write_timeout, gate.write(&head)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "the head of a tunnel could not be written");
            return nobody();
        }
        Err(Elapsed) => {
            socket.site.observer.timed_out(Phase::Write);
            return nobody();
        }
    }
    let Socket { connections, peer, local, .. } = socket;
    let draining = Draining::new(connections.draining());
    let (stream, arrived) = gate.into_raw();
    (takeover.run)(Raw { stream, arrived, peer, local, draining })
}
