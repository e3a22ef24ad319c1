//! A Redis of a scenario's own, which suffers what servers suffer.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::appliance::own_address;
use crate::eventually;

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Redis {
    pub address: SocketAddr,
    program: &'static str,
    child: Option<Child>,
    directory: TempDir,
    arguments: Vec<String>,
    /// Of the user `default`.
    password: Option<String>,
}

impl Redis {
    /// One that keeps nothing on disk; none, and a line that says so, where there is no Redis.
    pub async fn start() -> Option<Self> {
        let mut redis = Self::prepare(&["--save", "", "--appendonly", "no"])?;
        redis.up().await;
        Some(redis)
    }

    /// One that has not been started, with these arguments.
    pub fn prepare(arguments: &[&str]) -> Option<Self> {
        Self::prepare_as("redis-server", arguments)
    }

    /// A sentinel that watches a primary named `quota`.
    pub async fn sentinel(primary: SocketAddr) -> Option<Self> {
        let lines = [
            &format!("sentinel monitor quota {} {} 1", primary.ip(), primary.port()),
            "sentinel down-after-milliseconds quota 500",
            "sentinel failover-timeout quota 2000",
        ];
        let mut sentinel = Self::prepare_as("redis-sentinel", &lines)?;
        sentinel.up().await;
        Some(sentinel)
    }

    fn prepare_as(program: &'static str, arguments: &[&str]) -> Option<Self> {
        let is_there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_there {
            skip::skipped(&format!("there is no {program} here (deploy/setup.sh test)"));
            return None;
        }
        // Nobody else has this address, so that a port which is free stays free.
        let listener = TcpListener::bind((own_address(), 0)).expect("a port of an address of our own");
        let address = listener.local_addr().expect("its address");
        let directory = tempfile::Builder::new().prefix("tidegate-redis-").tempdir().expect("a directory");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Some(Self { address, program, child: None, directory, arguments, password: None })
    }

    /// Who comes has to say this from the next start on; [`Self::run`] does.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.arguments.extend(["--requirepass".to_owned(), password.to_owned()]);
        self.password = Some(password.to_owned());
        self
    }

    /// With these arguments too, from the next start on.
    pub fn also(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
    }

    /// Another password for whoever comes from now on.
    pub fn change_password(&mut self, password: &str) {
        self.run(&["CONFIG", "SET", "requirepass", password]);
        self.password = Some(password.to_owned());
    }

    /// Starts it, and waits until it answers.
    pub async fn up(&mut self) {
        self.spawn();
        eventually!(self.try_run(&["PING"]).is_ok_and(|said| said == "PONG"), "{} answers", self.program);
    }

    fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let (ip, port) = (self.address.ip().to_string(), self.address.port().to_string());
        let mut command = Command::new(self.program);
        if self.program == "redis-sentinel" {
            let file = self.directory.path().join("sentinel.conf");
            if !file.exists() {
                let lines = [&format!("port {port}"), &format!("bind {ip}")];
                let lines = lines.into_iter().chain(&self.arguments).fold(String::new(), |all, line| all + line + "\n");
                std::fs::write(&file, lines).expect("a file");
            }
            command.arg(file);
        } else {
            command.args(["--bind", &ip, "--port", &port, "--dir"]).arg(self.directory.path()).args(&self.arguments);
        }
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    }

    /// No goodbye, and nothing on disk but what was there.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it takes the signal");
        child.wait().expect("it ends");
    }

    /// It is there and does nothing.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().expect("it runs").id();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("it takes the signal");
    }

    /// Runs a command; what it says as text, one line for each part.
    pub fn run(&self, words: &[&str]) -> String {
        self.try_run(words).unwrap_or_else(|fault| panic!("{words:?}: {fault}"))
    }

    pub fn try_run(&self, words: &[&str]) -> io::Result<String> {
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut stream = BufReader::new(stream);
        if let Some(password) = &self.password {
            say(&mut stream, &["AUTH", password])?;
        }
        say(&mut stream, words)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may be frozen, or gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn say(stream: &mut BufReader<TcpStream>, words: &[&str]) -> io::Result<String> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.get_mut().write_all(command.as_bytes())?;
    reply(stream)
}

fn reply(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let odd = || io::Error::other(format!("an odd reply: {line:?}"));
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or_else(odd)?;
    let number = || rest.parse::<i64>().map_err(|_| odd());
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => Err(io::Error::other(rest.to_owned())),
        "$" => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(String::new()) };
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(length);
            String::from_utf8(bytes).map_err(io::Error::other)
        }
        "*" => {
            let parts: io::Result<Vec<String>> = (0..number()?).map(|_| reply(stream)).collect();
            Ok(parts?.join("\n"))
        }
        _ => Err(odd()),
    }
}
