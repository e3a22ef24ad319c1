//! What a limit counts, and for whom, in eight bytes.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::{EndpointId, TenantId};

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    Tenant,
    Endpoint,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    Events,
    Bytes,
}

/// A tenant or an endpoint as limits know it: computed once when the configuration is loaded, the same for the
/// same name in every snapshot, so that a reload finds the buckets that were there before.
///
/// It is a 64-bit hash of the name, two bits of it given up. Two names that collide would share a bucket; among a
/// million names the chance is one in ten million, and making a name that collides with somebody else's takes
/// 2^62 tries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subject(u64);

/// One bucket: a subject and what is counted of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LimitKey(u64);

const BYTES_BIT: u64 = 0b01;
const ENDPOINT_BIT: u64 = 0b10;

impl Subject {
    pub fn tenant(tenant: &TenantId) -> Self {
        Self(hash("tenant", tenant.as_str()) & !(ENDPOINT_BIT | BYTES_BIT))
    }

    /// A tenant's bulk class: what it may still send beyond its limits where the provider would not send it again.
    pub fn tenant_bulk(tenant: &TenantId) -> Self {
        Self(hash("tenant-bulk", tenant.as_str()) & !(ENDPOINT_BIT | BYTES_BIT))
    }

    pub fn endpoint(endpoint: &EndpointId) -> Self {
        Self(hash("endpoint", endpoint.as_str()) & !BYTES_BIT | ENDPOINT_BIT)
    }

    /// Handshakes of all endpoints of a tenant, which spend no limit of deliveries.
    pub fn handshakes_of_tenant(tenant: &TenantId) -> Self {
        Self(hash("tenant-handshakes", tenant.as_str()) & !(ENDPOINT_BIT | BYTES_BIT))
    }

    /// Handshakes of one endpoint.
    pub fn handshakes_of_endpoint(endpoint: &EndpointId) -> Self {
        Self(hash("endpoint-handshakes", endpoint.as_str()) & !BYTES_BIT | ENDPOINT_BIT)
    }

    pub fn events(self) -> LimitKey {
        LimitKey(self.0)
    }

    pub fn bytes(self) -> LimitKey {
        LimitKey(self.0 | BYTES_BIT)
    }

    /// The same as a number, for [`crate::InFlight`] and for whoever else keys by tenant or endpoint.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl LimitKey {
    pub fn scope(self) -> Scope {
        if self.0 & ENDPOINT_BIT == 0 { Scope::Tenant } else { Scope::Endpoint }
    }

    pub fn measure(self) -> Measure {
        if self.0 & BYTES_BIT == 0 { Measure::Events } else { Measure::Bytes }
    }

    /// The name under which senders and metrics see this limit; one of four.
    pub fn label(self) -> &'static str {
        match (self.scope(), self.measure()) {
            (Scope::Tenant, Measure::Events) => "tenant-events",
            (Scope::Tenant, Measure::Bytes) => "tenant-bytes",
            (Scope::Endpoint, Measure::Events) => "endpoint-events",
            (Scope::Endpoint, Measure::Bytes) => "endpoint-bytes",
        }
    }

    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", if self.0 & ENDPOINT_BIT == 0 { "tenant" } else { "endpoint" }, self.0)
    }
}

impl fmt::Debug for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.label(), self.0)
    }
}

fn hash(kind: &str, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_tenant_and_its_endpoint_differ_and_say_what_they_are() {
        let tenant = Subject::tenant(&TenantId::parse("same").unwrap());
        let endpoint = Subject::endpoint(&EndpointId::parse("same").unwrap());
        let bulk = Subject::tenant_bulk(&TenantId::parse("same").unwrap());
        let keys = [tenant.events(), tenant.bytes(), endpoint.events(), endpoint.bytes(), bulk.events(), bulk.bytes()];
        let labels: Vec<_> = keys.iter().take(4).map(|key| key.label()).collect();
        assert_eq!(labels, ["tenant-events", "tenant-bytes", "endpoint-events", "endpoint-bytes"]);
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
    }

    #[test]
    fn a_name_has_the_same_key_in_every_snapshot() {
        let subject = || Subject::tenant(&TenantId::parse("acme").unwrap());
        assert_eq!(subject(), subject());
        assert_ne!(subject(), Subject::tenant(&TenantId::parse("acmf").unwrap()));
    }
}
