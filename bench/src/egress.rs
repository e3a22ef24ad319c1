//! Egress under load: the appliance beside Squid, Envoy, `HAProxy` and no proxy at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::server::{fresh, program, spawn, stop};
use crate::{Result, process};

pub mod compare;
mod dns;
pub mod hello;
pub mod names;
pub mod origin;
pub mod proxies;
pub mod report;
mod requests;
mod setups;
mod tunnels;

use names::Places;
use proxies::{Kind, Proxy};

/// What all parts of a run share.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Measured time of one load.
    pub seconds: u64,
    /// How often everything is measured; the median is told.
    pub rounds: usize,
    /// Threads of every proxy.
    pub proxy_threads: usize,
    pub load_threads: usize,
    pub origin_threads: usize,
    /// Idle tunnels that are opened, if so many files may be open.
    pub tunnels: usize,
    pub tidegate: PathBuf,
    /// This program, which is the origin too.
    pub this: PathBuf,
    pub scratch: PathBuf,
    pub peers: PathBuf,
    pub out: PathBuf,
}

const WARM_UP: Duration = Duration::from_secs(1);

impl Bench {
    fn measured(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// A fresh proxy of this kind; none for calls without one.
    fn start(&self, kind: Kind, places: &Places) -> Result<Option<Proxy>> {
        let (scratch, threads) = (self.scratch.as_path(), self.proxy_threads);
        match kind {
            Kind::Direct => Ok(None),
            Kind::Tidegate => proxies::tidegate::start(&self.tidegate, scratch, places, threads).map(Some),
            Kind::Squid => proxies::squid::start(scratch, places, threads).map(Some),
            Kind::Envoy => {
                proxies::envoy::start(&crate::peers::envoy(&self.peers)?, scratch, places, threads).map(Some)
            }
            Kind::Haproxy => proxies::haproxy::start(scratch, places, threads).map(Some),
        }
    }
}

/// How many files a process may have open here.
pub fn files_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.maximum.unwrap_or(1 << 20).min(1 << 20)
}

/// Raises this process' limit of open files to what it may be; what it starts inherits it.
pub fn raise_files() -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: Some(files_max()), ..limit };
    Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)?)
}

/// The origin, in a process of its own.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) places: Places,
    child: Child,
}

impl Origin {
    /// `this` is the program of these benchmarks.
    pub(crate) fn start(this: &Path, scratch: &Path, threads: usize) -> Result<Self> {
        let data = fresh(scratch, "origin")?;
        let log = data.join("output.log");
        let mut command = program(this);
        command.arg("origin").arg("--directory").arg(&data).args(["--threads", &threads.to_string()]);
        let mut child = spawn(&mut command, &log)?;
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end && child.try_wait()?.is_none() {
            if let Ok(text) = fs::read(data.join(origin::PLACES)) {
                return Ok(Self { places: serde_json::from_slice(&text)?, child });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        stop(&mut child);
        Err(format!("the origin does not start; see {}", log.display()).into())
    }

    fn cpu_seconds(&self) -> Result<f64> {
        Ok(process::usage(self.child.id())?.cpu_seconds)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// A TLS client that trusts the origin's authority and nobody else.
fn tls_client(roots: &Path) -> Result<Arc<ClientConfig>> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(roots)? {
        store.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// CPU that was used by one moment.
#[derive(Debug, Clone, Copy)]
struct Used {
    proxy: f64,
    load: f64,
    origin: f64,
    machine: f64,
}

impl Used {
    fn now(proxy: Option<&Proxy>, origin: &Origin) -> Result<Self> {
        Ok(Self {
            proxy: proxy.map_or(Ok(0.0), |proxy| process::family_cpu_seconds(proxy.pid()))?,
            load: process::usage(std::process::id())?.cpu_seconds,
            origin: origin.cpu_seconds()?,
            machine: process::machine_cpu_seconds()?,
        })
    }
}
