//! HTTP/1.1 with TLS, as much as a proxy needs: one request after the other on a connection, bodies with a length or in
//! chunks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Act, Fate, State};

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) method: String,
    pub(crate) target: String,
    /// By lower-case name; the last of several.
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Nothing that a test sends is longer.
const BYTES_MAX: usize = 64 << 20;

pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    // What is under way ends with the runtime.
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // Whoever does not trust us has nothing to say.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut read = Vec::new();
            while exchange(&mut stream, &mut read, &state).await.is_some() {}
        });
    }
}

/// One call; none where no other can follow.
async fn exchange(stream: &mut TlsStream<TcpStream>, read: &mut Vec<u8>, state: &State) -> Option<()> {
    let heard = request(stream, read).await?;
    let Fate { act, status, body } = state.arrive(&heard);
    let mut more = String::new();
    match act {
        Act::CutBefore | Act::CutAfter => {
            let _ = stream.get_ref().0.set_zero_linger();
            return None;
        }
        Act::SilentAfter => {
            // It may say more; it is not listened to.
            while stream.read_u8().await.is_ok() {}
            return None;
        }
        Act::After(wait) => tokio::time::sleep(wait).await,
        Act::Throttle(seconds) => more = format!("Retry-After: {seconds}\r\n"),
        Act::Usual | Act::Status(..) | Act::Unauthorised => tokio::time::sleep(Duration::ZERO).await,
    }
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 {status} As Told\r\nContent-Type: application/json\r\nContent-Length: {}\r\nX-Request-Id: req-{}\r\n{more}\r\n{body}",
        body.len(),
        status
    );
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// Reads until there are so many bytes, or no more come.
async fn fill(stream: &mut TlsStream<TcpStream>, read: &mut Vec<u8>, bytes: usize) -> Option<()> {
    while read.len() < bytes {
        if read.len() > BYTES_MAX || stream.read_buf(read).await.unwrap_or_default() == 0 {
            return None;
        }
    }
    Some(())
}

async fn until(stream: &mut TlsStream<TcpStream>, read: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = read.windows(end.len()).position(|window| window == end) {
            let line = read.drain(..at + end.len()).collect::<Vec<_>>();
            return Some(line[..at].to_vec());
        }
        let more = read.len() + 1;
        fill(stream, read, more).await?;
    }
}

/// The next request; none where there is none.
async fn request(stream: &mut TlsStream<TcpStream>, read: &mut Vec<u8>) -> Option<Heard> {
    let head = String::from_utf8(until(stream, read, b"\r\n\r\n").await?).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let fields: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut body = Vec::new();
    if fields.get("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        loop {
            let size = String::from_utf8(until(stream, read, b"\r\n").await?).ok()?;
            let size =
                usize::from_str_radix(size.split(';').next()?.trim(), 16).ok().filter(|size| *size < BYTES_MAX)?;
            if size == 0 {
                // Trailers end with an empty line.
                while !until(stream, read, b"\r\n").await?.is_empty() {}
                break;
            }
            fill(stream, read, size + 2).await?;
            body.extend(read.drain(..size));
            read.drain(..2);
        }
    } else if let Some(length) = fields.get("content-length") {
        let length: usize = length.parse().ok().filter(|length| *length < BYTES_MAX)?;
        fill(stream, read, length).await?;
        body.extend(read.drain(..length));
    }
    Some(Heard { method, target, fields, body })
}
