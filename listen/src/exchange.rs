//! One request and its answer.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use domain::Refusal;
use pingora_core::protocols::http::date;
use tokio::time::Instant;

use crate::Answer;
use crate::connection::{Site, Socket};
use crate::feed::{Fed, Feed};
use crate::gate::{Cut, Gate, Seen};
use crate::http::{Form, Head, HeadParts};
use crate::http2::Stream;
use crate::observer::Phase;
use crate::outbox::Outbox;
use crate::pace::Pace;
use crate::request_body::{BodyError, Pipe, RequestBody};
use crate::service::HalfClose;
use crate::source::Source;
use crate::timer::Elapsed;
use crate::tls::Secured;

/// What may become of a connection when a request has been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It serves another request.
    Again,
    Close,
    /// There is none any more.
    Lost,
    /// It was cut in the middle of an answer that its clean end would be the end of.
    Cut,
}

/// A request that wants an answer.
pub struct Exchange {
    pub(crate) source: Source,
    pub(crate) head: Head,
    pub(crate) socket: Socket,
    body: Body,
    pub(crate) feed: Option<Box<Feed>>,
    is_distrusted: bool,
}

/// Why an exchange was not driven to the end of what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// The client has gone: nobody will read an answer.
    #[error("the client has gone")]
    Gone,
    /// The time was up first.
    #[error("the time was up")]
    Elapsed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Unread,
    Whole,
    Failed(Refusal),
    /// Given out as a stream, which the exchange feeds.
    Streamed,
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

    /// What TLS has established of the connection; none where it is plain.
    pub fn tls(&self) -> Option<&Secured> {
        self.socket.tls.as_deref()
    }

    /// Nobody is believed any more who speaks over this connection. Over HTTP/1.1 the answer is its last one; over HTTP/2
    /// those streams go on that are open, and no other one is taken.
    pub fn distrust(&mut self) {
        self.is_distrusted = true;
        if let Some(tls) = &self.socket.tls {
            tls.distrusted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether that was said, for this request or for another one of its connection.
    pub fn is_distrusted(&self) -> bool {
        self.is_distrusted || self.socket.tls.as_ref().is_some_and(|tls| tls.distrusted.load(Ordering::Relaxed))
    }

    /// Begins with the message whose head lies at the front of the gate's inbox.
    pub(crate) fn begin(
        mut gate: Box<Gate>,
        socket: Socket,
        (skipped, length): (usize, usize),
        parts: HeadParts,
    ) -> Self {
        let raw = gate.begin(skipped, length, &parts, socket.site.trailer);
        Self {
            source: Source::Gate(gate),
            head: Head::new(raw, parts),
            socket,
            body: Body::Unread,
            feed: None,
            is_distrusted: false,
        }
    }

    /// Begins with a stream of HTTP/2.
    pub(crate) fn of_stream(stream: Box<Stream>, head: Head, socket: Socket) -> Self {
        Self { source: Source::Stream(stream), head, socket, body: Body::Unread, feed: None, is_distrusted: false }
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
    /// `100 Continue` is sent first, if it was asked for. `reserve` is asked before memory is used for more bytes: 8 KiB at
    /// first, then as many as have come, at most 64 KiB at a time, and in all for no more than the body or, where it is
    /// chunked, some KiB beyond it; its no is [`Refusal::Overloaded`]. A body that is longer than `max`, slower than the
    /// listener's bounds, or ends before its end is refused; the connection is then closed behind the answer, whatever
    /// that is.
    pub async fn body(&mut self, max: u64, reserve: &mut (dyn FnMut(u64) -> bool + Send)) -> Result<Bytes, Refusal> {
        let read = match self.body {
            Body::Unread => {
                // Whoever gives up waiting has had his body: what was read by then is gone, and the rest is none.
                self.body = Body::Failed(Refusal::Internal);
                self.read_body(max, reserve).await
            }
            // There is only one body to give away.
            Body::Whole | Body::Streamed => return Err(Refusal::Internal),
            Body::Failed(refusal) => return Err(refusal),
        };
        self.body = read.as_ref().map_or_else(|&refusal| Body::Failed(refusal), |_| Body::Whole);
        read
    }

    /// Why [`Self::body`] is [`Refusal::MalformedRequest`]: for the log.
    pub fn why_malformed(&self) -> &'static str {
        if self.source.has_ended() {
            "the connection ended before the body did"
        } else {
            "the body's chunks are not framed as they have to be"
        }
    }

    async fn read_body(&mut self, max: u64, reserve: &mut (dyn FnMut(u64) -> bool + Send)) -> Result<Bytes, Refusal> {
        if self.head.content_length().is_some_and(|length| length > max) {
            return Err(Refusal::BodyTooLarge);
        }
        self.invite().await?;
        let mut pace = Pace::new(&self.socket.site.settings);
        // Most bodies have come with their head and stay where they are.
        if let Some(whole) = self.source.take_arrived() {
            return if reserve(whole.len() as u64) { Ok(whole) } else { Err(Refusal::Overloaded) };
        }
        let Source::Gate(gate) = &mut self.source else { return self.read_parts(max, reserve, pace).await };
        let mut body = BytesMut::new();
        let mut reserved = 0;
        let mut paced = 0;
        loop {
            let total = body.len() as u64;
            let wanted = total + gate.next_part_max(body.len());
            if wanted > reserved {
                if !reserve(wanted - reserved) {
                    return Err(Refusal::Overloaded);
                }
                reserved = wanted;
            }
            let reading = gate.read_into(&mut body, max);
            pace.came(total - paced);
            paced = total;
            match self.socket.timer.until(|| pace.deadline(), reading).await {
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

    /// The same of a stream, whose parts lie in memory already that its window bounds.
    async fn read_parts(
        &mut self,
        max: u64,
        reserve: &mut (dyn FnMut(u64) -> bool + Send),
        mut pace: Pace,
    ) -> Result<Bytes, Refusal> {
        let (mut body, mut space) = (BytesMut::new(), BytesMut::new());
        loop {
            let reading = poll_fn(|cx| self.source.poll_part(cx, &mut space, max));
            let part = match self.socket.timer.until(|| pace.deadline(), reading).await {
                Ok(Ok(Some(part))) => part,
                Ok(Ok(None)) => return Ok(body.freeze()),
                Ok(Err(Cut::Refused(refusal))) => return Err(refusal),
                Ok(Err(Cut::Gone)) => return Err(Refusal::MalformedRequest),
                Err(Elapsed) => {
                    self.socket.site.observer.timed_out(Phase::Body);
                    return Err(Refusal::BodyTimeout);
                }
            };
            if !reserve(part.len() as u64) {
                return Err(Refusal::Overloaded);
            }
            pace.came(part.len() as u64);
            body.extend_from_slice(&part);
        }
    }

    /// Gives out the body as a stream, for whoever sends it on. It moves only while the exchange is [driven](Self::drive)
    /// or answered, holds no more than some 200 KiB, and keeps the client to the listener's bounds for as long as it is the
    /// client that is waited for. Its length is known where `Content-Length` says it.
    ///
    /// `100 Continue` is sent when the body is first asked for, if the client waits for it. A body that was not read to
    /// its end when the answer is, closes the connection.
    ///
    /// # Errors
    /// `Content-Length` says more than `bytes_max`, or the body was given away already. A chunked body that grows beyond
    /// `bytes_max` ends with [`BodyError::Refused`].
    pub fn body_stream(&mut self, bytes_max: u64) -> Result<RequestBody, Refusal> {
        match self.body {
            Body::Unread => {}
            Body::Whole | Body::Streamed => return Err(Refusal::Internal),
            Body::Failed(refusal) => return Err(refusal),
        }
        let length = self.head.content_length();
        if length.is_some_and(|length| length > bytes_max) {
            self.body = Body::Failed(Refusal::BodyTooLarge);
            return Err(Refusal::BodyTooLarge);
        }
        // Most bodies have come with their head, and need no pipe.
        if let Some(whole) = self.source.take_arrived() {
            self.body = Body::Whole;
            return Ok(RequestBody::whole(whole));
        }
        let pipe = Arc::<Pipe>::default();
        let body = RequestBody::piped(&pipe, length);
        let pace = Pace::new(&self.socket.site.settings);
        self.feed = Some(Box::new(Feed::new(pipe, bytes_max, self.head.expects_continue(), pace)));
        self.body = Body::Streamed;
        Ok(body)
    }

    /// Why the body that was given out as a stream has failed, if it has.
    pub fn body_failure(&self) -> Option<BodyError> {
        match self.feed.as_ref()?.fed() {
            Fed::Failed(error) => Some(error),
            Fed::Part | Fed::Whole | Fed::Unwanted => None,
        }
    }

    /// Waits for `future` (an upstream's answer, say), feeds the [body](Self::body_stream) meanwhile, and looks whether
    /// the client is still there. What it pipelines is not lost. Given up waiting for, this has lost nothing.
    ///
    /// # Errors
    /// The client has gone: its connection is broken or, where the listener takes that for the same, half closed.
    pub async fn drive<F: Future>(&mut self, future: F) -> Result<F::Output, Interrupted> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_client(cx).map(Err),
        })
        .await
    }

    /// The same, but not for longer than `limit`.
    pub async fn drive_within<F: Future>(&mut self, limit: Duration, future: F) -> Result<F::Output, Interrupted> {
        let deadline = Instant::now() + limit;
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => match self.poll_client(cx) {
                Poll::Ready(interrupted) => Poll::Ready(Err(interrupted)),
                Poll::Pending => self.socket.timer.poll_elapsed(deadline, cx).map(|Elapsed| Err(Interrupted::Elapsed)),
            },
        })
        .await
    }

    /// Feeds the body; where there is none (any more), looks after the client. Ready when it has gone.
    pub(crate) fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Interrupted> {
        if let Some(feed) = &mut self.feed {
            match ready!(feed.poll(&mut self.source, &mut self.socket, cx)) {
                Fed::Failed(BodyError::Gone) => return Poll::Ready(Interrupted::Gone),
                Fed::Part | Fed::Whole | Fed::Unwanted | Fed::Failed(_) => {}
            }
        }
        match ready!(self.source.poll_watch(cx)) {
            Seen::Gone => Poll::Ready(Interrupted::Gone),
            Seen::End => match self.socket.site.behaviour.half_close {
                HalfClose::Answer => Poll::Pending,
                HalfClose::Gone => Poll::Ready(Interrupted::Gone),
            },
        }
    }

    /// Sends `100 Continue`, unless the body is on its way or there is none.
    async fn invite(&mut self) -> Result<(), Refusal> {
        if !self.head.expects_continue() || self.source.is_done() || self.source.has_begun() {
            return Ok(());
        }
        let mut invitation = Outbox::default();
        self.source.invite(&mut invitation);
        let source = &mut self.source;
        let inviting = poll_fn(|cx| {
            while !invitation.is_empty() {
                ready!(source.poll_write(cx, &mut invitation))?;
            }
            if invitation.is_out() { Poll::Ready(Ok(())) } else { source.poll_flush(cx, &mut invitation) }
        });
        let limit = self.socket.site.settings.write_timeout;
        match self.socket.timer.within(limit, inviting).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Refusal::MalformedRequest),
            Err(Elapsed) => {
                self.socket.site.observer.timed_out(Phase::Write);
                Err(Refusal::BodyTimeout)
            }
        }
    }

    /// Writes the answer, and says what may become of the connection.
    pub(crate) fn answer(&mut self, answer: Answer, last: bool) -> impl Future<Output = After> + Send {
        let possible = self.stop_inviting();
        let last = last || answer.close || !self.keeps_alive() || !self.consume_unread();
        let bytes = answer.encode(self.head.method() == "HEAD", last, &date::get_cached_date());
        // An idle connection has room for this future: the answer is not kept in it.
        drop(answer);
        async move {
            if !possible {
                return After::Lost;
            }
            // To a stream nothing is written in one piece: its answers stream.
            let Source::Gate(gate) = &mut self.source else { return After::Lost };
            let limit = self.socket.site.settings.write_timeout;
            match self.socket.timer.within(limit, gate.write(&bytes)).await {
                Ok(Ok(())) if last => After::Close,
                Ok(Ok(())) => After::Again,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "an answer could not be written");
                    After::Lost
                }
                Err(Elapsed) => {
                    self.socket.site.observer.timed_out(Phase::Write);
                    After::Lost
                }
            }
        }
    }

    /// An answer begins. False where that cannot be: half an invitation for the body stands before it.
    pub(crate) fn stop_inviting(&mut self) -> bool {
        self.feed.as_mut().is_none_or(|feed| feed.stop_inviting())
    }

    /// An answer begins that needs no more of the request: a stream gives it up. Its client has many streams, and decides
    /// how long each of them waits for a window.
    pub(crate) fn let_go(&mut self) {
        let Source::Stream(stream) = &mut self.source else { return };
        self.head = Head::new(Bytes::new(), HeadParts::default());
        if !self.feed.as_ref().is_some_and(|feed| feed.is_wanted()) {
            stream.let_go();
        }
    }

    /// Is everything of this message out of the way? A body that nobody wanted is, if all of it has arrived.
    pub(crate) fn consume_unread(&mut self) -> bool {
        match self.body {
            Body::Whole => true,
            Body::Failed(_) => false,
            Body::Unread => self.source.skip_arrived(),
            // Whoever reads the stream is told that nothing more comes.
            Body::Streamed => match self.feed.take().map(|feed| feed.fed()) {
                Some(Fed::Whole) => true,
                Some(Fed::Part | Fed::Unwanted) => self.source.skip_arrived(),
                Some(Fed::Failed(_)) | None => false,
            },
        }
    }

    /// Behind a CONNECT that is refused nothing is run: what follows was meant for the tunnel.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.head.keeps_alive() && self.head.form() != Form::Authority && !self.is_distrusted()
    }

    /// What is left of it, for the next one; nothing of a stream.
    pub(crate) fn give_back(self) -> Option<(Box<Gate>, Socket, HeadParts)> {
        let Source::Gate(gate) = self.source else { return None };
        Some((gate, self.socket, self.head.into_parts()))
    }

    pub(crate) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.socket.site)
    }
}
