//! JWTs (RFC 7519) as proofs, and nothing of what a JWT can choose (RFC 8725).
//!
//! The algorithm is the scheme's, and `alg` is only compared with it: `none` is no algorithm here, and a public key never keys
//! an HMAC, since a key is of one kind from the start. The key is the endpoint's: `kid` is not looked at, and no address in a
//! token (`jku`, `x5u`) or key in it (`jwk`, `x5c`) either. Claims are read only when the signature fits. Where a claim is
//! the hash of the body, the token covers that; else it proves the sender and no more.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::UrlVariant;
use domain::json::{self, Members, Value};
use domain::jwt::{self, Compact};
use ring::{digest, hmac};

use super::content::{Frame, sorted_form};
use super::delivery::{ActiveKey, Unverified};
use super::encoding::{self, DIGEST_BYTES_MAX};
use super::fault::VerifyFault;
use super::key::{Key, algorithm};
use super::program::{At, Claim, Expects, Jwt, Scheme};
use super::source::{Beside, scalar};
use super::verify::{Fit, applies};

/// Longest token that is looked at, in bytes: header fields hold no longer ones.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The year 10000, in seconds: times beyond are mistakes, such as milliseconds.
const SECONDS_END: u64 = 253_402_300_800;

impl Scheme {
    pub(super) fn verify_jwt(
        &self,
        jwt: &Jwt,
        delivery: &Unverified<'_>,
        keys: &[ActiveKey<'_>],
    ) -> Result<Fit, VerifyFault> {
        let At::One(source) = &self.place.at else { return Err(self.place.malformed()) };
        let text = source.value(delivery, Beside::default())?.ok_or_else(|| source.missing())?;
        let text = self.place.strip_prefix(&text).filter(|text| text.len() <= TOKEN_BYTES_MAX);
        let token = text.and_then(Compact::split).ok_or_else(|| source.malformed())?;
        let header = part(token.header).ok_or_else(|| source.malformed())?;
        jwt.accepts(&header)?;
        let signature = jwt::decoded(token.signature).ok_or_else(|| source.malformed())?;
        let fits = keys.iter().find(|key| jwt.fits(key.key, token.signed, &signature));
        let key_index = fits.ok_or(VerifyFault::Mismatch)?.index;

        let claims = part(token.payload).ok_or_else(|| source.malformed())?;
        jwt.check_times(&claims, delivery.received_unix_ms)?;
        let beside = Beside { claims: Some(&claims), ..Beside::default() };
        let signed_at_unix_ms = match &self.timestamp {
            Some(stamp) => stamp.read(delivery, beside)?.unix_ms,
            None => None,
        };
        for claim in &jwt.claims {
            self.check_claim(jwt, claim, delivery, &claims)?;
        }
        Ok(Fit { key_index, signed_at_unix_ms, claims: Some(claims) })
    }

    fn check_claim(
        &self,
        jwt: &Jwt,
        claim: &Claim,
        delivery: &Unverified<'_>,
        claims: &Members,
    ) -> Result<(), VerifyFault> {
        let requirement = || VerifyFault::Requirement { what: Arc::clone(&claim.source.what) };
        let found = json::member(claims, &claim.name);
        if !applies(claim.when.as_ref(), delivery) {
            return if found.is_some() { Err(requirement()) } else { Ok(()) };
        }
        let Some(found) = found else {
            return if claim.optional { Ok(()) } else { Err(claim.source.missing()) };
        };
        let texts = texts(&claim.name, found).ok_or_else(|| claim.source.malformed())?;
        match &claim.expects {
            Expects::OneOf(all) => {
                let fits = texts.iter().any(|text| all.iter().any(|one| **one == **text));
                if fits { Ok(()) } else { Err(requirement()) }
            }
            Expects::Content { pieces, hash, has_url, has_body } => {
                let form = sorted_form(pieces, delivery.body)?;
                let variants = if *has_url { &*jwt.url.variants } else { &[UrlVariant::AsSeen] };
                for variant in variants {
                    let frame = Frame {
                        delivery,
                        beside: Beside::default(),
                        timestamp: None,
                        delivery_id: self.delivery_id.as_ref(),
                        form: form.as_ref(),
                        url_decodes: &jwt.url.decodes,
                        url_variant: *variant,
                    };
                    let fits = if let Some((hash, encoding)) = hash {
                        let mut context = digest::Context::new(algorithm(*hash));
                        frame.write(pieces, b"", &mut |bytes| context.update(bytes))?;
                        let actual = context.finish();
                        texts.iter().any(|text| {
                            let mut claimed = [0; DIGEST_BYTES_MAX];
                            let claimed = &mut claimed[..actual.as_ref().len()];
                            encoding::decode(*encoding, text, claimed) && *claimed == *actual.as_ref()
                        })
                    } else {
                        let mut content = Vec::new();
                        frame.write(pieces, b"", &mut |bytes| content.extend_from_slice(bytes))?;
                        texts.iter().any(|text| **text == *content)
                    };
                    if fits {
                        return Ok(());
                    }
                }
                Err(if *has_body { VerifyFault::BodyDigest } else { requirement() })
            }
        }
    }
}

impl Jwt {
    /// Is it a token of this scheme's kind? What else its header says is not looked at, but for what must be understood.
    fn accepts(&self, header: &Members) -> Result<(), VerifyFault> {
        let requirement = |what: &str| VerifyFault::Requirement { what: what.into() };
        let is_known = |name: &str| {
            // RFC 9864 gives the same algorithm another name.
            name == self.name || self.name == "EdDSA" && name == "Ed25519"
        };
        let is_named = matches!(json::member(header, "alg"), Some(Value::Text(name)) if is_known(name));
        if !is_named {
            return Err(requirement("algorithm of the token"));
        }
        // RFC 7515 4.1.11: extensions that have to be understood. None is; the payload could mean something else.
        if json::member(header, "crit").is_some() || json::member(header, "b64").is_some() {
            return Err(requirement("header of the token"));
        }
        Ok(())
    }

    fn fits(&self, key: &Key, signed: &[u8], signature: &[u8]) -> bool {
        match (self.algorithm, key.secret(), key.public()) {
            (None, Some(secret), _) => {
                hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed, signature).is_ok()
            }
            (Some(algorithm), _, Some(pair)) => pair.verifies(algorithm, signed, signature),
            (None, None, _) | (Some(_), _, None) => false,
        }
    }

    /// `exp` is the first moment at which the token is good no more, `nbf` the first at which it is (RFC 7519 4.1).
    fn check_times(&self, claims: &Members, now_unix_ms: u64) -> Result<(), VerifyFault> {
        let ends = time(claims, "exp")?;
        if let Some(exp) = ends
            && now_unix_ms >= exp.saturating_add(self.leeway_ms)
        {
            return Err(VerifyFault::TooOld { by_ms: now_unix_ms - exp.saturating_add(self.leeway_ms) + 1 });
        }
        if ends.is_none() && self.expires {
            return Err(VerifyFault::Missing { what: "claim exp of the token".into() });
        }
        match time(claims, "nbf")? {
            Some(nbf) if nbf > now_unix_ms.saturating_add(self.leeway_ms) => {
                Err(VerifyFault::InFuture { by_ms: nbf - now_unix_ms.saturating_add(self.leeway_ms) })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A part that is one JSON object, in one reading.
fn part(text: &[u8]) -> Option<Members> {
    json::object(&jwt::decoded(text)?).ok()
}

/// Whole seconds, as milliseconds.
fn time(claims: &Members, name: &str) -> Result<Option<u64>, VerifyFault> {
    match json::member(claims, name) {
        None => Ok(None),
        Some(Value::Whole(seconds)) if *seconds < SECONDS_END => Ok(Some(*seconds * 1_000)),
        Some(_) => Err(VerifyFault::Malformed { what: format!("claim {name} of the token").into() }),
    }
}

/// What a claim says. Of an audience one is enough (RFC 7519 4.1.3).
fn texts<'v>(name: &str, value: &'v Value) -> Option<Vec<Cow<'v, [u8]>>> {
    match value {
        Value::List(list) if name == "aud" => list.iter().map(scalar).collect(),
        Value::Text(_) | Value::Whole(_) | Value::Flag(_) | Value::List(_) | Value::Members(_) | Value::Other => {
            Some(vec![scalar(value)?])
        }
    }
}
