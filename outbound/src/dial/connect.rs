//! One TCP connection to one vetted address.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{IpBindAddressNoPort, IpFreebind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

use super::ConnectFault;
use crate::exit::Source;
use crate::vet::VettedAddr;

/// Who opens connections. Tests bring one that opens none.
pub trait Connect: Send + Sync {
    /// What a connection is.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin;

    /// A connection to this address, from this source if one is given and from no other then.
    fn connect(
        &self,
        to: VettedAddr,
        from: Option<Source>,
    ) -> impl Future<Output = Result<Connected<Self::Stream>, ConnectFault>> + Send;
}

/// A connection and its own end.
#[derive(Debug)]
pub struct Connected<S> {
    /// The connection.
    pub stream: S,
    /// The address and port that it leaves from.
    pub local: SocketAddr,
}

/// The real one.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnector;

impl Connect for TcpConnector {
    type Stream = TcpStream;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<TcpStream>, ConnectFault> {
        let fault = |fault| ConnectFault::of(&fault);
        let socket = if to.socket().is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(fault)?;
        // Requests are written whole; what waits for more to come waits for nothing.
        socket.set_nodelay(true).map_err(fault)?;
        if let Some(source) = from {
            bind(&socket, source)?;
        }
        let stream = socket.connect(to.socket()).await.map_err(fault)?;
        let local = stream.local_addr().map_err(fault)?;
        match from {
            // The kernel keeps to what was bound; that it did is worth a look, since providers do look.
            Some(source) if local.ip() != source.address => Err(ConnectFault::ExitUnavailable(source.address)),
            Some(_) | None => Ok(Connected { stream, local }),
        }
    }
}

fn bind(socket: &TcpSocket, source: Source) -> Result<(), ConnectFault> {
    let option = |fault: nix::Error| ConnectFault::of(&fault.into());
    // The port is chosen when the destination is known: 28,000 connections to each destination, not 28,000 in all.
    setsockopt(socket, IpBindAddressNoPort, &true).map_err(option)?;
    if source.freebind {
        setsockopt(socket, IpFreebind, &true).map_err(option)?;
    }
    socket.bind(SocketAddr::new(source.address, 0)).map_err(|fault| {
        let is_elsewhere = fault.kind() == ErrorKind::AddrNotAvailable;
        if is_elsewhere { ConnectFault::ExitUnavailable(source.address) } else { ConnectFault::of(&fault) }
    })
}
