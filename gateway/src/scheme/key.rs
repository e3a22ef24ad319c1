//! From a configured secret to a key: decoded once, strictly, at load.

use config::scheme::{Algorithm, Hash, KeyDecode, KeyRule};
use data_encoding::{BASE64, BASE64URL, Encoding, HEXLOWER_PERMISSIVE};
use domain::Secret;
use ring::digest;
use zeroize::Zeroizing;

use super::fault::KeyFault;

/// What `tidegate check` wants a secret to have where the scheme says nothing else: 128 bits.
const BYTES_ADVISED: u16 = 16;

/// A key of one scheme. Sixteen bytes beside the key itself: an appliance holds a hundred thousand of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    material: Secret,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// A key of bytes that come from no secret's text.
    pub(super) fn of(material: Vec<u8>) -> Self {
        Self { material: Secret::new(material) }
    }

    pub(super) fn material(&self) -> &[u8] {
        self.material.expose()
    }
}

/// How one scheme's secrets become keys.
#[derive(Debug)]
pub(super) struct KeyRules {
    rule: KeyRule,
    basic: bool,
}

impl KeyRules {
    pub(super) fn new(algorithm: Algorithm, rule: &KeyRule) -> Self {
        Self { rule: rule.clone(), basic: algorithm == Algorithm::Basic }
    }

    pub(super) fn key(&self, raw: &Secret) -> Result<Key, KeyFault> {
        let decoded = self.decode(raw.expose())?;
        if let Some(least) = self.rule.bytes_min
            && decoded.len() < usize::from(least)
        {
            return Err(KeyFault::TooShort { have: decoded.len(), least });
        }
        let material = match self.rule.derive {
            // The text that stands behind `Basic `: comparing texts leaves one spelling of it.
            _ if self.basic => {
                if !decoded.contains(&b':') {
                    return Err(KeyFault::NoPassword);
                }
                BASE64.encode(&decoded).into_bytes()
            }
            None => decoded.to_vec(),
            Some(hash) => digest::digest(algorithm(hash), &decoded).as_ref().to_vec(),
        };
        Ok(Key { material: Secret::new(material) })
    }

    /// What is unwise about a secret that does make a key.
    pub(super) fn advice(&self, raw: &Secret) -> Option<String> {
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

pub(super) const fn algorithm(hash: Hash) -> &'static digest::Algorithm {
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
        KeyRules::new(Algorithm::HmacSha256, rule).key(&Secret::new(raw.as_bytes())).map(|key| key.material().to_vec())
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
        let rules = KeyRules::new(Algorithm::HmacSha256, &KeyRule::default());
        assert!(rules.advice(&Secret::new(*b"0123456789abcde")).is_some());
        assert!(rules.advice(&Secret::new(*b"0123456789abcdef")).is_none());
    }
}
