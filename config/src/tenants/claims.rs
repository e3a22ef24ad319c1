//! What may belong to one tenant only: endpoint ids and aliases, across all files.

use std::collections::{HashMap, HashSet};

use domain::EndpointId;

use super::Unavailable;
use crate::tenant::{Alias, Endpoint, Tenant};

/// A tenant's place in the list that is being settled.
pub(crate) type Owner = usize;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    ids: HashMap<EndpointId, Owner>,
    paths: HashMap<Box<str>, PathClaims>,
}

/// Who has a path: on every host, or on which.
#[derive(Debug, Default)]
struct PathClaims {
    everywhere: Option<Owner>,
    hosts: HashMap<Box<str>, Owner>,
}

impl PathClaims {
    /// Somebody other than `owner` who wants requests that the alias wants too.
    fn other(&self, owner: Option<Owner>, alias: &Alias) -> Option<Owner> {
        let here = match &alias.host {
            Some(host) => self.hosts.get(host).copied().filter(|other| Some(*other) != owner),
            // An alias for every host and one for a single host want the same requests.
            None => self.hosts.values().copied().find(|other| Some(*other) != owner),
        };
        let everywhere = self.everywhere.filter(|other| Some(*other) != owner);
        here.or(everywhere)
    }
}

/// Somebody else has it.
#[derive(Debug)]
pub(crate) struct Conflict<'t> {
    pub(crate) endpoint: &'t Endpoint,
    pub(crate) owner: Owner,
    pub(crate) alias: Option<&'t Alias>,
}

impl Claims {
    pub(crate) fn with_capacity(endpoints: usize) -> Self {
        Self { ids: HashMap::with_capacity(endpoints), paths: HashMap::new() }
    }

    /// What of a tenant's is claimed by others.
    pub(crate) fn conflicts<'t>(&self, owner: Owner, tenant: &'t Tenant) -> Vec<Conflict<'t>> {
        let mut found = Vec::new();
        for endpoint in &tenant.endpoints {
            if let Some(other) = self.ids.get(&endpoint.id).filter(|other| **other != owner) {
                found.push(Conflict { endpoint, owner: *other, alias: None });
            }
            for alias in endpoint.aliases() {
                let other = self.paths.get(&alias.path).and_then(|claims| claims.other(Some(owner), alias));
                found.extend(other.map(|other| Conflict { endpoint, owner: other, alias: Some(alias) }));
            }
        }
        found
    }

    pub(crate) fn claim(&mut self, owner: Owner, tenant: &Tenant) {
        for endpoint in &tenant.endpoints {
            self.ids.insert(endpoint.id.clone(), owner);
            for alias in endpoint.aliases() {
                self.claim_alias(owner, alias);
            }
        }
    }

    /// Claims what a tenant had and keeps: of `tenant`'s ids and aliases those that `had` has too, unless somebody has
    /// them.
    pub(crate) fn claim_kept(&mut self, owner: Owner, tenant: &Tenant, had: &Tenant) {
        let ids: HashSet<_> = had.endpoints.iter().map(|endpoint| &endpoint.id).collect();
        let aliases: HashSet<_> = had.endpoints.iter().flat_map(Endpoint::aliases).collect();
        for endpoint in &tenant.endpoints {
            if ids.contains(&endpoint.id) {
                self.ids.entry(endpoint.id.clone()).or_insert(owner);
            }
            for alias in endpoint.aliases() {
                // Who had a path on every host had it on this one.
                let had = aliases.contains(alias) || aliases.contains(&Alias { host: None, path: alias.path.clone() });
                let claims = self.paths.get(&alias.path);
                if had && claims.is_none_or(|claims| claims.other(Some(owner), alias).is_none()) {
                    self.claim_alias(owner, alias);
                }
            }
        }
    }

    /// Claims what a text names, as far as nobody has it, here or in `others`.
    pub(crate) fn claim_named(&mut self, owner: Owner, named: &Unavailable, others: &Self) {
        for id in &named.endpoints {
            if !others.ids.contains_key(id) {
                self.ids.entry(id.clone()).or_insert(owner);
            }
        }
        for alias in &named.aliases {
            if !others.has_alias(None, alias) && !self.has_alias(None, alias) {
                self.claim_alias(owner, alias);
            }
        }
    }

    fn claim_alias(&mut self, owner: Owner, alias: &Alias) {
        let claims = self.paths.entry(alias.path.clone()).or_default();
        match &alias.host {
            Some(host) => claims.hosts.insert(host.clone(), owner),
            None => claims.everywhere.replace(owner),
        };
    }

    pub(crate) fn release(&mut self, owner: Owner, tenant: &Tenant) {
        for endpoint in &tenant.endpoints {
            if self.ids.get(&endpoint.id) == Some(&owner) {
                self.ids.remove(&endpoint.id);
            }
            for alias in endpoint.aliases() {
                if let Some(claims) = self.paths.get_mut(&alias.path) {
                    claims.everywhere = claims.everywhere.filter(|other| *other != owner);
                    claims.hosts.retain(|_, other| *other != owner);
                }
            }
        }
    }

    /// Whether somebody other than `owner` has the id.
    pub(crate) fn has_id(&self, owner: Option<Owner>, id: &EndpointId) -> bool {
        self.ids.get(id).is_some_and(|other| Some(*other) != owner)
    }

    /// Whether somebody other than `owner` has the alias.
    pub(crate) fn has_alias(&self, owner: Option<Owner>, alias: &Alias) -> bool {
        self.paths.get(&alias.path).is_some_and(|claims| claims.other(owner, alias).is_some())
    }
}
