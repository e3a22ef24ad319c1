//! One call's stream: its request on the way out, its answer on the way in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use hyper::body::Body;

use super::INFORMATIONAL_MAX;
use super::connection::{Connection, Gate};
use super::fault::{self, Ended};
use super::meter::{PIECE_EARNS, REQUEST_EARNS};
use super::pace::Pace;
use crate::Refusal;
use crate::forward::body::BodyFault;
use crate::forward::request;
use crate::forward::upload::Upload;
use crate::pool::Seat;

/// A stream. Dropped before both sides have ended, it is reset.
pub(crate) struct Stream {
    /// None when it went out to its end, or nobody takes it any more.
    upload: Option<Outgoing>,
    /// Some of the body was read from the caller and not handed over.
    is_cut: bool,
    answer: Answer,
    informational: u32,
    gate: Arc<Gate>,
    /// Behind the stream, so that whoever sits down next finds it ended.
    seat: Seat<Connection>,
}

/// A body on its way. What the peer does not take yet is not read from the caller, but for one piece.
struct Outgoing {
    to: SendStream<Bytes>,
    body: Upload,
    piece: Bytes,
    /// Bytes.
    sent: u64,
}

enum Answer {
    Awaited(ResponseFuture),
    Began(RecvStream),
}

impl Stream {
    /// Begins a stream with this request, which goes out while the connection's task runs. It comes back if nothing was
    /// begun.
    pub(super) fn begin(seat: Seat<Connection>, request: Request<Upload>) -> Result<Self, NotBegun> {
        let Some(mut sender) = seat.share().sender() else { return Err(NotBegun::Closed(Box::new(request))) };
        let (head, body) = request::over_h2(request).map_err(NotBegun::Fault)?;
        let is_whole = body.is_end_stream();
        // An error is one of the request's form, or the connection ended in this moment: nothing was begun either way.
        let (answer, to) =
            sender.send_request(head, is_whole).map_err(|error| NotBegun::Fault(fault::of(&error).fault))?;
        let upload = (!is_whole).then(|| Outgoing { to, body, piece: Bytes::new(), sent: 0 });
        seat.share().pace.earn(REQUEST_EARNS);
        let gate = Arc::clone(&seat.share().gate);
        Ok(Self { upload, is_cut: false, answer: Answer::Awaited(answer), informational: 0, gate, seat })
    }

    /// The connection.
    pub(super) fn connection(&self) -> &Connection {
        self.seat.share()
    }

    /// Sends of the body what the peer takes. Whether something went.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(outgoing) = &mut self.upload else { return false };
        let (went, is_over) = outgoing.poll(cx, &self.seat.share().pace);
        if is_over {
            self.is_cut = !outgoing.piece.is_empty();
            self.upload = None;
        }
        went
    }

    /// Whether the last of the body was handed over.
    pub(super) fn has_sent(&self) -> bool {
        self.upload.is_none()
    }

    /// Whether some of the body was read that was not handed over: nobody can have the whole then.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut || self.upload.as_ref().is_some_and(|outgoing| !outgoing.piece.is_empty())
    }

    /// The head of the answer.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, Ended>> {
        let Answer::Awaited(answer) = &mut self.answer else {
            let fault = BodyFault::new(Refusal::Internal, "there is a second answer");
            return Poll::Ready(Err(Ended { fault, is_unprocessed: false }));
        };
        while let Poll::Ready(Some(Ok(_))) = answer.poll_informational(cx) {
            self.informational += 1;
            if self.informational > INFORMATIONAL_MAX {
                // There are more of them on the way, and whoever comes next would have to read through those first.
                self.gate.shut();
                let fault = BodyFault::new(Refusal::ResponseRefused, "it is announced too often (1xx)");
                return Poll::Ready(Err(Ended { fault, is_unprocessed: false }));
            }
        }
        match Pin::new(answer).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(response)) => {
                let (head, body) = response.into_parts();
                self.answer = Answer::Began(body);
                Poll::Ready(Ok(Response::from_parts(head, ())))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.ended(&error))),
        }
    }

    /// The next piece of the answer's body; none behind its last. Trailers are passed over. The peer may send as much
    /// again: what is given out is the caller's.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        self.poll_upload(cx);
        let Answer::Began(body) = &mut self.answer else { return Poll::Ready(None) };
        let error = match body.poll_data(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(data))) => {
                // It is a fault only to release more than came.
                drop(body.flow_control().release_capacity(data.len()));
                self.seat.share().pace.took(data.len());
                return Poll::Ready(Some(Ok(data)));
            }
            Poll::Ready(Some(Err(error))) => error,
            Poll::Ready(None) => match body.poll_trailers(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(_)) => return Poll::Ready(None),
                Poll::Ready(Err(error)) => error,
            },
        };
        Poll::Ready(Some(Err(self.ended(&error).fault)))
    }

    /// Whether nothing of the answer is left.
    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.answer {
            Answer::Awaited(_) => false,
            Answer::Began(body) => body.is_end_stream(),
        }
    }

    fn ended(&self, error: &h2::Error) -> Ended {
        match self.gate.fate() {
            Some(fault) => Ended { fault, is_unprocessed: false },
            None => fault::of(error),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.seat.share().pace.gave_up();
        }
    }
}

impl Outgoing {
    /// Whether something went, and whether this is over.
    fn poll(&mut self, cx: &mut Context<'_>, pace: &Pace) -> (bool, bool) {
        let mut went = false;
        loop {
            // Whoever resets the stream wants no more of it, and may have answered all the same. It is asked at each turn,
            // so that a reset wakes who waits for the caller.
            if self.to.poll_reset(cx).is_ready() {
                return (went, true);
            }
            if self.piece.is_empty() {
                match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Pending => return (went, false),
                    Poll::Ready(Some(Ok(frame))) => {
                        self.piece = frame.into_data().unwrap_or_default();
                        pace.earn(PIECE_EARNS);
                    }
                    // The tally knows why. The peer is told that the rest does not come.
                    Poll::Ready(Some(Err(_))) => {
                        self.to.send_reset(Reason::CANCEL);
                        return (went, true);
                    }
                    Poll::Ready(None) => {
                        drop(self.to.send_data(Bytes::new(), true));
                        return (true, true);
                    }
                }
                continue;
            }
            let room = match self.poll_room(cx) {
                Poll::Pending => return (went, false),
                Poll::Ready(None) => return (went, true),
                Poll::Ready(Some(room)) => room,
            };
            let piece = self.piece.split_to(room.min(self.piece.len()));
            let is_last = self.piece.is_empty() && self.body.is_end_stream();
            went = true;
            // By what went and not by how often: a window that is opened a byte at a time earns nothing by it.
            let whole = (self.sent + piece.len() as u64) / 1024 - self.sent / 1024;
            self.sent += piece.len() as u64;
            pace.earn(whole * PIECE_EARNS);
            if self.to.send_data(piece, is_last).is_err() || is_last {
                return (went, true);
            }
        }
    }

    /// How much the peer takes and the buffer holds; none when the stream has ended.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        // Asked for with the piece at hand: what is claimed and not used keeps other streams waiting.
        self.to.reserve_capacity(self.piece.len());
        loop {
            match self.to.capacity() {
                0 => match self.to.poll_capacity(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
                },
                room => return Poll::Ready(Some(room)),
            }
        }
    }
}

/// Why there is no stream.
pub(super) enum NotBegun {
    /// The connection takes no more; the request is as it was.
    Closed(Box<Request<Upload>>),
    Fault(BodyFault),
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("seat", &self.seat).field("is_cut", &self.is_cut).finish_non_exhaustive()
    }
}
