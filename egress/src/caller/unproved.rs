//! Why somebody is not known: for the record and for `tidegate grant show`. The caller is told one thing only.

use domain::text::Untrusted;

use crate::refusal::Refusal;

/// What is wrong with a grant. In the order in which it is looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantFault {
    /// More than [`super::GRANT_BYTES_MAX`].
    #[error("is longer than 8 KiB")]
    TooLong,
    /// Not three parts of unpadded, canonical base64url with JSON objects in the first two.
    #[error("is no JWT in the compact form")]
    Form,
    /// A member stands twice, or there are far too many.
    #[error("has a member twice, or too many of them")]
    Members,
    /// The header asks for an algorithm other than Ed25519.
    #[error("is not signed with EdDSA")]
    Algorithm,
    /// `typ` is there and neither `JWT` nor `grant+jwt`.
    #[error("is a JWT of another type")]
    Type,
    /// The header has a member that is not taken: `crit`, `jwk`, `jku`, `x5u`, `b64`, anything.
    #[error("has the header member `{}`, which is not taken", Untrusted::with_limit(.0.as_bytes(), 32))]
    HeaderMember(Box<str>),
    /// A claim that is not known could be a bound that would not be kept.
    #[error("has the claim `{}`, which is not known", Untrusted::with_limit(.0.as_bytes(), 32))]
    UnknownClaim(Box<str>),
    /// A claim is missing, or is not what it has to be.
    #[error("has no `{0}` that can be read")]
    Claim(&'static str),
    /// There is no such issuer.
    #[error("is from an issuer that is not known")]
    Issuer,
    /// No key of the issuer made this signature.
    #[error("is not signed by a key of its issuer")]
    Signature,
    /// The issuer is not bound to this tenant.
    #[error("names a tenant that its issuer is not bound to")]
    Tenant,
    /// It is for somebody else.
    #[error("is for another audience")]
    Audience,
    /// It was issued in the future.
    #[error("is dated in the future")]
    Future,
    /// Its `nbf` has not come.
    #[error("is not valid yet")]
    NotYet,
    /// Its `exp` has come.
    #[error("has expired")]
    Expired,
    /// It is for longer than 15 minutes.
    #[error("is valid for longer than 15 minutes")]
    Lifetime,
    /// The peer is outside its `source`.
    #[error("is not for callers at this address")]
    Source,
    /// It is bound to a client certificate that is not the one of this connection.
    #[error("is bound to another client certificate")]
    Certificate,
    /// As many calls were made as it is for, or nobody could count them.
    #[error("has been used as often as it may be")]
    UsedUp,
}

/// Why nobody is known. What the caller gets is [`Unproved::refusal`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproved {
    /// There is no proof at all.
    #[error("no proof was presented: where one is looked for is neither a grant nor a token, which begins with tgt_")]
    Missing,
    /// Two that differ.
    #[error("two different proofs were presented")]
    Ambiguous,
    /// A field that cannot be read, another scheme than bearer and basic, another user than `grant` and `token`.
    #[error("the proof is not written in a way that is read")]
    Form,
    /// Others could read this connection.
    #[error("the connection has no TLS and is not within this machine")]
    Plaintext,
    /// Neither a grant nor a token of ours: perhaps a provider's key.
    #[error("what was presented is neither a grant nor a token")]
    Unrecognised,
    /// A grant that does not hold.
    #[error("the grant {0}")]
    Grant(#[from] GrantFault),
    /// Nobody has this static token, or it has ended.
    #[error("the token is nobody's")]
    Token,
    /// Its `not_after` has come.
    #[error("the token has expired")]
    TokenExpired,
    /// The client certificate is nobody's, or more than one caller's.
    #[error("the client certificate is not one caller's")]
    Certificate,
    /// The client certificate was good when the connection began, and is not any more.
    #[error("the client certificate has ended, or who vouched for it is not believed any more")]
    CertificateEnded,
    /// The certificate is one tenant's and the grant or token another's.
    #[error("the client certificate is another tenant's")]
    OtherTenant,
    /// Revoked by its id, its run or its tenant.
    #[error("it was revoked")]
    Revoked,
    /// So many signatures from this source were false that no more are checked for now.
    #[error("too many false grants came from this address")]
    Throttled,
}

impl Unproved {
    /// What the caller gets. Not which check failed: that would tell a forger how far he got.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Plaintext => Refusal::GrantInPlaintext,
            // The proof was not looked at, and may well be good: to be tried again.
            Self::Throttled => Refusal::Overloaded,
            Self::Missing
            | Self::Ambiguous
            | Self::Form
            | Self::Unrecognised
            | Self::Grant(_)
            | Self::Token
            | Self::TokenExpired
            | Self::Certificate
            | Self::CertificateEnded
            | Self::OtherTenant
            | Self::Revoked => Refusal::CallerUnknown,
        }
    }
}

impl From<Unproved> for Refusal {
    fn from(unproved: Unproved) -> Self {
        unproved.refusal()
    }
}
