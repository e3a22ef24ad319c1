//! The gate: a stream that lets exactly one message through.
//!
//! It lies between the socket and the session. What it has read and not given away lies in its inbox; what the
//! session may read is the current message's body and nothing behind it. Framing is checked before a byte is given
//! away, so a body that breaks it never reaches anybody.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use domain::Refusal;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType, raw_connect::ProxyDigest,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::http::{ChunkScan, HeadParts, TrailerLimits};

/// One read while a head is awaited. It lies on the stack and only for the moment of the read: an idle connection
/// holds no buffer.
const READ_BYTES: usize = 8 * 1024;

/// Where the current message ends.
#[derive(Debug)]
enum Framing {
    /// So many bytes are still to come. Without a body: none.
    Length {
        left: u64,
        data: u64,
    },
    Chunked(ChunkScan),
}

impl Framing {
    fn is_done(&self) -> bool {
        match self {
            Self::Length { left, .. } => *left == 0,
            Self::Chunked(scan) => scan.is_done(),
        }
    }

    /// Takes what belongs to the message from the front of `bytes`.
    fn take(&mut self, bytes: usize, of: &[u8], data_max: u64) -> Result<usize, Refusal> {
        let bytes = &of[..bytes];
        match self {
            Self::Length { left, data } => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                *data += taken as u64;
                Ok(taken)
            }
            Self::Chunked(scan) => scan.feed(bytes, data_max),
        }
    }
}

/// Wraps a connection's stream. See the module's essay.
#[derive(Debug)]
pub(crate) struct Gate {
    raw: Stream,
    inbox: BytesMut,
    framing: Framing,
    /// Longest body that the handler takes. Set through a shared reference, since the session owns the gate by then.
    data_max: AtomicU64,
    broken: Option<Refusal>,
}

impl Gate {
    pub(crate) fn new(raw: Stream) -> Self {
        Self {
            raw,
            inbox: BytesMut::new(),
            framing: Framing::Length { left: 0, data: 0 },
            data_max: AtomicU64::new(u64::MAX),
            broken: None,
        }
    }

    /// What has arrived and belongs to no message yet.
    pub(crate) fn inbox(&self) -> &[u8] {
        &self.inbox
    }

    /// Reads once from the socket into the inbox; 0 is the end of it.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.raw).poll_read(cx, &mut read))?;
        self.inbox.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Reads once from the socket and forgets it; 0 is the end of it.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.raw).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Begins the message whose head lies in the inbox, and gives out the head, together with what has arrived of a
    /// body of known length.
    pub(crate) fn begin(&mut self, skipped: usize, head: usize, parts: &HeadParts, trailer: TrailerLimits) -> BytesMut {
        self.inbox.advance(skipped);
        self.data_max.store(u64::MAX, Ordering::Relaxed);
        let arrived = self.inbox.len() - head;
        let (content_length, chunked) = parts.framing();
        let with_head = if chunked {
            self.framing = Framing::Chunked(ChunkScan::new(trailer));
            0
        } else {
            let length = content_length.unwrap_or(0);
            let here = usize::try_from(length).unwrap_or(usize::MAX).min(arrived);
            self.framing = Framing::Length { left: length - here as u64, data: here as u64 };
            here
        };
        if with_head == arrived { std::mem::take(&mut self.inbox) } else { self.inbox.split_to(head + with_head) }
    }

    /// Bounds the data of a chunked body.
    pub(crate) fn set_data_max(&self, bytes: u64) {
        self.data_max.store(bytes, Ordering::Relaxed);
    }

    /// Has everything that belongs to the message passed?
    pub(crate) fn is_done(&self) -> bool {
        self.broken.is_none() && self.framing.is_done()
    }

    /// Bytes of the body that have passed, without its framing.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.framing {
            Framing::Length { data, .. } => *data,
            Framing::Chunked(scan) => scan.data_bytes(),
        }
    }

    /// What was wrong with the framing, if anything was.
    pub(crate) fn broken(&self) -> Option<Refusal> {
        self.broken
    }

    /// Writes straight to the socket, past any session.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.raw.write_all(&bytes).await?;
        self.raw.flush().await
    }

    /// Says that nothing more will be written.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        AsyncWriteExt::shutdown(&mut self.raw).await
    }

    fn fail(&mut self, refusal: Refusal) -> io::Error {
        self.broken = Some(refusal);
        io::Error::new(io::ErrorKind::InvalidData, refusal.code())
    }
}

impl AsyncRead for Gate {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(refusal) = this.broken {
            return Poll::Ready(Err(this.fail(refusal)));
        }
        // Behind the message there is nothing, as far as its session is concerned.
        if this.framing.is_done() || out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let data_max = this.data_max.load(Ordering::Relaxed);
        // Straight into the reader's buffer where nothing can be read that is not the reader's.
        if let (true, Framing::Length { left, data }) = (this.inbox.is_empty(), &mut this.framing)
            && out.remaining() as u64 <= *left
        {
            let before = out.filled().len();
            ready!(Pin::new(&mut this.raw).poll_read(cx, out))?;
            let read = (out.filled().len() - before) as u64;
            *left -= read;
            *data += read;
            return Poll::Ready(Ok(()));
        }
        if this.inbox.is_empty() && ready!(this.poll_fill(cx))? == 0 {
            return Poll::Ready(Ok(()));
        }
        let offered = out.remaining().min(this.inbox.len());
        match this.framing.take(offered, &this.inbox, data_max) {
            Ok(taken) => {
                out.put_slice(&this.inbox[..taken]);
                this.inbox.advance(taken);
                if this.inbox.is_empty() {
                    this.inbox = BytesMut::new();
                }
                Poll::Ready(Ok(()))
            }
            Err(refusal) => Poll::Ready(Err(this.fail(refusal))),
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().raw).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().raw).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().raw).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().raw).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.raw.is_write_vectored()
    }
}

// What the session wants to know of its stream. Digests are asked for once a request and are of no use to us: peer
// and local address are taken once a connection.

#[async_trait]
impl Shutdown for Gate {
    async fn shutdown(&mut self) {
        // Closing is the connection loop's, which lingers: a session that shuts down must not cut its own answer.
    }
}

impl UniqueID for Gate {
    fn id(&self) -> UniqueIDType {
        self.raw.id()
    }
}

impl Ssl for Gate {}
impl Peek for Gate {}

impl GetTimingDigest for Gate {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Gate {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Gate {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::http::{HeadLimits, HeadParser, Progress};

    const LIMITS: HeadLimits = HeadLimits { target_bytes: 100, header_bytes: 1000, header_count: 10 };
    const TRAILER: TrailerLimits = TrailerLimits { bytes: 100, count: 10 };

    /// A gate that has read `bytes` and begun the message at their front, and what it gave out with the head.
    async fn begun(bytes: &[u8]) -> (Gate, BytesMut, tokio::io::DuplexStream) {
        let (mut client, server) = duplex(1000);
        client.write_all(bytes).await.unwrap();
        let mut gate = Gate::new(Box::new(server));
        poll_fn(|cx| gate.poll_fill(cx)).await.unwrap();
        let mut parser = HeadParser::default();
        let Ok(Progress::Complete { skipped, head }) = parser.advance(gate.inbox(), &LIMITS) else { panic!("no head") };
        let given = gate.begin(skipped, head, &parser.take_parts(), TRAILER);
        (gate, given, client)
    }

    /// What a session reads from the gate; it has to end without another byte from the client.
    async fn read_out(gate: &mut Gate) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), gate.read_to_end(&mut out)).await;
        read.expect("nothing is waited for behind the message").map(|_| out)
    }

    #[tokio::test]
    async fn behind_a_counted_message_there_is_nothing() {
        let (mut gate, given, _client) =
            begun(b"\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET / HTTP").await;
        assert!(given.starts_with(b"POST / ") && given.ends_with(b"\r\n\r\nhi"));
        assert!(gate.is_done() && gate.data_bytes() == 2);
        assert_eq!(read_out(&mut gate).await.unwrap(), b"");
        assert_eq!(gate.inbox(), b"GET / HTTP");
    }

    #[tokio::test]
    async fn behind_a_chunked_message_there_is_nothing() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (mut gate, given, _client) = begun(format!("{head}2\r\nhi\r\n0\r\n\r\nGET / HTTP").as_bytes()).await;
        assert_eq!(given, head.as_bytes());
        assert!(!gate.is_done());
        assert_eq!(read_out(&mut gate).await.unwrap(), b"2\r\nhi\r\n0\r\n\r\n");
        assert!(gate.is_done() && gate.data_bytes() == 2);
        assert_eq!(gate.inbox(), b"GET / HTTP");
        assert_eq!(read_out(&mut gate).await.unwrap(), b"", "and stays nothing");

        let (mut gate, _, mut client) = begun(format!("{head}0\r\n\r\n").as_bytes()).await;
        assert_eq!(read_out(&mut gate).await.unwrap(), b"0\r\n\r\n");
        client.write_all(b"GET / HTTP").await.unwrap();
        assert_eq!(read_out(&mut gate).await.unwrap(), b"", "what comes later is not the message's either");
    }

    #[tokio::test]
    async fn what_breaks_the_framing_is_given_to_nobody() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (mut gate, _, _client) = begun(format!("{head}2\r\nhi\r\n\r\n").as_bytes()).await;
        for _ in 0..2 {
            let mut out = [0; 100];
            assert_eq!(gate.read(&mut out).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!((gate.broken(), gate.is_done()), (Some(Refusal::MalformedRequest), false));
        }
    }
}
