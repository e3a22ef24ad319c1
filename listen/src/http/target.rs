//! The request target (RFC 9112 §3.2): origin-form, or absolute-form that says the same as `Host`; for a proxy also the
//! authority-form of CONNECT.
//!
//! Characters are those of RFC 3986, in the query also those that the WHATWG URL standard leaves alone, and nothing else: no space, no control, no fragment, no byte above ASCII, no
//! broken percent escape. What other servers repair, two hops repair in two ways.
//!
//! Dot segments are refused, also escaped ones (`%2e`), also between escaped separators (`%2f`, `%5c`). The path is
//! matched byte by byte here and never normalised, so `/hooks/../admin` could mean nothing but a hop before us that
//! sees another path than we do. `//` stays: it is a path like any other, matches no endpoint, and is never taken
//! for an authority.
//!
//! A proxy passes paths on to servers that are not ours, and `/a/../b` is a matter between these and the caller. There
//! dot segments are found and told of ([`Head::has_dot_segments`](super::Head::has_dot_segments)), not refused: whoever
//! judges a path refuses those. Paths may then also hold ``[ ] | ^``, which clients after the WHATWG URL standard leave
//! alone there too.

use domain::Refusal;

/// Which forms of target a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forms {
    /// What an origin server is sent: origin-form, and absolute-form that names the same place as `Host`.
    #[default]
    Origin,
    /// What a proxy is sent: absolute-form, authority-form for CONNECT and for nothing else; and origin-form, for
    /// what it serves itself.
    Proxy,
}

/// Which form a target has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://authority/path?query`
    Http,
    /// `https://authority/path?query`
    Https,
    /// `host:port`, of CONNECT.
    Authority,
}

impl Form {
    /// The port that stands for an absent one in a target of this form.
    fn default_port(self) -> Option<u16> {
        match self {
            Self::Http => Some(80),
            Self::Https => Some(443),
            Self::Origin | Self::Authority => None,
        }
    }

    /// Does `host`, as a `Host` field has it, name the same place as `authority`, which stands in a target of this form?
    /// Always, where that has none.
    ///
    /// An absent port is the scheme's. CONNECT has no scheme: clients leave the port out where it is 443 or, if they
    /// tunnel everything, 80 (Node's undici, Java), and write it where it is any other.
    pub(super) fn agrees(self, authority: &[u8], host: &Authority<'_>) -> bool {
        let Some(authority) = parse_authority(authority) else { return self == Self::Origin };
        match (self.default_port(), authority.port) {
            (Some(port), _) | (None, Some(port @ (80 | 443))) => authority.same_as(host, port),
            (None, _) => host.port.is_some() && authority.same_as(host, 0),
        }
    }
}

use super::authority::{Authority, parse_authority};
use super::field;

/// Where the parts of a target lie, in bytes from the target's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Parts {
    /// Beginning of path and query; beyond 0 for the absolute form.
    pub(super) origin: usize,
    /// End of the path; equal to `origin` where an absolute target has no path, which stands for `/`.
    pub(super) path_end: usize,
    pub(super) form: Form,
    /// Where the authority lies; empty for the origin form.
    pub(super) authority: (usize, usize),
    pub(super) dot_segments: bool,
}

/// Reads a target. `connect` says whether the method is CONNECT, which has the authority-form and no other (RFC 9112,
/// 3.2.3).
pub(super) fn parse(target: &[u8], forms: Forms, connect: bool) -> Result<Parts, Refusal> {
    let malformed = Refusal::MalformedRequest;
    if connect {
        return parse_connect(target).filter(|_| forms == Forms::Proxy).ok_or(malformed);
    }
    if target.first() == Some(&b'/') {
        return parse_origin(target, 0, forms);
    }
    // Anything else is `*`, an authority (of no use without CONNECT), or no target at all.
    let (scheme_bytes, form) = if starts_with(target, b"http://") {
        (7, Form::Http)
    } else if starts_with(target, b"https://") {
        (8, Form::Https)
    } else {
        return Err(malformed);
    };
    let rest = &target[scheme_bytes..];
    let authority_bytes = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    parse_authority(&rest[..authority_bytes]).ok_or(malformed)?;
    let authority_end = scheme_bytes + authority_bytes;
    let parts = parse_origin(target, authority_end, forms)?;
    Ok(Parts { form, authority: (scheme_bytes, authority_end), ..parts })
}

/// `host:port`, and the port is written: CONNECT has no default (RFC 9110 §9.3.6).
fn parse_connect(target: &[u8]) -> Option<Parts> {
    parse_authority(target)?.port?;
    let end = target.len();
    Some(Parts { origin: end, path_end: end, form: Form::Authority, authority: (0, end), dot_segments: false })
}

fn starts_with(target: &[u8], scheme: &[u8]) -> bool {
    target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

fn parse_origin(target: &[u8], origin: usize, forms: Forms) -> Result<Parts, Refusal> {
    let bytes = &target[origin..];
    let path_bytes = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let (path, query) = bytes.split_at(path_bytes);
    let dot_segments = memchr::memchr2(b'.', b'%', path).is_some() && has_dot_segment(path);
    let path_is_sound = match forms {
        Forms::Origin => field::is_path(path) && !dot_segments,
        Forms::Proxy => field::is_passed_path(path),
    };
    if path_is_sound && field::is_query(query) && field::percent_is_sound(bytes) {
        Ok(Parts { origin, path_end: origin + path_bytes, dot_segments, ..Parts::default() })
    } else {
        Err(Refusal::MalformedRequest)
    }
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

    fn parse_for_origin(target: &str) -> Result<Parts, Refusal> {
        assert!(parse(target.as_bytes(), Forms::Origin, true).is_err(), "an origin server has no CONNECT");
        parse(target.as_bytes(), Forms::Origin, false)
    }

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
            let parts = parse_for_origin(target).unwrap_or_else(|_| panic!("{target}"));
            assert_eq!((&target[parts.origin..parts.path_end], parts.form), (path, Form::Origin));
        }
    }

    #[test]
    fn absolute_form() {
        let parts = parse_for_origin("HTTP://A.test:81/p?q").unwrap();
        assert_eq!((parts.origin, parts.path_end, parts.form, parts.authority), (16, 18, Form::Http, (7, 16)));
        let parts = parse_for_origin("https://a.test?q").unwrap();
        assert_eq!((parts.origin, parts.path_end, parts.form, parts.authority), (14, 14, Form::Https, (8, 14)));
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
            assert_eq!(parse_for_origin(target), Err(Refusal::MalformedRequest), "{target:?}");
        }
        assert!(parse(b"/a\xff", Forms::Origin, false).is_err());
    }
    #[test]
    fn a_proxy_passes_on_what_is_not_its_own() {
        for (target, dots) in [
            ("http://a.test/a/../b", true),
            ("http://a.test/%2e%2E/b?q", true),
            ("/c/conn/..", true),
            ("/c/conn/a.b", false),
            ("http://a.test/x[1]|y^z", false),
            ("https://a.test", false),
        ] {
            let parts = parse(target.as_bytes(), Forms::Proxy, false).unwrap_or_else(|_| panic!("{target}"));
            assert_eq!(parts.dot_segments, dots, "{target}");
        }
        for target in [
            "",
            "*",
            "a.test:80",
            "ftp://a.test/",
            "http:///x",
            "http://u@a.test/",
            "http://u:p@a.test/",
            "http://a.test/#f",
            "http://127.0.0.1:1#@a.test/",
            "http://a.test:99999/",
            "http://127.0.0.%31/",
            "http://a.test\\@b.test/",
            "http://a.test/a\\b",
            "http://a.test/a`b",
            "http://a.test/%",
            "http://a.test/a b",
        ] {
            assert_eq!(parse(target.as_bytes(), Forms::Proxy, false), Err(Refusal::MalformedRequest), "{target}");
        }
    }

    #[test]
    fn connect_names_a_host_and_a_port() {
        for target in ["a.test:443", "A.test.:8443", "[::1]:1", "192.0.2.1:80"] {
            let parts = parse(target.as_bytes(), Forms::Proxy, true).unwrap_or_else(|_| panic!("{target}"));
            assert_eq!((parts.form, parts.authority), (Form::Authority, (0, target.len())));
        }
        for target in [
            "",
            "*",
            "/",
            "a.test",
            "a.test:",
            "a.test:44x",
            "a.test:+443",
            ":443",
            "a.test:443/",
            "a.test:443/x",
            "a.test:443?",
            "u@a.test:443",
            "u:p@a.test:443",
            "http://a.test:443/",
            "http://a.test:443",
            "::1:443",
            "[::1]",
            "[fe80::1%25a]:443",
        ] {
            assert_eq!(parse(target.as_bytes(), Forms::Proxy, true), Err(Refusal::MalformedRequest), "{target}");
        }
    }

    #[test]
    fn host_agrees_where_it_names_the_same_place() {
        let agrees = |target: &str, host: &str, connect: bool| {
            let parts = parse(target.as_bytes(), Forms::Proxy, connect).unwrap_or_else(|_| panic!("{target}"));
            let (start, end) = parts.authority;
            parts.form.agrees(&target.as_bytes()[start..end], &parse_authority(host.as_bytes()).unwrap())
        };
        for (target, host, same) in [
            ("a.test:443", "a.test:443", true),
            ("a.test:443", "A.TEST.", true),
            ("a.test:80", "a.test", true),
            ("a.test:8443", "a.test:8443", true),
            ("a.test:8443", "a.test", false),
            ("a.test:443", "a.test:80", false),
            ("a.test:80", "a.test:443", false),
            ("a.test:443", "b.test:443", false),
            ("[::1]:443", "[0:0::1]", true),
            ("a.test:0", "a.test", false),
        ] {
            assert_eq!(agrees(target, host, true), same, "{target} {host}");
        }
        for (target, host, same) in [
            ("http://a.test/", "a.test:80", true),
            ("http://a.test:80/", "a.test", true),
            ("http://a.test/", "a.test:443", false),
            ("https://a.test/", "a.test:443", true),
            ("https://a.test/", "a.test:80", false),
            ("http://a.test:8080/", "a.test", false),
            ("/c/x", "b.test", true),
        ] {
            assert_eq!(agrees(target, host, false), same, "{target} {host}");
        }
    }
}
