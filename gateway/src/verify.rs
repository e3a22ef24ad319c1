//! Step 5: who sent it.

use domain::Refusal;
use listen::Head;
use ratelimit::Source;

use crate::Gateway;
use crate::accept::No;
use crate::body::Delivery;
use crate::endpoint::Endpoint;
use crate::once::{NotTaken, Taken};
use crate::scheme::{Headers, Unverified, Verified, VerifyFault};

impl Gateway {
    /// Judges the delivery by the endpoint's scheme, over the raw bytes, the target in origin-form and the public URL. Tells
    /// the budget of its source how it went.
    pub(crate) fn verify(
        &self,
        endpoint: &Endpoint,
        head: &Head,
        delivery: &Delivery,
    ) -> Result<Verified, VerifyFault> {
        // An absolute-form target names a host of the sender's choice; what is signed is path and query.
        let origin = head.origin();
        let outcome = endpoint.verify(&unverified(endpoint, head, delivery, origin.as_bytes()));
        let (source, subject) = (Source::of(delivery.source.ip()), endpoint.subject().as_u64());
        match &outcome {
            Ok(_) => self.parts.unauthenticated.verified(source, subject),
            Err(fault) => {
                self.parts.unauthenticated.failed(source, subject);
                self.parts.metrics.unverified(fault.label());
            }
        }
        outcome
    }

    /// Takes the token that proves this delivery and no second one, where the scheme has such a thing. Another body under a
    /// token is refused and not held: judged again it would be one more forgery.
    pub(crate) fn claim(
        &self,
        endpoint: &Endpoint,
        delivery: &Delivery,
        verified: &Verified,
    ) -> Result<Option<Taken>, No> {
        let (Some(token), Some(span_ms)) = (verified.once, endpoint.scheme().once_ms()) else { return Ok(None) };
        let subject = endpoint.subject().as_u64();
        match self.once.take(subject, token, &delivery.body, delivery.received_unix_ms, span_ms) {
            Ok(taken) => Ok(Some(taken)),
            Err(NotTaken::Full) => Err(No::because(Refusal::Overloaded, "no more tokens can be remembered")),
            Err(NotTaken::OtherBody) => {
                let fault = VerifyFault::Replayed;
                self.parts.unauthenticated.failed(Source::of(delivery.source.ip()), subject);
                self.parts.metrics.unverified(fault.label());
                Err(No::because(Refusal::SignatureInvalid, fault.to_string()))
            }
        }
    }
}

/// A delivery as schemes and handshakes judge it. `target` is in origin-form.
pub(crate) fn unverified<'a>(
    endpoint: &'a Endpoint,
    head: &'a Head,
    delivery: &'a Delivery,
    target: &'a [u8],
) -> Unverified<'a> {
    Unverified {
        method: head.method().as_bytes(),
        target,
        url: endpoint.seen_url(),
        headers: head,
        body: &delivery.body,
        received_unix_ms: delivery.received_unix_ms,
    }
}

impl Headers for Head {
    fn visit<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        self.headers().filter(|(n, _)| n.eq_ignore_ascii_case(name)).for_each(|(_, value)| each(value));
    }
}
