//! What is configured, as one value that a call loads once and keeps.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use domain::TenantId;
use outbound::{Exit, ExitAddress, Rules, TlsClient};

use crate::Refusal;
use crate::connections::Connections;
use crate::forward::headers::Names;
use crate::no::No;
use crate::policy::Policy;
use crate::settings::Settings;

/// Everything that a reload can change.
#[derive(Debug)]
pub struct Snapshot {
    /// Bounds.
    pub settings: Settings,
    /// Who we say we are.
    pub names: Names,
    /// Who may call what.
    pub policy: Policy,
    /// Which addresses may be dialled.
    pub rules: Arc<Rules>,
    /// Where calls leave from, by the pool's name; none where the kernel chooses.
    pub pools: HashMap<Box<str>, Arc<[ExitAddress]>>,
    /// Accounts at providers.
    pub connections: Connections,
    /// How TLS is spoken to destinations.
    pub tls: TlsClient,
}

/// The pool of tenants that name none.
pub const DEFAULT_POOL: &str = "default";

impl Snapshot {
    /// One address of a tenant's pool, always the same one for as long as the pool is as it is: connections are pooled
    /// by it, and a provider sees one tenant come from one address.
    pub(crate) fn exit(&self, pool: Option<&str>, tenant: &TenantId) -> Result<Exit, No> {
        if self.pools.is_empty() {
            return Ok(Exit::Unbound);
        }
        let name = pool.unwrap_or(DEFAULT_POOL);
        let addresses = self.pools.get(name).filter(|addresses| !addresses.is_empty());
        let Some(addresses) = addresses else {
            return Err(No::new(Refusal::ExitUnavailable, format!("there is no exit pool {name}")));
        };
        let address = exit_of(addresses, tenant);
        address.cloned().map(Exit::From).ok_or_else(|| No::new(Refusal::Internal, "a place beyond the pool's end"))
    }
}

/// Which of a pool's addresses is the tenant's.
pub fn exit_of<'a, T>(addresses: &'a [T], tenant: &TenantId) -> Option<&'a T> {
    let mut hasher = DefaultHasher::new();
    tenant.as_str().hash(&mut hasher);
    let place = hasher.finish().checked_rem(addresses.len() as u64)?;
    addresses.get(usize::try_from(place).ok()?)
}
