//! One appliance that performs runs, a provider that counts, and whoever asks the API.
//!
//! Tenants are `acme` and `other`, each with an endpoint of its own and the same connections: `conn_desk` of a connector that
//! sends idempotency keys, `conn_plain` of one that knows none. Both lead to the one provider, which is inside and opened to
//! these tenants at its port.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::appliance::{Appliance, Node, own_address};
use crate::patience::PATIENCE;
use crate::provider::Provider;
use crate::response::Response;
use crate::sender::{Connection, Request};
use crate::settings::{Tenant, endpoint, tenant};

/// All of it.
#[derive(Debug)]
pub struct Runs {
    pub node: Node,
    pub provider: Arc<Provider>,
    pub api: SocketAddr,
}

/// Tenants that there are.
pub const TENANTS: [&str; 2] = ["acme", "other"];

/// Tables and keys of the appliance's file, as `Appliance::set` takes them.
pub type Settings<'s> = &'s [(&'s str, &'s str, &'s str)];

/// A tenant's token of a scope, and the digest that its file has.
pub fn token(tenant: &str, scope: &str) -> (String, String) {
    let hex = |text: &str| data_encoding::HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref());
    let token = format!("tgr_{}", &hex(&format!("{tenant} {scope}"))[..32]);
    let hash = format!("sha256:{}", hex(&token));
    (token, hash)
}

/// A tenant's endpoint.
pub fn endpoint_of(tenant: &str) -> String {
    format!("wh_{tenant}")
}

/// A tenant's file.
pub fn file_of(name: &str, provider: &Provider) -> Tenant {
    let mut text = String::new();
    for connector in ["desk", "plain"] {
        text.push_str(&format!(
            "\n[[connection]]\nid = \"conn_{connector}\"\nconnector = \"{connector}\"\nbase_url = \"{}\"\n",
            provider.url(name)
        ));
    }
    for scope in ["read", "operate", "author"] {
        let (_, hash) = token(name, scope);
        text.push_str(&format!("\n[[runner.token]]\nname = \"{scope}\"\nhash = \"{hash}\"\nscope = \"{scope}\"\n"));
    }
    tenant(name).endpoint(endpoint(&endpoint_of(name))).extra(&text)
}

/// The connectors: what they say of the provider.
fn manifests(provider: &Provider) -> [(&'static str, String); 2] {
    let host = provider.address.ip();
    let of = |name: &str, more: &str| {
        format!(
            "connector = \"{name}\"\ntitle = \"A provider that counts\"\nhosts = [\"{host}\"]\n{more}\n[auth]\nslot = \"bearer\"\n\n\
             [headers]\nrequest = [\"Idempotency-Key\"]\nresponse = [\"X-Request-Id\"]\n\n\
             [errors]\nrecalled = [\"It is a test's own.\"]\nmessage = [\"error.message\"]\n\n\
             [[errors.auth_death]]\nat = \"error.code\"\nvalues = [\"token_revoked\"]\n"
        )
    };
    let keyed = "idempotency_header = \"Idempotency-Key\"\nidempotency_for = [{ methods = [\"POST\"] }]\n\
                 idempotency_window = \"24h\"\n";
    [("desk", of("desk", keyed)), ("plain", of("plain", ""))]
}

impl Runs {
    /// Writes the configuration and starts nothing.
    pub fn prepare(settings: Settings<'_>) -> Self {
        Self::prepare_with(Provider::start(), settings)
    }

    pub fn prepare_with(provider: Provider, settings: Settings<'_>) -> Self {
        Self::prepare_at(Arc::new(provider), settings)
    }

    /// Another node, which calls the same provider for the same tenants.
    #[must_use]
    pub fn prepare_beside(&self, settings: Settings<'_>) -> Self {
        Self::prepare_at(Arc::clone(&self.provider), settings)
    }

    fn prepare_at(provider: Arc<Provider>, settings: Settings<'_>) -> Self {
        let address = own_address();
        let listen = || TcpListener::bind((address, 0)).expect("a port of an address of our own");
        let (calls, asked) = (listen(), listen());
        let (egress, api) = (calls.local_addr().expect("its address"), asked.local_addr().expect("its address"));
        let (private, public) = keys();
        let mut appliance = Appliance::new()
            .set("egress", "listen", &format!("[\"{egress}\"]"))
            // Nobody looks up a name.
            .set("egress.dns", "servers", "[\"127.0.0.1\"]")
            .set("connectors", "directory", "\"connectors\"")
            .set("quota.runaway", "plan_per_minute", "1000000")
            .set("quota.runaway", "floor_per_minute", "1000000")
            // Faults are what is tested here: nobody is to be kept from the next one.
            .set("quota.breaker", "consecutive_faults", "10000")
            .set("quota.breaker", "volume_min", "1000000")
            .set("quota.retry", "percent", "100")
            .set("quota.retry", "per_minute", "1000")
            .set("quota.retry", "most", "10000")
            .set("runner", "slots", "64")
            .set("runner.api", "listen", &format!("[\"{api}\"]"))
            .set("runner.payloads", "segment_bytes", "\"4MiB\"")
            .set("runner.payloads", "reserve_bytes", "\"0B\"");
        for (table, key, value) in settings {
            appliance = appliance.set(table, key, value);
        }
        let host = provider.address.ip();
        let mut extra = format!(
            "\n[[egress.issuer]]\nname = \"runner\"\nkeys = [\"{public}\"]\ntenants = [\"*\"]\nsigning_key = \"file:grant.key.pem\"\n"
        );
        for name in TENANTS {
            extra.push_str(&format!(
                "\n[[egress.opening]]\nhost = \"{host}\"\nnetworks = [\"{host}/32\"]\nports = [{}]\ntenant = \"{name}\"\n",
                provider.address.port()
            ));
            appliance = appliance.tenant(file_of(name, &provider));
        }
        let mut node = appliance.extra(&extra).prepare();
        let at = |name: &str| node.directory.join(name);
        std::fs::create_dir(at("connectors")).expect("a directory");
        for (name, manifest) in manifests(&provider) {
            std::fs::write(at("connectors").join(format!("{name}.toml")), manifest).expect("a manifest");
        }
        std::fs::write(at("authorities.pem"), &provider.authority).expect("a file");
        std::fs::write(at("grant.key.pem"), private).expect("a file");
        restrict(&at("grant.key.pem"));
        let authority = at("authorities.pem");
        node.environment("SSL_CERT_FILE", authority.to_str().expect("UTF-8"));
        node.checked();
        Self { node, provider, api }
    }

    pub async fn start(settings: Settings<'_>) -> Self {
        let mut runs = Self::prepare(settings);
        runs.up().await;
        runs
    }

    /// Starts it, and waits until runs are performed.
    pub async fn up(&mut self) {
        self.node.start().await;
        self.performs().await;
    }

    pub async fn performs(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.node.metrics().await.sum("tidegate_runner_open", &[]) < 1.0 {
            assert!(Instant::now() < deadline, "no runs are performed:\n{}", self.node.output());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A request to the API, as its bytes are answered.
    pub async fn ask_as(&self, token: Option<&str>, method: &str, path: &str, body: Option<&Value>) -> Response {
        let mut request = Request::new(method, path).header("Host", &self.api.to_string());
        if let Some(token) = token {
            request = request.header("Authorization", &format!("Bearer {token}"));
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        Connection::open(self.api).await.exchange(&request).await
    }

    /// The same by a tenant's author, who may do everything; fails unless it is answered with this status.
    pub async fn ask(&self, tenant: &str, method: &str, path: &str, body: Option<&Value>, status: u16) -> Value {
        let (token, _) = token(tenant, "author");
        let answer = self.ask_as(Some(&token), method, path, body).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{method} {path}: {text}");
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") }
    }

    /// Stores an automation, and gives its id.
    pub async fn put(&self, tenant: &str, document: &Value) -> String {
        let saved = self.ask(tenant, "POST", "/workflows", Some(document), 201).await;
        saved["id"].as_str().expect("an id").to_owned()
    }

    /// An automation that events of the tenant's endpoint begin.
    pub fn automation(tenant: &str, name: &str, nodes: &Value) -> Value {
        json!({ "name": name, "trigger": { "endpoint": endpoint_of(tenant) }, "nodes": nodes })
    }

    /// Delivers an event, and gives the `executionId` of its 202.
    pub async fn deliver(&self, tenant: &str, body: &Value) -> String {
        let answer = self.node.sender(&endpoint_of(tenant)).deliver(body.to_string()).await;
        assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()["executionId"].as_str().expect("an executionId").to_owned()
    }

    /// An execution as it is now.
    pub async fn execution(&self, tenant: &str, id: &str) -> Value {
        self.ask(tenant, "GET", &format!("/executions/{id}"), None, 200).await
    }

    /// An execution once it is in one of these states.
    pub async fn once(&self, tenant: &str, id: &str, statuses: &[&str]) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.execution(tenant, id).await;
            if seen["status"].as_str().is_some_and(|status| statuses.contains(&status)) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{id} does not come to {statuses:?}: {seen:#}\n{}", self.node.output());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many runs of a tenant there are in each state.
    pub async fn statuses(&self, tenant: &str) -> BTreeMap<String, usize> {
        let (mut counted, mut after) = (BTreeMap::new(), String::new());
        loop {
            let page = self.ask(tenant, "GET", &format!("/executions?limit=200{after}"), None, 200).await;
            for line in page["executions"].as_array().expect("a list") {
                *counted.entry(line["status"].as_str().expect("a status").to_owned()).or_default() += 1;
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return counted,
            }
        }
    }
}

/// A node of an execution.
#[track_caller]
pub fn node<'v>(execution: &'v Value, id: &str) -> &'v Value {
    let nodes = execution["nodes"].as_array().expect("nodes");
    nodes.iter().find(|node| node["id"] == id).unwrap_or_else(|| panic!("no node {id} in {execution:#}"))
}

/// A key that grants are signed with, and how the file names its other half.
fn keys() -> (String, String) {
    use ring::rand::{SecureRandom, SystemRandom};
    use ring::signature::{Ed25519KeyPair, KeyPair};
    const PKCS8: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).expect("randomness");
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a key");
    let body = data_encoding::BASE64.encode(&[&PKCS8[..], &seed].concat());
    let private = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let public = data_encoding::BASE64URL_NOPAD.encode(pair.public_key().as_ref());
    (private, format!("ed25519:{public}"))
}

fn restrict(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
}
