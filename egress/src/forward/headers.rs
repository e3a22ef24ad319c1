//! Which header fields travel.
//!
//! Towards the destination: what the caller said to us (credentials of the proxy, whatever belongs to the connection, our
//! own `Tidegate-*` fields) stays here, and so does what it, or a proxy before us, says about addresses inside
//! (`Forwarded`, `X-Forwarded-*`). What names the destination, ends the message or says who we are is set by us at the
//! end, and whatever the caller wrote there is gone.
//!
//! A caller can name fields in `Connection` to have them taken out. That is for fields of the connection, and it is also a
//! way to take out what somebody behind relies on; so it cannot name a field that changes what a request means, nor one
//! that it did not send.
//!
//! Back to the caller: the same, and nothing of a provider's can be taken for evidence of ours.
//!
//! All of this is about names as whoever is behind us reads them: `X_Forwarded_For` is `X-Forwarded-For` to many
//! (`alias.rs`).

mod alias;
mod connection;
mod names;

use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, MAX_FORWARDS, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method};
use outbound::Authority;
use thiserror::Error;

use crate::{Asked, Refusal, Way};

pub(crate) use alias::{is_alias, read_alike, read_as};
pub use names::{CORRELATION_ID, Names, NamesFault};

/// Why a request does not travel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{refusal}: {detail}")]
pub struct HeaderFault {
    /// What it is called.
    pub refusal: Refusal,
    /// For the operator; it holds no value of the caller's.
    pub detail: &'static str,
}

/// A caller's fields that may travel.
#[derive(Debug, Clone)]
pub struct Cleaned {
    /// Without `Host`, framing, fields of the connection, and ours.
    pub headers: HeaderMap,
    /// A WebSocket is asked for.
    pub upgrade: bool,
}

/// As many as most requests have, with what is added here.
const USUAL_FIELDS: usize = 16;

/// Fields as a listener has them, one after the other.
pub fn gather<'f>(fields: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Result<HeaderMap, HeaderFault> {
    let mut headers = HeaderMap::with_capacity(USUAL_FIELDS);
    for (name, value) in fields {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) else {
            let detail = "a field has a character that no field has";
            return Err(HeaderFault { refusal: Refusal::RequestMalformed, detail });
        };
        let full = || HeaderFault { refusal: Refusal::HeadersTooLarge, detail: "there are too many fields" };
        headers.try_append(name, value).map_err(|_| full())?;
    }
    Ok(headers)
}

/// What may travel of a caller's request, or why it may not.
///
/// `Host` names what is asked for, if it is there at all; that it is there in HTTP/1.1 is for the listener to see to.
pub fn clean_request(mut headers: HeaderMap, asked: &Asked, names: &Names) -> Result<Cleaned, HeaderFault> {
    check_host(&headers, asked)?;
    check_framing(&headers)?;
    if names.came_through_here(&headers) {
        return Err(HeaderFault { refusal: Refusal::LoopDetected, detail: "Via has our own name" });
    }
    check_aliases(&headers)?;
    check_expectation(&headers)?;
    check_method(asked)?;
    count_forwards(&mut headers, &asked.method)?;
    check_overrides(&headers, &asked.method)?;
    let listed = connection::listed(&headers)?;
    let upgrade = asked.method == Method::GET && listed.contains(&UPGRADE) && is_websocket(&headers);
    for name in listed {
        headers.remove(name);
    }
    remove_where(&mut headers, does_not_travel);
    Ok(Cleaned { headers, upgrade })
}

/// Takes out of an answer what is not for the caller.
pub fn clean_response(headers: &mut HeaderMap) {
    for name in connection::listed_by_peer(headers) {
        headers.remove(name);
    }
    remove_where(headers, |name| {
        let name = read_as(name.as_str());
        is_of_connection(&name) || is_ours(&name)
    });
}

/// How long an idle connection is kept by its peer, less a second for the way: `Keep-Alive: timeout=5`. Servers that wait
/// a shorter time than we would hang up while a request is on its way.
pub(crate) fn idle_max(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("keep-alive")?.to_str().ok()?;
    let timeout = text.split(',').find_map(|option| option.trim().strip_prefix("timeout="))?;
    let seconds: u32 = timeout.trim().parse().ok()?;
    Some(Duration::from_secs(u64::from(seconds.saturating_sub(1))))
}

/// Whether every `Host` names the destination (RFC 9112, 3.2.2 would have us ignore it; whoever writes two destinations
/// aims at somebody who reads the other one).
fn check_host(headers: &HeaderMap, asked: &Asked) -> Result<(), HeaderFault> {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else { return Ok(()) };
    if hosts.next().is_some() {
        return Err(HeaderFault { refusal: Refusal::RequestMalformed, detail: "there is more than one Host" });
    }
    match Authority::or_port(host, asked.scheme.default_port()) {
        Ok(authority) if authority == asked.authority => Ok(()),
        Ok(_) | Err(_) => {
            Err(HeaderFault { refusal: Refusal::HostMismatch, detail: "Host is not the authority of the target" })
        }
    }
}

/// The listener has read the message by these already; here they are looked at once more, since what is behind us may
/// read them in another way.
fn check_framing(headers: &HeaderMap) -> Result<(), HeaderFault> {
    let malformed = |detail| Err(HeaderFault { refusal: Refusal::RequestMalformed, detail });
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        let is_number = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_number || lengths.next().is_some() {
            return malformed("Content-Length is not one number");
        }
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        if !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") || encodings.next().is_some() {
            return malformed("Transfer-Encoding is something else than chunked");
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return malformed("there are both Transfer-Encoding and Content-Length");
        }
    }
    Ok(())
}

/// Whoever waits for `100 Continue` gets it from the listener, which has read the head; the destination is asked with the
/// body right behind.
fn check_expectation(headers: &HeaderMap) -> Result<(), HeaderFault> {
    let is_known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get_all(EXPECT).iter().all(is_known) {
        return Ok(());
    }
    Err(HeaderFault { refusal: Refusal::RequestMalformed, detail: "Expect asks for something unknown" })
}

/// TRACE would show a caller what we add, and with a connection's credential that is the credential; TRACK is another
/// name for it. CONNECT asks for a tunnel, and not of whoever is behind us. In any case of letters: methods have theirs
/// (RFC 9110, 9.1), and some servers take them in every one.
fn check_method(asked: &Asked) -> Result<(), HeaderFault> {
    let is = |method: &str| asked.method.as_str().eq_ignore_ascii_case(method);
    let refused = |detail| Err(HeaderFault { refusal: Refusal::RequestNotAllowed, detail });
    if is("TRACE") || is("TRACK") {
        return refused("TRACE is not forwarded");
    }
    if is("CONNECT") && asked.way != Way::Connect {
        return refused("CONNECT is not forwarded");
    }
    Ok(())
}

/// RFC 9110, 7.6.2: the proxies on the way are counted. (Of TRACE, too, which goes nowhere.)
fn count_forwards(headers: &mut HeaderMap, method: &Method) -> Result<(), HeaderFault> {
    let refused = |refusal, detail| Err(HeaderFault { refusal, detail });
    if *method != Method::OPTIONS {
        return Ok(());
    }
    let mut counts = headers.get_all(MAX_FORWARDS).iter();
    let Some(count) = counts.next() else { return Ok(()) };
    let is_number = !count.is_empty() && count.as_bytes().iter().all(u8::is_ascii_digit);
    if !is_number || counts.next().is_some() {
        return refused(Refusal::RequestMalformed, "Max-Forwards is not one number");
    }
    let text = count.to_str().unwrap_or_default();
    // A number that no counter holds is as good as none (RFC 9110, 7.6.2 lets us cap it).
    match text.parse().unwrap_or(u32::MAX).checked_sub(1) {
        None => refused(Refusal::RequestNotAllowed, "it may not be forwarded any further"),
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left));
            Ok(())
        }
    }
}

/// By these some servers take a request for another one than was judged here: of another method, of another path.
const METHOD_OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];
const PATH_OVERRIDES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

fn is_override(name: &str) -> bool {
    METHOD_OVERRIDES.contains(&name) || PATH_OVERRIDES.contains(&name)
}

/// A field that is read as one by which requests are judged, and that is not that one, has a second meaning for somebody
/// behind us: another method or path than was judged, another end of the message, a proof that was looked for elsewhere.
/// No program writes such a name by itself, so the request is refused. Aliases of what merely stays here are taken out
/// with it, since callers may well send those without knowing.
fn check_aliases(headers: &HeaderMap) -> Result<(), HeaderFault> {
    const JUDGED: [&str; 4] = ["content-length", "transfer-encoding", "proxy-authorization", "tidegate-grant"];
    let changes_meaning = |name: &str| is_override(name) || JUDGED.contains(&name);
    if headers.keys().any(|name| is_alias(name.as_str()) && changes_meaning(&read_as(name.as_str()))) {
        let detail = "a field is read as another one by many servers, and that one says what is asked for, or by whom";
        return Err(HeaderFault { refusal: Refusal::RequestMalformed, detail });
    }
    Ok(())
}

/// What stays of a caller's fields.
fn does_not_travel(name: &HeaderName) -> bool {
    let read = read_as(name.as_str());
    // Of the fields that we set, and that travel: their aliases would speak for us.
    let poses = is_alias(name.as_str()) && [USER_AGENT, MAX_FORWARDS].iter().any(|ours| *ours == *read);
    poses || is_of_connection(&read) || stays_here(&read) || is_about_addresses(&read) || is_override(&read)
}

/// Rules are about the method of the request line. A request that means another one would do something else than it says
/// if the field were taken out, so it is refused. (A method that is named twice says nothing new; the field goes, since a
/// redirect may change the method.)
fn check_overrides(headers: &HeaderMap, method: &Method) -> Result<(), HeaderFault> {
    let mut meant = METHOD_OVERRIDES.into_iter().flat_map(|name| headers.get_all(name));
    if meant.all(|meant| meant.as_bytes().eq_ignore_ascii_case(method.as_str().as_bytes())) {
        return Ok(());
    }
    Err(HeaderFault { refusal: Refusal::RequestMalformed, detail: "a field names another method than the request" })
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let mut upgrades = headers.get_all(UPGRADE).iter();
    let is_websocket = upgrades.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    is_websocket && upgrades.next().is_none() && !has_body
}

/// Fields of one connection, whether or not `Connection` lists them (RFC 9110, 7.6.1).
fn is_of_connection(name: &str) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].iter().any(|known| known == name)
        || matches!(name, "keep-alive" | "http2-settings")
        || name.starts_with("proxy-")
}

/// What is for us, and what we say ourselves.
fn stays_here(name: &str) -> bool {
    // `Proxy` becomes HTTP_PROXY in the environment of CGI programs; the last one lets smokescreen's callers choose their
    // own next proxy.
    is_ours(name)
        || [HOST, CONTENT_LENGTH, EXPECT].iter().any(|known| known == name)
        || matches!(name, "proxy" | "x-upstream-https-proxy")
}

fn is_ours(name: &str) -> bool {
    name.starts_with("tidegate-")
}

/// Addresses of those before us, which are nobody's business behind us.
fn is_about_addresses(name: &str) -> bool {
    name.starts_with("x-forwarded")
        || matches!(
            name,
            "forwarded"
                | "x-real-ip"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "x-original-forwarded-for"
                | "x-originating-ip"
                | "x-remote-addr"
                | "x-remote-ip"
                | "true-client-ip"
                | "cf-connecting-ip"
                | "fastly-client-ip"
        )
}

fn remove_where(headers: &mut HeaderMap, is_out: impl Fn(&HeaderName) -> bool) {
    let out: Vec<HeaderName> = headers.keys().filter(|name| is_out(name)).cloned().collect();
    for name in out {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests;
