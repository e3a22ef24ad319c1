//! Sockets that count: how many bytes they took, below TLS.
//!
//! Whether a request can have had an effect is decided by whether a byte of it left. Only the socket knows: a body that
//! was read may lie in a buffer, and what TLS took may not have been sealed yet.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use outbound::dial::{Connect, ConnectFault, Connected};
use outbound::{Source, VettedAddr};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What went through one socket.
#[derive(Debug)]
pub(crate) struct Wire {
    /// When it was connected.
    pub(crate) connected: Instant,
    written: AtomicU64,
}

impl Wire {
    /// Bytes that the system took.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

/// Connects as the one inside does, and counts.
#[derive(Debug, Clone)]
pub(crate) struct Counting<C>(pub(crate) C);

/// A connection that counts.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    wire: Arc<Wire>,
}

impl<S> Counted<S> {
    pub(crate) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }
}

impl<C: Connect> Connect for Counting<C> {
    type Stream = Counted<C::Stream>;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<Self::Stream>, ConnectFault> {
        let Connected { stream, local } = self.0.connect(to, from).await?;
        let wire = Wire { connected: Instant::now(), written: AtomicU64::new(0) };
        Ok(Connected { stream: Counted { stream, wire: Arc::new(wire) }, local })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wire.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wire.note(&written);
        written
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
