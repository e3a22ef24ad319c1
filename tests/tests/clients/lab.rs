//! Two hosts: the edge with an appliance and a client, and the world with a provider.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use tempfile::TempDir;
use tidegate_tests::appliance::Node;
use tidegate_tests::network::Network;
use tidegate_tests::{Appliance, tenant};

const EDGE: &str = "93.184.216.10";
const WORLD: &str = "93.184.216.34";
/// What the provider knows the tenant by.
const KEY: &str = "sk_the_tenants_own";
/// Bytes of a body, up and down.
const SIZE: usize = 20 << 20;
/// A client that takes longer hangs. Debug builds of both, on two processors.
const SECONDS: &str = "180";

pub struct Lab {
    network: Network,
    node: Node,
    grant: String,
    origin: Child,
    /// Ends the provider when it is dropped.
    _ends: Option<ChildStdin>,
    scratch: TempDir,
}

/// A file of `tests/clients`.
pub fn clients(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

/// Builds a program in Go; none where there is no Go.
pub fn go(name: &str, scratch: &Path) -> Option<PathBuf> {
    let program = scratch.join(format!("program-{name}"));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").current_dir(clients(name)).env("GOFLAGS", "-mod=mod");
    let built = go.status().ok()?;
    assert!(built.success(), "{name} does not build");
    Some(program)
}

impl Lab {
    /// None, and a line that says so, where this machine does not let us.
    pub fn up() -> Option<Self> {
        let network = Network::new(&["edge", "world"], &[])?;
        let scratch = tempfile::tempdir().expect("a directory");
        let Some(origin) = go("origin", scratch.path()) else {
            skip::skipped("there is no Go here");
            return None;
        };
        network.join(("edge", "out0"), ("world", "in0"));
        for (host, device, own, other) in [("edge", "out0", EDGE, WORLD), ("world", "in0", WORLD, EDGE)] {
            network.ip(&format!("-n @{host} addr add {own}/32 dev {device}"));
            network.ip(&format!("-n @{host} route add {other}/32 dev {device}"));
        }
        let authority = scratch.path().join("authority.pem");
        let mut origin = {
            let authority = authority.clone();
            let start = move || {
                let mut origin = Command::new(origin);
                origin.arg(WORLD).arg(authority).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
            };
            network.within("world", start).join().expect("no panic").expect("the provider starts")
        };
        let mut ready = String::new();
        let said = origin.stdout.take().expect("a pipe");
        BufReader::new(said).read_line(&mut ready).expect("a line");
        assert_eq!(ready, "ready\n");
        let ends = origin.stdin.take();
        let node = {
            let authority = authority.clone();
            network.within("edge", move || appliance(&authority)).join().expect("an appliance")
        };
        let minted = node.cli_ok(&["grant", "--tenant", "acme", "--ttl", "15m"]);
        Some(Self { network, node, grant: minted.trim().to_owned(), origin, _ends: ends, scratch })
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs a client on the edge, to its end.
    pub fn run(&self, client: &Command) -> Output {
        let proxy = "127.0.0.1:3128";
        let mut bounded = Command::new("timeout");
        bounded.arg(SECONDS).arg(client.get_program()).args(client.get_args());
        bounded.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
        bounded
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy")
            .env_remove("NO_PROXY")
            .env_remove("no_proxy")
            // What a machine trusts beside what it is told to.
            .env_remove("REQUESTS_CA_BUNDLE")
            .env_remove("CURL_CA_BUNDLE")
            .env_remove("SSL_CERT_FILE")
            .env("PROXY", format!("http://grant:{}@{proxy}", self.grant))
            .env("HTTPS_PROXY", format!("http://grant:{}@{proxy}", self.grant))
            .env("PROXY_ANONYMOUS", format!("http://{proxy}"))
            .env("BASE", format!("http://{proxy}/c/conn_echo"))
            .env("GRANT", &self.grant)
            .env("KEY", KEY)
            .env("CA", self.scratch.path().join("authority.pem"))
            .env("HOST", "api.example.com")
            .env("OTHER", "other.example.com")
            .env("DENIED", "denied.example.net")
            .env("SIZE", SIZE.to_string());
        self.network.within("edge", move || bounded.output()).join().expect("no panic").expect("it runs")
    }

    /// What the appliance decided, for whoever looks into a failure.
    pub fn records(&self) -> String {
        // It says no where there is none.
        String::from_utf8_lossy(&self.node.cli(&["egress", "log"]).stdout).into_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // It ends by itself when nobody holds its input any more; here it must have.
        let _ = self.origin.kill();
        let _ = self.origin.wait();
    }
}

/// With a caller of a signed grant, and a connection whose credential the caller never has.
fn appliance(authority: &Path) -> Node {
    let tenant = tenant("acme").set("egress", "allow", "[\"*.example.com\"]").extra(
        "\n[[connection]]\nid = \"conn_echo\"\nconnector = \"http\"\nbase_url = \"https://governed.example.com\"\n\
         credential = \"cred_echo\"\n\n[[credential]]\nid = \"cred_echo\"\nkind = \"bearer\"\nvalue = \"secret:key\"\n",
    );
    let mut node = Appliance::new()
        .set("egress", "listen", "[\"127.0.0.1:3128\"]")
        .set("egress.dns", "servers", &format!("[\"{WORLD}\"]"))
        .environment("SSL_CERT_FILE", authority.to_str().expect("UTF-8"))
        .tenant(tenant)
        .prepare();
    let secret = node.tenants_directory().join("acme.secrets/key");
    std::fs::write(&secret, KEY).expect("a secret");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    let key = node.tenants_directory().with_file_name("grant.key.pem");
    let keygen =
        Command::new(tidegate_tests::appliance::binary()).args(["grant", "keygen", "--out"]).arg(&key).output();
    let issuer = String::from_utf8(keygen.expect("it runs").stdout).expect("UTF-8");
    let config = std::fs::read_to_string(node.config()).expect("the configuration");
    std::fs::write(node.config(), format!("{config}\n{issuer}")).expect("the configuration");
    node.checked();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(node.start());
    node
}
