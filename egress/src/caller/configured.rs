//! From what the configuration's files say to who may come.

use config::{CertificateBy, Egress, Tenant};

use super::callers::{CallerSettings, PlaintextGrants};
use super::certificate::{CertificateEntry, CertificateMatch};
use super::issuers::{IssuerEntry, IssuerTenants};
use super::key::{KeyFault, PublicKey};
use super::token::{TokenEntry, TokenHash};

/// A key of an issuer that is none. It is left out; the file that has it should not be put in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct IssuerFault {
    /// Dotted path in the appliance's file, such as `egress.issuer[0].keys[1]`.
    pub key: String,
    /// Line in that file.
    pub line: u32,
    /// What is wrong.
    pub fault: KeyFault,
}

impl CallerSettings {
    /// What the appliance's file and the tenants' say, and every key of an issuer that is none.
    pub fn of<'t>(egress: &Egress, tenants: impl IntoIterator<Item = &'t Tenant>) -> (Self, Vec<IssuerFault>) {
        let mut faults = Vec::new();
        let issuers = egress.issuer.iter().enumerate().map(|(at, issuer)| {
            let keys = issuer.keys.iter().enumerate().filter_map(|(key_at, key)| {
                let named = || format!("egress.issuer[{at}].keys[{key_at}]");
                let read = PublicKey::parse(key.value.text.as_bytes());
                read.map_err(|fault| faults.push(IssuerFault { key: named(), line: key.line, fault })).ok()
            });
            let keys = keys.collect();
            let tenants = match &issuer.tenants {
                config::IssuerTenants::Every => IssuerTenants::Every,
                config::IssuerTenants::Only(tenants) => IssuerTenants::These(tenants.iter().cloned().collect()),
            };
            IssuerEntry { name: issuer.name.value.as_str().into(), keys, tenants }
        });
        let issuers = issuers.collect();
        let mut certificates = Vec::new();
        let tokens = tenants.into_iter().flat_map(|tenant| {
            certificates.extend(certificates_of(tenant));
            let tokens = tenant.egress().map(|egress| &egress.tokens[..]).unwrap_or_default();
            tokens.iter().map(|token| TokenEntry {
                tenant: tenant.id.clone(),
                name: token.name.clone(),
                hash: TokenHash::from(token.hash),
                role: token.role.clone(),
                until_unix_ms: token.not_after_unix_ms.map(|last_ms| last_ms.saturating_add(1)),
            })
        });
        let tokens = tokens.collect();
        let settings = Self {
            audience: egress.audience.as_str().into(),
            plaintext: match egress.plaintext_grants {
                config::PlaintextGrants::Loopback => PlaintextGrants::Loopback,
                config::PlaintextGrants::Never => PlaintextGrants::Never,
            },
            issuers,
            tokens,
            certificates,
        };
        (settings, faults)
    }
}

fn certificates_of(tenant: &Tenant) -> impl Iterator<Item = CertificateEntry> + '_ {
    let certificates = tenant.egress().map(|egress| &egress.certificates[..]).unwrap_or_default();
    certificates.iter().map(|certificate| CertificateEntry {
        tenant: tenant.id.clone(),
        name: certificate.name.clone(),
        by: match &certificate.by {
            CertificateBy::Sha256(print) => CertificateMatch::Sha256(*print),
            CertificateBy::San(name) => CertificateMatch::San(name.clone()),
        },
        role: certificate.role.clone(),
    })
}

#[cfg(test)]
mod tests {
    use domain::TenantId;

    use super::super::testing::KEY;
    use super::*;

    #[test]
    fn both_kinds_of_file_are_read() {
        let public = KEY.public();
        let appliance = format!(
            "[egress]\naudience = \"fleet\"\nplaintext_grants = \"never\"\n\
             [[egress.issuer]]\nname = \"platform\"\nkeys = [\"{public}\"]\ntenants = [\"acme\"]\n\
             [[egress.issuer]]\nname = \"other\"\nkeys = [\"{public}\", \"ed25519:AAAA\"]\ntenants = [\"*\"]\n"
        );
        let (appliance, faults) = config::parse_appliance("tidegate.toml".as_ref(), appliance.as_bytes());
        assert!(!config::has_errors(&faults), "{faults:?}");
        let appliance = appliance.unwrap();
        let acme = "tenant = \"acme\"\n[egress]\n[[egress.role]]\nname = \"build\"\n\
             [[egress.token]]\nname = \"ci\"\nrole = \"build\"\nnot_after = 2026-01-01T00:00:00Z\n\
             hash = \"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n\
             [[egress.certificate]]\nname = \"runner\"\nrole = \"build\"\nsan = \"uri:spiffe://example.com/runner\"\n\
             [[egress.certificate]]\nname = \"pinned\"\n\
             sha256 = \"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n";
        let (acme, faults) = config::parse_tenant(acme.as_bytes());
        assert!(!config::has_errors(&faults), "{faults:?}");
        let (settings, faults) = CallerSettings::of(&appliance.egress, [&acme.unwrap()]);
        assert_eq!(
            faults,
            [IssuerFault { key: "egress.issuer[1].keys[1]".into(), line: 10, fault: KeyFault::Algorithm }]
        );
        assert_eq!((&*settings.audience, settings.plaintext), ("fleet", PlaintextGrants::Never));
        let acme = TenantId::parse("acme").unwrap();
        let issuer = |name: &str, tenants| IssuerEntry { name: name.into(), keys: vec![public], tenants };
        let only_acme = IssuerTenants::These([acme.clone()].into());
        assert_eq!(settings.issuers, [issuer("platform", only_acme), issuer("other", IssuerTenants::Every)]);
        let expected = TokenEntry {
            tenant: acme.clone(),
            name: "ci".into(),
            hash: TokenHash::of(b"abc"),
            role: Some("build".into()),
            until_unix_ms: Some(1_767_225_600_001),
        };
        assert_eq!(settings.tokens, [expected]);
        let entry = |name: &str, by, role: Option<&str>| CertificateEntry {
            tenant: acme.clone(),
            name: name.into(),
            by,
            role: role.map(Into::into),
        };
        let digest = *TokenHash::of(b"abc").as_bytes();
        let expected = [
            entry("runner", CertificateMatch::San("uri:spiffe://example.com/runner".into()), Some("build")),
            entry("pinned", CertificateMatch::Sha256(digest), None),
        ];
        assert_eq!(settings.certificates, expected);
    }
}
