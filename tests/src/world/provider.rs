//! A provider at every address: HTTP/1.1 on port 80, with TLS on 443, 993 and 8443.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{State, lock, plain};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Whom it came from.
    pub peer: IpAddr,
    /// The address that it was for.
    pub at: IpAddr,
    pub port: u16,
    /// The connection that it came on.
    pub connection: u64,
    pub target: String,
    /// Request line and fields.
    pub head: String,
}

/// What is answered on a path.
#[derive(Debug, Clone)]
pub struct Page {
    pub status: u16,
    /// Lines, each with its CRLF.
    pub fields: String,
}

impl Page {
    pub fn redirect(status: u16, to: &str) -> Self {
        Self { status, fields: format!("Location: {to}\r\n") }
    }
}

pub(super) async fn serve(acceptor: &TlsAcceptor, state: &Arc<State>) {
    for (port, tls) in [(80, None), (443, Some(acceptor)), (993, Some(acceptor)), (8443, Some(acceptor))] {
        // Both families: the mapped addresses are told apart again.
        let listener = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await.expect("a port");
        let (tls, state) = (tls.cloned(), Arc::clone(state));
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (tls, state) = (tls.clone(), Arc::clone(&state));
                tokio::spawn(async move { one(stream, peer, tls, &state).await });
            }
        });
    }
}

async fn one(stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, state: &State) {
    let Ok(at) = stream.local_addr() else { return };
    let connection = state.connection();
    let seen = |head: String| Seen {
        peer: plain(peer),
        at: plain(at),
        port: at.port(),
        connection,
        target: head.split(' ').nth(1).unwrap_or_default().to_owned(),
        head,
    };
    match tls {
        None => requests(stream, seen, state).await,
        Some(acceptor) => {
            // Whoever does not trust us has nothing to say.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            requests(stream, seen, state).await;
        }
    }
}

async fn requests(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: impl Fn(String) -> Seen, state: &State) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.unwrap_or_default() == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&read.drain(..end).collect::<Vec<_>>()).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().expect("a length"))
        });
        let length = length.unwrap_or_default();
        while read.len() < length {
            if stream.read_buf(&mut read).await.unwrap_or_default() == 0 {
                return;
            }
        }
        read.drain(..length);
        let seen = seen(head);
        let body = serde_json::json!({ "peer": seen.peer, "at": seen.at, "connection": seen.connection }).to_string();
        let path = seen.target.split('?').next().unwrap_or_default();
        let page = lock(&state.pages).get(path).cloned().unwrap_or(Page { status: 200, fields: String::new() });
        lock(&state.seen).push(seen);
        let Page { status, fields } = page;
        let answer = format!("HTTP/1.1 {status} As Told\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
