//! A PostgreSQL of a scenario's own, which suffers what servers suffer. Tests of other crates take this file in as it is,
//! so it uses nothing else of this one.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Who may do everything, and the password that is asked for.
pub const USER: &str = "tidegate";
pub const PASSWORD: &str = "a password of tests";

/// Long enough for a recovery on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Postgres {
    pub address: SocketAddr,
    programs: PathBuf,
    /// Whom it runs as, where we are root: it refuses to be.
    owner: Option<(u32, u32)>,
    child: Option<Child>,
    directory: TempDir,
    settings: Vec<String>,
}

impl Postgres {
    /// One that syncs what it commits; none, and a line that says so, where there is no PostgreSQL.
    pub async fn start(settings: &[&str]) -> Option<Self> {
        let mut server = Self::prepare(settings)?;
        server.up().await;
        Some(server)
    }

    /// The same, which does not run yet.
    pub fn prepare(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            skip::skipped("there is no PostgreSQL server here (deploy/setup.sh test)");
            return None;
        };
        let server = Self {
            address: free_address(),
            programs,
            owner: owner(),
            child: None,
            directory: tempfile::Builder::new().prefix("tidegate-postgres-").tempdir().expect("a directory"),
            settings: settings.iter().map(ToString::to_string).collect(),
        };
        server.initialise();
        Some(server)
    }

    /// Takes connections with TLS alone from its next start on, and for this database only with a certificate that the
    /// authority has signed. All of it is PEM.
    pub fn with_tls(&mut self, certificate: &str, key: &str, authority: &str, database: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key), ("clients.crt", authority)] {
            let path = self.directory.path().join(name);
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
            if let Some((user, group)) = self.owner {
                std::os::unix::fs::chown(&path, Some(user), Some(group)).expect("we are root");
            }
        }
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let settings = [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", path("server.crt")),
            format!("ssl_key_file={}", path("server.key")),
            format!("ssl_ca_file={}", path("clients.crt")),
        ];
        self.settings.extend(settings);
        let rules = format!(
            "hostssl {database} all all scram-sha-256 clientcert=verify-ca\nhostssl postgres all all scram-sha-256\n"
        );
        fs::write(self.data().join("pg_hba.conf"), rules).expect("a file");
    }

    /// The settings by which runners share it: a database of theirs, which is made here.
    pub fn shared(&self, database: &str) -> [(&'static str, &'static str, String); 5] {
        self.run("postgres", &format!("CREATE DATABASE {database}"));
        self.settings_of(database)
    }

    /// The same of a database that is there.
    pub fn settings_of(&self, database: &str) -> [(&'static str, &'static str, String); 5] {
        let password = self.directory.path().join("password");
        [
            ("runner", "store", "\"postgres\"".to_owned()),
            ("runner.postgres", "address", format!("\"{}\"", self.address)),
            ("runner.postgres", "database", format!("\"{database}\"")),
            ("runner.postgres", "user", format!("\"{USER}\"")),
            ("runner.postgres", "password", format!("\"file:{}\"", password.display())),
        ]
    }

    fn initialise(&self) {
        let password = self.directory.path().join("password");
        fs::write(&password, PASSWORD).expect("a file");
        fs::set_permissions(&password, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
        if let Some((user, group)) = self.owner {
            for path in [self.directory.path(), &password] {
                std::os::unix::fs::chown(path, Some(user), Some(group)).expect("we are root");
            }
        }
        let output = self
            .program("initdb")
            .args([
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "--auth=scram-sha-256",
                "--username",
                USER,
                "--pwfile",
            ])
            .arg(&password)
            .arg("--pgdata")
            .arg(self.data())
            .output()
            .expect("initdb runs");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Starts it, and waits until it answers. It may first have to recover.
    pub async fn up(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let until = Instant::now() + PATIENCE;
        loop {
            let mut child = self.child.take().unwrap_or_else(|| self.spawn());
            // What is left of a killed one keeps the next from starting for a moment.
            if child.try_wait().expect("a child").is_none() {
                self.child = Some(child);
                if self.try_run("postgres", "SELECT 1").is_ok() {
                    return;
                }
            }
            assert!(Instant::now() < until, "it does not answer: {}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn spawn(&self) -> Child {
        let said = fs::File::create(self.directory.path().join("said")).expect("a file");
        self.program("postgres").args(arguments(self)).stdout(Stdio::null()).stderr(said).spawn().expect("it starts")
    }

    /// What it has said, before it had its log and after.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        ["said", "log"].map(read).join("")
    }

    /// No goodbye, of none of its processes, and nothing in its files but what was there.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let others = children(child.id());
        child.kill().expect("it takes the signal");
        for other in others {
            // It may have noticed, and gone.
            let _ = signal(other, Signal::KILL);
        }
        child.wait().expect("it ends");
    }

    /// It is there and does nothing. Its first process is stopped first, so that no more come.
    pub fn freeze(&self) {
        let id = self.child.as_ref().expect("it runs").id();
        signal(id, Signal::STOP).expect("it takes the signal");
        for other in children(id) {
            let _ = signal(other, Signal::STOP);
        }
    }

    pub fn thaw(&self) {
        let id = self.child.as_ref().expect("it runs").id();
        for other in children(id) {
            let _ = signal(other, Signal::CONT);
        }
        signal(id, Signal::CONT).expect("it takes the signal");
    }

    /// What a statement says, as text: a line per row, `|` between columns.
    pub fn run(&self, database: &str, sql: &str) -> String {
        self.try_run(database, sql).unwrap_or_else(|fault| panic!("{sql}: {fault}"))
    }

    pub fn try_run(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = self.psql(database).args(["--command", sql]).output().expect("psql runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// A session by hand: statements go to its standard input.
    pub fn psql(&self, database: &str) -> Command {
        let mut command = self.program("psql");
        command
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"])
            .args(["--host", &self.address.ip().to_string(), "--port", &self.address.port().to_string()])
            .args(["--username", USER, "--dbname", database])
            // Its own files for TLS are not to be found, rather than not to be read.
            .env("HOME", self.directory.path())
            .env("PGPASSWORD", PASSWORD)
            .env("PGCONNECT_TIMEOUT", "5");
        command
    }
}

fn arguments(server: &Postgres) -> Vec<String> {
    let mut arguments = vec!["-D".to_owned(), server.data().display().to_string()];
    let usual = [
        format!("listen_addresses={}", server.address.ip()),
        format!("port={}", server.address.port()),
        format!("unix_socket_directories={}", server.directory.path().display()),
        "logging_collector=on".to_owned(),
        format!("log_directory={}", server.directory.path().display()),
        "log_filename=log".to_owned(),
        "max_connections=300".to_owned(),
    ];
    for setting in usual.iter().chain(&server.settings) {
        arguments.extend(["-c".to_owned(), setting.clone()]);
    }
    arguments
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill9();
        }
    }
}

fn signal(id: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal)
}

/// Each in a session of its own, as this server's are: they are found by their parent.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name, in brackets, may have anything in it.
        let behind = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().nth(1).map(str::parse::<u32>));
        behind == Some(Some(Ok(parent)))
    };
    let entries = fs::read_dir("/proc").expect("a list of processes");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// Where the server's programs are: Debian keeps them out of the path.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    found.sort();
    let in_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    found.extend(in_path.unwrap_or_default());
    let is_whole =
        |path: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| Path::new(path).join(name).exists());
    found.into_iter().rev().find(is_whole)
}

/// `postgres`, or else nobody, where we are root.
fn owner() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a list of users");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("a user that is not root"))
}

/// Nobody else has this address, so that a port which is free stays free.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, 16 + NEXT.fetch_add(1, Ordering::Relaxed) % 48, high, low);
    TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr()).expect("a port of an address of our own")
}
