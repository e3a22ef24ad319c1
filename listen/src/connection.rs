//! One connection, from its first byte to its last: head, exchange, answer, and again.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use config::Listener;
use domain::Refusal;
use pingora_core::protocols::http::date;
use tokio::time::Instant;

use crate::drain::{Connections, Open};
use crate::exchange::After;
use crate::gate::Gate;
use crate::http::{Form, HeadLimits, HeadParser, HeadParts, Progress, TrailerLimits};
use crate::observer::{Observer, Phase};
use crate::service::Behaviour;
use crate::timer::{Elapsed, Timer};
use crate::tls::Secured;
use crate::transport::Transport;
use crate::{Answer, Exchange, Handler, Reply, reset, respond, takeover};

/// How long a connection without a request stays open when a drain begins, for a request that is on its way already.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_millis(250);

/// After the last answer: for how many bytes we go on reading what the client still sends. Closing at once would make
/// the kernel reset the connection, and the reset would overtake the answer.
const LINGER_BYTES: usize = 1024 * 1024;

/// What all connections of a service share.
pub(crate) struct Site {
    pub(crate) settings: Listener,
    pub(crate) limits: HeadLimits,
    pub(crate) trailer: TrailerLimits,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) behaviour: Behaviour,
}

impl Site {
    pub(crate) fn new(settings: Listener, handler: Arc<dyn Handler>, observer: Arc<dyn Observer>) -> Self {
        let limits = HeadLimits {
            target_bytes: settings.target_bytes_max as usize,
            header_bytes: settings.header_bytes_max as usize,
            header_count: usize::from(settings.header_count_max),
        };
        let trailer = TrailerLimits { bytes: limits.header_bytes, count: limits.header_count };
        Self { settings, limits, trailer, handler, observer, behaviour: Behaviour::default() }
    }
}

/// What a connection keeps from one request to the next, beside the gate.
pub(crate) struct Socket {
    pub(crate) site: Arc<Site>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// What TLS has established; none without it.
    pub(crate) tls: Option<Arc<Secured>>,
    pub(crate) timer: Timer,
}

impl Socket {
    pub(crate) fn new(site: &Arc<Site>, connections: &Arc<Connections>, peer: SocketAddr, local: SocketAddr) -> Self {
        let timer = Timer::new(site.settings.idle_timeout);
        Self { site: Arc::clone(site), connections: Arc::clone(connections), peer, local, tls: None, timer }
    }

    pub(crate) fn with_tls(self, secured: Arc<Secured>) -> Self {
        Self { tls: Some(secured), ..self }
    }
}

/// What became of waiting for a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Head {
        skipped: usize,
        length: usize,
    },
    /// Nothing is asked, so nothing is answered.
    Close,
    Refuse(Fault),
}

/// Why what came is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused(Refusal),
    /// `Host` and target name two places.
    HostDiffers,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(transport: Transport, mut socket: Socket, open: &Open) {
    let mut gate = Box::new(Gate::new(transport));
    let mut parser = HeadParser::new(socket.site.behaviour.forms);
    let mut parts = HeadParts::default();
    let mut drain = Drain::new(open.connections());
    let mut left = socket.site.settings.requests_per_connection_max.max(1);
    loop {
        parser.reset(parts);
        let place = match next(&mut gate, &mut socket, &mut parser, &mut drain).await {
            Next::Head { skipped, length } => (skipped, length),
            Next::Close if gate.is_tls() => return boxed(goodbye(gate, socket)).await,
            Next::Close => return,
            Next::Refuse(fault) => return refuse(gate, socket, fault, parser.why()).await,
        };
        let busy = open.busy();
        let mut exchange = Exchange::begin(gate, socket, place, parser.take_parts());
        let site = exchange.site();
        let reply = handle(&site, &mut exchange).await;
        site.observer.answered(reply.status());
        left -= 1;
        let last = left == 0 || drain.has_begun();
        // An idle connection keeps room for all that may become of a request: what few need is boxed.
        let after = match reply {
            Reply::Answer(answer) => exchange.answer(answer, last).await,
            Reply::Stream(streamed) => {
                // Others on this thread that are as far have their turn first: answers that leave together wake a client
                // once. (HTTP/2 gathers those of a connection by itself.)
                tokio::task::yield_now().await;
                boxed(respond::stream(&mut exchange, streamed, last, site.settings.write_timeout)).await
            }
            Reply::Takeover(takeover) => {
                let running = boxed(takeover::hand_over(exchange, takeover)).await;
                drop(busy);
                return running.await;
            }
        };
        drop(busy);
        let Some(left) = exchange.give_back() else { return };
        (gate, socket, parts) = left;
        match after {
            After::Again => {}
            After::Close => return linger(gate, socket).await,
            After::Lost => return,
            After::Cut => return boxed(cut(gate, socket)).await,
        }
    }
}

/// Ends it with a reset.
async fn cut(gate: Box<Gate>, socket: Socket) {
    let (transport, _arrived) = gate.into_raw();
    reset::once_delivered(transport, socket.site.settings.linger_timeout).await;
}

fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(future)
}

/// The handler's fault, as its client is told of it.
fn fault(site: &Site, peer: SocketAddr) -> Reply {
    Answer { close: true, ..site.handler.refused(peer, Refusal::Internal) }.into()
}

/// A reply that the client could take for something else does not suit: an interim status, 2xx to CONNECT without a tunnel
/// behind it, and a connection taken that nobody offered. What is above 599 is no status of HTTP's (RFC 9110, 15), and
/// some servers answer by it all the same: whoever passes an answer on passes that on. (A plain answer looks after its
/// status itself.)
fn is_suitable(reply: &Reply, exchange: &mut Exchange) -> bool {
    let connect = exchange.head().form() == Form::Authority;
    match reply {
        Reply::Takeover(takeover) => takeover.suits(exchange),
        Reply::Answer(_) if !connect => true,
        Reply::Answer(_) | Reply::Stream(_) => {
            (200..1_000).contains(&reply.status()) && !(connect && reply.status() < 300)
        }
    }
}

/// Calls the handler. A panic in it costs one request and not the connection's task, which has answers to write.
pub(crate) async fn handle(site: &Site, exchange: &mut Exchange) -> Reply {
    let peer = exchange.peer();
    let mut handling = site.handler.handle(exchange);
    let outcome = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx))) {
        Ok(Poll::Ready(answer)) => Poll::Ready(Some(answer)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(None),
    })
    .await;
    drop(handling);
    let Some(reply) = outcome else {
        site.observer.panicked();
        tracing::error!(%peer, "a handler panicked");
        return fault(site, peer);
    };
    if !is_suitable(&reply, exchange) {
        tracing::error!(%peer, status = reply.status(), "a reply does not suit its request");
        return fault(site, peer);
    }
    reply
}

/// Waits for the next head: idle deadline before its first byte, header deadline from then on.
pub(crate) async fn next(gate: &mut Gate, socket: &mut Socket, parser: &mut HeadParser, drain: &mut Drain) -> Next {
    let Socket { site, timer, local, .. } = socket;
    let mut deadline = None;
    loop {
        if !gate.inbox().is_empty() {
            match parser.advance(gate.inbox(), &site.limits) {
                Ok(Progress::Complete { .. }) if parser.host_differs(*local) => {
                    return Next::Refuse(Fault::HostDiffers);
                }
                Ok(Progress::Complete { skipped, head }) => return Next::Head { skipped, length: head },
                Ok(Progress::More) => {}
                Err(refusal) => return Next::Refuse(Fault::Refused(refusal)),
            }
        }
        // An empty line in front of a request is none yet.
        let begun = !gate.inbox().is_empty() && !parser.is_blank();
        let filled = if begun {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + site.settings.header_timeout);
            timer.until(|| deadline, poll_fn(|cx| gate.poll_fill(cx))).await
        } else {
            idle(gate, timer, drain, site.settings.idle_timeout).await
        };
        match filled {
            Ok(Ok(0)) if begun => return Next::Refuse(Fault::Refused(parser.cut_off())),
            Ok(Ok(0) | Err(_)) => return Next::Close,
            Ok(Ok(_)) => {}
            Err(Elapsed) if begun => {
                site.observer.timed_out(Phase::Header);
                return Next::Refuse(Fault::Refused(Refusal::HeaderTimeout));
            }
            Err(Elapsed) => {
                if !drain.has_begun() {
                    site.observer.timed_out(Phase::Idle);
                }
                return Next::Close;
            }
        }
    }
}

/// Waits for a first byte, for the idle time or, in a drain, for a moment.
async fn idle(
    gate: &mut Gate,
    timer: &mut Timer,
    drain: &mut Drain,
    limit: Duration,
) -> Result<io::Result<usize>, Elapsed> {
    before_drained(timer, drain, limit, poll_fn(|cx| gate.poll_fill(cx))).await
}

/// Waits for what a client has to begin with, for so long or, in a drain, for a moment.
pub(crate) async fn before_drained<F: Future>(
    timer: &mut Timer,
    drain: &mut Drain,
    limit: Duration,
    future: F,
) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut deadline = None;
    let mut shortened = false;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let deadline = deadline.get_or_insert_with(|| Instant::now() + limit);
        if !shortened && drain.poll_begun(cx).is_ready() {
            shortened = true;
            *deadline = (*deadline).min(Instant::now() + DRAIN_IDLE);
        }
        timer.poll_elapsed(*deadline, cx).map(Err)
    })
    .await
}

/// The answer to what is no request. `why` says which check failed, where it is malformed and that is known.
pub(crate) fn refusal_of(site: &Site, peer: SocketAddr, fault: Fault, why: &'static str) -> Answer {
    match fault {
        Fault::Refused(refusal) => {
            site.observer.refused(refusal);
            if refusal == Refusal::MalformedRequest && !why.is_empty() {
                return site.handler.malformed(peer, why);
            }
            site.handler.refused(peer, refusal)
        }
        Fault::HostDiffers => {
            site.observer.refused(Refusal::MalformedRequest);
            site.handler.host_differs(peer)
        }
    }
}

/// Answers what is no request, and closes.
async fn refuse(mut gate: Box<Gate>, mut socket: Socket, fault: Fault, why: &'static str) {
    let site = Arc::clone(&socket.site);
    let to_head = gate.inbox().starts_with(b"HEAD ");
    let answer = refusal_of(&site, socket.peer, fault, why);
    let bytes = answer.encode(to_head, true, &date::get_cached_date());
    drop(answer);
    match socket.timer.within(site.settings.write_timeout, gate.write(&bytes)).await {
        Ok(Ok(())) => linger(gate, socket).await,
        Ok(Err(_)) => {}
        Err(Elapsed) => site.observer.timed_out(Phase::Write),
    }
}

/// Says that this is the end: without the word of TLS a client could not tell it from a line that was cut.
async fn goodbye(mut gate: Box<Gate>, mut socket: Socket) {
    let limit = socket.site.settings.linger_timeout;
    let _said = socket.timer.within(limit, gate.finish()).await;
}

/// Closes in such a way that the client gets to read the last answer.
async fn linger(mut gate: Box<Gate>, mut socket: Socket) {
    let closing = async {
        gate.finish().await?;
        let mut left = LINGER_BYTES;
        loop {
            match poll_fn(|cx| gate.poll_discard(cx)).await? {
                0 => return Ok::<_, io::Error>(()),
                read if read >= left => return Ok(()),
                read => left -= read,
            }
        }
    };
    // However this ends, it is the end: the client has gone, or has had its time.
    let _ended = socket.timer.within(socket.site.settings.linger_timeout, closing).await;
}

/// Knows when a drain begins. Its waiter is registered once a connection and not once a request.
pub(crate) struct Drain {
    connections: Arc<Connections>,
    begins: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    begun: bool,
}

impl Drain {
    pub(crate) fn new(connections: &Arc<Connections>) -> Self {
        let mut draining = connections.draining();
        let begins = Box::pin(async move {
            // An error is a service that is gone, which is a drain if anything is.
            let _begun = draining.wait_for(|draining| *draining).await;
        });
        Self { connections: Arc::clone(connections), begins, begun: false }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun || self.connections.is_draining()
    }

    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.begun {
            match self.begins.as_mut().poll(cx) {
                Poll::Ready(()) => self.begun = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}
