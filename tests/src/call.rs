//! A caller: what goes to the proxy, byte for byte, and what it says.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::patience::PATIENCE;

/// An answer of the proxy, or through it.
#[derive(Debug, Clone)]
pub struct Said {
    pub status: u16,
    /// Status line and fields.
    pub head: String,
    pub body: String,
}

impl Said {
    /// The code of a refusal; empty for an answer that came through.
    pub fn code(&self) -> String {
        let json: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        json["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The value of a field; fails where it stands twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let first = values.next();
        assert!(values.next().is_none(), "{name} twice in {}", self.head);
        first
    }

    /// What a provider of [`crate::world`] says of whom it saw.
    pub fn seen(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|fault| panic!("{fault} in {self:?}"))
    }
}

/// A token of a tenant's, and the hash that its file has.
pub fn token(name: &str) -> (String, String) {
    let digest = |text: &str| data_encoding::HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref());
    let token = format!("tgt_{}", &digest(name)[..32]);
    let hash = format!("sha256:{}", digest(&token));
    (token, hash)
}

/// One connection to the proxy.
#[derive(Debug)]
pub struct Call {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Call {
    pub async fn open(proxy: SocketAddr) -> Self {
        let stream = TcpStream::connect(proxy).await.expect("the proxy takes connections");
        stream.set_nodelay(true).expect("an option");
        Self { stream, read: Vec::new() }
    }

    /// Sends it, and reads the answer; none where the proxy hangs up without one.
    pub async fn ask(&mut self, bytes: &[u8]) -> Option<Said> {
        exchange(&mut self.stream, &mut self.read, bytes).await
    }
}

/// Sends it, and reads the answer; none where the peer hangs up without one. What came behind the answer is in `read`.
pub async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    read: &mut Vec<u8>,
    bytes: &[u8],
) -> Option<Said> {
    exchange_within(PATIENCE, stream, read, bytes).await.expect("an answer or an end, in time")
}

/// The same where it may take longer than a scenario waits: none then.
pub async fn exchange_within(
    patience: Duration,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    read: &mut Vec<u8>,
    bytes: &[u8],
) -> Option<Option<Said>> {
    let exchange = async {
        // Who is refused early may be hung up on before all of it was sent; the answer says why.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        answer(stream, read).await
    };
    timeout(patience, exchange).await.ok()
}

async fn answer(stream: &mut (impl AsyncRead + Unpin), read: &mut Vec<u8>) -> Option<Said> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(read).await.unwrap_or_default() == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read.drain(..end).collect()).expect("a head is ASCII");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let mut said = Said { status, head, body: String::new() };
    let length = said.field("content-length").map(|length| length.parse::<usize>().expect("a length"));
    if let Some(length) = length {
        while read.len() < length {
            if stream.read_buf(read).await.unwrap_or_default() == 0 {
                return None;
            }
        }
        said.body = String::from_utf8(read.drain(..length).collect()).expect("bodies here are text");
    }
    Some(said)
}

/// What comes behind an answer: a tunnel, once there is one.
impl AsyncRead for Call {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.read.is_empty() {
            let count = self.read.len().min(space.remaining());
            space.put_slice(&self.read.drain(..count).collect::<Vec<_>>());
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, space)
    }
}

impl AsyncWrite for Call {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// `GET` in absolute form, by this token.
pub fn get(url: &str, token: &str) -> Vec<u8> {
    let host = url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
    format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Bearer {token}\r\n\r\n").into_bytes()
}

/// `CONNECT`, by this token.
pub fn connect(authority: &str, token: &str) -> Vec<u8> {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Bearer {token}\r\n\r\n")
        .into_bytes()
}

/// A governed `GET`, by this token; `fields` end with CRLF each.
pub fn governed(path: &str, token: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: proxy\r\nTidegate-Grant: {token}\r\n{fields}\r\n").into_bytes()
}
