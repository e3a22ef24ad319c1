//! TLS towards clients: who we are, whom we believe, and what a handshake has shown.
//!
//! A certificate is exchanged while connections are open: [`Tls`] is what listens, [`TlsServer`] what it answers
//! handshakes with, and [`Tls::replace`] puts another one there. What is open stays open; a client's certificate is believed for
//! as long as those who vouched for it are.

mod handshake;
mod x509;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ring::digest::{Context, SHA256, digest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

pub use handshake::{HandshakeFault, PeerCertificate, Secured, Vouching};
pub(crate) use handshake::{Handshaken, handshake};
pub use x509::Validity;

/// `h2` of RFC 9113, §3.2.
pub(crate) const HTTP2: &[u8] = b"h2";
const HTTP11: &[u8] = b"http/1.1";

/// Sessions that can be resumed: of callers that come again within hours, and some 300 bytes each.
const SESSIONS_MAX: usize = 4096;

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VersionMin {
    #[default]
    Tls12,
    Tls13,
}

impl VersionMin {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
        match self {
            Self::Tls12 => &ALL,
            Self::Tls13 => &ALL[..1],
        }
    }
}

/// What a server is made of, as it is written: PEM.
#[derive(Clone, Copy)]
pub struct TlsParts<'p> {
    /// The chain, our own certificate first.
    pub certificate: &'p [u8],
    /// Its key: PKCS#8, PKCS#1 or SEC1.
    pub key: &'p [u8],
    /// Who vouches for clients. With none, no client is asked for a certificate; with some each is, and may have none.
    pub client_roots: Option<&'p [u8]>,
    pub version_min: VersionMin,
    /// Whether HTTP/2 is offered beside HTTP/1.1.
    pub http2: bool,
}

/// Neither key nor certificates are shown.
impl fmt::Debug for TlsParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsParts").field("version_min", &self.version_min).finish_non_exhaustive()
    }
}

/// Why no server can be made of its parts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsServerFault {
    #[error("is no PEM with certificates in it: {0}")]
    Certificate(String),
    #[error("is no PEM with a private key in it (PKCS#8, PKCS#1 or SEC1)")]
    Key,
    #[error("is a key that is not taken: {0}")]
    KeyKind(String),
    #[error("is not the key of the certificate")]
    Mismatch,
    #[error("is no PEM with certificates of authorities in it: {0}")]
    ClientRoots(String),
}

/// How handshakes are answered.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    validity: Option<Validity>,
    /// Of everything that it was made of.
    print: [u8; 32],
    /// Of those who vouch for clients.
    roots: Option<[u8; 32]>,
    vouching: Vouching,
    /// DNS names of our own certificate, each of one host.
    names: Arc<[Box<str>]>,
}

/// Nothing of the key is shown.
impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl TlsServer {
    /// TLS with ring, and with what rustls takes for safe.
    ///
    /// # Errors
    /// A part is not what it should be, or key and certificate do not belong together.
    pub fn new(parts: TlsParts<'_>) -> Result<Self, TlsServerFault> {
        let chain = certificates(parts.certificate).map_err(TlsServerFault::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(parts.key).map_err(|_| TlsServerFault::Key)?;
        let validity = chain.first().and_then(|own| Validity::of(own));
        let names = chain.first().map(|own| dns_names(own)).unwrap_or_default();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(parts.version_min.versions())
            .expect("ring has suites for both versions");
        let builder = match parts.client_roots {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(pem).map_err(TlsServerFault::ClientRoots)? {
                    roots.add(certificate).map_err(|fault| TlsServerFault::ClientRoots(fault.to_string()))?;
                }
                // Whoever has a grant needs no certificate: who is let in is not for the listener to say.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.allow_unauthenticated().build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|fault| TlsServerFault::ClientRoots(fault.to_string()))?,
                )
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|fault| of_identity(&fault))?;
        let offered: &[&[u8]] = if parts.http2 { &[HTTP2, HTTP11] } else { &[HTTP11] };
        config.alpn_protocols = offered.iter().map(|id| id.to_vec()).collect();
        config.session_storage = sessions(parts.client_roots.is_some());
        // A request in early data may be run twice.
        config.max_early_data_size = 0;
        Ok(Self {
            config: Arc::new(config),
            validity,
            print: print_of(&parts),
            roots: parts.client_roots.map(digest_of),
            vouching: Vouching::default(),
            names,
        })
    }

    /// From when to when our own certificate says that it is good; none where it does not say it readably.
    pub fn validity(&self) -> Option<Validity> {
        self.validity
    }
}

/// Of a certificate in DER. A wildcard is left out: it stands for hosts that are somebody else's, too.
fn dns_names(certificate: &[u8]) -> Arc<[Box<str>]> {
    let names = x509::names(certificate);
    names
        .iter()
        .filter_map(|name| name.strip_prefix("dns:"))
        .filter(|name| !name.contains('*'))
        .map(Into::into)
        .collect()
}

fn digest_of(part: &[u8]) -> [u8; 32] {
    let mut print = [0; 32];
    print.copy_from_slice(digest(&SHA256, part).as_ref());
    print
}

/// Equal for what makes equal servers.
fn print_of(parts: &TlsParts<'_>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in [Some(parts.certificate), Some(parts.key), parts.client_roots] {
        // Each has its length before it, so that no two are written alike.
        context.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        context.update(part.unwrap_or_default());
    }
    context.update(&[u8::from(parts.version_min == VersionMin::Tls13), u8::from(parts.http2)]);
    let mut print = [0; 32];
    print.copy_from_slice(context.finish().as_ref());
    print
}

/// A session that is resumed is one whose client was verified then. Its certificate may have ended since, or its
/// authority: with certificates every handshake is a whole one.
fn sessions(of_certificates: bool) -> Arc<dyn StoresServerSessions> {
    if of_certificates { Arc::new(NoServerSessionStorage {}) } else { ServerSessionMemoryCache::new(SESSIONS_MAX) }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "rustls's list is open")]
fn of_identity(fault: &rustls::Error) -> TlsServerFault {
    match fault {
        rustls::Error::InconsistentKeys(_) => TlsServerFault::Mismatch,
        rustls::Error::InvalidCertificate(why) => TlsServerFault::Certificate(why.to_string()),
        other => TlsServerFault::KeyKind(other.to_string()),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if chain.is_empty() => Err("there is none in it".to_owned()),
        Ok(chain) => Ok(chain),
        Err(fault) => Err(fault.to_string()),
    }
}

/// What holds for connections with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsBounds {
    /// For all of a handshake, from the connection's first moment.
    pub handshake_timeout: Duration,
    /// Streams of a connection of HTTP/2 that are open at a time. Each may hold 64 KiB that nobody takes.
    pub http2_streams_max: u32,
}

/// TLS of a listener: its server, which can be exchanged, and its bounds. A clone is the same one.
#[derive(Debug, Clone)]
pub struct Tls {
    server: Arc<ArcSwap<TlsServer>>,
    bounds: TlsBounds,
}

impl Tls {
    pub fn new(server: TlsServer, bounds: TlsBounds) -> Self {
        Self { server: Arc::new(ArcSwap::from_pointee(server)), bounds }
    }

    /// Handshakes that begin from now on are answered with this one. False where it is made of what the one before was:
    /// that one stays, and its sessions with it. Where others vouch for clients, the certificates of those who are
    /// connected count for nothing any more. Called by one thread at a time.
    pub fn replace(&self, mut server: TlsServer) -> bool {
        let before = self.server.load_full();
        if before.print == server.print {
            return false;
        }
        let same_roots = before.roots == server.roots;
        if same_roots {
            server.vouching = before.vouching.clone();
        }
        self.server.store(Arc::new(server));
        if !same_roots {
            before.vouching.end();
        }
        true
    }

    /// From when to when the certificate is good that clients are shown now; none where it does not say it readably.
    pub fn validity(&self) -> Option<Validity> {
        self.server.load().validity
    }

    pub(crate) fn server(&self) -> Arc<TlsServer> {
        self.server.load_full()
    }

    pub(crate) fn handshake_timeout(&self) -> Duration {
        self.bounds.handshake_timeout
    }

    pub(crate) fn streams_max(&self) -> u32 {
        self.bounds.http2_streams_max
    }
}

#[cfg(test)]
pub(crate) mod tests;
