//! Servers under test: started with a fresh directory on a free port of loopback, stopped when dropped.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Result;
use crate::hook::Target;

pub mod qhook;
pub mod restate;
pub mod tidegate;

/// Longest time that a server may take to answer after its start: 100,000 endpoints and a long log are read in it.
const READY: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Bare,
    Tidegate,
    Restate,
    Qhook,
}

impl Kind {
    pub fn label(self) -> &'static str {
        match self {
            Self::Bare => "bare pingora",
            Self::Tidegate => "tidegate",
            Self::Restate => "restate",
            Self::Qhook => "qhook",
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    pub targets: Vec<Target>,
    /// Everything that it keeps on disk.
    pub data: PathBuf,
    /// From its start until it was ready.
    pub ready_after: Duration,
    child: Child,
    /// What it needs beside itself; not measured.
    helpers: Vec<Helper>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It and what it needs beside itself.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.pid()).chain(self.helpers.iter().map(|helper| helper.0.id()))
    }

    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        Ok(rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)?)
    }

    /// Is it still there? A server that died measures nothing.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("{} ended: {status}; see {}", self.kind.label(), self.data.display()).into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
        self.helpers.clear();
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
pub(crate) struct Helper(pub(crate) Child);

impl Drop for Helper {
    fn drop(&mut self) {
        stop(&mut self.0);
    }
}

/// Asks a child to end, and makes it.
pub(crate) fn stop(child: &mut Child) {
    let asked = rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
    let end = Instant::now() + Duration::from_secs(15);
    while asked.is_ok() && Instant::now() < end {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A program that is told to end when this one does, however this one ends.
pub(crate) fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).exists() {
        return Command::new(path);
    }
    // It becomes the program: the process id stays.
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "TERM", "--"]).arg(path);
    command
}

/// Starts a program with its output in `log`.
pub(crate) fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let out = fs::File::create(log)?;
    let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn();
    child.map_err(|error| format!("{}: {error}", command.get_program().display()).into())
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Waits until `path` answers 2xx; says where to look if it does not, or if the server is gone before.
pub(crate) fn wait_ready(child: &mut Child, address: SocketAddr, path: &str, log: &Path) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < READY {
        if let Ok((200..300, _)) = http(address, "GET", path, "") {
            return Ok(began.elapsed());
        }
        if let Some(status) = child.try_wait()? {
            return Err(format!("it ended with {status} before it was ready; see {}", log.display()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    Err(format!("it was not ready after {} s; see {}", READY.as_secs(), log.display()).into())
}

/// One plain request.
pub fn http(address: SocketAddr, method: &str, path: &str, json: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{json}",
        json.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.get(9..12).and_then(|digits| digits.parse().ok()).ok_or("no HTTP answer")?;
    Ok((status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// The bare Pingora responder.
pub fn bare(binary: &Path, scratch: &Path, threads: usize) -> Result<Server> {
    let data = fresh(scratch, "bare")?;
    let address = free_port()?;
    let log = data.join("output.log");
    let mut child = spawn(program(binary).arg(address.to_string()).arg(threads.to_string()), &log)?;
    let ready_after = wait_ready(&mut child, address, "/", &log)?;
    let targets = vec![Target { path: "/hooks/wh_bench".into(), secret: "bench".into() }];
    Ok(Server { kind: Kind::Bare, address, targets, data, ready_after, child, helpers: Vec::new() })
}

/// An empty directory of this name.
pub(crate) fn fresh(scratch: &Path, name: &str) -> Result<PathBuf> {
    let directory = scratch.join(name);
    if directory.exists() {
        // Half a million small files of a run before take their time.
        eprintln!("clearing {} …", directory.display());
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
