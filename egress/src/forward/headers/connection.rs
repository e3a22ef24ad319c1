//! What `Connection` lists.

use http::HeaderMap;
use http::header::{CONNECTION, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};

use super::HeaderFault;
use crate::Refusal;

/// End-to-end fields that change what a message means, whose it is, or where it ends.
const PROTECTED: &[&str] = &[
    "accept-encoding",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "digest",
    "expect",
    "host",
    "idempotency-key",
    "location",
    "origin",
    "range",
    "set-cookie",
    "signature",
    "via",
    "www-authenticate",
];

fn is_protected(name: &HeaderName) -> bool {
    name.as_str().starts_with("tidegate-") || PROTECTED.contains(&name.as_str())
}

/// Options and fields of connections: they may be listed without being there.
fn is_well_known(name: &HeaderName) -> bool {
    [TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || matches!(name.as_str(), "close" | "keep-alive" | "http2-settings")
        || name.as_str().starts_with("proxy-")
}

/// The fields that a caller lists, all of which may be taken out.
pub(super) fn listed(headers: &HeaderMap) -> Result<Vec<HeaderName>, HeaderFault> {
    let malformed = |detail| Err(HeaderFault { refusal: Refusal::RequestMalformed, detail });
    let mut listed = Vec::new();
    for name in tokens(headers) {
        let Some(name) = name else { return malformed("Connection lists something that is no field") };
        if is_protected(&name) {
            return malformed("Connection lists a field that is not the connection's");
        }
        if !is_well_known(&name) && !headers.contains_key(&name) {
            return malformed("Connection lists a field that is not there");
        }
        listed.push(name);
    }
    Ok(listed)
}

/// The fields that a destination lists. What may not be taken out stays.
pub(super) fn listed_by_peer(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers).flatten().filter(|name| !is_protected(name)).collect()
}

/// None for what is no token.
fn tokens(headers: &HeaderMap) -> impl Iterator<Item = Option<HeaderName>> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
        .map(|token| HeaderName::from_bytes(token).ok())
}
