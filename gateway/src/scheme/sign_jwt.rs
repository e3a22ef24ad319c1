//! The JWT that a provider would send.

use std::fmt::Write as _;

use config::scheme::ValueSource;
use data_encoding::BASE64URL_NOPAD;
use ring::{digest, hmac};

use super::content::{Frame, sorted_form};
use super::encoding;
use super::fault::SignFault;
use super::key::{Key, algorithm};
use super::program::{Expects, Jwt, Scheme};
use super::sign::{Draft, made_up_id, unsignable};
use super::source::Beside;
use super::verify::applies;

/// How long a token that is made here is good, in seconds.
const LIFETIME_SECONDS: u64 = 60;

impl Scheme {
    pub(super) fn sign_jwt(
        &self,
        jwt: &Jwt,
        draft: &Draft<'_>,
        key: &Key,
        at_unix_ms: u64,
    ) -> Result<String, SignFault> {
        let seconds = at_unix_ms / 1_000;
        let mut claims = format!(r#"{{"iat":{seconds},"exp":{}"#, seconds + LIFETIME_SECONDS);
        for (name, value) in self.claims_to_sign(jwt, draft, at_unix_ms)? {
            let text = |text: &str| serde_json::Value::from(text);
            // Writing to a string does not fail.
            _ = write!(claims, ",{}:{}", text(&name), text(&value));
        }
        claims.push('}');
        let header = format!(r#"{{"alg":"{}","typ":"JWT"}}"#, jwt.name);
        let encoded = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let signed = format!("{}.{}", encoded(&header), encoded(&claims));
        let signature = match jwt.algorithm {
            None => key.secret().map(|secret| {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes()).as_ref().to_vec()
            }),
            Some(algorithm) => key.public().and_then(|pair| pair.sign(algorithm, signed.as_bytes())),
        };
        let signature = signature.ok_or(SignFault::NoPrivateKey)?;
        Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
    }

    fn claims_to_sign(
        &self,
        jwt: &Jwt,
        draft: &Draft<'_>,
        at_unix_ms: u64,
    ) -> Result<Vec<(String, String)>, SignFault> {
        let delivery = draft.delivery();
        let mut all = Vec::new();
        for claim in jwt.claims.iter().filter(|claim| applies(claim.when.as_ref(), &delivery)) {
            let value = match &claim.expects {
                Expects::OneOf(texts) => texts.first().map(|text| String::from_utf8_lossy(text).into_owned()),
                Expects::Content { pieces, hash, .. } => {
                    let form = sorted_form(pieces, delivery.body).map_err(SignFault::Unreadable)?;
                    let frame = Frame {
                        delivery: &delivery,
                        beside: Beside::default(),
                        timestamp: None,
                        delivery_id: None,
                        form: form.as_ref(),
                        url_decodes: &jwt.url.decodes,
                        url_variant: jwt.url.variants[0],
                    };
                    let mut content = Vec::new();
                    frame.write(pieces, b"", &mut |part| content.extend_from_slice(part)).map_err(unsignable)?;
                    Some(match hash {
                        Some((hash, encoding)) => {
                            encoding::encode(*encoding, digest::digest(algorithm(*hash), &content).as_ref())
                        }
                        None => String::from_utf8_lossy(&content).into_owned(),
                    })
                }
            };
            all.extend(value.map(|value| (claim.name.to_string(), value)));
        }
        if let Some(ValueSource::Claim(name)) = &self.declaration.delivery_id {
            all.push((name.clone(), made_up_id(draft.unsigned, at_unix_ms)));
        }
        Ok(all)
    }
}
