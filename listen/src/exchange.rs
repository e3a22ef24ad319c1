//! One request and its answer, over Pingora's HTTP/1 session.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use domain::Refusal;
use http::{Method, header};
use pingora_core::protocols::http::v1::server::HttpSession;
use pingora_http::ResponseHeader;
use tokio::time::Instant;

use crate::Answer;
use crate::connection::{Site, Socket};
use crate::gate::Gate;
use crate::http::{Head, HeadParts};
use crate::observer::Phase;
use crate::timer::Elapsed;

/// Memory for a body that is set aside before it arrives. `Content-Length` is a claim until then.
const FIRST_BODY_BYTES: u64 = 64 * 1024;

/// A request that wants an answer.
pub struct Exchange {
    /// Boxed: it is a kilobyte, which would be moved about with every exchange and kept room for in every idle connection.
    session: Box<HttpSession>,
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

/// A session that could not be opened: the connection, and why.
pub(crate) type Unopened = (Box<Gate>, Socket, HeadParts, Refusal);

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

    /// Opens a session on the message that begins at the front of the gate's inbox.
    pub(crate) async fn open(
        mut gate: Box<Gate>,
        socket: Socket,
        (skipped, length): (usize, usize),
        parts: HeadParts,
    ) -> Result<Self, Box<Unopened>> {
        let mut prefix = gate.begin(skipped, length, &parts, socket.site.trailer);
        // Its session gets to see the origin-form, whatever the target's form; we keep the bytes as they were.
        let kept = parts.is_absolute().then(|| Bytes::copy_from_slice(&prefix[..length]));
        if let Some(raw) = &kept {
            prefix = in_origin_form(&Head::new(raw.clone(), parts.clone()), raw, &prefix[length..]);
        }
        let mut session = Box::new(HttpSession::new(gate));
        session.set_read_timeout(None);
        session.set_pipelined_prefix(prefix);
        // Everything it needs is in the prefix: this reads nothing.
        if let Err(error) = session.read_request().await {
            // Its type alone: Pingora's error quotes the head, credentials and all.
            tracing::debug!(error = error.etype().as_str(), "the session refuses a head that the gate let through");
            return Err(Box::new((into_gate(session), socket, parts, Refusal::MalformedRequest)));
        }
        let raw = kept.unwrap_or_else(|| session.get_headers_raw_bytes());
        Ok(Self { session, head: Head::new(raw, parts), socket, body: Body::Unread })
    }

    /// Reads the body, the whole of it or nothing.
    ///
    /// `100 Continue` is sent first, if it was asked for. `reserve` is asked before memory is used for more bytes;
    /// its no is [`Refusal::Overloaded`]. A body that is longer than `max`, slower than the listener's bounds, or
    /// ends before its end is refused; the connection is then closed behind the answer, whatever that is.
    pub async fn body(&mut self, max: u64, reserve: &mut (dyn FnMut(u64) -> bool + Send)) -> Result<Bytes, Refusal> {
        let read = match self.body {
            Body::Unread => self.read_body(max, reserve).await,
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
        self.gate().set_data_max(max);
        self.invite().await?;
        let mut pace = Pace::new(&self.socket.site.settings);
        let mut whole = Bytes::new();
        let mut grown = BytesMut::new();
        let mut total = 0;
        loop {
            let read = self.socket.timer.until(|| pace.deadline(total), self.session.read_body_bytes()).await;
            let chunk = match read {
                Ok(Ok(Some(chunk))) if chunk.is_empty() => continue,
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                // What the gate found, or a connection that ended before the body did.
                Ok(Err(_)) => return Err(self.gate().broken().unwrap_or(Refusal::MalformedRequest)),
                Err(Elapsed) => {
                    self.socket.site.observer.timed_out(Phase::Body);
                    return Err(Refusal::BodyTimeout);
                }
            };
            let bytes = chunk.len() as u64;
            if bytes > max - total {
                return Err(Refusal::BodyTooLarge);
            }
            if !reserve(bytes) {
                return Err(Refusal::Overloaded);
            }
            total += bytes;
            // Most bodies come in one piece and stay what they are.
            if whole.is_empty() && grown.is_empty() {
                whole = chunk;
                continue;
            }
            if grown.is_empty() {
                let expected = self.head.content_length().unwrap_or(0).min(FIRST_BODY_BYTES);
                grown.reserve(usize::try_from(expected.max(total)).unwrap_or(0));
                grown.extend_from_slice(&std::mem::take(&mut whole));
            }
            grown.extend_from_slice(&chunk);
        }
        // Two parsers read this body. Where they disagree about it, it has more than one reading.
        let gate = self.gate();
        if !gate.is_done() || gate.data_bytes() != total {
            tracing::error!(
                gate = gate.data_bytes(),
                session = total,
                "the session ends a body where the gate does not"
            );
            return Err(Refusal::MalformedRequest);
        }
        Ok(if grown.is_empty() { whole } else { grown.freeze() })
    }

    /// Sends `100 Continue`, unless the body is on its way or there is none.
    async fn invite(&mut self) -> Result<(), Refusal> {
        let gate = self.gate();
        if !self.head.expects_continue() || gate.is_done() || gate.data_bytes() > 0 || !gate.inbox().is_empty() {
            return Ok(());
        }
        let limit = self.socket.site.settings.write_timeout;
        match self.socket.timer.within(limit, self.session.write_continue_response()).await {
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
        let last = last || answer.close || !self.head.keeps_alive() || !self.consume_unread().await;
        let limit = self.socket.site.settings.write_timeout;
        let to_head = self.session.req_header().method == Method::HEAD;
        let written = {
            let session = &mut *self.session;
            self.socket.timer.within(limit, write(session, answer, to_head, last)).await
        };
        match written {
            Ok(Ok(())) => Some((into_gate(self.session), self.socket, self.head.into_parts(), !last)),
            Ok(Err(error)) => {
                tracing::debug!(error = error.etype().as_str(), "an answer could not be written");
                None
            }
            Err(Elapsed) => {
                self.socket.site.observer.timed_out(Phase::Write);
                None
            }
        }
    }

    /// Is everything of this message out of the way? A body that nobody wanted is, if all of it has arrived.
    async fn consume_unread(&mut self) -> bool {
        match self.body {
            Body::Whole => true,
            Body::Failed(_) => false,
            Body::Unread => self.gate().is_done() && self.session.drain_request_body().await.is_ok(),
        }
    }

    pub(crate) fn site(&self) -> std::sync::Arc<Site> {
        std::sync::Arc::clone(&self.socket.site)
    }

    fn gate(&self) -> &Gate {
        let stream = self.session.stream().as_ref();
        stream.as_any().downcast_ref().expect("the session was made over a gate")
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "it is in its box already, and goes back into one")]
fn into_gate(session: Box<HttpSession>) -> Box<Gate> {
    session.into_inner().into_any().downcast().expect("the session was made over a gate")
}

async fn write(session: &mut HttpSession, answer: Answer, to_head: bool, last: bool) -> pingora_core::Result<()> {
    let status = answer.status_code();
    let body = answer.carries_body(to_head).then(|| answer.body.clone());
    let mut head = ResponseHeader::build_no_case(status, Some(answer.headers.len() + 4))?;
    if !matches!(answer.status, 204 | 304) {
        head.insert_header(header::CONTENT_LENGTH, answer.body.len())?;
    }
    for (name, value) in answer.fields() {
        head.append_header(name, value)?;
    }
    if last {
        session.set_server_keepalive(None);
    }
    session.write_response_header(Box::new(head)).await?;
    if let Some(body) = body.filter(|body| !body.is_empty()) {
        session.write_body(&body).await?;
    }
    session.finish_body().await?;
    Ok(())
}

/// The head again, with its target in origin-form, followed by what has arrived of the body.
fn in_origin_form(head: &Head, raw: &Bytes, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(raw.len() + body.len() + 1);
    out.extend_from_slice(head.method().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(head.origin().as_bytes());
    out.extend_from_slice(&raw[head.method().len() + 1 + head.target().len()..]);
    out.extend_from_slice(body);
    out
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
    use std::fmt::Write as _;

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

    /// Remembers everything that is logged.
    #[derive(Clone, Default)]
    struct Seen(std::sync::Arc<std::sync::Mutex<String>>);

    impl tracing::field::Visit for Seen {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            write!(self.0.lock().unwrap(), "{}={value:?} ", field.name()).unwrap();
        }
    }

    impl tracing::Subscriber for Seen {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test]
    async fn a_head_that_the_session_refuses_is_not_quoted_in_the_log() {
        struct No;
        #[async_trait::async_trait]
        impl crate::Handler for No {
            async fn handle(&self, _: &mut Exchange) -> Answer {
                Answer::new(202)
            }
            fn refused(&self, _: SocketAddr, _: Refusal) -> Answer {
                Answer::new(400)
            }
        }
        // Pingora's parser ends at 256 fields.
        let settings = config::Listener { header_count_max: 1000, ..config::Listener::default() };
        let fields = "X-More: 1\r\n".repeat(300);
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer canary\r\n{fields}\r\n");
        let seen = Seen::default();
        let _logging = tracing::subscriber::set_default(seen.clone());
        let answer = crate::testing::converse(request.as_bytes(), settings, std::sync::Arc::new(No)).await;
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
        let seen = seen.0.lock().unwrap();
        assert!(seen.contains("the session refuses a head") && !seen.contains("canary"), "{seen}");
    }
}
