//! Streams to the server: nothing here opens one.

use std::io;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens streams to the server, each ready for the start-up message: whoever wants TLS has asked for it
/// ([`ask_for_tls`]) and has shaken hands. It knows where the server is, and, of many, which one takes writes.
#[async_trait]
pub trait Dial: Send + Sync + std::fmt::Debug {
    async fn dial(&self) -> io::Result<Box<dyn Stream>>;
}

/// `SSLRequest`: eight bytes, the code 80877103 (PostgreSQL 17 documentation, 53.7, message formats).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Asks a server for TLS on a stream that is new; the handshake is next. Exactly one byte is read, so that nothing that
/// was sent in clear behind it can pass for what TLS protects (CVE-2021-23222).
///
/// # Errors
/// The server has no TLS, or is none.
pub async fn ask_for_tls(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(&SSL_REQUEST).await?;
    stream.flush().await?;
    match stream.read_u8().await? {
        b'S' => Ok(()),
        b'N' => Err(io::Error::new(io::ErrorKind::Unsupported, "the server has no TLS")),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "this is no PostgreSQL server")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(answer: &[u8]) -> (io::Result<()>, Vec<u8>, Vec<u8>) {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(answer).await.unwrap();
        let said = ask_for_tls(&mut ours).await;
        let mut heard = vec![0; 8];
        theirs.read_exact(&mut heard).await.unwrap();
        drop(theirs);
        let mut behind = Vec::new();
        ours.read_to_end(&mut behind).await.unwrap();
        (said, heard, behind)
    }

    #[tokio::test]
    async fn one_byte_says_whether_there_is_tls() {
        let (said, heard, behind) = asked(b"Sstuffed").await;
        assert!(said.is_ok());
        assert_eq!(heard, SSL_REQUEST);
        assert_eq!(behind, b"stuffed", "left for the handshake, which it breaks");
        assert_eq!(asked(b"N").await.0.unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(asked(b"E").await.0.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
