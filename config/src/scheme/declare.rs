//! The tables and enumerations of a declaration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Redelivery};
use super::handshake::Handshake;
use super::text::{Condition, Span, ValueSource, Window};

/// How deliveries prove who sent them. One row of presets, or one `[[scheme]]` of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemeDeclaration {
    /// What an endpoint's `scheme` says. A tenant's own scheme shadows no preset: the names must differ.
    pub name: String,
    /// Other names that an endpoint may say. Presets have them; a tenant's own scheme needs none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The provider, as people write it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Where this was read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// When it was last compared with that source: `YYYY-MM-DD`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checked: String,
    /// What the operator should know, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    pub algorithm: Algorithm,
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: KeyRule,
    pub signature: SignatureRule,
    /// A second algorithm, for secrets of another kind: one list then holds signatures of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Also>,
    /// What is signed, as a template. Not for tokens, JWTs and basic auth, which sign nothing or themselves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// In place of `content` where what is signed depends on the delivery: the first case that applies counts.
    #[serde(default, rename = "case", skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// What a JWT must say beside what its signature covers. Only for the algorithms that begin with `jwt-`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jwt: JwtRule,
    /// Claims that a JWT must have.
    #[serde(default, rename = "claim", skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimRule>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub url: UrlRule,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<TimestampRule>,
    /// Where the provider names the delivery. Whether that name is signed follows from the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<ValueSource>,
    /// A signed value that proves one delivery and no second one: for signatures that do not cover the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<ValueSource>,
    /// Headers that must say something exactly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Requirement>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub body: BodyRule,
    /// Methods by which deliveries come.
    #[serde(default = "post")]
    pub methods: Vec<Method>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub redelivery: Redelivery,
    #[serde(default, skip_serializing_if = "is_default")]
    pub answer: Answer,
    /// How the provider asks whether the endpoint is one; the first that applies is answered.
    #[serde(default, rename = "handshake", skip_serializing_if = "Vec::is_empty")]
    pub handshakes: Vec<Handshake>,
    /// Headers that are never stored, beside the one that a token or a password arrives in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strip: Vec<String>,
    /// Deliveries whose verdict is known. `tidegate check` runs them before a configuration goes live.
    #[serde(default, rename = "known_answer", skip_serializing_if = "Vec::is_empty")]
    pub known_answers: Vec<KnownAnswer>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn post() -> Vec<Method> {
    vec![Method::Post]
}

/// What is computed from the key and the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    HmacSha1,
    HmacSha256,
    HmacSha512,
    /// A plain hash over content that names `{secret}`.
    Sha1,
    Sha256,
    Sha512,
    /// The secret itself is sent. It proves who sent the delivery and covers nothing of it.
    Token,
    /// As `token`, in HTTP basic authentication; the secret is `user:password`.
    Basic,
    /// RFC 8032. The secret is a public key, as are those of the next two.
    Ed25519,
    /// ECDSA on P-256 with SHA-256, the signature in DER.
    EcdsaP256Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-256; keys of 2048 to 4096 bits.
    RsaPkcs1Sha256,
    /// A JWT (RFC 7519) with an HMAC; its header must name this algorithm, and chooses nothing.
    JwtHs256,
    JwtEs256,
    JwtRs256,
    JwtEddsa,
}

impl Algorithm {
    /// Is the proof a JWT?
    pub const fn is_jwt(self) -> bool {
        matches!(self, Self::JwtHs256 | Self::JwtEs256 | Self::JwtRs256 | Self::JwtEddsa)
    }

    /// Is it checked with a public key?
    pub const fn is_public(self) -> bool {
        matches!(
            self,
            Self::Ed25519
                | Self::EcdsaP256Sha256
                | Self::RsaPkcs1Sha256
                | Self::JwtEs256
                | Self::JwtRs256
                | Self::JwtEddsa
        )
    }
}

/// A second algorithm beside the scheme's own, told by how a secret begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Also {
    pub algorithm: Algorithm,
    /// A secret that begins with one of these is a key of this algorithm; the prefix comes off.
    pub prefixes: Vec<String>,
    /// The name of the list's items that are its signatures.
    pub list_key: String,
}

/// What is asked of every JWT.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JwtRule {
    /// A token without `exp` is refused. What has one must not have expired, in any case.
    #[serde(skip_serializing_if = "is_default")]
    pub expires: bool,
    /// How far clocks may differ where `exp` and `nbf` are judged. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leeway: Option<Span>,
}

/// A claim and what it must say: one of `equals`, or what `content` makes of the delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimRule {
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub equals: Vec<String>,
    /// As the scheme's `content`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// The claim is this hash of `content`, and not the text itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash>,
    /// How the hash is written. Default `hex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// The claim belongs only to such deliveries, and must be absent from others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// It may be absent; if it is there, it must fit.
    #[serde(skip_serializing_if = "is_default")]
    pub optional: bool,
}

/// From the configured secret to the bytes of the key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeyRule {
    pub decode: KeyDecode,
    /// Prefixes that are taken off before decoding where the secret has one; the first that fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strip: Vec<String>,
    /// The key is this hash of the decoded bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derive: Option<Hash>,
    /// A decoded secret with fewer bytes is refused. An empty one always is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_min: Option<u16>,
    /// `tidegate check` warns of a decoded secret with fewer bytes. Default 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_advised: Option<u16>,
    /// Public keys that the provider publishes: the endpoint then needs no secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyDecode {
    /// The bytes of the text as they are.
    #[default]
    Utf8,
    Hex,
    Base64,
    Base64url,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hash {
    Sha1,
    Sha256,
    Sha512,
}

/// Where the signature or the token is, and how it is written. Exactly one of `header`, `headers`, `numbered` and
/// `from`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignatureRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Several headers, each with one signature; any of them may be absent, one must fit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The beginning of a header's name, to which 1, 2, 3… is added until one is absent; at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbered: Option<String>,
    /// Somewhere else than in a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<ValueSource>,
    /// The body holds several items, each signed by itself: where they are, as `json:/PATH`. Every one must verify.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<ValueSource>,
    /// Stands before every signature, exactly so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The prefix is an HTTP authentication scheme, whose case does not count.
    #[serde(skip_serializing_if = "is_default")]
    pub prefix_ignores_case: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<ListRule>,
}

/// How a digest is written as text. Always strictly: exact length, exact padding, no white space, no spare bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// Either case.
    Hex,
    Base64,
    Base64Nopad,
    Base64url,
    Base64urlNopad,
}

/// A header that holds several things.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListRule {
    /// Stands between the items: one character.
    pub separator: String,
    /// Between an item's name and its value. Items have no names without `key`. Default `=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assign: Option<String>,
    /// The name of the items that are signatures; items of other names are not looked at, unless as `field:NAME`. `*`: items
    /// of whatever name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Names for the first items of a list without names; those after them are signatures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<String>,
    /// Stands between whole lists, each with a timestamp of its own: one character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<String>,
    /// Spaces around items do not count.
    #[serde(skip_serializing_if = "is_default")]
    pub spaces: bool,
}

/// What is signed when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Without it, the case always applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    pub content: String,
    /// The body is not in the content; its digest is, at some place that the content covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_digest: Option<BodyDigest>,
}

/// A digest of the body that travels beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BodyDigest {
    pub from: ValueSource,
    pub hash: Hash,
    pub encoding: Encoding,
}

/// How the provider writes the URL that it signs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UrlRule {
    /// Forms to try, in this order. Default: as configured, and nothing else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<UrlVariant>,
    /// Characters whose percent-escapes the provider decodes before it signs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub decodes: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UrlVariant {
    /// The public URL as it is configured, and the target as it came.
    AsSeen,
    /// The scheme's default port added where there is none.
    WithPort,
    WithoutPort,
    /// A slash added to the end of the path where there is none.
    TrailingSlash,
    WithoutTrailingSlash,
}

/// When the delivery was signed, and how far from the clock that may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimestampRule {
    pub from: ValueSource,
    pub format: TimestampFormat,
    /// How old it may be.
    pub old: Window,
    /// How far ahead of our clock it may be.
    pub future: Window,
    /// Without it the delivery is refused. May only be false where the signature covers the absence too.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub required: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimestampFormat {
    /// Since the Unix epoch.
    Seconds,
    Milliseconds,
    /// Either, told apart by magnitude: from 100,000,000,000 on it is milliseconds.
    SecondsOrMilliseconds,
    Rfc3339,
    /// As in the `Date` header of HTTP.
    ImfFixdate,
    /// Signed and never read: for providers that publish no form and no window. Both windows are `unlimited`.
    Opaque,
}

/// A header that must say one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    pub header: String,
    pub equals: Vec<String>,
    /// The header may be absent; if it is there, it must fit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}

/// What a body must be like before anything is computed over it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BodyRule {
    /// An empty body is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub required: bool,
    /// Media types that the provider sends; empty: whatever comes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub content_types: Vec<String>,
    /// The body is a form with exactly these fields, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}

/// Where a known answer is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The provider's documentation or its official library.
    Published,
    /// Made here, by another implementation of the same recipe.
    #[default]
    Constructed,
}

/// A delivery and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownAnswer {
    #[serde(default, skip_serializing_if = "is_default")]
    pub evidence: Evidence,
    /// Where a published answer is published.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// A secret that is no secret: it is printed in this file. None where the provider's published keys are enough.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
    #[serde(default = "post_one", skip_serializing_if = "is_post")]
    pub method: Method,
    /// The whole URL as the provider saw it.
    #[serde(default = "example_url")]
    pub url: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: String,
    /// The clock at which it is judged; needed where there is a timestamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_unix_ms: Option<u64>,
    /// The label of the fault that it must be refused with. Absent: it verifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

fn post_one() -> Method {
    Method::Post
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_post(method: &Method) -> bool {
    *method == Method::Post
}

fn example_url() -> String {
    "https://example.com/webhook".to_owned()
}
