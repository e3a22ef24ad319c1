//! Opening a connection: TCP, TLS, login, library.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

use super::fault::Fault;
use super::settings::{Address, Credentials, RedisSettings};

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens connections: nothing here does.
#[async_trait]
pub trait Dial: Send + Sync + std::fmt::Debug {
    /// A stream to there, without TLS.
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>>;
}

/// What a connection hears that it did not ask for.
pub(super) type Ear = Box<dyn Fn(PushInfo) -> Result<(), ()> + Send + Sync>;

/// A connection and what drives it: it works while that is polled, and is over when that is.
pub(super) type Opened = (MultiplexedConnection, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Opens a connection and logs in. With an ear it speaks RESP3, whose pushes are for it.
pub(super) async fn open(
    settings: &RedisSettings,
    address: &Address,
    credentials: &Credentials,
    ear: Option<Ear>,
) -> Result<Opened, Fault> {
    let stream = Bounded { inner: stream(settings, address).await?, since: 0, most: settings.reply_bytes_max };
    // Nothing is sent that a server may refuse before it has let us in.
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(password) = &credentials.password {
        info = info.set_password(str::from_utf8(password.expose()).map_err(|_| Fault::WrongPassword)?);
        if let Some(user) = &credentials.user {
            info = info.set_username(user);
        }
    }
    // Time limits are ours: an answer that comes later has to be waited for, so that nothing else is taken for it.
    let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    if let Some(ear) = ear {
        info = info.set_protocol(ProtocolVersion::RESP3);
        config = config.set_push_sender(ear);
    }
    let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (connection, driver) = opened.map_err(|error| Fault::of(&error))?;
    Ok((connection, Box::pin(driver)))
}

async fn stream(settings: &RedisSettings, address: &Address) -> Result<Box<dyn Stream>, Fault> {
    let stream = settings.dial.dial(&address.host, address.port).await.map_err(|_| Fault::NotReached)?;
    let Some(tls) = &settings.tls else { return Ok(stream) };
    let name = ServerName::try_from(address.host.to_string()).map_err(|_| Fault::Tls)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(|_| Fault::Tls)?;
    Ok(Box::new(stream))
}

/// Ends where the other side sends more than is answer to anything.
struct Bounded {
    inner: Box<dyn Stream>,
    /// Bytes received since something was sent.
    since: usize,
    most: usize,
}

impl AsyncRead for Bounded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.since += buf.filled().len() - before;
        if self.since > self.most {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "more than any answer has")));
        }
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.since = 0;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn who_sends_more_than_answers_is_cut_off() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut bounded = Bounded { inner: Box::new(ours), since: 0, most: 100 };
        for _ in 0..3 {
            theirs.write_all(&[b'x'; 60]).await.unwrap();
            bounded.read_exact(&mut [0; 60]).await.unwrap();
            bounded.write_all(b"PING").await.unwrap();
        }
        theirs.write_all(&[b'x'; 60]).await.unwrap();
        bounded.read_exact(&mut [0; 60]).await.unwrap();
        theirs.write_all(&[b'x'; 60]).await.unwrap();
        let error = bounded.read_exact(&mut [0; 60]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
