//! What egress says of a call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::response::Parts;
use http::{HeaderMap, HeaderName};

use super::super::{Answer, Cut, ParkSource, Reply};
use super::failed;
use crate::engine::refusals_is_failure as is_failure;
use crate::ledger::SendState;

const SEND_STATE: HeaderName = HeaderName::from_static("tidegate-send-state");
const OUTCOME: HeaderName = HeaderName::from_static("tidegate-outcome");
const CORRELATION_ID: HeaderName = HeaderName::from_static("tidegate-correlation-id");
const PROVIDER_STATUS: HeaderName = HeaderName::from_static("tidegate-provider-status");
const RETRY_BUDGET: HeaderName = HeaderName::from_static("tidegate-retry-budget");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Longest code and detail that are taken over.
const WORD_BYTES_MAX: usize = 64;

/// Nobody waits longer for a release than 26 hours: egress says none that is later.
const RELEASE_MS_MAX: u64 = 26 * 60 * 60 * 1_000;

/// The body, and what it was cut from, if it was; or why it is not whole.
pub(super) type Read = Result<(Bytes, Option<Cut>), (&'static str, String)>;

/// The answer, and how many retries are left.
pub(super) fn read(parts: Parts, read: Read, now_unix_ms: u64) -> (Answer, Option<u32>) {
    let headers = parts.headers;
    let left = text(&headers, &RETRY_BUDGET).and_then(|left| left.parse().ok());
    let correlation = text(&headers, &CORRELATION_ID).filter(|id| id.len() <= WORD_BYTES_MAX).map(Into::into);
    let Some(send_state) = send_state(&headers) else {
        let detail = format!("an answer with status {} that is not egress' own", parts.status.as_u16());
        let reply = failed("egress-answer", &detail);
        return (Answer { send_state: SendState::SentNoResponse, correlation, reply }, left);
    };
    let own = text(&headers, &PROVIDER_STATUS).and_then(|status| status.parse().ok());
    let status = own.unwrap_or(parts.status.as_u16());
    let answered = (send_state == SendState::Response).then_some(status);
    let reply = if let Some(park) = park(&headers, answered, now_unix_ms) {
        park
    } else if let Some(code) = refusal(&headers) {
        let detail = read.ok().map(|(body, _)| title(&body)).unwrap_or_default();
        if is_failure(&code) {
            Reply::Failed { code, detail }
        } else {
            Reply::Refused { code, detail, retry_after: retry_after(&headers) }
        }
    } else {
        match read {
            Ok((body, cut)) => Reply::Response { status, headers: Arc::new(headers), body, cut },
            Err((code, detail)) => failed(code, &detail),
        }
    };
    (Answer { send_state, correlation, reply }, left)
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn send_state(headers: &HeaderMap) -> Option<SendState> {
    Some(match text(headers, &SEND_STATE)? {
        "not-sent" => SendState::NotSent,
        "partially-sent" => SendState::PartiallySent,
        "sent-no-response" => SendState::SentNoResponse,
        "response" => SendState::Response,
        _ => return None,
    })
}

/// `park; release=12.034; level=app; source=provider`: seconds from now, in thousandths.
fn park(headers: &HeaderMap, status: Option<u16>, now_unix_ms: u64) -> Option<Reply> {
    let mut parts = text(headers, &OUTCOME)?.split(';').map(str::trim);
    if parts.next() != Some("park") {
        return None;
    }
    let (mut release_ms, mut source) = (None, ParkSource::Quota);
    for part in parts {
        match part.split_once('=') {
            Some(("release", value)) => release_ms = thousandths(value),
            Some(("source", "provider")) => source = ParkSource::Provider,
            Some(("source", "breaker")) => source = ParkSource::Breaker,
            _ => {}
        }
    }
    let release_ms =
        release_ms.or_else(|| Some(u64::try_from(retry_after(headers)?.as_millis()).unwrap_or(u64::MAX)))?;
    let release_unix_ms = now_unix_ms.saturating_add(release_ms.min(RELEASE_MS_MAX));
    Some(Reply::Parked { release_unix_ms, source, status })
}

fn thousandths(seconds: &str) -> Option<u64> {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(part)
}

/// The code, of an answer that is egress' own: `name; error=dns_error; details="dns-failed"`. What a provider sends under
/// that name never comes through.
fn refusal(headers: &HeaderMap) -> Option<Box<str>> {
    let status = text(headers, &PROXY_STATUS)?;
    if !status.contains("; error=") {
        return None;
    }
    let code = status.split_once("details=\"")?.1.split_once('"')?.0;
    let is_code = (1..=WORD_BYTES_MAX).contains(&code.len())
        && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    is_code.then(|| code.into())
}

fn title(body: &Bytes) -> Box<str> {
    let problem: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let title = problem.as_ref().and_then(|problem| problem.get("title")?.as_str()).unwrap_or_default();
    title.chars().filter(|it| !it.is_control()).take(200).collect::<String>().into()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = text(headers, &RETRY_AFTER)?.parse().ok()?;
    Some(Duration::from_secs(seconds.min(RELEASE_MS_MAX / 1_000)))
}
