//! An answer's body on its way back. It drives what it comes from, and gives a connection back to the pool at a clean end.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use outbound::ErrorType;
use tokio::time::timeout;

use super::body::{BodyFault, Tally};
use super::link::Link;
use super::patience::{Expired, Patience};
use super::source::Source;
use crate::Refusal;
use crate::pool::{Pool, Site};

/// An answer's body. Dropped before its end, it closes the connection, or resets its stream of one.
pub struct Download {
    source: Source,
    tally: Arc<Tally>,
    bytes_max: u64,
    /// What is still to come, where the answer said how much.
    left: Option<u64>,
    patience: Patience,
    idle: Duration,
    is_over: bool,
    /// What somebody has looked at already; it comes first.
    ahead: VecDeque<Result<Bytes, BodyFault>>,
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
    pub(crate) fn new(source: Source, begun: Begun) -> Self {
        let Begun { tally, bytes_max, length, patience, idle } = begun;
        Self { source, tally, bytes_max, left: length, patience, idle, is_over: false, ahead: VecDeque::new() }
    }

    /// An answer without a body is over at once.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) {
        if self.source.is_end_stream() {
            self.finish(cx);
        }
    }

    /// A body that belongs to no connection any more: the protocol was switched.
    pub(crate) fn none(begun: Begun) -> Self {
        let mut none = Self::new(Source::Over, begun);
        none.tally.end_with(Ok(()));
        (none.left, none.is_over) = (None, true);
        none
    }

    /// The beginning of the body: at most so many bytes, as far as it came within `wait`. Nothing of it is taken away.
    pub(crate) async fn peek(&mut self, bytes: usize, wait: Duration) -> Vec<u8> {
        let gather = async {
            let mut seen = self.ahead.iter().flatten().map(Bytes::len).sum::<usize>();
            while seen < bytes {
                let Some(next) = poll_fn(|cx| self.poll_data(cx)).await else { break };
                seen += next.as_ref().map_or(0, Bytes::len);
                let is_fault = next.is_err();
                self.ahead.push_back(next);
                if is_fault {
                    break;
                }
            }
        };
        // What is late is not looked at.
        drop(timeout(wait, gather).await);
        let mut beginning = Vec::with_capacity(bytes.min(4 << 10));
        for data in self.ahead.iter().flatten() {
            let room = bytes - beginning.len();
            beginning.extend_from_slice(&data[..data.len().min(room)]);
        }
        beginning
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.is_over = true;
        self.tally.end_with(Ok(()));
        self.source.finish(cx);
    }

    fn fail(&mut self, fault: BodyFault) -> Poll<Option<Result<Bytes, BodyFault>>> {
        self.is_over = true;
        self.source = Source::Over;
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

    /// What comes next from the connection.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let this = self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let data = match this.source.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => data,
            Poll::Ready(Some(Err(fault))) => return this.fail(fault),
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
        if let Err(fault) = this.take(data.len() as u64) {
            return this.fail(fault);
        }
        // Nobody asks again when this was the last of it.
        if this.source.is_end_stream() {
            this.finish(cx);
        }
        Poll::Ready(Some(Ok(data)))
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
        if let Some(ahead) = self.ahead.pop_front() {
            return Poll::Ready(Some(ahead.map(Frame::data)));
        }
        self.poll_data(cx).map(|next| next.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.ahead.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.iter().flatten().map(|data| data.len() as u64).sum::<u64>();
        if self.is_over && self.ahead.back().is_none_or(Result::is_ok) {
            return SizeHint::with_exact(ahead);
        }
        // Of one that failed nobody is to think that what has come is all of it.
        self.left.map_or_else(SizeHint::default, |left| SizeHint::with_exact(left.saturating_add(ahead)))
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("left", &self.left).field("is_over", &self.is_over).finish_non_exhaustive()
    }
}
