//! The one way from stored bytes to an event: through the scope of whoever reads.
//!
//! Selection (an index, a filter) finds records; this is not trusted to be right. Every record that is about to
//! be returned is decoded and its own tenant is compared with the scope's here, and nowhere else is a
//! [`StoredEvent`] made. A mismatch is an error that names the position: an index gone wrong, a hash that
//! collided or an endpoint that was moved between tenants must stop a read, and never leak one record.

use bytes::Bytes;
use domain::{EndpointId, TenantId};

use crate::codec::{self, DecodeError, EventView};
use crate::error::ReadError;
use crate::event::{DeliveryId, StoredEvent};
use crate::headers::HeaderBlock;
use crate::log::{Filter, Scope};
use crate::position::Position;

/// A record as a journal gave it, with its place.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) bytes: Bytes,
    pub(crate) position: Position,
    pub(crate) appended_unix_ms: u64,
    pub(crate) sequence: u64,
}

/// What selection knows about a record.
pub(crate) fn selects(scope: &Scope, filter: &Filter, tenant: &str, event: &EventView<'_>) -> bool {
    // An endpoint that was asked for is selected whoever's it is, so that the assertion sees it.
    let by_owner = match (&filter.endpoint, scope) {
        (Some(endpoint), _) => endpoint.as_str() == event.endpoint,
        (None, Scope::Tenant(wanted)) => wanted.as_str() == tenant,
        (None, Scope::Operator) => true,
    };
    by_owner && filter.takes_time(event.received_unix_ms)
}

impl Placed {
    pub(crate) fn view(&self) -> Result<EventView<'_>, ReadError> {
        codec::decode_event(&self.bytes).map_err(|fault| self.fault(fault))
    }

    /// Decodes the record and asserts that its tenant is the scope's.
    pub(crate) fn open(self, scope: &Scope) -> Result<StoredEvent, ReadError> {
        let view = self.view()?;
        if let Scope::Tenant(wanted) = scope
            && wanted.as_str() != view.tenant
        {
            tracing::error!(
                position = %self.position,
                scope = %wanted,
                endpoint = %view.endpoint,
                "a read met a record of another tenant and was halted"
            );
            return Err(ReadError::ScopeMismatch { position: self.position, scope: wanted.clone() });
        }
        let share = |part: &[u8]| self.bytes.slice_ref(part);
        Ok(StoredEvent {
            id: view.id,
            tenant: TenantId::parse(view.tenant).map_err(|_| self.fault(DecodeError::Invalid { field: "tenant" }))?,
            endpoint: EndpointId::parse(view.endpoint)
                .map_err(|_| self.fault(DecodeError::Invalid { field: "endpoint" }))?,
            received_unix_ms: view.received_unix_ms,
            peer: view.peer,
            method: view.method.into(),
            target: share(view.target),
            headers: HeaderBlock::from_encoded(share(view.headers)).map_err(|fault| self.fault(fault.into()))?,
            body: share(view.body),
            scheme: view.scheme.into(),
            secret: view.secret.into(),
            delivery_id: view.delivery_id.map(|(value, signed)| DeliveryId { value: share(value), signed }),
            class: view.class,
            signed_at_unix_ms: view.signed_at_unix_ms,
            public_url: view.public_url.into(),
            appended_unix_ms: self.appended_unix_ms,
            node: view.node,
            epoch: self.position.place.epoch,
            sequence: self.sequence,
            position: self.position,
        })
    }

    fn fault(&self, fault: DecodeError) -> ReadError {
        ReadError::NotAnEvent { position: self.position.clone(), fault }
    }
}
