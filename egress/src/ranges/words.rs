//! The texts of a book: short, of few characters, and safe wherever they are shown.
//!
//! They end up in a signed document, in lines of CSV and on terminals of people who never heard of us, so each says what
//! it may hold instead of being escaped later.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text cannot stand in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoWord(&'static str);

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident, $is:expr, $hint:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NoWord;

            fn from_str(text: &str) -> Result<Self, NoWord> {
                let is: fn(&str) -> bool = $is;
                if is(text) { Ok(Self(text.into())) } else { Err(NoWord($hint)) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NoWord;

            fn try_from(text: String) -> Result<Self, NoWord> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

words! {
    /// A pool's name, as the configuration has it. Everybody can read it in the document.
    PoolName, |text| domain::TenantId::parse(text).is_ok(), "is no name of a pool";
    /// ISO 3166-1 alpha-2, such as `DE`.
    Country, |text| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase()),
        "is no country: write its two letters of ISO 3166-1, such as DE";
    /// ISO 3166-2, such as `DE-BE`; its country is the one before the hyphen.
    Region, is_region, "is no region: write it as in ISO 3166-2, such as DE-BE";
    /// A city, in UTF-8 and without a comma (RFC 8805 §2.1.1.4).
    City, |text| is_line(text, 80) && !text.contains([',', '"', '#']),
        "is no city: write up to 80 bytes without comma, quote and #";
    /// Why a rule was overridden, or a range withdrawn: one line, which is published.
    Reason, |text| is_line(text, 300), "is no reason: write a line of up to 300 bytes, which everybody can read";
}

fn is_region(text: &str) -> bool {
    text.split_once('-').is_some_and(|(country, rest)| {
        country.parse::<Country>().is_ok()
            && (1..=3).contains(&rest.len())
            && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    })
}

/// Visible, trimmed, and the same to every reader: what would be escaped on a terminal is none.
fn is_line(text: &str, bytes_max: usize) -> bool {
    let shown = domain::text::Untrusted::with_limit(text.as_bytes(), bytes_max).to_string();
    !text.is_empty() && text.len() <= bytes_max && shown == text && text.trim() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_say() {
        fn all<T: FromStr>(good: &[&str], bad: &[&str]) {
            for text in good {
                assert!(text.parse::<T>().is_ok(), "{text}");
            }
            for text in bad {
                assert!(text.parse::<T>().is_err(), "{text}");
            }
        }
        all::<Country>(&["DE", "US"], &["", "de", "DEU", "D1", "D"]);
        all::<Region>(&["DE-BE", "US-CA", "GB-ABC", "FR-75"], &["DE", "DE-", "DE-BERL", "de-BE", "D-BE", "DE-be"]);
        all::<City>(&["Berlin", "São Paulo", "東京"], &["", " Berlin", "a,b", "a\nb", "a\"b", "a#b", "a\u{202e}b"]);
        all::<City>(&[], &[&"x".repeat(81)]);
        all::<PoolName>(&["default", "eu-1"], &["", "a b", "a/b"]);
        all::<Reason>(&["our provider took it back, ticket 4711"], &["", "a\u{1b}[2J", &"x".repeat(301)]);
    }
}
