//! Steps 8 and 9: the event, durable; and then what is told about it.

use std::borrow::Cow;
use std::sync::Arc;

use domain::{EventId, Refusal, Slot};
use eventlog::{AppendError, Class, DeliveryId, HeaderBlock, NewEvent};
use listen::{Exchange, Head};

use crate::Gateway;
use crate::accept::No;
use crate::body::Delivery;
use crate::endpoint::Endpoint;
use crate::record::Accepted;
use crate::scheme::{Scheme, Verified};

impl Gateway {
    /// The event as it will be stored: raw body, target in origin-form, ordered headers without what arrived as a secret.
    pub(crate) fn event(
        &self,
        endpoint: &Endpoint,
        head: &Head,
        delivery: &Delivery,
        verified: &Verified,
        class: Class,
    ) -> NewEvent {
        let id = self.mint.mint(delivery.received_unix_ms, Slot::of(endpoint.id().as_str()));
        NewEvent {
            secret: endpoint.secret_name(verified.key_index).into(),
            delivery_id: verified
                .delivery_id
                .as_ref()
                .map(|id| DeliveryId { value: id.value.to_vec().into(), signed: id.signed }),
            class,
            signed_at_unix_ms: verified.signed_at_unix_ms,
            ..unverified_event(endpoint, head, delivery, id)
        }
    }

    /// Says now what the log would say to an event of this endpoint, if it is known to take none. Before anything is spent
    /// on the event: what a full disk refused is sent again when it is full no more.
    pub(crate) fn log_takes(&self, endpoint: &Endpoint) -> Result<(), No> {
        let refuses = self.parts.log.refuses(endpoint.tenant().retention(), endpoint.id());
        refuses.map_or(Ok(()), |error| Err(not_committed(&error)))
    }

    /// Waits until the event is durable. A log that cannot say so in time is a 503, and the event may be stored all
    /// the same: a 503 is no promise that it is not.
    pub(crate) async fn commit(
        &self,
        exchange: &mut Exchange,
        endpoint: &Endpoint,
        event: NewEvent,
    ) -> Result<EventId, No> {
        let append = self.parts.log.append(event);
        match exchange.within(endpoint.snapshot().settings.commit_timeout, append).await {
            Some(Ok(appended)) => Ok(appended.id),
            Some(Err(error)) => Err(not_committed(&error)),
            None => Err(No::because(Refusal::LogUnavailable, "the log did not commit in time")),
        }
    }

    pub(crate) fn tell_accepted(
        &self,
        endpoint: &Endpoint,
        delivery: &Delivery,
        verified: &Verified,
        event: EventId,
        class: Class,
    ) {
        let took = self.parts.clock.monotonic().saturating_sub(delivery.received_at);
        let (body_bytes, bulk) = (delivery.body.len() as u64, class == Class::Bulk);
        self.parts.metrics.accepted(body_bytes, bulk, took);
        self.parts.recorder.accepted(&Accepted {
            event,
            tenant: endpoint.tenant().id.as_str(),
            endpoint: endpoint.id().as_str(),
            scheme: &endpoint.settings().scheme,
            secret: endpoint.secret_name(verified.key_index),
            source: delivery.source.ip(),
            body_bytes,
            bulk,
            took,
        });
    }
}

/// The event without what only a verified delivery has.
pub(crate) fn unverified_event(endpoint: &Endpoint, head: &Head, delivery: &Delivery, id: EventId) -> NewEvent {
    NewEvent {
        id,
        tenant: endpoint.tenant().id.clone(),
        endpoint: endpoint.id().clone(),
        retention: Arc::clone(endpoint.tenant().retention()),
        received_unix_ms: delivery.received_unix_ms,
        peer: delivery.source,
        method: method(head.method()),
        target: head.origin_bytes(),
        headers: stored_headers(endpoint.scheme(), head.headers().map(|(name, value)| (name.as_bytes(), value))),
        body: delivery.body.clone(),
        scheme: Arc::clone(&endpoint.settings().scheme),
        secret: Arc::default(),
        delivery_id: None,
        class: Class::Normal,
        signed_at_unix_ms: None,
        public_url: endpoint.public_url_text(),
    }
}

fn not_committed(error: &AppendError) -> No {
    let refusal = match error {
        AppendError::TooLarge { .. } => Refusal::BodyTooLarge,
        AppendError::QueueFull
        | AppendError::Full
        | AppendError::Unavailable { .. }
        | AppendError::UnknownRetention { .. }
        | AppendError::Closed => Refusal::LogUnavailable,
    };
    No::because(refusal, error.to_string())
}

fn method(method: &str) -> Cow<'static, str> {
    match method {
        "POST" => Cow::Borrowed("POST"),
        "GET" => Cow::Borrowed("GET"),
        "PUT" => Cow::Borrowed("PUT"),
        other => Cow::Owned(other.to_owned()),
    }
}

/// Every field in its order, without those that the scheme does not let be stored.
pub(crate) fn stored_headers<'h>(
    scheme: &Scheme,
    fields: impl Iterator<Item = (&'h [u8], &'h [u8])> + Clone,
) -> HeaderBlock {
    let mut block = HeaderBlock::with_capacity(fields.clone().map(|(name, value)| name.len() + value.len() + 6).sum());
    for (name, value) in fields.filter(|(name, _)| scheme.stores(name)) {
        // The gate's bounds are far below what a block can hold.
        let _fits = block.push(name, value).is_ok();
    }
    block.finish()
}
