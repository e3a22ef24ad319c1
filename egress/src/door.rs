//! The listener's side: from a request to the path, and from the path's answer to the listener.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use listen::{Answer, Exchange, Form, Handler, Head, Interrupted, Reply, Streamed};
use outbound::dial::Connect;
use outbound::{Authority, Scheme, Target};
use ratelimit::retry_budget::Attempt;
use ratelimit::{Now, PairKey};

use crate::answer::{HOPS, Told};
use crate::caller::{Arrival, GrantFault, Identified, Tls, Unproved, presented};
use crate::connections::Entry;
use crate::forward::headers::{self, HeaderFault};
use crate::no::No;
use crate::serve::Terms;
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use crate::tunnel::Side;
use crate::{Asked, Egress, Refusal, Way};

/// By which door a request comes in.
#[derive(Debug)]
pub(crate) enum Door {
    Connect,
    /// The URL as it was written.
    Absolute(Box<str>),
    /// What follows `/c/`: the connection, as it was written.
    Governed(Box<str>),
}

impl Door {
    pub(crate) fn of(head: &Head) -> Result<Self, No> {
        match head.form() {
            Form::Authority => Ok(Self::Connect),
            Form::Http | Form::Https => {
                // The gate saw every byte: it is ASCII.
                let target = std::str::from_utf8(head.target()).unwrap_or_default();
                Ok(Self::Absolute(target.into()))
            }
            Form::Origin => {
                let connection = head.path().strip_prefix("/c/").map(|rest| rest.split('/').next().unwrap_or_default());
                let why = "a request in origin-form that is not for /c/: this is a proxy and no origin server";
                connection
                    .map(|connection| Self::Governed(connection.into()))
                    .ok_or_else(|| No::new(Refusal::RequestMalformed, why))
            }
        }
    }

    /// The hop that is asked for.
    pub(crate) fn asked(&self, head: &Head, entry: Option<&Entry>) -> Result<Asked, No> {
        let malformed = |why: outbound::Malformed| No::new(Refusal::TargetMalformed, why.to_string());
        let method = Method::from_bytes(head.method().as_bytes())
            .map_err(|_| No::new(Refusal::RequestMalformed, "the method is no token"))?;
        match self {
            Self::Connect => {
                let authority = Authority::with_port(head.authority().unwrap_or_default()).map_err(malformed)?;
                Ok(Asked { way: Way::Connect, method, scheme: Scheme::Https, authority, path_and_query: "".into() })
            }
            Self::Absolute(target) => {
                let Target { scheme, authority, .. } = Target::parse(target.as_bytes()).map_err(malformed)?;
                Ok(Asked { way: Way::Absolute, method, scheme, authority, path_and_query: head.origin().into() })
            }
            Self::Governed(connection) => {
                let rest = head.origin();
                let rest =
                    rest.strip_prefix("/c/").and_then(|rest| rest.strip_prefix(&**connection)).unwrap_or_default();
                let entry = entry.ok_or_else(|| No::new(Refusal::Internal, "no connection was looked up"))?;
                let asked = entry.connection.ask(method, rest);
                asked.map_err(|why| No::new(Refusal::RequestMalformed, why.to_string()))
            }
        }
    }

    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Connect => Way::Connect,
            Self::Absolute(_) => Way::Absolute,
            Self::Governed(_) => Way::Governed,
        }
    }
}

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    /// Who asks. The proof is where the door has it.
    pub(crate) fn identify(&self, node: &Snapshot, door: &Door, exchange: &mut Exchange) -> Result<Identified, No> {
        let tls = exchange.tls().map(|tls| tls.client.as_ref().map_or(Tls::Anonymous, Tls::Mutual));
        let tls = tls.unwrap_or(Tls::Absent);
        let (peer, local, is_distrusted) = (exchange.peer().ip(), exchange.local().ip(), exchange.is_distrusted());
        let arrival = Arrival { peer, local, tls, is_distrusted };
        let head = exchange.head();
        let identify = |presented| self.parts.callers.identify(presented, &arrival);
        let identified = match door {
            Door::Connect | Door::Absolute(_) => identify(presented::of_proxy_request(head.headers())),
            Door::Governed(_) => {
                identify(presented::of_governed_call(head.headers(), head.query(), &node.connections.slots()))
            }
        };
        identified.map_err(|unproved| {
            // To find that out costs us something, and to make up another one costs nothing: a connection has one.
            if unproved == Unproved::Grant(GrantFault::Signature) {
                exchange.distrust();
            }
            No::new(unproved.refusal(), unproved.to_string())
        })
    }

    fn shows_an_ended_certificate(&self, exchange: &Exchange) -> bool {
        let certificate = exchange.tls().and_then(|tls| tls.client.as_ref());
        certificate.is_some_and(|certificate| !certificate.is_good(self.parts.ends.clock.unix_ms()))
    }
}

impl From<Interrupted> for No {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Gone => Self::new(Refusal::RequestTimeout, "the caller hung up before there was an answer"),
            Interrupted::Elapsed => Self::new(Refusal::ResponseTimedOut, "the call took too long"),
        }
    }
}

#[async_trait]
impl<C: Connect + 'static> Handler for Egress<C>
where
    C::Stream: Side + 'static,
{
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        let mut trace = self.trace(exchange.peer());
        match self.serve(exchange, &mut trace).await {
            Ok(reply) => reply,
            Err(no) => {
                trace.shows(exchange.head());
                // Behind a tunnel that was refused there may be the bytes of what it was for: they are no request.
                let closes = trace.way != Some(Way::Governed) && no.refusal != Refusal::CallerUnknown
                    || trace.way == Some(Way::Connect)
                    // The client has to show a certificate anew, which it does on another connection.
                    || self.shows_an_ended_certificate(exchange);
                let response = self.refused_answer(&mut trace, &no).map(http_body_util::Full::new);
                let streamed = Streamed::new(response);
                if closes { streamed.and_close() } else { streamed }.into()
            }
        }
    }

    fn refused(&self, peer: SocketAddr, refusal: domain::Refusal) -> Answer {
        self.not_a_request(peer, &No::from(refusal))
    }

    fn malformed(&self, peer: SocketAddr, why: &'static str) -> Answer {
        self.not_a_request(peer, &No::new(Refusal::RequestMalformed, why))
    }

    fn host_differs(&self, peer: SocketAddr) -> Answer {
        self.not_a_request(peer, &No::new(Refusal::HostMismatch, "Host names another place than the target"))
    }
}

impl<C> Egress<C> {
    /// What came is no request. It has a record all the same, by the id that its answer shows.
    fn not_a_request(&self, peer: SocketAddr, no: &No) -> Answer {
        answer(self.refused_answer(&mut self.trace(peer), no))
    }

    /// To whom the record is of, where it leads; none before that is known.
    fn retries_left(&self, trace: &Trace) -> Option<u32> {
        let record = trace.record();
        let (tenant, quota) = (record.tenant.as_ref()?, &self.parts.quota);
        let node = self.parts.snapshot.load();
        let entry = record.connection.as_ref().and_then(|id| node.connections.get(tenant, id));
        let pair = match entry.and_then(|entry| entry.connection.metering()) {
            Some(metering) => metering.pair(),
            None if !record.method.is_empty() => PairKey::authority(tenant, &record.destination),
            None => return None,
        };
        Some(quota.budgets.remaining(pair, node.quota.budget, Now::of(&*quota.clock)))
    }

    fn refused_answer(&self, trace: &mut Trace, no: &No) -> Response<Bytes> {
        let told = Told {
            refusal: no.refusal,
            way: trace.way,
            send_state: no.send_state,
            correlation: trace.correlation,
            error_type: no.error_type,
            rcode: no.rcode.as_deref(),
            park: no.park.as_deref(),
            retries_left: self.retries_left(trace),
        };
        let mut response = told.response(&self.parts.snapshot.load().settings.name);
        if let Some(hops) = &no.hops {
            response.headers_mut().insert(HOPS, (**hops).clone());
        }
        trace.refused(no);
        response
    }
}

/// The connection that is called, if it is one: the caller's own, with the proof where that one's SDK puts it. Whoever
/// is known by a certificate presented nothing; what is in the SDK's place is emptied all the same.
pub(crate) fn connection<'n>(
    node: &'n Snapshot,
    door: &Door,
    identified: &Identified,
    head: &Head,
) -> Result<Option<&'n Entry>, No> {
    let Door::Governed(id) = door else { return Ok(None) };
    let unproved = |unproved: Unproved| No::new(unproved.refusal(), unproved.to_string());
    let entry = node.connections.find(&identified.caller, id)?;
    if head.headers().any(|(name, _)| entry.connection.poses_as_credential(name)) {
        let why = "a field would be read as the one that the credential is in";
        return Err(No::new(Refusal::RequestMalformed, why));
    }
    if identified.by_connection() {
        return Ok(Some(entry));
    }
    let slots = node.connections.slots();
    let found = presented::of_governed_call(head.headers(), head.query(), &slots).map_err(unproved)?;
    let own = (&entry.connection.connector().manifest().auth).into();
    presented::confirm(&found, head.headers(), head.query(), own).map_err(unproved)?;
    Ok(Some(entry))
}

/// The same answer in the listener's own form.
fn answer(response: Response<Bytes>) -> Answer {
    let (parts, body) = response.into_parts();
    let mut answer = Answer::new(parts.status.as_u16());
    for (name, value) in &parts.headers {
        let known = [
            ("content-type", "Content-Type"),
            ("cache-control", "Cache-Control"),
            ("proxy-status", "Proxy-Status"),
            ("tidegate-send-state", "Tidegate-Send-State"),
            ("tidegate-correlation-id", "Tidegate-Correlation-Id"),
            ("retry-after", "Retry-After"),
            ("tidegate-outcome", "Tidegate-Outcome"),
            ("tidegate-retry-budget", "Tidegate-Retry-Budget"),
        ];
        let Some((_, name)) = known.into_iter().find(|(known, _)| name == known) else { continue };
        answer = answer.with_header(name, value.to_str().unwrap_or_default());
    }
    answer.body = body;
    answer.close = true;
    answer
}

/// The fields, of which one that names this proxy, or may, says nothing of what is called. (The gate has seen that the
/// `Host` of a CONNECT is the destination or this proxy.)
pub(crate) fn fields_of(head: &Head) -> Result<HeaderMap, HeaderFault> {
    let mut fields = headers::gather(head.headers())?;
    if matches!(head.form(), Form::Origin | Form::Authority) {
        fields.remove(http::header::HOST);
    }
    Ok(fields)
}

/// How the caller makes the call. `Prefer: wait=N`, in seconds (RFC 7240, 4.3): it would rather wait here for quota than
/// come again. `Tidegate-Attempt`: `retry` after a fault, `after-park` at a release time; what is neither is a first one.
pub(crate) fn terms(head: &Head) -> Terms {
    let prefer = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case("prefer"));
    let preferences = prefer.filter_map(|(_, value)| std::str::from_utf8(value).ok()).flat_map(|text| text.split(','));
    let mut waits = preferences.filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let seconds = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("wait").then(|| seconds.parse::<u32>().ok()).flatten()
    });
    let attempt = match head.get_one("tidegate-attempt") {
        Some(b"retry") => Attempt::Retry,
        Some(b"after-park") => Attempt::AfterPark,
        Some(_) | None => Attempt::First,
    };
    Terms { wait: waits.next().map(|seconds| Duration::from_secs(seconds.into())), attempt }
}

/// The version that a request came in.
pub(crate) fn version_of(head: &Head) -> http::Version {
    match head.version() {
        listen::Version::Http10 => http::Version::HTTP_10,
        listen::Version::Http11 => http::Version::HTTP_11,
        listen::Version::Http2 => http::Version::HTTP_2,
    }
}
