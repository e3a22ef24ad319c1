//! What a tunnel may carry.

use outbound::{Host, HostName};
use thiserror::Error;

use super::client_hello::{Hello, HelloFault};
use crate::policy::SniRule;

/// What may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// TLS for the destination that was asked for.
    Tls(SniRule),
    /// Whatever it is. Nothing is looked at and nobody has to speak first.
    Anything,
}

/// What becomes of a tunnel that carries something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enforcement {
    /// It ends, and the destination gets none of it.
    #[default]
    Refuse,
    /// It goes on, and what was found is told.
    Report,
}

impl From<SniRule> for Enforcement {
    fn from(rule: SniRule) -> Self {
        match rule {
            SniRule::Require | SniRule::AllowAbsent => Self::Refuse,
            SniRule::Report => Self::Report,
        }
    }
}

/// What a tunnel carries instead of TLS for its destination.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mismatch {
    #[error("it is not TLS")]
    NotTls,
    #[error("its ClientHello is malformed: {0}")]
    Hello(HelloFault),
    #[error("the client hung up within its ClientHello")]
    Cut,
    #[error("the client said nothing, or not all of its ClientHello, in time")]
    Silent,
    #[error("its ClientHello names no server")]
    NameMissing,
    #[error("its ClientHello names {0}")]
    OtherName(HostName),
}

impl Mismatch {
    /// A stable word for records and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotTls => "not-tls",
            Self::Hello(fault) => fault.reason(),
            Self::Cut => "hello-cut",
            Self::Silent => "hello-timeout",
            Self::NameMissing => "sni-missing",
            Self::OtherName(_) => "sni-other",
        }
    }
}

/// Whether a tunnel to this host may begin so.
pub(super) fn judge(host: &Host, rule: SniRule, hello: &Hello) -> Result<(), Mismatch> {
    match (host, &hello.server_name) {
        (Host::Name(name), Some(shown)) if name == shown => Ok(()),
        // An address has no name that it could be compared with (RFC 6066, 3: "Literal … addresses are not permitted"),
        // so a name beside it is a way to another site on the same machine.
        (Host::Name(_) | Host::Address(_), Some(shown)) => Err(Mismatch::OtherName(shown.clone())),
        (Host::Name(_), None) if rule != SniRule::AllowAbsent => Err(Mismatch::NameMissing),
        (Host::Name(_) | Host::Address(_), None) => Ok(()),
    }
}
