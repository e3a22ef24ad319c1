//! Why a captured delivery does not verify, and where to look next: by trying what usually went wrong.
//!
//! A mismatch alone says little. Captures lose or gain a line end, URLs are seen by the provider under another
//! scheme, a secret is pasted with a blank. Each is tried here, and what fits is said.

use domain::Secret;
use gateway::scheme::{ActiveKey, Presets, Scheme, SeenUrl, Unverified, VerifyFault};

use super::scheme::{Setup, signs_url};
use super::when::distance;
use crate::control::time::rfc3339;

/// A delivery as it was captured.
#[derive(Debug, Clone)]
pub(crate) struct Captured<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    /// Nobody said the URL: the one here stands in for it.
    pub(crate) url_unsaid: bool,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
    pub(crate) at_unix_ms: u64,
}

/// What to look at next, most telling first. Never empty.
pub(crate) fn hints(setup: &Setup, captured: &Captured<'_>, fault: &VerifyFault, presets: &Presets) -> Vec<String> {
    match fault {
        VerifyFault::NoActiveKey => vec![inactive(setup, captured)],
        VerifyFault::Missing { .. } => missing(setup, captured, presets),
        VerifyFault::Duplicate { what } => {
            vec![format!(
                "a proxy may have added or merged it: capture in front of that proxy, and give the {what} once"
            )]
        }
        VerifyFault::Malformed { .. } | VerifyFault::Requirement { .. } | VerifyFault::BodyRule => {
            vec![format!("`tidegate schemes show {}` says how this scheme writes it", setup.scheme.name())]
        }
        VerifyFault::BodyDigest => body_changes(setup, captured).unwrap_or_else(body_differs),
        VerifyFault::Mismatch => mismatch(setup, captured),
        VerifyFault::TooOld { by_ms } => time(setup, captured, captured.at_unix_ms.saturating_sub(*by_ms)),
        VerifyFault::InFuture { by_ms } => time(setup, captured, captured.at_unix_ms.saturating_add(*by_ms)),
    }
}

fn inactive(setup: &Setup, captured: &Captured<'_>) -> String {
    let spans = setup.keys.iter().map(|named| {
        let end = |at: Option<u64>| at.map_or_else(|| "…".to_owned(), rfc3339);
        format!("{} from {} to {}", named.name, end(named.not_before_unix_ms), end(named.not_after_unix_ms))
    });
    let spans: Vec<_> = spans.collect();
    format!("at {} none counts: {}", rfc3339(captured.at_unix_ms), spans.join("; "))
}

/// Deliveries of another provider have another provider's headers.
fn missing(setup: &Setup, captured: &Captured<'_>, presets: &Presets) -> Vec<String> {
    let mut hints = Vec::new();
    let alike: Vec<&str> = presets
        .iter()
        .filter(|scheme| scheme.name() != setup.scheme.name() && has_signature_of(scheme, captured.headers))
        .map(|scheme| scheme.name())
        .collect();
    if !alike.is_empty() {
        hints.push(format!("its headers look like those of {}", alike.join(" or ")));
    }
    if captured.headers.is_empty() {
        hints.push("no header was given: add --header 'Name: value' for each, or --headers-from FILE".to_owned());
    }
    hints.push(format!("`tidegate schemes show {}` says where the signature is", setup.scheme.name()));
    hints
}

fn has_signature_of(scheme: &Scheme, headers: &[(String, String)]) -> bool {
    let rule = &scheme.declaration().signature;
    let wanted = rule.header.iter().chain(&rule.headers);
    // Everybody has an Authorization header.
    let mut wanted = wanted.filter(|name| !name.eq_ignore_ascii_case("authorization"));
    wanted.any(|name| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)))
}

fn mismatch(setup: &Setup, captured: &Captured<'_>) -> Vec<String> {
    let found = body_changes(setup, captured)
        .or_else(|| url_changes(setup, captured))
        .or_else(|| secret_changes(setup, captured));
    if let Some(found) = found {
        return found;
    }
    let mut hints = Vec::new();
    if captured.url_unsaid && signs_url(setup.scheme.declaration()) {
        hints.push("this scheme signs the URL: give --url, the whole of it as the provider has it".to_owned());
    }
    hints.push("is it this endpoint's secret, and not an API key or another endpoint's?".to_owned());
    hints.extend(body_differs());
    hints
}

fn body_differs() -> Vec<String> {
    vec!["is the body byte for byte what was sent? Parsed and printed JSON is not".to_owned()]
}

/// Would it verify with these changes?
fn fits(setup: &Setup, captured: &Captured<'_>, keys: &[ActiveKey<'_>]) -> bool {
    let Ok((url, target)) = SeenUrl::split(captured.url) else { return false };
    let headers: Vec<(&str, &str)> = captured.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let delivery = Unverified {
        method: captured.method.as_bytes(),
        target: target.as_bytes(),
        url,
        headers: &headers,
        body: captured.body,
        received_unix_ms: captured.at_unix_ms,
    };
    setup.scheme.verify(&delivery, keys).is_ok()
}

fn body_changes(setup: &Setup, captured: &Captured<'_>) -> Option<Vec<String>> {
    let body = captured.body;
    let line_end = body.strip_suffix(b"\r\n").or_else(|| body.strip_suffix(b"\n"));
    let added = [body, b"\n"].concat();
    let unix = replace(body, b"\r\n", b"\n");
    let dos = replace(&unix, b"\n", b"\r\n");
    let trials: [(Option<&[u8]>, &str); 5] = [
        (line_end, "it verifies without the line end at the end of the body: the capture added it"),
        (Some(&added), "it verifies with a line end at the end of the body: the capture lost it"),
        (Some(&unix), "it verifies with line ends of \\n instead of \\r\\n: the capture changed them"),
        (Some(&dos), "it verifies with line ends of \\r\\n instead of \\n: the capture changed them"),
        (body.strip_prefix(b"\xef\xbb\xbf"), "it verifies without the byte order mark: an editor added it"),
    ];
    let keys = setup.active(captured.at_unix_ms);
    let found = trials
        .into_iter()
        .find(|(body, _)| body.is_some_and(|body| fits(setup, &Captured { body, ..captured.clone() }, &keys)));
    found.map(|(_, hint)| vec![hint.to_owned()])
}

fn url_changes(setup: &Setup, captured: &Captured<'_>) -> Option<Vec<String>> {
    if captured.url_unsaid || !signs_url(setup.scheme.declaration()) {
        return None;
    }
    let url = captured.url;
    let other_scheme = match url.split_once("://") {
        Some(("http", rest)) => format!("https://{rest}"),
        Some(("https", rest)) => format!("http://{rest}"),
        _ => return None,
    };
    let slash = url.strip_suffix('/').map_or_else(|| format!("{url}/"), str::to_owned);
    let query = url.split_once('?').map_or_else(|| url.to_owned(), |(before, _)| before.to_owned());
    let keys = setup.active(captured.at_unix_ms);
    let trials = [other_scheme, slash, query];
    let found = trials.iter().find(|url| fits(setup, &Captured { url, ..captured.clone() }, &keys))?;
    let found = domain::text::Untrusted::with_limit(found.as_bytes(), 2048).to_string();
    Some(vec![format!("it verifies for the URL {found}: that is what the provider has; set public_url accordingly")])
}

fn secret_changes(setup: &Setup, captured: &Captured<'_>) -> Option<Vec<String>> {
    setup.keys.iter().find_map(|named| {
        let trimmed = named.secret.expose().trim_ascii();
        if trimmed.len() == named.secret.expose().len() {
            return None;
        }
        let key = setup.scheme.key(&Secret::new(trimmed)).ok()?;
        let keys = [ActiveKey { index: 0, key: &key }];
        fits(setup, captured, &keys).then(|| {
            vec![format!("it verifies without the blanks around the secret {}: store it without them", named.name)]
        })
    })
}

/// Off by time alone, or by more than that?
fn time(setup: &Setup, captured: &Captured<'_>, allowed_at: u64) -> Vec<String> {
    let moved = Captured { at_unix_ms: allowed_at, ..captured.clone() };
    let keys = setup.active(captured.at_unix_ms);
    if fits(setup, &moved, &keys) {
        let off = distance(captured.at_unix_ms.abs_diff(allowed_at));
        return vec![
            format!("the signature itself fits; only the time is off, by {off}"),
            "give --at, the time when it was received; if that was it, look at both clocks".to_owned(),
        ];
    }
    vec![
        "the signature does not fit either, whatever the time".to_owned(),
        "give --at, the time when it was received, to see what else is wrong".to_owned(),
    ]
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(from) {
            out.extend_from_slice(to);
            rest = behind;
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out
}
