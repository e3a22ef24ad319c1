//! Handshakes as they are written down: how an endpoint proves to its provider that it is one.
//!
//! A handshake is a request that is answered and never becomes an event. What tells it from a delivery, what it asks and
//! what is answered is data; what is done with the question is one of a small set of kinds, which `gateway::handshake`
//! carries out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::declare::{Encoding, Hash, Method};
use super::text::{ParseTextError, ValueSource};

/// One way in which the provider asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    pub kind: HandshakeKind,
    /// The method by which it comes.
    pub method: Method,
    /// All of these hold for a handshake. Without any, every request of that method is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<When>,
    /// The request must verify first, as a delivery does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub verified: bool,
    /// Where the provider repeats the endpoint's `handshake.token`; a request that does not is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ValueSource>,
    /// What the provider asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// What is computed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<ChallengeDigest>,
    /// Host names that may ask by `OPTIONS` whether deliveries are welcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub reply: Reply,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What is done with the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HandshakeKind {
    /// The challenge is sent back.
    Echo,
    /// A digest of the challenge, with a secret in it, is sent back.
    Digest,
    /// The answer is always the same.
    Fixed,
    /// The abuse protection of `CloudEvents` web hooks: may this origin deliver here?
    Origin,
    /// The challenge is the secret that deliveries will be signed with: it is kept, and sent back.
    Adopt,
}

impl HandshakeKind {
    pub const ALL: [Self; 5] = [Self::Echo, Self::Digest, Self::Fixed, Self::Origin, Self::Adopt];

    /// The word that the declaration has for it; one of a closed set, fit for a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Digest => "digest",
            Self::Fixed => "fixed",
            Self::Origin => "origin",
            Self::Adopt => "adopt",
        }
    }
}

/// What the provider asks, and what it can look like. Anything else is refused: an echo must carry nothing that somebody
/// reads as more than text, and a digest must be made of nothing that is signed elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    pub from: ValueSource,
    #[serde(default)]
    pub alphabet: Alphabet,
    /// The longest that is answered; at most 1024.
    #[serde(default = "challenge_bytes_max")]
    pub bytes_max: u16,
    /// The body has nothing else in it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alone: bool,
}

/// Longer than every challenge that providers document; the longest, Microsoft Graph's, says so itself.
fn challenge_bytes_max() -> u16 {
    128
}

/// Characters of a challenge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Alphabet {
    /// `0`-`9`
    Digits,
    /// Hexadecimal digits and `-`, as in a UUID.
    Hex,
    /// Letters, digits and `-._~+/=`.
    #[default]
    Token,
    /// Printable ASCII without `<`, `>`, `&`, quotes and backslash: for echoes.
    Text,
}

impl Alphabet {
    pub const fn has(self, byte: u8) -> bool {
        match self {
            Self::Digits => byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_hexdigit() || byte == b'-',
            Self::Token => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
            }
            Self::Text => {
                matches!(byte, b' '..=b'~') && !matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'' | b'`' | b'\\')
            }
        }
    }
}

/// A digest with a secret in it. Of the endpoint's secrets the first that is active is the key of an HMAC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChallengeDigest {
    /// The hash of an HMAC; of a plain hash where the content names `{token}`.
    pub hash: Hash,
    pub encoding: Encoding,
    /// `{challenge}`, `{token}` and `{url}` (without its query), in some order. Default `{challenge}`.
    #[serde(default = "challenge_content")]
    pub content: String,
}

fn challenge_content() -> String {
    "{challenge}".to_owned()
}

/// What is answered. Values are templates of `{challenge}`, `{digest}` and `{account}` (the endpoint's
/// `handshake.account`); of a `fixed` answer they are what they say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// 200 (default) or 204.
    pub status: u16,
    /// The body, as `text/plain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The body, as a JSON object of texts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, String>,
    /// The body of a `fixed` answer, which is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// A header that carries the challenge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ReplyHeader>,
    /// Status of a handshake whose token or challenge is wrong. Default 403.
    pub refused: u16,
}

impl Default for Reply {
    fn default() -> Self {
        Self { status: 200, text: None, json: BTreeMap::new(), document: None, header: None, refused: 403 }
    }
}

/// Headers that providers read a challenge from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplyHeader {
    XHookSecret,
    XAdobesignClientid,
    SmartsheetHookResponse,
}

impl ReplyHeader {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::XHookSecret => "x-hook-secret",
            Self::XAdobesignClientid => "x-adobesign-clientid",
            Self::SmartsheetHookResponse => "smartsheet-hook-response",
        }
    }
}

/// What holds for a handshake and for no delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// `VALUE`: it is there.
    There(ValueSource),
    /// `VALUE=TEXT`: it says this.
    Says(ValueSource, String),
    /// `empty-body`: there is no body.
    EmptyBody,
}

impl FromStr for When {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            None if text == "empty-body" => Ok(Self::EmptyBody),
            None => text.parse().map(Self::There),
            Some((source, says)) => Ok(Self::Says(source.parse()?, says.to_owned())),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::There(source) => source.fmt(f),
            Self::Says(source, text) => write!(f, "{source}={text}"),
            Self::EmptyBody => f.write_str("empty-body"),
        }
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for When {
    fn schema_name() -> Cow<'static, str> {
        "When".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(header|query|form|json):[ -~]{1,511}$|^empty-body$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_survive_their_text() {
        for text in ["header:X-Hook-Secret", "json:/type=url_verification", "query:hub.mode=a=b", "empty-body"] {
            assert_eq!(text.parse::<When>().unwrap().to_string(), text);
        }
        for text in ["", "type", "body:x", "=x", "json:type=x", "header:a\nb"] {
            assert!(text.parse::<When>().is_err(), "{text:?}");
        }
    }

    /// Whatever an alphabet has can stand in a header, in a line of text and in JSON as it is.
    #[test]
    fn no_alphabet_has_what_needs_an_escape() {
        for alphabet in [Alphabet::Digits, Alphabet::Hex, Alphabet::Token, Alphabet::Text] {
            for byte in (0..=u8::MAX).filter(|byte| alphabet.has(*byte)) {
                assert!(matches!(byte, b' '..=b'~') && !b"<>&\"'`\\".contains(&byte), "{alphabet:?} {byte}");
            }
        }
    }

    #[test]
    fn a_kind_is_written_as_it_is_counted() {
        for kind in HandshakeKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
