//! The URL as the provider saw it, and the ways in which providers write it.

use config::PublicUrl;
use config::scheme::UrlVariant;

/// Everything before the request target in the URL that the provider was given. It comes from configuration; what
/// headers say about it is for the caller to believe or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenUrl<'a> {
    /// `https` or `http`.
    pub scheme: &'a str,
    /// An IPv6 address stands in brackets.
    pub host: &'a str,
    pub port: Option<u16>,
    /// Path in front of the target that a proxy before us takes off; empty, or with a slash only at its beginning.
    pub base_path: &'a str,
}

/// A text that is no URL to post to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an http or https URL with a host")]
pub struct InvalidUrl;

impl<'a> From<&'a PublicUrl> for SeenUrl<'a> {
    fn from(url: &'a PublicUrl) -> Self {
        Self { scheme: url.scheme(), host: url.host(), port: url.port(), base_path: url.path() }
    }
}

impl<'a> SeenUrl<'a> {
    /// Takes a whole URL apart: what stands before the target, and the target.
    pub fn split(url: &'a str) -> Result<(Self, &'a str), InvalidUrl> {
        let (scheme, rest) = url.split_once("://").ok_or(InvalidUrl)?;
        if scheme != "https" && scheme != "http" {
            return Err(InvalidUrl);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if target.starts_with(['?', '#']) || target.contains('#') || authority.contains('@') {
            return Err(InvalidUrl);
        }
        let colon = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
        let (host, port) = match colon {
            Some(at) => (&authority[..at], Some(authority[at + 1..].parse().map_err(|_| InvalidUrl)?)),
            None => (authority, None),
        };
        if host.is_empty() || url.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(InvalidUrl);
        }
        Ok((Self { scheme, host, port, base_path: "" }, if target.is_empty() { "/" } else { target }))
    }

    fn default_port(&self) -> u16 {
        if self.scheme == "http" { 80 } else { 443 }
    }

    /// Shows the URL in one variant, piece by piece.
    pub(crate) fn write(&self, target: &[u8], variant: UrlVariant, decodes: &[u8], out: &mut dyn FnMut(&[u8])) {
        out(self.scheme.as_bytes());
        out(b"://");
        out(self.host.as_bytes());
        let port = match variant {
            UrlVariant::WithoutPort => None,
            UrlVariant::WithPort => Some(self.port.unwrap_or_else(|| self.default_port())),
            UrlVariant::AsSeen | UrlVariant::TrailingSlash | UrlVariant::WithoutTrailingSlash => self.port,
        };
        if let Some(port) = port {
            out(b":");
            out(itoa(port, &mut [0; 5]));
        }
        let (path, query) = target.split_at(target.iter().position(|b| *b == b'?').unwrap_or(target.len()));
        let slash = path.ends_with(b"/");
        let cut = usize::from(slash && variant == UrlVariant::WithoutTrailingSlash);
        let path = &path[..path.len() - cut];
        decoded(self.base_path.as_bytes(), decodes, out);
        decoded(path, decodes, out);
        if variant == UrlVariant::TrailingSlash && !slash {
            out(b"/");
        }
        decoded(query, decodes, out);
    }
}

/// Shows `text` with the percent-escapes of the bytes in `set` decoded and every other one left as it is.
fn decoded(text: &[u8], set: &[u8], out: &mut dyn FnMut(&[u8])) {
    let mut rest = text;
    if !set.is_empty() {
        while let Some(at) = rest.iter().position(|b| *b == b'%') {
            let byte = rest.get(at + 1..at + 3).and_then(super::form::hex_pair).filter(|b| set.contains(b));
            let (shown, next) = if byte.is_some() { (at, at + 3) } else { (at + 1, at + 1) };
            out(&rest[..shown]);
            out(byte.as_slice());
            rest = &rest[next..];
        }
    }
    out(rest);
}

/// Decimal digits of a port.
fn itoa(mut value: u16, buffer: &mut [u8; 5]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
        if value == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(url: &str, variant: UrlVariant, decodes: &str) -> String {
        let (seen, target) = SeenUrl::split(url).unwrap();
        let mut out = Vec::new();
        seen.write(target.as_bytes(), variant, decodes.as_bytes(), &mut |bytes| out.extend_from_slice(bytes));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn urls_come_apart() {
        let (seen, target) = SeenUrl::split("https://h.example:8443/a?b=c").unwrap();
        assert_eq!((seen.scheme, seen.host, seen.port, target), ("https", "h.example", Some(8443), "/a?b=c"));
        assert_eq!(SeenUrl::split("http://[::1]/x").unwrap().0.port, None);
        assert_eq!(SeenUrl::split("http://[::1]:80/x").unwrap().0.host, "[::1]");
        assert_eq!(SeenUrl::split("https://h.example").unwrap().1, "/");
        for url in [
            "h.example/x",
            "ftp://h/x",
            "https:///x",
            "https://h:port/",
            "https://u@h/",
            "https://h/#f",
            "https://h/a b",
        ] {
            assert_eq!(SeenUrl::split(url), Err(InvalidUrl), "{url}");
        }
    }

    #[test]
    fn a_configured_url_stands_before_the_target() {
        let configured: PublicUrl = "https://hooks.example.com:8443/in".parse().unwrap();
        let mut out = Vec::new();
        SeenUrl::from(&configured).write(b"/x?y", UrlVariant::AsSeen, b"", &mut |part| out.extend_from_slice(part));
        assert_eq!(out, configured.with_target("/x?y").as_bytes());
    }

    #[test]
    fn variants() {
        use UrlVariant::{AsSeen, TrailingSlash, WithPort, WithoutPort, WithoutTrailingSlash};
        for (variant, url, expected) in [
            (AsSeen, "https://h/a?b=1", "https://h/a?b=1"),
            (AsSeen, "https://h:443/a", "https://h:443/a"),
            (WithPort, "https://h/a", "https://h:443/a"),
            (WithPort, "http://h/a", "http://h:80/a"),
            (WithPort, "http://h:81/a", "http://h:81/a"),
            (WithoutPort, "https://h:1234/a?b", "https://h/a?b"),
            (TrailingSlash, "https://h/a?b", "https://h/a/?b"),
            (TrailingSlash, "https://h/a/?b", "https://h/a/?b"),
            (WithoutTrailingSlash, "https://h/a/?b", "https://h/a?b"),
            (WithoutTrailingSlash, "https://h/a", "https://h/a"),
        ] {
            assert_eq!(written(url, variant, ""), expected, "{variant:?} {url}");
        }
    }

    #[test]
    fn only_listed_escapes_are_decoded() {
        let url = "https://h/a%3Ab%2fc%20d%25%3?x=%40%zz%4";
        assert_eq!(written(url, UrlVariant::AsSeen, ":/@"), "https://h/a:b/c%20d%25%3?x=@%zz%4");
        assert_eq!(written(url, UrlVariant::AsSeen, ""), url);
        // What comes out of one escape is not read again.
        assert_eq!(written("https://h/%253A", UrlVariant::AsSeen, ":%"), "https://h/%3A");
    }
}
