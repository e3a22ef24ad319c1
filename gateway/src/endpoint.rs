//! Endpoints as the accept path uses them: configuration compiled once, shared by every request.

use std::fmt;
use std::sync::Arc;

use config::{Fault, Limits, OverLimit, PublicUrl, RepeatRule, SecretTerms, Tenant};
use domain::EndpointId;
use ratelimit::Subject;

use crate::handshake::Handshake;
use crate::scheme::{ActiveKey, Key, Presets, Scheme, SeenUrl, Unverified, Verified, VerifyFault};
use crate::snapshot::Snapshot;

/// A tenant with its endpoints compiled. Endpoints that nobody posts to cost these bytes and nothing else.
pub struct TenantEndpoints {
    /// Without its secrets: what verifies are the keys that were made of them.
    pub tenant: Tenant,
    pub subject: Subject,
    endpoints: Box<[Compiled]>,
}

struct Compiled {
    scheme: Arc<Scheme>,
    /// In the order of `secrets` in the configuration.
    keys: Box<[Named]>,
}

/// A secret, decoded.
struct Named {
    key: Key,
    terms: SecretTerms,
}

/// One endpoint of one snapshot. It holds on to that snapshot: a request keeps what it began with.
#[derive(Clone)]
pub struct Endpoint {
    snapshot: Arc<Snapshot>,
    place: Place,
}

/// Where an endpoint stands in its snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) tenant: u32,
    pub(crate) endpoint: u32,
}

impl TenantEndpoints {
    /// Compiles every endpoint, and says everything that is wrong with schemes and secrets, and what is unwise about them.
    /// There is none where anything is wrong, or was not read.
    pub fn new(mut tenant: Tenant, presets: &Presets) -> (Option<Self>, Vec<Fault>) {
        let mut faults = Vec::new();
        let declared = declared(&tenant, presets, &mut faults);
        let mut endpoints = Vec::with_capacity(tenant.endpoints.len());
        for at in 0..tenant.endpoints.len() {
            let secrets = std::mem::take(&mut tenant.endpoints[at].secrets);
            let endpoint = &tenant.endpoints[at];
            let key = |key: &str| format!("endpoint[{at}].{key}");
            let own = declared.iter().find(|scheme| scheme.name() == &*endpoint.scheme);
            let Some(scheme) = own.or_else(|| presets.get(&endpoint.scheme)) else {
                // A declaration of that name that was not read or did not compile has said what is wrong already.
                if !tenant.schemes().iter().any(|d| *d.declaration.name == *endpoint.scheme) {
                    faults.push(tenant.fault(endpoint.line, key("scheme"), unknown_scheme(&endpoint.scheme)));
                }
                continue;
            };
            if endpoint.takes_no_secret() && endpoint.enabled && !scheme.has_published_keys() {
                let message = "has no secret; write secrets = [{ value = \"secret:NAME\" }]";
                faults.push(tenant.fault(endpoint.line, key("secrets"), message.to_owned()));
            }
            let mut keys = Vec::with_capacity(secrets.len());
            for entry in secrets {
                let at = key(&format!("secrets[{}].value", entry.terms.index()));
                if let Some(advice) = scheme.key_advice(&entry.secret) {
                    let advice = format!("{}: {advice}", entry.terms.name());
                    faults.push(Fault::warning(tenant.file(), at.as_str(), advice).at(endpoint.line));
                }
                match scheme.key(&entry.secret) {
                    Ok(key) => keys.push(Named { key, terms: entry.terms }),
                    Err(why) => {
                        let message = format!("{}: {why}", entry.terms.name());
                        faults.push(tenant.fault(endpoint.line, at, message));
                    }
                }
            }
            faults.extend(of_handshakes(&tenant, at, scheme));
            endpoints.push(Compiled { scheme: Arc::clone(scheme), keys: keys.into() });
        }
        let subject = Subject::tenant(&tenant.id);
        let good = !config::has_errors(&faults) && endpoints.len() == tenant.endpoints.len();
        (good.then(|| Self { tenant, subject, endpoints: endpoints.into() }), faults)
    }
}

impl config::Judged for TenantEndpoints {
    fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

/// The schemes that the tenant declared itself.
fn declared(tenant: &Tenant, presets: &Presets, faults: &mut Vec<Fault>) -> Vec<Arc<Scheme>> {
    let mut declared = Vec::new();
    for scheme in tenant.schemes() {
        let declaration = &scheme.declaration;
        let fault =
            |key: &str, message: String| tenant.fault(scheme.line, format!("scheme[{}].{key}", scheme.index), message);
        if presets.get(&declaration.name).is_some() {
            let message = "is the name of a scheme that comes with Tidegate; give it another one";
            faults.push(fault("name", message.to_owned()));
        }
        match Scheme::compile_shared(declaration) {
            Ok(compiled) if scheme.is_whole() => declared.push(compiled),
            Ok(_) => {}
            Err(found) => {
                let found = found.into_iter().filter(|fault| fault.reads.iter().all(|key| scheme.is_read(key)));
                faults.extend(found.map(|found| fault(&found.key, found.message)));
            }
        }
    }
    declared
}

/// What handshakes lack, and what none asks for: a warning each, since deliveries need neither.
fn of_handshakes(tenant: &Tenant, at: usize, scheme: &Scheme) -> Vec<Fault> {
    let endpoint = &tenant.endpoints[at];
    let settings = endpoint.handshake();
    let handshakes = scheme.handshakes();
    let each = [
        ("token", handshakes.iter().any(Handshake::needs_token), settings.is_some_and(|s| s.token.is_some())),
        (
            "adopts",
            false,
            settings.is_some_and(|s| s.adopts.is_some()) && !handshakes.iter().any(Handshake::is_adopting),
        ),
        ("account", handshakes.iter().any(Handshake::needs_account), settings.is_some_and(|s| s.account.is_some())),
    ];
    let faults = each.into_iter().filter_map(|(key, is_needed, is_there)| {
        let message = match (is_needed, is_there) {
            (true, false) => "is missing: the provider's handshake is refused until it is there",
            (false, true) => "is of no use: this scheme's handshakes do not ask for it",
            _ => return None,
        };
        Some(Fault::warning(tenant.file(), format!("endpoint[{at}].handshake.{key}"), message).at(endpoint.line))
    });
    faults.collect()
}

fn unknown_scheme(name: &str) -> String {
    format!(
        "there is no scheme \"{}\"; `tidegate schemes list` shows the presets, a [[scheme]] table declares one",
        domain::text::Untrusted::new(name.as_bytes())
    )
}

impl fmt::Debug for TenantEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantEndpoints({}, {} endpoints)", self.tenant.id, self.endpoints.len())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} of {})", self.id(), self.tenant().id)
    }
}

impl Endpoint {
    /// `place` is one of this snapshot's own.
    pub(crate) fn at(snapshot: Arc<Snapshot>, place: Place) -> Self {
        Self { snapshot, place }
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn compiled_tenant(&self) -> &TenantEndpoints {
        &self.snapshot.tenants()[self.place.tenant as usize]
    }

    fn compiled(&self) -> &Compiled {
        &self.compiled_tenant().endpoints[self.place.endpoint as usize]
    }

    pub fn tenant(&self) -> &Tenant {
        &self.compiled_tenant().tenant
    }

    pub fn settings(&self) -> &config::Endpoint {
        &self.tenant().endpoints[self.place.endpoint as usize]
    }

    pub fn id(&self) -> &EndpointId {
        &self.settings().id
    }

    pub fn tenant_subject(&self) -> Subject {
        self.compiled_tenant().subject
    }

    pub fn subject(&self) -> Subject {
        Subject::endpoint(self.id())
    }

    pub fn scheme(&self) -> &Arc<Scheme> {
        &self.compiled().scheme
    }

    /// Judges a delivery with every secret that was active when it came in.
    pub(crate) fn verify(&self, delivery: &Unverified<'_>) -> Result<Verified, VerifyFault> {
        let keys = self.compiled().keys.iter().enumerate();
        let active = keys.filter(|(_, named)| named.terms.is_active(delivery.received_unix_ms));
        let keys: Vec<_> = active.map(|(index, named)| ActiveKey { index, key: &named.key }).collect();
        self.scheme().verify(delivery, &keys)
    }

    /// Has it any secret, active or not?
    pub(crate) fn has_keys(&self) -> bool {
        !self.compiled().keys.is_empty()
    }

    /// The first of its secrets that is active at that time.
    pub(crate) fn first_key(&self, at_unix_ms: u64) -> Option<&Key> {
        self.compiled().keys.iter().find(|named| named.terms.is_active(at_unix_ms)).map(|named| &named.key)
    }

    /// How evidence names a secret; `published` is a key that stands in the scheme.
    pub fn secret_name(&self, index: usize) -> &str {
        self.compiled().keys.get(index).map_or("published", |named| named.terms.name())
    }

    /// Does the provider send again what was answered 429? The endpoint may say so against its scheme.
    pub fn redelivers(&self) -> bool {
        match self.settings().over_limit() {
            OverLimit::Default => self.scheme().redelivers(),
            OverLimit::Refuse => true,
            OverLimit::Bulk => false,
        }
    }

    /// Is a delivery of an id that was committed before the same one? `signed`: the signature covers the id.
    pub(crate) fn drops_repeats(&self, signed: bool) -> bool {
        match self.settings().repeats() {
            RepeatRule::Default => signed,
            RepeatRule::Keep => false,
            RepeatRule::Drop => true,
        }
    }

    /// The URL under which the provider reaches this endpoint: the endpoint's own where it has one, else the
    /// gateway's. Never what a request says about itself.
    pub fn public_url(&self) -> &PublicUrl {
        self.settings().public_url().unwrap_or(&self.snapshot.settings.public_url)
    }

    /// The same for schemes that sign it.
    pub(crate) fn seen_url(&self) -> SeenUrl<'_> {
        seen_url(self.public_url())
    }

    /// The same as text, shared where it is the gateway's.
    pub(crate) fn public_url_text(&self) -> Arc<str> {
        let own = self.settings().public_url().map(|url| Arc::from(url.as_str()));
        own.unwrap_or_else(|| Arc::clone(&self.snapshot.public_url))
    }

    /// The limits of its tenant and its own, the node's where they say nothing.
    pub(crate) fn limits(&self) -> (Limits, Limits) {
        let defaults = &self.snapshot.limits;
        (self.tenant().limits().or(&defaults.tenant), self.settings().limits().or(&defaults.endpoint))
    }
}

/// A configured URL as schemes take it.
pub(crate) fn seen_url(url: &PublicUrl) -> SeenUrl<'_> {
    SeenUrl { scheme: url.scheme(), host: url.host(), port: url.port(), base_path: url.path() }
}
