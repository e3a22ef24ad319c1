//! The request target (RFC 9112 §3.2): origin-form, or absolute-form that says the same as `Host`.
//!
//! Characters are those of RFC 3986, in the query also those that the WHATWG URL standard leaves alone, and nothing else: no space, no control, no fragment, no byte above ASCII, no
//! broken percent escape. What other servers repair, two hops repair in two ways.
//!
//! Dot segments are refused, also escaped ones (`%2e`), also between escaped separators (`%2f`, `%5c`). The path is
//! matched byte by byte here and never normalised, so `/hooks/../admin` could mean nothing but a hop before us that
//! sees another path than we do. `//` stays: it is a path like any other, matches no endpoint, and is never taken
//! for an authority.

use domain::Refusal;

use super::authority::{Authority, parse_authority};
use super::field;

/// Where the parts of a target lie, in bytes from the target's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Parts {
    /// Beginning of path and query; beyond 0 for the absolute form.
    pub(super) origin: usize,
    /// End of the path; equal to `origin` where an absolute target has no path, which stands for `/`.
    pub(super) path_end: usize,
}

/// An absolute target's authority and the port that its scheme implies.
pub(super) type Absolute<'a> = (Authority<'a>, u16);

pub(super) fn parse(target: &[u8]) -> Result<(Parts, Option<Absolute<'_>>), Refusal> {
    let malformed = Refusal::MalformedRequest;
    if target.first() == Some(&b'/') {
        return Ok((parse_origin(target, 0)?, None));
    }
    // Anything else is `*`, an authority (of no use to an origin server), or no target at all.
    let (scheme_bytes, port) = if starts_with(target, b"http://") {
        (7, 80)
    } else if starts_with(target, b"https://") {
        (8, 443)
    } else {
        return Err(malformed);
    };
    let rest = &target[scheme_bytes..];
    let authority_bytes = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = parse_authority(&rest[..authority_bytes]).ok_or(malformed)?;
    let parts = parse_origin(target, scheme_bytes + authority_bytes)?;
    Ok((parts, Some((authority, port))))
}

fn starts_with(target: &[u8], scheme: &[u8]) -> bool {
    target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

fn parse_origin(target: &[u8], origin: usize) -> Result<Parts, Refusal> {
    let bytes = &target[origin..];
    let path_bytes = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let (path, query) = bytes.split_at(path_bytes);
    let sound = field::is_path(path)
        && field::is_query(query)
        && field::percent_is_sound(bytes)
        && !(memchr::memchr2(b'.', b'%', path).is_some() && has_dot_segment(path));
    if sound { Ok(Parts { origin, path_end: origin + path_bytes }) } else { Err(Refusal::MalformedRequest) }
}

/// Is a segment of `path` `.` or `..`, however it is escaped?
fn has_dot_segment(path: &[u8]) -> bool {
    // Dots seen since the last separator; None as soon as the segment holds anything else.
    let mut dots = None;
    let mut at = 0;
    while at < path.len() {
        let (byte, bytes) = match &path[at..] {
            [b'%', high, low, ..] => (unhex(*high) << 4 | unhex(*low), 3),
            [byte, ..] => (*byte, 1),
            [] => break,
        };
        at += bytes;
        match byte {
            b'/' | b'\\' => {
                if matches!(dots, Some(1 | 2)) {
                    return true;
                }
                dots = Some(0);
            }
            b'.' => dots = dots.map(|dots: u8| dots.saturating_add(1)),
            _ => dots = None,
        }
    }
    matches!(dots, Some(1 | 2))
}

/// The value of a hexadecimal digit, which the caller has checked to be one.
fn unhex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10) & 0xf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_form() {
        for (target, path) in [
            ("/", "/"),
            ("/hook", "/hook"),
            ("/hook?", "/hook"),
            ("/h?a=b?c/d&e", "/h"),
            ("//evil.test/x", "//evil.test/x"),
            ("/a.b/...", "/a.b/..."),
            ("/a%2Fb", "/a%2Fb"),
            ("/a?x=../..", "/a"),
            ("/a?tags[]=x&f={a|b}^`", "/a"),
            ("/~a!$&'()*+,;=:@-_", "/~a!$&'()*+,;=:@-_"),
            ("/.well-known", "/.well-known"),
            ("/..a/b..", "/..a/b.."),
        ] {
            let (parts, absolute) = parse(target.as_bytes()).unwrap_or_else(|_| panic!("{target}"));
            assert_eq!((&target[parts.origin..parts.path_end], absolute), (path, None));
        }
    }

    #[test]
    fn absolute_form() {
        let (parts, absolute) = parse(b"HTTP://A.test:81/p?q").unwrap();
        assert_eq!((parts.origin, parts.path_end), (16, 18));
        let (authority, port) = absolute.unwrap();
        assert_eq!((authority.host, authority.port, port), ("A.test", Some(81), 80));
        let (parts, absolute) = parse(b"https://a.test?q").unwrap();
        assert_eq!((parts.origin, parts.path_end, absolute.unwrap().1), (14, 14, 443));
    }

    #[test]
    fn everything_else_is_refused() {
        for target in [
            "",
            "*",
            "hook",
            "?a",
            "a.test:80",
            "a.test",
            "http:/a",
            "http:///a",
            "http://",
            "http://u@a/",
            "http://a b/",
            "ftp://a/",
            "/a#b",
            "/a b",
            "/a\0",
            "/a\t",
            "/a\x7f",
            "/a\"b",
            "/a<b",
            "/a\\b",
            "/a^b",
            "/a`b",
            "/a{b",
            "/a|b",
            "/a[b",
            "/a?b\\c",
            "/a?b\"c",
            "/a?b<c",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a?%g0",
            "/ä",
            "/a?ä",
            "/.",
            "/..",
            "/./a",
            "/a/..",
            "/a/../b",
            "/%2e",
            "/%2E%2e/a",
            "/a/.%2e",
            "/a%2f..%2fb",
            "/a%5c..",
            "/a%5C%2E%2e/x",
            "http://a/..",
        ] {
            assert_eq!(parse(target.as_bytes()), Err(Refusal::MalformedRequest), "{target:?}");
        }
        assert!(parse(b"/a\xff").is_err());
    }
}
