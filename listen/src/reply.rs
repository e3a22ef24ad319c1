//! What a handler says to a request: an answer, a stream, or a taken connection.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::halt::Watch;
use crate::{Answer, Halt, Takeover};

/// Whatever the body of a stream fails with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is written as it comes.
pub type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// What a handler says to a request.
#[derive(Debug)]
pub enum Reply {
    /// All of it, in one piece.
    Answer(Answer),
    /// A head, and a body that comes bit by bit.
    Stream(Box<Streamed>),
    /// A head, and the connection is somebody else's.
    Takeover(Box<Takeover>),
}

impl Reply {
    /// The status that the client is told.
    pub fn status(&self) -> u16 {
        match self {
            Self::Answer(answer) => answer.status,
            Self::Stream(streamed) => streamed.status.as_u16(),
            Self::Takeover(takeover) => takeover.status.as_u16(),
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

impl From<Streamed> for Reply {
    fn from(streamed: Streamed) -> Self {
        Self::Stream(Box::new(streamed))
    }
}

impl From<Takeover> for Reply {
    fn from(takeover: Takeover) -> Self {
        Self::Takeover(Box::new(takeover))
    }
}

/// An answer whose body is written as it comes.
///
/// Fields go out as they are and in their order, repeated ones too. Those that are about this connection and its framing
/// are set here, whatever is given: `Connection`, `Keep-Alive`, `Proxy-Connection`, `TE`, `Transfer-Encoding`, `Upgrade`
/// are left out; `Date` is added where there is none.
///
/// The length is the body's, if its size is exact, else `Content-Length`, if there is one. With neither the body is
/// chunked or, for HTTP/1.0, ends with the connection. A body that is longer or shorter than its length is a failed one.
/// To HEAD, and with 204 and 304, there is no body: what is given is not asked for anything.
///
/// A body that fails takes the connection with it, so that the client sees no whole answer: one that knows its end by the
/// connection's (HTTP/1.0 without a length) sees a reset.
pub struct Streamed {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: BoxBody,
    /// Close the connection behind it.
    pub close: bool,
    pub(crate) halt: Option<Watch>,
    pub(crate) end: End,
}

impl Streamed {
    pub fn new<B>(response: http::Response<B>) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let body = Box::pin(Boxed(Box::pin(body)));
        Self { status: parts.status, headers: parts.headers, body, close: false, halt: None, end: End(None) }
    }

    /// Is told how it ended; also where the exchange is dropped, at the end of a drain say.
    #[must_use]
    pub fn on_end(mut self, hook: impl FnOnce(Ended) + Send + 'static) -> Self {
        self.end = End(Some(Box::new(hook)));
        self
    }

    /// Ends in the middle where that is said from outside: as a body that fails does.
    #[must_use]
    pub fn halted_by(mut self, halt: Arc<dyn Halt>) -> Self {
        self.halt = Some(Watch::new(halt));
        self
    }

    #[must_use]
    pub fn and_close(mut self) -> Self {
        self.close = true;
        self
    }
}

/// Its fields in their order, and all of its body at once.
impl From<Answer> for Streamed {
    fn from(answer: Answer) -> Self {
        let mut headers = HeaderMap::with_capacity(answer.headers.len());
        for (name, value) in &answer.headers {
            let field =
                HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value.as_bytes()).ok());
            let Some((name, value)) = field else {
                tracing::error!(name, "an answer's field cannot be sent and is left out");
                continue;
            };
            headers.append(name, value);
        }
        let (status, close) = (answer.status_code(), answer.close);
        Self { status, headers, body: Box::pin(Whole(answer.body)), close, halt: None, end: End(None) }
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed").field("status", &self.status).field("headers", &self.headers).finish_non_exhaustive()
    }
}

/// How a streamed answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Bytes of the body that the kernel has taken, at least.
    pub bytes: u64,
    pub how: Ending,
}

/// See [`Ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// All of it was written.
    Whole,
    /// The body failed, or was not as long as had been said.
    BodyFailed,
    /// The client went away.
    ClientGone,
    /// The client did not take what it was sent.
    ClientStalled,
    /// The body gave nothing for as long as it may.
    BodyIdle,
    /// It was ended from outside ([`Streamed::halted_by`]).
    Halted,
    /// The connection was dropped in the middle.
    Dropped,
}

/// The hook, called once.
#[derive(Default)]
pub(crate) struct End(Option<Box<dyn FnOnce(Ended) + Send>>);

impl End {
    pub(crate) fn tell(&mut self, ended: Ended) {
        if let Some(hook) = self.0.take() {
            hook(ended);
        }
    }
}

/// A body that is there.
struct Whole(Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// Gives a body's error the one type.
struct Boxed<B>(Pin<Box<B>>);

impl<B> Body for Boxed<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
