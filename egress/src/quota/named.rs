//! Names of the protocol of leases for what calls are of.

use std::net::IpAddr;

use domain::{ConnectionId, ConnectorId, TenantId};
use outbound::Authority;
use ratelimit::quota::{Application, NAME_BYTES_MAX, Name};

/// Hexadecimal digits of a digest that stands for a text which is no name: 128 bits, so that nobody finds two.
const DIGEST_DIGITS: usize = 32;

/// The text itself if it is a name, else its digest.
pub(super) fn name(text: &str) -> Name {
    let digest = || {
        let hex = blake3::hash(text.as_bytes()).to_hex();
        Name::parse(&hex[..DIGEST_DIGITS]).expect("hexadecimal digits are a name")
    };
    Name::parse(text).unwrap_or_else(|_| digest())
}

pub(super) fn tenant(tenant: &TenantId) -> Name {
    name(tenant.as_str())
}

/// A dot is in no id, so that no two connections share a name.
pub(super) fn connection(tenant: &TenantId, connection: &ConnectionId) -> Name {
    const { assert!(NAME_BYTES_MAX >= DIGEST_DIGITS) };
    name(&format!("{tenant}.{connection}"))
}

/// What the tenants share at a provider.
pub(super) fn application(connector: &ConnectorId) -> Application {
    Application { provider: name(connector.as_str()), name: name("app") }
}

/// A provider that has no connector: of each connection its own, so that tenants share nothing.
pub(super) fn own_application(connector: &ConnectorId, connection: &Name) -> Application {
    Application { provider: name(connector.as_str()), name: connection.clone() }
}

/// A source address at a provider, which several applications may share: asked after the application.
pub(super) fn source_application(connector: &ConnectorId, source: &Name) -> Application {
    Application { provider: name(connector.as_str()), name: name(&format!("src-{source}")) }
}

/// An address; colons are in no name.
pub(super) fn source(address: IpAddr) -> Name {
    name(&address.to_string().replace(':', "-"))
}

/// A destination as keys and records have it.
pub(super) fn destination(authority: &Authority) -> String {
    authority.to_string()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn texts_that_are_no_names_have_one_all_the_same() {
        assert_eq!(name("acme.crm").as_str(), "acme.crm");
        for text in ["", "a b", "a:b", &"x".repeat(65)] {
            assert_eq!(name(text).as_str().len(), DIGEST_DIGITS, "{text}");
        }
        assert_ne!(name("a b"), name("a:b"));
        assert_eq!(source("2001:db8::1".parse().unwrap()).as_str(), "2001-db8--1");
    }
}
