//! One handshake, and what it has shown of a client.

use std::io;
use std::sync::Arc;

use pingora_core::protocols::Stream;
use ring::digest::{SHA256, digest};
use rustls::{AlertDescription, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{HTTP2, x509};

/// What TLS has established of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secured {
    /// The name that the client asked for (SNI), in lower case. None where it named an address.
    pub server_name: Option<Box<str>>,
    /// The client's certificate, of which chain and possession were verified.
    pub client: Option<PeerCertificate>,
}

/// A client's certificate, as the listener verified it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// SHA-256 of its DER.
    pub sha256: [u8; 32],
    /// Its subject alternative names, with their kind: `dns:runner.example.com`, `uri:spiffe://example.com/runner`.
    pub sans: Vec<Box<str>>,
}

impl PeerCertificate {
    fn of(der: &[u8]) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, der).as_ref());
        Self { sha256, sans: x509::names(der) }
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
pub(crate) async fn handshake(stream: Stream, server: Arc<ServerConfig>) -> Result<Handshaken, HandshakeFault> {
    let stream = TlsAcceptor::from(server).accept(stream).await.map_err(|error| {
        tracing::debug!(%error, "a handshake failed");
        HandshakeFault::of(&error)
    })?;
    let session = stream.get_ref().1;
    let secured = Secured {
        server_name: session.server_name().map(|name| name.to_ascii_lowercase().into()),
        client: session.peer_certificates().and_then(<[_]>::first).map(|own| PeerCertificate::of(own)),
    };
    let http2 = session.alpn_protocol() == Some(HTTP2);
    Ok(Handshaken { stream, secured, http2 })
}
