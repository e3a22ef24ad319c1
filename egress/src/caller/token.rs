//! Static tokens: for what cannot fetch a grant for each run, such as a build server.
//!
//! The configuration holds the SHA-256 of each. A token has 192 random bits of the operating system, so that a plain
//! hash is enough: there is nothing to guess. One table over all tenants finds it, by the first half of the hash; the
//! whole hash is then compared in constant time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use domain::{Secret, TenantId};
use ring::digest::{Digest, SHA256, digest};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// What every token starts with, so that people and scanners of repositories recognise one.
pub const TOKEN_PREFIX: &str = "tgt_";

/// SHA-256 of a token. No secret: nobody gets back from it to the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token, prefix included.
    pub fn of(token: &[u8]) -> Self {
        Self::from(digest(&SHA256, token))
    }

    /// Reads `sha256:` and 64 lower-case hexadecimal digits; None for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        HEXLOWER.decode(digits.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The half by which it is looked up.
    fn key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key.copy_from_slice(&self.0[..16]);
        key
    }
}

impl From<[u8; 32]> for TokenHash {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl From<Digest> for TokenHash {
    fn from(digest: Digest) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Mints a token: 192 random bits.
///
/// # Errors
/// The operating system gives no randomness.
pub fn new_token() -> Result<(Secret, TokenHash), Unspecified> {
    let mut random = [0; 24];
    SystemRandom::new().fill(&mut random)?;
    let token = Secret::new(format!("{TOKEN_PREFIX}{}", BASE64URL_NOPAD.encode(&random)).into_bytes());
    let hash = TokenHash::of(token.expose());
    Ok((token, hash))
}

/// A token that somebody may come with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// Whose it is.
    pub tenant: TenantId,
    /// What records call it.
    pub name: Box<str>,
    /// Of the token.
    pub hash: TokenHash,
    /// Which of the tenant's roles its holder has.
    pub role: Option<Box<str>>,
    /// The first millisecond at which it does not count any more, since 1970; none is never.
    pub until_unix_ms: Option<u64>,
}

/// All of them. A hash that two entries claim is nobody's.
#[derive(Debug, Default)]
pub(super) struct Tokens(HashMap<[u8; 16], Option<TokenEntry>>);

impl Tokens {
    /// The table, and the hashes that more than one entry claims.
    pub(super) fn new(entries: Vec<TokenEntry>) -> (Self, Vec<TokenHash>) {
        let mut table = HashMap::with_capacity(entries.len());
        let mut claimed = Vec::new();
        for entry in entries {
            match table.entry(entry.hash.key()) {
                Entry::Vacant(place) => {
                    place.insert(Some(entry));
                }
                Entry::Occupied(mut known) => {
                    known.insert(None);
                    claimed.push(entry.hash);
                }
            }
        }
        (Self(table), claimed)
    }

    pub(super) fn find(&self, hash: &TokenHash) -> Option<&TokenEntry> {
        let entry = self.0.get(&hash.key())?.as_ref()?;
        bool::from(entry.hash.0.ct_eq(&hash.0)).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tenant: &str, hash: TokenHash) -> TokenEntry {
        let tenant = TenantId::parse(tenant).unwrap();
        TokenEntry { tenant, name: "ci".into(), hash, role: None, until_unix_ms: None }
    }

    #[test]
    fn a_token_is_found_by_its_hash_and_by_nothing_else() {
        let (token, hash) = new_token().unwrap();
        assert!(token.expose().starts_with(b"tgt_") && token.expose().len() == 36);
        assert_ne!(new_token().unwrap().1, hash);
        let (table, claimed) = Tokens::new(vec![entry("acme", hash)]);
        assert!(claimed.is_empty());
        assert_eq!(table.find(&TokenHash::of(token.expose())).unwrap().tenant.as_str(), "acme");
        assert!(table.find(&TokenHash::of(&token.expose()[1..])).is_none());
        // One that shares the half by which it is looked up, and no more.
        let mut near = hash;
        near.0[31] ^= 1;
        assert!(table.find(&near).is_none());
    }

    #[test]
    fn a_hash_that_two_claim_is_nobody_s() {
        let hash = TokenHash::of(b"tgt_x");
        let (table, claimed) = Tokens::new(vec![entry("acme", hash), entry("beta", hash), entry("gamma", hash)]);
        assert_eq!((table.find(&hash), claimed), (None, vec![hash, hash]));
    }

    #[test]
    fn hashes_have_one_text() {
        // FIPS 180-4's example, by NIST.
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::parse(text), Some(TokenHash::of(b"abc")));
        assert_eq!(TokenHash::of(b"abc").to_string(), text);
        for bad in ["", "sha256:", &text[7..], &text[..70], &text.to_uppercase(), "sha512:00"] {
            assert_eq!(TokenHash::parse(bad), None, "{bad}");
        }
    }
}
