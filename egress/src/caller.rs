//! Who asks.

use domain::{ConnectionId, TenantId};
use outbound::HostPattern;

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
    /// When the proof ends, in Unix milliseconds: tunnels end with it. None for static tokens and certificates.
    pub until_unix_ms: Option<u64>,
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
