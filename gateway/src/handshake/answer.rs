//! A handshake and its answer. Pure: the same request, secrets and settings, the same answer.

use std::fmt;

use config::scheme::HandshakeKind;
use domain::Secret;
use ring::digest;
use subtle::ConstantTimeEq;

use super::Handshake;
use super::reply::{Reply, Values};
use crate::scheme::{Key, Unverified};

/// What is asked, and what there is to answer with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Unverified<'a>,
    /// The first of the endpoint's secrets that is active.
    pub(crate) key: Option<&'a Key>,
    pub(crate) token: Option<&'a Secret>,
    pub(crate) account: Option<&'a str>,
    /// Events that the endpoint takes in a minute; none without a limit.
    pub(crate) per_minute: Option<u64>,
}

/// Why a handshake is not answered as its provider hopes. For the log; the sender hears none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The challenge is not there, there twice, too long, or has characters that no challenge has.
    Challenge,
    /// The token is not the endpoint's.
    Token,
    /// The endpoint has no `handshake.token`.
    NoToken,
    /// The endpoint has no `handshake.account`.
    NoAccount,
    /// The endpoint has no secret that is active.
    NoKey,
    /// The origin is none that may deliver.
    Origin,
    /// The endpoint awaits no secret: it has one, or has no `handshake.adopts`.
    Unawaited,
    /// The secret that the provider sent makes no key, or is short.
    Unfit,
    /// The secret could not be kept.
    Unkept,
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Challenge => "a handshake whose challenge is not there once, short and of its alphabet",
            Self::Token => "a handshake with another token than the endpoint's handshake.token",
            Self::NoToken => "a handshake that repeats a token, and the endpoint has no handshake.token",
            Self::NoAccount => "a handshake whose answer names an account, and the endpoint has no handshake.account",
            Self::NoKey => "a handshake that is answered with a secret, and the endpoint has none that is active",
            Self::Unawaited => "a handshake that brings a secret, and the endpoint awaits none",
            Self::Unfit => "a handshake that brings a secret which is none of its scheme, or a short one",
            Self::Unkept => "a handshake that brings a secret, which could not be kept",
            Self::Origin => "a handshake for an origin that the scheme does not list",
        })
    }
}

impl Handshake {
    /// The secret that the provider brings.
    pub(crate) fn brought(&self, request: &Unverified<'_>) -> Option<Secret> {
        let question = self.question.as_ref().filter(|_| self.kind == HandshakeKind::Adopt)?;
        question.read(request).map(|text| Secret::new(text.into_bytes()))
    }

    /// What the provider hopes to hear. Whether the request had to verify first is the caller's to see to.
    pub(crate) fn answer(&self, asked: &Asked<'_>) -> Result<Reply, HandshakeFault> {
        if self.kind == HandshakeKind::Origin {
            return self.permit(asked.request, asked.per_minute);
        }
        self.check_token(asked)?;
        let challenge = match &self.question {
            None => String::new(),
            Some(question) => question.read(asked.request).ok_or(HandshakeFault::Challenge)?,
        };
        let digest = match &self.digest {
            None => String::new(),
            Some(digest) => {
                let token = asked.token.map(Secret::expose);
                let absent = if digest.is_keyed() { HandshakeFault::NoKey } else { HandshakeFault::NoToken };
                digest.of(&challenge, asked.key, token, &public_url(asked.request)).ok_or(absent)?
            }
        };
        let account = match asked.account {
            None if self.needs_account() => return Err(HandshakeFault::NoAccount),
            account => account.unwrap_or_default(),
        };
        Ok(self.form.fill(Values { challenge: &challenge, digest: &digest, account }))
    }

    fn check_token(&self, asked: &Asked<'_>) -> Result<(), HandshakeFault> {
        let Some(source) = &self.token else { return Ok(()) };
        let expected = asked.token.ok_or(HandshakeFault::NoToken)?;
        let given = source.found_in(asked.request).ok_or(HandshakeFault::Token)?;
        // Digests have one length: the time of comparing them tells nothing of the token's.
        let [given, expected] = [&*given, expected.expose()].map(|text| digest::digest(&digest::SHA256, text));
        if bool::from(given.as_ref().ct_eq(expected.as_ref())) { Ok(()) } else { Err(HandshakeFault::Token) }
    }
}

/// The URL that the provider was given, without a query.
fn public_url(request: &Unverified<'_>) -> Vec<u8> {
    let path = request.target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let mut url = Vec::new();
    request.url.write(path, config::scheme::UrlVariant::AsSeen, b"", &mut |bytes| url.extend_from_slice(bytes));
    url
}
