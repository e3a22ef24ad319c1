//! Whether what a proof names is there: a proof that holds is of no use to a tenant, a role or a connection that nobody
//! has configured, and the proxy refuses it.

use config::{Fault, Tenant};
use domain::text::Untrusted;
use domain::{ConnectionId, TenantId};
use egress::Refusal;

use super::super::settings::Configured;

/// What is not there.
#[derive(Debug)]
pub(super) struct Unknown {
    /// What a call is answered with.
    pub(super) refusal: Refusal,
    pub(super) why: String,
}

/// What the configuration says of a caller.
#[derive(Debug)]
pub(super) enum Known {
    Yes,
    No(Unknown),
    /// The tenant's file is faulty: an appliance that runs has its last good version, and this command has none.
    Faulty(Fault),
}

impl Known {
    pub(super) fn of(
        tenant: &TenantId,
        role: Option<&str>,
        connections: &[ConnectionId],
        configured: &Configured,
    ) -> Self {
        if let Some(found) = configured.tenants().find(|found| found.id == *tenant) {
            return unknown_of(found, role, connections).map_or(Self::Yes, Self::No);
        }
        if let Some(fault) = configured.fault_of(tenant) {
            return Self::Faulty(fault.clone());
        }
        let why = format!("no tenant {tenant} is configured here");
        Self::No(Unknown { refusal: Refusal::CallerUnknown, why })
    }
}

fn unknown_of(tenant: &Tenant, role: Option<&str>, connections: &[ConnectionId]) -> Option<Unknown> {
    let egress = tenant.egress();
    if let Some(role) = role {
        let mut roles = egress.iter().flat_map(|egress| &egress.roles);
        if !roles.any(|known| *known.name == *role) {
            let why = format!("tenant {} has no role {}", tenant.id, Untrusted::new(role.as_bytes()));
            return Some(Unknown { refusal: Refusal::DestinationNotAllowed, why });
        }
    }
    let is_there =
        |id: &ConnectionId| egress.is_some_and(|egress| egress.connections.iter().any(|known| known.id == *id));
    let connection = connections.iter().find(|id| !is_there(id))?;
    let why = format!("tenant {} has no connection {connection}", tenant.id);
    Some(Unknown { refusal: Refusal::ConnectionUnknown, why })
}
