//! The URL that providers post to, as they see it: schemes that sign the URL sign this one.

use std::fmt;
use std::str::FromStr;

/// `https://hooks.example.com[:port][/base/path]`. The host is lower case; the path has no slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublicUrl {
    text: Box<str>,
    host: (u16, u16),
    port: Option<u16>,
    path: u16,
}

/// Longer than any URL that a provider's form takes.
const TEXT_BYTES_MAX: usize = 2048;

impl PublicUrl {
    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.text.starts_with("https:") { "https" } else { "http" }
    }

    /// Host name or address, lower case, without port; an IPv6 address has its brackets.
    pub fn host(&self) -> &str {
        &self.text[usize::from(self.host.0)..usize::from(self.host.1)]
    }

    /// The port, if one is written: some providers sign `:443` exactly when it was.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Base path, empty or `/…` without a slash at its end.
    pub fn path(&self) -> &str {
        &self.text[usize::from(self.path)..]
    }

    /// Without a slash at its end, so that a target can be put behind it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The whole URL of a request, as the provider sees it.
    pub fn with_target(&self, target: &str) -> String {
        format!("{}{target}", self.text)
    }
}

impl Default for PublicUrl {
    /// For tests and for a machine that is tried out; a real one always says its own.
    fn default() -> Self {
        Self { text: "http://localhost:8080".into(), host: (7, 16), port: Some(8080), path: 21 }
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it as \"https://hooks.example.com\"";
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("{text:?} has no scheme; {example}"))?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(format!("{text:?} is neither http nor https; {example}"));
        }
        if let Some(odd) = rest.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!("{text:?} holds {odd:?}; write an international host name in its xn-- form"));
        }
        if let Some(odd) = rest.chars().find(|c| matches!(c, '?' | '#' | '@' | '\\' | '"' | '<' | '>')) {
            return Err(format!("{text:?} holds {odd:?}; write scheme, host, and if need be port and base path"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!("{text:?} has an empty or dotted part in its path; {example}"));
        }
        let (host, port) =
            split_authority(authority).ok_or_else(|| format!("{text:?} has no usable host; {example}"))?;
        let host = host.to_ascii_lowercase();
        let mut whole = format!("{scheme}://");
        let start = whole.len();
        whole.push_str(&host);
        let end = whole.len();
        if let Some(port) = port {
            whole.push(':');
            whole.push_str(&port.to_string());
        }
        let path_at = whole.len();
        whole.push_str(path);
        let short = |at: usize| u16::try_from(at).map_err(|_| "is too long".to_owned());
        Ok(Self { host: (short(start)?, short(end)?), port, path: short(path_at)?, text: whole.into() })
    }
}

fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if authority.starts_with('[') {
        let end = authority.find(']')? + 1;
        let rest = &authority[end..];
        (&authority[..end], if rest.is_empty() { "" } else { rest.strip_prefix(':')? })
    } else {
        authority.split_once(':').unwrap_or((authority, ""))
    };
    let bare_colon = port.is_empty() && authority.ends_with(':');
    let port = match port {
        "" => None,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok().filter(|port| *port != 0)?),
        _ => return None,
    };
    (!bare_colon && is_host(host)).then_some((host, port))
}

/// A host name by the letter of RFC 1123, an IPv4 address, or an IPv6 address in brackets.
pub(crate) fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    host.len() <= 253
        && host.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_as_the_provider_sees_them() {
        let url: PublicUrl = "HTTPS://Hooks.Example.com:443/in/Here/".parse().unwrap();
        assert_eq!(
            (url.scheme(), url.host(), url.port(), url.path()),
            ("https", "hooks.example.com", Some(443), "/in/Here")
        );
        assert_eq!(url.with_target("/hooks/wh_1?a=b"), "https://hooks.example.com:443/in/Here/hooks/wh_1?a=b");
        let url: PublicUrl = "http://[::1]:8080".parse().unwrap();
        assert_eq!((url.host(), url.port(), url.path()), ("[::1]", Some(8080), ""));
        assert_eq!("http://localhost:8080".parse(), Ok(PublicUrl::default()));
    }

    #[test]
    fn nothing_else_is_a_public_url() {
        let wrong = [
            "",
            "hooks.example.com",
            "ftp://a",
            "https://",
            "https://a:0",
            "https://a:65536",
            "https://a:",
            "https://a:+1",
            "https://u@a",
            "https://a?b",
            "https://a#b",
            "https://a/../b",
            "https://a//b",
            "https://ä.de",
            "https://a b",
            "https://[::1",
            "https://[x]",
            "https://-a.com",
            "https://a..b",
            "https://[::1]x",
        ];
        for text in wrong {
            assert!(text.parse::<PublicUrl>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_stable(text in "(https?://)?[a-z.:\\[\\]/0-9é-]{0,40}") {
            if let Ok(url) = text.parse::<PublicUrl>() {
                prop_assert_eq!(url.as_str().parse::<PublicUrl>(), Ok(url.clone()));
                prop_assert!(url.as_str().contains(url.host()) && url.as_str().ends_with(url.path()));
            }
        }
    }
}
