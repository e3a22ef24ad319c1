//! The gate: takes one message after the other from a connection, and judges every byte of each.
//!
//! What it has read and not given away lies in its inbox. A body is given away as it passes, checked up to there; one
//! that breaks its framing is refused and never ends. What lies behind a message stays in the inbox for the next one, or
//! for whoever takes the connection over.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use domain::Refusal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

use crate::http::{ChunkScan, HeadParts, TrailerLimits};
use crate::transport::Transport;

/// One read while a head or a chunk is awaited. It lies on the stack and only for the moment of the read: an idle
/// connection holds no buffer.
const READ_BYTES: usize = 8 * 1024;

/// The most memory that is set aside for a part of a body before it arrives.
const PART_BYTES: u64 = 64 * 1024;

/// Memory that is set aside for the next part of a body of which so much has come. `Content-Length` is a claim, and heads
/// cost nothing: a client has others' memory kept for it in the measure in which it sends.
fn part_bytes(come: usize) -> u64 {
    (come as u64).clamp(READ_BYTES as u64, PART_BYTES)
}

/// What may lie in the inbox while the client is only watched: room for a pipelined request or two. A client that sends
/// more is there; whether it still is, it will not be asked again before it is answered.
const WATCHED_BYTES: usize = READ_BYTES;

/// Why nothing more comes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The framing is broken, the body is too long, or the client has said that nothing more comes.
    Refused(Refusal),
    /// The connection is broken.
    Gone,
}

/// What watching a client has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It will send nothing more. It may still read.
    End,
    /// The connection is broken.
    Gone,
}

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
    raw: Transport,
    inbox: BytesMut,
    framing: Framing,
    /// The client has said that it sends nothing more, or the connection is broken.
    ended: bool,
}

impl Gate {
    pub(crate) fn new(raw: impl Into<Transport>) -> Self {
        Self { raw: raw.into(), inbox: BytesMut::new(), framing: Framing::Length(0), ended: false }
    }

    /// The connection, and what has arrived on it already.
    pub(crate) fn into_raw(self) -> (Transport, Bytes) {
        (self.raw, self.inbox.freeze())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.raw.is_tls()
    }

    /// Has the client said that it sends nothing more, or is the connection broken?
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
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
        self.ended |= read.filled().is_empty();
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

    /// The most that the next [`Self::read_into`] adds to a body of which `come` bytes are there.
    pub(crate) fn next_part_max(&self, come: usize) -> u64 {
        let arrived = self.inbox.len() as u64;
        match &self.framing {
            Framing::Length(left) => (*left).min(if arrived > 0 { arrived } else { part_bytes(come) }),
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
                let part = (*left).min(part_bytes(before));
                if body.capacity() == body.len() {
                    body.reserve(shorter(part, usize::MAX));
                }
                let read = (&mut self.raw).take(part).read_buf(body).await;
                *left -= read.as_ref().map_or(0, |bytes| *bytes as u64);
                read
            } else {
                poll_fn(|cx| self.poll_fill(cx)).await
            };
            if matches!(read, Ok(0) | Err(_)) {
                self.ended = true;
                return Err(Refusal::MalformedRequest);
            }
        }
        Ok(body.len() - before)
    }

    /// The next part of the message's body, at most 64 KiB of it; None behind the last. `space` is where it is put
    /// together, and lends its memory from one part to the next.
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut BytesMut,
        data_max: u64,
    ) -> Poll<Result<Option<Bytes>, Cut>> {
        loop {
            if self.framing.is_done() {
                return Poll::Ready(Ok(None));
            }
            if !self.inbox.is_empty() {
                if let Some(part) = self.part_of_inbox(space, data_max).map_err(Cut::Refused)? {
                    return Poll::Ready(Ok(Some(part)));
                }
                continue;
            }
            let Framing::Length(left) = &mut self.framing else {
                let read = ready!(self.poll_fill(cx)).map_err(|_| Cut::Gone)?;
                if read == 0 {
                    return Poll::Ready(Err(Cut::Refused(Refusal::MalformedRequest)));
                }
                continue;
            };
            if space.capacity() < READ_BYTES {
                space.reserve(shorter(*left, shorter(PART_BYTES, usize::MAX)));
            }
            // Straight into the part. Dropped before it is ready, this has read nothing.
            let reading = pin!((&mut self.raw).take((*left).min(PART_BYTES)).read_buf(space)).poll(cx);
            let read = ready!(reading).map_err(|_| Cut::Gone)?;
            if read == 0 {
                self.ended = true;
                return Poll::Ready(Err(Cut::Refused(Refusal::MalformedRequest)));
            }
            *left -= read as u64;
            return Poll::Ready(Ok(Some(space.split().freeze())));
        }
    }

    /// The part of the message's body that lies in the inbox; None where that was framing only.
    fn part_of_inbox(&mut self, space: &mut BytesMut, data_max: u64) -> Result<Option<Bytes>, Refusal> {
        if let Framing::Length(left) = self.framing {
            let length = shorter(left.min(PART_BYTES), self.inbox.len());
            self.framing = Framing::Length(left - length as u64);
            return Ok(Some(self.split_off_front(length)));
        }
        let bytes = &self.inbox[..self.inbox.len().min(shorter(PART_BYTES, usize::MAX))];
        let taken = self.framing.take(bytes, data_max, |data| space.extend_from_slice(data))?;
        self.forget_front(taken);
        Ok((!space.is_empty()).then(|| space.split().freeze()))
    }

    /// Looks after a client from which nothing is expected. What it sends meanwhile goes to the inbox, some KiB of it.
    pub(crate) fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Seen> {
        while !self.ended {
            if self.inbox.len() >= WATCHED_BYTES {
                return Poll::Pending;
            }
            if ready!(self.poll_fill(cx)).is_err() {
                return Poll::Ready(Seen::Gone);
            }
        }
        Poll::Ready(Seen::End)
    }

    /// Where answers that stream are written to.
    pub(crate) fn raw(&mut self) -> &mut Transport {
        &mut self.raw
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
mod tests;
