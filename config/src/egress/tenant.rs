//! A tenant's way out, as the path of calls sees it. Few of a node's tenants have one at first: it is boxed apart.

use std::fmt;
use std::sync::Arc;

use domain::{ConnectionId, ConnectorId, Secret};

use super::rule::{EgressRule, RuleMode};
use crate::connector::quota::ConnectionQuota;
use crate::settings::Http2;

/// What a tenant's `[egress]`, `[[connection]]` and `[[credential]]` tables say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TenantEgress {
    /// None: the appliance's.
    pub mode: Option<RuleMode>,
    pub allow: Box<[EgressRule]>,
    pub deny: Box<[EgressRule]>,
    /// Name of one of the appliance's pools; none: the one named `default`.
    pub pool: Option<Arc<str>>,
    /// None: [`SniRule::Require`].
    pub sni: Option<SniRule>,
    /// Names are distinct.
    pub roles: Box<[EgressRole]>,
    /// Names are distinct, and so are digests.
    pub tokens: Box<[EgressToken]>,
    /// Names are distinct, and so is what they are recognised by.
    pub certificates: Box<[EgressCertificate]>,
    /// Ids are distinct.
    pub connections: Box<[Connection]>,
    /// Ids are distinct.
    pub credentials: Box<[Credential]>,
}

/// What the TLS greeting inside of a tunnel has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SniRule {
    /// It names the destination.
    #[default]
    Require,
    /// It names the destination, or nothing.
    AllowAbsent,
    /// Whatever it is, it passes; what [`SniRule::Require`] would end is told.
    Report,
}

/// Callers of a tenant that may go elsewhere. What it leaves out is the tenant's.
#[derive(Debug, Clone, PartialEq)]
pub struct EgressRole {
    pub name: Box<str>,
    /// In place of the tenant's own list.
    pub allow: Option<Box<[EgressRule]>>,
    /// Beside the tenant's own list.
    pub deny: Box<[EgressRule]>,
    pub mode: Option<RuleMode>,
    pub sni: Option<SniRule>,
    pub line: u32,
}

/// A client certificate that proves a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressCertificate {
    pub name: Box<str>,
    pub by: CertificateBy,
    /// One of the tenant's roles.
    pub role: Option<Box<str>>,
    pub line: u32,
}

/// By what a client certificate is recognised.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateBy {
    /// SHA-256 of its DER.
    Sha256([u8; 32]),
    /// One of its names, with the kind: `uri:spiffe://example.com/runner`.
    San(Box<str>),
}

/// A static token, by its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct EgressToken {
    pub name: Box<str>,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// One of the tenant's roles.
    pub role: Option<Box<str>>,
    /// The last millisecond at which it counts.
    pub not_after_unix_ms: Option<u64>,
    pub line: u32,
}

/// An account at a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    pub id: ConnectionId,
    pub connector: ConnectorId,
    /// `https://host[:port][/base/path]` without a slash at its end. Its host is judged by the parser of destinations.
    pub base_url: Box<str>,
    /// Place in [`TenantEgress::credentials`].
    pub credential: Option<u32>,
    /// None: the appliance's.
    pub http2: Option<Http2>,
    /// What it says of its quota, to be judged by its connector's profile; none where it says nothing.
    pub quota: Option<Box<ConnectionQuota>>,
    /// What TLS to the provider is made of, where it is not the usual.
    pub tls: Option<Box<ConnectionTls>>,
    /// False where a secret that its TLS is made of cannot be used now: as for a credential without a value.
    pub usable: bool,
    pub line: u32,
}

/// TLS of one connection. All of it is PEM.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionTls {
    /// Authorities in place of the machine's.
    pub roots: Option<Secret>,
    /// Certificate chain and private key.
    pub client: Option<(Secret, Secret)>,
}

/// What proves the tenant to a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Credential {
    pub id: Box<str>,
    pub kind: CredentialKind,
    /// Fit for its place: printable ASCII without a space at either end in a header, no control characters elsewhere.
    /// None where it cannot be used now: then the tenant's last good version answers, or this node takes no calls.
    pub value: Option<Secret>,
    pub line: u32,
}

/// How a credential is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialKind {
    /// `Authorization: Bearer VALUE`.
    Bearer,
    /// `NAME: PREFIXVALUE`; the name is in lower case.
    Header { name: Box<str>, prefix: Box<str> },
    /// `Authorization: Basic …` of `username:VALUE`. Without a username the value is `user:password` already.
    Basic { username: Option<Box<str>> },
    /// `?parameter=VALUE`, percent-encoded when it is attached.
    Query { parameter: Box<str> },
}

impl TenantEgress {
    /// The credential of a connection; none where it goes without one.
    pub fn credential(&self, connection: &Connection) -> Option<&Credential> {
        self.credentials.get(usize::try_from(connection.credential?).ok()?)
    }

    /// Takes the connections out of use whose TLS is made of secrets: one of those is not what it should be.
    pub(crate) fn withdraw_tls(&mut self) {
        for connection in &mut self.connections {
            connection.usable &= connection.tls.take().is_none();
        }
    }
}

impl fmt::Debug for EgressToken {
    /// The digest of a token that is not random enough tells the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressToken").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}
