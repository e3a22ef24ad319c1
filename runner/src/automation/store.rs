//! Where versions are kept. They are truth, as the ledger is: a run finishes under the version that it began with.

use std::fmt;

use domain::{ConnectionId, EndpointId, TenantId};

use crate::ids::{AutomationId, Version};
use crate::ledger::BoxFuture;

/// Keeps every version of every automation, and states of connections. Each engine of the ledger has one.
///
/// A million automations that nothing happens to cost bytes on the disk, and no memory.
pub trait DefinitionStore: Send + Sync + fmt::Debug {
    /// Stores a version: `version` 1 makes the automation, and each further one is the last and one more, else `Conflict`.
    /// `name` is unique among the tenant's automations that are not deleted. Durable when the future says so.
    fn put(&self, stored: Stored) -> BoxFuture<'static, Result<(), StoreError>>;

    /// No run begins any more; versions and history stay. Says whether it was there and not deleted.
    fn delete(&self, tenant: &TenantId, id: AutomationId, by: &str) -> BoxFuture<'static, Result<bool, StoreError>>;

    /// One version, also of a deleted automation; without a version, the last.
    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>>;

    /// The tenant's automation of this name, if it is not deleted.
    fn by_name(&self, tenant: &TenantId, name: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>>;

    /// Automations of a tenant, by id, behind one of them; deleted ones too, marked.
    fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>>;

    /// Which automations an event of this endpoint begins, each in its last version; never deleted or disabled ones.
    fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>>;

    /// How a connection is. `Connected` where nobody ever said otherwise.
    fn connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>>;

    /// Says whether it has changed: whoever is told yes notifies, and nobody else does.
    fn set_connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
        state: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>>;

    /// Connections of a tenant that are not connected.
    fn needing_reconnect(
        &self,
        tenant: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>>;
}

/// One version as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub tenant: TenantId,
    pub id: AutomationId,
    pub version: Version,
    pub name: Box<str>,
    /// Canonical JSON; its BLAKE3 is the digest.
    pub json: Box<str>,
    pub digest: [u8; 32],
    /// Endpoints whose events begin it.
    pub endpoints: Box<[EndpointId]>,
    pub is_enabled: bool,
    pub is_deleted: bool,
    pub at_unix_ms: u64,
    pub by: Box<str>,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: AutomationId,
    pub name: Box<str>,
    pub version: Version,
    pub is_enabled: bool,
    pub is_deleted: bool,
    pub at_unix_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    Connected,
    /// Its authentication is dead: since when, and in the provider's words (redacted, at most 1 KiB).
    NeedsReconnect {
        since_unix_ms: u64,
        reason: Box<str>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("version {last} is there: edit that one")]
    Conflict { last: u32 },
    #[error("another automation of this tenant has this name")]
    NameTaken,
    #[error("the automation is deleted")]
    Deleted,
    /// Asserted on every row: told loudly, and answered to nobody.
    #[error("a definition is another tenant's")]
    Tenant,
    #[error("definitions cannot be kept or read: {0}")]
    Unavailable(Box<str>),
    #[error("definitions are damaged: {0}")]
    Damaged(Box<str>),
}
