//! Which headers travel: a list of names, never of exceptions.

use std::fmt;

use crate::egress::header_name;
use crate::form::{Text, text};

/// What any request may have, whoever the provider is: the headers by which HTTP itself says what a body is and what
/// is wanted back. `Accept-Encoding` is here, so a body comes as the caller can read it.
pub(super) const REQUEST: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "digest",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "prefer",
    "range",
];

/// What any answer may have. `Set-Cookie` is not here: a cookie is a credential, and it would be the caller's to keep.
pub(super) const RESPONSE: &[&str] = &[
    "accept-ranges",
    "age",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
    "date",
    "deprecation",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "preference-applied",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "server-timing",
    "sunset",
    "vary",
    "www-authenticate",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// Names of headers, some with a `*` at their end. Those that frame a message, name its destination or are a proxy's
/// never travel, whatever a list says: that is for whoever forwards.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HeaderList {
    usual: &'static [&'static str],
    /// In lower case and sorted.
    exact: Box<[Box<str>]>,
    /// In lower case, without the star.
    prefixes: Box<[Box<str>]>,
}

/// What may stand in a list: `name`, `prefix-*`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderPattern(String);

impl HeaderPattern {
    pub(crate) fn exactly(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl HeaderList {
    pub(crate) fn request(patterns: Vec<HeaderPattern>) -> Self {
        Self::new(REQUEST, patterns)
    }

    pub(crate) fn response(patterns: Vec<HeaderPattern>) -> Self {
        Self::new(RESPONSE, patterns)
    }

    fn new(usual: &'static [&'static str], patterns: Vec<HeaderPattern>) -> Self {
        let (mut exact, mut prefixes) = (Vec::new(), Vec::new());
        for HeaderPattern(pattern) in patterns {
            match pattern.strip_suffix('*') {
                Some(prefix) => prefixes.push(prefix.into()),
                None => exact.push(pattern.into()),
            }
        }
        exact.sort_unstable();
        Self { usual, exact: exact.into(), prefixes: prefixes.into() }
    }

    /// Whether a header travels; its name in lower case, as `http::HeaderName` has it.
    pub fn admits(&self, name: &str) -> bool {
        self.usual.binary_search(&name).is_ok()
            || self.exact.binary_search_by(|known| (**known).cmp(name)).is_ok()
            || self.prefixes.iter().any(|prefix| name.starts_with(&**prefix))
    }

    /// What the list names beside what travels anyway.
    pub fn named(&self) -> impl Iterator<Item = String> {
        let prefixes = self.prefixes.iter().map(|prefix| format!("{prefix}*"));
        self.exact.iter().map(ToString::to_string).chain(prefixes)
    }

    /// What travels anyway.
    pub fn usual(&self) -> &'static [&'static str] {
        self.usual
    }
}

impl fmt::Debug for HeaderList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named()).finish()
    }
}

pub(crate) const fn pattern() -> Text<HeaderPattern> {
    text(
        "name of a header, or its beginning and `*`",
        "stripe-*",
        |text| match text.strip_suffix('*') {
            Some("") => Ok(HeaderPattern("*".into())),
            Some(stem) => header_name(stem).map(|stem| HeaderPattern(format!("{stem}*"))),
            None => header_name(text).map(HeaderPattern),
        },
        |pattern| pattern.0.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> HeaderList {
        HeaderList::request(patterns.iter().map(|text| HeaderPattern((*text).into())).collect())
    }

    #[test]
    fn what_is_not_named_does_not_travel() {
        assert!(REQUEST.is_sorted() && RESPONSE.is_sorted());
        let stripe = list(&["stripe-*", "idempotency-key"]);
        for name in ["stripe-version", "idempotency-key", "content-type", "accept"] {
            assert!(stripe.admits(name), "{name}");
        }
        for name in ["cookie", "authorization", "x-forwarded-for", "idempotency-keys", "stripe", "content-typ"] {
            assert!(!stripe.admits(name), "{name}");
        }
        assert!(list(&["*"]).admits("anything"));
        assert_eq!(stripe.named().collect::<Vec<_>>(), ["idempotency-key", "stripe-*"]);
    }
}
