//! Versions, compiled when they are needed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use domain::TenantId;

use super::document::Faults;
use super::graph::Automation;
use super::store::{DefinitionStore, StoreError};
use crate::ids::{AutomationId, Version};

/// How much is kept compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Default 1,024.
    pub automations_max: usize,
    /// Of their JSON, all together; compiled they take some ten times as much. Default 8 MiB.
    pub json_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { automations_max: 1024, json_bytes_max: 8 << 20 }
    }
}

/// Why there is no automation to walk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("there is no such version of this automation")]
    NotThere,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It was sound when it was stored.
    #[error("the stored version does not compile any more: {0}")]
    Faults(Faults),
}

type Key = (TenantId, AutomationId, Version);

/// Loads and compiles versions, and keeps those that were used last. A version never changes, so that nothing of this is
/// ever out of date; what is dropped is compiled again.
pub struct CompiledAutomations {
    store: Arc<dyn DefinitionStore>,
    bounds: Bounds,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: HashMap<Key, Held>,
    /// When each was used last, oldest first.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    json_bytes: usize,
}

#[derive(Debug)]
struct Held {
    automation: Arc<Automation>,
    json_bytes: usize,
    used: u64,
}

impl fmt::Debug for CompiledAutomations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledAutomations")
            .field("store", &self.store)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl CompiledAutomations {
    pub fn new(store: Arc<dyn DefinitionStore>, bounds: Bounds) -> Self {
        Self { store, bounds, kept: Mutex::default() }
    }

    /// One version; also of a deleted automation, whose runs finish. Two that ask for the same at once may both compile it.
    pub async fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> Result<Arc<Automation>, LoadError> {
        let key = (tenant.clone(), id, version);
        if let Some(automation) = self.kept().find(&key) {
            return Ok(automation);
        }
        let stored = self.store.get(tenant, id, Some(version)).await?.ok_or(LoadError::NotThere)?;
        if stored.tenant != *tenant {
            tracing::error!(%tenant, "a version of this tenant's is another tenant's");
            return Err(LoadError::Store(StoreError::Tenant));
        }
        let json_bytes = stored.json.len();
        let compiled = tokio::task::spawn_blocking(move || Automation::compile(&stored)).await;
        let automation = compiled
            .map_err(|_| LoadError::Store(StoreError::Unavailable("compiling was given up".into())))?
            .map_err(LoadError::Faults)?;
        let automation = Arc::new(automation);
        self.kept().keep(key, Arc::clone(&automation), json_bytes, self.bounds);
        Ok(automation)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn find(&mut self, key: &Key) -> Option<Arc<Automation>> {
        let held = self.by_key.get_mut(key)?;
        self.by_use.remove(&held.used);
        self.uses += 1;
        held.used = self.uses;
        self.by_use.insert(self.uses, key.clone());
        Some(Arc::clone(&held.automation))
    }

    fn keep(&mut self, key: Key, automation: Arc<Automation>, json_bytes: usize, bounds: Bounds) {
        self.drop_one(&key);
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.by_key.insert(key, Held { automation, json_bytes, used: self.uses });
        self.json_bytes += json_bytes;
        while self.by_key.len() > bounds.automations_max.max(1)
            || (self.json_bytes > bounds.json_bytes_max && self.by_key.len() > 1)
        {
            let Some(oldest) = self.by_use.values().next().cloned() else { break };
            self.drop_one(&oldest);
        }
    }

    fn drop_one(&mut self, key: &Key) {
        if let Some(held) = self.by_key.remove(key) {
            self.by_use.remove(&held.used);
            self.json_bytes -= held.json_bytes;
        }
    }
}

#[cfg(test)]
mod tests;
