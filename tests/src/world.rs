//! The outside, on one host: a DNS server that answers as it is told, and a provider at every address there is, in the
//! clear and with TLS, which notes who came.

mod dns;
mod provider;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::network::Network;

pub use dns::{Data, Record, Zone, address, alias};
pub use provider::{Page, Seen};

/// Where the DNS server is.
pub const DNS: &str = "93.184.216.53";
/// What a name resolves to of which nothing was said.
pub const PROVIDER: &str = "93.184.216.34";

/// Runs until it is dropped.
#[derive(Debug)]
pub struct World {
    state: Arc<State>,
    /// The authority of the provider's certificate, in PEM.
    pub authority: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    zones: Mutex<HashMap<String, Zone>>,
    /// How many answers were given, by name and type.
    given: Mutex<HashMap<(String, u16), usize>>,
    pages: Mutex<HashMap<String, Page>>,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicU64,
}

impl World {
    /// On this host, whose certificate is for these names.
    pub fn start(network: &Network, host: &str, names: &[&str]) -> Self {
        let (acceptor, authority) = certificate(names);
        let state = Arc::new(State::default());
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = Arc::clone(&state);
        let thread = network.within(host, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                dns::serve(SocketAddr::new(DNS.parse().expect("an address"), 53), &serving).await;
                provider::serve(&acceptor, &serving).await;
                ready.send(()).expect("somebody waits");
                // Ends with the world.
                let _ = stopped.await;
            });
        });
        is_ready.recv_timeout(crate::patience::PATIENCE).expect("the outside comes up");
        Self { state, authority, stop: Some(stop), thread: Some(thread) }
    }

    /// What a name resolves to from now on.
    pub fn name(&self, name: &str, zone: Zone) {
        lock(&self.state.given).retain(|(given, _), _| given != name);
        lock(&self.state.zones).insert(name.to_owned(), zone);
    }

    /// What the provider answers on this path from now on.
    pub fn page(&self, path: &str, page: Page) {
        lock(&self.state.pages).insert(path.to_owned(), page);
    }

    /// Every page is as it was at the start.
    pub fn forget_pages(&self) {
        lock(&self.state.pages).clear();
    }

    /// Who came since this was asked last.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *lock(&self.state.seen))
    }

    /// How often a name was resolved, in either family the more often.
    pub fn lookups(&self, name: &str) -> usize {
        let given = lock(&self.state.given);
        given.iter().filter(|((given, _), _)| given == name).map(|(_, count)| *count).max().unwrap_or_default()
    }

    /// A file that has the authority, for `SSL_CERT_FILE`.
    pub fn write_authority(&self, path: &Path) {
        std::fs::write(path, &self.authority).expect("a file");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has said why, if it ended badly.
            let _ = thread.join();
        }
    }
}

impl State {
    fn connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) fn certificate(names: &[&str]) -> (TlsAcceptor, String) {
    let mut issuer = CertificateParams::new(Vec::new()).expect("parameters");
    issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(issuer, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names).expect("names").signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    let server = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a server");
    (TlsAcceptor::from(Arc::new(server)), issuer.pem())
}

/// IPv4-mapped addresses are IPv4 addresses.
fn plain(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
