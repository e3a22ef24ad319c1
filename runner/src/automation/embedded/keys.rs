//! Keys of the index. Each begins with its tenant, with its length in front, so that no tenant's keys are among another's.

use domain::{ConnectionId, TenantId};

use crate::ids::{AutomationId, Version};

/// What all keys of a tenant begin with.
pub(super) fn tenant(tenant: &TenantId) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    part(&mut key, tenant.as_bytes());
    key
}

pub(super) fn automation(of: &TenantId, id: AutomationId) -> Vec<u8> {
    let mut key = tenant(of);
    key.extend_from_slice(id.as_bytes());
    key
}

pub(super) fn version(of: &TenantId, id: AutomationId, version: Version) -> Vec<u8> {
    let mut key = automation(of, id);
    key.extend_from_slice(&version.get().to_be_bytes());
    key
}

pub(super) fn name(of: &TenantId, name: &str) -> Vec<u8> {
    let mut key = tenant(of);
    key.extend_from_slice(name.as_bytes());
    key
}

/// What the keys of all that an endpoint begins begin with.
pub(super) fn triggers(of: &TenantId, endpoint: &str) -> Vec<u8> {
    let mut key = tenant(of);
    part(&mut key, endpoint.as_bytes());
    key
}

pub(super) fn trigger(of: &TenantId, endpoint: &str, id: AutomationId) -> Vec<u8> {
    let mut key = triggers(of, endpoint);
    key.extend_from_slice(id.as_bytes());
    key
}

pub(super) fn connection(of: &TenantId, connection: &ConnectionId) -> Vec<u8> {
    let mut key = tenant(of);
    key.extend_from_slice(connection.as_bytes());
    key
}

/// Ids are checked names of at most some hundred bytes: two bytes say how many.
fn part(key: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(bytes);
}

/// The automation that a key ends with.
pub(super) fn last_automation(key: &[u8]) -> Option<AutomationId> {
    let id = key.len().checked_sub(16).and_then(|at| key.get(at..))?;
    Some(AutomationId::from_bytes(id.try_into().ok()?))
}
