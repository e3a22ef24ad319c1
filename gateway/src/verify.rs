//! Step 4: who sent it.

use listen::Head;
use ratelimit::Source;

use crate::Gateway;
use crate::body::Delivery;
use crate::endpoint::Endpoint;
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
        let outcome = endpoint.verify(&Unverified {
            method: head.method().as_bytes(),
            target: origin.as_bytes(),
            url: endpoint.seen_url(),
            headers: head,
            body: &delivery.body,
            received_unix_ms: delivery.received_unix_ms,
        });
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
}

impl Headers for Head {
    fn visit<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        self.headers().filter(|(n, _)| n.eq_ignore_ascii_case(name)).for_each(|(_, value)| each(value));
    }
}
