//! The inverse: what the provider would send.

use std::sync::Arc;

use config::scheme::{Condition, ValueSource};
use ring::digest;

use super::content::{Frame, sorted_form};
use super::delivery::{Occurrence, Unverified, only};
use super::encoding;
use super::fault::{SignFault, VerifyFault};
use super::judge::Signer;
use super::key::{Key, algorithm};
use super::program::{CaseProgram, Engine, Proof, Scheme, Signature};
use super::source::{self, Beside};
use super::stamp;
use super::template::Piece;
use super::url::SeenUrl;
use super::verify::applies;

/// A delivery before the provider signs it.
#[derive(Debug, Clone, Copy)]
pub struct Unsigned<'a> {
    pub method: &'a str,
    /// In origin form.
    pub target: &'a str,
    pub url: SeenUrl<'a>,
    /// Headers that it has anyway. What stands here is not made up.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
}

/// What signing adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// To be sent beside the headers that were there.
    pub headers: Vec<(String, String)>,
    /// To be sent in place of the target that was there.
    pub target: Option<String>,
}

impl Scheme {
    /// Signs as the provider would, at the given time. Deterministic, but for ECDSA: an id that is not given is made of the
    /// rest.
    pub fn sign(&self, unsigned: &Unsigned<'_>, key: &Key, at_unix_ms: u64) -> Result<Signed, SignFault> {
        let mut draft = Draft { unsigned, headers: Vec::new(), target: unsigned.target.to_owned() };
        draft.content_type(self);
        for rule in &self.declaration.require {
            if let Some(text) = rule.equals.first() {
                draft.header(&rule.header, text);
            }
        }
        if let Some(ValueSource::Header(name)) = &self.declaration.delivery_id {
            draft.header(name, &made_up_id(unsigned, at_unix_ms));
        }
        let timestamp = self.timestamp_to_sign(&mut draft, at_unix_ms)?;
        let mut list_key = None;
        let text = match &self.proof {
            Proof::Token => String::from_utf8_lossy(key.secret().ok_or(SignFault::NoPrivateKey)?).into_owned(),
            Proof::Jwt(jwt) => self.sign_jwt(jwt, &draft, key, at_unix_ms)?,
            Proof::Signature(signature) => {
                let signer = signature.signer(key).ok_or(SignFault::NoPrivateKey)?;
                list_key = signer.list_key;
                self.sign_content(signature, signer.engine, &mut draft, key, timestamp.as_deref())?
            }
        };
        let text = format!("{}{text}", String::from_utf8_lossy(&self.place.prefix));
        let text = match &self.place.layout {
            None => text,
            Some(layout) => {
                let field = match &self.timestamp {
                    Some(stamp) => match (&stamp.source.place, &timestamp) {
                        (source::Place::Field(name), Some(value)) => Some((name.as_bytes(), value.as_str())),
                        _ => None,
                    },
                    None => None,
                };
                layout.write(list_key, field.as_slice(), &text)
            }
        };
        self.place_signature(&mut draft, text)?;
        let target = (draft.target != unsigned.target).then_some(draft.target);
        Ok(Signed { headers: draft.headers, target })
    }

    /// Puts the timestamp where it goes, and returns its text.
    fn timestamp_to_sign(&self, draft: &mut Draft<'_>, at_unix_ms: u64) -> Result<Option<String>, SignFault> {
        let (Some(stamp), Some(rule)) = (&self.timestamp, &self.declaration.timestamp) else { return Ok(None) };
        let text =
            stamp::write(stamp.format, at_unix_ms).ok_or_else(|| SignFault::Needs(Arc::clone(&stamp.source.what)))?;
        match &rule.from {
            ValueSource::Header(name) => Ok(Some(draft.header(name, &text))),
            ValueSource::Field(_) | ValueSource::Claim(_) => Ok(Some(text)),
            ValueSource::Item(_) => Err(SignFault::InBody),
            ValueSource::Query(_) | ValueSource::Form(_) | ValueSource::Json(_) => {
                // It is the body's own: read, not written.
                let given = stamp.source.value(&draft.delivery(), Beside::default()).map_err(SignFault::Unreadable)?;
                match given {
                    Some(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
                    None if stamp.required => Err(SignFault::Needs(Arc::clone(&stamp.source.what))),
                    None => Ok(None),
                }
            }
        }
    }

    fn sign_content(
        &self,
        signature: &Signature,
        engine: Engine,
        draft: &mut Draft<'_>,
        key: &Key,
        timestamp: Option<&str>,
    ) -> Result<String, SignFault> {
        let case = draft.case(signature)?;
        if let Some((source, rule)) = &case.body_digest {
            let digest = digest::digest(algorithm(rule.hash), draft.unsigned.body);
            let text = encoding::encode(rule.encoding, digest.as_ref());
            match &rule.from {
                ValueSource::Header(name) => drop(draft.header(name, &text)),
                ValueSource::Query(name) => draft.query(name, &text),
                ValueSource::Form(_)
                | ValueSource::Json(_)
                | ValueSource::Field(_)
                | ValueSource::Claim(_)
                | ValueSource::Item(_) => {
                    return Err(SignFault::Needs(Arc::clone(&source.what)));
                }
            }
        }
        draft.list_headers(case);
        let form = sorted_form(&case.pieces, draft.unsigned.body).map_err(SignFault::Unreadable)?;
        let delivery = draft.delivery();
        let frame = Frame {
            delivery: &delivery,
            beside: Beside::default(),
            timestamp: timestamp.map(str::as_bytes),
            delivery_id: self.delivery_id.as_ref(),
            form: form.as_ref(),
            url_decodes: &signature.url.decodes,
            url_variant: signature.url.variants[0],
        };
        match engine {
            Engine::Digest(engine) => {
                let secret = key.secret().ok_or(SignFault::NoPrivateKey)?;
                let digest = engine.digest(secret, |out| frame.write(&case.pieces, secret, out)).map_err(unsignable)?;
                Ok(encoding::encode(signature.encoding, &digest[..engine.digest_bytes()]))
            }
            Engine::Public(algorithm) => {
                let mut message = Vec::new();
                frame.write(&case.pieces, b"", &mut |part| message.extend_from_slice(part)).map_err(unsignable)?;
                let made = key.public().and_then(|pair| pair.sign(algorithm, &message));
                Ok(encoding::encode(signature.encoding, &made.ok_or(SignFault::NoPrivateKey)?))
            }
        }
    }

    fn place_signature(&self, draft: &mut Draft<'_>, text: String) -> Result<(), SignFault> {
        let rule = &self.declaration.signature;
        let first = rule.header.as_ref().or_else(|| rule.headers.first()).cloned();
        let name = first.or_else(|| rule.numbered.as_ref().map(|stem| format!("{stem}1")));
        let name = match (&name, &rule.from) {
            (Some(name), _) | (None, Some(ValueSource::Header(name))) => name.clone(),
            (None, Some(ValueSource::Query(name))) => {
                draft.query(name, &text);
                return Ok(());
            }
            (None, _) => return Err(SignFault::InBody),
        };
        draft.headers.push((name, text));
        Ok(())
    }
}

pub(super) fn unsignable(fault: VerifyFault) -> SignFault {
    if let VerifyFault::Missing { what } = fault { SignFault::Needs(what) } else { SignFault::Unreadable(fault) }
}

impl Signature {
    /// The algorithm that a key is for.
    fn signer(&self, key: &Key) -> Option<Signer<'_>> {
        let own = Signer { engine: self.engine, list_key: None };
        let also = self
            .also
            .as_ref()
            .map(|also| Signer { engine: Engine::Public(also.algorithm), list_key: Some(&also.list_key) });
        std::iter::once(own).chain(also).find(|signer| signer.takes(key))
    }
}

/// A delivery while it is being signed.
pub(super) struct Draft<'u> {
    pub(super) unsigned: &'u Unsigned<'u>,
    headers: Vec<(String, String)>,
    target: String,
}

impl super::delivery::Headers for Draft<'_> {
    fn visit<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        let all = self.unsigned.headers.iter().chain(&self.headers);
        all.filter(|(n, _)| n.eq_ignore_ascii_case(name)).for_each(|(_, v)| each(v.as_bytes()));
    }
}

impl Draft<'_> {
    pub(super) fn delivery(&self) -> Unverified<'_> {
        Unverified {
            method: self.unsigned.method.as_bytes(),
            target: self.target.as_bytes(),
            url: self.unsigned.url,
            headers: self,
            body: self.unsigned.body,
            received_unix_ms: 0,
        }
    }

    /// Adds a header where it is not given, and returns what it says.
    fn header(&mut self, name: &str, value: &str) -> String {
        match only(self, &name.to_ascii_lowercase()) {
            Occurrence::Once(given) => String::from_utf8_lossy(given).into_owned(),
            Occurrence::None | Occurrence::Several => {
                self.headers.push((name.to_owned(), value.to_owned()));
                value.to_owned()
            }
        }
    }

    /// Lists the headers that have to be signed, where the provider lists them and nobody has.
    fn list_headers(&mut self, case: &CaseProgram) {
        for piece in &case.pieces {
            if let Piece::ListedHeaders { list: source::Source { place: source::Place::Header(name), .. }, musts } =
                piece
            {
                self.header(name, &musts.join(","));
            }
        }
    }

    fn query(&mut self, name: &str, value: &str) {
        let glue = if self.target.contains('?') { '&' } else { '?' };
        let escaped: String = value.bytes().map(escape).collect();
        self.target = format!("{}{glue}{name}={escaped}", self.target);
    }

    /// What a provider would say that the body is.
    fn content_type(&mut self, scheme: &Scheme) {
        if self.unsigned.body.is_empty() {
            return;
        }
        let json = matches!(self.unsigned.body.trim_ascii_start().first(), Some(b'{' | b'['));
        let forms = match &scheme.proof {
            Proof::Signature(signature) => signature.cases.iter().any(|case| case.when == Some(Condition::Form)),
            Proof::Jwt(_) | Proof::Token => false,
        };
        let declared = scheme.declaration.body.content_types.first();
        let guess = match declared {
            Some(declared) => declared,
            None if forms && !json => "application/x-www-form-urlencoded",
            None => "application/json",
        };
        self.header("Content-Type", guess);
    }

    /// The case that such a delivery falls under; else the first that signing can make apply.
    fn case<'m>(&self, signature: &'m Signature) -> Result<&'m CaseProgram, SignFault> {
        let delivery = self.delivery();
        let fits = signature.cases.iter().find(|case| applies(case.when.as_ref(), &delivery));
        let made = || {
            signature.cases.iter().find(|case| match (&case.when, &case.body_digest) {
                (Some(Condition::Query(when)), Some((_, digest))) => digest.from == ValueSource::Query(when.clone()),
                (Some(Condition::Header(when)), Some((_, digest))) => digest.from == ValueSource::Header(when.clone()),
                _ => false,
            })
        };
        fits.or_else(made).ok_or(SignFault::NoCase)
    }
}

fn escape(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

/// An id such as a provider would give, the same for the same delivery and time.
pub(super) fn made_up_id(unsigned: &Unsigned<'_>, at_unix_ms: u64) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&at_unix_ms.to_be_bytes());
    context.update(unsigned.target.as_bytes());
    context.update(unsigned.body);
    let digest = context.finish();
    format!("msg_{}", data_encoding::HEXLOWER.encode(&digest.as_ref()[..12]))
}
