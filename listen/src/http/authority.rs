//! `uri-host [ ":" port ]`, as `Host` and an absolute target carry it.
//!
//! Stricter than RFC 3986: a registered name is letters, digits, `-`, `.` and `_`, as names that resolve are. Percent
//! escapes and sub-delimiters (a comma above all) are refused: no provider needs them, and hops disagree on them.

use std::net::Ipv6Addr;

use super::field;

/// Longest host that DNS can carry in text.
const HOST_BYTES_MAX: usize = 253;

/// A host and a port. The host is as received, in whatever case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Without brackets for an IPv6 address, and without the root's dot at the end.
    pub host: &'a str,
    pub ipv6: Option<Ipv6Addr>,
    /// None where it is absent or empty.
    pub port: Option<u16>,
}

impl Authority<'_> {
    /// Writes the one form that hosts are compared in: lower case, and the canonical form of an IPv6 address in brackets.
    pub fn write_normal(&self, out: &mut String) {
        out.clear();
        if let Some(address) = self.ipv6 {
            use std::fmt::Write;
            // Writing into a String cannot fail.
            let _written = write!(out, "[{address}]");
        } else {
            out.push_str(self.host);
            out.make_ascii_lowercase();
        }
    }

    /// Do both name the same place? `default_port` stands for an absent one.
    pub fn same_as(&self, other: &Authority<'_>, default_port: u16) -> bool {
        let hosts = match (self.ipv6, other.ipv6) {
            (Some(one), Some(two)) => one == two,
            (None, None) => self.host.eq_ignore_ascii_case(other.host),
            _ => false,
        };
        hosts && self.port.unwrap_or(default_port) == other.port.unwrap_or(default_port)
    }
}

/// Reads an authority without userinfo; None where it is not well-formed.
pub fn parse_authority(bytes: &[u8]) -> Option<Authority<'_>> {
    if let Some(rest) = bytes.strip_prefix(b"[") {
        let close = memchr::memchr(b']', rest)?;
        let host = std::str::from_utf8(&rest[..close]).ok()?;
        // No zone: it means something on the sender's machine only. `parse` takes none.
        let address = host.parse::<Ipv6Addr>().ok()?;
        let port = parse_port(&rest[close + 1..])?;
        return Some(Authority { host, ipv6: Some(address), port });
    }
    let (host, port) = match memchr::memchr(b':', bytes) {
        Some(colon) => (&bytes[..colon], parse_port(&bytes[colon..])?),
        None => (bytes, None),
    };
    let host = host.strip_suffix(b".").unwrap_or(host);
    if !field::is_host_name(host)
        || host.len() > HOST_BYTES_MAX
        || host.split(|&byte| byte == b'.').any(<[u8]>::is_empty)
    {
        return None;
    }
    Some(Authority { host: std::str::from_utf8(host).ok()?, ipv6: None, port })
}

/// `[ ":" *DIGIT ]`: the outer None is a fault, the inner one no port.
#[expect(clippy::option_option, reason = "private, and read right where it is called")]
fn parse_port(bytes: &[u8]) -> Option<Option<u16>> {
    let Some(digits) = bytes.strip_prefix(b":") else { return bytes.is_empty().then_some(None) };
    if digits.is_empty() {
        return Some(None);
    }
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_hosts() {
        let normal = |text: &str| {
            let authority = parse_authority(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            let mut out = String::from("left over");
            authority.write_normal(&mut out);
            (out, authority.port)
        };
        assert_eq!(normal("Hooks.Example.COM"), ("hooks.example.com".into(), None));
        assert_eq!(normal("hooks.example.com."), ("hooks.example.com".into(), None));
        assert_eq!(normal("a_b-c.test:8443"), ("a_b-c.test".into(), Some(8443)));
        assert_eq!(normal("a.test:"), ("a.test".into(), None));
        assert_eq!(normal("192.0.2.1:080"), ("192.0.2.1".into(), Some(80)));
        assert_eq!(normal("[2001:DB8:0::1]:443"), ("[2001:db8::1]".into(), Some(443)));
        assert_eq!(normal("[::ffff:192.0.2.1]"), ("[::ffff:192.0.2.1]".into(), None));
    }

    #[test]
    fn malformed_hosts() {
        let long = "a".repeat(254);
        for text in [
            "",
            ":",
            ":80",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a\tb",
            "a,b",
            "a, b",
            "a/b",
            "a?b",
            "a#b",
            "user@a",
            "a@b",
            "a%41",
            "a:b",
            "a:-1",
            "a:+80",
            "a:65536",
            "a:080000",
            "a:80:80",
            "a:80 ",
            "[::1",
            "::1]",
            "::1",
            "[]",
            "[::1]a",
            "[::1]:x",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
            "[v1.a]",
            "[127.0.0.1]",
            "[[::1]]",
            "a[b",
            "a;b",
            "a!b",
            "ä.test",
            "a\\b",
            "a\0",
            &long,
        ] {
            assert_eq!(parse_authority(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_authority(b"a\xff"), None);
    }

    #[test]
    fn sameness_knows_default_ports_and_case() {
        let same = |one: &str, two: &str| {
            parse_authority(one.as_bytes()).unwrap().same_as(&parse_authority(two.as_bytes()).unwrap(), 80)
        };
        assert!(same("a.test", "A.TEST:80"));
        assert!(same("[::1]", "[0:0::1]:80"));
        assert!(!same("a.test", "a.test:81"));
        assert!(!same("a.test", "b.test"));
        assert!(!same("[::1]", "a.test"));
    }
}
