//! TLS towards a destination: whom to trust, who we are, what to speak.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::Host;
use crate::proxy_status::ErrorType;

/// Certificates that a chain may end at.
#[derive(Debug, Clone)]
pub struct Roots(Arc<RootCertStore>);

/// A certificate of our own, for peers that ask for one.
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Why there are no roots, or no identity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsSettingsFault {
    #[error("the system has no certificates to trust: {0}")]
    NoSystemRoots(String),
    #[error("it is no PEM with certificates in it: {0}")]
    Certificates(String),
    #[error("it is no PEM with a private key in it")]
    Key,
    #[error("certificate and key do not make an identity: {0}")]
    Identity(String),
}

impl Roots {
    /// What the machine trusts: the operator's package manager keeps it, not our releases. It is read once, here; a
    /// single file that cannot be read is passed over, none at all is a fault. `SSL_CERT_FILE` and `SSL_CERT_DIR` say
    /// where, as they do for every program on the machine.
    pub fn of_the_system() -> Result<Self, TlsSettingsFault> {
        let found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        let (added, _ignored) = store.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
            return Err(TlsSettingsFault::NoSystemRoots(why));
        }
        Ok(Self(Arc::new(store)))
    }

    /// The same, for who verifies by itself.
    pub fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }

    /// These and no others: a private authority of the operator's, for one connection. Every one has to be good.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsSettingsFault> {
        let mut store = RootCertStore::empty();
        for certificate in certificates(pem)? {
            store.add(certificate).map_err(|fault| TlsSettingsFault::Certificates(fault.to_string()))?;
        }
        Ok(Self(Arc::new(store)))
    }
}

impl ClientIdentity {
    /// The chain, our own certificate first, and its key (PKCS#8, PKCS#1 or SEC1).
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsSettingsFault> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsSettingsFault::Key)?;
        Ok(Self { chain: certificates(chain)?, key })
    }
}

/// The key is not shown.
impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsSettingsFault> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(TlsSettingsFault::Certificates("there is none in it".to_owned())),
        Ok(chain) => Ok(chain),
        Err(fault) => Err(TlsSettingsFault::Certificates(fault.to_string())),
    }
}

/// What is spoken inside of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    Http2,
    Http11,
}

impl Alpn {
    fn id(self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            Self::Http11 => b"http/1.1",
        }
    }

    /// Rustls refuses what was not offered, so anything else is nothing.
    pub(super) fn agreed(id: Option<&[u8]>) -> Option<Self> {
        [Self::Http2, Self::Http11].into_iter().find(|alpn| id == Some(alpn.id()))
    }
}

/// One way of speaking TLS: roots, identity, protocols. A clone is the same one. Two are equal if they are the same one
/// and offer the same: connections are pooled by it, and trust that merely looks alike is not shared.
///
/// No session is resumed. One is used by all tenants and from all exit addresses, and a ticket would tell a destination
/// that two of them are one platform, and would let the one go by a certificate that was shown to the other. Connections
/// are pooled by tenant and exit, so that handshakes are few as it is.
#[derive(Debug, Clone)]
pub struct TlsClient {
    made: Arc<Made>,
    offers_http2: bool,
}

#[derive(Debug)]
struct Made {
    as_asked: Arc<ClientConfig>,
    /// The same in everything but what it offers.
    without_http2: Arc<ClientConfig>,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.made, &other.made) && self.offers_http2 == other.offers_http2
    }
}

impl Eq for TlsClient {}

impl Hash for TlsClient {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.made).hash(state);
        self.offers_http2.hash(state);
    }
}

impl TlsClient {
    /// TLS 1.2 and 1.3 with ring. `alpn` in the order of preference; empty for peers that stumble over it.
    pub fn new(roots: &Roots, identity: Option<ClientIdentity>, alpn: &[Alpn]) -> Result<Self, TlsSettingsFault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has suites for both versions")
            .with_root_certificates(Arc::clone(&roots.0));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(ClientIdentity { chain, key }) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|fault| TlsSettingsFault::Identity(fault.to_string()))?,
        };
        let ids = |of: &[Alpn]| of.iter().map(|alpn| alpn.id().to_vec()).collect();
        config.alpn_protocols = ids(alpn);
        // A request in early data may run twice, and would have been sent before the peer is verified for this one.
        config.enable_early_data = false;
        config.resumption = Resumption::disabled();
        let mut without = config.clone();
        let others: Vec<Alpn> = alpn.iter().copied().filter(|alpn| *alpn != Alpn::Http2).collect();
        without.alpn_protocols = ids(&others);
        let made = Made { as_asked: Arc::new(config), without_http2: Arc::new(without) };
        Ok(Self { made: Arc::new(made), offers_http2: alpn.contains(&Alpn::Http2) })
    }

    /// The same without HTTP/2 among what it offers: for what only HTTP/1.1 can do.
    #[must_use]
    pub fn without_http2(&self) -> Self {
        Self { made: Arc::clone(&self.made), offers_http2: false }
    }

    /// Whether the peer may choose HTTP/2.
    pub fn offers_http2(&self) -> bool {
        self.offers_http2
    }

    /// A handshake on this stream, verified against the host: a name by its DNS names, an address by its IP addresses.
    pub(crate) async fn connect<S>(&self, host: &Host, stream: S) -> Result<TlsStream<S>, TlsFault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned()).map_err(|_| TlsFault::Name)?,
            Host::Address(address) => ServerName::from(*address),
        };
        let config = if self.offers_http2 { &self.made.as_asked } else { &self.made.without_http2 };
        TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(|fault| TlsFault::of(&fault))
    }
}

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsFault {
    #[error("the handshake took too long")]
    Timeout,
    #[error("the certificate is not good for this destination: {0}")]
    Certificate(String),
    #[error("the peer sent the alert {0}")]
    Alert(String),
    #[error("the peer does not speak TLS as it should: {0}")]
    Protocol(String),
    #[error("the peer hung up")]
    Terminated,
    #[error("the name cannot be in a certificate")]
    Name,
}

impl TlsFault {
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls's list is open; what is left is about the messages")]
    fn of(fault: &io::Error) -> Self {
        let Some(tls) = fault.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
            // Without a reason of TLS the connection itself ended.
            return Self::Terminated;
        };
        match tls {
            rustls::Error::InvalidCertificate(why) => Self::Certificate(why.to_string()),
            rustls::Error::NoCertificatesPresented => Self::Certificate("none was shown".to_owned()),
            rustls::Error::AlertReceived(alert) => Self::Alert(format!("{alert:?}")),
            other => Self::Protocol(other.to_string()),
        }
    }

    /// How `Proxy-Status` names it.
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::Timeout => ErrorType::ConnectionReadTimeout,
            Self::Certificate(_) | Self::Name => ErrorType::TlsCertificateError,
            Self::Alert(_) => ErrorType::TlsAlertReceived,
            Self::Protocol(_) => ErrorType::TlsProtocolError,
            Self::Terminated => ErrorType::ConnectionTerminated,
        }
    }

    /// A stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Timeout => "tls-timeout",
            Self::Certificate(_) => "tls-certificate",
            Self::Alert(_) => "tls-alert",
            Self::Protocol(_) => "tls-protocol",
            Self::Terminated => "tls-terminated",
            Self::Name => "tls-name",
        }
    }
}
