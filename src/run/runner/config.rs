//! What of the files is in force for the runner: tenants' connections and tokens, and who signs their calls.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::connector::{Catalogue, Manifest};
use config::{Appliance, Environment, Fault, Tenant};
use domain::{ConnectionId, EndpointId, TenantId};
use egress::caller::SigningKey;
use runner::connector::Configured;

use super::tiers::TierTable;
use super::tokens::Tokens;

/// One swap puts all of it in force.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    pub(super) tokens: Tokens,
    /// By tenant: its connections, each with the manifest of its connector.
    pub(super) connections: HashMap<TenantId, HashMap<ConnectionId, Arc<Manifest>>>,
    pub(super) signer: Option<Arc<Signer>>,
    pub(super) tiers: TierTable,
    endpoints: Endpoints,
}

/// Endpoints of the files, by a hash of tenant and id: there may be a million, and nothing but a warning hangs on it.
#[derive(Debug, Default)]
struct Endpoints {
    hasher: RandomState,
    known: HashSet<u64>,
}

/// Who vouches for runs.
#[derive(Debug)]
pub(crate) struct Signer {
    pub(super) issuer: Box<str>,
    pub(super) audience: Box<str>,
    pub(super) key: SigningKey,
}

impl InForce {
    pub(super) fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.connections.contains_key(tenant)
    }

    pub(super) fn connection(&self, tenant: &TenantId, connection: &ConnectionId) -> Option<&Arc<Manifest>> {
        self.connections.get(tenant)?.get(connection)
    }

    pub(super) fn has_endpoint(&self, tenant: &TenantId, endpoint: &EndpointId) -> bool {
        self.endpoints.known.contains(&self.endpoints.hasher.hash_one((tenant, endpoint)))
    }
}

/// What of the appliance's file is a matter of the runner's, judged.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(super) signer: Arc<Signer>,
    pub(super) catalogue: Arc<Catalogue>,
}

/// Reads the key by which calls are signed, and says whether the way out of this file would believe it.
pub(crate) fn judge(appliance: &Appliance, path: &Path, environment: &dyn Environment) -> (Option<Judged>, Vec<Fault>) {
    let (catalogue, mut faults) = egress::compile::catalogue(appliance);
    if appliance.egress.enabled {
        // The way out tells what is wrong with manifests.
        faults.clear();
    }
    super::database::judge(appliance, path, environment, &mut faults);
    let signer = signer(appliance, path, environment, &mut faults);
    let judged = catalogue
        .zip(signer)
        .map(|(catalogue, signer)| Judged { signer: Arc::new(signer), catalogue: Arc::new(catalogue) });
    (judged.filter(|_| !config::has_errors(&faults)), faults)
}

fn signer(
    appliance: &Appliance,
    path: &Path,
    environment: &dyn Environment,
    faults: &mut Vec<Fault>,
) -> Option<Signer> {
    let own = &appliance.runner.issuer;
    let issuer = appliance.runner_issuer();
    let name = own.name.as_ref().map(|name| name.value.clone()).or_else(|| Some(issuer?.name.value.clone()))?;
    let (key, reference) = match (&own.signing_key, issuer.and_then(|issuer| issuer.signing_key.as_ref())) {
        (Some(reference), _) => ("runner.issuer.signing_key", reference),
        (None, Some(reference)) => ("egress.issuer", reference),
        (None, None) => return None,
    };
    let mut fault = |message: String| {
        faults.push(Fault::error(path, key, message).at(reference.line));
        None
    };
    let found = match config::resolve_secret(&reference.value, environment) {
        Ok(found) => found,
        Err(why) => return fault(why),
    };
    let signing = match SigningKey::parse(found.secret.expose()) {
        Ok(signing) => signing,
        Err(why) => return fault(why.to_string()),
    };
    // Where the way out is this file's, whether it believes the key is known here.
    if let Some(issuer) = issuer.filter(|_| appliance.egress.enabled && appliance.runner.egress.is_none()) {
        let own = signing.public();
        let is_known = issuer
            .keys
            .iter()
            .any(|key| egress::caller::PublicKey::parse(key.value.text.as_bytes()).is_ok_and(|known| known == own));
        if !is_known {
            let message = format!(
                "is a key that the issuer \"{}\" does not have among its `keys`: every call would be refused",
                issuer.name.value
            );
            return fault(message);
        }
    }
    if let Some(warning) = found.warning {
        faults.push(Fault::warning(path, key, warning).at(reference.line));
    }
    Some(Signer { issuer: name.into(), audience: appliance.egress.audience.as_str().into(), key: signing })
}

/// Tenants that nobody vouches for: their calls would be refused, one by one, at night.
pub(crate) fn unvouched(appliance: &Appliance, tenant: &Tenant) -> Option<Fault> {
    let issuer = appliance.runner_issuer().filter(|_| appliance.egress.enabled && appliance.runner.egress.is_none())?;
    let runner = tenant.runner()?;
    if issuer.tenants.has(&tenant.id) {
        return None;
    }
    let line = runner.tokens.first().map_or(0, |token| token.line);
    let message = format!(
        "is there, and the issuer \"{}\" that vouches for runs may not speak for this tenant (egress.issuer.tenants): its calls would be refused",
        issuer.name.value
    );
    let mut fault = Fault::warning(tenant.file(), "runner", message);
    if line > 0 {
        fault = fault.at(line);
    }
    Some(fault)
}

/// Makes it of the files as they are now.
pub(super) fn in_force<'t>(
    appliance: &Appliance,
    judged: &Judged,
    tenants: impl Iterator<Item = &'t Tenant> + Clone,
) -> (InForce, Vec<Fault>) {
    let (tokens, mut faults) = Tokens::of(tenants.clone());
    let mut connections = HashMap::new();
    let mut endpoints = Endpoints::default();
    let mut tiers = TierTable::of(&appliance.runner);
    for tenant in tenants {
        let hashes = tenant.endpoints.iter().map(|endpoint| endpoints.hasher.hash_one((&tenant.id, &endpoint.id)));
        endpoints.known.extend(hashes.collect::<Vec<_>>());
        faults.extend(unvouched(appliance, tenant));
        if let Some(own) = tenant.runner() {
            tiers.add(&tenant.id, own);
        }
        let own = tenant.egress().map(|egress| &egress.connections[..]).unwrap_or_default();
        let own = own.iter().filter_map(|connection| {
            // One that no connector has was told where calls are judged.
            Some((connection.id.clone(), Arc::clone(judged.catalogue.get(&connection.connector)?)))
        });
        connections.insert(tenant.id.clone(), own.collect());
    }
    let signer = Some(Arc::clone(&judged.signer));
    (InForce { tokens, connections, signer, tiers, endpoints }, faults)
}

/// Connections of the files that are in force at the moment at which it is asked.
#[derive(Debug)]
pub(super) struct ConnectionsInForce(pub(super) Arc<ArcSwap<InForce>>);

impl Configured for ConnectionsInForce {
    fn manifest(&self, tenant: &TenantId, connection: &ConnectionId) -> Option<Arc<Manifest>> {
        self.0.load().connection(tenant, connection).cloned()
    }
}
