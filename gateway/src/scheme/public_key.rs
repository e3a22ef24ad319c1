//! Public keys, in the forms in which providers' consoles show them.
//!
//! | form | Ed25519 | ECDSA P-256 | RSA |
//! |---|---|---|---|
//! | SPKI PEM (RFC 7468), or its base64 alone | yes | yes | yes |
//! | the bare key, in hex or base64 | 32 bytes | 65 bytes, not compressed | |
//! | JWK (RFC 7517), one key | `OKP` | `EC` | `RSA` |
//! | private: PKCS#8 PEM | to sign with, in tests | | |
//!
//! Which algorithm it is the scheme says, and never the key or a delivery. The forms differ in length and first letter,
//! so that no text has two readings.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use domain::der::{BIT_STRING, INTEGER, Reader, SEQUENCE};
use domain::json::{self, Members, Value};
use domain::key_text::{self, ED25519_SPKI, TextFault, is_weak_ed25519};
use domain::{Secret, jwt};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, PublicKeyComponents};
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::fault::KeyFault;

/// A PEM of RSA with 4096 bits has 800 bytes, its private key 3,300.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// Fewer bits can be factored; more cost a forger nothing and us a tenth of a millisecond each.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// DER before the 65 bytes of a point: a sequence, `id-ecPublicKey` with `prime256v1`, a bit string (RFC 5480).
const P256_SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// `AlgorithmIdentifier` of `rsaEncryption`, with its NULL (RFC 3279).
const RSA_ALGORITHM: [u8; 13] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

/// What signatures are made and checked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublicAlgorithm {
    Ed25519,
    /// The signature is in DER.
    P256Der,
    /// The signature is the two numbers, 32 bytes each (RFC 7518 3.4).
    P256Fixed,
    RsaPkcs1,
}

impl PublicAlgorithm {
    /// The longest signature, in bytes.
    pub(super) const fn signature_bytes_max(self) -> usize {
        match self {
            Self::Ed25519 | Self::P256Fixed => 64,
            Self::P256Der => 72,
            Self::RsaPkcs1 => 512,
        }
    }

    /// What its keys are called in a sentence.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "Ed25519",
            Self::P256Der | Self::P256Fixed => "ECDSA P-256",
            Self::RsaPkcs1 => "RSA",
        }
    }
}

/// A key that signatures are checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PublicKey {
    Ed25519([u8; 32]),
    P256([u8; 65]),
    /// Modulus and exponent, big-endian, without zeros in front.
    Rsa {
        n: Box<[u8]>,
        e: Box<[u8]>,
    },
}

/// A public key, and the private one where a test has it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    public: PublicKey,
    /// PKCS#8.
    private: Option<Secret>,
}

impl Pair {
    pub(super) fn parse(algorithm: PublicAlgorithm, text: &[u8]) -> Result<Self, KeyFault> {
        let text = text.trim_ascii();
        if text.len() > TEXT_BYTES_MAX {
            return Err(KeyFault::NoPublicKey(algorithm.name()));
        }
        if let Some(pair) = private(algorithm, text)? {
            return Ok(pair);
        }
        let public = public(algorithm, text).ok_or_else(|| KeyFault::NoPublicKey(algorithm.name()))?;
        public.checked().map(|public| Self { public, private: None })
    }

    pub(super) fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Is this the signature of that message? Another kind of key verifies nothing.
    pub(super) fn verifies(&self, algorithm: PublicAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let by = |with: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(with, key).verify(message, signature).is_ok()
        };
        match (algorithm, &self.public) {
            (PublicAlgorithm::Ed25519, PublicKey::Ed25519(key)) => by(&signature::ED25519, key),
            (PublicAlgorithm::P256Der, PublicKey::P256(key)) => by(&signature::ECDSA_P256_SHA256_ASN1, key),
            (PublicAlgorithm::P256Fixed, PublicKey::P256(key)) => by(&signature::ECDSA_P256_SHA256_FIXED, key),
            (PublicAlgorithm::RsaPkcs1, PublicKey::Rsa { n, e }) => {
                let key = PublicKeyComponents { n, e };
                key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            (
                PublicAlgorithm::Ed25519
                | PublicAlgorithm::P256Der
                | PublicAlgorithm::P256Fixed
                | PublicAlgorithm::RsaPkcs1,
                PublicKey::Ed25519(_) | PublicKey::P256(_) | PublicKey::Rsa { .. },
            ) => false,
        }
    }

    /// Signs, where the private key is there. ECDSA takes a random number: it signs otherwise each time.
    pub(super) fn sign(&self, algorithm: PublicAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        let der = self.private.as_ref()?.expose();
        let random = SystemRandom::new();
        let ecdsa = |with| {
            let pair = EcdsaKeyPair::from_pkcs8(with, der, &random).ok()?;
            Some(pair.sign(&random, message).ok()?.as_ref().to_vec())
        };
        match algorithm {
            PublicAlgorithm::Ed25519 => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
                Some(pair.sign(message).as_ref().to_vec())
            }
            PublicAlgorithm::P256Der => ecdsa(&signature::ECDSA_P256_SHA256_ASN1_SIGNING),
            PublicAlgorithm::P256Fixed => ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            PublicAlgorithm::RsaPkcs1 => {
                let pair = RsaKeyPair::from_pkcs8(der).ok()?;
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut out).ok()?;
                Some(out)
            }
        }
    }
}

impl PublicKey {
    /// Refuses what is a key by its form alone.
    fn checked(self) -> Result<Self, KeyFault> {
        match &self {
            Self::Ed25519(key) if is_weak_ed25519(*key) => Err(KeyFault::WeakKey),
            Self::Rsa { n, e } => {
                let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
                // An exponent of one signs everything; an even one, or an even modulus, is none.
                let odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
                let sound = RSA_BITS.contains(&bits) && odd(n) && odd(e) && **e != [1] && e.len() <= 4;
                if sound { Ok(self) } else { Err(KeyFault::WeakKey) }
            }
            Self::Ed25519(_) | Self::P256(_) => Ok(self),
        }
    }
}

/// A private key, if the text is one by its looks.
fn private(algorithm: PublicAlgorithm, text: &[u8]) -> Result<Option<Pair>, KeyFault> {
    let fault = || KeyFault::NoPublicKey(algorithm.name());
    let der = match key_text::pem(text, "PRIVATE KEY") {
        Ok(der) => der,
        Err(TextFault::Form | TextFault::Label) => return Ok(seeded(algorithm, text)),
    };
    let random = SystemRandom::new();
    let public = match algorithm {
        PublicAlgorithm::Ed25519 => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.expose()).map_err(|_| fault())?;
            pair.public_key().as_ref().try_into().ok().map(PublicKey::Ed25519)
        }
        PublicAlgorithm::P256Der | PublicAlgorithm::P256Fixed => {
            let form = &signature::ECDSA_P256_SHA256_ASN1_SIGNING;
            let pair = EcdsaKeyPair::from_pkcs8(form, der.expose(), &random).map_err(|_| fault())?;
            pair.public_key().as_ref().try_into().ok().map(PublicKey::P256)
        }
        PublicAlgorithm::RsaPkcs1 => {
            let pair = RsaKeyPair::from_pkcs8(der.expose()).map_err(|_| fault())?;
            rsa_numbers(pair.public_key().as_ref())
        }
    };
    let public = public.ok_or_else(fault)?.checked()?;
    Ok(Some(Pair { public, private: Some(der) }))
}

/// The private form of Standard Webhooks: the seed and the public key, 64 bytes in base64.
fn seeded(algorithm: PublicAlgorithm, text: &[u8]) -> Option<Pair> {
    /// PKCS#8, the first version, before the 32 bytes of a seed (RFC 8410 7).
    const PKCS8: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    if algorithm != PublicAlgorithm::Ed25519 {
        return None;
    }
    let bytes = Secret::new(BASE64.decode(text).ok()?);
    let (seed, public) = bytes.expose().split_at_checked(32)?;
    Ed25519KeyPair::from_seed_and_public_key(seed, public).ok()?;
    let private = Secret::new([&PKCS8[..], seed].concat());
    Some(Pair { public: PublicKey::Ed25519(public.try_into().ok()?), private: Some(private) })
}

fn public(algorithm: PublicAlgorithm, text: &[u8]) -> Option<PublicKey> {
    if text.starts_with(b"{") {
        return of_jwk(algorithm, &json::object(text).ok()?);
    }
    if text.starts_with(b"-----") {
        return of_spki(algorithm, key_text::pem(text, "PUBLIC KEY").ok()?.expose());
    }
    // Base64 of SPKI is longer than hex of a bare key, which is longer than its base64: lengths never meet.
    let hex = HEXLOWER_PERMISSIVE.decode(text).ok().and_then(|bytes| of_bytes(algorithm, &bytes));
    hex.or_else(|| {
        // Consoles break lines; nothing else is passed over.
        let packed: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        let bytes = BASE64.decode(&packed).ok()?;
        of_bytes(algorithm, &bytes).or_else(|| of_spki(algorithm, &bytes))
    })
}

/// A bare key.
fn of_bytes(algorithm: PublicAlgorithm, bytes: &[u8]) -> Option<PublicKey> {
    match algorithm {
        PublicAlgorithm::Ed25519 => bytes.try_into().ok().map(PublicKey::Ed25519),
        PublicAlgorithm::P256Der | PublicAlgorithm::P256Fixed => {
            bytes.try_into().ok().filter(|point: &[u8; 65]| point[0] == 4).map(PublicKey::P256)
        }
        PublicAlgorithm::RsaPkcs1 => None,
    }
}

fn of_spki(algorithm: PublicAlgorithm, der: &[u8]) -> Option<PublicKey> {
    match algorithm {
        PublicAlgorithm::Ed25519 => of_bytes(algorithm, der.strip_prefix(&ED25519_SPKI)?),
        PublicAlgorithm::P256Der | PublicAlgorithm::P256Fixed => of_bytes(algorithm, der.strip_prefix(&P256_SPKI)?),
        PublicAlgorithm::RsaPkcs1 => {
            let mut whole = Reader::of(der);
            let mut spki = Reader::of(whole.expect(SEQUENCE)?);
            let known = spki.expect(SEQUENCE)? == RSA_ALGORITHM && whole.rest().is_empty();
            let (unused_bits, numbers) = spki.expect(BIT_STRING)?.split_first()?;
            if known && *unused_bits == 0 && spki.rest().is_empty() { rsa_numbers(numbers) } else { None }
        }
    }
}

/// `RSAPublicKey` of RFC 8017 A.1.1.
fn rsa_numbers(der: &[u8]) -> Option<PublicKey> {
    let mut whole = Reader::of(der);
    let mut numbers = Reader::of(whole.expect(SEQUENCE)?);
    let (n, e) = (numbers.expect(INTEGER)?, numbers.expect(INTEGER)?);
    if !(whole.rest().is_empty() && numbers.rest().is_empty()) {
        return None;
    }
    // A zero in front says that the number is positive.
    rsa(n.strip_prefix(&[0]).unwrap_or(n), e)
}

fn rsa(n: &[u8], e: &[u8]) -> Option<PublicKey> {
    let sound = |number: &[u8]| number.first().is_some_and(|first| *first != 0);
    (sound(n) && sound(e)).then(|| PublicKey::Rsa { n: n.into(), e: e.into() })
}

fn of_jwk(algorithm: PublicAlgorithm, jwk: &Members) -> Option<PublicKey> {
    let text = |name: &str| match json::member(jwk, name)? {
        Value::Text(text) => Some(text.as_str()),
        Value::Whole(_) | Value::List(_) | Value::Members(_) | Value::Flag(_) | Value::Other => None,
    };
    let number = |name: &str| jwt::decoded(text(name)?.as_bytes());
    match (algorithm, text("kty")?) {
        (PublicAlgorithm::Ed25519, "OKP") if text("crv") == Some("Ed25519") => of_bytes(algorithm, &number("x")?),
        (PublicAlgorithm::P256Der | PublicAlgorithm::P256Fixed, "EC") if text("crv") == Some("P-256") => {
            of_bytes(algorithm, &[&[4][..], &number("x")?, &number("y")?].concat())
        }
        (PublicAlgorithm::RsaPkcs1, "RSA") => rsa(&number("n")?, &number("e")?),
        _ => None,
    }
}

/// A public key as text, wherever a secret is meant: whoever knows the key could sign.
pub(super) fn looks_public(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"-----BEGIN ")
        || json::object(text).is_ok_and(|jwk| json::member(&jwk, "kty").is_some())
}
