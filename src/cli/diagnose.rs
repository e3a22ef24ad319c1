//! Why a captured delivery does not verify, and where to look next.
//!
//! A mismatch alone says little. Captures lose or gain a line end, URLs are seen by the provider under another
//! scheme, a secret is pasted with a blank: the schemes try each, and what fits is said first.

use domain::Secret;
use gateway::scheme::{Presets, Scheme, Unverified, VerifyFault};

use super::scheme::{Setup, signs_url};
use crate::control::time::rfc3339;

/// A delivery as it was captured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Captured<'a> {
    pub(crate) delivery: Unverified<'a>,
    pub(crate) headers: &'a [(String, String)],
    /// Nobody said the URL: another one stands in for it.
    pub(crate) url_unsaid: bool,
}

/// What to look at next, most telling first. Never empty.
pub(crate) fn hints(setup: &Setup, captured: &Captured<'_>, fault: &VerifyFault, presets: &Presets) -> Vec<String> {
    let secrets: Vec<&Secret> = setup.keys.iter().map(|named| &named.secret).collect();
    let found: Vec<String> =
        setup.scheme.explain(&captured.delivery, &secrets).iter().map(ToString::to_string).collect();
    if !found.is_empty() {
        return found;
    }
    let others = presets.that_verify(&captured.delivery, &secrets);
    let others: Vec<_> = others.into_iter().filter(|name| *name != setup.scheme.name()).collect();
    if !others.is_empty() {
        return vec![format!(
            "with this secret it verifies as {}: the endpoint's scheme is another",
            others.join(" or ")
        )];
    }
    match fault {
        VerifyFault::NoActiveKey => vec![inactive(setup, captured.delivery.received_unix_ms)],
        VerifyFault::Missing { .. } => missing(setup, captured, presets),
        VerifyFault::Duplicate { .. } => {
            vec!["a proxy may have added or merged it: capture in front of that proxy, and give it once".to_owned()]
        }
        VerifyFault::Malformed { .. } | VerifyFault::Requirement { .. } | VerifyFault::BodyRule => {
            vec![format!("`tidegate schemes show {}` says how this scheme writes it", setup.scheme.name())]
        }
        VerifyFault::Mismatch | VerifyFault::BodyDigest | VerifyFault::Replayed => mismatch(setup, captured),
        VerifyFault::TooOld { .. } | VerifyFault::InFuture { .. } => {
            vec![
                "the signature does not fit either; give --at, the time of receipt, to see what else is wrong"
                    .to_owned(),
            ]
        }
    }
}

fn inactive(setup: &Setup, at_unix_ms: u64) -> String {
    let spans = setup.keys.iter().map(|named| {
        let end = |at: Option<u64>| at.map_or_else(|| "…".to_owned(), rfc3339);
        format!("{} from {} to {}", named.name, end(named.not_before_unix_ms), end(named.not_after_unix_ms))
    });
    let spans: Vec<_> = spans.collect();
    format!("at {} none counts: {}", rfc3339(at_unix_ms), spans.join("; "))
}

/// Deliveries of another provider have another provider's headers.
fn missing(setup: &Setup, captured: &Captured<'_>, presets: &Presets) -> Vec<String> {
    /// More names than these say nothing: that header is everybody's.
    const ALIKE_MAX: usize = 4;
    let mut hints = Vec::new();
    let alike: Vec<&str> = presets
        .iter()
        .filter(|scheme| scheme.name() != setup.scheme.name() && has_signature_of(scheme, captured.headers))
        .map(|scheme| scheme.name())
        .collect();
    if (1..=ALIKE_MAX).contains(&alike.len()) {
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
    // Everybody has an Authorization header.
    let mut wanted = rule.header.iter().chain(&rule.headers).filter(|name| !name.eq_ignore_ascii_case("authorization"));
    wanted.any(|name| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)))
}

fn mismatch(setup: &Setup, captured: &Captured<'_>) -> Vec<String> {
    let mut hints = Vec::new();
    if captured.url_unsaid && signs_url(setup.scheme.declaration()) {
        hints.push("this scheme signs the URL: give --url, the whole of it as the provider has it".to_owned());
    }
    hints.push("is it this endpoint's secret, and not an API key or another endpoint's?".to_owned());
    hints.push("is the body byte for byte what was sent? Parsed and printed JSON is not".to_owned());
    hints
}
