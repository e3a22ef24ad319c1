//! The accept path: what happens to a delivery, in the order in which it happens, and nothing else.
//!
//! There is no binding to automations here, no credential, no backlog check and no call to another machine. A
//! total outage of everything behind the log loses no delivery and does not slow the answer.

use std::net::{IpAddr, SocketAddr};

use domain::{EventId, Refusal};
use listen::{Answer, Exchange};

use crate::Gateway;
use crate::answer::{self, Refused};
use crate::endpoint::Endpoint;
use crate::once::Taken;
use crate::snapshot::Unfound;
use crate::source;

/// What the path has found out so far: for the log line of whatever it ends in.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) source: IpAddr,
    pub(crate) endpoint: Option<Endpoint>,
}

impl Trace {
    pub(crate) fn of(peer: SocketAddr) -> Self {
        Self { source: peer.ip().to_canonical(), endpoint: None }
    }
}

/// A no: what the sender is told, and what only the log is.
#[derive(Debug)]
pub(crate) struct No {
    pub(crate) refused: Refused,
    pub(crate) detail: String,
    /// The id under which the delivery is kept in the holding stream, if it is.
    pub(crate) held: Option<EventId>,
}

impl Gateway {
    /// Takes one delivery. Every way out but the last is a refusal; the last is reached only when the event would
    /// survive the machine losing power now.
    pub(crate) async fn accept(&self, exchange: &mut Exchange, trace: &mut Trace) -> Result<Answer, No> {
        // 1. Which endpoint? One load: this request sees one snapshot from here to its end.
        let snapshot = self.parts.snapshot.load_full();
        trace.source = source::of(exchange, &snapshot.settings.trusted_proxies);
        let endpoint = snapshot.find(exchange.head().host(), exchange.head().path())?;
        trace.endpoint = Some(endpoint.clone());
        endpoint.takes_method(exchange.head().method())?;

        // 2. May this source deliver here, and has it failed too often to be heard?
        endpoint.takes_source(trace.source)?;
        self.hears(trace.source, &endpoint)?;

        // 3. The exact bytes: bounded in size, in time, in rate, and in what the node holds in flight.
        let delivery = self.read_body(exchange, trace.source, &endpoint).await?;

        // 4. Who sent it? A delivery that does not prove it is held outside the log, on a budget of its own.
        let verified = match self.verify(&endpoint, exchange.head(), &delivery) {
            Ok(verified) => verified,
            Err(fault) => return Err(self.hold(&endpoint, exchange.head(), &delivery, &fault)),
        };

        // A proof that covers no body is one of the first body that it came with.
        let claim = match self.claim(&endpoint, &delivery, &verified)? {
            Some(Taken::Before(id)) => return Ok(answer::accepted(endpoint.scheme().success_status(), id)),
            Some(Taken::Now(claim)) => Some(claim),
            None => None,
        };

        // 5. Within the tenant's and the endpoint's limits? Local: never a call to somewhere else.
        let class = self.within_limits(&endpoint, delivery.body.len())?;

        // 6. Durable before anything is promised.
        let event = self.event(&endpoint, exchange.head(), &delivery, &verified, class);
        let id = self.commit(exchange, &endpoint, event).await?;
        if let Some(claim) = claim {
            claim.keep(id);
        }

        // 7. The answer in the form that the provider expects.
        self.tell_accepted(&endpoint, &delivery, &verified, id, class);
        Ok(answer::accepted(endpoint.scheme().success_status(), id))
    }
}

impl From<Refused> for No {
    fn from(refused: Refused) -> Self {
        Self { detail: refused.refusal.title().to_owned(), refused, held: None }
    }
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Refused::from(refusal).into()
    }
}

impl From<Unfound> for No {
    fn from(unfound: Unfound) -> Self {
        Self::because(unfound.refusal(), unfound.why())
    }
}

impl No {
    pub(crate) fn because(refused: impl Into<Refused>, detail: impl Into<String>) -> Self {
        Self { refused: refused.into(), detail: detail.into(), held: None }
    }
}
