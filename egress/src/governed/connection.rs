//! A connection as calls see it: where it goes, what travels, and what its credential is for.

use std::sync::Arc;

use config::CredentialKind;
use config::connector::{AuthSlot, HeaderList, Manifest};
use domain::{ConnectionId, ConnectorId, Secret};
use http::header::{CONTENT_LENGTH, HeaderName, LOCATION, MAX_FORWARDS, USER_AGENT, VIA};
use http::{HeaderMap, Method};
use outbound::{Authority, HostPattern, Malformed, Scheme, Target};
use ratelimit::quota::{Application, Level, Name};
use ratelimit::{PairKey, signals};
use thiserror::Error;

use super::path::{self, PathRefused};
use crate::caller::presented::without_parameter;
use crate::forward::headers::read_alike;
use crate::forward::redirect::RedirectRule;
use crate::policy::is_unclear;
use crate::quota::{Metering, breaker_of};
use crate::{Asked, Way};

/// A connector with its hosts read.
#[derive(Debug)]
pub struct Connector {
    manifest: Arc<Manifest>,
    hosts: Arc<[HostPattern]>,
    elsewhere: Arc<[HostPattern]>,
}

/// A manifest that names something that is no host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{host:?} is no host: {why}")]
pub struct ConnectorFault {
    /// As it is written.
    pub host: Box<str>,
    /// Where, counted from 1.
    pub line: u32,
    /// Why not.
    pub why: Malformed,
}

/// A tenant's account at a provider.
#[derive(Debug)]
pub struct Connection {
    id: ConnectionId,
    connector: Arc<Connector>,
    scheme: Scheme,
    authority: Authority,
    /// Empty, or beginning with a slash and without one at its end.
    base_path: Box<str>,
    /// Where the credential may go.
    hosts: Arc<[HostPattern]>,
    credential: Option<Credential>,
    is_usable: bool,
    /// How its calls are counted; none: they are not.
    metering: Option<Metering>,
}

/// One limit that a request counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitOf<'c> {
    pub name: &'c str,
    pub level: Level,
    /// What it takes; 0 where that is known afterwards only.
    pub units: u32,
}

/// A credential of the configuration.
#[derive(Debug)]
pub(super) struct Credential {
    pub(super) kind: CredentialKind,
    /// None where it cannot be had now.
    pub(super) value: Option<Secret>,
}

/// Why something is no connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectionFault {
    #[error("its base_url is malformed: {0}")]
    BaseUrl(Malformed),
    #[error("its base_url has a query, or a path that can be read in more than one way")]
    BasePath,
    #[error("the host of its base_url is none of its connector's")]
    Host,
    #[error("it has a credential and no https, so that anybody on the way could read it")]
    Plaintext,
}

impl Connector {
    /// Reads the hosts of a manifest.
    pub fn new(manifest: Arc<Manifest>) -> Result<Self, ConnectorFault> {
        let read = |hosts: &[config::AtLine<String>]| -> Result<Arc<[HostPattern]>, ConnectorFault> {
            let read = |host: &config::AtLine<String>| {
                let fault = |why| ConnectorFault { host: host.value.as_str().into(), line: host.line, why };
                HostPattern::parse(&host.value).map_err(fault)
            };
            hosts.iter().map(read).collect()
        };
        let (hosts, elsewhere) = (read(&manifest.hosts)?, read(&manifest.redirects.hosts)?);
        Ok(Self { manifest, hosts, elsewhere })
    }

    /// Of hosts that were judged already.
    pub(crate) fn of(manifest: Arc<Manifest>, hosts: Arc<[HostPattern]>, elsewhere: Arc<[HostPattern]>) -> Self {
        Self { manifest, hosts, elsewhere }
    }

    /// Where redirects may lead beside its own hosts, without a credential.
    pub fn elsewhere(&self) -> &[HostPattern] {
        &self.elsewhere
    }

    /// What it says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its hosts; none for the generic one.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }
}

impl Connection {
    /// Of the configuration. `credential` is the one that it names.
    pub fn new(
        connection: &config::Connection,
        credential: Option<&config::Credential>,
        connector: &Arc<Connector>,
    ) -> Result<Self, ConnectionFault> {
        let target = Target::parse(&*connection.base_url).map_err(ConnectionFault::BaseUrl)?;
        let base_path = target.path_and_query.strip_suffix('/').unwrap_or(target.path_and_query);
        if base_path.contains('?') || is_unclear(base_path) || !(base_path.is_empty() || base_path.starts_with('/')) {
            return Err(ConnectionFault::BasePath);
        }
        let host = target.authority.host();
        let hosts: Arc<[HostPattern]> = if connector.manifest.is_generic() {
            [HostPattern::Exactly(host.clone())].into()
        } else {
            Arc::clone(&connector.hosts)
        };
        if !hosts.iter().any(|pattern| pattern.covers(host)) {
            return Err(ConnectionFault::Host);
        }
        let credential =
            credential.map(|credential| Credential { kind: credential.kind.clone(), value: credential.value.clone() });
        if credential.is_some() && target.scheme != Scheme::Https {
            return Err(ConnectionFault::Plaintext);
        }
        Ok(Self {
            id: connection.id.clone(),
            connector: Arc::clone(connector),
            scheme: target.scheme,
            base_path: base_path.into(),
            authority: target.authority,
            hosts,
            credential,
            is_usable: connection.usable,
            metering: None,
        })
    }

    /// Its calls count by this.
    #[must_use]
    pub fn metered(mut self, metering: Metering) -> Self {
        self.metering = Some(metering);
        self
    }

    /// Limits of the profile that a request of this connection counts towards, in the profile's order.
    pub fn limits_of(&self, asked: &Asked) -> Vec<LimitOf<'_>> {
        let path = signals::plain_path(asked.path());
        let limits = self.connector.manifest.quota.limits.iter().filter_map(|limit| {
            let units = limit.cost_of(asked.method.as_str(), &path)?;
            Some(LimitOf { name: &limit.name, level: Level::from(limit.level), units })
        });
        limits.collect()
    }

    /// Whom its calls are counted as, and the scope of its own buckets; none where they are not counted.
    pub fn counted_as(&self) -> Option<(&Application, &Name)> {
        self.metering().map(|metering| (metering.application(), metering.account_name()))
    }

    /// Of the breaker and the retry budget that its calls have with others of its tenant.
    pub fn breaker_key(&self) -> Option<PairKey> {
        self.metering().map(Metering::pair)
    }

    /// By what name that breaker goes: `connector` or `destination`, and which.
    pub fn breaker_name(&self) -> (&'static str, Box<str>) {
        breaker_of(self)
    }

    pub(crate) fn metering(&self) -> Option<&Metering> {
        self.metering.as_ref()
    }

    /// Whether the place is its provider's, so that the provider counts what goes there as this connection's.
    pub(crate) fn is_provider_of(&self, authority: &Authority) -> bool {
        self.hosts.iter().any(|host| host.covers(authority.host()))
    }

    /// Its id.
    pub fn id(&self) -> &ConnectionId {
        &self.id
    }

    /// Its connector's name.
    pub fn connector_id(&self) -> &ConnectorId {
        &self.connector.manifest.connector
    }

    /// Its connector.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Where it goes.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// How it is spoken to.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// False where a secret that its TLS is made of cannot be had now.
    pub fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// What is asked by a method and what stands behind `/c/{connection}`: empty, or beginning with `/` or `?`. What the
    /// caller put where the key goes is taken out.
    pub fn ask(&self, method: Method, rest: &str) -> Result<Asked, PathRefused> {
        let mut path_and_query = path::join(&self.base_path, rest)?;
        for parameter in self.parameters() {
            path_and_query = without_parameter(&path_and_query, parameter).into();
            if path::resembles(&path_and_query, parameter) {
                return Err(PathRefused::Credential);
            }
        }
        let (scheme, authority) = (self.scheme, self.authority.clone());
        Ok(Asked { way: Way::Governed, method, scheme, authority, path_and_query })
    }

    /// Leaves of a caller's cleaned fields what may travel to this provider.
    pub fn admit_request(&self, headers: &mut HeaderMap, upgrade: bool) {
        retain(headers, |name| {
            let is_usual = [USER_AGENT, VIA, MAX_FORWARDS].contains(name) || (upgrade && is_of_websocket(name));
            !self.is_credentials(name.as_str())
                && (is_usual || is_listed(&self.connector.manifest.request_headers, name))
        });
    }

    /// Whether a field of a caller's is not where the credential goes, and would be read as that by many servers: a
    /// second credential beside ours, of which nobody knows which one counts.
    pub(crate) fn poses_as_credential(&self, name: &str) -> bool {
        self.is_credentials(name) && !self.fields().any(|field| field.eq_ignore_ascii_case(name))
    }

    /// Whether a field is the credential's, or would be read as that.
    fn is_credentials(&self, name: &str) -> bool {
        self.fields().any(|field| read_alike(field, name))
    }

    /// Leaves of an answer's fields what may come back from this provider. A place that the provider names with our
    /// credential in it is not told.
    pub fn admit_response(&self, headers: &mut HeaderMap, upgrade: bool) {
        retain(headers, |name| {
            let is_usual = [CONTENT_LENGTH, VIA].contains(name) || (upgrade && is_of_websocket(name));
            is_usual || is_listed(&self.connector.manifest.response_headers, name)
        });
        for name in [LOCATION, HeaderName::from_static("content-location"), HeaderName::from_static("link")] {
            if headers.get_all(&name).iter().any(|value| self.is_revealed(value.as_bytes())) {
                headers.remove(name);
            }
        }
    }

    /// By what names the provider's logs know a request, as its answer says. One that has our credential in it is none,
    /// and none is in a field that is the credential's.
    pub fn provider_ids<'c>(&'c self, answer: &'c HeaderMap) -> impl Iterator<Item = (&'c str, &'c [u8])> {
        let names = self.connector.manifest.correlation_headers.iter().filter(|name| !self.is_credentials(name));
        let found = names.filter_map(|name| Some((&**name, answer.get(&**name)?.as_bytes())));
        found.filter(|(_, value)| !self.is_revealed(value))
    }

    /// How its redirects are followed; none where they are not. The caller may ask for it, and for fewer.
    pub fn redirects(&self, asked_for: Option<u16>, max: u16) -> Option<RedirectRule> {
        let redirects = &self.connector.manifest.redirects;
        let max = max.min(redirects.max.into());
        let max = match asked_for {
            Some(asked_for) => asked_for.min(max),
            None if redirects.follow => max,
            None => 0,
        };
        (max > 0).then(|| RedirectRule {
            max,
            hosts: Arc::clone(&self.hosts),
            elsewhere: Arc::clone(&self.connector.elsewhere),
            allows_downgrade: redirects.downgrade,
        })
    }

    /// Whether the credential is for this place.
    pub fn vouches_for(&self, asked: &Asked) -> bool {
        asked.scheme == Scheme::Https
            && asked.authority.port() == self.authority.port()
            && self.hosts.iter().any(|host| host.covers(asked.authority.host()))
    }

    pub(super) fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// The parameters that are the credential's, or where an SDK puts its key.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        let slot = match &self.connector.manifest.auth {
            AuthSlot::Query(parameter) => Some(&**parameter),
            AuthSlot::Bearer | AuthSlot::BasicUser | AuthSlot::BasicPassword | AuthSlot::Header(_) => None,
        };
        let own = self.credential.as_ref().and_then(|credential| match &credential.kind {
            CredentialKind::Query { parameter } => Some(&**parameter),
            CredentialKind::Bearer | CredentialKind::Basic { .. } | CredentialKind::Header { .. } => None,
        });
        slot.into_iter().chain(own)
    }

    /// The fields that are the credential's, or where an SDK puts its key.
    fn fields(&self) -> impl Iterator<Item = &str> {
        let slot = match &self.connector.manifest.auth {
            AuthSlot::Bearer | AuthSlot::BasicUser | AuthSlot::BasicPassword => Some("authorization"),
            AuthSlot::Header(name) => Some(&**name),
            AuthSlot::Query(_) => None,
        };
        let own = self.credential.as_ref().and_then(|credential| match &credential.kind {
            CredentialKind::Bearer | CredentialKind::Basic { .. } => Some("authorization"),
            CredentialKind::Header { name, .. } => Some(&**name),
            CredentialKind::Query { .. } => None,
        });
        slot.into_iter().chain(own)
    }

    fn is_revealed(&self, text: &[u8]) -> bool {
        let Some(secret) = self.credential.as_ref().and_then(|credential| credential.value.as_ref()) else {
            return false;
        };
        let has = |part: &[u8]| !part.is_empty() && text.windows(part.len()).any(|window| window == part);
        has(secret.expose()) || has(super::credential::percent_encoded(secret.expose()).as_bytes())
    }
}

fn is_listed(list: &HeaderList, name: &HeaderName) -> bool {
    list.admits(name.as_str())
}

/// RFC 6455, 11.3.
fn is_of_websocket(name: &HeaderName) -> bool {
    name.as_str().starts_with("sec-websocket-") || *name == http::header::ORIGIN
}

fn retain(headers: &mut HeaderMap, stays: impl Fn(&HeaderName) -> bool) {
    let out: Vec<HeaderName> = headers.keys().filter(|name| !stays(name)).cloned().collect();
    for name in out {
        headers.remove(name);
    }
}
