//! Why a declaration is none, why a delivery does not verify, why a secret makes no key, why nothing can be signed.

use std::fmt;
use std::sync::Arc;

/// Something that is wrong with a declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeclarationFault {
    /// Dotted path of the key, such as `timestamp.from` or `case[1].content`.
    pub key: String,
    /// Other keys that it was seen from: where one of them was misread, it may be only a consequence.
    pub reads: &'static [&'static str],
    /// A sentence that names the key.
    pub message: String,
}

/// Why a delivery was not verified. It is for the log and for the operator; the sender hears none of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyFault {
    /// The endpoint has no secret that is active at this time.
    NoActiveKey,
    /// What the scheme needs is not there: `what` names the place.
    Missing { what: Arc<str> },
    /// What is meant once is there more than once.
    Duplicate { what: Arc<str> },
    /// It is there, but it is not written as the scheme writes it.
    Malformed { what: Arc<str> },
    /// A header says something else than the scheme requires.
    Requirement { what: Arc<str> },
    /// The body, or its media type, is none that the provider sends under this scheme.
    BodyRule,
    /// Well-formed, and made with another key, or over other bytes, or over another URL.
    Mismatch,
    /// The signature fits, but the digest that it covers is not that of this body.
    BodyDigest,
    /// The timestamp is older than the scheme allows.
    TooOld { by_ms: u64 },
    /// The timestamp is further ahead than the scheme allows.
    InFuture { by_ms: u64 },
    /// What proves one delivery has proved another one before.
    Replayed,
}

impl VerifyFault {
    /// Every label, for whoever registers metrics.
    pub const LABELS: &'static [&'static str] = &[
        "no-active-key",
        "missing",
        "duplicate",
        "malformed",
        "requirement",
        "body-rule",
        "mismatch",
        "body-digest",
        "too-old",
        "in-future",
        "replayed",
    ];

    /// One of eleven words.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NoActiveKey => "no-active-key",
            Self::Missing { .. } => "missing",
            Self::Duplicate { .. } => "duplicate",
            Self::Malformed { .. } => "malformed",
            Self::Requirement { .. } => "requirement",
            Self::BodyRule => "body-rule",
            Self::Mismatch => "mismatch",
            Self::BodyDigest => "body-digest",
            Self::TooOld { .. } => "too-old",
            Self::InFuture { .. } => "in-future",
            Self::Replayed => "replayed",
        }
    }

    /// How much it tells: of several faults of one delivery the highest is the one to name.
    pub(super) const fn weight(&self) -> u8 {
        match self {
            Self::NoActiveKey => 0,
            Self::Missing { .. } => 1,
            Self::Malformed { .. } => 2,
            Self::Duplicate { .. } | Self::Requirement { .. } | Self::BodyRule => 3,
            Self::TooOld { .. } | Self::InFuture { .. } => 4,
            Self::Mismatch => 5,
            Self::BodyDigest | Self::Replayed => 6,
        }
    }
}

impl fmt::Display for VerifyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoActiveKey => f.write_str("the endpoint has no secret that is active now"),
            Self::Missing { what } => write!(f, "the delivery has no {what}"),
            Self::Duplicate { what } => write!(f, "the delivery has more than one {what}, where one is meant"),
            Self::Malformed { what } => write!(f, "the {what} is not written as this scheme writes it"),
            Self::Requirement { what } => write!(f, "the {what} says something else than this scheme requires"),
            Self::BodyRule => f.write_str("the body or its content type is none that comes under this scheme"),
            Self::Replayed => f.write_str("the token that the signature covers came with another body before"),
            Self::Mismatch => {
                f.write_str("the signature fits no active secret: another secret, or the signed bytes differ")
            }
            Self::BodyDigest => f.write_str("the signature fits, but the digest that it covers is another body's"),
            Self::TooOld { by_ms } => write!(f, "the timestamp is {} s older than allowed", seconds(*by_ms)),
            Self::InFuture { by_ms } => {
                write!(f, "the timestamp is {} s further ahead of our clock than allowed", seconds(*by_ms))
            }
        }
    }
}

/// Rounded up, so that nothing refused is off by "0 s".
const fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}

impl std::error::Error for VerifyFault {}

/// Why a secret makes no key. It never quotes the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("the secret is empty")]
    Empty,
    #[error("the secret is nothing but white space or zero bytes")]
    Blank,
    #[error("the secret ends with a line ending, which is hardly part of it; write it without one")]
    LineEnding,
    #[error("the secret is not {0}")]
    Undecodable(&'static str),
    #[error("the secret has {have} bytes, and this scheme's secrets have at least {least}")]
    TooShort { have: usize, least: u16 },
    #[error("the secret is not of the form user:password")]
    NoPassword,
    #[error("the secret is no {0} public key in a form that is read here (PEM, hex, base64 or JWK)")]
    NoPublicKey(&'static str),
    #[error("the secret is a key with which anybody can sign")]
    WeakKey,
    #[error("the secret is a public key, and this scheme's is a shared secret: whoever knows the key could sign")]
    NotSecret,
}

/// Why there is no signing this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignFault {
    #[error("this scheme signs the {0}, which has to be given")]
    Needs(Arc<str>),
    #[error("the provider writes its signature into the body, which this command does not change")]
    InBody,
    #[error("signing needs the private key, in PKCS#8 PEM, and the secret is the public one")]
    NoPrivateKey,
    #[error("no case of this scheme applies to such a delivery; does the content type fit?")]
    NoCase,
    #[error("the delivery cannot be signed: {0}")]
    Unreadable(VerifyFault),
}
