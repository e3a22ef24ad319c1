//! Where an answer's body comes from: a connection of its own, or a stream beside others.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

use super::body::BodyFault;
use super::download::Home;
use super::fault;
use super::http2::Stream;
use super::link::Link;
use crate::pool::Pooled;

/// A body, with whatever has to be driven for it.
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each answer of HTTP/1.1")]
pub(crate) enum Source {
    /// HTTP/1.1, with the connection, and where that goes when it is done with.
    Alone { incoming: Incoming, link: Link, home: Option<Home> },
    /// HTTP/2.
    Beside(Box<Stream>),
    /// None any more: the connection was closed, or went elsewhere, or the stream has ended.
    Over,
}

impl Source {
    pub(crate) fn beside(stream: Stream) -> Self {
        Self::Beside(Box::new(stream))
    }

    /// The next piece; none behind the last. Trailers come after everything that was judged, and few callers look at
    /// them: they are passed over.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        match self {
            Self::Alone { incoming, link, .. } => poll_alone(incoming, link, cx),
            Self::Beside(stream) => stream.poll_data(cx),
            Self::Over => Poll::Ready(None),
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Alone { incoming, .. } => incoming.is_end_stream(),
            Self::Beside(stream) => stream.is_end_stream(),
            Self::Over => true,
        }
    }

    /// The answer is whole: the connection goes back to the pool. A stream has ended by itself.
    pub(crate) fn finish(&mut self, cx: &mut Context<'_>) {
        // The body is kept until the connection was looked at, which would take its end for somebody's giving up.
        let Self::Alone { incoming: _kept, mut link, home: Some(home) } = std::mem::replace(self, Self::Over) else {
            return;
        };
        // A request that is still being sent, or an answer with more behind it, makes it unfit.
        if link.poll_idle(cx) {
            let (address, made) = (link.address, link.made);
            let pooled = Pooled { address, made, idle_max: home.idle_max, item: link };
            home.pool.put(&home.site, pooled, Instant::now());
        }
    }
}

fn poll_alone(
    incoming: &mut Incoming,
    link: &mut Link,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, BodyFault>>> {
    loop {
        // Asking first tells the connection that there is room for more.
        let mut polled = Pin::new(&mut *incoming).poll_frame(cx);
        if polled.is_pending() {
            // When it has ended there is an error in the body, or the last of it.
            let _is_driven = link.poll_drive(cx);
            polled = Pin::new(&mut *incoming).poll_frame(cx);
        }
        match polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(fault::of_exchange(&error)))),
            Poll::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}
