//! Nodes of one fleet: real processes of the built binary, each with ports and state of its own, that call providers for
//! many tenants and share a Redis.
//!
//! Every tenant has one connection at every provider, `/c/conn_PROVIDER/…`, whose account is the tenant's name, and a
//! token of its own. Providers are on loopback, which is opened to these tenants at these ports and to nobody else.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::appliance::{Appliance, Node, own_address};
use crate::call::token;
use crate::callers::Caller;
use crate::eventually;
use crate::patience::PATIENCE;
use crate::settings::tenant;
use crate::strict::Strict;

/// What a fleet is to be like.
#[derive(Debug)]
pub struct Plan<'p> {
    pub nodes: usize,
    pub tenants: &'p [String],
    /// Each with the name of its connector.
    pub providers: &'p [(&'static str, &'p Strict)],
    /// Tables and keys of the appliance's file, for `Appliance::set`.
    pub settings: &'p [(&'p str, &'p str, &'p str)],
    /// TOML that goes to the end of that file.
    pub extra: &'p str,
}

/// Dropping it stops its nodes.
#[derive(Debug)]
pub struct Fleet {
    pub nodes: Vec<Node>,
    /// Where each takes calls.
    pub egress: Vec<SocketAddr>,
    _files: TempDir,
}

/// `[quota]` of nodes that share this Redis.
pub fn shared(redis: SocketAddr) -> [(&'static str, &'static str, String); 2] {
    [("quota", "store", "\"redis\"".to_owned()), ("quota.redis", "addresses", format!("[\"{redis}\"]"))]
}

impl Fleet {
    /// Writes the configuration of all nodes and starts none.
    pub fn prepare(plan: &Plan<'_>) -> Self {
        let files = tempfile::Builder::new().prefix("tidegate-fleet-").tempdir().expect("a directory");
        let connectors = files.path().join("connectors");
        std::fs::create_dir(&connectors).expect("a directory");
        let mut authorities = String::new();
        let mut openings = String::new();
        for (connector, provider) in plan.providers {
            let host = provider.address.ip();
            let manifest = format!(
                "connector = \"{connector}\"\ntitle = \"A strict provider\"\nhosts = [\"{host}\"]\n\n\
                 [auth]\nslot = \"bearer\"\n\n{}",
                provider.profile()
            );
            std::fs::write(connectors.join(format!("{connector}.toml")), manifest).expect("a manifest");
            authorities.push_str(&provider.authority);
            for tenant in plan.tenants {
                openings.push_str(&format!(
                    "\n[[egress.opening]]\nhost = \"{host}\"\nnetworks = [\"{host}/32\"]\nports = [{}]\n\
                     tenant = \"{tenant}\"\n",
                    provider.address.port()
                ));
            }
        }
        let authority = files.path().join("authorities.pem");
        std::fs::write(&authority, authorities).expect("a file");
        let (mut nodes, mut egress) = (Vec::new(), Vec::new());
        for _ in 0..plan.nodes {
            let listener = TcpListener::bind((own_address(), 0)).expect("a port of an address of our own");
            let address = listener.local_addr().expect("its address");
            let mut appliance = Appliance::new()
                .set("egress", "listen", &format!("[\"{address}\"]"))
                // Nobody looks up a name.
                .set("egress.dns", "servers", "[\"127.0.0.1\"]")
                .set("connectors", "directory", &format!("\"{}\"", connectors.display()))
                .environment("SSL_CERT_FILE", authority.to_str().expect("UTF-8"));
            for (table, key, value) in plan.settings {
                appliance = appliance.set(table, key, value);
            }
            for name in plan.tenants {
                let (_, hash) = token(name);
                let mut text = format!("\n[[egress.token]]\nname = \"{name}\"\nhash = \"{hash}\"\n");
                for (connector, provider) in plan.providers {
                    let url = provider.url(name);
                    text.push_str(&format!(
                        "\n[[connection]]\nid = \"conn_{connector}\"\nconnector = \"{connector}\"\nbase_url = \"{url}\"\n"
                    ));
                }
                appliance = appliance.tenant(tenant(name).set("egress", "mode", "\"open\"").extra(&text));
            }
            nodes.push(appliance.extra(&openings).extra(plan.extra).prepare());
            egress.push(address);
        }
        nodes[0].checked();
        Self { nodes, egress, _files: files }
    }

    /// The same, with all nodes started and ready.
    pub async fn start(plan: &Plan<'_>) -> Self {
        let mut fleet = Self::prepare(plan);
        fleet.up().await;
        fleet
    }

    /// Starts those that do not run, side by side.
    pub async fn up(&mut self) {
        for node in &mut self.nodes {
            node.spawn();
        }
        for node in &mut self.nodes {
            node.ready().await;
        }
    }

    /// Writes another value of a key into the file of every node, which has it already.
    pub fn set(&self, table: &str, key: &str, value: &str) {
        for node in 0..self.nodes.len() {
            self.set_at(node, table, key, value);
        }
    }

    /// The same of one node.
    pub fn set_at(&self, node: usize, table: &str, key: &str, value: &str) {
        let file = self.nodes[node].config();
        let text = std::fs::read_to_string(&file).expect("the configuration");
        let mut is_in_table = false;
        let mut is_set = false;
        let lines = text.lines().map(|line| {
            if line.starts_with('[') {
                is_in_table = line == format!("[{table}]");
            }
            let is_it = is_in_table && line.split_once(" = ").is_some_and(|(found, _)| found == key);
            is_set |= is_it;
            if is_it { format!("{key} = {value}\n") } else { format!("{line}\n") }
        });
        let text: String = lines.collect();
        assert!(is_set, "no {key} in [{table}]");
        std::fs::write(file, text).expect("the configuration");
    }

    /// A tenant's calls to its account at a provider, at all nodes in turn.
    pub fn caller(&self, tenant: &str, connector: &str) -> Caller {
        Caller {
            who: Arc::from(tenant),
            nodes: self.egress.clone().into(),
            path: format!("/c/conn_{connector}/v1"),
            token: token(tenant).0,
            wait: None,
            patience: PATIENCE,
        }
    }

    /// Waits until `readyz` of every node says nothing, or something, of its store.
    pub async fn says_of_store(&self, is_wrong: bool) {
        for node in &self.nodes {
            eventually!(
                String::from_utf8_lossy(&node.admin("/readyz").await.body).contains("quota: its store") == is_wrong,
                "readyz tells of the store: {is_wrong}"
            );
        }
    }

    /// The sum of a sample over all nodes.
    pub async fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let mut sum = 0.0;
        for node in &self.nodes {
            sum += node.metrics().await.sum(name, labels);
        }
        sum
    }
}

impl Caller {
    /// Waits inside for as many seconds.
    #[must_use]
    pub fn waiting(self, seconds: u32) -> Self {
        Self { wait: Some(seconds), ..self }
    }

    /// Calls one node only.
    #[must_use]
    pub fn at(self, node: usize) -> Self {
        let nodes = [self.nodes[node]];
        Self { nodes: nodes.into(), ..self }
    }

    /// By another name in the book.
    #[must_use]
    pub fn named(self, who: &str) -> Self {
        Self { who: Arc::from(who), ..self }
    }

    /// With this behind its path.
    #[must_use]
    pub fn asking(mut self, query: &str) -> Self {
        self.path.push_str(query);
        self
    }

    /// Gives up after so long.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}
