//! The verdict: cheap checks first, then one digest per key, then what only a fitting signature makes worth reading.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::{BodyDigest, Condition, TimestampFormat, UrlVariant};
use ring::digest;
use subtle::ConstantTimeEq;

use super::content::{DELIVERY_ID_BYTES_MAX, Frame, SortedForm, sorted_form};
use super::delivery::{ActiveKey, DeliveryId, Occurrence, Unverified, Verified, only};
use super::encoding::{self, DIGEST_BYTES_MAX};
use super::fault::VerifyFault;
use super::json;
use super::key::algorithm;
use super::list::List;
use super::program::{At, CaseProgram, Mac, Place, Proof, Scheme, Stamp};
use super::source::{self, Source};
use super::stamp;

/// More lists in one header, or more signatures in one list, than any provider sends. Each list costs a digest over
/// the body for every key, so that a forger must not choose their number.
const GROUPS_MAX: usize = 4;
const SIGNATURES_MAX: usize = 128;

/// Signatures that are decoded without allocation.
const SIGNATURES_INLINE: usize = 4;

/// An id in a larger body is not looked for: it is a hint, and not worth reading megabytes for.
const ID_BODY_BYTES_MAX: usize = 1 << 20;

/// What was found when a signature fitted.
struct Fit {
    key_index: usize,
    signed_at_unix_ms: Option<u64>,
}

/// A delivery's timestamp: as it is written, and as it is meant.
#[derive(Default)]
struct Stamped<'t> {
    text: Option<Cow<'t, [u8]>>,
    unix_ms: Option<u64>,
}

impl Scheme {
    /// Judges a delivery. Pure: same bytes, keys and clock, same verdict.
    pub fn verify(&self, delivery: &Unverified<'_>, keys: &[ActiveKey<'_>]) -> Result<Verified, VerifyFault> {
        if keys.is_empty() {
            return Err(VerifyFault::NoActiveKey);
        }
        self.check_rules(delivery)?;
        let fit = match &self.proof {
            Proof::Mac(mac) => self.verify_mac(mac, delivery, keys)?,
            Proof::Token => self.verify_token(delivery, keys)?,
        };
        Ok(Verified {
            key_index: fit.key_index,
            delivery_id: self.delivery_id(delivery),
            signed_at_unix_ms: fit.signed_at_unix_ms,
            covers_body: self.covers_body,
        })
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
        for rule in &self.requirements {
            match rule.source.value(delivery, None)? {
                None if rule.optional => {}
                None => return Err(rule.source.missing()),
                Some(value) if rule.equals.iter().any(|fit| **fit == *value) => {}
                Some(_) => return Err(VerifyFault::Requirement { what: Arc::clone(&rule.source.what) }),
            }
        }
        Ok(())
    }

    fn verify_mac(&self, mac: &Mac, delivery: &Unverified<'_>, keys: &[ActiveKey<'_>]) -> Result<Fit, VerifyFault> {
        let missing = || VerifyFault::Missing { what: Arc::clone(&self.place.what) };
        let case = mac.cases.iter().find(|case| applies(case.when.as_ref(), delivery)).ok_or(VerifyFault::BodyRule)?;
        let form = sorted_form(&case.pieces, delivery.body)?;
        let judge = Judge { scheme: self, mac, case, form: form.as_ref(), delivery, keys };
        match &self.place.at {
            At::One(source) => {
                let text = source.value(delivery, None)?.ok_or_else(missing)?;
                match &self.place.layout {
                    None => judge.judge(None, std::iter::once(&*text)),
                    Some(layout) => {
                        let mut worst = missing();
                        let ends = |b: &u8| layout.groups == Some(*b);
                        for (at, group) in text.split(ends).enumerate() {
                            if at == GROUPS_MAX {
                                return Err(self.place.malformed());
                            }
                            let list = List::new(layout, group);
                            match judge.judge(Some(list), list.signatures()) {
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
                    match source.value(delivery, None)? {
                        Some(text) => texts.push(text),
                        None if *dense => break,
                        None => {}
                    }
                }
                judge.judge(None, texts.iter().map(|text| &**text))
            }
        }
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
            let secret = digest::digest(&digest::SHA256, key.material());
            let fits = digests
                .iter()
                .fold(subtle::Choice::from(1), |fits, digest| fits & digest.as_ref().ct_eq(secret.as_ref()));
            if bool::from(fits) {
                return Ok(Fit { key_index: *index, signed_at_unix_ms: None });
            }
        }
        Err(VerifyFault::Mismatch)
    }

    fn delivery_id(&self, delivery: &Unverified<'_>) -> Option<DeliveryId> {
        let source = self.delivery_id.as_ref()?;
        let value: Box<[u8]> = match &source.place {
            source::Place::Json(_) | source::Place::Form(_) if delivery.body.len() > ID_BODY_BYTES_MAX => return None,
            source::Place::Json(path) => json::first(delivery.body, path)?,
            // A duplicated id is no id, and no reason to refuse what is proven.
            source::Place::Header(_) | source::Place::Query(_) | source::Place::Form(_) | source::Place::Field(_) => {
                source.value(delivery, None).ok()??.into()
            }
        };
        let fits = !value.is_empty() && value.len() <= DELIVERY_ID_BYTES_MAX;
        fits.then_some(DeliveryId { value, signed: self.delivery_id_signed })
    }
}

impl Place {
    fn malformed(&self) -> VerifyFault {
        VerifyFault::Malformed { what: Arc::clone(&self.what) }
    }

    fn strip_prefix<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let (start, rest) = text.split_at_checked(self.prefix.len())?;
        let fits = *start == *self.prefix || self.prefix_ignores_case && start.eq_ignore_ascii_case(&self.prefix);
        fits.then_some(rest)
    }
}

/// One set of signatures over one content, judged.
struct Judge<'j, 'a> {
    scheme: &'j Scheme,
    mac: &'j Mac,
    case: &'j CaseProgram,
    form: Option<&'j SortedForm<'a>>,
    delivery: &'j Unverified<'a>,
    keys: &'j [ActiveKey<'j>],
}

impl<'j, 'a: 'j> Judge<'j, 'a> {
    fn judge<'t>(&self, list: Option<List<'t>>, signatures: impl Iterator<Item = &'t [u8]>) -> Result<Fit, VerifyFault>
    where
        'a: 't,
    {
        let digest_bytes = self.mac.engine.digest_bytes();
        let candidates = self.candidates(signatures, digest_bytes)?;
        let early = self.scheme.timestamp.as_ref().filter(|stamp| !stamp.late);
        let mut stamped = match early {
            Some(stamp) => self.timestamp(stamp, list)?,
            None => Stamped::default(),
        };
        let variants = if self.case.has_url { &*self.mac.url_variants } else { &[UrlVariant::AsSeen] };
        let key_index = self.fitting_key(&candidates, list, stamped.text.as_deref(), variants, digest_bytes)?;
        if let Some((source, digest)) = &self.case.body_digest {
            self.check_body_digest(source, digest)?;
        }
        if let Some(stamp) = self.scheme.timestamp.as_ref().filter(|stamp| stamp.late) {
            stamped = self.timestamp(stamp, list)?;
        }
        Ok(Fit { key_index, signed_at_unix_ms: stamped.unix_ms })
    }

    fn candidates<'t>(
        &self,
        signatures: impl Iterator<Item = &'t [u8]>,
        digest_bytes: usize,
    ) -> Result<Candidates, VerifyFault> {
        let place = &self.scheme.place;
        let mut candidates = Candidates::default();
        let mut seen = 0;
        for text in signatures {
            seen += 1;
            if seen > SIGNATURES_MAX {
                return Err(place.malformed());
            }
            let mut bytes = [0; DIGEST_BYTES_MAX];
            let readable = place
                .strip_prefix(text)
                .is_some_and(|text| encoding::decode(self.mac.encoding, text, &mut bytes[..digest_bytes]));
            if readable {
                candidates.push(bytes);
            }
        }
        match (seen, candidates.len) {
            (0, _) => Err(VerifyFault::Missing { what: Arc::clone(&place.what) }),
            (_, 0) => Err(place.malformed()),
            _ => Ok(candidates),
        }
    }

    fn fitting_key<'t>(
        &self,
        candidates: &Candidates,
        list: Option<List<'t>>,
        timestamp: Option<&[u8]>,
        variants: &[UrlVariant],
        digest_bytes: usize,
    ) -> Result<usize, VerifyFault>
    where
        'a: 't,
    {
        for ActiveKey { index, key } in self.keys {
            for variant in variants {
                let secret = key.material();
                let expected = self.mac.engine.digest(secret, |out| {
                    let frame = Frame {
                        delivery: self.delivery,
                        list,
                        timestamp,
                        delivery_id: self.scheme.delivery_id.as_ref(),
                        form: self.form,
                        url_decodes: &self.mac.url_decodes,
                        url_variant: *variant,
                    };
                    frame.write(&self.case.pieces, secret, out)
                })?;
                if candidates.any_is(&expected[..digest_bytes]) {
                    return Ok(*index);
                }
            }
        }
        Err(VerifyFault::Mismatch)
    }

    /// The timestamp's text and moment, if it is near enough to now.
    fn timestamp<'t>(&self, stamp: &Stamp, list: Option<List<'t>>) -> Result<Stamped<'t>, VerifyFault>
    where
        'a: 't,
    {
        let delivery: &Unverified<'t> = self.delivery;
        let Some(text) = stamp.source.value(delivery, list)? else {
            return if stamp.required { Err(stamp.source.missing()) } else { Ok(Stamped::default()) };
        };
        if stamp.format == TimestampFormat::Opaque {
            return Ok(Stamped { text: Some(text), unix_ms: None });
        }
        let signed = stamp::read(stamp.format, &text).ok_or_else(|| stamp.source.malformed())?;
        stamp.tolerance.judge(signed, self.delivery.received_unix_ms)?;
        Ok(Stamped { text: Some(text), unix_ms: Some(signed) })
    }

    fn check_body_digest(&self, source: &Source, rule: &BodyDigest) -> Result<(), VerifyFault> {
        let text = source.value(self.delivery, None)?.ok_or_else(|| source.missing())?;
        let actual = digest::digest(algorithm(rule.hash), self.delivery.body);
        let mut claimed = [0; DIGEST_BYTES_MAX];
        let claimed = &mut claimed[..actual.as_ref().len()];
        if !encoding::decode(rule.encoding, &text, claimed) {
            return Err(source.malformed());
        }
        if actual.as_ref() == claimed { Ok(()) } else { Err(VerifyFault::BodyDigest) }
    }
}

/// Well-formed signatures of a delivery: the usual few without allocation.
#[derive(Default)]
struct Candidates {
    few: [Option<[u8; DIGEST_BYTES_MAX]>; SIGNATURES_INLINE],
    more: Vec<[u8; DIGEST_BYTES_MAX]>,
    len: usize,
}

impl Candidates {
    fn push(&mut self, bytes: [u8; DIGEST_BYTES_MAX]) {
        match self.few.get_mut(self.len) {
            Some(place) => *place = Some(bytes),
            None => self.more.push(bytes),
        }
        self.len += 1;
    }

    /// Is any of them this digest? All are looked at, each in constant time.
    fn any_is(&self, expected: &[u8]) -> bool {
        let all = self.few.iter().flatten().chain(&self.more);
        let fits = all.fold(subtle::Choice::from(0), |fits, bytes| fits | bytes[..expected.len()].ct_eq(expected));
        bool::from(fits)
    }
}

/// Does a case apply? A condition that cannot be read in one way does not hold.
pub(super) fn applies(when: Option<&Condition>, delivery: &Unverified<'_>) -> bool {
    match when {
        None => true,
        Some(Condition::Header(name)) => only(delivery.headers, &name.to_ascii_lowercase()) != Occurrence::None,
        Some(Condition::Query(name)) => !matches!(super::form::parameter(delivery.target, name.as_bytes()), Ok(None)),
        Some(Condition::ContentType(name)) => media_type(delivery).is_some_and(|t| t == *name),
        Some(Condition::Form) => match only(delivery.headers, "content-type") {
            Occurrence::None => true,
            Occurrence::Once(_) => media_type(delivery).is_some_and(|t| t == "application/x-www-form-urlencoded"),
            Occurrence::Several => false,
        },
        Some(Condition::EmptyBody) => delivery.body.is_empty(),
    }
}

/// The media type without its parameters, in lower case.
pub(super) fn media_type(delivery: &Unverified<'_>) -> Option<String> {
    let Occurrence::Once(value) = only(delivery.headers, "content-type") else { return None };
    let bare = value.split(|b| *b == b';').next()?.trim_ascii();
    std::str::from_utf8(bare).ok().map(str::to_ascii_lowercase)
}
