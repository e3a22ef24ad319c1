//! A streamed body of JSON lines. The writer waits while the reader is slow: at most two chunks are ever in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc as blocking;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::sync::mpsc;

use super::wire::{Aside, Line};

/// Lines are gathered up to this before they go out: small events share a write, a large one has its own.
const CHUNK_BYTES: usize = 64 * 1024;

/// What every answer carries.
pub(super) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

pub(super) fn full(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).boxed_unsync()
}

/// The reader has gone away.
#[derive(Debug)]
pub(super) struct Gone;

/// Writes lines into a streamed body, from a thread that may block.
#[derive(Debug)]
pub(super) struct LineWriter {
    chunk: Vec<u8>,
    chunks: mpsc::Sender<Bytes>,
    /// Never receives anything: it ends when the body is dropped, which wakes a writer that waits.
    body: blocking::Receiver<Infallible>,
}

/// Both ends of a stream.
pub(super) fn stream() -> (LineWriter, AnswerBody) {
    let (chunks, receiver) = mpsc::channel(1);
    let (alive, body) = blocking::channel();
    (LineWriter { chunk: Vec::new(), chunks, body }, ChunkBody { receiver, _alive: alive }.boxed_unsync())
}

impl LineWriter {
    pub(super) fn item<T: Serialize>(&mut self, item: T) -> Result<(), Gone> {
        self.line(&Line::Item(item))?;
        if self.chunk.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn aside(&mut self, aside: Aside) -> Result<(), Gone> {
        self.line(&Line::<()>::Aside(aside))
    }

    /// Sends what is gathered; waits for the reader.
    pub(super) fn flush(&mut self) -> Result<(), Gone> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.chunks.blocking_send(std::mem::take(&mut self.chunk).into()).map_err(|_| Gone)
    }

    /// Sends what is gathered, then waits until it is worth looking for more.
    pub(super) fn pause(&mut self, pause: Duration) -> Result<(), Gone> {
        self.flush()?;
        match self.body.recv_timeout(pause) {
            Err(blocking::RecvTimeoutError::Timeout) => Ok(()),
            Err(blocking::RecvTimeoutError::Disconnected) => Err(Gone),
            Ok(never) => match never {},
        }
    }

    /// The last line: everything was said, or why not.
    pub(super) fn finish(mut self, fault: Option<String>) {
        let line: Line<()> = fault.map_or(Line::End, Line::Fault);
        // A reader that has gone needs no last line.
        drop(self.line(&line).and_then(|()| self.flush()));
    }

    fn line<T: Serialize>(&mut self, line: &Line<T>) -> Result<(), Gone> {
        // Only a broken `Serialize` fails into memory; the stream then ends without its last line, which says so.
        serde_json::to_writer(&mut self.chunk, line).map_err(|_| Gone)?;
        self.chunk.push(b'\n');
        Ok(())
    }
}

struct ChunkBody {
    receiver: mpsc::Receiver<Bytes>,
    _alive: blocking::Sender<Infallible>,
}

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}
