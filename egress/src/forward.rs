//! One hop: from a vetted destination to the head of its answer, and the body behind it.
//!
//! [`Forward::send`] takes what was decided and nothing that is still to be decided. It uses an idle connection of the same
//! [`Site`](crate::pool::Site), to one of the addresses that were vetted now, or dials one of them; sends the request; and
//! comes back with the head. In order:
//!
//! 1. What is wrong already (a path that nobody could send, a body that says it is too large) is refused: nothing is
//!    dialled.
//! 2. An idle connection is taken if the present rules would vet its address again, its peer has not hung up, and nothing
//!    of its last exchange is left. Otherwise one is dialled.
//! 3. The call's permit is looked at once more, and the request is written. It is never sent twice: if an idle connection turns out to be closed **before hyper took the
//!    request off its queue**, when not one byte of it was written, it goes out on a fresh connection, once. In every other
//!    case the fault is told as it is, with how far the request got ([`SendState`]); whether it may be tried again is for
//!    those who know what it does.
//! 4. The answer's head is checked for having one reading (`framing.rs`), and cleaned (`headers.rs`). Its body follows as
//!    [`Download`], bounded in bytes and time.
//!
//! `SendState` is counted at the socket (`counted.rs`): `not-sent` says that the system took no byte since the request was
//! begun; `partially-sent`, that the body was not read to its end, so that nobody can have the whole; `sent-no-response`,
//! that somebody can.

mod body;
mod counted;
mod download;
mod exchange;
mod fault;
mod framing;
pub mod headers;
mod http2;
mod link;
mod patience;
pub mod redirect;
mod request;
mod source;
mod upload;

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use domain::{ConnectionId, Secret, TenantId};
use http::{HeaderMap, Request, Response};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use outbound::dial::{Connect, TcpConnector};
use outbound::{Alpn, DialSettings, Dialer, Exit, Opening, Rules, TlsClient, Vetted, VettedAddr};
use tokio::time::{Instant, timeout_at};

use crate::pool::{Dialling, Pool, PoolSettings, Seat, Shares, Turn};
use crate::quota::{Park, Permit};
use crate::{Asked, HttpVersion, Refusal, SendState};

pub use body::{BodyFault, RequestBody, Tally};
pub use download::Download;
pub use fault::{HopFault, Tried};
pub use patience::Waits;

use counted::Counting;
use exchange::{Exchange, Failed, Way};
use http2::{Connection, HeadBounds};
use link::Link;
use upload::Upload;

/// Where a hop may go: what the judge says yes to.
#[derive(Debug, Clone)]
pub struct Passage {
    /// The authority with its vetted addresses.
    pub vetted: Vetted,
    /// Where it leaves from.
    pub exit: Exit,
    /// How TLS is spoken; some for `https`, none for `http`.
    pub tls: Option<TlsClient>,
    /// By which an idle connection's address is judged again.
    pub rules: Arc<Rules>,
    /// Of the role that asks.
    pub openings: Arc<[Opening]>,
    /// What it holds while it is under way.
    pub permit: Arc<Permit>,
}

impl Passage {
    /// The address that a connection to there leaves from; none where the kernel chooses.
    fn leaves_from(&self, to: VettedAddr) -> Option<IpAddr> {
        let Exit::From(exit) = &self.exit else { return None };
        match to.socket() {
            SocketAddr::V4(_) => exit.v4.map(IpAddr::V4),
            SocketAddr::V6(_) => exit.v6.map(IpAddr::V6),
        }
    }
}

/// One request to one destination.
#[derive(Debug)]
pub struct Hop {
    /// What is asked. Its authority is the one that was vetted.
    pub asked: Asked,
    /// Whose it is.
    pub tenant: TenantId,
    /// Whose credential it carries, if it carries one.
    pub connection: Option<ConnectionId>,
    /// Where it may go.
    pub passage: Passage,
    /// What travels: cleaned, and without `Host`, framing, or anything of the connection's; those are set here.
    pub headers: HeaderMap,
    /// A credential that goes into the query: encoded, `name=value`. It is neither judged nor printed.
    pub credential_query: Option<Secret>,
    /// Its body.
    pub body: RequestBody,
    /// Ask for a WebSocket. HTTP/2 is not offered then, since no connection of it switches.
    pub upgrade: bool,
    /// How long.
    pub waits: Waits,
    /// How much.
    pub bounds: Bounds,
    /// What counts it, for whoever has to say how much went if nobody answers. A new one.
    pub tally: Arc<Tally>,
}

/// Sizes of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of a request.
    pub request_bytes_max: u64,
    /// Of an answer.
    pub response_bytes_max: u64,
}

/// What is the same for every hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSettings {
    /// How connections come about.
    pub dial: DialSettings,
    /// How many are kept, and for how long.
    pub pool: PoolSettings,
    /// Bytes of an answer's head; 8 KiB at least.
    pub head_bytes_max: usize,
    /// Fields of an answer's head.
    pub head_fields_max: usize,
}

impl Default for ForwardSettings {
    fn default() -> Self {
        Self {
            dial: DialSettings::default(),
            pool: PoolSettings::default(),
            head_bytes_max: 64 << 10,
            head_fields_max: HEAD_FIELDS_OF_HYPER,
        }
    }
}

/// hyper has room for as many on its stack; any other number costs an allocation per answer.
const HEAD_FIELDS_OF_HYPER: usize = 100;
/// hyper takes no smaller buffer.
const HEAD_BYTES_MIN: usize = 8 << 10;

/// How a hop went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Went {
    /// The address that was used.
    pub address: VettedAddr,
    /// The address that it left from.
    pub local: SocketAddr,
    /// Whether the connection had been used before, or is used by others too.
    pub pooled: bool,
    /// What was spoken.
    pub version: HttpVersion,
    /// To a TCP connection; zero for a pooled one.
    pub connect: Duration,
    /// The TLS handshake; zero without one.
    pub tls: Duration,
    /// From the request to the head of its answer.
    pub first_byte: Duration,
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    /// Head and body.
    pub response: Response<Download>,
    /// How it went.
    pub went: Went,
    /// What has gone and come; final when the body has ended or was dropped.
    pub tally: Arc<Tally>,
    /// Behind a 101: the connection itself, with whatever came behind the head.
    pub upgraded: Option<Upgraded>,
    /// To be kept until the answer has ended.
    pub permit: Arc<Permit>,
    /// The provider throttles, and this is what the caller is told.
    pub park: Option<Park>,
}

/// A connection that speaks another protocol now.
pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// Sends hops.
#[derive(Debug)]
pub struct Forward<C = TcpConnector> {
    dialer: Dialer<Counting<C>>,
    pool: Arc<Pool<Link>>,
    shares: Arc<Shares<Connection>>,
    http: http1::Builder,
    head: HeadBounds,
}

impl Forward {
    /// Over real sockets.
    pub fn new(settings: ForwardSettings) -> Self {
        Self::with_connector(TcpConnector, settings)
    }
}

impl<C: Connect> Forward<C>
where
    C::Stream: 'static,
{
    /// Over somebody else's connections; for tests.
    pub fn with_connector(connector: C, settings: ForwardSettings) -> Self {
        let mut http = http1::Builder::new();
        let head_bytes_max = settings.head_bytes_max.max(HEAD_BYTES_MIN);
        http.max_buf_size(head_bytes_max).max_header_size(head_bytes_max);
        if settings.head_fields_max != HEAD_FIELDS_OF_HYPER {
            http.max_headers(settings.head_fields_max);
        }
        Self {
            dialer: Dialer::with_connector(Counting(connector), settings.dial),
            shares: Shares::new(settings.pool.clone()),
            pool: Arc::new(Pool::new(settings.pool)),
            http,
            head: HeadBounds { bytes_max: head_bytes_max, fields_max: settings.head_fields_max },
        }
    }

    /// Sends it, and comes back with the head of its answer.
    pub async fn send(&self, hop: Hop) -> Result<Answered, HopFault> {
        let permit = Arc::clone(&hop.passage.permit);
        self.exchange(hop).await.inspect_err(|fault| permit.failed(fault))
    }

    async fn exchange(&self, hop: Hop) -> Result<Answered, HopFault> {
        let (exchange, mut request) = Exchange::of(hop).map_err(HopFault::before)?;
        if let Some(link) = self.idle(&exchange).await {
            let way = Way::pooled(link.address, link.local);
            match exchange.run(link, way, request, &self.pool).await {
                Ok(answered) => return Ok(answered),
                Err(Failed::NotBegun(again)) if exchange.may_go_again() => request = *again,
                Err(Failed::NotBegun(_)) => return Err(HopFault::of_spent_budget()),
                Err(Failed::Fault(fault)) => return Err(fault),
            }
        }
        let mut dialling = None;
        if exchange.offers_http2() {
            match Box::pin(self.share(&exchange, request)).await {
                Shared::Ended(result) => return result.map(|answered| *answered),
                Shared::NotYet(again, dials) => (request, dialling) = (*again, dials),
            }
        }
        // Most calls find a connection: they have no room for making one.
        let (opened, way) = Box::pin(self.dial(&exchange, dialling)).await?;
        let tried = way.tried();
        let result = match opened {
            Opened::Alone(link) => exchange.run(link, way, request, &self.pool).await,
            Opened::Beside(seat) => Box::pin(exchange.run_beside(seat, way, request)).await,
        };
        match result {
            Ok(answered) => Ok(answered),
            Err(Failed::NotBegun(_)) => {
                let why = BodyFault::new(Refusal::ResponseIncomplete, "the destination hung up before it was asked");
                Err(HopFault::of(why, SendState::NotSent, Some(tried)))
            }
            Err(Failed::Fault(fault)) => Err(fault),
        }
    }

    /// Connections that nobody uses now.
    pub fn idle_connections(&self) -> usize {
        self.pool.len() + self.shares.idle()
    }

    /// Drops idle connections that are too old. For a timer, every few seconds.
    pub fn reap(&self) {
        self.pool.reap(Instant::now());
        self.shares.reap(Instant::now());
    }

    /// Drops every idle connection of those tenants; those in use take no new calls.
    pub fn close_tenants(&self, is_meant: impl Fn(&TenantId) -> bool) {
        self.pool.close_tenants(&is_meant);
        self.shares.close_tenants(&is_meant);
    }

    /// Drops every idle connection, and keeps none from now on: for a drain.
    pub fn close_idle(&self) {
        self.pool.close();
        self.shares.close();
    }

    /// An idle connection that may be used and can be.
    async fn idle(&self, exchange: &Exchange) -> Option<Link> {
        let vetted = &exchange.passage.vetted;
        while let Some(pooled) = self.pool.take(&exchange.site, vetted.addresses(), Instant::now()) {
            let mut link = pooled.item;
            if exchange.may_use(pooled.address) && poll_fn(|cx| Poll::Ready(link.poll_idle(cx))).await {
                return Some(link);
            }
        }
        None
    }

    /// Over a connection that others use, too, if there is one, or will be in a moment.
    async fn share(&self, exchange: &Exchange, mut request: Request<Upload>) -> Shared {
        let patient_until = Instant::now() + http2::PATIENCE;
        let patient_until = exchange.end.map_or(patient_until, |end| end.min(patient_until));
        let mut is_patient = true;
        for _ in 0..SHARED_TRIES_MAX {
            let addresses = exchange.passage.vetted.addresses();
            let seat = match self.shares.turn(&exchange.site, addresses, is_patient, Instant::now()) {
                Turn::Dial(dialling) => return Shared::NotYet(Box::new(request), Some(dialling)),
                Turn::Wait(waiting) => {
                    is_patient = timeout_at(patient_until, waiting.changed()).await.is_ok();
                    continue;
                }
                Turn::Sit(seat) => seat,
            };
            let connection = Arc::clone(seat.share());
            if !exchange.may_use(connection.address) {
                self.shares.retire(&exchange.site, &connection);
                continue;
            }
            let way = Way::pooled(connection.address, connection.local);
            match exchange.run_beside(seat, way, request).await {
                Ok(answered) => return Shared::Ended(Ok(Box::new(answered))),
                Err(Failed::NotBegun(again)) if exchange.may_go_again() => request = *again,
                Err(Failed::NotBegun(_)) => return Shared::Ended(Err(HopFault::of_spent_budget())),
                Err(Failed::Fault(fault)) => return Shared::Ended(Err(fault)),
            }
        }
        Shared::NotYet(Box::new(request), None)
    }

    /// A connection for this call, whatever the destination chooses to speak on it.
    async fn dial(
        &self,
        exchange: &Exchange,
        dialling: Option<Dialling<Connection>>,
    ) -> Result<(Opened, Way), HopFault> {
        let Some(end) = exchange.end else { return self.open(exchange, dialling).await };
        timeout_at(end, self.open(exchange, dialling)).await.unwrap_or_else(|_| {
            let why = "the call took too long before there was a connection";
            Err(HopFault::before(BodyFault::new(Refusal::ConnectTimedOut, why)))
        })
    }

    async fn open(
        &self,
        exchange: &Exchange,
        dialling: Option<Dialling<Connection>>,
    ) -> Result<(Opened, Way), HopFault> {
        let Passage { vetted, exit, .. } = &exchange.passage;
        let began = Instant::now();
        let closed = |error: hyper::Error| HopFault::before(fault::of_exchange(&error));
        let Some(tls) = &exchange.site.tls else {
            let dialled = self.dialer.dial(vetted, exit).await;
            let dialled = dialled.map_err(|fault| HopFault::of_dial(&fault, &exchange.passage))?;
            let wire = Arc::clone(dialled.stream.wire());
            let way = Way::dialled(&dialled, wire.connected.duration_since(began), Duration::ZERO);
            let link = Link::open(&self.http, dialled, wire).await.map_err(closed)?;
            return Ok((Opened::Alone(link), way));
        };
        let dialled = Box::pin(self.dialer.dial_tls(vetted, exit, tls)).await;
        let dialled = dialled.map_err(|fault| HopFault::of_dial(&fault, &exchange.passage))?;
        let wire = Arc::clone(dialled.stream.get_ref().0.wire());
        let connected = wire.connected;
        let way = Way::dialled(&dialled, connected.duration_since(began), connected.elapsed());
        if dialled.alpn != Some(Alpn::Http2) {
            dialling.into_iter().for_each(Dialling::alone);
            let link = Link::open(&self.http, dialled, wire).await.map_err(closed)?;
            return Ok((Opened::Alone(link), way));
        }
        let changed = dialling.as_ref().map_or_else(Arc::default, |dialling| Arc::clone(dialling.changed()));
        let opened = Connection::open(dialled, connected, self.head, Arc::clone(&changed)).await;
        let connection = opened.map_err(HopFault::before)?;
        let seat = match dialling {
            Some(dialling) => dialling.sit(connection),
            None => Seat::alone(connection, changed),
        };
        Ok((Opened::Beside(seat), way))
    }
}

/// What a call has dialled.
enum Opened {
    Alone(Link),
    Beside(Seat<Connection>),
}

/// What came of looking for a connection that others use.
enum Shared {
    Ended(Result<Box<Answered>, HopFault>),
    /// There is none that will have it: it dials, and others may wait for that.
    NotYet(Box<Request<Upload>>, Option<Dialling<Connection>>),
}

/// Connections that a call tries before it has its own: each that it tries in vain is one that just ended, or that others
/// were quicker on.
const SHARED_TRIES_MAX: usize = 64;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
