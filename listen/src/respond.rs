//! Writes an answer that streams.
//!
//! Three things go on at once, in one task: the body is asked for more, what there is of it is written, and the rest of the
//! request is fed to whoever reads it. None waits for another, so a server that echoes while it is sent to works with any
//! number of bytes. What is ready together leaves together, and nothing is held back when nothing more is ready.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::time::Instant;

use crate::Head;
use crate::exchange::{After, Exchange};
use crate::halt::Watch;
use crate::observer::Phase;
use crate::outbox::Outbox;
use crate::reply::{BoxBody, BoxError, End, Ended, Ending, Streamed};
use crate::wire::{self, Framing};

/// What may wait to be written before the body is asked for more.
const WAITING_BYTES: usize = 64 * 1024;

/// Writes `streamed`, of which the client may take nothing for as long as `limit`, and says what may become of the
/// connection.
pub(crate) async fn stream(exchange: &mut Exchange, streamed: Box<Streamed>, last: bool, limit: Duration) -> After {
    if !exchange.stop_inviting() {
        return After::Lost;
    }
    let streamed = *streamed;
    let head = &exchange.head;
    let to_head = head.method() == "HEAD";
    let size = streamed.body.size_hint();
    let framing = Framing::of(streamed.status, &streamed.headers, &size, to_head, head.version());
    let last = last || streamed.close || framing == Framing::Close || !exchange.keeps_alive();
    let mut sending = Sending {
        trailers_wanted: takes_trailers(head),
        framing,
        body: streamed.body,
        trailers: None,
        outbox: Outbox::default(),
        given: 0,
        ending: None,
        limit,
        write_by: None,
        next_by: None,
        fed: 0,
        halt: streamed.halt,
        end: streamed.end,
    };
    exchange.let_go();
    let begun = exchange.source.put_head(&mut sending.outbox, streamed.status, &streamed.headers, framing, last);
    drop(streamed.headers);
    let how = if begun { poll_fn(|cx| sending.poll(exchange, cx)).await } else { Ending::ClientGone };
    sending.tell(how);
    drop(sending);
    if how != Ending::Whole {
        exchange.source.reset();
        return if framing == Framing::Close && how != Ending::ClientGone { After::Cut } else { After::Lost };
    }
    if !last && exchange.consume_unread() { After::Again } else { After::Close }
}

/// Does the client say that it knows what to do with trailers (RFC 9110 §6.5.1)?
fn takes_trailers(head: &Head) -> bool {
    let mut options = head.get_all("te").flat_map(|value| value.split(|&byte| byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

struct Sending {
    /// How much is left, where a length was told.
    framing: Framing,
    trailers_wanted: bool,
    body: BoxBody,
    trailers: Option<HeaderMap>,
    outbox: Outbox,
    /// Bytes of the body that have gone through the outbox or lie in it.
    given: u64,
    /// How the body ended. What lies in the outbox is still written.
    ending: Option<Ending>,
    /// How long the client may take nothing.
    limit: Duration,
    /// When the client has to have taken something.
    write_by: Option<Instant>,
    /// When something has to have come of the body.
    next_by: Option<Instant>,
    /// Of the request's body, when that was last looked at.
    fed: u64,
    /// Who may end it from outside.
    halt: Option<Watch>,
    end: End,
}

impl Sending {
    fn poll(&mut self, exchange: &mut Exchange, cx: &mut Context<'_>) -> Poll<Ending> {
        if self.halt.as_mut().is_some_and(|halt| halt.has_come(cx)) {
            return Poll::Ready(Ending::Halted);
        }
        loop {
            self.fill(exchange, cx);
            let wrote = if !self.outbox.is_empty() {
                exchange.source.poll_write(cx, &mut self.outbox).map_ok(|_| ())
            } else if !self.outbox.is_out() {
                exchange.source.poll_flush(cx, &mut self.outbox)
            } else if let Some(ending) = self.ending {
                let trailers = self.trailers.as_ref().filter(|_| self.trailers_wanted);
                let is_told = ending != Ending::Whole || exchange.source.finish(trailers).is_ok();
                return Poll::Ready(if is_told { ending } else { Ending::ClientGone });
            } else {
                break;
            };
            match wrote {
                Poll::Ready(Ok(())) => self.write_by = None,
                Poll::Ready(Err(_)) => return Poll::Ready(Ending::ClientGone),
                Poll::Pending => break,
            }
        }
        if exchange.poll_client(cx).is_ready() {
            return Poll::Ready(Ending::ClientGone);
        }
        self.poll_patience(exchange, cx)
    }

    /// Takes of the body what is ready and has room.
    fn fill(&mut self, exchange: &Exchange, cx: &mut Context<'_>) {
        if matches!(self.framing, Framing::Bodiless(_)) {
            self.ending.get_or_insert(Ending::Whole);
        }
        while self.ending.is_none() && self.outbox.len() < WAITING_BYTES {
            let polled = catch_unwind(AssertUnwindSafe(|| self.body.as_mut().poll_frame(cx)));
            let frame = match polled {
                Ok(Poll::Pending) => return,
                Ok(Poll::Ready(frame)) => frame,
                Err(_) => {
                    exchange.site().observer.panicked();
                    tracing::error!(peer = %exchange.peer(), "the body of an answer panicked");
                    self.ending = Some(Ending::BodyFailed);
                    return;
                }
            };
            self.next_by = None;
            self.ending = self.take(frame);
        }
    }

    /// Takes one frame. Says how the body ended, if it did.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, BoxError>>) -> Option<Ending> {
        let Some(frame) = frame else { return Some(self.finish()) };
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => self.put(data),
            Ok(Err(frame)) => {
                self.trailers = frame.into_trailers().ok();
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the body of an answer failed");
                Some(Ending::BodyFailed)
            }
        }
    }

    fn put(&mut self, data: Bytes) -> Option<Ending> {
        let length = data.len() as u64;
        match &mut self.framing {
            _ if length == 0 => return None,
            Framing::Length(left) => match left.checked_sub(length) {
                Some(less) => *left = less,
                None => return Some(Ending::BodyFailed),
            },
            Framing::Chunked => {
                self.given += length;
                wire::put_chunk(&mut self.outbox, data);
                return None;
            }
            Framing::Close | Framing::Bodiless(_) => {}
        }
        self.given += length;
        self.outbox.push(data);
        None
    }

    fn finish(&mut self) -> Ending {
        match self.framing {
            Framing::Length(1..) => return Ending::BodyFailed,
            Framing::Chunked => {
                let trailers = self.trailers.as_ref().filter(|_| self.trailers_wanted);
                wire::put_last_chunk(&mut self.outbox, trailers);
            }
            Framing::Length(0) | Framing::Close | Framing::Bodiless(_) => {}
        }
        Ending::Whole
    }

    /// How long a client may take nothing, and a body give nothing.
    fn poll_patience(&mut self, exchange: &mut Exchange, cx: &mut Context<'_>) -> Poll<Ending> {
        let fed = exchange.feed.as_ref().map_or(0, |feed| feed.bytes());
        let socket = &mut exchange.socket;
        if !self.outbox.is_out() {
            let by = *self.write_by.get_or_insert_with(|| Instant::now() + self.limit);
            return socket.timer.poll_elapsed(by, cx).map(|_| {
                socket.site.observer.timed_out(Phase::Write);
                Ending::ClientStalled
            });
        }
        if std::mem::replace(&mut self.fed, fed) != fed {
            self.next_by = None;
        }
        let limit = socket.site.behaviour.stream_idle_timeout;
        let by = *self.next_by.get_or_insert_with(|| Instant::now() + limit);
        socket.timer.poll_elapsed(by, cx).map(|_| Ending::BodyIdle)
    }

    fn tell(&mut self, how: Ending) {
        let bytes = self.given.saturating_sub(self.outbox.len() as u64);
        self.end.tell(Ended { bytes, how });
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.tell(Ending::Dropped);
    }
}
