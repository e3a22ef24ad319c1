//! The small texts of the way out. Only their shape is judged here: what a host or a URL means is for the one parser of
//! destinations to say.

use data_encoding::HEXLOWER_PERMISSIVE;

use crate::form::{Count, Text, text};

const HOST_HINT: &str =
    "write a host name, \"*.\" and a zone, or an address, such as \"api.example.com\" or \"*.example.com\"";

/// A port that something can listen on.
pub(crate) const fn port() -> Count {
    Count(1..=65_535)
}

/// A host by itself.
pub(crate) const fn host_text() -> Text<String> {
    text(
        "host, `*.` and a zone, or address",
        "api.example.com",
        |text| match host_and_port(text)? {
            (host, None) => Ok(host.to_owned()),
            (host, Some(port)) => Err(format!("{text:?} has a port; write host = \"{host}\" and ports = [{port}]")),
        },
        String::clone,
    )
}

/// Splits `host` and `host:port`; `[v6]` and `[v6]:port` too.
pub(crate) fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    if text.is_empty() {
        return Err(format!("is empty; {HOST_HINT}"));
    }
    if text.len() > 320 {
        return Err("is longer than any host".into());
    }
    if text.contains("://") {
        return Err(format!("{text:?} has a scheme; {HOST_HINT}"));
    }
    if let Some(odd) = text.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!("{text:?} holds {odd:?}; write an international host name in its xn-- form"));
    }
    if let Some(odd) = text.chars().find(|c| matches!(c, '/' | '?' | '#' | '@' | '\\' | '%' | ',' | '"')) {
        return Err(format!("{text:?} holds {odd:?}; {HOST_HINT}"));
    }
    if text == "*" || text == "*." {
        return Err(format!("{text:?} is every host; mode = \"open\" says that nothing needs a rule"));
    }
    let (host, port) = if text.starts_with('[') {
        let end = text.find(']').ok_or_else(|| format!("{text:?} has no end of its brackets"))? + 1;
        match &text[end..] {
            "" => (text, None),
            rest => match rest.strip_prefix(':') {
                Some(port) => (&text[..end], Some(port)),
                None => return Err(format!("{text:?} has something behind its brackets; {HOST_HINT}")),
            },
        }
    } else {
        match text.split_once(':') {
            None => (text, None),
            Some((_, rest)) if rest.contains(':') => {
                return Err(format!("{text:?} has two colons; write an IPv6 address in brackets"));
            }
            Some((host, port)) => (host, Some(port)),
        }
    };
    if host.is_empty() {
        return Err(format!("{text:?} has no host; {HOST_HINT}"));
    }
    let port = port.map(|digits| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        let port = plain.then(|| digits.parse::<u16>().ok()).flatten();
        port.ok_or_else(|| format!("{text:?} has no port from 1 to 65535 behind its colon"))
    });
    Ok((host, port.transpose()?))
}

/// The `token` of RFC 9110, 5.6.2: names of methods and of fields.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

pub(crate) const fn method() -> Text<String> {
    text(
        "method",
        "GET",
        |text| {
            if !is_token(text) || text.len() > 32 {
                return Err(format!("{text:?} is no method; write such as \"GET\""));
            }
            if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
                let upper = text.to_ascii_uppercase();
                return Err(format!("{text:?} has small letters, and methods tell them apart; write {upper:?}"));
            }
            Ok(text.to_owned())
        },
        String::clone,
    )
}

pub(crate) const fn path_prefix() -> Text<String> {
    text(
        "beginning of a path",
        "/v1/",
        |text| {
            if !text.starts_with('/') {
                return Err(format!("{text:?} does not begin with a slash; write such as \"/v1/\""));
            }
            if text.len() > PATH_BYTES_MAX {
                return Err(format!("is longer than {PATH_BYTES_MAX} bytes"));
            }
            match text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#')) {
                Some(odd) => {
                    Err(format!("{text:?} holds {odd:?}; write the path as it stands in a request, without query"))
                }
                None => Ok(text.to_owned()),
            }
        },
        String::clone,
    )
}

/// Longer than any path that somebody writes down.
const PATH_BYTES_MAX: usize = 1024;

/// A path that every program reads in the same way, `/…`.
fn path(text: &str) -> Result<(), String> {
    if text.len() > PATH_BYTES_MAX {
        return Err(format!("is longer than {PATH_BYTES_MAX} bytes"));
    }
    if let Some(odd) = text.chars().find(|c| !c.is_ascii_graphic() || "?#\\%\"<>^`{|}".contains(*c)) {
        return Err(format!("{text:?} holds {odd:?}; write the path plainly, without query and without escapes"));
    }
    if text.contains("//") || text.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(format!("{text:?} has an empty or dotted part, which programs rewrite; write the plain path"));
    }
    Ok(())
}

/// A URL that paths are put behind: `https://host[:port][/base/path]`, without a slash at its end.
pub(crate) const fn base_url() -> Text<String> {
    text(
        "URL",
        "https://api.stripe.com",
        |text| {
            let example = "write it as \"https://api.stripe.com\"";
            if text.len() > 2048 {
                return Err("is longer than 2048 bytes".into());
            }
            let Some(rest) = text.strip_prefix("https://") else {
                return Err(format!("{text:?} does not begin with https://; {example}"));
            };
            if let Some(odd) = rest.chars().find(|c| !c.is_ascii_graphic()) {
                return Err(format!("{text:?} holds {odd:?}; write an international host name in its xn-- form"));
            }
            if rest.contains('@') {
                // It may be a password.
                return Err(format!("holds an @; a credential goes into a [[credential]] table; {example}"));
            }
            let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (host, _) = host_and_port(authority)?;
            if host.starts_with('*') {
                return Err(format!("{text:?} has a star in its host; {example}"));
            }
            let base = base.strip_suffix('/').unwrap_or(base);
            path(base)?;
            Ok(format!("https://{authority}{base}"))
        },
        String::clone,
    )
}

/// Fields that frame a message, name its destination, prove who sends it to a proxy, or are ours.
const NEVER: [&str; 15] = [
    "connection",
    "content-length",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "proxy-status",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Name of a header field, in lower case.
pub(crate) fn header_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    if !is_token(text) || text.len() > 128 {
        return Err(format!("{text:?} is no name of a header; write such as \"X-Api-Key\""));
    }
    if NEVER.contains(&name.as_str()) || name.starts_with("tidegate-") {
        return Err(format!("{text:?} is a header that no call sets; choose the one that the provider documents"));
    }
    Ok(name)
}

pub(crate) const fn header() -> Text<String> {
    text("name of a header", "X-Api-Key", header_name, String::clone)
}

/// Name of a query parameter, as it stands in a URL.
pub(crate) const fn parameter() -> Text<String> {
    text(
        "name of a parameter",
        "api_key",
        |text| {
            let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~[]".contains(&byte));
            if plain && (1..=128).contains(&text.len()) {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is no name of a parameter; write letters, digits and -._~[]"))
            }
        },
        String::clone,
    )
}

/// A digest of a token, and never the token: what is none is repeated nowhere.
pub(crate) const fn token_hash() -> Text<[u8; 32]> {
    text(
        "digest of a token",
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        |text| {
            let hex = text.strip_prefix("sha256:").and_then(|hex| HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok());
            hex.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
                "is no digest of a token; write \"sha256:\" and 64 hex digits, what `printf %s TOKEN | sha256sum` prints, and never the token".into()
            })
        },
        |_| "sha256:…".into(),
    )
}

pub(crate) const fn certificate_digest() -> Text<[u8; 32]> {
    text(
        "digest of a certificate",
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        |text| {
            let hex = text.strip_prefix("sha256:").and_then(|hex| HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok());
            hex.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
                "is no digest of a certificate; write \"sha256:\" and 64 hex digits, what `openssl x509 -in FILE -outform DER | sha256sum` prints".into()
            })
        },
        |digest| format!("sha256:{}", HEXLOWER_PERMISSIVE.encode(digest)),
    )
}

pub(crate) const fn subject_name() -> Text<String> {
    text(
        "name in a certificate",
        "uri:spiffe://example.com/runner",
        |text| {
            let name = ["dns:", "uri:", "email:"].into_iter().find_map(|kind| text.strip_prefix(kind));
            match name {
                Some(name) if (1..=512).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    Ok(text.to_owned())
                }
                _ => Err(format!(
                    "{text:?} is no name in a certificate; write its kind before it: \"dns:…\", \"uri:…\" or \"email:…\""
                )),
            }
        },
        String::clone,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_have_a_port() {
        for (text, host, port) in [
            ("api.example.com", "api.example.com", None),
            ("*.example.com:8443", "*.example.com", Some(8443)),
            ("[2001:db8::1]", "[2001:db8::1]", None),
            ("[2001:db8::1]:443", "[2001:db8::1]", Some(443)),
            ("192.0.2.1:65535", "192.0.2.1", Some(65_535)),
        ] {
            assert_eq!(host_and_port(text), Ok((host, port)), "{text}");
        }
        for text in [
            "",
            "*",
            "*.",
            ":443",
            "a:",
            "a:0",
            "a:080",
            "a:65536",
            "a:+1",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "https://a",
            "a/b",
            "a b",
            "u@a",
            "ä.de",
            "a\\b",
            "%61.com",
            "a,b",
        ] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }
}
