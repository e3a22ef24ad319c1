//! A compiled scheme: what is left of a declaration when its names are resolved and its faults are said.

use std::sync::Arc;

use config::scheme::{
    Algorithm, BodyDigest, Condition, Encoding, Method, SchemeDeclaration, TimestampFormat, UrlVariant,
};
use domain::Secret;
use ring::{digest, hmac};

use super::encoding::DIGEST_BYTES_MAX;
use super::fault::KeyFault;
use super::key::{Key, KeyRules};
use super::list::Layout;
use super::source::Source;
use super::stamp::Tolerance;
use super::template::Piece;

/// How deliveries of one kind are verified and signed. Shared by all endpoints that use it.
#[derive(Debug)]
pub struct Scheme {
    pub(super) declaration: Arc<SchemeDeclaration>,
    pub(super) methods: Box<[&'static str]>,
    pub(super) strips: Box<[Box<str>]>,
    pub(super) keys: KeyRules,
    pub(super) place: Place,
    pub(super) proof: Proof,
    pub(super) timestamp: Option<Stamp>,
    pub(super) delivery_id: Option<Source>,
    pub(super) delivery_id_signed: bool,
    pub(super) covers_body: bool,
    pub(super) requirements: Box<[Required]>,
    pub(super) content_types: Box<[Box<str>]>,
    pub(super) judges_stored: bool,
}

/// What proves the sender.
#[derive(Debug)]
pub(super) enum Proof {
    /// A digest over content, with a key in it.
    Mac(Mac),
    /// The secret itself.
    Token,
}

#[derive(Debug)]
pub(super) struct Mac {
    pub(super) engine: Engine,
    pub(super) encoding: Encoding,
    pub(super) cases: Box<[CaseProgram]>,
    pub(super) url_variants: Box<[UrlVariant]>,
    pub(super) url_decodes: Box<[u8]>,
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

/// What computes the digest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Engine {
    Hmac(hmac::Algorithm),
    Hash(&'static digest::Algorithm),
}

impl Engine {
    /// The engine of an algorithm that has one.
    pub(super) fn of(algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::HmacSha1 => Some(Self::Hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::HmacSha256 => Some(Self::Hmac(hmac::HMAC_SHA256)),
            Algorithm::HmacSha512 => Some(Self::Hmac(hmac::HMAC_SHA512)),
            Algorithm::Sha1 => Some(Self::Hash(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::Sha256 => Some(Self::Hash(&digest::SHA256)),
            Algorithm::Sha512 => Some(Self::Hash(&digest::SHA512)),
            Algorithm::Token | Algorithm::Basic => None,
        }
    }

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

    /// Does the provider send again what is answered 429?
    pub fn redelivers(&self) -> bool {
        self.declaration.redelivery.after_429
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
            Proof::Mac(mac) => &mac.cases,
            Proof::Token => &[],
        }
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
