//! Connections that are taken over: tunnels behind CONNECT, and what a protocol switch leads to.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::connection::Socket;
use crate::exchange::Exchange;
use crate::http::{Form, Version};
use crate::http2::Tunnel;
use crate::observer::Phase;
use crate::source::Source;
use crate::timer::Elapsed;
use crate::transport::Transport;
use crate::{reset, wire};

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

/// A connection as it is, without HTTP; behind CONNECT over HTTP/2, one stream of it. Reading gives first what had arrived already. Writes of less than a segment may
/// be held back until [`flush`](tokio::io::AsyncWriteExt::flush); `tokio::io::copy_bidirectional` does that by itself.
pub struct Raw {
    line: Line,
    peer: SocketAddr,
    local: SocketAddr,
    draining: Draining,
    broken: Broken,
}

/// Where a connection is put that shall be reset: whoever took it does not wait for that, its own task does.
type Broken = Arc<Mutex<Option<Transport>>>;

/// What a connection that was taken over is made of.
enum Line {
    /// What had arrived, and all of a connection.
    Whole(Bytes, Transport),
    /// One stream of a connection of HTTP/2.
    Stream(Box<Tunnel>),
    /// It shall be reset, and is no more whoever's who took it.
    Broken,
}

impl Raw {
    /// What has arrived and was not read yet, where that can be seen without reading.
    pub fn arrived(&self) -> &[u8] {
        match &self.line {
            Line::Whole(arrived, _) => arrived,
            Line::Stream(_) | Line::Broken => &[],
        }
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The connection is over, and shall end with a reset instead of a clean end: what the client got is not whole. What
    /// was written by now is delivered first, for which there is as long as `linger_timeout` once whoever took the connection
    /// has ended. It ends cleanly where the system does not let us.
    pub fn abort(&mut self) {
        if let Line::Stream(tunnel) = &mut self.line {
            return tunnel.abort();
        }
        if let Line::Whole(_, stream) = std::mem::replace(&mut self.line, Line::Broken) {
            *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        }
    }

    /// To learn of a drain, so that idle tunnels end first.
    pub fn draining(&self) -> Draining {
        self.draining.clone()
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("peer", &self.peer).field("arrived", &self.arrived().len()).finish_non_exhaustive()
    }
}

impl AsyncRead for Raw {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let arrived = match &mut self.get_mut().line {
            Line::Whole(arrived, stream) if arrived.is_empty() => return Pin::new(stream).poll_read(cx, space),
            Line::Whole(arrived, _) => arrived,
            Line::Stream(tunnel) => return Pin::new(tunnel).poll_read(cx, space),
            Line::Broken => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        };
        let length = arrived.len().min(space.remaining());
        space.put_slice(&arrived[..length]);
        arrived.advance(length);
        if arrived.is_empty() {
            // A tunnel may last: its first bytes need not.
            *arrived = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().line {
            Line::Whole(_, stream) => Pin::new(stream).poll_write(cx, bytes),
            Line::Stream(tunnel) => Pin::new(tunnel).poll_write(cx, bytes),
            Line::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().line {
            Line::Whole(_, stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Line::Stream(tunnel) => Pin::new(tunnel).poll_write_vectored(cx, slices),
            Line::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(&self.line, Line::Whole(_, stream) if stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().line {
            Line::Whole(_, stream) => Pin::new(stream).poll_flush(cx),
            Line::Stream(tunnel) => Pin::new(tunnel).poll_flush(cx),
            Line::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().line {
            Line::Whole(_, stream) => Pin::new(stream).poll_shutdown(cx),
            Line::Stream(tunnel) => Pin::new(tunnel).poll_shutdown(cx),
            Line::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
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
    let Exchange { source, mut socket, .. } = exchange;
    let line = match source {
        Source::Gate(mut gate) => {
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
            let (stream, arrived) = gate.into_raw();
            Line::Whole(arrived, stream)
        }
        Source::Stream(mut stream) => {
            let begun = stream.send_head(takeover.status, wire::fields_of_tunnel(takeover.headers), false);
            let Some(tunnel) = begun.then(|| stream.into_tunnel()).flatten() else { return nobody() };
            Line::Stream(Box::new(tunnel))
        }
    };
    let Socket { connections, peer, local, site, .. } = socket;
    let (draining, limit) = (Draining::new(connections.draining()), site.settings.linger_timeout);
    let broken = Broken::default();
    let running = (takeover.run)(Raw { line, peer, local, draining, broken: Arc::clone(&broken) });
    Box::pin(async move {
        running.await;
        let broken = broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(transport) = broken {
            // Few end like this: what waits for it is not room that every tunnel keeps.
            Box::pin(reset::once_delivered(transport, limit)).await;
        }
    })
}
