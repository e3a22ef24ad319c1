//! TLS for the rig: an authority, its listener, and its clients.

use std::sync::Arc;
use std::time::Duration;

use listen::{Tls, TlsBounds, TlsParts, TlsServer, VersionMin};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The name by which the listener is reached.
pub(crate) const EDGE: &str = "localhost";

/// An authority that vouches for both sides.
pub(crate) struct Pki(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Identity {
    pub(crate) fn sha256(&self) -> Vec<u8> {
        digest(&SHA256, self.certificate.der()).as_ref().to_vec()
    }
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of a test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn client(&self, uri: &str) -> Identity {
        self.signed(SanType::URI(uri.try_into().unwrap()), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn signed(&self, name: SanType, purpose: ExtendedKeyUsagePurpose) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![purpose];
        Identity { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }

    /// What the rig listens with.
    pub(crate) fn listener(&self) -> Tls {
        let own = self.signed(SanType::DnsName(EDGE.try_into().unwrap()), ExtendedKeyUsagePurpose::ServerAuth);
        let (certificate, key, roots) = (own.certificate.pem(), own.key.serialize_pem(), self.pem());
        let server = TlsServer::new(TlsParts {
            certificate: certificate.as_bytes(),
            key: key.as_bytes(),
            client_roots: Some(roots.as_bytes()),
            version_min: VersionMin::Tls12,
            http2: true,
        });
        let bounds = TlsBounds { handshake_timeout: Duration::from_secs(10), http2_streams_max: 100 };
        Tls::new(server.unwrap(), bounds)
    }

    /// What a client speaks with.
    pub(crate) fn client_config(&self, identity: Option<&Identity>, alpn: &[u8]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(config)
    }
}
