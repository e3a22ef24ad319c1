//! An answer's body on its way back. It drives its connection, and gives it back to the pool at a clean end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use outbound::ErrorType;
use tokio::time::Instant;

use super::body::{BodyFault, Tally};
use super::fault;
use super::link::Link;
use super::patience::{Expired, Patience};
use crate::Refusal;
use crate::pool::{Pool, Pooled, Site};

/// An answer's body. Dropped before its end, it closes the connection.
pub struct Download {
    incoming: Incoming,
    tally: Arc<Tally>,
    bytes_max: u64,
    /// What is still to come, where the answer said how much.
    left: Option<u64>,
    patience: Patience,
    idle: Duration,
    /// None when it was given back, or closed.
    link: Option<Link>,
    /// None if the connection is not to be used again.
    home: Option<Home>,
    is_over: bool,
}

/// Where the connection goes when it is done with.
pub(crate) struct Home {
    pub(crate) pool: Arc<Pool<Link>>,
    pub(crate) site: Arc<Site>,
    /// What the peer said about how long it waits.
    pub(crate) idle_max: Option<Duration>,
}

/// What is known of the answer when its body begins.
pub(crate) struct Begun {
    pub(crate) tally: Arc<Tally>,
    pub(crate) bytes_max: u64,
    pub(crate) length: Option<u64>,
    pub(crate) patience: Patience,
    pub(crate) idle: Duration,
}

impl Download {
    pub(crate) fn new(incoming: Incoming, begun: Begun, link: Link, home: Option<Home>) -> Self {
        let Begun { tally, bytes_max, length, patience, idle } = begun;
        let is_over = false;
        Self { incoming, tally, bytes_max, left: length, patience, idle, link: Some(link), home, is_over }
    }

    /// An answer without a body is over at once.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) {
        if self.incoming.is_end_stream() {
            self.finish(cx);
        }
    }

    /// A body that belongs to no connection any more: the protocol was switched.
    pub(crate) fn none(incoming: Incoming, begun: Begun) -> Self {
        let Begun { tally, bytes_max, patience, idle, .. } = begun;
        tally.end_with(Ok(()));
        Self { incoming, tally, bytes_max, left: None, patience, idle, link: None, home: None, is_over: true }
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.is_over = true;
        self.tally.end_with(Ok(()));
        let (Some(mut link), Some(home)) = (self.link.take(), self.home.take()) else { return };
        // A request that is still being sent, or an answer with more behind it, makes it unfit.
        if link.poll_idle(cx) {
            let (address, made) = (link.address, link.made);
            let pooled = Pooled { address, made, idle_max: home.idle_max, item: link };
            home.pool.put(&home.site, pooled, Instant::now());
        }
    }

    fn fail(&mut self, fault: BodyFault) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        self.is_over = true;
        self.link = None;
        self.tally.end_with(Err(fault.clone()));
        Poll::Ready(Some(Err(fault)))
    }

    fn take(&mut self, bytes: u64) -> Result<(), BodyFault> {
        if self.tally.receive(bytes) > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        if let Some(left) = self.left {
            let long = || BodyFault::new(Refusal::ResponseRefused, "the answer is longer than it said");
            self.left = Some(left.checked_sub(bytes).ok_or_else(long)?);
        }
        self.patience.renew();
        Ok(())
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Asking first tells the connection that there is room for more.
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if let Some(link) = &mut self.link {
            // When it has ended there is an error in the body, or the last of it.
            let _is_driven = link.poll_drive(cx);
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }
}

/// What an answer is called that is longer than may come back.
pub(crate) fn too_large(bytes_max: u64) -> BodyFault {
    BodyFault {
        refusal: Refusal::ResponseRefused,
        error_type: ErrorType::HttpResponseBodySize,
        detail: format!("the answer is larger than {bytes_max} bytes").into(),
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = &mut *self;
        loop {
            if this.is_over {
                return Poll::Ready(None);
            }
            let frame = match this.poll_incoming(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return this.fail(fault::of_exchange(&error)),
                Poll::Ready(None) if this.left.is_some_and(|left| left > 0) => {
                    let why = "the answer is shorter than it said";
                    return this.fail(BodyFault::new(Refusal::ResponseIncomplete, why));
                }
                Poll::Ready(None) => {
                    this.finish(cx);
                    return Poll::Ready(None);
                }
                Poll::Pending => match this.patience.poll(cx, this.idle) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Expired::Idle) => {
                        let why = "the destination stopped in the middle of its answer";
                        return this.fail(BodyFault::new(Refusal::IdleTimeout, why));
                    }
                    Poll::Ready(Expired::Total) => {
                        let why = "the call took too long as a whole";
                        return this.fail(BodyFault::new(Refusal::ResponseTimedOut, why));
                    }
                },
            };
            // Trailers come after everything that was judged, and few callers look at them.
            let Ok(data) = frame.into_data() else { continue };
            if let Err(fault) = this.take(data.len() as u64) {
                return this.fail(fault);
            }
            // Nobody asks again when this was the last of it.
            if this.incoming.is_end_stream() {
                this.finish(cx);
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_over {
            return SizeHint::with_exact(0);
        }
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("left", &self.left).field("is_over", &self.is_over).finish_non_exhaustive()
    }
}
