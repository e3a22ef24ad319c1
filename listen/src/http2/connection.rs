//! One connection of HTTP/2, from its preface to its end: streams are taken, polled and bounded here, all in the
//! connection's own task.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use config::Listener;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::time::Instant;

use super::head::{self, Here};
use super::meter::{Meter, Metered};
use super::tunnel::Resets;
use super::{STREAM_BYTES, Stream};
use crate::connection::{Drain, Fault, Site, Socket, before_drained, handle, refusal_of};
use crate::drain::Open;
use crate::observer::Phase;
use crate::outbox::Outbox;
use crate::timer::{Elapsed, Timer};
use crate::tls::Secured;
use crate::transport::Transport;
use crate::{Exchange, Reply, Streamed, respond, takeover, wire};

/// What HPACK counts for each field beside its bytes (RFC 9113, §6.5.2).
const FIELD_OVERHEAD: u32 = 32;
/// Header sections that are somewhat too large are read, so that they get the answer that they get in HTTP/1.1; above
/// that the codec answers with a bare 431.
const HEADER_BYTES_BESIDE: u32 = 16 * 1024;
/// Streams that we have reset and whose frames may still come.
const RESET_STREAMS_MAX: usize = 64;
/// Streams that break the protocol, in the life of a connection: clients that do it do it in every one.
const BROKEN_STREAMS_MAX: usize = 64;
/// What the codec holds of a stream that its client does not take.
const SEND_BYTES_MAX: usize = 64 * 1024;

type Running<'c> = Pin<Box<dyn Future<Output = ()> + Send + 'c>>;

/// Serves a connection until it ends.
pub(crate) async fn serve(transport: Transport, socket: Socket, open: &Open, streams_max: u32) {
    let Socket { site, peer, local, tls, mut timer, .. } = socket;
    let meter = Meter::new(streams_max);
    let mut drain = Drain::new(open.connections());
    let shaking = codec(&site, streams_max).handshake(Metered::new(transport, &meter));
    let connection = match before_drained(&mut timer, &mut drain, site.settings.header_timeout, shaking).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "what came is no HTTP/2"),
        Err(Elapsed) if drain.has_begun() => return,
        Err(Elapsed) => return site.observer.timed_out(Phase::Header),
    };
    let left = site.settings.requests_per_connection_max.max(1);
    let mut driver = Driver {
        connection,
        streams: FuturesUnordered::new(),
        meter,
        resets: Resets::default(),
        drain,
        timer,
        site,
        open,
        peer,
        local,
        tls,
        left,
        streams_max: 2 * streams_max as usize,
        state: State::Serving,
        idle_by: None,
    };
    poll_fn(|cx| driver.poll(cx)).await;
    driver.part().await;
}

fn codec(site: &Site, streams_max: u32) -> Builder {
    let settings = &site.settings;
    let beside = FIELD_OVERHEAD * u32::from(settings.header_count_max) + HEADER_BYTES_BESIDE;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(streams_max)
        .initial_window_size(STREAM_BYTES)
        // As much as all streams together: one that is not taken holds up itself and no other.
        .initial_connection_window_size(STREAM_BYTES.saturating_mul(streams_max))
        .max_header_list_size(settings.header_bytes_max.saturating_add(beside))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(Some(BROKEN_STREAMS_MAX));
    builder
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    /// The client was told to open no more streams (GOAWAY). Those that there are go on, and those that it opened before
    /// it knew are taken until then. The codec takes them until it is told that the client knows, which may be never.
    Leaving(Instant),
    /// All is over but the goodbye, which has until then.
    Cut(Instant),
}

struct Driver<'c> {
    connection: h2::server::Connection<Metered<Transport>, Bytes>,
    streams: FuturesUnordered<Running<'c>>,
    meter: Meter,
    resets: Resets,
    drain: Drain,
    timer: Timer,
    site: Arc<Site>,
    open: &'c Open,
    peer: SocketAddr,
    local: SocketAddr,
    tls: Option<Arc<Secured>>,
    /// Streams that may still be opened.
    left: u32,
    /// Streams that may be under way here: as many again as the codec takes. It forgets one that is reset; whoever
    /// answers it may need a moment longer.
    streams_max: usize,
    state: State,
    /// When a connection without streams has idled for long enough.
    idle_by: Option<Instant>,
}

impl Driver<'_> {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.poll_accept(cx).is_none() {
                return Poll::Ready(());
            }
            while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(cx) {}
            self.leave_if_distrusted();
            // What streams have said is sent by the connection, which may have more of them for us then.
            match self.poll_accept(cx) {
                None => return Poll::Ready(()),
                Some(0) => {}
                Some(_) => continue,
            }
            if self.resets.run() {
                continue;
            }
            if self.meter.is_flooded() && self.cut(Reason::ENHANCE_YOUR_CALM) {
                self.site.observer.flooded();
                continue;
            }
            if !ready!(self.poll_time(cx)) {
                return Poll::Ready(());
            }
        }
    }

    /// Takes streams that were opened, and says how many; none where the connection is over.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        let mut count = 0;
        while let Poll::Ready(opened) = self.connection.poll_accept(cx) {
            match opened? {
                Ok((request, respond)) => self.take(request, respond),
                Err(error) => {
                    // The codec has bounds of its own for streams that are reset as soon as they are opened.
                    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                        self.site.observer.flooded();
                    }
                    tracing::debug!(peer = %self.peer, %error, "a connection of HTTP/2 broke");
                    return None;
                }
            }
            count += 1;
        }
        Some(count)
    }

    /// The connection is over. Whoever works on a stream of it sees that, as over HTTP/1.1, and has a moment to say what
    /// became of it and to end what it holds: dropped, it could do neither.
    async fn part(self) {
        let Self { connection, mut streams, mut timer, site, peer, .. } = self;
        // This is what breaks its streams.
        drop(connection);
        let parting = async { while streams.next().await.is_some() {} };
        if let Err(Elapsed) = timer.within(site.settings.linger_timeout, parting).await {
            tracing::debug!(%peer, left = streams.len(), "streams do not end with their connection");
        }
    }

    fn take(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let is_late = match self.state {
            State::Serving => false,
            State::Leaving(by) => Instant::now() >= by,
            State::Cut(_) => true,
        };
        if is_late || self.streams.len() >= self.streams_max {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let (parts, recv) = request.into_parts();
        let request = Request::from_parts(parts, ());
        let server_name = self.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        let own_names = self.tls.as_ref().map_or(&[][..], |tls| &tls.own_names);
        let head = head::read(&request, Here { server_name, own_names, local: self.local }, &self.site);
        let to_head = request.method() == http::Method::HEAD;
        let stream = Box::new(Stream::new(recv, respond, self.meter.clone(), self.resets.clone()));
        let socket = Socket::new(&self.site, self.open.connections(), self.peer, self.local);
        let socket = Socket { tls: self.tls.clone(), ..socket };
        self.streams.push(match head {
            Ok(head) => Box::pin(serve_stream(Exchange::of_stream(stream, head, socket), self.open)),
            Err(fault) => Box::pin(refuse(stream, socket, fault, to_head)),
        });
        // It may be answered before anybody looks at the time, and is none the less a sign of life.
        self.idle_by = None;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if self.state == State::Serving {
            self.state = State::Leaving(Instant::now() + self.site.settings.linger_timeout);
            self.idle_by = None;
            self.connection.graceful_shutdown();
        }
    }

    /// At once: a stream that the client opened before it knew is refused, which it may ask for again elsewhere.
    fn leave_if_distrusted(&mut self) {
        if self.tls.as_ref().is_some_and(|tls| tls.distrusted.load(Ordering::Relaxed)) {
            self.leave();
            if let State::Leaving(by) = &mut self.state {
                *by = Instant::now().min(*by);
            }
        }
    }

    /// False where that was done before.
    fn cut(&mut self, reason: Reason) -> bool {
        let is_first = !matches!(self.state, State::Cut(_));
        if is_first {
            // Whoever cannot be believed is owed no answer: this breaks all streams.
            self.connection.abrupt_shutdown(reason);
            self.state = State::Cut(Instant::now() + self.site.settings.linger_timeout);
        }
        is_first
    }

    /// Ready when it was time for something: true where that has to be sent, false where it is the end.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let State::Cut(by) = self.state {
            return self.timer.poll_elapsed(by, cx).map(|Elapsed| false);
        }
        if self.state == State::Serving && self.drain.poll_begun(cx).is_ready() {
            self.leave();
            return Poll::Ready(true);
        }
        let settings = &self.site.settings;
        if self.streams.is_empty() {
            let limit = if self.state == State::Serving { settings.idle_timeout } else { settings.linger_timeout };
            self.idle_by.get_or_insert_with(|| Instant::now() + limit);
        } else {
            self.idle_by = None;
        }
        // What has half come holds up no other deadline: whoever drips would never be idle.
        let whole_by = self.meter.coming_since().map(|since| since + settings.header_timeout);
        let Some(by) = whole_by.into_iter().chain(self.idle_by).min() else { return Poll::Pending };
        let Elapsed = ready!(self.timer.poll_elapsed(by, cx));
        if self.idle_by != Some(by) {
            self.site.observer.timed_out(Phase::Header);
            self.cut(Reason::ENHANCE_YOUR_CALM);
            return Poll::Ready(true);
        }
        if self.state != State::Serving {
            return Poll::Ready(false);
        }
        self.site.observer.timed_out(Phase::Idle);
        self.leave();
        Poll::Ready(true)
    }
}

/// Answers one stream.
async fn serve_stream(mut exchange: Exchange, open: &Open) {
    let busy = open.busy();
    let site = exchange.site();
    let reply = handle(&site, &mut exchange).await;
    site.observer.answered(reply.status());
    let (streamed, limit) = match reply {
        Reply::Answer(answer) => (Box::new(Streamed::from(answer)), whole_limit(&site.settings)),
        Reply::Stream(streamed) => (streamed, site.settings.write_timeout),
        Reply::Takeover(takeover) => {
            let running = takeover::hand_over(exchange, takeover).await;
            drop(busy);
            return running.await;
        }
    };
    // What is left of the request's body is not wanted any more: the codec says so when the stream is dropped.
    let _after = respond::stream(&mut exchange, streamed, false, limit).await;
}

/// How long a client may take nothing of an answer that is there whole. Such an answer is small and nobody works on it as it
/// comes, so whoever opens no window for it holds a stream for nothing: it has as long as for a request's head.
fn whole_limit(settings: &Listener) -> Duration {
    settings.write_timeout.min(settings.header_timeout)
}

/// Answers what is no request.
async fn refuse(mut stream: Box<Stream>, mut socket: Socket, fault: Fault, to_head: bool) {
    stream.let_go();
    let streamed = Streamed::from(refusal_of(&socket.site, socket.peer, fault, ""));
    let framing = wire::Framing::of_answer(&streamed, to_head);
    let headers = wire::fields_of_stream(&streamed.headers, framing);
    let bodiless = matches!(framing, wire::Framing::Bodiless(_));
    if !stream.send_head(streamed.status, headers, bodiless) || bodiless {
        return;
    }
    let (mut outbox, mut body) = (Outbox::default(), streamed.body);
    let sending = poll_fn(|cx| {
        // It is there whole.
        while let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(cx) {
            outbox.push(frame.into_data().unwrap_or_default());
        }
        while !outbox.is_empty() {
            ready!(stream.poll_send(cx, &mut outbox))?;
        }
        Poll::Ready(io::Result::Ok(()))
    });
    let limit = whole_limit(&socket.site.settings);
    match socket.timer.within(limit, sending).await {
        Ok(Ok(())) => {
            // A client that has gone needs none.
            let _ended = stream.finish(None);
        }
        Ok(Err(_)) => {}
        Err(Elapsed) => socket.site.observer.timed_out(Phase::Write),
    }
}
