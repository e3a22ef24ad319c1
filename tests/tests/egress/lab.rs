//! ```text
//!            93.184.216.10, .11, 2606:2800:220:1::10, ::11      every other address there is
//! 127.0.0.1:3128  edge ───────────────────────────────────────── world   DNS, providers
//!                  └───── 10.9.0.1, fd00:9::1 ────────────────── inside  whatever must not be called
//! ```
//!
//! The caller is on the edge, as its sidecar is: proofs travel in the clear over loopback only. Every internal address
//! leads to the inside, which takes every connection and counts every packet. Ports of the edge's own are trapped, too.

use std::future::Future;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tempfile::TempDir;
use tidegate_tests::call::{Call, Said, token};
use tidegate_tests::network::Network;
use tidegate_tests::patience::PATIENCE;
use tidegate_tests::world::{DNS, World};
use tidegate_tests::{Appliance, Tenant, tenant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub const EXITS: [[&str; 2]; 2] = [["93.184.216.10", "2606:2800:220:1::10"], ["93.184.216.11", "2606:2800:220:1::11"]];
/// Somebody inside, in both families.
pub const INTERNAL: [&str; 2] = ["10.9.0.2", "fd00:9::2"];
pub const METADATA: &str = "169.254.169.254";

/// What leads inside: networks that the table of addresses closes.
const INSIDE: [&str; 22] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "168.63.129.16/32",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fec0::/10",
    "::/96",
];
/// Within these and public all the same.
const OUTSIDE: [&str; 2] = ["192.0.0.9/32", "192.0.0.10/32"];

/// Ports that somebody who must not be called listens on.
const TRAPPED: [u16; 6] = [22, 80, 443, 6379, 8080, 8443];

const NAMES: [&str; 5] = ["*.example.com", "example.com", "*.attacker.test", "api.provider.example", "*.example.net"];

pub struct Lab {
    pub world: World,
    inside: Trap,
    edge: Trap,
    pub network: Network,
    directory: TempDir,
}

/// Listeners that nobody may reach.
struct Trap {
    caught: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Trap {
    fn set(network: &Network, host: &str) -> Self {
        let caught = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let counts = Arc::clone(&caught);
        let thread = network.within(host, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                for port in TRAPPED {
                    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await.expect("a port");
                    let counts = Arc::clone(&counts);
                    tokio::spawn(async move {
                        while let Ok((mut stream, _)) = listener.accept().await {
                            counts.fetch_add(1, Ordering::SeqCst);
                            // Somebody who was caught need not speak, and need not listen.
                            let _ = stream.read(&mut [0; 2048]).await;
                            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ninside").await;
                        }
                    });
                }
                ready.send(()).expect("somebody waits");
                let _ = stopped.await;
            });
        });
        is_ready.recv_timeout(PATIENCE).expect("the trap is set");
        Self { caught, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Lab {
    /// None, and a line that says so, where this machine does not let us.
    fn up() -> Option<Self> {
        let network = Network::new(&["edge", "world", "inside"], &[])?;
        network.join(("edge", "out0"), ("world", "in0"));
        network.join(("edge", "lan0"), ("inside", "in0"));
        for address in EXITS.as_flattened() {
            let (bits, nodad) = if address.contains(':') { (128, " nodad") } else { (32, "") };
            network.ip(&format!("-n @edge addr add {address}/{bits} dev out0{nodad}"));
        }
        network.ip("-n @edge addr add 10.9.0.1/32 dev lan0");
        network.ip("-n @edge addr add fd00:9::1/128 dev lan0 nodad");
        network.ip("-n @edge route add default dev out0 src 93.184.216.10");
        network.ip("-n @edge -6 route add default dev out0 src 2606:2800:220:1::10");
        for net in INSIDE {
            let (family, from) = if net.contains(':') { ("-6", "fd00:9::1") } else { ("-4", "10.9.0.1") };
            network.ip(&format!("-n @edge {family} route add {net} dev lan0 src {from}"));
        }
        for net in OUTSIDE {
            network.ip(&format!("-n @edge route add {net} dev out0"));
        }
        let exits = ["93.184.216.10/31", "2606:2800:220:1::10/127"];
        network.is_everybody("world", "in0", &exits);
        // What an opening lets in leaves from an exit, too.
        network.is_everybody("inside", "in0", &[&exits[..], &["10.9.0.1/32", "fd00:9::1/128"]].concat());
        let world = World::start(&network, "world", &NAMES);
        let (inside, edge) = (Trap::set(&network, "inside"), Trap::set(&network, "edge"));
        let directory = tempfile::tempdir().expect("a directory");
        world.write_authority(&directory.path().join("authority.pem"));
        Some(Self { world, inside, edge, network, directory })
    }

    /// An appliance on the edge. Its pools are `default` and `two`, an exit each.
    pub fn appliance(&self) -> Appliance {
        let pool = |name: &str, [v4, v6]: [&str; 2]| {
            format!("\n[[egress.pool]]\nname = \"{name}\"\naddresses = [{{ v4 = \"{v4}\", v6 = \"{v6}\" }}]\n")
        };
        Appliance::new()
            .set("egress", "listen", "[\"127.0.0.1:3128\"]")
            .set("egress.dns", "servers", &format!("[\"{DNS}\"]"))
            // What a name resolves to is asked for at every call.
            .set("egress.dns", "ttl_min", "\"0s\"")
            .extra(&pool("default", EXITS[0]))
            .extra(&pool("two", EXITS[1]))
            .environment("SSL_CERT_FILE", self.authority().to_str().expect("UTF-8"))
    }

    fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Packets that reached the inside, and connections that were made to it or to a port of the edge's own.
    pub fn caught(&self) -> (u64, u64) {
        let made = self.inside.caught.load(Ordering::SeqCst) + self.edge.caught.load(Ordering::SeqCst);
        (self.network.packets_into("inside", "in0"), made)
    }

    /// Asks on a connection of its own.
    pub async fn ask(&self, bytes: &[u8]) -> Option<Said> {
        self.call().await.ask(bytes).await
    }

    pub async fn call(&self) -> Call {
        Call::open(SocketAddr::from(([127, 0, 0, 1], 3128))).await
    }

    /// TLS through a tunnel, as a client that believes this server name to be there.
    pub async fn tls(&self, call: Call, name: &str) -> std::io::Result<tokio_rustls::client::TlsStream<Call>> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.world.authority.as_bytes()).expect("a certificate");
        roots.add(authority).expect("a certificate");
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = name.to_owned().try_into().expect("a server name");
        tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, call).await
    }
}

/// A tenant that may call everything that is public, with a token of its own name.
pub fn open_tenant(id: &str) -> Tenant {
    with_token(tenant(id).set("egress", "mode", "\"open\""), id, "")
}

/// A token of this name; `keys` are lines of its table.
pub fn with_token(tenant: Tenant, name: &str, keys: &str) -> Tenant {
    let (_, hash) = token(name);
    tenant.extra(&format!("\n[[egress.token]]\nname = \"{name}\"\nhash = \"{hash}\"\n{keys}\n"))
}

/// A connection without a credential.
pub fn connection(id: &str, base_url: &str) -> String {
    format!("\n[[connection]]\nid = \"{id}\"\nconnector = \"http\"\nbase_url = \"{base_url}\"\n")
}

/// Runs a story on the edge, where there are networks.
pub fn on_the_edge<F: Future<Output = ()>>(story: impl FnOnce(Arc<Lab>) -> F + Send + 'static) {
    let Some(lab) = Lab::up() else { return };
    let lab = Arc::new(lab);
    let told = Arc::clone(&lab);
    let ended = lab.network.within("edge", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(story(told));
    });
    if let Err(panicked) = ended.join() {
        std::panic::resume_unwind(panicked);
    }
}
