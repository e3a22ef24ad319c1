//! From a configured secret to a key: decoded once, strictly, at load.

use config::scheme::{Algorithm, Also, Hash, KeyDecode, KeyRule};
use data_encoding::{BASE64, BASE64URL, Encoding, HEXLOWER_PERMISSIVE};
use domain::Secret;
use ring::digest;
use zeroize::Zeroizing;

use super::fault::KeyFault;
use super::public_key::{self, Pair, PublicAlgorithm};

/// What `tidegate check` wants a secret to have where the scheme says nothing else: 128 bits.
const BYTES_ADVISED: u16 = 16;

/// A key of one scheme. Sixteen bytes beside the key itself: an appliance holds a hundred thousand of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    material: Material,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    /// Shared with the sender.
    Secret(Secret),
    Public(Box<Pair>),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// A key of bytes that come from no secret's text.
    pub(super) fn of(material: Vec<u8>) -> Self {
        Self { material: Material::Secret(Secret::new(material)) }
    }

    /// What is shared with the sender; none of a public key, which must never key an HMAC.
    pub(crate) fn secret(&self) -> Option<&[u8]> {
        match &self.material {
            Material::Secret(secret) => Some(secret.expose()),
            Material::Public(_) => None,
        }
    }

    pub(super) fn public(&self) -> Option<&Pair> {
        match &self.material {
            Material::Secret(_) => None,
            Material::Public(pair) => Some(pair),
        }
    }
}

/// How one scheme's secrets become keys.
#[derive(Debug)]
pub(super) struct KeyRules {
    rule: KeyRule,
    kind: Kind,
    /// Beginnings of secrets that are keys of another algorithm.
    also: Option<AlsoKeys>,
}

#[derive(Debug)]
struct AlsoKeys {
    prefixes: Box<[Box<[u8]>]>,
    algorithm: PublicAlgorithm,
}

/// What a secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shared,
    /// User and password.
    Basic,
    /// Shared, by a scheme whose tokens could also be signed: there a public key is taken for a secret.
    SharedOfJwt,
    Public(PublicAlgorithm),
}

impl KeyRules {
    pub(super) fn new(algorithm: Algorithm, rule: &KeyRule, also: Option<&Also>) -> Self {
        let kind = match (public_algorithm(algorithm), algorithm) {
            (Some(public), _) => Kind::Public(public),
            (None, Algorithm::Basic) => Kind::Basic,
            (None, Algorithm::JwtHs256) => Kind::SharedOfJwt,
            (None, _) => Kind::Shared,
        };
        let also = also.and_then(|also| {
            let prefixes = also.prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect();
            Some(AlsoKeys { prefixes, algorithm: public_algorithm(also.algorithm)? })
        });
        Self { rule: rule.clone(), kind, also }
    }

    pub(super) fn key(&self, raw: &Secret) -> Result<Key, KeyFault> {
        if let Some((algorithm, text)) = self.public_text(raw.expose())? {
            let pair = Pair::parse(algorithm, text)?;
            return Ok(Key { material: Material::Public(Box::new(pair)) });
        }
        if self.kind == Kind::SharedOfJwt && public_key::looks_public(raw.expose()) {
            return Err(KeyFault::NotSecret);
        }
        let decoded = self.decode(raw.expose())?;
        if let Some(least) = self.rule.bytes_min
            && decoded.len() < usize::from(least)
        {
            return Err(KeyFault::TooShort { have: decoded.len(), least });
        }
        let material = match self.rule.derive {
            // The text that stands behind `Basic `: comparing texts leaves one spelling of it.
            _ if self.kind == Kind::Basic => {
                if !decoded.contains(&b':') {
                    return Err(KeyFault::NoPassword);
                }
                BASE64.encode(&decoded).into_bytes()
            }
            None => decoded.to_vec(),
            Some(hash) => digest::digest(algorithm(hash), &decoded).as_ref().to_vec(),
        };
        Ok(Key::of(material))
    }

    /// The text of a public key, where the secret is one.
    fn public_text<'r>(&self, raw: &'r [u8]) -> Result<Option<(PublicAlgorithm, &'r [u8])>, KeyFault> {
        let found = match (self.kind, &self.also) {
            (Kind::Public(algorithm), _) => {
                let text = self.rule.strip.iter().find_map(|prefix| raw.strip_prefix(prefix.as_bytes()));
                Some((algorithm, text.unwrap_or(raw)))
            }
            (_, Some(AlsoKeys { prefixes, algorithm })) => {
                let text = prefixes.iter().find_map(|prefix| raw.strip_prefix(&**prefix));
                text.map(|text| (*algorithm, text))
            }
            (_, None) => None,
        };
        match found {
            Some((_, text)) if text.trim_ascii().is_empty() => Err(KeyFault::Empty),
            found => Ok(found),
        }
    }

    /// What is unwise about a secret that does make a key.
    pub(super) fn advice(&self, raw: &Secret) -> Option<String> {
        if let Ok(Some((algorithm, text))) = self.public_text(raw.expose()) {
            let pair = Pair::parse(algorithm, text).ok()?;
            let advice = "the secret is a private key, with which anybody who reads it signs as the provider: \
                          only tests need it, an endpoint needs the public one";
            return pair.is_private().then(|| advice.to_owned());
        }
        let have = self.decode(raw.expose()).ok()?.len();
        let advised = self.rule.bytes_advised.unwrap_or(BYTES_ADVISED);
        (have < usize::from(advised))
            .then(|| format!("the secret has only {have} bytes: {advised} or more cannot be guessed"))
    }

    fn decode(&self, raw: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyFault> {
        if raw.is_empty() {
            return Err(KeyFault::Empty);
        }
        if raw.iter().all(|b| b.is_ascii_whitespace() || *b == 0) {
            return Err(KeyFault::Blank);
        }
        if raw.ends_with(b"\n") || raw.ends_with(b"\r") {
            return Err(KeyFault::LineEnding);
        }
        let text = self.rule.strip.iter().find_map(|prefix| raw.strip_prefix(prefix.as_bytes())).unwrap_or(raw);
        let decoded = match self.rule.decode {
            KeyDecode::Utf8 => text.to_vec(),
            KeyDecode::Hex => strict(&HEXLOWER_PERMISSIVE, text, "an even number of hexadecimal digits")?,
            KeyDecode::Base64 => strict(&BASE64, text, "base64 with its padding")?,
            KeyDecode::Base64url => strict(&BASE64URL, text, "base64url with its padding")?,
        };
        // A key of nothing would verify what anybody signs.
        if decoded.is_empty() { Err(KeyFault::Empty) } else { Ok(Zeroizing::new(decoded)) }
    }
}

fn strict(encoding: &Encoding, text: &[u8], what: &'static str) -> Result<Vec<u8>, KeyFault> {
    let decoded = encoding.decode(text).map_err(|_| KeyFault::Undecodable(what))?;
    // The library also reads concatenated texts: padding in the middle is a secret pasted twice.
    let padding_inside = text.iter().position(|b| *b == b'=').is_some_and(|at| text.len() - at > 2);
    if padding_inside { Err(KeyFault::Undecodable(what)) } else { Ok(decoded) }
}

/// What checks signatures, where that is a public key.
pub(super) const fn public_algorithm(algorithm: Algorithm) -> Option<PublicAlgorithm> {
    match algorithm {
        Algorithm::Ed25519 | Algorithm::JwtEddsa => Some(PublicAlgorithm::Ed25519),
        Algorithm::EcdsaP256Sha256 => Some(PublicAlgorithm::P256Der),
        Algorithm::JwtEs256 => Some(PublicAlgorithm::P256Fixed),
        Algorithm::RsaPkcs1Sha256 | Algorithm::JwtRs256 => Some(PublicAlgorithm::RsaPkcs1),
        Algorithm::HmacSha1
        | Algorithm::HmacSha256
        | Algorithm::HmacSha512
        | Algorithm::Sha1
        | Algorithm::Sha256
        | Algorithm::Sha512
        | Algorithm::Token
        | Algorithm::Basic
        | Algorithm::JwtHs256 => None,
    }
}

pub(crate) const fn algorithm(hash: Hash) -> &'static digest::Algorithm {
    match hash {
        Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha512 => &digest::SHA512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rule: &KeyRule, raw: &str) -> Result<Vec<u8>, KeyFault> {
        let rules = KeyRules::new(Algorithm::HmacSha256, rule, None);
        rules.key(&Secret::new(raw.as_bytes())).map(|key| key.secret().unwrap().to_vec())
    }

    fn whsec() -> KeyRule {
        KeyRule {
            decode: KeyDecode::Base64,
            strip: vec!["v1,whsec_".into(), "whsec_".into()],
            bytes_min: Some(16),
            ..KeyRule::default()
        }
    }

    #[test]
    fn secrets_that_are_none_make_no_key() {
        let plain = KeyRule::default;
        assert_eq!(key(&plain(), ""), Err(KeyFault::Empty));
        assert_eq!(key(&plain(), " \t\n"), Err(KeyFault::Blank));
        assert_eq!(key(&plain(), "\0\0"), Err(KeyFault::Blank));
        assert_eq!(key(&plain(), "secret\n"), Err(KeyFault::LineEnding));
        assert_eq!(key(&plain(), "secret\r\n"), Err(KeyFault::LineEnding));
        assert_eq!(key(&plain(), " It's a secret "), Ok(b" It's a secret ".to_vec()));
        assert_eq!(key(&whsec(), "whsec_"), Err(KeyFault::Empty));
    }

    #[test]
    fn lenient_base64_makes_no_near_empty_key() {
        let undecodable = Err(KeyFault::Undecodable("base64 with its padding"));
        for raw in ["whsec_*", "whsec_====", "not base64 at all!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "AAAA=AAA"] {
            assert_eq!(key(&whsec(), raw), undecodable, "{raw}");
        }
        assert_eq!(key(&whsec(), "QUJD"), Err(KeyFault::TooShort { have: 3, least: 16 }));
        // Sixteen bytes are enough, fifteen are not.
        assert!(key(&whsec(), "whsec_MDEyMzQ1Njc4OWFiY2RlZg==").is_ok());
        assert_eq!(key(&whsec(), "whsec_MDEyMzQ1Njc4OWFiY2Rl"), Err(KeyFault::TooShort { have: 15, least: 16 }));
        // A secret pasted twice.
        let twice = "MDEyMzQ1Njc4OWFiY2RlZg==MDEyMzQ1Njc4OWFiY2RlZg==";
        assert_eq!(key(&whsec(), twice), Err(KeyFault::Undecodable("base64 with its padding")));
    }

    #[test]
    fn a_key_is_small() {
        assert_eq!(size_of::<Key>(), 16);
    }

    #[test]
    fn prefixes_come_off_once() {
        let bytes = key(&whsec(), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(bytes.len(), 24);
        assert_eq!(key(&whsec(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(), bytes);
        assert_eq!(key(&whsec(), "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(), bytes);
        assert!(key(&whsec(), "whsec_whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_err());
    }

    #[test]
    fn derived_and_hex_keys() {
        let hex = KeyRule { decode: KeyDecode::Hex, ..KeyRule::default() };
        assert_eq!(key(&hex, "00fF"), Ok(vec![0, 255]));
        assert!(key(&hex, "0ff").is_err());
        assert!(key(&hex, "0g").is_err());
        let sha1 = KeyRule { derive: Some(Hash::Sha1), ..KeyRule::default() };
        assert_eq!(key(&sha1, "abc").unwrap()[..4], [0xa9, 0x99, 0x3e, 0x36]);
    }

    #[test]
    fn short_secrets_are_advised_against() {
        let rules = KeyRules::new(Algorithm::HmacSha256, &KeyRule::default(), None);
        assert!(rules.advice(&Secret::new(*b"0123456789abcde")).is_some());
        assert!(rules.advice(&Secret::new(*b"0123456789abcdef")).is_none());
    }
}
