//! One set of signatures over one content, judged: by digests, or by public keys.

use std::sync::Arc;

use config::scheme::{BodyDigest, UrlVariant};
use ring::digest;
use subtle::ConstantTimeEq;

use super::content::{Frame, SortedForm};
use super::delivery::{ActiveKey, Unverified};
use super::encoding::{self, DIGEST_BYTES_MAX};
use super::fault::VerifyFault;
use super::key::{Key, algorithm};
use super::program::{CaseProgram, DigestEngine, Engine, Scheme, Signature};
use super::public_key::PublicAlgorithm;
use super::source::{Beside, Source};
use super::template::Piece;
use super::verify::{Fit, Stamped};

/// More signatures in one list than any provider sends.
const SIGNATURES_MAX: usize = 128;

/// The same where each costs a forger nothing and us fifty microseconds for every key.
const PUBLIC_SIGNATURES_MAX: usize = 8;

/// Signatures that are decoded without allocation.
const SIGNATURES_INLINE: usize = 4;

/// One of a scheme's algorithms, and which of a list's items are its signatures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signer<'j> {
    pub(super) engine: Engine,
    /// In place of the list's own.
    pub(super) list_key: Option<&'j [u8]>,
}

impl Signer<'_> {
    /// Is it a key of this algorithm's kind?
    pub(super) fn takes(&self, key: &Key) -> bool {
        match self.engine {
            Engine::Digest(_) => key.secret().is_some(),
            Engine::Public(_) => key.public().is_some(),
        }
    }
}

pub(super) struct Judge<'j, 'a> {
    pub(super) scheme: &'j Scheme,
    pub(super) signature: &'j Signature,
    pub(super) signer: Signer<'j>,
    pub(super) case: &'j CaseProgram,
    pub(super) form: Option<&'j SortedForm<'a>>,
    pub(super) delivery: &'j Unverified<'a>,
    pub(super) keys: &'j [ActiveKey<'j>],
}

impl<'j, 'a: 'j> Judge<'j, 'a> {
    pub(super) fn judge<'t>(
        &self,
        beside: Beside<'t>,
        signatures: impl Iterator<Item = &'t [u8]>,
    ) -> Result<Fit, VerifyFault>
    where
        'a: 't,
    {
        let early = self.scheme.timestamp.as_ref().filter(|stamp| !stamp.late);
        let (key_index, mut stamped) = match self.signer.engine {
            Engine::Digest(engine) => {
                let candidates = self.candidates(signatures, engine.digest_bytes())?;
                let stamped = self.stamped(early, beside)?;
                (self.fitting_secret(engine, &candidates, beside, stamped.text.as_deref())?, stamped)
            }
            Engine::Public(algorithm) => {
                let candidates = self.public_candidates(signatures, algorithm)?;
                let stamped = self.stamped(early, beside)?;
                (self.fitting_public(algorithm, &candidates, beside, stamped.text.as_deref())?, stamped)
            }
        };
        if let Some((source, digest)) = &self.case.body_digest {
            self.check_body_digest(source, digest)?;
        }
        if let Some(stamp) = self.scheme.timestamp.as_ref().filter(|stamp| stamp.late) {
            stamped = self.stamped(Some(stamp), beside)?;
        }
        Ok(Fit { key_index, signed_at_unix_ms: stamped.unix_ms, claims: None })
    }

    fn stamped<'t>(&self, stamp: Option<&super::program::Stamp>, beside: Beside<'t>) -> Result<Stamped<'t>, VerifyFault>
    where
        'a: 't,
    {
        let delivery: &Unverified<'t> = self.delivery;
        stamp.map_or_else(|| Ok(Stamped::default()), |stamp| stamp.read(delivery, beside))
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
                .is_some_and(|text| encoding::decode(self.signature.encoding, text, &mut bytes[..digest_bytes]));
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

    fn public_candidates<'t>(
        &self,
        signatures: impl Iterator<Item = &'t [u8]>,
        algorithm: PublicAlgorithm,
    ) -> Result<Vec<Vec<u8>>, VerifyFault> {
        let place = &self.scheme.place;
        let mut candidates = Vec::new();
        let mut seen = 0;
        for text in signatures {
            seen += 1;
            if seen > PUBLIC_SIGNATURES_MAX {
                return Err(place.malformed());
            }
            let text = place.strip_prefix(text);
            let max = algorithm.signature_bytes_max();
            candidates.extend(text.and_then(|text| encoding::decode_any(self.signature.encoding, text, max)));
        }
        match (seen, candidates.len()) {
            (0, _) => Err(VerifyFault::Missing { what: Arc::clone(&place.what) }),
            (_, 0) => Err(place.malformed()),
            _ => Ok(candidates),
        }
    }

    fn variants(&self) -> &[UrlVariant] {
        if self.case.has_url { &self.signature.url.variants } else { &[UrlVariant::AsSeen] }
    }

    fn frame<'t>(&'t self, beside: Beside<'t>, timestamp: Option<&'t [u8]>, variant: UrlVariant) -> Frame<'t, 't>
    where
        'a: 't,
    {
        Frame {
            delivery: self.delivery,
            beside,
            timestamp,
            delivery_id: self.scheme.delivery_id.as_ref(),
            form: self.form,
            url_decodes: &self.signature.url.decodes,
            url_variant: variant,
        }
    }

    fn fitting_secret(
        &self,
        engine: DigestEngine,
        candidates: &Candidates,
        beside: Beside<'_>,
        timestamp: Option<&[u8]>,
    ) -> Result<usize, VerifyFault> {
        for ActiveKey { index, key } in self.keys {
            let Some(secret) = key.secret() else { continue };
            for variant in self.variants() {
                let frame = self.frame(beside, timestamp, *variant);
                let expected = engine.digest(secret, |out| frame.write(&self.case.pieces, secret, out))?;
                if candidates.any_is(&expected[..engine.digest_bytes()]) {
                    return Ok(*index);
                }
            }
        }
        Err(VerifyFault::Mismatch)
    }

    /// The library takes the message in one piece: where it is more than the body, it is put together, once for each way to
    /// write the URL. That is at most a copy of the body, for as long as it is judged.
    fn fitting_public(
        &self,
        algorithm: PublicAlgorithm,
        candidates: &[Vec<u8>],
        beside: Beside<'_>,
        timestamp: Option<&[u8]>,
    ) -> Result<usize, VerifyFault> {
        for variant in self.variants() {
            let mut joined = Vec::new();
            let message = if matches!(&*self.case.pieces, [Piece::Body]) {
                self.delivery.body
            } else {
                let frame = self.frame(beside, timestamp, *variant);
                frame.write(&self.case.pieces, b"", &mut |bytes| joined.extend_from_slice(bytes))?;
                &joined
            };
            for ActiveKey { index, key } in self.keys {
                let Some(pair) = key.public() else { continue };
                if candidates.iter().any(|signature| pair.verifies(algorithm, message, signature)) {
                    return Ok(*index);
                }
            }
        }
        Err(VerifyFault::Mismatch)
    }

    fn check_body_digest(&self, source: &Source, rule: &BodyDigest) -> Result<(), VerifyFault> {
        let text = source.value(self.delivery, Beside::default())?.ok_or_else(|| source.missing())?;
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
