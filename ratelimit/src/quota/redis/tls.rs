//! TLS towards Redis: the project's own stack and provider, given explicitly.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Why there is no TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    #[error("it is no PEM with certificates in it")]
    Certificates,
    #[error("it is no PEM with a private key in it")]
    Key,
    #[error("certificate and key do not make an identity")]
    Identity,
}

/// Trust in these authorities (PEM) and no others, and our own certificate and key (PEM) for servers that ask for one.
pub fn client_config(authorities: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Arc<ClientConfig>, TlsFault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(|_| TlsFault::Certificates)?;
    }
    client_config_of(Arc::new(roots), identity)
}

/// The same with authorities that somebody has already, such as the system's.
pub fn client_config_of(
    roots: Arc<RootCertStore>,
    identity: Option<(&[u8], &[u8])>,
) -> Result<Arc<ClientConfig>, TlsFault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| TlsFault::Identity)?
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsFault::Key)?;
            builder.with_client_auth_cert(certificates(chain)?, key).map_err(|_| TlsFault::Identity)?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsFault::Certificates)
}
