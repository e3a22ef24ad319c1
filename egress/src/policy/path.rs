//! Path prefixes, matched on the path as it was sent.
//!
//! Nothing is normalised, since the destination may normalise otherwise. A path that can be read in more than one way
//! is *unclear*: dot segments, empty segments, slashes, backslashes, dots and controls that are encoded, anything that
//! is encoded twice. An unclear path is within no prefix that allows and within every prefix that denies.
//!
//! `/v1/` holds `/v1/x` and neither `/v1` nor `/v10`. `/v1` holds `/v1` and `/v1/x`, and not `/v10`. Case counts.
//! To a rule that denies, both hold what any server might take for the same: other case, letters that are encoded,
//! segment parameters (`/v1;x/`), a final slash more or less.

use std::fmt;

use thiserror::Error;

/// A prefix of paths, in whole segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPrefix(Box<str>);

/// Why a text is no prefix of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathFault {
    #[error("it does not begin with `/`")]
    Start,
    #[error("it has a character that no path has; a query is not part of the path")]
    Character,
    #[error("it can be read in more than one way: write it without `.`, `..`, `//` and encoded forms of them")]
    Unclear,
}

impl PathPrefix {
    /// Reads a prefix as a rule writes it.
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        if !text.starts_with('/') {
            return Err(PathFault::Start);
        }
        if text.bytes().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#')) {
            return Err(PathFault::Character);
        }
        if is_unclear(text) {
            return Err(PathFault::Unclear);
        }
        Ok(Self(text.into()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a path is surely within. The path has no query; an empty one means `/`.
    pub fn holds(&self, path: &str) -> bool {
        let path = or_root(path);
        let rest = path.strip_prefix(&*self.0);
        rest.is_some_and(|rest| self.0.ends_with('/') || rest.is_empty() || rest.starts_with('/')) && !is_unclear(path)
    }

    /// Whether some server may take a path to be within.
    pub fn may_hold(&self, path: &str) -> bool {
        let path = or_root(path);
        if is_unclear(path) {
            return true;
        }
        let mut path = Folded::new(path);
        let mut prefix = Folded::new(self.0.strip_suffix('/').unwrap_or(&self.0));
        loop {
            match prefix.next() {
                Some(wanted) if path.next() == Some(wanted) => {}
                Some(_) => return false,
                None => return matches!(path.next(), None | Some(b'/')),
            }
        }
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn or_root(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// Whether two servers could take the path apart differently.
pub fn is_unclear(path: &str) -> bool {
    let bytes = path.as_bytes();
    if bytes.iter().any(|byte| matches!(byte, b'\\' | ..=b' ' | 0x7f..)) {
        return true;
    }
    let encoded = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    for (at, _) in encoded {
        let unclear = match hex_pair(bytes, at + 1) {
            // No octet; or a control, a dot, a slash, a backslash, or the first of an overlong form of one.
            None | Some(..=0x1f | 0x7f | b'.' | b'/' | b'\\' | 0xc0 | 0xc1) => true,
            // A percent sign is clear unless what follows would be decoded by whoever decodes twice.
            Some(b'%') => hex_pair(bytes, at + 3).is_some(),
            Some(_) => false,
        };
        if unclear {
            return true;
        }
    }
    // `/..;x/` is a step up to servers that know segment parameters.
    path.contains("//") || path.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()
}

/// The bytes of a clear path as the most lenient server has them: decoded, lower case, without segment parameters.
struct Folded<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Folded<'a> {
    fn new(path: &'a str) -> Self {
        Self { bytes: path.as_bytes(), at: 0 }
    }
}

impl Iterator for Folded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.bytes.get(self.at) == Some(&b';') {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            self.at += rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        }
        let byte = *self.bytes.get(self.at)?;
        let (byte, length) = match byte {
            b'%' => (hex_pair(self.bytes, self.at + 1).unwrap_or(byte), 3),
            byte => (byte, 1),
        };
        self.at += length;
        Some(byte.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> PathPrefix {
        PathPrefix::parse(text).unwrap()
    }

    #[test]
    fn whole_segments_count() {
        for (text, path, holds) in [
            ("/v1/", "/v1/x", true),
            ("/v1/", "/v1/", true),
            ("/v1/", "/v1", false),
            ("/v1/", "/v10", false),
            ("/v1", "/v1", true),
            ("/v1", "/v1/", true),
            ("/v1", "/v1/x/y", true),
            ("/v1", "/v10", false),
            ("/v1", "/v1;x", false),
            ("/v1", "/V1", false),
            ("/", "", true),
            ("/", "/anything", true),
            ("/v1/", "", false),
            ("/a%20b/", "/a%20b/c", true),
            ("/v1/", "/v1/100%25", true),
            ("/v1/", "/v1/caf%C3%A9", true),
        ] {
            assert_eq!(prefix(text).holds(path), holds, "{text} and {path}");
        }
    }

    const UNCLEAR: &[&str] = &[
        "/v1/../admin",
        "/v1/./x",
        "/v1/..",
        "/v1/..;x/admin",
        "/v1//x",
        "//v1/x",
        "/v1/%2e%2e/admin",
        "/v1/.%2E/admin",
        "/v1/a%2Fb",
        "/v1/a%5cb",
        "/v1/a\\b",
        "/v1/%252e%252e/admin",
        "/v1/%252fx",
        "/v1/%00",
        "/v1/%0d%0a",
        "/v1/%c0%ae%c0%ae/",
        "/v1/%",
        "/v1/%g0",
        "/v1/%2",
        "/v1/a b",
    ];

    #[test]
    fn what_has_two_readings_is_within_nothing_that_allows_and_everything_that_denies() {
        for path in UNCLEAR {
            assert!(!prefix("/v1/").holds(path) && !prefix("/").holds(path), "{path}");
            assert!(prefix("/v1/").may_hold(path) && prefix("/elsewhere").may_hold(path), "{path}");
        }
    }

    #[test]
    fn a_denied_prefix_holds_what_any_server_takes_for_it() {
        for path in ["/admin", "/admin/", "/admin/x", "/ADMIN/x", "/%61dmin/x", "/%41dmin", "/admin;a=b/x", "/admin;"] {
            assert!(prefix("/admin").may_hold(path) && prefix("/admin/").may_hold(path), "{path}");
        }
        for path in ["/administrator", "/", "", "/x/admin", "/admi", "/admin%20"] {
            assert!(!prefix("/admin").may_hold(path) && !prefix("/admin/").may_hold(path), "{path}");
        }
        assert!(prefix("/").may_hold("") && prefix("/").may_hold("/x"));
    }

    #[test]
    fn prefixes_are_read_strictly() {
        for (text, fault) in [
            ("", PathFault::Start),
            ("v1/", PathFault::Start),
            ("/v1?x", PathFault::Character),
            ("/v1#x", PathFault::Character),
            ("/ä", PathFault::Character),
            ("/a b", PathFault::Character),
            ("/v1/../x", PathFault::Unclear),
            ("//", PathFault::Unclear),
            ("/%2e/", PathFault::Unclear),
        ] {
            assert_eq!(PathPrefix::parse(text), Err(fault), "{text}");
        }
    }
}
