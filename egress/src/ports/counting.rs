//! Below the dialer: a connection takes a port before it is dialled, and holds it until its socket is closed.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use outbound::dial::{Connect, ConnectFault, Connected, TcpConnector};
use outbound::{Source, VettedAddr};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Port, Ports, PortsFull};
use crate::tunnel::Side;

/// Connects as the connector that it wraps, where there is room.
#[derive(Debug, Clone)]
pub struct PortCounting<C = TcpConnector> {
    connector: C,
    ports: Arc<Ports>,
}

impl<C> PortCounting<C> {
    /// Counts in `ports`, which others may share.
    pub fn new(connector: C, ports: Arc<Ports>) -> Self {
        Self { connector, ports }
    }
}

impl<C: Connect> Connect for PortCounting<C> {
    type Stream = Ported<C::Stream>;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<Self::Stream>, ConnectFault> {
        let port = self.ports.take(from.map(|source| source.address), to.socket()).map_err(|full| match full {
            PortsFull::Route => ConnectFault::PortsExhausted,
            PortsFull::Node => ConnectFault::SocketsExhausted(ErrorKind::QuotaExceeded),
        })?;
        let connected = self.connector.connect(to, from).await;
        if let Err(ConnectFault::PortsExhausted) = connected {
            self.ports.refused_by_kernel.fetch_add(1, Ordering::Relaxed);
        }
        let Connected { stream, local } = connected?;
        Ok(Connected { stream: Ported { stream, _port: port }, local })
    }
}

/// A connection, and the port that it holds.
#[derive(Debug)]
pub struct Ported<S> {
    // Dropped in this order: the port is free when the socket is closed.
    stream: S,
    _port: Port,
}

impl<S> Ported<S> {
    /// The connection itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ported<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, space)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ported<S> {
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

impl<S: Side> Side for Ported<S> {
    fn abort(&mut self) {
        self.stream.abort();
    }
}
