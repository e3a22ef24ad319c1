//! The verdict: cheap checks first, then one signature per key, then what only a fitting signature makes worth reading.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::{Condition, TimestampFormat};
use domain::json::{self as strict, Members};
use ring::digest;
use subtle::ConstantTimeEq;

use super::content::{DELIVERY_ID_BYTES_MAX, sorted_form};
use super::delivery::{ActiveKey, DeliveryId, Occurrence, PUBLISHED, Unverified, Verified, only};
use super::fault::VerifyFault;
use super::form;
use super::json;
use super::judge::{Judge, Signer};
use super::list::List;
use super::program::{At, Engine, Place, Proof, Scheme, Signature, Stamp};
use super::source::{self, Beside, Source};
use super::stamp;

/// More lists in one header than any provider sends. Each costs a digest over the body for every key, so that a forger must
/// not choose their number.
const GROUPS_MAX: usize = 4;

/// Items that one body may have, each with a signature, and the largest body that is read for them before anything is proven.
/// Adyen sends one item in JSON, and six at most.
const ITEMS_MAX: usize = 64;
const ITEMS_BODY_BYTES_MAX: usize = 1 << 18;

/// An id in a larger body is not looked for: it is a hint, and not worth reading megabytes for.
const ID_BODY_BYTES_MAX: usize = 1 << 20;

/// What was found when a signature fitted.
pub(super) struct Fit {
    pub(super) key_index: usize,
    pub(super) signed_at_unix_ms: Option<u64>,
    /// What the token says, where the proof is one.
    pub(super) claims: Option<Members>,
}

/// A delivery's timestamp: as it is written, and as it is meant.
#[derive(Default)]
pub(super) struct Stamped<'t> {
    pub(super) text: Option<Cow<'t, [u8]>>,
    pub(super) unix_ms: Option<u64>,
}

impl Scheme {
    /// Judges a delivery. Pure: same bytes, keys and clock, same verdict.
    pub fn verify(&self, delivery: &Unverified<'_>, keys: &[ActiveKey<'_>]) -> Result<Verified, VerifyFault> {
        if self.published.is_empty() {
            return self.verify_by(delivery, keys);
        }
        let published = self.published.iter().map(|key| ActiveKey { index: PUBLISHED, key });
        let keys: Vec<_> = keys.iter().copied().chain(published).collect();
        self.verify_by(delivery, &keys)
    }

    fn verify_by(&self, delivery: &Unverified<'_>, keys: &[ActiveKey<'_>]) -> Result<Verified, VerifyFault> {
        if keys.is_empty() {
            return Err(VerifyFault::NoActiveKey);
        }
        self.check_rules(delivery)?;
        let fit = match &self.proof {
            Proof::Signature(signature) => self.verify_signature(signature, delivery, keys)?,
            Proof::Jwt(jwt) => self.verify_jwt(jwt, delivery, keys)?,
            Proof::Token => self.verify_token(delivery, keys)?,
        };
        Ok(Verified {
            key_index: fit.key_index,
            delivery_id: self.delivery_id(delivery, fit.claims.as_ref()),
            signed_at_unix_ms: fit.signed_at_unix_ms,
            covers_body: self.covers_body,
            once: self.once_of(delivery)?,
        })
    }

    /// The digest of what proves this delivery and no other one.
    fn once_of(&self, delivery: &Unverified<'_>) -> Result<Option<[u8; 16]>, VerifyFault> {
        let Some(source) = &self.once else { return Ok(None) };
        let value = source.value(delivery, Beside::default())?.ok_or_else(|| source.missing())?;
        let digest = digest::digest(&digest::SHA256, &value);
        Ok(digest.as_ref()[..16].try_into().ok())
    }

    fn check_rules(&self, delivery: &Unverified<'_>) -> Result<(), VerifyFault> {
        if self.declaration.body.required && delivery.body.is_empty() {
            return Err(VerifyFault::BodyRule);
        }
        if !self.content_types.is_empty() {
            let fits = media_type(delivery).is_some_and(|t| self.content_types.iter().any(|fit| **fit == *t));
            if !fits {
                return Err(VerifyFault::BodyRule);
            }
        }
        if !self.fields.is_empty() {
            let fields = form::fields(delivery.body).map_err(|_| VerifyFault::BodyRule)?;
            let known = |(name, _): &form::Field<'_>| self.fields.iter().any(|field| *field.as_bytes() == **name);
            // As many as there should be, and each one known: with one twice, another is missing and is said so.
            if fields.len() != self.fields.len() || !fields.iter().all(known) {
                return Err(VerifyFault::BodyRule);
            }
        }
        for rule in &self.requirements {
            match rule.source.value(delivery, Beside::default())? {
                None if rule.optional => {}
                None => return Err(rule.source.missing()),
                Some(value) if rule.equals.iter().any(|fit| **fit == *value) => {}
                Some(_) => return Err(VerifyFault::Requirement { what: Arc::clone(&rule.source.what) }),
            }
        }
        Ok(())
    }

    /// By whichever of the scheme's algorithms there are keys for.
    fn verify_signature(
        &self,
        signature: &Signature,
        delivery: &Unverified<'_>,
        keys: &[ActiveKey<'_>],
    ) -> Result<Fit, VerifyFault> {
        let case = signature.cases.iter().find(|case| applies(case.when.as_ref(), delivery));
        let case = case.ok_or(VerifyFault::BodyRule)?;
        let form = sorted_form(&case.pieces, delivery.body)?;
        let own = Signer { engine: signature.engine, list_key: None };
        let also = signature
            .also
            .as_ref()
            .map(|also| Signer { engine: Engine::Public(also.algorithm), list_key: Some(&also.list_key) });
        let mut worst = VerifyFault::NoActiveKey;
        for signer in std::iter::once(own).chain(also) {
            if !keys.iter().any(|key| signer.takes(key.key)) {
                continue;
            }
            let judge = Judge { scheme: self, signature, signer, case, form: form.as_ref(), delivery, keys };
            match self.judge_place(&judge) {
                // Whoever asks for a handshake chooses what its digest is made of: such a one proves nothing.
                Ok(_) if self.may_be_challenge(case, delivery) => return Err(VerifyFault::BodyRule),
                Ok(fit) => return Ok(fit),
                Err(fault) if fault.weight() >= worst.weight() => worst = fault,
                Err(_) => {}
            }
        }
        Err(worst)
    }

    /// Finds the signatures where the scheme has them, and judges each set of them.
    fn judge_place(&self, judge: &Judge<'_, '_>) -> Result<Fit, VerifyFault> {
        let missing = || VerifyFault::Missing { what: Arc::clone(&self.place.what) };
        let (delivery, list_key) = (judge.delivery, judge.signer.list_key);
        match &self.place.at {
            At::One(source) if self.place.each.is_some() => self.judge_each(judge, source),
            At::One(source) => {
                let text = source.value(delivery, Beside::default())?.ok_or_else(missing)?;
                match &self.place.layout {
                    None => judge.judge(Beside::default(), std::iter::once(&*text)),
                    Some(layout) => {
                        let mut worst = missing();
                        let ends = |b: &u8| layout.groups == Some(*b);
                        for (at, group) in text.split(ends).enumerate() {
                            if at == GROUPS_MAX {
                                return Err(self.place.malformed());
                            }
                            let list = List::new(layout, group);
                            let beside = Beside { list: Some(list), ..Beside::default() };
                            match judge.judge(beside, list.signatures(list_key)) {
                                Ok(fit) => return Ok(fit),
                                Err(fault) if fault.weight() >= worst.weight() => worst = fault,
                                Err(_) => {}
                            }
                        }
                        Err(worst)
                    }
                }
            }
            At::Several { sources, dense } => {
                let mut texts = Vec::new();
                for source in sources {
                    match source.value(delivery, Beside::default())? {
                        Some(text) => texts.push(text),
                        None if *dense => break,
                        None => {}
                    }
                }
                match &self.place.layout {
                    None => judge.judge(Beside::default(), texts.iter().map(|text| &**text)),
                    Some(layout) => {
                        let lists = texts.iter().map(|text| List::new(layout, text));
                        judge.judge(Beside::default(), lists.flat_map(|list| list.signatures(list_key)))
                    }
                }
            }
        }
    }

    /// Every item of the body has a signature of its own, and every one has to fit.
    fn judge_each(&self, judge: &Judge<'_, '_>, source: &Source) -> Result<Fit, VerifyFault> {
        let missing = || VerifyFault::Missing { what: Arc::clone(&self.place.what) };
        let body = judge.delivery.body;
        if body.len() > ITEMS_BODY_BYTES_MAX {
            return Err(self.place.malformed());
        }
        let read = strict::value(body).map_err(|fault| match fault {
            strict::Fault::Twice => VerifyFault::Duplicate { what: Arc::clone(&self.place.what) },
            strict::Fault::NotAnObject | strict::Fault::TooMany => self.place.malformed(),
        })?;
        let items = self.place.each.as_ref().and_then(|path| source::objects(&read, path));
        let items = items.ok_or_else(missing)?;
        if items.len() > ITEMS_MAX {
            return Err(self.place.malformed());
        }
        let mut first = None;
        for item in items {
            let beside = Beside { item: Some(item), ..Beside::default() };
            let text = source.value(judge.delivery, beside)?.ok_or_else(missing)?;
            let fit = judge.judge(beside, std::iter::once(&*text))?;
            first.get_or_insert(fit);
        }
        first.ok_or_else(missing)
    }

    fn verify_token(&self, delivery: &Unverified<'_>, keys: &[ActiveKey<'_>]) -> Result<Fit, VerifyFault> {
        let At::One(source) = &self.place.at else { return Err(self.place.malformed()) };
        let values = source.values(delivery)?;
        if values.is_empty() {
            return Err(source.missing());
        }
        // Digests have one length: the time of comparing them tells nothing of the secret's.
        let digests: Vec<_> = values
            .iter()
            .map(|value| self.place.strip_prefix(value).map(|token| digest::digest(&digest::SHA256, token)))
            .collect::<Option<_>>()
            .ok_or_else(|| source.malformed())?;
        for ActiveKey { index, key } in keys {
            let Some(secret) = key.secret() else { continue };
            let secret = digest::digest(&digest::SHA256, secret);
            let fits = digests
                .iter()
                .fold(subtle::Choice::from(1), |fits, digest| fits & digest.as_ref().ct_eq(secret.as_ref()));
            if bool::from(fits) {
                return Ok(Fit { key_index: *index, signed_at_unix_ms: None, claims: None });
            }
        }
        Err(VerifyFault::Mismatch)
    }

    fn delivery_id(&self, delivery: &Unverified<'_>, claims: Option<&Members>) -> Option<DeliveryId> {
        let source = self.delivery_id.as_ref()?;
        let value: Box<[u8]> = match &source.place {
            source::Place::Json(_) | source::Place::Form(_) if delivery.body.len() > ID_BODY_BYTES_MAX => return None,
            source::Place::Json(path) => json::first(delivery.body, path)?,
            // A duplicated id is no id, and no reason to refuse what is proven.
            source::Place::Header(_)
            | source::Place::Query(_)
            | source::Place::Form(_)
            | source::Place::Field(_)
            | source::Place::Claim(_)
            | source::Place::Item(_) => source.value(delivery, Beside { claims, ..Beside::default() }).ok()??.into(),
        };
        let fits = !value.is_empty() && value.len() <= DELIVERY_ID_BYTES_MAX;
        fits.then_some(DeliveryId { value, signed: self.delivery_id_signed })
    }
}

impl Stamp {
    /// The timestamp's text and moment, if it is near enough to now.
    pub(super) fn read<'t>(&self, delivery: &Unverified<'t>, beside: Beside<'t>) -> Result<Stamped<'t>, VerifyFault> {
        let Some(text) = self.source.value(delivery, beside)? else {
            return if self.required { Err(self.source.missing()) } else { Ok(Stamped::default()) };
        };
        if self.format == TimestampFormat::Opaque {
            return Ok(Stamped { text: Some(text), unix_ms: None });
        }
        let signed = stamp::read(self.format, &text).ok_or_else(|| self.source.malformed())?;
        self.tolerance.judge(signed, delivery.received_unix_ms)?;
        Ok(Stamped { text: Some(text), unix_ms: Some(signed) })
    }
}

impl Place {
    pub(super) fn malformed(&self) -> VerifyFault {
        VerifyFault::Malformed { what: Arc::clone(&self.what) }
    }

    pub(super) fn strip_prefix<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let (start, rest) = text.split_at_checked(self.prefix.len())?;
        let fits = *start == *self.prefix || self.prefix_ignores_case && start.eq_ignore_ascii_case(&self.prefix);
        fits.then_some(rest)
    }
}

/// Does a case apply? A condition that cannot be read in one way does not hold.
pub(super) fn applies(when: Option<&Condition>, delivery: &Unverified<'_>) -> bool {
    match when {
        None => true,
        Some(Condition::Header(name)) => only(delivery.headers, &name.to_ascii_lowercase()) != Occurrence::None,
        Some(Condition::Query(name)) => !matches!(form::parameter(delivery.target, name.as_bytes()), Ok(None)),
        Some(Condition::ContentType(name)) => media_type(delivery).is_some_and(|t| t == *name),
        Some(Condition::Form) => match only(delivery.headers, "content-type") {
            Occurrence::None => true,
            Occurrence::Once(_) => media_type(delivery).is_some_and(|t| t == "application/x-www-form-urlencoded"),
            Occurrence::Several => false,
        },
        Some(Condition::EmptyBody) => delivery.body.is_empty(),
        Some(Condition::Body) => !delivery.body.is_empty(),
    }
}

/// The media type without its parameters, in lower case.
pub(super) fn media_type(delivery: &Unverified<'_>) -> Option<String> {
    let Occurrence::Once(value) = only(delivery.headers, "content-type") else { return None };
    let bare = value.split(|b| *b == b';').next()?.trim_ascii();
    std::str::from_utf8(bare).ok().map(str::to_ascii_lowercase)
}
