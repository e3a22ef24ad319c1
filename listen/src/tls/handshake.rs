//! One handshake, and what it has shown of a client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pingora_core::protocols::Stream;
use ring::digest::{SHA256, digest};
use rustls::AlertDescription;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{HTTP2, TlsServer, Validity, x509};

/// What TLS has established of a connection.
#[derive(Debug, Clone)]
pub struct Secured {
    /// The name that the client asked for (SNI), in lower case. None where it named an address.
    pub server_name: Option<Box<str>>,
    /// The client's certificate, of which chain and possession were verified.
    pub client: Option<PeerCertificate>,
    /// The DNS names of the certificate that the client was shown, without those with a wildcard.
    pub(crate) own_names: Arc<[Box<str>]>,
    /// Whether nobody is believed any more who speaks over the connection.
    pub(crate) distrusted: Arc<AtomicBool>,
}

/// A client's certificate, as the listener verified it when the connection began.
#[derive(Debug, Clone)]
pub struct PeerCertificate {
    /// SHA-256 of its DER.
    pub sha256: [u8; 32],
    /// Its subject alternative names, with their kind: `dns:runner.example.com`, `uri:spiffe://example.com/runner`.
    pub sans: Vec<Box<str>>,
    /// When it has ended, in Unix milliseconds: the first moment at which it is not good any more.
    pub until_unix_ms: u64,
    /// Whether those who vouched for it are still believed.
    pub vouching: Vouching,
}

impl PeerCertificate {
    pub(super) fn of(der: &[u8], vouching: Vouching) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, der).as_ref());
        // Its last second is within. One that does not say its end readably is over.
        let ends = Validity::of(der).map_or(0, |validity| validity.not_after_unix_s.saturating_add(1));
        let until_unix_ms = u64::try_from(ends).unwrap_or(0).saturating_mul(1_000);
        Self { sha256, sans: x509::names(der), until_unix_ms, vouching }
    }

    /// Would it be taken now, as it was when the connection began? A connection may be open for longer than that holds.
    pub fn is_good(&self, now_unix_ms: u64) -> bool {
        self.vouching.holds() && now_unix_ms < self.until_unix_ms
    }
}

/// Whether the authorities that vouched for clients are those that the listener believes now. A clone is the same one.
#[derive(Debug, Clone)]
pub struct Vouching(Arc<AtomicBool>);

impl Default for Vouching {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Vouching {
    pub fn holds(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Others are believed from now on.
    pub fn end(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandshakeFault {
    /// It took too long.
    Timeout,
    /// What came is no TLS: a plain request, most of the time.
    NotTls,
    /// Client and server have no version, cipher suite or protocol in common.
    NothingInCommon,
    /// The client's certificate is not good.
    ClientCertificate,
    /// The client does not take our certificate.
    ServerCertificate,
    /// The client hung up.
    Gone,
    /// Anything else that breaks the protocol.
    Protocol,
}

impl HandshakeFault {
    pub const ALL: &'static [Self] = &[
        Self::Timeout,
        Self::NotTls,
        Self::NothingInCommon,
        Self::ClientCertificate,
        Self::ServerCertificate,
        Self::Gone,
        Self::Protocol,
    ];

    /// For metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::NotTls => "not-tls",
            Self::NothingInCommon => "nothing-in-common",
            Self::ClientCertificate => "client-certificate",
            Self::ServerCertificate => "server-certificate",
            Self::Gone => "gone",
            Self::Protocol => "protocol",
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls's lists are open; what is left breaks the protocol")]
    fn of(error: &io::Error) -> Self {
        use rustls::{Error, InvalidMessage};
        // Without a reason of TLS the connection itself ended.
        let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else { return Self::Gone };
        match tls {
            Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
                Self::NotTls
            }
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::NothingInCommon,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Self::ClientCertificate,
            Error::AlertReceived(alert) => match alert {
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                // Of a signature, its own or one of the chain.
                | AlertDescription::DecryptError
                | AlertDescription::UnknownCA => Self::ServerCertificate,
                AlertDescription::ProtocolVersion
                | AlertDescription::HandshakeFailure
                | AlertDescription::InsufficientSecurity => Self::NothingInCommon,
                AlertDescription::CloseNotify | AlertDescription::UserCanceled => Self::Gone,
                _ => Self::Protocol,
            },
            _ => Self::Protocol,
        }
    }
}

/// A connection with TLS.
pub(crate) struct Handshaken {
    pub(crate) stream: TlsStream<Stream>,
    pub(crate) secured: Secured,
    /// HTTP/2 was agreed on.
    pub(crate) http2: bool,
}

/// Answers the handshake that is about to come. Its deadline is the caller's matter.
pub(crate) async fn handshake(stream: Stream, server: &TlsServer) -> Result<Handshaken, HandshakeFault> {
    let stream = TlsAcceptor::from(Arc::clone(&server.config)).accept(stream).await.map_err(|error| {
        tracing::debug!(%error, "a handshake failed");
        HandshakeFault::of(&error)
    })?;
    let session = stream.get_ref().1;
    let secured = Secured {
        own_names: Arc::clone(&server.names),
        server_name: session.server_name().map(|name| name.to_ascii_lowercase().into()),
        client: session
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(|own| PeerCertificate::of(own, server.vouching.clone())),
        distrusted: Arc::default(),
    };
    let http2 = session.alpn_protocol() == Some(HTTP2);
    Ok(Handshaken { stream, secured, http2 })
}
