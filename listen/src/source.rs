//! What stands behind an exchange: the gate of a connection, or a stream of HTTP/2. Two kinds and no trait, as below.

use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use pingora_core::protocols::http::date;

use crate::gate::{Cut, Gate, Seen};
use crate::http2::Stream;
use crate::outbox::Outbox;
use crate::wire::{self, Framing};

/// RFC 9110 §15.2.1.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// See the module's essay.
pub(crate) enum Source {
    Gate(Box<Gate>),
    Stream(Box<Stream>),
}

impl Source {
    /// Has the whole message passed?
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Gate(gate) => gate.is_done(),
            Self::Stream(stream) => stream.is_done(),
        }
    }

    /// Is nothing more to come, since the connection has ended?
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Gate(gate) => gate.has_ended(),
            // The codec sees to the framing of a stream: what is wrong with one is that it ended.
            Self::Stream(_) => true,
        }
    }

    /// Has the client begun to send its body, whether it was asked for or not?
    pub(crate) fn has_begun(&mut self) -> bool {
        match self {
            Self::Gate(gate) => !gate.inbox().is_empty(),
            Self::Stream(stream) => stream.has_begun(),
        }
    }

    /// The body, if all of it is there.
    pub(crate) fn take_arrived(&mut self) -> Option<Bytes> {
        match self {
            Self::Gate(gate) => gate.take_arrived(),
            Self::Stream(stream) => stream.is_done().then(Bytes::new),
        }
    }

    /// Forgets what has arrived of the message. True if nothing of it can be in the next one's way: streams have none.
    pub(crate) fn skip_arrived(&mut self) -> bool {
        match self {
            Self::Gate(gate) => gate.skip_arrived(),
            Self::Stream(_) => true,
        }
    }

    /// The next part of the body; None behind the last.
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut BytesMut,
        data_max: u64,
    ) -> Poll<Result<Option<Bytes>, Cut>> {
        match self {
            Self::Gate(gate) => gate.poll_part(cx, space, data_max),
            Self::Stream(stream) => stream.poll_part(cx, data_max),
        }
    }

    /// Looks after a client from which nothing is expected.
    pub(crate) fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Seen> {
        match self {
            Self::Gate(gate) => gate.poll_watch(cx),
            Self::Stream(stream) => stream.poll_watch(cx),
        }
    }

    /// Asks for the body, through `outbox` where it has to be written.
    pub(crate) fn invite(&mut self, outbox: &mut Outbox) {
        match self {
            Self::Gate(_) => outbox.copy(CONTINUE),
            Self::Stream(stream) => {
                if let Err(error) = stream.invite() {
                    // Whoever watches the client finds that it has gone.
                    tracing::debug!(%error, "a body could not be asked for");
                }
            }
        }
    }

    /// Begins an answer, through `outbox` where it has to be written; `last` is of the connection. False where the client
    /// has gone.
    pub(crate) fn put_head(
        &mut self,
        outbox: &mut Outbox,
        status: StatusCode,
        headers: &HeaderMap,
        framing: Framing,
        last: bool,
    ) -> bool {
        match self {
            Self::Gate(_) => {
                outbox.copy(&wire::head(status, headers, framing, last, &date::get_cached_date()));
                true
            }
            Self::Stream(stream) => {
                let bodiless = matches!(framing, Framing::Bodiless(_));
                stream.send_head(status, wire::fields_of_stream(headers, framing), bodiless)
            }
        }
    }

    /// Writes some of what waits. There is something.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, outbox: &mut Outbox) -> Poll<io::Result<usize>> {
        match self {
            Self::Gate(gate) => outbox.poll_write(cx, gate.raw()),
            Self::Stream(stream) => stream.poll_send(cx, outbox),
        }
    }

    /// Sees off what was written. A stream's connection does that by itself.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, outbox: &mut Outbox) -> Poll<io::Result<()>> {
        match self {
            Self::Gate(gate) => outbox.poll_flush(cx, gate.raw()),
            Self::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    /// Says that the answer is whole, where that is not said by its framing.
    pub(crate) fn finish(&mut self, trailers: Option<&HeaderMap>) -> io::Result<()> {
        match self {
            Self::Gate(_) => Ok(()),
            Self::Stream(stream) => stream.finish(trailers.and_then(wire::trailers_of_stream)),
        }
    }

    /// Says that it is not, where that is not said by the connection's end.
    pub(crate) fn reset(&mut self) {
        if let Self::Stream(stream) = self {
            stream.reset();
        }
    }
}
