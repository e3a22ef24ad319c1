//! Step 6 of the path: a delivery that was committed already is answered as it was then.

use domain::EventId;
use listen::Exchange;

use super::{First, Known, Whose};
use crate::Gateway;
use crate::body::Delivery;
use crate::endpoint::Endpoint;
use crate::record::Repeated;
use crate::scheme::Verified;

/// A delivery that was committed before, as this event.
pub(crate) struct Repeat(pub(crate) EventId);

impl Gateway {
    /// The claim to be this delivery's first; or what it became already. Waits for one that is being committed, no longer than a
    /// commit may take; one that takes longer is answered 503, and this delivery then goes its own way.
    pub(crate) async fn first_time<'g>(
        &'g self,
        exchange: &mut Exchange,
        endpoint: &Endpoint,
        delivery: &Delivery,
        verified: &Verified,
    ) -> Result<Option<First<'g>>, Repeat> {
        let Some(id) = verified.delivery_id.as_ref().filter(|id| endpoint.drops_repeats(id.signed)) else {
            return Ok(None);
        };
        let settings = &endpoint.snapshot().settings;
        let remembered_ms = u64::try_from(settings.repeats_for.as_millis()).unwrap_or(u64::MAX);
        let since_unix_ms = delivery.received_unix_ms.saturating_sub(remembered_ms);
        for _ in 0..WAITS_MAX {
            let of = Whose { tenant: &endpoint.tenant().id, endpoint: endpoint.id() };
            match self.parts.repeats.look(of, &id.value, delivery.received_unix_ms, since_unix_ms) {
                Known::First(first) => return Ok(Some(first)),
                Known::Event(event) => return Err(Repeat(event)),
                Known::Waits(mut waits) => {
                    let settled = exchange.within(settings.commit_timeout, waits.changed()).await;
                    if settled.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn tell_repeat(&self, endpoint: &Endpoint, delivery: &Delivery, repeat: &Repeat) {
        self.parts.metrics.repeated();
        self.parts.recorder.repeated(&Repeated {
            event: repeat.0,
            tenant: endpoint.tenant().id.as_str(),
            endpoint: endpoint.id().as_str(),
            source: delivery.source.ip(),
        });
    }
}

/// Of a hundred that came at once while the log failed, each in turn is the first and fails: nobody waits for all of them.
const WAITS_MAX: usize = 3;
