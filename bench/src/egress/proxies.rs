//! What is compared: proxies, each with the configuration that makes it do what the appliance does, as far as it can.
//!
//! Started on a free port of loopback with a fresh directory, stopped when dropped. What each of them does and leaves out
//! stands at the top of its file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use super::names::{API, CONNECTION, Places};
use super::origin::GOVERNED;
use crate::Result;
use crate::server::stop;

pub mod envoy;
pub mod haproxy;
pub mod squid;
pub mod tidegate;

/// Longest time until a proxy is ready.
const READY: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Direct,
    Tidegate,
    Squid,
    Envoy,
    Haproxy,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Direct, Self::Tidegate, Self::Squid, Self::Envoy, Self::Haproxy];

    pub fn label(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tidegate => "tidegate",
            Self::Squid => "squid",
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy*",
        }
    }

    pub fn name(self) -> &'static str {
        self.label().trim_end_matches('*')
    }
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    pub kind: Kind,
    pub data: PathBuf,
    /// As a proxy: absolute-form and CONNECT.
    pub proxy: SocketAddr,
    /// For governed calls, and in which form.
    pub governed: (SocketAddr, Governed),
    /// Where there is no CONNECT: connections to here lead to hosts of tunnels, one port for each kind of them.
    pub fixed: Option<Fixed>,
    /// A grant, where grants are asked for.
    pub grant: Option<String>,
    /// Where its metrics are, if its records are counted.
    pub metrics: Option<SocketAddr>,
    child: Child,
    /// Its data, where they are not kept: gone when it is stopped.
    #[expect(dead_code, reason = "it is there to be dropped")]
    home: Option<TempDir>,
}

/// How a governed call is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Governed {
    /// `/c/{connection}/…`
    Path,
    /// `https://…` in absolute-form.
    Absolute,
}

/// Ports that lead to one host of tunnels.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    pub greeting: SocketAddr,
    pub bulk: SocketAddr,
}

impl Proxy {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Is it still there? A proxy that died measures nothing.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("{} ended: {status}; see {}", self.kind.label(), self.data.display()).into()),
        }
    }

    /// Head of an absolute-form request, up to its number.
    pub fn absolute(&self, places: &Places) -> String {
        format!("GET http://{API}:{}/things/", places.plain)
    }

    /// Head of a governed call, up to its number, and the host that it names.
    pub fn governed(&self, places: &Places) -> (String, String) {
        match self.governed {
            (at, Governed::Path) => (format!("GET /c/{CONNECTION}{GOVERNED}"), at.to_string()),
            (_, Governed::Absolute) => {
                let host = format!("{API}:{}", places.tls);
                (format!("GET https://{host}{GOVERNED}"), host)
            }
        }
    }

    /// The field that says who asks; nothing where nobody is asked.
    pub fn proof(&self, name: &str) -> String {
        self.grant.as_ref().map(|grant| format!("{name}{grant}\r\n")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Waits until `is_ready`; says where to look if it is not, or if the proxy is gone before.
fn wait_until(child: &mut Child, log: &Path, mut is_ready: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + READY;
    while Instant::now() < end {
        if is_ready() {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return Err(format!("it ended with {status} before it was ready; see {}", log.display()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(child);
    Err(format!("it was not ready after {} s; see {}", READY.as_secs(), log.display()).into())
}

/// Whether somebody listens there.
fn listens(address: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
