//! `[[egress.issuer]]`: who vouches for callers, and for whose.

use std::collections::BTreeSet;
use std::path::Path;

use domain::TenantId;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::document::Document;
use crate::form::{AtLine, Form, Lined, List, Maybe, Text, needed, settings, text};
use crate::read;
use crate::units::KIB;

/// Tenants that an issuer may speak for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerTenants {
    /// All of them, those that come later too.
    Every,
    Only(BTreeSet<TenantId>),
}

impl IssuerTenants {
    pub fn has(&self, tenant: &TenantId) -> bool {
        match self {
            Self::Every => true,
            Self::Only(tenants) => tenants.contains(tenant),
        }
    }
}

settings! {
    /// Whose grants are believed.
    pub struct Issuer {
        /// Its name: what its grants have in `iss`.
        name: AtLine<String> = AtLine::default(), needed(Lined(issuer_name())), live,
            "Nobody is believed whom this file does not name.";
        /// Its public keys, Ed25519: `file:PATH` of a PEM file (`openssl pkey -pubout`), or `ed25519:` and the `x` of a JWK.
        keys: Vec<AtLine<IssuerKey>> = Vec::new(), needed(List(Lined(key()), 1..=16)), live,
            "Two while they are exchanged: a grant counts if one of them verifies it. Key files are read with this file; `systemctl reload` after exchanging one.";
        /// Tenants that it may speak for; `["*"]` for all.
        tenants: IssuerTenants = IssuerTenants::Only(BTreeSet::new()), needed(WhoseForm), live,
            "A key that leaks is then worth the tenants that it is for, so nobody else can choose them.";
        /// Reference to its private key, for `tidegate grant` and the runner: `env:NAME`, `file:PATH` or `systemd-credential:NAME`.
        signing_key: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), live,
            "Platforms sign grants themselves; the appliance needs a private key for its runner alone.";
    }
}

impl Issuer {
    /// References to files are meant relative to the file that they stand in.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        let named = self.keys.iter_mut().map(|key| &mut key.value.named);
        for reference in named.chain(self.signing_key.as_mut().map(|key| &mut key.value)) {
            absolute(reference, directory);
        }
    }

    /// Reads the keys that are files.
    pub(crate) fn read_keys(&mut self, document: &mut Document<'_>) {
        document.within("keys", |document| {
            for (index, key) in document.indexes_read().zip(&mut self.keys) {
                let Some(path) = key.value.named.strip_prefix("file:") else { continue };
                match read_key(Path::new(path)) {
                    Ok(text) => key.value.text = text,
                    Err(message) => document.within_index(index, |document| document.fault_in_line(key.line, message)),
                }
            }
        });
    }
}

/// Makes the path of a `file:` reference absolute.
pub(super) fn absolute(reference: &mut String, directory: &Path) {
    if let Some(path) = reference.strip_prefix("file:").filter(|path| Path::new(path).is_relative()) {
        *reference = format!("file:{}", directory.join(path).display());
    }
}

/// Far longer than a public key.
const KEY_BYTES_MAX: u64 = 16 * KIB;

fn read_key(path: &Path) -> Result<String, String> {
    let shown = || crate::fault::shown(path);
    let (bytes, _) =
        read::file(path, KEY_BYTES_MAX).map_err(|fault| format!("names a file that {fault} ({})", shown()))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("names a file that is no PEM ({})", shown()))?;
    if text.contains("PRIVATE KEY") {
        let hint = "whoever verifies needs the public one: openssl pkey -pubout";
        return Err(format!("names a file that holds a private key ({}); {hint}", shown()));
    }
    Ok(text)
}

/// A public key of an issuer, read but not judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerKey {
    /// As it stands in the file, `file:…` or `ed25519:…`: how faults call it.
    pub named: String,
    /// PEM, or base64url behind `ed25519:`. Empty until the key's file was read.
    pub text: String,
}

const fn issuer_name() -> Text<String> {
    text(
        "name",
        "platform",
        |text| match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(odd) => Err(format!("{text:?} holds {odd:?}; write what the issuer puts into iss")),
            None if (1..=256).contains(&text.len()) => Ok(text.to_owned()),
            None => Err("has not 1 to 256 characters; write what the issuer puts into iss".into()),
        },
        String::clone,
    )
}

const fn key() -> Text<IssuerKey> {
    text(
        "`file:PATH` or `ed25519:KEY`",
        "file:grant.pub.pem",
        |text| {
            match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() && !path.contains('\0') => {
                Ok(IssuerKey { named: text.to_owned(), text: String::new() })
            }
            Some(("ed25519", _)) => Ok(IssuerKey { named: text.to_owned(), text: text.to_owned() }),
            // It may be a private key.
            _ => Err("is no reference to a public key; write \"file:PATH\" of a PEM file, or \"ed25519:\" and the x of a JWK".into()),
        }
        },
        |key| key.named.clone(),
    )
}

/// What an operator's reference looks like; what is none may be the secret and is repeated nowhere.
pub(super) const fn operator_reference() -> Text<String> {
    text(
        "reference to a secret",
        "file:grant.key.pem",
        |text| match text.split_once(':') {
            Some(("env" | "file" | "systemd-credential", name)) if !name.is_empty() => Ok(text.to_owned()),
            _ => Err(
                "is no reference; secrets are never written out: write env:NAME, file:PATH or systemd-credential:NAME"
                    .into(),
            ),
        },
        |_| String::new(),
    )
}

/// `["acme", "beta"]`, or `["*"]`.
pub(super) struct WhoseForm;

const fn whose() -> List<Text<Option<TenantId>>> {
    List(
        text(
            "tenants' ids",
            "acme",
            |text| match text {
                "*" => Ok(None),
                text => TenantId::parse(text).map(Some).map_err(|fault| format!("the id {text:?} {fault}")),
            },
            |_| String::new(),
        ),
        1..=100_000,
    )
}

impl Form<IssuerTenants> for WhoseForm {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<IssuerTenants> {
        let ids = whose().read(document, at)?;
        if ids.iter().all(Option::is_some) {
            return Some(IssuerTenants::Only(ids.into_iter().flatten().collect()));
        }
        if ids.len() > 1 {
            document.fault(at.span(), "names \"*\" and others; write [\"*\"] for all tenants, or those that are meant");
            return None;
        }
        Some(IssuerTenants::Every)
    }

    fn show(&self, _: &IssuerTenants) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "list of tenants' ids, or `[\"*\"]`".into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": { "type": "string", "examples": ["acme", "*"] }, "minItems": 1 })
    }
}
