//! A platform that issues grants, for the tests of this directory.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use domain::{Secret, TenantId};
use listen::Vouching;

use super::callers::{Arrival, CallerSettings, Tls};
use super::certificate::PeerCertificate;
use super::grant::Grant;
use super::issuers::{IssuerEntry, IssuerTenants, Issuers};
use super::key::{PublicKey, SigningKey};
use super::mint::{NewGrant, sign};
use super::unproved::GrantFault;
use super::{Caller, Identity};

/// A whole second.
pub(super) const NOW_MS: u64 = 1_764_424_000_000;

/// Signing keys are costly to make and never change here.
pub(super) static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().unwrap().0);

/// Of somebody else.
pub(super) static OTHER_KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().unwrap().0);

pub(super) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// A caller with a grant.
pub(super) fn caller(of: &str, id: &str, run: Option<&str>) -> Caller {
    Caller {
        tenant: tenant(of),
        role: None,
        identity: Identity::Grant { issuer: "platform".into(), id: id.into() },
        connections: None,
        destinations: None,
        run: run.map(Into::into),
        automation: None,
        class: None,
        until_unix_ms: Some(NOW_MS + 60_000),
    }
}

pub(super) fn issuer(name: &str, key: &SigningKey, tenants: &[&str]) -> IssuerEntry {
    let tenants = match tenants {
        ["*"] => IssuerTenants::Every,
        named => IssuerTenants::These(named.iter().map(|name| tenant(name)).collect::<HashSet<_>>()),
    };
    IssuerEntry { name: name.into(), keys: vec![key.public()], tenants }
}

/// One issuer, `platform`, for `acme` and `beta`; the audience is `tidegate`.
pub(super) fn settings() -> CallerSettings {
    CallerSettings {
        audience: "tidegate".into(),
        issuers: vec![issuer("platform", &KEY, &["acme", "beta"])],
        ..CallerSettings::default()
    }
}

pub(super) fn new_grant() -> NewGrant {
    NewGrant::new("platform", "tidegate", tenant("acme"))
}

/// The text of a grant for a minute from [`NOW_MS`] on.
pub(super) fn minted(grant: &NewGrant) -> Vec<u8> {
    grant.mint(&KEY, NOW_MS, Duration::from_mins(1)).unwrap().token.expose().to_vec()
}

/// Any header and claims, signed as they are.
pub(super) fn signed(header: &str, claims: &str) -> Secret {
    sign(&KEY, header.as_bytes(), claims.as_bytes())
}

pub(super) fn verify(token: &[u8]) -> Result<(Grant, PublicKey), GrantFault> {
    let (issuers, _) = Issuers::new("tidegate", settings().issuers);
    issuers.verify(token, || Ok(()))
}

pub(super) fn verified_grant() -> (Grant, PublicKey) {
    verify(&minted(&new_grant())).unwrap()
}

/// From this machine, without TLS.
pub(super) fn local() -> Arrival<'static> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Arrival { peer: here, local: here, tls: Tls::Absent, is_distrusted: false }
}

/// What tests share of a clock.
pub(super) fn clock() -> Arc<domain::ManualClock> {
    domain::ManualClock::at_unix_ms(NOW_MS)
}

/// A client's certificate that has no end.
pub(super) fn certificate_of(byte: u8, sans: &[&str]) -> PeerCertificate {
    PeerCertificate {
        sha256: [byte; 32],
        sans: sans.iter().map(|name| (*name).into()).collect(),
        until_unix_ms: u64::MAX,
        vouching: Vouching::default(),
    }
}
