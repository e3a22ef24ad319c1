//! Callers that prove themselves by a client certificate.
//!
//! The listener does TLS, checks the chain and possession of the key, and hands over what is here; which tenant and
//! role that is, is a look-up. By fingerprint where one is configured, else by the names in the certificate: those are
//! worth what the authority is worth that the listener trusts for clients.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use domain::TenantId;

pub use listen::PeerCertificate;

/// By what a certificate is recognised.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum CertificateMatch {
    /// SHA-256 of its DER.
    Sha256([u8; 32]),
    /// One of its names, with the kind, byte for byte.
    San(Box<str>),
}

impl fmt::Debug for CertificateMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(print) => write!(f, "sha256:{}", data_encoding::HEXLOWER.encode(print)),
            Self::San(name) => f.write_str(name),
        }
    }
}

/// A certificate that somebody may come with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateEntry {
    /// Whose it is.
    pub tenant: TenantId,
    /// What records call it.
    pub name: Box<str>,
    /// How it is recognised.
    pub by: CertificateMatch,
    /// Which of the tenant's roles its holder has.
    pub role: Option<Box<str>>,
}

/// All of them. A match that two entries claim is nobody's.
#[derive(Debug, Default)]
pub(super) struct Certificates(HashMap<CertificateMatch, Option<Arc<CertificateEntry>>>);

/// Why a certificate is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOne {
    /// No entry has it.
    None,
    /// Its names belong to different callers.
    Several,
}

impl Certificates {
    /// The table, and what more than one entry claims.
    pub(super) fn new(entries: Vec<CertificateEntry>) -> (Self, Vec<CertificateMatch>) {
        let mut table: HashMap<CertificateMatch, Option<Arc<CertificateEntry>>> = HashMap::with_capacity(entries.len());
        let mut claimed = Vec::new();
        for entry in entries {
            let by = entry.by.clone();
            if let Some(known) = table.get_mut(&by) {
                *known = None;
                claimed.push(by);
            } else {
                table.insert(by, Some(Arc::new(entry)));
            }
        }
        (Self(table), claimed)
    }

    /// Whose certificate is this? A fingerprint says more than names do, and decides alone.
    pub(super) fn find(&self, certificate: &PeerCertificate) -> Result<&Arc<CertificateEntry>, NotOne> {
        if let Some(entry) = self.0.get(&CertificateMatch::Sha256(certificate.sha256)) {
            return entry.as_ref().ok_or(NotOne::Several);
        }
        let mut found: Option<&Arc<CertificateEntry>> = None;
        for name in &certificate.sans {
            let Some(entry) = self.0.get(&CertificateMatch::San(name.clone())) else { continue };
            let entry = entry.as_ref().ok_or(NotOne::Several)?;
            if found.is_some_and(|known| known.tenant != entry.tenant || known.role != entry.role) {
                return Err(NotOne::Several);
            }
            found = found.or(Some(entry));
        }
        found.ok_or(NotOne::None)
    }

    /// Is this still what the configuration says?
    pub(super) fn has(&self, entry: &CertificateEntry) -> bool {
        self.0.get(&entry.by).and_then(Option::as_deref) == Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::certificate_of;
    use super::*;

    fn entry(tenant: &str, name: &str, by: CertificateMatch, role: Option<&str>) -> CertificateEntry {
        CertificateEntry { tenant: TenantId::parse(tenant).unwrap(), name: name.into(), by, role: role.map(Into::into) }
    }

    fn san(name: &str) -> CertificateMatch {
        CertificateMatch::San(name.into())
    }

    fn peer(first: u8, sans: &[&str]) -> PeerCertificate {
        certificate_of(first, sans)
    }

    #[test]
    fn a_certificate_is_one_caller_s_or_nobody_s() {
        let (table, claimed) = Certificates::new(vec![
            entry("acme", "pinned", CertificateMatch::Sha256([1; 32]), Some("build")),
            entry("acme", "a", san("dns:a.example"), None),
            entry("acme", "a2", san("dns:a2.example"), None),
            entry("acme", "builder", san("dns:b.example"), Some("build")),
            entry("beta", "c", san("uri:spiffe://example/c"), None),
            entry("acme", "both", san("dns:both.example"), None),
            entry("beta", "both", san("dns:both.example"), None),
        ]);
        assert_eq!(claimed, [san("dns:both.example")]);
        let find =
            |first, sans: &[&str]| table.find(&peer(first, sans)).map(|entry| (entry.tenant.as_str(), &*entry.name));
        assert_eq!(find(1, &[]), Ok(("acme", "pinned")));
        assert_eq!(find(1, &["uri:spiffe://example/c"]), Ok(("acme", "pinned")));
        assert_eq!(find(2, &["dns:unknown.example", "dns:a.example"]), Ok(("acme", "a")));
        assert_eq!(find(2, &["uri:spiffe://example/c"]), Ok(("beta", "c")));
        // Names of the same caller agree; of different callers, or of different roles, they do not.
        assert_eq!(find(2, &["dns:a.example", "dns:a2.example"]), Ok(("acme", "a")));
        assert_eq!(find(2, &["dns:a.example", "dns:b.example"]), Err(NotOne::Several));
        assert_eq!(find(2, &["dns:a.example", "uri:spiffe://example/c"]), Err(NotOne::Several));
        assert_eq!(find(2, &["dns:a.example", "dns:both.example"]), Err(NotOne::Several));
        // Another kind of name is another name, and letters are not folded: the listener hands over what it saw.
        assert_eq!(find(2, &["uri:a.example", "dns:A.example", "a.example"]), Err(NotOne::None));
        assert_eq!(find(2, &[]), Err(NotOne::None));
    }
}
