//! Actions of connections, in the configuration that is in force now.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use config::connector::Manifest;
use config::connector::action::HTTP_REQUEST;
use domain::{ConnectionId, ConnectorId, TenantId};

use super::{Action, Connectors, HttpRequest, ManifestAction, NoAction};

/// Finds the manifest of a tenant's connection, in the configuration that is in force when it is asked.
pub trait Configured: Send + Sync + fmt::Debug {
    /// None where the tenant has no such connection: another tenant's is none.
    fn manifest(&self, tenant: &TenantId, connection: &ConnectionId) -> Option<Arc<Manifest>>;
}

/// The actions that manifests declare, compiled once for each.
///
/// A reload brings manifests anew, and what was compiled of an old one goes with it: nobody has to be told. There are
/// never more of them than connectors in the configuration.
#[derive(Debug)]
pub struct FromConfig {
    configured: Arc<dyn Configured>,
    compiled: RwLock<HashMap<ConnectorId, Arc<Compiled>>>,
}

/// One manifest's actions.
#[derive(Debug)]
struct Compiled {
    manifest: Arc<Manifest>,
    http_request: Arc<HttpRequest>,
    actions: HashMap<Box<str>, Arc<ManifestAction>>,
}

impl Compiled {
    fn of(manifest: &Arc<Manifest>) -> Self {
        let mut actions = HashMap::with_capacity(manifest.actions.len());
        for spec in &manifest.actions {
            match ManifestAction::new(manifest, &spec.name) {
                Some(Ok(action)) => drop(actions.insert(spec.name.clone(), Arc::new(action))),
                // The loader of manifests takes no schema that cannot be compiled; were one there, the action is not.
                Some(Err(fault)) => {
                    tracing::error!(connector = manifest.connector.as_str(), %fault, "an action cannot be used");
                }
                None => {}
            }
        }
        Self { manifest: Arc::clone(manifest), http_request: Arc::new(HttpRequest::new(Arc::clone(manifest))), actions }
    }
}

impl FromConfig {
    pub fn new(configured: Arc<dyn Configured>) -> Self {
        Self { configured, compiled: RwLock::default() }
    }

    fn compiled(&self, manifest: &Arc<Manifest>) -> Arc<Compiled> {
        let known = self.compiled.read().unwrap_or_else(PoisonError::into_inner).get(&manifest.connector).cloned();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.manifest, manifest)) {
            return known;
        }
        let fresh = Arc::new(Compiled::of(manifest));
        let mut all = self.compiled.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(manifest.connector.clone(), Arc::clone(&fresh));
        fresh
    }
}

impl Connectors for FromConfig {
    /// `action` is `http.request`, or a name as the manifest has it, with or without `CONNECTOR.` before it.
    fn action(&self, tenant: &TenantId, connection: &ConnectionId, action: &str) -> Result<Arc<dyn Action>, NoAction> {
        let manifest =
            self.configured.manifest(tenant, connection).ok_or_else(|| NoAction::Connection(connection.clone()))?;
        let compiled = self.compiled(&manifest);
        if action == HTTP_REQUEST {
            return Ok(Arc::clone(&compiled.http_request) as Arc<dyn Action>);
        }
        let connector = manifest.connector.as_str();
        let name = action.strip_prefix(connector).and_then(|rest| rest.strip_prefix('.')).unwrap_or(action);
        match compiled.actions.get(name) {
            Some(found) => Ok(Arc::clone(found) as Arc<dyn Action>),
            None => Err(NoAction::Action {
                connector: connector.into(),
                action: super::answer::cleaned(action).unwrap_or_default(),
            }),
        }
    }
}
