//! Minting grants: for `tidegate grant`, for tests, and for issuers written in Rust.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use domain::{ConnectionId, Secret, TenantId};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;

use super::key::SigningKey;

/// What a grant is to say. Lists that are empty are left out, and then bound nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewGrant {
    /// The issuer's name.
    #[serde(rename = "iss")]
    pub issuer: Box<str>,
    /// The fleet's `egress.audience`.
    #[serde(rename = "aud")]
    pub audience: Box<str>,
    /// For whom.
    pub tenant: TenantId,
    /// Which connections may be called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionId>,
    /// Which hosts may be asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Box<str>>,
    /// Which of the tenant's roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Box<str>>,
    /// For which run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<str>>,
    /// Of which automation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automation: Option<Box<str>>,
    /// Of which class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Box<str>>,
    /// Networks that the caller is in.
    #[serde(rename = "source", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Box<str>>,
    /// How often it may be used on one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<u32>,
}

impl NewGrant {
    /// One that says only what every grant has to.
    pub fn new(issuer: &str, audience: &str, tenant: TenantId) -> Self {
        Self {
            issuer: issuer.into(),
            audience: audience.into(),
            tenant,
            connections: Vec::new(),
            destinations: Vec::new(),
            role: None,
            run: None,
            automation: None,
            class: None,
            sources: Vec::new(),
            calls_max: None,
        }
    }

    /// Signs it, from now on for so long, under an id of 128 random bits.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn mint(&self, key: &SigningKey, now_unix_ms: u64, ttl: Duration) -> Result<Minted, Unspecified> {
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random)?;
        let id = BASE64URL_NOPAD.encode(&random);
        // Rounded down, so that it is valid from this moment.
        let issued_at = now_unix_ms / 1000;
        let expires_at = issued_at.saturating_add(ttl.as_secs());
        let whole = Whole { grant: self, issued_at, not_before: issued_at, expires_at, id: &id };
        let claims = serde_json::to_vec(&whole).map_err(|_| Unspecified)?;
        let header = format!(r#"{{"alg":"EdDSA","typ":"JWT","kid":"{}"}}"#, key.public().thumbprint());
        Ok(Minted { token: sign(key, header.as_bytes(), &claims), id: id.into(), expires_unix_ms: expires_at * 1000 })
    }
}

/// A grant, and what its holder may want to know of it.
#[derive(Debug)]
pub struct Minted {
    /// The JWT.
    pub token: Secret,
    /// `jti`.
    pub id: Box<str>,
    /// When it ends, in Unix milliseconds.
    pub expires_unix_ms: u64,
}

#[derive(Serialize)]
struct Whole<'g> {
    #[serde(flatten)]
    grant: &'g NewGrant,
    #[serde(rename = "iat")]
    issued_at: u64,
    #[serde(rename = "nbf")]
    not_before: u64,
    #[serde(rename = "exp")]
    expires_at: u64,
    #[serde(rename = "jti")]
    id: &'g str,
}

/// The compact form of RFC 7515 3.1.
pub(super) fn sign(key: &SigningKey, header: &[u8], claims: &[u8]) -> Secret {
    let mut token = format!("{}.{}", BASE64URL_NOPAD.encode(header), BASE64URL_NOPAD.encode(claims));
    let signature = key.sign(token.as_bytes());
    token.push('.');
    BASE64URL_NOPAD.encode_append(&signature, &mut token);
    Secret::new(token.into_bytes())
}
