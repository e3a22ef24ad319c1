//! Step 4 of the path: a handshake is answered, and the path ends there.

use config::scheme::HandshakeKind;
use domain::{Refusal, Secret};
use listen::{Answer, Head};
use ratelimit::{Ask, Rate, Source, Subject};

use super::{Asked, Handshake, HandshakeFault, Reply};
use crate::Gateway;
use crate::accept::No;
use crate::answer::{self, Refused};
use crate::body::Delivery;
use crate::endpoint::Endpoint;
use crate::record::Shaken;
use crate::verify::unverified;

/// Handshakes of one endpoint: events a second, and at once. A provider asks when an endpoint is made and some ask again
/// every hour; a program that makes subscriptions in a row, each of which is confirmed at the same endpoint, stays below.
/// One stranger's own budget is far below, so that he alone does not shut out the provider.
const OF_ENDPOINT: (u32, u32) = (10, 500);
/// The same for all endpoints of a tenant.
const OF_TENANT: (u32, u32) = (50, 2_000);

/// What is answered, and the secret that the handshake brings.
type Outcome = Result<(Reply, Option<Secret>), HandshakeFault>;

impl Gateway {
    /// Answers the request if it is a handshake: it is counted and told, and never stored. None for a delivery.
    pub(crate) async fn shake_hands(
        &self,
        endpoint: &Endpoint,
        head: &Head,
        delivery: &Delivery,
    ) -> Result<Option<Answer>, No> {
        let scheme = endpoint.scheme();
        if scheme.handshakes().is_empty() {
            return Ok(None);
        }
        let Some((handshake, mut outcome)) = self.heard(endpoint, head, delivery)? else { return Ok(None) };
        if let Ok((_, Some(secret))) = &outcome
            && let Err(fault) = self.adopt(endpoint, secret.clone(), delivery.received_unix_ms).await
        {
            outcome = Err(fault);
        }
        self.parts.metrics.handshake(handshake.kind(), outcome.is_ok());
        let (reply, _) = outcome.map_err(|fault| self.not_shaken(endpoint, delivery, handshake, fault))?;
        self.parts.recorder.shaken(&Shaken {
            tenant: endpoint.tenant().id.as_str(),
            endpoint: endpoint.id().as_str(),
            scheme: &endpoint.settings().scheme,
            kind: handshake.kind().as_str(),
            source: delivery.source.ip(),
            status: reply.status,
        });
        Ok(Some(answer::handshake(reply)))
    }

    /// The handshake that the request is, and what there is to answer, with the secret that it brings.
    fn heard<'e>(
        &self,
        endpoint: &'e Endpoint,
        head: &Head,
        delivery: &Delivery,
    ) -> Result<Option<(&'e Handshake, Outcome)>, No> {
        let scheme = endpoint.scheme();
        let origin = head.origin();
        let request = unverified(endpoint, head, delivery, origin.as_bytes());
        let Some(handshake) = scheme.handshake(&request) else {
            // It came by a method that only handshakes come by, and is none.
            return if scheme.takes(head.method()) { Ok(None) } else { Err(endpoint.other_method()) };
        };
        self.is_heard(endpoint, head, delivery, handshake)?;
        let settings = endpoint.settings().handshake();
        let reply = handshake.answer(&Asked {
            request: &request,
            key: endpoint.first_key(delivery.received_unix_ms),
            token: settings.and_then(|settings| settings.token.as_ref()),
            account: settings.and_then(|settings| settings.account.as_deref()),
            per_minute: per_minute(endpoint),
        });
        Ok(Some((handshake, reply.map(|reply| (reply, handshake.brought(&request))))))
    }

    /// Has whoever asks proved what he has to, and is there room? On a budget of its own: what proves nothing spends no limit
    /// of deliveries.
    fn is_heard(&self, endpoint: &Endpoint, head: &Head, delivery: &Delivery, handshake: &Handshake) -> Result<(), No> {
        if handshake.is_verified() {
            // It is not held: promoted, it would be an event.
            self.verify(endpoint, head, delivery).map_err(|fault| {
                No::because(Refusal::SignatureInvalid, format!("a handshake that does not verify: {fault}"))
            })?;
        } else if !handshake.is_proven() {
            // Anybody can ask: whoever does it often is a stranger who does too much, as with failed verifications.
            let source = Source::of(delivery.source.ip());
            self.parts.unauthenticated.failed(source, endpoint.subject().as_u64());
        }
        let ask = |subject: Subject, (per_second, burst): (u32, u32)| Ask {
            key: subject.events(),
            rate: Rate::new(per_second, burst),
            amount: 1,
        };
        let asks = [
            ask(Subject::handshakes_of_endpoint(endpoint.id()), OF_ENDPOINT),
            ask(Subject::handshakes_of_tenant(&endpoint.tenant().id), OF_TENANT),
        ];
        self.parts.limits.admit(&asks).map_err(|over| {
            No::because(Refused::from(Refusal::RateLimited).after(over.retry_after), "too many handshakes")
        })
    }

    fn not_shaken(&self, endpoint: &Endpoint, delivery: &Delivery, handshake: &Handshake, fault: HandshakeFault) -> No {
        if fault == HandshakeFault::Unkept {
            return No::because(Refusal::EndpointUnavailable, fault.to_string());
        }
        if handshake.is_proven() && fault == HandshakeFault::Token {
            let source = Source::of(delivery.source.ip());
            self.parts.unauthenticated.failed(source, endpoint.subject().as_u64());
        }
        let refused = Refused::from(Refusal::HandshakeRefused).with_status(handshake.refused_status());
        No::because(refused, fault.to_string())
    }
}

/// What the lower of both limits of events comes to in a minute.
fn per_minute(endpoint: &Endpoint) -> Option<u64> {
    let (of_tenant, of_endpoint) = endpoint.limits();
    let each = [of_tenant.events, of_endpoint.events].into_iter().flatten();
    each.map(|rate| u64::from(rate.per_second) * 60).min()
}

/// Labels of metrics: closed sets.
pub(crate) fn labels() -> impl Iterator<Item = (HandshakeKind, bool)> {
    HandshakeKind::ALL.into_iter().flat_map(|kind| [(kind, true), (kind, false)])
}
