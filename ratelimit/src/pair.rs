//! A tenant and what it calls, in sixteen bytes.

use std::fmt;

use domain::{ConnectionId, ConnectorId, TenantId};

/// The key of a tenant's breaker, retry budget or baseline: whose, and of what.
///
/// Both halves are the first 64 bits of BLAKE3 over a kind and a name: the same on every node, in every release and
/// after every restart, so that records can be found by it. (The standard library's hasher promises none of these.)
/// To share a key with another tenant one has to find a second name with the same 64 bits, 2^64 tries; inside a
/// tenant, whose authorities come from its own callers, a collision harms that tenant alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairKey {
    tenant: u64,
    subject: u64,
}

/// Bytes of a key on disk.
pub const PAIR_KEY_BYTES: usize = 16;

impl PairKey {
    /// A tenant's calls through a connector.
    pub fn connector(tenant: &TenantId, connector: &ConnectorId) -> Self {
        Self::new(tenant, "connector", connector.as_str())
    }

    /// A tenant's ungoverned calls to an authority, which is normalised (`host:port`, lower case) by whoever asks.
    pub fn authority(tenant: &TenantId, authority: &str) -> Self {
        Self::new(tenant, "authority", authority)
    }

    /// One account of a tenant at a provider.
    pub fn connection(tenant: &TenantId, connection: &ConnectionId) -> Self {
        Self::new(tenant, "connection", connection.as_str())
    }

    /// One automation of a tenant, by the name that the call grant has for it.
    pub fn automation(tenant: &TenantId, automation: &str) -> Self {
        Self::new(tenant, "automation", automation)
    }

    fn new(tenant: &TenantId, kind: &str, name: &str) -> Self {
        Self { tenant: hash("tenant", tenant.as_str()), subject: hash(kind, name) }
    }

    pub(crate) fn of(tenant: u64, subject: u64) -> Self {
        Self { tenant, subject }
    }

    pub(crate) fn tenant(self) -> u64 {
        self.tenant
    }

    pub(crate) fn subject(self) -> u64 {
        self.subject
    }

    pub fn to_bytes(self) -> [u8; PAIR_KEY_BYTES] {
        ((u128::from(self.tenant) << 64) | u128::from(self.subject)).to_be_bytes()
    }

    /// Every sixteen bytes are a key: one that nobody asks for is only never found.
    pub fn from_bytes(bytes: [u8; PAIR_KEY_BYTES]) -> Self {
        let [high, low] = [&bytes[..8], &bytes[8..]]
            .map(|half| u64::from_be_bytes(half.try_into().expect("half of sixteen bytes is eight")));
        Self { tenant: high, subject: low }
    }
}

impl fmt::Debug for PairKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{:016x}", self.tenant, self.subject)
    }
}

/// A provider, for all tenants: the key of its fleet breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderKey(u64);

impl ProviderKey {
    pub fn of(connector: &ConnectorId) -> Self {
        Self(hash("connector", connector.as_str()))
    }

    pub fn as_u64(self) -> u64 {
        self.0
    }

    pub(crate) fn from_u64(key: u64) -> Self {
        Self(key)
    }
}

/// The kind is ended by a byte that no kind contains, so that no two (kind, name) read the same.
fn hash(kind: &str, name: &str) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes()).update(&[0]).update(name.as_bytes());
    let digest = hasher.finalize();
    let (first, _) = digest.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn keys_of_one_name_differ_by_kind_and_by_tenant() {
        let connector = ConnectorId::parse("same").unwrap();
        let connection = ConnectionId::parse("same").unwrap();
        let keys = [
            PairKey::connector(&tenant("a"), &connector),
            PairKey::connector(&tenant("b"), &connector),
            PairKey::authority(&tenant("a"), "same"),
            PairKey::connection(&tenant("a"), &connection),
            PairKey::automation(&tenant("a"), "same"),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key:?}");
            assert_eq!(PairKey::from_bytes(key.to_bytes()), *key);
        }
    }

    /// Written down: a change of these would orphan every record on disk.
    #[test]
    fn keys_are_the_same_in_every_release() {
        let key = PairKey::connector(&tenant("acme"), &ConnectorId::parse("hubspot").unwrap());
        assert_eq!(format!("{key:?}"), "a46388323b20562e/e5ac33032c84de2a");
    }
}
