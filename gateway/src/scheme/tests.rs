//! Tests that need presets: known answers, signing and verifying, mutations, the shared cases.

mod body;
mod boundaries;
mod cases;
mod jwt;
mod mutations;
mod presets;
mod public;
mod tenant;
mod traps;

use std::sync::LazyLock;

use config::scheme::Algorithm;
use domain::Secret;

use super::{ActiveKey, Key, Presets, Scheme, SeenUrl, Unsigned, Unverified, Verified, VerifyFault};

pub(super) static PRESETS: LazyLock<Presets> = LazyLock::new(|| Presets::load().unwrap());

/// 2026-09-21T14:13:20Z.
pub(super) const NOW: u64 = 1_790_000_000_000;

pub(super) fn preset(name: &str) -> &'static Scheme {
    PRESETS.get(name).unwrap_or_else(|| panic!("no preset {name}"))
}

/// A delivery that owns what it is made of, so that tests can change it.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) method: String,
    pub(super) origin: String,
    pub(super) target: Vec<u8>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl Delivery {
    pub(super) fn new(url: &str, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let (seen, target) = SeenUrl::split(url).unwrap();
        let port = seen.port.map(|port| format!(":{port}")).unwrap_or_default();
        Self {
            method: "POST".to_owned(),
            origin: format!("{}://{}{port}", seen.scheme, seen.host),
            target: target.as_bytes().to_vec(),
            headers: headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect(),
            body: body.to_vec(),
        }
    }

    /// Signed by a scheme.
    pub(super) fn signed(scheme: &Scheme, key: &Key, mut self_: Self, at: u64) -> Self {
        let given: Vec<_> =
            self_.headers.iter().map(|(n, v)| (n.clone(), String::from_utf8(v.clone()).unwrap())).collect();
        let target = String::from_utf8(self_.target.clone()).unwrap();
        let unsigned = Unsigned {
            method: &self_.method,
            target: &target,
            url: SeenUrl::split(&self_.origin).unwrap().0,
            headers: &given,
            body: &self_.body,
        };
        let signed = scheme.sign(&unsigned, key, at).unwrap();
        self_.headers.extend(signed.headers.into_iter().map(|(n, v)| (n, v.into_bytes())));
        self_.target = signed.target.unwrap_or(target).into_bytes();
        self_
    }

    pub(super) fn judge(&self, scheme: &Scheme, keys: &[&Key], now: u64) -> Result<Verified, VerifyFault> {
        let keys: Vec<_> = keys.iter().enumerate().map(|(index, key)| ActiveKey { index, key }).collect();
        let delivery = Unverified {
            method: self.method.as_bytes(),
            target: &self.target,
            url: SeenUrl::split(&self.origin).unwrap().0,
            headers: &self.headers,
            body: &self.body,
            received_unix_ms: now,
        };
        scheme.verify(&delivery, &keys)
    }

    pub(super) fn header(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.headers.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(name)).unwrap().1
    }
}

pub(super) fn key(scheme: &Scheme, secret: &str) -> Key {
    scheme.key(&Secret::new(secret.as_bytes())).unwrap()
}

pub(super) const ED25519: &str = include_str!("tests/keys/ed.pem");
pub(super) const ED25519_PUBLIC: &str = include_str!("tests/keys/ed.pub.pem");
pub(super) const P256: &str = include_str!("tests/keys/p256.pem");
pub(super) const P256_PUBLIC: &str = include_str!("tests/keys/p256.pub.pem");
pub(super) const RSA: &str = include_str!("tests/keys/rsa.pem");
pub(super) const RSA_PUBLIC: &str = include_str!("tests/keys/rsa.pub.pem");

fn is_p256(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::EcdsaP256Sha256 | Algorithm::JwtEs256)
}

fn is_rsa(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::RsaPkcs1Sha256 | Algorithm::JwtRs256)
}

/// A private key that an algorithm signs with.
pub(super) fn private_key(algorithm: Algorithm) -> &'static str {
    if is_p256(algorithm) {
        P256
    } else if is_rsa(algorithm) {
        RSA
    } else {
        ED25519
    }
}

/// A key of the same kind that signs nothing here: one that a provider publishes.
pub(super) fn other_public_key(algorithm: Algorithm) -> String {
    let published = if is_p256(algorithm) {
        "sendgrid"
    } else if is_rsa(algorithm) {
        "wise"
    } else {
        "discord"
    };
    preset(published).declaration().known_answers[0].secret.clone()
}

pub(super) fn label(verdict: &Result<Verified, VerifyFault>) -> &'static str {
    verdict.as_ref().map_or_else(VerifyFault::label, |_| "verified")
}
