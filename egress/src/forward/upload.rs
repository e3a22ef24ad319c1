//! A request's body on its way out.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::body::{BodyFault, RequestBody, Tally};
use crate::Refusal;

/// A request's body on its way to the destination.
pub(crate) struct Upload {
    body: RequestBody,
    tally: Arc<Tally>,
    bytes_max: u64,
    /// What is still to come, where the caller declared it.
    left: Option<u64>,
}

impl Upload {
    /// A body that declares more than it may be is refused before anything is dialled.
    pub(crate) fn new(body: RequestBody, tally: Arc<Tally>, bytes_max: u64) -> Result<Self, BodyFault> {
        let left = body.size_hint().exact();
        if left.is_some_and(|bytes| bytes > bytes_max) {
            return Err(too_large(bytes_max));
        }
        if body.is_end_stream() {
            tally.sent_all();
        }
        Ok(Self { body, tally, bytes_max, left })
    }

    /// Its length, where it is known, before anything was read.
    pub(crate) fn length(&self) -> Option<u64> {
        if self.is_end_stream() { Some(0) } else { self.left }
    }

    fn fail(&self, fault: BodyFault) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        self.tally.fail_sending(&fault);
        Poll::Ready(Some(Err(fault)))
    }

    /// Counts a piece; `Err` if it is one too many.
    fn take(&mut self, bytes: u64) -> Result<(), BodyFault> {
        if self.tally.sent_bytes() + bytes > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        if let Some(left) = self.left {
            let long = || BodyFault::new(Refusal::RequestMalformed, "the body is longer than was declared");
            self.left = Some(left.checked_sub(bytes).ok_or_else(long)?);
        }
        self.tally.send(bytes);
        // Whoever counts has the whole with the last byte that was declared, although the end was not read yet.
        if self.left == Some(0) || self.body.is_end_stream() {
            self.tally.sent_all();
        }
        Ok(())
    }
}

fn too_large(bytes_max: u64) -> BodyFault {
    BodyFault::new(Refusal::BodyTooLarge, format!("the request's body is larger than {bytes_max} bytes"))
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        loop {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            self.tally.wait(polled.is_pending());
            let frame = match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(fault))) => return self.fail(fault),
                Poll::Ready(None) if self.left.is_some_and(|left| left > 0) => {
                    let why = "the body is shorter than was declared";
                    return self.fail(BodyFault::new(Refusal::RequestMalformed, why));
                }
                Poll::Ready(None) => {
                    self.tally.sent_all();
                    return Poll::Ready(None);
                }
            };
            // Trailers were not announced to the destination, and are not what anybody judged.
            let Ok(data) = frame.into_data() else { continue };
            return match self.take(data.len() as u64) {
                Ok(()) => Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(fault) => self.fail(fault),
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
