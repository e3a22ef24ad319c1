//! A compiled scheme: what is left of a declaration when its names are resolved and its faults are said.

use std::sync::Arc;

use config::scheme::{
    Algorithm, BodyDigest, Condition, Encoding, Hash, Method, SchemeDeclaration, TimestampFormat, UrlVariant,
};
use domain::{Refusal, Secret};
use ring::{digest, hmac};

use super::encoding::DIGEST_BYTES_MAX;
use super::fault::KeyFault;
use super::key::{Key, KeyRules, public_algorithm};
use super::list::Layout;
use super::public_key::PublicAlgorithm;
use super::source::Source;
use super::stamp::Tolerance;
use super::template::Piece;
use crate::handshake::Handshake;

/// How deliveries of one kind are verified and signed. Shared by all endpoints that use it.
#[derive(Debug)]
pub struct Scheme {
    pub(super) declaration: Arc<SchemeDeclaration>,
    pub(super) methods: Box<[&'static str]>,
    pub(super) strips: Box<[Box<str>]>,
    pub(super) keys: KeyRules,
    /// What the provider publishes.
    pub(super) published: Box<[Key]>,
    pub(super) place: Place,
    pub(super) proof: Proof,
    pub(super) timestamp: Option<Stamp>,
    pub(super) delivery_id: Option<Source>,
    pub(super) delivery_id_signed: bool,
    /// A signed value that proves one delivery.
    pub(super) once: Option<Source>,
    pub(super) covers_body: bool,
    pub(super) requirements: Box<[Required]>,
    pub(super) content_types: Box<[Box<str>]>,
    /// The fields of the form that the body has to be; none: it may be anything.
    pub(super) fields: Box<[Box<str>]>,
    pub(super) judges_stored: bool,
    pub(super) handshakes: Box<[Handshake]>,
}

/// What proves the sender.
#[derive(Debug)]
pub(super) enum Proof {
    /// A signature over content: a digest with a key in it, or one that a public key checks.
    Signature(Signature),
    /// A signed token, which may say something of the delivery.
    Jwt(Jwt),
    /// The secret itself.
    Token,
}

#[derive(Debug)]
pub(super) struct Signature {
    pub(super) engine: Engine,
    /// A second algorithm, for keys of the other kind.
    pub(super) also: Option<AlsoSigned>,
    pub(super) encoding: Encoding,
    pub(super) cases: Box<[CaseProgram]>,
    pub(super) url: UrlForm,
}

#[derive(Debug)]
pub(super) struct AlsoSigned {
    pub(super) algorithm: PublicAlgorithm,
    pub(super) list_key: Box<[u8]>,
}

/// How the provider writes the URL that it signs.
#[derive(Debug)]
pub(super) struct UrlForm {
    pub(super) variants: Box<[UrlVariant]>,
    pub(super) decodes: Box<[u8]>,
}

#[derive(Debug)]
pub(super) struct Jwt {
    /// What `alg` must say.
    pub(super) name: &'static str,
    /// None: HMAC-SHA256.
    pub(super) algorithm: Option<PublicAlgorithm>,
    pub(super) expires: bool,
    pub(super) leeway_ms: u64,
    pub(super) claims: Box<[Claim]>,
    /// What those claims cover of the delivery, as if it were content.
    pub(super) covers: Box<[CaseProgram]>,
    pub(super) url: UrlForm,
}

/// One claim that a token must have.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) source: Source,
    pub(super) name: Box<str>,
    pub(super) when: Option<Condition>,
    pub(super) optional: bool,
    pub(super) expects: Expects,
}

#[derive(Debug)]
pub(super) enum Expects {
    OneOf(Box<[Box<[u8]>]>),
    /// What the content is, or its hash.
    Content {
        pieces: Box<[Piece]>,
        hash: Option<(Hash, Encoding)>,
        has_url: bool,
        has_body: bool,
    },
}

#[derive(Debug)]
pub(super) struct CaseProgram {
    /// What stands before its keys in the declaration: nothing, or `case[1].`.
    pub(super) key: Box<str>,
    pub(super) when: Option<Condition>,
    pub(super) pieces: Box<[Piece]>,
    pub(super) body_digest: Option<(Source, BodyDigest)>,
    /// The content has a URL in it: only then do its variants differ.
    pub(super) has_url: bool,
}

impl CaseProgram {
    /// The key that its pieces are made of.
    pub(super) fn content_key(&self) -> String {
        format!("{}content", self.key)
    }
}

/// What makes or checks a signature.
#[derive(Debug, Clone, Copy)]
pub(super) enum Engine {
    Digest(DigestEngine),
    Public(PublicAlgorithm),
}

impl Engine {
    /// The engine of an algorithm that signs content.
    pub(super) fn of(algorithm: Algorithm) -> Option<Self> {
        let hmac = |algorithm| Some(Self::Digest(DigestEngine::Hmac(algorithm)));
        let hash = |algorithm| Some(Self::Digest(DigestEngine::Hash(algorithm)));
        match algorithm {
            Algorithm::HmacSha1 => hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Algorithm::HmacSha256 => hmac(hmac::HMAC_SHA256),
            Algorithm::HmacSha512 => hmac(hmac::HMAC_SHA512),
            Algorithm::Sha1 => hash(&digest::SHA1_FOR_LEGACY_USE_ONLY),
            Algorithm::Sha256 => hash(&digest::SHA256),
            Algorithm::Sha512 => hash(&digest::SHA512),
            Algorithm::Ed25519 | Algorithm::EcdsaP256Sha256 | Algorithm::RsaPkcs1Sha256 => {
                public_algorithm(algorithm).map(Self::Public)
            }
            Algorithm::Token
            | Algorithm::Basic
            | Algorithm::JwtHs256
            | Algorithm::JwtEs256
            | Algorithm::JwtRs256
            | Algorithm::JwtEddsa => None,
        }
    }
}

/// What computes a digest.
#[derive(Debug, Clone, Copy)]
pub(super) enum DigestEngine {
    Hmac(hmac::Algorithm),
    Hash(&'static digest::Algorithm),
}

impl DigestEngine {
    pub(super) fn digest_bytes(self) -> usize {
        match self {
            Self::Hmac(algorithm) => algorithm.digest_algorithm().output_len(),
            Self::Hash(algorithm) => algorithm.output_len(),
        }
    }

    /// Computes the digest of whatever `content` shows.
    pub(super) fn digest<E>(
        self,
        secret: &[u8],
        content: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
    ) -> Result<[u8; DIGEST_BYTES_MAX], E> {
        let mut out = [0; DIGEST_BYTES_MAX];
        match self {
            Self::Hmac(algorithm) => {
                let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, secret));
                content(&mut |bytes| context.update(bytes))?;
                let tag = context.sign();
                out[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
            }
            Self::Hash(algorithm) => {
                let mut context = digest::Context::new(algorithm);
                content(&mut |bytes| context.update(bytes))?;
                let tag = context.finish();
                out[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
            }
        }
        Ok(out)
    }
}

/// Where signatures are, and how each is written.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) at: At,
    pub(super) what: Arc<str>,
    pub(super) prefix: Box<[u8]>,
    pub(super) prefix_ignores_case: bool,
    pub(super) layout: Option<Layout>,
    /// Where the items are that are each signed by themselves.
    pub(super) each: Option<Box<[Box<str>]>>,
}

impl Place {
    /// The form field that the signature is in, if it is in one.
    pub(super) fn field_of_form(&self) -> Option<Box<str>> {
        match &self.at {
            At::One(Source { place: super::source::Place::Form(name), .. }) => Some(name.clone()),
            At::One(_) | At::Several { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum At {
    One(Source),
    /// `dense`: numbered from one, until one is absent.
    Several {
        sources: Box<[Source]>,
        dense: bool,
    },
}

#[derive(Debug)]
pub(super) struct Stamp {
    pub(super) source: Source,
    pub(super) format: TimestampFormat,
    pub(super) tolerance: Tolerance,
    pub(super) required: bool,
    /// In the body, and signed with it: read only after the signature fits, since anybody can send a large body.
    pub(super) late: bool,
}

#[derive(Debug)]
pub(super) struct Required {
    pub(super) source: Source,
    pub(super) equals: Box<[Box<[u8]>]>,
    pub(super) optional: bool,
}

impl Scheme {
    pub fn name(&self) -> &str {
        &self.declaration.name
    }

    /// As it was declared.
    pub fn declaration(&self) -> &SchemeDeclaration {
        &self.declaration
    }

    /// Methods by which deliveries come.
    pub fn methods(&self) -> &[&'static str] {
        &self.methods
    }

    /// Does a delivery come by this method?
    pub(crate) fn takes(&self, method: &str) -> bool {
        self.methods.iter().any(|known| **known == *method)
    }

    /// How its provider asks whether an endpoint is one.
    pub fn handshakes(&self) -> &[Handshake] {
        &self.handshakes
    }

    /// Does the provider send again what is answered 429?
    pub fn redelivers(&self) -> bool {
        self.declaration.redelivery.after_429
    }

    /// Does the provider send a delivery again by itself that was refused so?
    pub fn comes_again(&self, refusal: Refusal) -> bool {
        let ways = &self.declaration.redelivery;
        match refusal {
            Refusal::RateLimited | Refusal::StorageLimited | Refusal::SourceThrottled => ways.after_429,
            Refusal::LogUnavailable | Refusal::Overloaded | Refusal::EndpointUnavailable | Refusal::Internal => {
                ways.automatic
            }
            Refusal::MalformedRequest
            | Refusal::VersionNotSupported
            | Refusal::CodingNotSupported
            | Refusal::ExpectationFailed
            | Refusal::HeadersTooLarge
            | Refusal::TargetTooLong
            | Refusal::HeaderTimeout
            | Refusal::EndpointUnknown
            | Refusal::MethodNotAllowed
            | Refusal::SourceNotAllowed
            | Refusal::BodyTooLarge
            | Refusal::BodyTimeout
            | Refusal::SignatureInvalid
            | Refusal::HandshakeRefused => false,
        }
    }

    /// Does its provider want refusals without a body?
    pub fn refuses_without_body(&self) -> bool {
        self.declaration.answer.bare_refusals
    }

    /// Status of a delivery that was taken.
    pub fn success_status(&self) -> u16 {
        self.declaration.answer.status
    }

    /// Headers that are never stored, in lower case.
    pub fn strips(&self) -> &[Box<str>] {
        &self.strips
    }

    pub(super) fn cases(&self) -> &[CaseProgram] {
        match &self.proof {
            Proof::Signature(signature) => &signature.cases,
            Proof::Jwt(jwt) => &jwt.covers,
            Proof::Token => &[],
        }
    }

    /// Does the provider publish the key, so that an endpoint needs no secret of its own?
    pub fn has_published_keys(&self) -> bool {
        !self.published.is_empty()
    }

    /// For how long a value that proves one delivery is remembered, in milliseconds; none where there is no such value.
    pub fn once_ms(&self) -> Option<u64> {
        self.once.as_ref()?;
        self.timestamp.as_ref()?.tolerance.span_ms()
    }

    /// Does a verified delivery's body come from its sender for certain?
    pub fn covers_body(&self) -> bool {
        self.covers_body
    }

    /// Is the delivery's id, where there is one, fit for telling duplicates apart?
    pub fn delivery_id_signed(&self) -> bool {
        self.delivery_id_signed
    }

    /// Makes a key of a secret, once, at load.
    pub fn key(&self, raw: &Secret) -> Result<Key, KeyFault> {
        self.keys.key(raw)
    }

    /// What is unwise about a secret, for `tidegate check`.
    pub fn key_advice(&self, raw: &Secret) -> Option<String> {
        self.keys.advice(raw)
    }
}

pub(super) fn method_names(methods: &[Method]) -> Box<[&'static str]> {
    methods.iter().map(|method| method.as_str()).collect()
}
