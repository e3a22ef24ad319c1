//! One snapshot of the configuration: every endpoint, found by path and host, and the settings that go with them.
//! Built whole and swapped in whole: a request sees one snapshot from its first step to its last.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::sync::Arc;

use config::{Alias, NodeLimits, Unavailable};
use domain::{EndpointId, Refusal};
use hashbrown::HashTable;

use crate::endpoint::{Endpoint, Place, TenantEndpoints};

const PREFIX: &str = "/hooks/";

#[derive(Debug, Default)]
pub struct Snapshot {
    pub settings: config::Gateway,
    /// Limits of tenants and endpoints that have none of their own.
    pub limits: NodeLimits,
    /// The text of the public URL, shared with every event that needs it.
    pub(crate) public_url: Arc<str>,
    tenants: Box<[Arc<TenantEndpoints>]>,
    /// By id, which stands where it leads to: nine bytes for each.
    by_id: HashTable<Place>,
    hasher: RandomState,
    /// By path; an alias without a host answers on every host that is served, one with a host goes before it.
    aliases: Aliases,
    /// Endpoints of tenants whose file is faulty and has no good version: 503 and never 404.
    gone: HashSet<EndpointId>,
    gone_aliases: HashSet<Alias>,
}

/// Why there is no endpoint. The sender is not told: whatever is no endpoint of his answers the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfound {
    /// The path is no alias, and no `/hooks/…`.
    Path,
    /// The host is not served here.
    Host,
    /// No endpoint that is switched on has this id.
    Id,
    /// Its tenant's file has a fault, and there is no last good version.
    Unavailable,
}

impl Unfound {
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Path | Self::Host | Self::Id => Refusal::EndpointUnknown,
            Self::Unavailable => Refusal::EndpointUnavailable,
        }
    }

    /// For the log.
    pub fn why(self) -> &'static str {
        match self {
            Self::Path => "no endpoint has this path on this host",
            Self::Host => "this host is neither gateway.public_url's nor in gateway.hosts, nor the endpoint's own",
            Self::Id => "no endpoint that is switched on has this id",
            Self::Unavailable => "the tenant's file has a fault, and no last good version",
        }
    }
}

type Aliases = HashMap<Box<str>, Vec<(Option<Box<str>>, Place)>>;

impl Snapshot {
    pub fn new(
        settings: config::Gateway,
        limits: NodeLimits,
        tenants: Vec<Arc<TenantEndpoints>>,
        unavailable: &[Unavailable],
    ) -> Self {
        let endpoints = tenants.iter().map(|t| t.tenant.endpoints.len()).sum();
        let mut by_id = HashTable::with_capacity(endpoints);
        let hasher = RandomState::new();
        let hash = |place: &Place| hasher.hash_one(id_at(&tenants, *place).as_bytes());
        let mut aliases = Aliases::new();
        for (tenant, endpoints) in (0_u32..).zip(&tenants) {
            for (at, endpoint) in (0_u32..).zip(&endpoints.tenant.endpoints).filter(|(_, e)| e.enabled) {
                let place = Place { tenant, endpoint: at };
                // No two tenants have the same: `config` sees to it.
                by_id.insert_unique(hash(&place), place, hash);
                for alias in endpoint.aliases() {
                    aliases.entry(alias.path.clone()).or_default().push((alias.host.clone(), place));
                }
            }
        }
        let is_there = |id: &EndpointId| {
            by_id.find(hasher.hash_one(id.as_bytes()), |place| id_at(&tenants, *place) == id).is_some()
        };
        let gone = unavailable.iter().flat_map(|u| &u.endpoints).filter(|id| !is_there(id)).cloned().collect();
        let gone_aliases = unavailable.iter().flat_map(|u| &u.aliases).cloned().collect();
        let public_url = settings.public_url.as_str().into();
        Self { settings, limits, public_url, tenants: tenants.into(), by_id, hasher, aliases, gone, gone_aliases }
    }

    /// Finds the endpoint that a request is for. Unknown, disabled, and another host's endpoint are one refusal.
    ///
    /// `host` is the request's, lower case and without its port; `path` is the target's, without its query.
    pub fn find(self: &Arc<Self>, host: &str, path: &str) -> Result<Endpoint, Unfound> {
        if let Some(place) = self.alias(host, path) {
            return Ok(Endpoint::at(Arc::clone(self), place));
        }
        if self.is_gone_alias(host, path) {
            return Err(Unfound::Unavailable);
        }
        let id = path.strip_prefix(PREFIX).ok_or(Unfound::Path)?;
        match self.place(id) {
            Some(place) if self.serves(host) || self.is_its_own(host, place) => {
                Ok(Endpoint::at(Arc::clone(self), place))
            }
            // It may have had a host of its own: nobody can tell now.
            None if self.gone.contains(id) => Err(Unfound::Unavailable),
            None if self.serves(host) => Err(Unfound::Id),
            Some(_) | None => Err(Unfound::Host),
        }
    }

    /// Is this the host of the URL that the endpoint's own provider posts to?
    fn is_its_own(&self, host: &str, place: Place) -> bool {
        let endpoint = &self.tenants[place.tenant as usize].tenant.endpoints[place.endpoint as usize];
        endpoint.public_url().is_some_and(|own| own.host() == host)
    }

    fn is_gone_alias(&self, host: &str, path: &str) -> bool {
        let named = |host: Option<&str>| Alias { host: host.map(Into::into), path: path.into() };
        !self.gone_aliases.is_empty()
            && (self.gone_aliases.contains(&named(Some(host)))
                || self.gone_aliases.contains(&named(None)) && self.serves(host))
    }

    /// Is this host ours, for every endpoint? The public URL's and those listed are; and so are bare addresses and `localhost`, under
    /// which a machine is tried out and watched, and which no provider can be led to by a name.
    fn serves(&self, host: &str) -> bool {
        host == self.settings.public_url.host()
            || self.settings.hosts.iter().any(|listed| listed == host)
            || host == "localhost"
            || host.starts_with('[')
            || host.parse::<Ipv4Addr>().is_ok()
    }

    /// The endpoint of an id, for an operator's command.
    pub fn by_id(self: &Arc<Self>, id: &EndpointId) -> Option<Endpoint> {
        self.place(id.as_str()).map(|place| Endpoint::at(Arc::clone(self), place))
    }

    fn place(&self, id: &str) -> Option<Place> {
        let hash = self.hasher.hash_one(id.as_bytes());
        self.by_id.find(hash, |place| id_at(&self.tenants, *place).as_bytes() == id.as_bytes()).copied()
    }

    pub fn tenants(&self) -> &[Arc<TenantEndpoints>] {
        &self.tenants
    }

    /// Endpoints that can be posted to.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    fn alias(&self, host: &str, path: &str) -> Option<Place> {
        let at_path = self.aliases.get(path)?;
        let by_host = at_path.iter().find(|(of, _)| of.as_deref() == Some(host));
        // Without a host of its own it answers where endpoints do, and not on a name that somebody else points here.
        let on_ours = || at_path.iter().find(|(of, _)| of.is_none()).filter(|_| self.serves(host));
        by_host.or_else(on_ours).map(|&(_, place)| place)
    }
}

fn id_at(tenants: &[Arc<TenantEndpoints>], place: Place) -> &EndpointId {
    &tenants[place.tenant as usize].tenant.endpoints[place.endpoint as usize].id
}
