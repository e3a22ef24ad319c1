//! A provider: raw HTTP/1.1 over one connection, so that a scenario can say exactly which bytes go out and when.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::patience::PATIENCE;
use crate::response::{NoAnswer, Reader, Response};
use crate::signing;

/// One request, in the order and spelling in which it goes out.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Send the body in chunks of this many bytes and without a length.
    pub chunks: Option<usize>,
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), headers: Vec::new(), body: Vec::new(), chunks: None }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Takes every header of this name away.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    #[must_use]
    pub fn replacing(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    #[must_use]
    pub fn chunked(mut self, size: usize) -> Self {
        self.chunks = Some(size);
        self
    }

    #[must_use]
    pub fn to(mut self, target: &str) -> Self {
        self.target = target.into();
        self
    }

    /// Headers as they go out, the one that frames the body last.
    pub fn wire_headers(&self) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let framed = headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
        });
        if self.chunks.is_some() {
            headers.push(("Transfer-Encoding".into(), "chunked".into()));
        } else if !framed && (!self.body.is_empty() || self.method == "POST") {
            headers.push(("Content-Length".into(), self.body.len().to_string()));
        }
        headers
    }

    pub fn head_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in self.wire_headers() {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        out.push_str("\r\n");
        out.into_bytes()
    }

    pub fn body_bytes(&self) -> Vec<u8> {
        let Some(size) = self.chunks else { return self.body.clone() };
        let mut out = Vec::new();
        for chunk in self.body.chunks(size) {
            out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        [self.head_bytes(), self.body_bytes()].concat()
    }
}

/// One connection to a listener.
#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    reader: Reader,
}

impl Connection {
    pub async fn open(to: SocketAddr) -> Self {
        Self::try_open(to, None).await.expect("the listener takes connections")
    }

    pub async fn open_from(from: IpAddr, to: SocketAddr) -> Self {
        Self::try_open(to, Some(from)).await.expect("the listener takes connections")
    }

    pub async fn try_open(to: SocketAddr, from: Option<IpAddr>) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reader: Reader::default() })
    }

    /// Sends bytes; a listener that has hung up already is seen when the answer is read.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("the connection stands");
    }

    pub async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    pub async fn response(&mut self) -> Response {
        self.try_response().await.expect("an answer")
    }

    pub async fn try_response(&mut self) -> Result<Response, NoAnswer> {
        self.reader.next(&mut self.stream).await
    }

    /// The next answer of any kind, informational ones too.
    pub async fn any_response(&mut self) -> Result<Response, NoAnswer> {
        self.reader.one(&mut self.stream, PATIENCE).await
    }

    pub async fn exchange(&mut self, request: &Request) -> Response {
        self.send(&request.bytes()).await;
        self.response().await
    }

    /// Nothing comes for this long. A negative can only be watched for a while.
    pub async fn stays_silent(&mut self, for_: Duration) -> bool {
        let mut byte = [0_u8; 1];
        tokio::time::timeout(for_, self.stream.peek(&mut byte)).await.is_err()
    }

    /// Says that nothing more will be sent.
    pub async fn stream_shutdown(&mut self) {
        // A peer that has hung up already needs no telling.
        let _ = self.stream.shutdown().await;
    }

    /// The peer hangs up, cleanly or not, without another byte.
    pub async fn is_closed_by_peer(&mut self) -> bool {
        let mut rest = Vec::new();
        match tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await {
            Ok(Ok(_)) => rest.is_empty(),
            Ok(Err(fault)) => fault.kind() == std::io::ErrorKind::ConnectionReset,
            Err(_) => false,
        }
    }
}

/// A provider that posts to one endpoint and signs as GitHub does.
#[derive(Debug, Clone)]
pub struct Sender {
    pub to: SocketAddr,
    pub from: Option<IpAddr>,
    pub host: String,
    pub target: String,
    pub secret: String,
}

impl Sender {
    /// The same, from another address of this machine.
    #[must_use]
    pub fn from(mut self, address: &str) -> Self {
        self.from = Some(address.parse().expect("an address"));
        self
    }

    #[must_use]
    pub fn with_secret(mut self, secret: &str) -> Self {
        self.secret = secret.into();
        self
    }

    /// A signed delivery of `body`.
    pub fn delivery(&self, body: impl Into<Vec<u8>>) -> Request {
        let body = body.into();
        let (name, value) = signing::github(self.secret.as_bytes(), &body);
        self.unsigned(body).header(&name, &value)
    }

    pub fn unsigned(&self, body: impl Into<Vec<u8>>) -> Request {
        Request::new("POST", &self.target)
            .header("Host", &self.host)
            .header("User-Agent", "GitHub-Hookshot/044aadd")
            .header("Content-Type", "application/json")
            .body(body)
    }

    pub async fn connect(&self) -> Connection {
        Connection::try_open(self.to, self.from).await.expect("the listener takes connections")
    }

    /// On a connection of its own.
    pub async fn send(&self, request: &Request) -> Response {
        self.connect().await.exchange(request).await
    }

    /// Signs and sends, on a connection of its own.
    pub async fn deliver(&self, body: impl Into<Vec<u8>>) -> Response {
        self.send(&self.delivery(body)).await
    }
}
