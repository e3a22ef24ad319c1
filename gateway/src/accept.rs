//! The accept path: what happens to a delivery, in the order in which it happens, and nothing else.
//!
//! There is no binding to automations here, no credential, no backlog check and no call to another machine. A
//! total outage of everything behind the log loses no delivery and does not slow the answer.

use std::net::{IpAddr, SocketAddr};

use domain::{EventId, Refusal};
use listen::{Answer, Exchange};

use crate::Gateway;
use crate::answer::{self, Refused};
use crate::body::Delivery;
use crate::endpoint::Endpoint;
use crate::once::Taken;
use crate::record::Lost;
use crate::scheme::Verified;
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
    /// What is lost of a verified delivery.
    pub(crate) lost: Option<Box<LostDelivery>>,
}

/// A verified delivery that is not stored: what there is to ask its provider for.
#[derive(Debug)]
pub(crate) struct LostDelivery {
    delivery: Option<Box<[u8]>>,
    received_unix_ms: u64,
    body_bytes: u64,
    comes_again: bool,
}

impl Gateway {
    /// Takes one delivery. Every way out but the last is a refusal, or the answer to a handshake; the last is
    /// reached only when the event would survive the machine losing power now.
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

        // 4. A handshake? The endpoint proves itself to its provider; it is answered, and never an event.
        if let Some(answer) = self.shake_hands(&endpoint, exchange.head(), &delivery).await? {
            return Ok(answer);
        }

        // 5. Who sent it? A delivery that does not prove it is held outside the log, on a budget of its own.
        let verified = match self.verify(&endpoint, exchange.head(), &delivery) {
            Ok(verified) => verified,
            Err(fault) => return Err(self.hold(&endpoint, exchange.head(), &delivery, &fault)),
        };

        // A proof that covers no body is one of the first body that it came with.
        let claim = match self.claim(&endpoint, &delivery, &verified)? {
            Some(Taken::Before(id)) => return Ok(answer::accepted(endpoint.scheme(), id)),
            Some(Taken::Now(claim)) => Some(claim),
            None => None,
        };

        // 6. Committed already? Then it is answered as it was, and no second event comes of it.
        let first = match self.first_time(exchange, &endpoint, &delivery, &verified).await {
            Ok(first) => first,
            Err(repeat) => {
                self.tell_repeat(&endpoint, &delivery, &repeat);
                return Ok(answer::accepted(endpoint.scheme(), repeat.0));
            }
        };

        // 7. Within the tenant's and the endpoint's limits? Local: never a call to somewhere else.
        let lost = |no: No| no.of(&endpoint, &delivery, &verified);
        let class = self.within_limits(&endpoint, delivery.body.len()).map_err(lost)?;

        // 8. Durable before anything is promised.
        let event = self.event(&endpoint, exchange.head(), &delivery, &verified, class);
        let id = self.commit(exchange, &endpoint, event).await.map_err(lost)?;
        if let Some(first) = first {
            first.became(id);
        }
        if let Some(claim) = claim {
            claim.keep(id);
        }

        // 9. The answer in the form that the provider expects.
        self.tell_accepted(&endpoint, &delivery, &verified, id, class);
        Ok(answer::accepted(endpoint.scheme(), id))
    }
}

impl From<Refused> for No {
    fn from(refused: Refused) -> Self {
        Self { detail: refused.refusal.title().to_owned(), refused, held: None, lost: None }
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
        Self { refused: refused.into(), detail: detail.into(), held: None, lost: None }
    }

    /// The same of a verified delivery, which is lost with it unless its provider sends it again.
    fn of(self, endpoint: &Endpoint, delivery: &Delivery, verified: &Verified) -> Self {
        let lost = LostDelivery {
            delivery: verified.delivery_id.as_ref().map(|id| id.value.clone()),
            received_unix_ms: delivery.received_unix_ms,
            body_bytes: delivery.body.len() as u64,
            comes_again: endpoint.scheme().comes_again(self.refused.refusal),
        };
        Self { lost: Some(Box::new(lost)), ..self }
    }
}

impl LostDelivery {
    pub(crate) fn shown(&self) -> Lost<'_> {
        Lost {
            delivery: self.delivery.as_deref(),
            received_unix_ms: self.received_unix_ms,
            body_bytes: self.body_bytes,
            comes_again: self.comes_again,
        }
    }
}
