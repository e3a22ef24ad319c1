//! Reading the index. Every row says whose it is, and is held against who asks.

use std::ops::Bound;

use domain::{ConnectionId, EndpointId, TenantId};

use super::super::store::{ConnectionState, Listed, StoreError, Stored};
use super::keys;
use super::projection::{Head, Projection};
use super::record::{self, CONNECTION, Fact, read};
use crate::ids::{AutomationId, Version};

/// Rows of one answer, whatever was asked for: a page, and what one endpoint can begin.
const ROWS_MAX: usize = 1000;

impl Projection {
    pub(super) fn head(&self, tenant: &TenantId, id: AutomationId) -> Result<Option<Head>, StoreError> {
        let Some(bytes) = self.heads.get(keys::automation(tenant, id)).map_err(unavailable)? else { return Ok(None) };
        let head: Head = read(&bytes).map_err(damaged)?;
        own(tenant, &head.tenant)?;
        Ok(Some(head))
    }

    pub(super) fn version(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> Result<Option<Stored>, StoreError> {
        let Some(head) = self.head(tenant, id)? else { return Ok(None) };
        let version = match version {
            Some(version) => version,
            None => Version::new(head.version).ok_or_else(|| damaged("version 0"))?,
        };
        let Some(bytes) = self.versions.get(keys::version(tenant, id, version)).map_err(unavailable)? else {
            return Ok(None);
        };
        let mut stored = record::put(&bytes).map_err(damaged)?;
        own(tenant, stored.tenant.as_str())?;
        if stored.id != id || stored.version != version {
            return Err(damaged("a version is another's"));
        }
        stored.is_deleted = head.is_deleted;
        Ok(Some(stored))
    }

    pub(super) fn by_name(&self, tenant: &TenantId, name: &str) -> Result<Option<AutomationId>, StoreError> {
        let Some(id) = self.names.get(keys::name(tenant, name)).map_err(unavailable)? else { return Ok(None) };
        let id = keys::last_automation(&id).ok_or_else(|| damaged("an automation's id"))?;
        // A name's row has no tenant in it; the head that it leads to has.
        Ok(self.head(tenant, id)?.map(|_| id))
    }

    pub(super) fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let prefix = keys::tenant(tenant);
        let from = after
            .map_or_else(|| Bound::Included(prefix.clone()), |after| Bound::Excluded(keys::automation(tenant, after)));
        let mut listed = Vec::new();
        for row in self.heads.range::<Vec<u8>, _>((from, Bound::Unbounded)).take(max.min(ROWS_MAX)) {
            let (key, value) = row.into_inner().map_err(unavailable)?;
            if !key.starts_with(&prefix) {
                break;
            }
            let head: Head = read(&value).map_err(damaged)?;
            own(tenant, &head.tenant)?;
            listed.push(Listed {
                id: keys::last_automation(&key).ok_or_else(|| damaged("an automation's id"))?,
                name: head.name.into(),
                version: Version::new(head.version).ok_or_else(|| damaged("version 0"))?,
                is_enabled: head.is_enabled,
                is_deleted: head.is_deleted,
                at_unix_ms: head.at_unix_ms,
            });
        }
        Ok(listed)
    }

    pub(super) fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> Result<Vec<(AutomationId, Version)>, StoreError> {
        let mut found = Vec::new();
        for row in self.triggers.prefix(keys::triggers(tenant, endpoint.as_str())).take(ROWS_MAX) {
            let (key, value) = row.into_inner().map_err(unavailable)?;
            let id = keys::last_automation(&key).ok_or_else(|| damaged("an automation's id"))?;
            let version = <[u8; 4]>::try_from(&*value).ok().and_then(|bytes| Version::new(u32::from_be_bytes(bytes)));
            let version = version.ok_or_else(|| damaged("a version's number"))?;
            // A trigger's row has no tenant in it; the head that it leads to has.
            let head = self.head(tenant, id)?.ok_or_else(|| damaged("a trigger leads to nothing"))?;
            if !head.is_deleted && head.is_enabled && head.version == version.get() {
                found.push((id, version));
            }
        }
        Ok(found)
    }

    pub(super) fn connection(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
    ) -> Result<ConnectionState, StoreError> {
        let found = self.connections.get(keys::connection(tenant, connection)).map_err(unavailable)?;
        found.map_or(Ok(ConnectionState::Connected), |bytes| connection_of(tenant, &bytes).map(|(_, state)| state))
    }

    pub(super) fn needing_reconnect(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<(ConnectionId, ConnectionState)>, StoreError> {
        self.connections
            .prefix(keys::tenant(tenant))
            .take(ROWS_MAX)
            .map(|row| connection_of(tenant, &row.value().map_err(unavailable)?))
            .collect()
    }
}

fn connection_of(tenant: &TenantId, bytes: &[u8]) -> Result<(ConnectionId, ConnectionState), StoreError> {
    match Fact::decode(CONNECTION, bytes).map_err(damaged)? {
        Fact::Connection { tenant: of, connection, state, .. } => {
            own(tenant, of.as_str())?;
            Ok((connection, state))
        }
        Fact::Put(_) | Fact::Deleted { .. } => Err(damaged("a connection's row is something else")),
    }
}

fn own(tenant: &TenantId, of: &str) -> Result<(), StoreError> {
    if tenant.as_str() == of {
        return Ok(());
    }
    tracing::error!(%tenant, "a definition of this tenant's is another tenant's");
    Err(StoreError::Tenant)
}

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
pub(super) fn unavailable(error: fjall::Error) -> StoreError {
    StoreError::Unavailable(error.to_string().into())
}

fn damaged(why: impl Into<Box<str>>) -> StoreError {
    let why = why.into();
    tracing::error!(%why, "the index of definitions is damaged: without it, it is made anew from the journal");
    StoreError::Damaged(why)
}
