//! Events that runs began with, for nodes that have not the log in which they are.

use std::sync::Arc;

use domain::text::Untrusted;
use domain::{EndpointId, EventId, TenantId};
use minicbor::{Decode, Encode};

use super::blobs::{self, BLOB_BYTES_MAX, Blob, Kind, Missing};
use super::database::Database;
use super::fault::Fault;
use super::pool::Pool;
use crate::automation::EventFacts;
use crate::engine::{Events, PortError};
use crate::ledger::BoxFuture;

/// The version that is written.
const VERSION: u8 = 1;

/// An event as it is kept: one version byte, then CBOR (RFC 8949), fields by number. Whose it is stands in it too, and is
/// compared on every read.
#[derive(Debug, Encode, Decode)]
struct Form<'b> {
    #[b(0)]
    tenant: &'b str,
    #[cbor(n(1), with = "minicbor::bytes")]
    id: [u8; 16],
    #[b(2)]
    endpoint: &'b str,
    #[n(3)]
    received_unix_ms: u64,
    #[b(4)]
    headers: Vec<(&'b str, &'b str)>,
    #[cbor(b(5), with = "minicbor::bytes")]
    body: &'b [u8],
}

/// Keeps events, and gives them out, on every node.
#[derive(Debug, Clone)]
pub struct PostgresEvents {
    pool: Arc<Pool>,
}

/// Why an event is not known to be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// No runner takes it.
    #[error("an event of {bytes} bytes is larger than {BLOB_BYTES_MAX}")]
    TooLarge { bytes: u64 },
    #[error(transparent)]
    Database(#[from] Fault),
}

impl PostgresEvents {
    pub fn on(database: &Database) -> Self {
        Self { pool: Arc::clone(&database.pool) }
    }

    /// Durable when the future says so: before a run that begins with it is admitted.
    ///
    /// # Errors
    /// It is too large, or the database does not take it.
    pub async fn keep(&self, tenant: &TenantId, event: &EventFacts) -> Result<(), KeepError> {
        let bytes = encode(tenant, event);
        if bytes.len() as u64 > BLOB_BYTES_MAX {
            return Err(KeepError::TooLarge { bytes: bytes.len() as u64 });
        }
        let name = Blob { tenant, kind: Kind::Event, name: event.id.as_bytes() };
        Ok(blobs::keep(&self.pool, name, &bytes.into()).await?)
    }

    /// Whether it is kept; what is becomes young.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn keep_longer(&self, tenant: &TenantId, event: EventId) -> Result<bool, KeepError> {
        let name = Blob { tenant, kind: Kind::Event, name: event.as_bytes() };
        Ok(blobs::touch(&self.pool, name).await?)
    }
}

impl Events for PostgresEvents {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            let name = Blob { tenant: &tenant, kind: Kind::Event, name: event.as_bytes() };
            let gone = |why: &str| PortError::Gone(format!("the event {event} {why}").into());
            let bytes = blobs::fetch(&self.pool, name, BLOB_BYTES_MAX).await.map_err(|missing| match missing {
                Missing::Gone => gone("is no longer kept"),
                Missing::Damaged => gone("is damaged"),
                Missing::Fault(fault) => PortError::Unavailable(fault.to_string().into()),
            })?;
            match decode(&bytes, &tenant, event) {
                Ok(Some(facts)) => Ok(facts),
                Ok(None) => Err(PortError::Tenant),
                Err(why) => {
                    tracing::error!(%tenant, %event, why = %Untrusted::new(why.as_bytes()), "an event of the database is none");
                    Err(gone("is damaged"))
                }
            }
        })
    }
}

fn encode(tenant: &TenantId, event: &EventFacts) -> Vec<u8> {
    let form = Form {
        tenant: tenant.as_str(),
        id: *event.id.as_bytes(),
        endpoint: event.endpoint.as_str(),
        received_unix_ms: event.received_unix_ms,
        headers: event.headers.iter().map(|(name, value)| (&**name, &**value)).collect(),
        body: &event.body,
    };
    let mut bytes = vec![VERSION];
    minicbor::encode(form, &mut bytes).expect("a vector takes everything");
    bytes
}

/// None: it is another's. Why it does not read, in words for the log.
fn decode(bytes: &[u8], tenant: &TenantId, event: EventId) -> Result<Option<EventFacts>, String> {
    let (version, form) = bytes.split_first().ok_or("it is empty")?;
    if *version != VERSION {
        return Err(format!("it is of version {version}, which a later version of Tidegate wrote"));
    }
    let form: Form<'_> = minicbor::decode(form).map_err(|error| error.to_string())?;
    if form.tenant != tenant.as_str() {
        return Ok(None);
    }
    if form.id != *event.as_bytes() {
        return Err("it is another event".to_owned());
    }
    Ok(Some(EventFacts {
        id: event,
        endpoint: EndpointId::parse(form.endpoint).map_err(|_| "it has no endpoint")?,
        received_unix_ms: form.received_unix_ms,
        headers: form.headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        body: bytes::Bytes::copy_from_slice(form.body),
    }))
}

#[cfg(test)]
mod tests {
    use domain::{NodeId, Slot};

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    fn facts() -> EventFacts {
        EventFacts {
            id: EventId::new(1_800_000_000_000, Slot::of("wh_1"), NodeId(7), [1, 2, 3, 4, 5, 6]),
            endpoint: EndpointId::parse("wh_1").unwrap(),
            received_unix_ms: 1_800_000_000_000,
            headers: vec![("X-A".into(), "one".into()), ("X-A".into(), "\u{fffd}".into())],
            body: bytes::Bytes::from_static(b"\x00\xff{}"),
        }
    }

    #[test]
    fn an_event_is_read_as_it_was_kept_and_by_its_tenant_alone() {
        let bytes = encode(&tenant("acme"), &facts());
        let read = decode(&bytes, &tenant("acme"), facts().id).unwrap().unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", facts()));
        assert!(decode(&bytes, &tenant("other"), facts().id).unwrap().is_none());
        let another = EventId::new(1, Slot::of("wh_1"), NodeId(7), [0; 6]);
        assert!(decode(&bytes, &tenant("acme"), another).is_err());
    }

    #[test]
    fn what_is_cut_changed_or_newer_is_no_event() {
        let bytes = encode(&tenant("acme"), &facts());
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], &tenant("acme"), facts().id).is_err(), "{length}");
        }
        let mut newer = bytes;
        newer[0] = 2;
        assert!(decode(&newer, &tenant("acme"), facts().id).unwrap_err().contains("later version"));
    }
}
