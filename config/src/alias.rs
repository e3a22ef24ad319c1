//! Other places that an endpoint answers at: `/path`, or `host/path`.

use std::fmt;

use crate::form::{Text, text};
use crate::public_url::is_host;
use crate::tenant::Alias;

/// Longer than any path that a provider's form takes.
const PATH_BYTES_MAX: usize = 1024;

pub(crate) const fn form() -> Text<Alias> {
    text("host and path", "hooks.example.com/github", parse, Alias::to_string)
}

/// An alias that is good, from a text that need not be.
pub(crate) fn recover(text: &str) -> Option<Alias> {
    parse(text).ok()
}

fn parse(text: &str) -> Result<Alias, String> {
    let hint = "write \"/path\", or \"host/path\" for one host only";
    if text.contains("://") {
        return Err(format!("{text:?} has a scheme; {hint}"));
    }
    let Some(at) = text.find('/') else { return Err(format!("{text:?} has no path; {hint}")) };
    let (host, path) = text.split_at(at);
    if !host.is_empty() && !is_host(host) {
        return Err(format!("{text:?} has no usable host, which is a name without port; {hint}"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(format!("is longer than {PATH_BYTES_MAX} bytes"));
    }
    if let Some(odd) = path.chars().find(|c| !is_path_char(*c)) {
        return Err(format!("{text:?} holds {odd:?}; write the path as it stands in the request, without query"));
    }
    if path.len() > 1 && path.split('/').skip(1).any(|part| matches!(part, "." | "..")) || path.contains("//") {
        return Err(format!("{text:?} has an empty or dotted part, which proxies rewrite; write the plain path"));
    }
    if path == "/hooks" || path.starts_with("/hooks/") {
        return Err(format!(
            "{text:?} is under /hooks/, where endpoints answer by their ids; an alias is another path"
        ));
    }
    if path.starts_with("/.well-known/") {
        return Err(format!("{text:?} is under /.well-known/, which is the appliance's own; choose another path"));
    }
    Ok(Alias { host: (!host.is_empty()).then(|| host.to_ascii_lowercase().into()), path: path.into() })
}

/// What RFC 3986 allows in a path; a percent sign as part of an encoding that is compared as it is written.
fn is_path_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@%".contains(c)
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.host.as_deref().unwrap_or(""), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_a_path_with_or_without_host() {
        let alias = parse("Hooks.Example.com/GitHub/in").unwrap();
        assert_eq!((alias.host.as_deref(), &*alias.path), (Some("hooks.example.com"), "/GitHub/in"));
        assert_eq!(parse("/").unwrap(), Alias { host: None, path: "/".into() });
        assert_eq!(parse("/a/").unwrap().to_string(), "/a/");
        let wrong = [
            "",
            "a",
            "https://a/b",
            "a:80/b",
            "/a?b",
            "/a#b",
            "/a b",
            "/ä",
            "/a/../b",
            "/a//b",
            "//a",
            "/hooks",
            "/hooks/wh_1",
            "x.com/hooks/wh_1",
            "/.well-known/x",
            "/a\\b",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
