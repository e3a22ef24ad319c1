//! The built binary, started in a directory of its own and stopped in every way there is.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::events::Event;
use crate::metrics::Metrics;
use crate::patience::PATIENCE;
use crate::response::Response;
use crate::sender::{Connection, Request, Sender};
use crate::settings::{self, Endpoint, Tenant, endpoint, tenant};

/// What is about to be started.
#[derive(Debug)]
pub struct Appliance {
    tenants: Vec<Tenant>,
    tables: BTreeMap<String, BTreeMap<String, String>>,
    extra: String,
    log_directory: Option<PathBuf>,
    under: Vec<String>,
    environment: Vec<(String, String)>,
    host: String,
}

/// A running appliance, and after `kill9` or `terminate` one that stands still. Dropping it stops it.
#[derive(Debug)]
pub struct Node {
    pub directory: PathBuf,
    pub gateway: SocketAddr,
    pub admin: SocketAddr,
    pub log_directory: PathBuf,
    pub host: String,
    tenants: Vec<Tenant>,
    under: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
    _temporary: TempDir,
}

/// `target/<profile>/tidegate`, beside the directory of the test that runs.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let binary = profile.join("tidegate");
    assert!(binary.exists(), "{} is missing: build it first (`make e2e` does)", binary.display());
    binary
}

/// A loopback address that nobody else on this machine uses: from the process id and a counter.
pub(crate) fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    // 127.64/10: away from 127.0.0.1 and from the addresses that senders come from.
    Ipv4Addr::new(127, 64 + u8::try_from(count % 190).expect("less than 190"), high, low)
}

/// Two free ports. Both are held until both are known: a port that is let go may be given again.
fn free_ports(address: Ipv4Addr) -> (SocketAddr, SocketAddr) {
    let listen = || TcpListener::bind((address, 0)).expect("a port of an address of our own");
    let (one, other) = (listen(), listen());
    (one.local_addr().expect("its address"), other.local_addr().expect("its address"))
}

impl Default for Appliance {
    fn default() -> Self {
        Self::new()
    }
}

impl Appliance {
    pub fn new() -> Self {
        let host = "hooks.example.com".to_owned();
        let new = Self {
            tenants: Vec::new(),
            tables: BTreeMap::new(),
            extra: String::new(),
            log_directory: None,
            under: Vec::new(),
            environment: Vec::new(),
            host,
        };
        // Segments of the usual 64 MiB would have every scenario write zeros for a second; a body has to fit in one.
        new.set("log", "segment_bytes", "\"4MiB\"").set("gateway", "body_bytes_max", "\"1MiB\"")
    }

    /// One tenant, `acme`, with one GitHub endpoint, `wh_1`.
    pub fn usual() -> Self {
        Self::new().tenant(tenant("acme").endpoint(endpoint("wh_1")))
    }

    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenants.push(tenant);
        self
    }

    /// `[table]` of the appliance's file gets `key = value`; the value is TOML.
    #[must_use]
    pub fn set(mut self, table: &str, key: &str, value: &str) -> Self {
        self.tables.entry(table.into()).or_default().insert(key.into(), value.into());
        self
    }

    /// TOML that goes to the end of the appliance's file as it is.
    #[must_use]
    pub fn extra(mut self, text: &str) -> Self {
        self.extra.push_str(text);
        self
    }

    #[must_use]
    pub fn log_in(mut self, directory: &Path) -> Self {
        self.log_directory = Some(directory.to_owned());
        self
    }

    /// Starts the binary under another program, which must keep its process id (`strace -D` does).
    #[must_use]
    pub fn under(mut self, command: &[&str]) -> Self {
        self.under = command.iter().map(ToString::to_string).collect();
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Writes the configuration and starts nothing.
    pub fn prepare(mut self) -> Node {
        let temporary = tempfile::Builder::new().prefix("tidegate-").tempdir().expect("a temporary directory");
        let directory = temporary.path().to_owned();
        let address = own_address();
        let (gateway, admin) = free_ports(address);
        let log_directory = self.log_directory.take().unwrap_or_else(|| directory.join("log"));
        let quoted = |text: &str| format!("\"{text}\"");
        let of = |path: &Path| quoted(path.to_str().expect("a path of ours is UTF-8"));
        for (table, key, value) in [
            ("gateway", "listen", format!("[\"{gateway}\"]")),
            ("gateway", "public_url", format!("\"https://{}\"", self.host)),
            ("log", "directory", of(&log_directory)),
            ("admin", "listen", quoted(&admin.to_string())),
            ("admin", "socket", of(&directory.join("control.sock"))),
            ("tenants", "directory", of(&directory.join("tenants"))),
            ("tenants", "state_directory", of(&directory.join("state"))),
        ] {
            self.tables.entry(table.into()).or_default().entry(key.into()).or_insert(value);
        }
        let mut toml = String::new();
        settings::write_tables(&mut toml, &self.tables);
        toml.push_str(&self.extra);
        std::fs::write(directory.join("tidegate.toml"), toml).expect("the configuration");
        std::fs::create_dir(directory.join("tenants")).expect("a directory");
        for tenant in &self.tenants {
            tenant.write(&directory.join("tenants"));
        }
        Node {
            directory,
            gateway,
            admin,
            log_directory,
            host: self.host,
            tenants: self.tenants,
            under: self.under,
            environment: self.environment,
            child: None,
            _temporary: temporary,
        }
    }

    /// Starts it and waits until it is ready.
    pub async fn start(self) -> Node {
        let mut node = self.prepare();
        node.start().await;
        node
    }
}

impl Node {
    pub fn config(&self) -> PathBuf {
        self.directory.join("tidegate.toml")
    }

    pub fn tenants_directory(&self) -> PathBuf {
        self.directory.join("tenants")
    }

    /// Runs the binary under another program from the next start on, or under none.
    pub fn under(&mut self, command: &[&str]) {
        self.under = command.iter().map(ToString::to_string).collect();
    }

    pub fn environment(&mut self, name: &str, value: &str) {
        self.environment.push((name.into(), value.into()));
    }

    /// Fails where the configuration has faults, and says them: a tenant whose file has some would merely be unknown.
    pub fn checked(&self) -> &Self {
        let output = self.cli(&["check"]);
        assert!(output.status.success(), "{}{}", lossy(&output.stdout), lossy(&output.stderr));
        self
    }

    /// Starts the binary without waiting for anything.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = |name: &str| {
            let path = self.directory.join(name);
            std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file for its output")
        };
        let binary = binary();
        let mut words: Vec<&str> = self.under.iter().map(String::as_str).collect();
        words.push(binary.to_str().expect("UTF-8"));
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(["run", "--config"])
            .arg(self.config())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log("stdout"))
            .stderr(log("stderr"))
            .spawn()
            .expect("the binary starts");
        self.child = Some(child);
    }

    pub async fn start(&mut self) {
        self.spawn();
        self.ready().await;
    }

    /// Waits for `/readyz`.
    pub async fn ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                panic!("it ended with {status} instead of becoming ready:\n{}", self.output());
            }
            if let Some(response) = self.try_admin("/readyz").await
                && response.status == 200
            {
                return;
            }
            assert!(Instant::now() < deadline, "it does not become ready:\n{}", self.output());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("it takes the signal");
    }

    /// The status with which it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().expect("it was started").try_wait().expect("its status")
    }

    /// Waits for the end of a process that was told to go.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                self.child = None;
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.output());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// No goodbye.
    pub async fn kill9(&mut self) {
        if self.exited().is_none() {
            self.signal(Signal::KILL);
        }
        self.ended().await;
    }

    /// As `systemctl stop` does it; fails unless it ends with success.
    pub async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert!(status.success(), "it ended with {status}:\n{}", self.output());
    }

    pub async fn restart(&mut self) {
        self.terminate().await;
        self.start().await;
    }

    /// A provider that posts to this endpoint and knows its first secret.
    pub fn sender(&self, endpoint: &str) -> Sender {
        Sender {
            to: self.gateway,
            from: None,
            host: self.host.clone(),
            target: format!("/hooks/{endpoint}"),
            secret: self.endpoint(endpoint).secrets[0].1.clone(),
        }
    }

    fn endpoint(&self, id: &str) -> &Endpoint {
        let mut all = self.tenants.iter().flat_map(|tenant| &tenant.endpoints);
        all.find(|endpoint| endpoint.id == id).unwrap_or_else(|| panic!("no endpoint {id} here"))
    }

    /// Replaces a tenant's file and its secrets.
    pub fn rewrite(&mut self, tenant: Tenant) {
        tenant.write(&self.tenants_directory());
        self.tenants.retain(|known| known.id != tenant.id);
        self.tenants.push(tenant);
    }

    pub async fn admin(&self, path: &str) -> Response {
        self.try_admin(path).await.expect("the admin listener answers")
    }

    async fn try_admin(&self, path: &str) -> Option<Response> {
        let mut connection = Connection::try_open(self.admin, None).await.ok()?;
        let request = Request::new("GET", path).header("Host", "localhost").header("Connection", "close");
        connection.try_send(&request.bytes()).await.ok()?;
        connection.try_response().await.ok()
    }

    /// The status of `/readyz`; none where nobody answers.
    pub async fn try_readyz(&self) -> Option<u16> {
        self.try_admin("/readyz").await.map(|response| response.status)
    }

    pub async fn metrics(&self) -> Metrics {
        let response = self.admin("/metrics").await;
        assert_eq!(response.status, 200);
        Metrics::parse(&String::from_utf8(response.body).expect("metrics are UTF-8"))
    }

    /// Runs a command of the same binary; `--config` is added.
    pub fn cli(&self, words: &[&str]) -> Output {
        let output = Command::new(binary())
            .args(words)
            .arg("--config")
            .arg(self.config())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .output();
        output.expect("the command runs")
    }

    /// Standard output of a command that has to succeed.
    pub fn cli_ok(&self, words: &[&str]) -> String {
        let output = self.cli(words);
        assert!(output.status.success(), "tidegate {words:?}: {}\n{}", output.status, lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("what it prints is UTF-8")
    }

    /// Every event of the log, in its order.
    pub fn export(&self) -> Vec<Event> {
        Event::read_lines(&self.cli_ok(&["events", "export", "--all-tenants", "--json"]))
    }

    /// The same where the log may be beyond reading.
    pub fn try_export(&self) -> Option<Vec<Event>> {
        let output = self.cli(&["events", "export", "--all-tenants", "--json"]);
        output.status.success().then(|| Event::read_lines(&lossy(&output.stdout)))
    }

    /// What it wrote to both of its outputs, over all its lives.
    pub fn output(&self) -> String {
        let read = |name: &str| std::fs::read(self.directory.join(name)).unwrap_or_default();
        lossy(&[read("stdout"), read("stderr")].concat())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; there is nobody left to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- output of the appliance in {}\n{}", self.directory.display(), self.output());
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
