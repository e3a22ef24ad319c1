//! The small texts that a declaration is made of: where a value is taken from, when a case applies, spans of time.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is none of the forms that can stand there; the message names them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {expected}")]
pub struct ParseTextError {
    text: String,
    expected: &'static str,
}

fn fault(text: &str, expected: &'static str) -> ParseTextError {
    ParseTextError { text: text.chars().take(80).collect(), expected }
}

/// The longest name of a header, a parameter or a field, and the longest path into a body. They are named in log lines.
const NAME_BYTES_MAX: usize = 256;

/// Such a name: printable ASCII.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Where one value of a delivery is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// `header:NAME`: the only value of this header.
    Header(String),
    /// `query:NAME`: the only parameter of this name in the target, percent-decoded.
    Query(String),
    /// `form:NAME`: the only field of this name in a form body, decoded.
    Form(String),
    /// `json:/path/to/it`: a string or an integer in a JSON body; a `*` stands for every element of an array.
    Json(Vec<String>),
    /// `field:NAME`: a field of the list in the signature header.
    Field(String),
    /// `claim:NAME`: a claim of the token that proves the sender.
    Claim(String),
    /// `item:/path/to/it`: a text or an integer in the signed item of the body that is looked at.
    Item(Vec<String>),
}

impl FromStr for ValueSource {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "is not where a value can be: header:NAME, query:NAME, form:NAME, json:/PATH, field:NAME, claim:NAME or item:/PATH, in up to 256 printable ASCII characters";
        let (kind, rest) = text.split_once(':').ok_or_else(|| fault(text, EXPECTED))?;
        if !is_name(rest) {
            return Err(fault(text, EXPECTED));
        }
        match kind {
            "header" => Ok(Self::Header(rest.to_owned())),
            "query" => Ok(Self::Query(rest.to_owned())),
            "form" => Ok(Self::Form(rest.to_owned())),
            "field" => Ok(Self::Field(rest.to_owned())),
            "claim" => Ok(Self::Claim(rest.to_owned())),
            "json" | "item" => {
                let path = rest.strip_prefix('/').ok_or_else(|| fault(text, EXPECTED))?;
                // The escapes of RFC 6901, so that a key with a slash in it can be named.
                let path = path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
                Ok(if kind == "json" { Self::Json(path) } else { Self::Item(path) })
            }
            _ => Err(fault(text, EXPECTED)),
        }
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Form(name) => write!(f, "form:{name}"),
            Self::Field(name) => write!(f, "field:{name}"),
            Self::Claim(name) => write!(f, "claim:{name}"),
            Self::Json(path) | Self::Item(path) => {
                f.write_str(if matches!(self, Self::Json(_)) { "json:" } else { "item:" })?;
                path.iter().try_for_each(|part| write!(f, "/{}", part.replace('~', "~0").replace('/', "~1")))
            }
        }
    }
}

/// When a case of the signed content applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `header:NAME`: the delivery has this header.
    Header(String),
    /// `query:NAME`: the target has this parameter.
    Query(String),
    /// `content-type:TYPE`: the media type is this one, whatever its parameters.
    ContentType(String),
    /// `form`: the media type is `application/x-www-form-urlencoded`, or none is given.
    Form,
    /// `empty-body`: there is no body.
    EmptyBody,
    /// `body`: there is one.
    Body,
}

impl FromStr for Condition {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "is not a condition: header:NAME, query:NAME, content-type:TYPE, form, body or empty-body, in up to 256 printable ASCII characters";
        match text.split_once(':') {
            None if text == "form" => Ok(Self::Form),
            None if text == "empty-body" => Ok(Self::EmptyBody),
            None if text == "body" => Ok(Self::Body),
            Some(("header", name)) if is_name(name) => Ok(Self::Header(name.to_owned())),
            Some(("query", name)) if is_name(name) => Ok(Self::Query(name.to_owned())),
            Some(("content-type", name)) if is_name(name) => Ok(Self::ContentType(name.to_ascii_lowercase())),
            _ => Err(fault(text, EXPECTED)),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::ContentType(name) => write!(f, "content-type:{name}"),
            Self::Form => f.write_str("form"),
            Self::EmptyBody => f.write_str("empty-body"),
            Self::Body => f.write_str("body"),
        }
    }
}

/// A span of time, written with its unit: `500ms`, `300s`, `5m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    ms: u64,
}

impl Span {
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    pub const fn ms(self) -> u64 {
        self.ms
    }
}

impl FromStr for Span {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "is not a span of time: a whole number and a unit, as in 500ms, 300s, 5m or 1h";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(fault(text, EXPECTED)),
        };
        let number: u64 = number.parse().map_err(|_| fault(text, EXPECTED))?;
        number.checked_mul(factor).map(Self::from_ms).ok_or_else(|| fault(text, EXPECTED))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ms {
            ms if ms != 0 && ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms != 0 && ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1_000 == 0 => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// How far a timestamp may lie from the clock on one side: a span, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    Within(Span),
    Unlimited,
}

impl FromStr for Window {
    type Err = ParseTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unlimited" { Ok(Self::Unlimited) } else { text.parse().map(Self::Within) }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(span) => span.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

macro_rules! as_text {
    ($name:ident, $label:literal, $pattern:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $label.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

as_text!(ValueSource, "ValueSource", "^(header|query|form|field|claim):[ -~]{1,256}$|^(json|item):/[ -~]{0,255}$");
as_text!(Condition, "Condition", "^(header|query|content-type):[ -~]{1,256}$|^form$|^body$|^empty-body$");
as_text!(Span, "Span", "^[0-9]+(ms|s|m|h)$");
as_text!(Window, "Window", "^[0-9]+(ms|s|m|h)$|^unlimited$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_their_text() {
        for text in [
            "header:X-Id",
            "query:bodySHA256",
            "form:token",
            "json:/a/*/b~1c",
            "json:/",
            "field:t",
            "claim:jti",
            "item:/a/b",
        ] {
            assert_eq!(text.parse::<ValueSource>().unwrap().to_string(), text);
        }
        for text in ["", "header", "header:", "json:a", "item:a", "claim:", "cookie:x", "HEADER:x"] {
            assert!(text.parse::<ValueSource>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_printable_and_bounded() {
        for kind in ["header:", "query:", "form:", "field:", "claim:", "json:/", "item:/"] {
            let longest = NAME_BYTES_MAX - usize::from(kind.ends_with('/'));
            assert!(format!("{kind}{}", "a".repeat(longest)).parse::<ValueSource>().is_ok(), "{kind}");
            for name in ["a".repeat(longest + 1), "a\nb".into(), "a\u{1b}[31m".into(), "\u{202e}a".into(), "ü".into()]
            {
                assert!(format!("{kind}{name}").parse::<ValueSource>().is_err(), "{kind}{name:?}");
            }
        }
        assert!("query:a\nb".parse::<Condition>().is_err());
    }

    #[test]
    fn conditions_survive_their_text() {
        for text in ["header:X-Id", "query:q", "content-type:text/plain", "form", "body", "empty-body"] {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
        }
        assert!("bodies".parse::<Condition>().is_err());
        assert!("query:".parse::<Condition>().is_err());
    }

    #[test]
    fn spans_need_a_unit_and_fit() {
        for (text, ms) in [("0s", 0), ("1ms", 1), ("300s", 300_000), ("5m", 300_000), ("2h", 7_200_000)] {
            assert_eq!(text.parse::<Span>().unwrap().ms(), ms);
        }
        for text in ["", "5", "s", "-5s", "+5s", "5 s", "5d", "1.5s", "99999999999999999999s", "9999999999999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["0s", "300ms", "1500ms", "90s", "5m", "1h"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("unlimited".parse::<Window>().unwrap(), Window::Unlimited);
        assert_eq!("5m".parse::<Window>().unwrap().to_string(), "5m");
    }
}
