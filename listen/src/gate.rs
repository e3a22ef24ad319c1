//! The gate: takes one message after the other from a connection, and judges every byte of each.
//!
//! What it has read and not given away lies in its inbox. A body is given away as it passes, checked up to there; one
//! that breaks its framing is refused and never ends. What lies behind a message stays in the inbox for the next one.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use domain::Refusal;
use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

use crate::http::{ChunkScan, HeadParts, TrailerLimits};

/// One read while a head or a chunk is awaited. It lies on the stack and only for the moment of the read: an idle
/// connection holds no buffer.
const READ_BYTES: usize = 8 * 1024;

/// Memory that is set aside for a part of a body before it arrives. `Content-Length` is a claim until then.
const PART_BYTES: u64 = 64 * 1024;

/// Where the current message ends.
#[derive(Debug)]
enum Framing {
    /// So many bytes are still to come. Without a body: none.
    Length(u64),
    Chunked(ChunkScan),
}

impl Framing {
    fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(scan) => scan.is_done(),
        }
    }

    /// Takes what belongs to the message from the front of `bytes`, and says how much that is.
    fn take(&mut self, bytes: &[u8], data_max: u64, mut data: impl FnMut(&[u8])) -> Result<usize, Refusal> {
        match self {
            Self::Length(left) => {
                let taken = shorter(*left, bytes.len());
                *left -= taken as u64;
                data(&bytes[..taken]);
                Ok(taken)
            }
            Self::Chunked(scan) => scan.feed(bytes, data_max, data),
        }
    }
}

/// Wraps a connection's stream. See the module's essay.
#[derive(Debug)]
pub(crate) struct Gate {
    raw: Stream,
    inbox: BytesMut,
    framing: Framing,
}

impl Gate {
    pub(crate) fn new(raw: Stream) -> Self {
        Self { raw, inbox: BytesMut::new(), framing: Framing::Length(0) }
    }

    /// What has arrived and belongs to no message yet, or to a body that nobody has asked for yet.
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

    /// Begins the message whose head lies in the inbox behind `skipped` bytes, and gives out the head.
    pub(crate) fn begin(&mut self, skipped: usize, head: usize, parts: &HeadParts, trailer: TrailerLimits) -> Bytes {
        self.inbox.advance(skipped);
        self.framing = match parts.framing() {
            (_, true) => Framing::Chunked(ChunkScan::new(trailer)),
            (content_length, false) => Framing::Length(content_length.unwrap_or(0)),
        };
        self.split_off_front(head)
    }

    /// Has the whole message passed?
    pub(crate) fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// The body, if its length is known and all of it has arrived: as it lies there, without a copy.
    pub(crate) fn take_arrived(&mut self) -> Option<Bytes> {
        let Framing::Length(left) = self.framing else { return None };
        let length = usize::try_from(left).ok().filter(|length| *length <= self.inbox.len())?;
        self.framing = Framing::Length(0);
        Some(self.split_off_front(length))
    }

    /// Forgets what has arrived of the message. True if that was all of it.
    pub(crate) fn skip_arrived(&mut self) -> bool {
        let skipped = self.framing.take(&self.inbox, u64::MAX, |_| ());
        skipped.is_ok_and(|bytes| {
            self.forget_front(bytes);
            self.framing.is_done()
        })
    }

    /// The most that the next [`Self::read_into`] adds.
    pub(crate) fn next_part_max(&self) -> u64 {
        let arrived = self.inbox.len() as u64;
        match &self.framing {
            Framing::Length(left) => (*left).min(if arrived > 0 { arrived } else { PART_BYTES }),
            Framing::Chunked(scan) if scan.is_done() => 0,
            Framing::Chunked(_) => arrived.max(READ_BYTES as u64),
        }
    }

    /// Adds the next part of the message's body to `body`, and says how many bytes that was; 0 behind the last.
    ///
    /// # Errors
    /// The framing is broken, the data of a chunked body go beyond `data_max`, or the connection ends first. There is
    /// nothing to be had of the message after that.
    pub(crate) async fn read_into(&mut self, body: &mut BytesMut, data_max: u64) -> Result<usize, Refusal> {
        let before = body.len();
        while body.len() == before && !self.framing.is_done() {
            if !self.inbox.is_empty() {
                let taken = self.framing.take(&self.inbox, data_max, |data| body.extend_from_slice(data))?;
                self.forget_front(taken);
                continue;
            }
            let read = if let Framing::Length(left) = &mut self.framing {
                // Straight into the body: nothing that is not the body's can be read here.
                if body.capacity() == body.len() {
                    body.reserve(shorter(*left, usize::MAX).min(shorter(PART_BYTES, usize::MAX)));
                }
                let read = (&mut self.raw).take((*left).min(PART_BYTES)).read_buf(body).await;
                *left -= read.as_ref().map_or(0, |bytes| *bytes as u64);
                read
            } else {
                poll_fn(|cx| self.poll_fill(cx)).await
            };
            if matches!(read, Ok(0) | Err(_)) {
                return Err(Refusal::MalformedRequest);
            }
        }
        Ok(body.len() - before)
    }

    /// Writes all of it, and sees it off.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.raw.write_all(bytes).await?;
        self.raw.flush().await
    }

    /// Says that nothing more will be written.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        AsyncWriteExt::shutdown(&mut self.raw).await
    }

    /// An inbox that is empty holds on to no memory: a connection may idle for long after this.
    fn forget_front(&mut self, bytes: usize) {
        drop(self.split_off_front(bytes));
    }

    fn split_off_front(&mut self, bytes: usize) -> Bytes {
        // Whole, it need not be shared with what follows.
        if bytes == self.inbox.len() { std::mem::take(&mut self.inbox) } else { self.inbox.split_to(bytes) }.freeze()
    }
}

fn shorter(bytes: u64, length: usize) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX).min(length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::duplex;

    use super::*;
    use crate::http::{HeadLimits, HeadParser, Progress};

    const LIMITS: HeadLimits = HeadLimits { target_bytes: 100, header_bytes: 1000, header_count: 10 };
    const TRAILER: TrailerLimits = TrailerLimits { bytes: 100, count: 10 };

    /// A gate that has read `bytes` and begun the message at their front, the head that it gave out, and the client.
    async fn begun(bytes: &[u8]) -> (Gate, Bytes, tokio::io::DuplexStream) {
        let (mut client, server) = duplex(1000);
        client.write_all(bytes).await.unwrap();
        let mut gate = Gate::new(Box::new(server));
        poll_fn(|cx| gate.poll_fill(cx)).await.unwrap();
        let mut parser = HeadParser::default();
        let Ok(Progress::Complete { skipped, head }) = parser.advance(gate.inbox(), &LIMITS) else { panic!("no head") };
        let given = gate.begin(skipped, head, &parser.take_parts(), TRAILER);
        (gate, given, client)
    }

    /// The whole body; it has to end without another byte from the client.
    async fn read_out(gate: &mut Gate) -> Result<Vec<u8>, Refusal> {
        let mut body = BytesMut::new();
        let reading = async {
            while gate.read_into(&mut body, 100).await? > 0 {}
            Ok(())
        };
        tokio::time::timeout(Duration::from_secs(5), reading)
            .await
            .expect("nothing is waited for behind the message")?;
        Ok(body.to_vec())
    }

    #[tokio::test]
    async fn behind_a_counted_message_there_is_nothing() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
        let (mut gate, given, _client) = begun(format!("\r\n{head}hiGET / HTTP").as_bytes()).await;
        assert_eq!(given, head.as_bytes());
        assert!(!gate.is_done());
        assert_eq!(gate.take_arrived().unwrap(), "hi");
        assert!(gate.is_done());
        assert_eq!(read_out(&mut gate).await.unwrap(), b"");
        assert_eq!(gate.inbox(), b"GET / HTTP");

        let (mut gate, _, mut client) = begun(format!("{head}h").as_bytes()).await;
        assert_eq!(gate.take_arrived(), None, "half a body is none");
        client.write_all(b"iGET / HTTP").await.unwrap();
        assert_eq!(read_out(&mut gate).await.unwrap(), b"hi");
        assert!(gate.is_done() && gate.inbox().is_empty(), "what is behind the body stays in the socket");
    }

    #[tokio::test]
    async fn behind_a_chunked_message_there_is_nothing() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (mut gate, given, _client) = begun(format!("{head}2\r\nhi\r\n0\r\n\r\nGET / HTTP").as_bytes()).await;
        assert_eq!(given, head.as_bytes());
        assert!(!gate.is_done());
        assert_eq!(gate.take_arrived(), None);
        assert_eq!(read_out(&mut gate).await.unwrap(), b"hi");
        assert!(gate.is_done());
        assert_eq!(gate.inbox(), b"GET / HTTP");
        assert_eq!(read_out(&mut gate).await.unwrap(), b"", "and stays nothing");

        let (mut gate, _, mut client) = begun(format!("{head}0\r\n\r\n").as_bytes()).await;
        assert_eq!(read_out(&mut gate).await.unwrap(), b"");
        client.write_all(b"GET / HTTP").await.unwrap();
        assert_eq!(read_out(&mut gate).await.unwrap(), b"", "what comes later is not the message's either");
    }

    #[tokio::test]
    async fn a_message_is_skipped_only_where_all_of_it_has_come() {
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let counted = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        for (message, whole) in [
            (format!("{chunked}2\r\nhi\r\n0\r\n\r\n"), true),
            (format!("{chunked}2\r\nhi\r\n0\r\n\r"), false),
            (format!("{chunked}2\r\nhiX\r\n0\r\n\r\n"), false),
            (format!("{counted}abc"), true),
            (format!("{counted}ab"), false),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), true),
        ] {
            let (mut gate, _, _client) = begun(message.as_bytes()).await;
            assert_eq!(gate.skip_arrived(), whole, "{message:?}");
            assert!(gate.inbox().is_empty() || !whole, "{message:?}");
        }
    }

    #[tokio::test]
    async fn what_breaks_the_framing_never_ends_well() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (mut gate, _, _client) = begun(format!("{head}2\r\nhi\r\n\r\n").as_bytes()).await;
        for _ in 0..2 {
            assert_eq!(read_out(&mut gate).await, Err(Refusal::MalformedRequest));
            assert!(!gate.is_done());
        }
        let (mut gate, _, client) = begun(format!("{head}2\r\nhi\r\n").as_bytes()).await;
        drop(client);
        assert_eq!(read_out(&mut gate).await, Err(Refusal::MalformedRequest), "an end that is none");
    }
}
