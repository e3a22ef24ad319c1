//! A connection of the load, with TLS or without.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::Result;

const PATIENCE: Duration = Duration::from_secs(5);

/// Whom TLS is spoken to, and whom it trusts.
#[derive(Clone)]
pub struct TlsTo {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl fmt::Debug for TlsTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTo").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Connected, with its handshake done, and from then on without blocking.
    pub(super) fn connect(to: SocketAddr, tls: Option<&TlsTo>) -> Result<Self> {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_nodelay(true)?;
        let wire = if let Some(tls) = tls {
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut client = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())?;
            while client.is_handshaking() {
                client.complete_io(&mut stream)?;
            }
            Self::Tls(Box::new(StreamOwned::new(client, stream)))
        } else {
            Self::Plain(stream)
        };
        wire.socket().set_nonblocking(true)?;
        Ok(wire)
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Whether a read of so many bytes into so much room has taken all that the socket had. Of TLS nobody knows.
    pub(super) fn is_drained(&self, count: usize, room: usize) -> bool {
        matches!(self, Self::Plain(_)) && count < room
    }
}

impl Read for Wire {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(space),
            Self::Tls(stream) => stream.read(space),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
