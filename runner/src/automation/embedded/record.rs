//! Facts of the journal in bytes: CBOR (RFC 8949), fields by number. A field that a later version adds is passed over; a kind
//! that is not known is refused.

use domain::{ConnectionId, EndpointId, TenantId};
use minicbor::{Decode, Encode};

use super::super::store::{ConnectionState, Stored};
use crate::ids::{AutomationId, Version};

/// One thing that was said of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact {
    Put(Stored),
    Deleted { tenant: TenantId, id: AutomationId, at_unix_ms: u64, by: Box<str> },
    Connection { tenant: TenantId, connection: ConnectionId, at_unix_ms: u64, state: ConnectionState },
}

/// Kinds of records in the journal; for ever.
pub(super) const PUT: u8 = 1;
pub(super) const DELETED: u8 = 2;
pub(super) const CONNECTION: u8 = 3;

#[derive(Debug, Encode, Decode)]
struct PutForm<'b> {
    #[b(0)]
    tenant: &'b str,
    #[cbor(n(1), with = "minicbor::bytes")]
    id: [u8; 16],
    #[n(2)]
    version: u32,
    #[b(3)]
    name: &'b str,
    #[b(4)]
    json: &'b str,
    #[cbor(n(5), with = "minicbor::bytes")]
    digest: [u8; 32],
    #[b(6)]
    endpoints: Vec<&'b str>,
    #[n(7)]
    is_enabled: bool,
    #[n(8)]
    at_unix_ms: u64,
    #[b(9)]
    by: &'b str,
}

#[derive(Debug, Encode, Decode)]
struct DeletedForm<'b> {
    #[b(0)]
    tenant: &'b str,
    #[cbor(n(1), with = "minicbor::bytes")]
    id: [u8; 16],
    #[n(2)]
    at_unix_ms: u64,
    #[b(3)]
    by: &'b str,
}

#[derive(Debug, Encode, Decode)]
struct ConnectionForm<'b> {
    #[b(0)]
    tenant: &'b str,
    #[b(1)]
    connection: &'b str,
    #[n(2)]
    at_unix_ms: u64,
    /// Since when it needs to be made anew; none: it is connected.
    #[n(3)]
    since_unix_ms: Option<u64>,
    #[b(4)]
    reason: &'b str,
}

impl Fact {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Put(_) => PUT,
            Self::Deleted { .. } => DELETED,
            Self::Connection { .. } => CONNECTION,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Put(stored) => written(&PutForm {
                tenant: stored.tenant.as_str(),
                id: *stored.id.as_bytes(),
                version: stored.version.get(),
                name: &stored.name,
                json: &stored.json,
                digest: stored.digest,
                endpoints: stored.endpoints.iter().map(EndpointId::as_str).collect(),
                is_enabled: stored.is_enabled,
                at_unix_ms: stored.at_unix_ms,
                by: &stored.by,
            }),
            Self::Deleted { tenant, id, at_unix_ms, by } => {
                written(&DeletedForm { tenant: tenant.as_str(), id: *id.as_bytes(), at_unix_ms: *at_unix_ms, by })
            }
            Self::Connection { tenant, connection, at_unix_ms, state } => {
                let (since_unix_ms, reason) = match state {
                    ConnectionState::Connected => (None, ""),
                    ConnectionState::NeedsReconnect { since_unix_ms, reason } => (Some(*since_unix_ms), &**reason),
                };
                written(&ConnectionForm {
                    tenant: tenant.as_str(),
                    connection: connection.as_str(),
                    at_unix_ms: *at_unix_ms,
                    since_unix_ms,
                    reason,
                })
            }
        }
    }

    /// Why it does not read, in words for the log.
    pub(super) fn decode(kind: u8, bytes: &[u8]) -> Result<Self, String> {
        match kind {
            PUT => put(bytes).map(Self::Put),
            DELETED => {
                let form: DeletedForm<'_> = read(bytes)?;
                Ok(Self::Deleted {
                    tenant: tenant(form.tenant)?,
                    id: AutomationId::from_bytes(form.id),
                    at_unix_ms: form.at_unix_ms,
                    by: form.by.into(),
                })
            }
            CONNECTION => {
                let form: ConnectionForm<'_> = read(bytes)?;
                let state = form.since_unix_ms.map_or(ConnectionState::Connected, |since_unix_ms| {
                    ConnectionState::NeedsReconnect { since_unix_ms, reason: form.reason.into() }
                });
                Ok(Self::Connection {
                    tenant: tenant(form.tenant)?,
                    connection: ConnectionId::parse(form.connection).map_err(|_| "a connection's id".to_owned())?,
                    at_unix_ms: form.at_unix_ms,
                    state,
                })
            }
            other => Err(format!("kind {other} is not known")),
        }
    }
}

/// A version; its text must be what its digest says.
pub(super) fn put(bytes: &[u8]) -> Result<Stored, String> {
    let form: PutForm<'_> = read(bytes)?;
    if *blake3::hash(form.json.as_bytes()).as_bytes() != form.digest {
        return Err("the text of a version is not what its digest says".into());
    }
    let endpoints =
        form.endpoints.iter().map(|name| EndpointId::parse(name).map_err(|_| "an endpoint's id".to_owned()));
    Ok(Stored {
        tenant: tenant(form.tenant)?,
        id: AutomationId::from_bytes(form.id),
        version: Version::new(form.version).ok_or("version 0")?,
        name: form.name.into(),
        json: form.json.into(),
        digest: form.digest,
        endpoints: endpoints.collect::<Result<_, _>>()?,
        is_enabled: form.is_enabled,
        is_deleted: false,
        at_unix_ms: form.at_unix_ms,
        by: form.by.into(),
    })
}

pub(super) fn tenant(name: &str) -> Result<TenantId, String> {
    TenantId::parse(name).map_err(|_| "a tenant's id".to_owned())
}

pub(super) fn written<T: Encode<()>>(form: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    minicbor::encode(form, &mut bytes).expect("a vector takes everything");
    bytes
}

pub(super) fn read<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, String> {
    minicbor::decode(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored() -> impl Strategy<Value = Stored> {
        (
            "[a-z]{1,8}",
            any::<[u8; 16]>(),
            1_u32..,
            "\\PC{1,20}",
            "\\PC{0,80}",
            prop::collection::vec("wh_[a-z]{1,6}", 0..4),
            any::<bool>(),
            any::<u64>(),
        )
            .prop_map(|(tenant, id, version, name, json, endpoints, is_enabled, at_unix_ms)| Stored {
                tenant: TenantId::parse(&tenant).unwrap(),
                id: AutomationId::from_bytes(id),
                version: Version::new(version).unwrap(),
                name: name.into(),
                digest: *blake3::hash(json.as_bytes()).as_bytes(),
                json: json.into(),
                endpoints: endpoints.iter().map(|name| EndpointId::parse(name).unwrap()).collect(),
                is_enabled,
                is_deleted: false,
                at_unix_ms,
                by: "ada".into(),
            })
    }

    proptest! {
        #[test]
        fn facts_are_read_as_they_were_written(stored in stored(), reason in "\\PC{0,20}", is_connected in any::<bool>()) {
            let (tenant, id, at_unix_ms) = (stored.tenant.clone(), stored.id, stored.at_unix_ms);
            let state = if is_connected {
                ConnectionState::Connected
            } else {
                ConnectionState::NeedsReconnect { since_unix_ms: at_unix_ms, reason: reason.clone().into() }
            };
            let connection = ConnectionId::parse("conn_a").unwrap();
            for fact in [
                Fact::Put(stored),
                Fact::Deleted { tenant: tenant.clone(), id, at_unix_ms, by: reason.into() },
                Fact::Connection { tenant, connection, at_unix_ms, state },
            ] {
                prop_assert_eq!(Fact::decode(fact.kind(), &fact.encode()), Ok(fact));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(kind in 0_u8..6, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Fact::decode(kind, &bytes));
        }

        #[test]
        fn one_wrong_byte_never_gives_another_text(stored in stored(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let json = stored.json.clone();
            let mut bytes = Fact::Put(stored).encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(Fact::Put(read)) = Fact::decode(PUT, &bytes) {
                prop_assert_eq!(read.json, json);
            }
        }
    }
}
