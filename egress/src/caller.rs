//! Who asks.
//!
//! Three kinds of proof, one kind of caller:
//!
//! - a **call grant** (`grant.rs`): a signed JWT for minutes, which the platform's issuer makes for a run
//! - a **static token** (`token.rs`): random text whose hash is in the tenant's file
//! - a **client certificate** (`certificate.rs`)
//!
//! `presented.rs` says where in a request the proof is, [`Callers`] decides whether it holds, `revocation.rs` takes
//! back. What holds:
//!
//! - a proof is asked for and checked on every request; tunnels end with it, and requests under way 30 s later;
//! - nobody gets to be of a tenant but by who may speak for that tenant, and whoever is refused learns no reason;
//! - proofs are not taken where others could read them;
//! - no proof is printed, logged or passed on;
//! - every table is bounded, and only who is known can fill those that remember.

use std::fmt;

use domain::{ConnectionId, TenantId};
use outbound::HostPattern;

mod cache;
mod callers;
mod certificate;
mod claims;
mod configured;
mod forgeries;
mod grant;
mod issuers;
mod key;
mod mint;
pub mod presented;
mod revocation;
#[cfg(test)]
mod testing;
mod token;
mod unproved;
mod uses;

pub use callers::{Arrival, CallerSettings, Callers, Identified, LeftOut, PlaintextGrants, Tls};
pub use certificate::{CertificateEntry, CertificateMatch, PeerCertificate};
pub use claims::network;
pub use configured::IssuerFault;
pub use grant::{GRANT_BYTES_MAX, LEEWAY_SECONDS, LIFETIME_SECONDS_MAX, peek};
pub use issuers::{ISSUER_KEYS_MAX, IssuerEntry, IssuerTenants};
pub use key::{KeyFault, PublicKey, SigningKey};
pub use mint::{Minted, NewGrant};
pub use presented::{Presented, Slot};
pub use revocation::file::{FILE_NAME as REVOCATIONS_FILE, RevocationFault, revoke, revoked};
pub use revocation::node::Revocations;
pub use revocation::{REVOKED_MS_MIN, Revocation, Revoked, Until};
pub use token::{TOKEN_PREFIX, TokenEntry, TokenHash, new_token};
pub use unproved::{GrantFault, Unproved};

/// A caller whose proof has been checked. One tenant, always, and nobody can name another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose calls these are.
    pub tenant: TenantId,
    /// Which of the tenant's roles; none is its default one.
    pub role: Option<Box<str>>,
    /// How it was proved.
    pub identity: Identity,
    /// Connections that may be called; none means all of the tenant's.
    pub connections: Option<Box<[ConnectionId]>>,
    /// Hosts that may be asked for, beside what policy says; none means no further bound.
    pub destinations: Option<Box<[HostPattern]>>,
    /// Evidence, written to every record: which run and automation this is for, and of which class.
    pub run: Option<Box<str>>,
    /// See `run`.
    pub automation: Option<Box<str>>,
    /// See `run`.
    pub class: Option<Box<str>>,
    /// When the proof ends, in Unix milliseconds: tunnels end with it, requests under way 30 s later. None for static
    /// tokens that have no end.
    pub until_unix_ms: Option<u64>,
}

impl Caller {
    fn of_token(entry: &TokenEntry) -> Self {
        let identity = Identity::Token { name: entry.name.clone() };
        Self { until_unix_ms: entry.until_unix_ms, ..Self::plain(&entry.tenant, entry.role.as_deref(), identity) }
    }

    /// Whether it is what [`Caller::of_token`] makes of the entry.
    fn is_of_token(&self, entry: &TokenEntry) -> bool {
        let Self { tenant, role, identity, connections, destinations, run, automation, class, until_unix_ms } = self;
        *tenant == entry.tenant
            && *role == entry.role
            && matches!(identity, Identity::Token { name } if *name == entry.name)
            && *until_unix_ms == entry.until_unix_ms
            && (connections.is_none() && destinations.is_none())
            && (run.is_none() && automation.is_none() && class.is_none())
    }

    fn of_certificate(entry: &CertificateEntry, until_unix_ms: u64) -> Self {
        let identity = Identity::Certificate { name: entry.name.clone() };
        Self { until_unix_ms: Some(until_unix_ms), ..Self::plain(&entry.tenant, entry.role.as_deref(), identity) }
    }

    /// Whoever is bound by his role only.
    fn plain(tenant: &TenantId, role: Option<&str>, identity: Identity) -> Self {
        Self {
            tenant: tenant.clone(),
            role: role.map(Into::into),
            identity,
            connections: None,
            destinations: None,
            run: None,
            automation: None,
            class: None,
            until_unix_ms: None,
        }
    }
}

/// How a caller proved itself. Printed in records; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A call grant: its issuer and its id.
    Grant {
        /// `iss`.
        issuer: Box<str>,
        /// `jti`.
        id: Box<str>,
    },
    /// A static token, by the name that the configuration gives it.
    Token {
        /// Its name.
        name: Box<str>,
    },
    /// A client certificate, by the name that the configuration gives it.
    Certificate {
        /// Its name.
        name: Box<str>,
    },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant { issuer, id } => write!(f, "grant:{issuer}/{id}"),
            Self::Token { name } => write!(f, "token:{name}"),
            Self::Certificate { name } => write!(f, "certificate:{name}"),
        }
    }
}
