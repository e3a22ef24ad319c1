//! A request's body as a stream, to be given to whoever sends it on.
//!
//! The connection has one owner, the [`Exchange`](crate::Exchange), and the body may be read by another task, on another
//! runtime even. Between them lies a pipe with room for two parts: the exchange [feeds](crate::feed) it while it is driven
//! or answered, no further ahead than that, and the client is held up by its own window.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use domain::Refusal;
use http_body::{Frame, SizeHint};

/// Parts in the pipe, each of at most 64 KiB: one that is sent on and one that is on its way.
const PARTS_MAX: usize = 2;

/// Why a body ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is too long, too slow, breaks its framing, or the client has said that nothing more comes.
    #[error("the request's body was refused: {0}")]
    Refused(Refusal),
    /// The connection to the client is broken.
    #[error("the client has gone")]
    Gone,
    /// The exchange is over, or nobody drives it.
    #[error("the request was given up")]
    GivenUp,
}

/// The body of a request, in parts of at most 64 KiB, and without its trailers. See
/// [`Exchange::body_stream`](crate::Exchange::body_stream).
pub struct RequestBody(Kind);

enum Kind {
    /// All of it has arrived.
    Whole(Bytes),
    Piped {
        pipe: Arc<Pipe>,
        left: Option<u64>,
    },
}

impl RequestBody {
    /// A body of no bytes, or one that has arrived.
    pub fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }

    /// `length`: of the whole, where it is known.
    pub(crate) fn piped(pipe: &Arc<Pipe>, length: Option<u64>) -> Self {
        Self(Kind::Piped { pipe: Arc::clone(pipe), left: length })
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = http_body::Body::size_hint(self);
        f.debug_struct("RequestBody").field("exact", &size.exact()).finish_non_exhaustive()
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let part = match &mut self.0 {
            Kind::Whole(bytes) if bytes.is_empty() => None,
            Kind::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            Kind::Piped { pipe, left } => {
                let part = std::task::ready!(pipe.poll_take(cx));
                if let (Some(Ok(part)), Some(left)) = (&part, left) {
                    *left = left.saturating_sub(part.len() as u64);
                }
                part
            }
        };
        Poll::Ready(part.map(|part| part.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Piped { pipe, left } => *left == Some(0) || pipe.has_ended_well(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Piped { left: Some(left), .. } => SizeHint::with_exact(*left),
            Kind::Piped { left: None, .. } => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Kind::Piped { pipe, .. } = &self.0 {
            pipe.drop_reader();
        }
    }
}

/// What lies between an exchange and whoever reads its body.
#[derive(Debug, Default)]
pub(crate) struct Pipe(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    parts: VecDeque<Bytes>,
    /// How it ended. Parts that lie before it are read first.
    end: Option<Result<(), BodyError>>,
    /// Somebody has asked for the first part.
    wanted: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Is there room for another part?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Yes,
    /// Nobody reads any more.
    Never,
}

impl Pipe {
    /// The next part; None behind the last.
    fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut state = self.state();
        let first = !std::mem::replace(&mut state.wanted, true);
        let part = state.parts.pop_front();
        let writer = if first || part.is_some() { state.writer.take() } else { None };
        let taken = match (part, state.end) {
            (Some(part), _) => Poll::Ready(Some(Ok(part))),
            (None, Some(Ok(()))) => Poll::Ready(None),
            (None, Some(Err(error))) => Poll::Ready(Some(Err(error))),
            (None, None) => {
                register(&mut state.reader, cx);
                Poll::Pending
            }
        };
        drop(state);
        wake(writer);
        taken
    }

    /// Ready when the body is wanted and another part may be pushed, or when nobody will ever take one.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<Room> {
        let mut state = self.state();
        if state.reader_gone {
            Poll::Ready(Room::Never)
        } else if state.wanted && state.parts.len() < PARTS_MAX {
            Poll::Ready(Room::Yes)
        } else {
            register(&mut state.writer, cx);
            Poll::Pending
        }
    }

    pub(crate) fn push(&self, part: Bytes) {
        let mut state = self.state();
        state.parts.push_back(part);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Says how the body ended, unless that is known already.
    pub(crate) fn end(&self, end: Result<(), BodyError>) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Will nobody ever take another part?
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.state().reader_gone
    }

    fn has_ended_well(&self) -> bool {
        let state = self.state();
        state.parts.is_empty() && state.end == Some(Ok(()))
    }

    fn drop_reader(&self) {
        let mut state = self.state();
        state.reader_gone = true;
        state.parts.clear();
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    /// No step leaves the state half changed, so one that panicked does no harm to the next.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
