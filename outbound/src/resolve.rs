//! Resolving: from a name to the addresses of one answer.
//!
//! Names are asked of the servers in the settings and of nobody else: no `/etc/hosts`, no search list, no
//! `getaddrinfo`, which reads `0x7f.1` as an address and never asks DNS at all. Names are absolute. An answer is only
//! an answer; [`Rules::vet`](crate::Rules::vet) decides what of it may be dialled.

mod cache;
mod dns;
mod shares;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::TenantId;
use thiserror::Error;

use crate::authority::{Authority, Host, HostName};
use crate::opening::Opening;
use crate::proxy_status::ErrorType;
use crate::refused::Refused;
use crate::vet::{Rules, Vetted};

pub use cache::{CacheSettings, CachedResolver};
pub use dns::{DnsResolver, DnsSettings, DnsSettingsFault};

/// Who turns names into addresses. Tests bring their own.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// The addresses of both families, or why there are none. Returns within a time that the implementation bounds.
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError>;

    /// The same for a call of a tenant, which has a share of the look-ups under way where somebody sees to that.
    async fn resolve_for(&self, _tenant: &TenantId, name: &HostName) -> Result<Answer, ResolveError> {
        self.resolve(name).await
    }
}

/// What DNS said. At least one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// In the order in which they came.
    pub addresses: Arc<[IpAddr]>,
    /// How long it may be kept, as its records say.
    pub ttl: Duration,
}

/// Why a name has no addresses. None of these is a decision of ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error("the name does not exist")]
    NotFound { ttl: Option<Duration> },
    #[error("the name has no addresses")]
    NoAddresses { ttl: Option<Duration> },
    #[error("the servers answered {rcode}")]
    Failed { rcode: String },
    #[error("no server answered in time")]
    Timeout,
    #[error("no server could be reached")]
    Unreachable,
    #[error("the answer makes no sense: {why}")]
    Garbled { why: String },
    #[error("too many lookups are under way")]
    Busy,
    #[error("the tenant has as many lookups under way as it may")]
    TenantBusy,
}

impl ResolveError {
    /// How `Proxy-Status` names it.
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::Timeout => ErrorType::DnsTimeout,
            Self::Busy | Self::TenantBusy => ErrorType::ConnectionLimitReached,
            Self::NotFound { .. }
            | Self::NoAddresses { .. }
            | Self::Failed { .. }
            | Self::Unreachable
            | Self::Garbled { .. } => ErrorType::DnsError,
        }
    }

    /// `Proxy-Status`'s `rcode`, where a server said one.
    pub fn rcode(&self) -> Option<&str> {
        match self {
            Self::NotFound { .. } => Some("NXDOMAIN"),
            Self::NoAddresses { .. } => Some("NOERROR"),
            Self::Failed { rcode } => Some(rcode),
            Self::Timeout | Self::Unreachable | Self::Garbled { .. } | Self::Busy | Self::TenantBusy => None,
        }
    }

    /// A stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not-found",
            Self::NoAddresses { .. } => "no-addresses",
            Self::Failed { .. } => "failed",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Garbled { .. } => "garbled",
            Self::Busy => "busy",
            Self::TenantBusy => "tenant-busy",
        }
    }
}

/// Why an authority has no vetted addresses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotVetted {
    /// A decision.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A fault.
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
}

/// From an authority to what may be dialled: judge the name, resolve it, vet every address. An authority that is an
/// address is not resolved.
pub async fn resolve_and_vet(
    authority: &Authority,
    openings: &[Opening],
    rules: &Rules,
    resolver: &dyn Resolve,
) -> Result<Vetted, NotVetted> {
    rules.judge_name(authority, openings)?;
    match authority.host() {
        Host::Address(address) => Ok(rules.vet(authority, &[*address], openings)?),
        Host::Name(name) => {
            let answer = resolver.resolve(name).await?;
            Ok(rules.vet(authority, &answer.addresses, openings)?)
        }
    }
}
