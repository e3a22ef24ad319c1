//! One request and its answer.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use domain::Refusal;
use pingora_core::protocols::http::date;
use tokio::time::Instant;

use crate::Answer;
use crate::connection::{Site, Socket};
use crate::gate::Gate;
use crate::http::{Head, HeadParts};
use crate::observer::Phase;
use crate::timer::Elapsed;

/// A request that wants an answer.
pub struct Exchange {
    gate: Box<Gate>,
    head: Head,
    socket: Socket,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Unread,
    Whole,
    Failed(Refusal),
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("head", &self.head).field("peer", &self.peer()).finish_non_exhaustive()
    }
}

impl Exchange {
    pub fn head(&self) -> &Head {
        &self.head
    }

    pub fn peer(&self) -> SocketAddr {
        self.socket.peer
    }

    pub fn local(&self) -> SocketAddr {
        self.socket.local
    }

    /// Begins with the message whose head lies at the front of the gate's inbox.
    pub(crate) fn begin(
        mut gate: Box<Gate>,
        socket: Socket,
        (skipped, length): (usize, usize),
        parts: HeadParts,
    ) -> Self {
        let raw = gate.begin(skipped, length, &parts, socket.site.trailer);
        Self { gate, head: Head::new(raw, parts), socket, body: Body::Unread }
    }

    /// Waits for `future`, but not longer than `limit`: None where the time was up first.
    ///
    /// It waits by the connection's own timer, which costs a request nothing; a timer of its own would be set and
    /// taken back for each.
    pub async fn within<F: Future>(&mut self, limit: Duration, future: F) -> Option<F::Output> {
        self.socket.timer.within(limit, future).await.ok()
    }

    /// Reads the body, the whole of it or nothing.
    ///
    /// `100 Continue` is sent first, if it was asked for. `reserve` is asked before memory is used for more bytes, at most
    /// 64 KiB of them at a time, and in all for no more than the body or, where it is chunked, some KiB beyond it; its no
    /// is [`Refusal::Overloaded`]. A body that is longer than `max`, slower than the listener's bounds, or
    /// ends before its end is refused; the connection is then closed behind the answer, whatever that is.
    pub async fn body(&mut self, max: u64, reserve: &mut (dyn FnMut(u64) -> bool + Send)) -> Result<Bytes, Refusal> {
        let read = match self.body {
            Body::Unread => {
                // Whoever gives up waiting has had his body: what was read by then is gone, and the rest is none.
                self.body = Body::Failed(Refusal::Internal);
                self.read_body(max, reserve).await
            }
            // There is only one body to give away.
            Body::Whole => return Err(Refusal::Internal),
            Body::Failed(refusal) => return Err(refusal),
        };
        self.body = read.as_ref().map_or_else(|&refusal| Body::Failed(refusal), |_| Body::Whole);
        read
    }

    async fn read_body(&mut self, max: u64, reserve: &mut (dyn FnMut(u64) -> bool + Send)) -> Result<Bytes, Refusal> {
        if self.head.content_length().is_some_and(|length| length > max) {
            return Err(Refusal::BodyTooLarge);
        }
        self.invite().await?;
        let mut pace = Pace::new(&self.socket.site.settings);
        // Most bodies have come with their head and stay where they are.
        if let Some(whole) = self.gate.take_arrived() {
            return if reserve(whole.len() as u64) { Ok(whole) } else { Err(Refusal::Overloaded) };
        }
        let mut body = BytesMut::new();
        let mut reserved = 0;
        loop {
            let total = body.len() as u64;
            let wanted = total + self.gate.next_part_max();
            if wanted > reserved {
                if !reserve(wanted - reserved) {
                    return Err(Refusal::Overloaded);
                }
                reserved = wanted;
            }
            let reading = self.gate.read_into(&mut body, max);
            match self.socket.timer.until(|| pace.deadline(total), reading).await {
                Ok(Ok(0)) => return Ok(body.freeze()),
                Ok(Ok(_)) => {}
                Ok(Err(refusal)) => return Err(refusal),
                Err(Elapsed) => {
                    self.socket.site.observer.timed_out(Phase::Body);
                    return Err(Refusal::BodyTimeout);
                }
            }
        }
    }

    /// Sends `100 Continue`, unless the body is on its way or there is none.
    async fn invite(&mut self) -> Result<(), Refusal> {
        if !self.head.expects_continue() || self.gate.is_done() || !self.gate.inbox().is_empty() {
            return Ok(());
        }
        let limit = self.socket.site.settings.write_timeout;
        match self.socket.timer.within(limit, self.gate.write(b"HTTP/1.1 100 Continue\r\n\r\n")).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Refusal::MalformedRequest),
            Err(Elapsed) => {
                self.socket.site.observer.timed_out(Phase::Write);
                Err(Refusal::BodyTimeout)
            }
        }
    }

    /// Writes the answer. Gives the connection back, and whether it may serve another request; None where it is lost.
    pub(crate) async fn answer(mut self, answer: Answer, last: bool) -> Option<(Box<Gate>, Socket, HeadParts, bool)> {
        let last = last || answer.close || !self.head.keeps_alive() || !self.consume_unread();
        let bytes = answer.encode(self.head.method() == "HEAD", last, &date::get_cached_date());
        let limit = self.socket.site.settings.write_timeout;
        match self.socket.timer.within(limit, self.gate.write(&bytes)).await {
            Ok(Ok(())) => Some((self.gate, self.socket, self.head.into_parts(), !last)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "an answer could not be written");
                None
            }
            Err(Elapsed) => {
                self.socket.site.observer.timed_out(Phase::Write);
                None
            }
        }
    }

    /// Is everything of this message out of the way? A body that nobody wanted is, if all of it has arrived.
    fn consume_unread(&mut self) -> bool {
        match self.body {
            Body::Whole => true,
            Body::Failed(_) => false,
            Body::Unread => self.gate.skip_arrived(),
        }
    }

    pub(crate) fn site(&self) -> std::sync::Arc<Site> {
        std::sync::Arc::clone(&self.socket.site)
    }
}

/// When a body is too slow: a total, and a rate that it has to keep up with once its grace is over.
#[derive(Debug)]
struct Pace {
    began: Option<Instant>,
    total: Duration,
    grace: Duration,
    rate: u32,
}

impl Pace {
    fn new(settings: &config::Listener) -> Self {
        Self {
            began: None,
            total: settings.body_timeout,
            grace: settings.body_rate_grace,
            rate: settings.body_rate_min,
        }
    }

    /// The moment by which more than `bytes` must have come.
    fn deadline(&mut self, bytes: u64) -> Instant {
        let began = *self.began.get_or_insert_with(Instant::now);
        let earned = match self.rate {
            0 => self.total,
            rate => Duration::from_secs(bytes / u64::from(rate)),
        };
        began + self.total.min(self.grace.saturating_add(earned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pace_is_a_rate_after_a_grace_and_never_more_than_the_total() {
        let settings = config::Listener::default();
        let mut pace = Pace::new(&settings);
        let began = Instant::now();
        let allowed = |bytes: u64, pace: &mut Pace| (pace.deadline(bytes) - began).as_secs();
        assert_eq!(allowed(0, &mut pace), 5);
        assert_eq!(allowed(1023, &mut pace), 5);
        assert_eq!(allowed(10 * 1024, &mut pace), 15);
        assert_eq!(allowed(1 << 30, &mut pace), 60);
    }
}
