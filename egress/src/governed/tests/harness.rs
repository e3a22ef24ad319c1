//! Connections of a made-up provider, a judge with a resolver of its own, and callers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use config::CredentialKind;
use config::connector::{Catalogue, Manifest};
use domain::{ConnectionId, ConnectorId, NodeId, Secret, TenantId};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use outbound::resolve::NotVetted;
use outbound::{Answer, Exit, HostName, HostPattern, Resolve, ResolveError, Rules, Scheme, TlsClient, resolve_and_vet};

use crate::forward::headers::Names;
use crate::forward::redirect::RedirectRule;
use crate::forward::testing::{Memory, empty, rules};
use crate::forward::{Bounds, Forward, Passage, RequestBody, Waits};
use crate::governed::{Called, Connection, Connector, Follow, GovernedCall, Judge, NotJudged, StaticCredentials, call};
use crate::{Asked, CorrelationId, Refusal};

/// A manifest as an operator writes it.
pub(super) fn connector(name: &str, text: &str) -> Arc<Connector> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(format!("{name}.toml")), text).unwrap();
    let (catalogue, faults) = Catalogue::shipped().unwrap().with_directory(directory.path());
    let catalogue = catalogue.unwrap_or_else(|| panic!("{faults:?}"));
    let manifest: &Arc<Manifest> = catalogue.get(&ConnectorId::parse(name).unwrap()).unwrap();
    Arc::new(Connector::new(Arc::clone(manifest)).unwrap())
}

pub(super) const PROVIDER: &str = r#"
connector = "provider"
title = "Provider"
checked = "2026-11-29"
hosts = ["api.provider.example", "files.provider.example"]
auth = { slot = "bearer" }
idempotency_header = "Idempotency-Key"

[headers]
request = ["X-Api-Key", "Provider-*"]
response = ["Provider-*"]

[redirects]
follow = true
max = 5
hosts = ["*.elsewhere.example"]
"#;

pub(super) fn provider() -> Arc<Connector> {
    connector("provider", PROVIDER)
}

pub(super) fn credential(kind: CredentialKind, value: Option<&str>) -> config::Credential {
    let value = value.map(|value| Secret::new(value.as_bytes()));
    config::Credential { id: "cred_1".into(), kind, value, line: 1 }
}

pub(super) fn configured(connector: &Connector, base_url: &str) -> config::Connection {
    config::Connection {
        id: ConnectionId::parse("conn_1").unwrap(),
        connector: connector.manifest().connector.clone(),
        base_url: base_url.into(),
        credential: None,
        tls: None,
        http2: None,
        quota: None,
        usable: true,
        line: 1,
    }
}

pub(super) fn connection(
    connector: &Arc<Connector>,
    base_url: &str,
    credential: Option<&config::Credential>,
) -> Connection {
    Connection::new(&configured(connector, base_url), credential, connector).unwrap()
}

pub(super) fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// Allows hosts, resolves by a table of its own, and vets by the real rules.
pub(super) struct TableJudge {
    pub(super) tls: Option<TlsClient>,
    pub(super) allowed: Vec<HostPattern>,
    pub(super) answers: HashMap<String, Vec<IpAddr>>,
    pub(super) rules: Arc<Rules>,
    /// Whether each hop that it judged was trusted.
    pub(super) trusted: Mutex<Vec<bool>>,
}

impl TableJudge {
    pub(super) fn new(allowed: &[&str]) -> Self {
        Self {
            allowed: allowed.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            answers: HashMap::new(),
            rules: rules(&[]),
            tls: None,
            trusted: Mutex::default(),
        }
    }

    pub(super) fn answers(mut self, name: &str, addresses: &[&str]) -> Self {
        self.answers.insert(name.to_owned(), addresses.iter().map(|address| address.parse().unwrap()).collect());
        self
    }
}

#[async_trait]
impl Resolve for TableJudge {
    /// Names that nobody listed are public.
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError> {
        let public = || vec!["93.184.216.34".parse().unwrap()];
        let addresses = self.answers.get(name.as_str()).cloned().unwrap_or_else(public);
        Ok(Answer { addresses: addresses.into(), ttl: std::time::Duration::from_mins(1) })
    }
}

impl Judge for &TableJudge {
    async fn judge(&mut self, _hop: u16, asked: &Asked, is_trusted: bool) -> Result<Passage, NotJudged> {
        self.trusted.lock().unwrap().push(is_trusted);
        let host = asked.authority.host();
        if !self.allowed.iter().any(|pattern| pattern.covers(host)) {
            return Err(NotJudged { refusal: Refusal::DestinationNotAllowed, detail: "no rule".into(), park: None });
        }
        let vetted = resolve_and_vet(&asked.authority, &[], &self.rules, *self).await.map_err(|why| {
            let refusal = match &why {
                NotVetted::Refused(_) => Refusal::AddressNotAllowed,
                NotVetted::Unresolved(_) => Refusal::DnsFailed,
            };
            NotJudged { refusal, detail: why.to_string().into(), park: None }
        })?;
        let rules = Arc::clone(&self.rules);
        let tls = self.tls.clone().filter(|_| asked.scheme == Scheme::Https);
        Ok(Passage {
            vetted,
            exit: Exit::Unbound,
            tls,
            rules,
            openings: Arc::new([]),
            permit: Arc::new(crate::quota::Permit::unmetered()),
        })
    }
}

pub(super) fn names() -> Names {
    Names::new("tidegate", None).unwrap()
}

/// A call that is about to be made.
pub(super) struct Made {
    pub(super) connection: Arc<Connection>,
    pub(super) asked: Asked,
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody,
    pub(super) rule: Option<RedirectRule>,
}

impl Made {
    pub(super) fn new(connection: Connection, method: Method, rest: &str) -> Self {
        let rule = connection.redirects(None, 20);
        let asked = connection.ask(method, rest).unwrap();
        Self { connection: Arc::new(connection), asked, headers: HeaderMap::new(), body: empty(), rule }
    }

    /// In a task of its own; the first hop is judged as the others are.
    pub(super) fn send(
        self,
        forward: &Arc<Forward<Memory>>,
        judge: &Arc<TableJudge>,
    ) -> tokio::task::JoinHandle<Called> {
        let (forward, judge) = (Arc::clone(forward), Arc::clone(judge));
        tokio::spawn(async move {
            let mut judge = &*judge;
            let passage = judge.judge(0, &self.asked, true).await.expect("the first hop is allowed");
            let made = GovernedCall {
                connection: self.connection,
                tenant: TenantId::parse("acme").unwrap(),
                correlation: CorrelationId::new(0, NodeId(7), [1; 8]),
                received: Version::HTTP_11,
                asked: self.asked,
                passage,
                headers: self.headers,
                upgrade: false,
                body: self.body,
                follow: self.rule.map(|rule| Follow { rule, body_bytes_max: 1024 }),
                waits: Waits::default(),
                bounds: Bounds { request_bytes_max: 1 << 20, response_bytes_max: 1 << 20 },
            };
            call(&forward, &StaticCredentials, &mut judge, &names(), made).await
        })
    }
}
