//! Definitions without a disk: the model of other engines, for the tests of what stands on one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{ConnectionId, EndpointId, TenantId};

use super::store::{ConnectionState, DefinitionStore, Listed, StoreError, Stored};
use crate::ids::{AutomationId, Version};
use crate::ledger::BoxFuture;

/// Clones share what is stored.
#[derive(Debug, Clone, Default)]
pub struct MemoryDefinitions(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// Every version of each, from 1 on.
    automations: BTreeMap<AutomationId, Vec<Stored>>,
    deleted: BTreeSet<AutomationId>,
    dead: BTreeMap<(TenantId, ConnectionId), ConnectionState>,
    unavailable: Option<StoreError>,
}

impl MemoryDefinitions {
    /// Everything fails by this; none: it works again.
    pub fn unavailable(&self, fault: Option<StoreError>) {
        self.kept().unavailable = fault;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T: Send + 'static>(
        &self,
        answer: impl FnOnce(&mut Kept) -> Result<T, StoreError>,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let mut kept = self.kept();
        let answered = match kept.unavailable.clone() {
            Some(fault) => Err(fault),
            None => answer(&mut kept),
        };
        Box::pin(std::future::ready(answered))
    }
}

impl Kept {
    fn put(&mut self, stored: Stored) -> Result<(), StoreError> {
        let last = self.automations.get(&stored.id).and_then(|versions| versions.last());
        if last.is_some_and(|last| last.tenant != stored.tenant) {
            return Err(StoreError::Tenant);
        }
        if self.deleted.contains(&stored.id) {
            return Err(StoreError::Deleted);
        }
        let last = last.map_or(0, |last| last.version.get());
        if last.checked_add(1) != Some(stored.version.get()) {
            return Err(StoreError::Conflict { last });
        }
        if self.by_name(&stored.tenant, &stored.name).is_some_and(|other| other != stored.id) {
            return Err(StoreError::NameTaken);
        }
        self.automations.entry(stored.id).or_default().push(stored);
        Ok(())
    }

    /// The last version of each of a tenant's that is not deleted.
    fn living(&self, tenant: &TenantId) -> impl Iterator<Item = &Stored> {
        let is_living = |stored: &&Stored| stored.tenant == *tenant && !self.deleted.contains(&stored.id);
        self.automations.values().filter_map(|versions| versions.last()).filter(is_living)
    }

    fn by_name(&self, tenant: &TenantId, name: &str) -> Option<AutomationId> {
        self.living(tenant).find(|stored| &*stored.name == name).map(|stored| stored.id)
    }

    fn get(&self, tenant: &TenantId, id: AutomationId, version: Option<Version>) -> Option<Stored> {
        let versions = self.automations.get(&id)?;
        let is_asked = |stored: &&Stored| version.is_none_or(|version| stored.version == version);
        let mut found = versions.iter().rev().find(is_asked).filter(|stored| stored.tenant == *tenant)?.clone();
        found.is_deleted = self.deleted.contains(&id);
        Some(found)
    }

    fn list(&self, tenant: &TenantId, after: Option<AutomationId>, max: usize) -> Vec<Listed> {
        let lasts = self.automations.values().filter_map(|versions| versions.last());
        let is_asked = |stored: &&Stored| stored.tenant == *tenant && after.is_none_or(|after| stored.id > after);
        let listed = |stored: &Stored| Listed {
            id: stored.id,
            name: stored.name.clone(),
            version: stored.version,
            is_enabled: stored.is_enabled,
            is_deleted: self.deleted.contains(&stored.id),
            at_unix_ms: stored.at_unix_ms,
        };
        lasts.filter(is_asked).take(max).map(listed).collect()
    }

    fn set_connection_state(&mut self, key: (TenantId, ConnectionId), state: ConnectionState) -> bool {
        match state {
            ConnectionState::Connected => self.dead.remove(&key).is_some(),
            // The first reason is the one that was told.
            ConnectionState::NeedsReconnect { .. } if self.dead.contains_key(&key) => false,
            ConnectionState::NeedsReconnect { .. } => self.dead.insert(key, state).is_none(),
        }
    }
}

impl DefinitionStore for MemoryDefinitions {
    fn put(&self, stored: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        self.answer(|kept| kept.put(stored))
    }

    fn delete(&self, tenant: &TenantId, id: AutomationId, _by: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        self.answer(|kept| Ok(kept.get(tenant, id, None).is_some() && kept.deleted.insert(id)))
    }

    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        self.answer(|kept| Ok(kept.get(tenant, id, version)))
    }

    fn by_name(&self, tenant: &TenantId, name: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        self.answer(|kept| Ok(kept.by_name(tenant, name)))
    }

    fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        self.answer(|kept| Ok(kept.list(tenant, after, max)))
    }

    fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        self.answer(|kept| {
            let begins = |stored: &&Stored| stored.is_enabled && stored.endpoints.contains(endpoint);
            Ok(kept.living(tenant).filter(begins).map(|stored| (stored.id, stored.version)).collect())
        })
    }

    fn connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        self.answer(|kept| {
            let dead = kept.dead.get(&(tenant.clone(), connection.clone()));
            Ok(dead.cloned().unwrap_or(ConnectionState::Connected))
        })
    }

    fn set_connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
        state: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        self.answer(|kept| Ok(kept.set_connection_state((tenant.clone(), connection.clone()), state)))
    }

    fn needing_reconnect(
        &self,
        tenant: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        self.answer(|kept| {
            let dead = kept.dead.iter().filter(|((of, _), _)| of == tenant);
            Ok(dead.map(|((_, connection), state)| (connection.clone(), state.clone())).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automation::conformance::Subject;

    #[derive(Debug, Default)]
    struct Memory(MemoryDefinitions);

    #[async_trait::async_trait]
    impl Subject for Memory {
        async fn open(&mut self) -> Arc<dyn DefinitionStore> {
            Arc::new(self.0.clone())
        }
    }

    crate::definitions_conformance! { Memory::default() }

    #[tokio::test]
    async fn it_fails_while_it_is_to() {
        let store = MemoryDefinitions::default();
        let tenant = TenantId::parse("acme").unwrap();
        let fault = StoreError::Unavailable("away".into());
        store.unavailable(Some(fault.clone()));
        assert_eq!(store.list(&tenant, None, 1).await, Err(fault));
        store.unavailable(None);
        assert_eq!(store.list(&tenant, None, 1).await, Ok(Vec::new()));
    }
}
