//! What a caller is told when there is no answer to pass on: a problem document (RFC 9457) with the stable code, what
//! `Proxy-Status` (RFC 9209) calls it, and whether anything can have been sent.
//!
//! Nothing here says which rule or address decided: the record does.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, PROXY_AUTHENTICATE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use outbound::ErrorType;

use crate::quota::Park;
use crate::{CorrelationId, Refusal, SendState, Way};

/// `Proxy-Status`, RFC 9209.
pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// Whether an effect can have happened.
pub(crate) const SEND_STATE: HeaderName = HeaderName::from_static("tidegate-send-state");
/// The id that a provider can quote and an operator can look up.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("tidegate-correlation-id");
/// What becomes of the call: it is parked, and until when.
pub(crate) const OUTCOME: HeaderName = HeaderName::from_static("tidegate-outcome");
/// Retries that are left to the tenant at this provider.
pub(crate) const RETRY_BUDGET: HeaderName = HeaderName::from_static("tidegate-retry-budget");
/// The provider's own status, where the caller is told another one.
pub(crate) const PROVIDER_STATUS: HeaderName = HeaderName::from_static("tidegate-provider-status");
/// Which hops there were.
pub(crate) const HOPS: HeaderName = HeaderName::from_static("tidegate-hops");

/// What a caller is asked to wait where nothing better is known, in seconds: what it waits for takes seconds.
const RETRY_AFTER_SECONDS: u64 = 5;

/// A no, as it is told.
#[derive(Debug, Clone)]
pub(crate) struct Told<'a> {
    pub(crate) refusal: Refusal,
    /// By which door it came; none where not even that was understood.
    pub(crate) way: Option<Way>,
    pub(crate) send_state: SendState,
    pub(crate) correlation: CorrelationId,
    /// A nearer word than the refusal's own, where one is known.
    pub(crate) error_type: Option<ErrorType>,
    /// `rcode` of a DNS error.
    pub(crate) rcode: Option<&'a str>,
    /// The call is to come again.
    pub(crate) park: Option<&'a Park>,
    /// Retries that are left, where it is known to whom and where.
    pub(crate) retries_left: Option<u32>,
}

impl Told<'_> {
    /// The answer. `name` is the proxy's own, an RFC 9110 token.
    pub(crate) fn response(&self, name: &str) -> Response<Bytes> {
        let status = self.status();
        let body = serde_json::json!({
            "type": "about:blank",
            "title": self.refusal.title(),
            "status": status.as_u16(),
            "code": self.refusal.code(),
            "correlationId": self.correlation.to_string(),
            "sendState": self.send_state.as_str(),
        });
        // A line of its own also where it is shown on a terminal.
        let mut response = Response::new(Bytes::from(format!("{body}\n")));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(SEND_STATE, HeaderValue::from_static(self.send_state.as_str()));
        put(fields, PROXY_STATUS, &self.proxy_status(name));
        put(fields, CORRELATION_ID, &self.correlation.to_string());
        if self.refusal == Refusal::CallerUnknown {
            match self.way {
                Some(Way::Governed) => {
                    fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tidegate\""));
                }
                Some(Way::Connect | Way::Absolute) | None => {
                    // Basic first: it is what most clients can do with the user information of a proxy's URL.
                    fields.append(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"tidegate\""));
                    fields.append(PROXY_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tidegate\""));
                }
            }
        }
        if let Some(seconds) = self.retry_after_seconds() {
            fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(park) = self.park {
            put(fields, OUTCOME, &park.outcome());
        }
        if let Some(left) = self.retries_left {
            fields.insert(RETRY_BUDGET, HeaderValue::from(left));
        }
        response
    }

    /// 407 asks a proxy's client who it is; `/c/` is no proxy to who calls it.
    fn status(&self) -> StatusCode {
        let status = match (self.refusal, self.way) {
            (Refusal::CallerUnknown, Some(Way::Governed)) => 401,
            (refusal, _) => refusal.status(),
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn proxy_status(&self, name: &str) -> String {
        let error = self.error_type.unwrap_or_else(|| self.refusal.error_type());
        let mut text = format!("{name}; error={error}; details=\"{}\"", self.refusal.code());
        if let Some(rcode) = self.rcode.filter(|rcode| rcode.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            text.push_str("; rcode=\"");
            text.push_str(rcode);
            text.push('"');
        }
        text
    }

    /// Rounded up: who waits less asks too early.
    fn retry_after_seconds(&self) -> Option<u64> {
        let told = self.park.map(|park| whole_seconds(park.release()));
        let waits = matches!(self.refusal.status(), 429 | 503);
        told.or_else(|| waits.then_some(RETRY_AFTER_SECONDS))
    }
}

/// Rounded up.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// A provider's answer that is a throttle is told as a park, whatever its status was; its body stays.
pub(crate) fn tell_park(response: &mut Response<impl Sized>, park: &Park) {
    let own = response.status();
    if own != StatusCode::TOO_MANY_REQUESTS {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(PROVIDER_STATUS, HeaderValue::from(own.as_u16()));
    }
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(whole_seconds(park.release())));
    put(response.headers_mut(), OUTCOME, &park.outcome());
}

/// Sets a field whose value is ours; one that cannot be sent is left out.
pub(crate) fn put(fields: &mut http::HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use domain::NodeId;

    use crate::quota::ParkedBy;

    use super::*;

    fn told(refusal: Refusal, way: Way) -> Told<'static> {
        Told {
            refusal,
            way: Some(way),
            send_state: SendState::NotSent,
            correlation: CorrelationId::new(1_764_424_000_123, NodeId(7), [7; 8]),
            error_type: None,
            rcode: None,
            park: None,
            retries_left: None,
        }
    }

    #[test]
    fn every_refusal_is_a_problem_with_its_code() {
        for refusal in Refusal::ALL {
            for way in Way::ALL {
                let response = told(*refusal, *way).response("edge");
                let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
                assert!(body["code"] == refusal.code() && response.body().ends_with(b"}\n"), "{body}");
                assert_eq!(body["status"], response.status().as_u16());
                let status = response.headers()[PROXY_STATUS].to_str().unwrap();
                assert!(status.starts_with("edge; error="), "{status}");
                assert_eq!(response.headers()[SEND_STATE], "not-sent");
                assert!(response.status().as_u16() != 407 || *refusal == Refusal::CallerUnknown, "{refusal}");
            }
        }
    }

    #[test]
    fn who_asks_is_asked_in_the_caller_s_own_terms() {
        let tunnel = told(Refusal::CallerUnknown, Way::Connect).response("edge");
        assert_eq!(tunnel.status(), 407);
        assert_eq!(tunnel.headers().get_all(PROXY_AUTHENTICATE).iter().count(), 2);
        let governed = told(Refusal::CallerUnknown, Way::Governed).response("edge");
        assert_eq!((governed.status().as_u16(), governed.headers().contains_key(WWW_AUTHENTICATE)), (401, true));
        assert!(!governed.headers().contains_key(PROXY_AUTHENTICATE));
    }

    #[test]
    fn what_dns_said_is_passed_on_and_nothing_else_of_it() {
        let with = |rcode| Told { rcode: Some(rcode), ..told(Refusal::DnsFailed, Way::Absolute) }.response("edge");
        assert_eq!(
            with("NXDOMAIN").headers()[PROXY_STATUS],
            "edge; error=dns_error; details=\"dns-failed\"; rcode=\"NXDOMAIN\""
        );
        assert!(!with("a\"; x=").headers()[PROXY_STATUS].to_str().unwrap().contains("x="));
    }

    #[test]
    fn a_wait_is_rounded_up() {
        let after = |release_ms| {
            let park = Park { release_ms, level: "app", by: ParkedBy::Quota, detail: "".into() };
            Told { park: Some(&park), ..told(Refusal::QuotaExhausted, Way::Governed) }.retry_after_seconds()
        };
        assert_eq!((after(1), after(1000), after(1001)), (Some(1), Some(1), Some(2)));
        assert_eq!(told(Refusal::Overloaded, Way::Absolute).retry_after_seconds(), Some(5));
        assert_eq!(told(Refusal::DestinationNotAllowed, Way::Absolute).retry_after_seconds(), None);
    }
}
