//! What the accept path says, turned into HTTP: the only place in the gateway that knows status codes.
//!
//! The body of a refusal is a problem document (RFC 9457). It names the stable code and nothing that would tell a
//! prober which check failed; the log line does that.

use std::time::Duration;

use bytes::Bytes;
use config::scheme::AnswerBody;
use domain::{EventId, Refusal, Retry};
use listen::Answer;

use crate::handshake::Reply;
use crate::scheme::Scheme;

/// How long a sender is asked to wait where nothing better is known, in seconds. Short, because what it waits for
/// (a sync, a restart) takes seconds; not zero, so that a fleet of senders does not hammer a node that is down.
const RETRY_AFTER_SECONDS: u64 = 5;

/// The status code of a refusal.
pub fn status(refusal: Refusal) -> u16 {
    match refusal {
        Refusal::MalformedRequest => 400,
        Refusal::SignatureInvalid => 401,
        Refusal::SourceNotAllowed | Refusal::HandshakeRefused => 403,
        Refusal::EndpointUnknown => 404,
        Refusal::MethodNotAllowed => 405,
        Refusal::HeaderTimeout | Refusal::BodyTimeout => 408,
        Refusal::BodyTooLarge => 413,
        Refusal::TargetTooLong => 414,
        Refusal::ExpectationFailed => 417,
        Refusal::SourceThrottled | Refusal::RateLimited | Refusal::StorageLimited => 429,
        Refusal::HeadersTooLarge => 431,
        Refusal::Internal => 500,
        Refusal::CodingNotSupported => 501,
        Refusal::EndpointUnavailable | Refusal::Overloaded | Refusal::LogUnavailable => 503,
        Refusal::VersionNotSupported => 505,
    }
}

/// A refusal and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub refusal: Refusal,
    /// Header fields beyond those of every refusal: `Allow`, `RateLimit`, …
    pub fields: Vec<(&'static str, String)>,
    /// What the sender should wait; a default where the refusal may be retried and nothing is known.
    pub retry_after: Option<Duration>,
    /// In place of the refusal's own status, where a provider looks for another one.
    pub status: Option<u16>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, fields: Vec::new(), retry_after: None, status: None }
    }
}

impl Refused {
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Answers with this status, which a provider looks for.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The answer on the wire for a provider that looks at the status and wants no body.
    pub fn bare_answer(self) -> Answer {
        let mut answer = self.answer();
        answer.headers.retain(|(name, _)| *name != "content-type");
        Answer { body: Bytes::new(), ..answer }
    }

    /// The answer on the wire.
    pub fn answer(self) -> Answer {
        let status = self.status.unwrap_or_else(|| status(self.refusal));
        let mut headers = self.fields;
        headers.push(("content-type", "application/problem+json".to_owned()));
        headers.push(("cache-control", "no-store".to_owned()));
        if self.refusal == Refusal::SignatureInvalid {
            // RFC 9110 §15.5.2 asks for a challenge; there is no registered scheme for a signed webhook.
            headers.push(("www-authenticate", "Webhook-Signature".to_owned()));
        }
        if let Some(seconds) = self.retry_after.map(whole_seconds).or_else(|| default_wait(self.refusal)) {
            headers.push(("retry-after", seconds.to_string()));
        }
        let (code, title) = (self.refusal.code(), self.refusal.title());
        let body = format!(
            "{{\"type\":\"urn:tidegate:refusal:{code}\",\"title\":\"{title}\",\"status\":{status},\"code\":\"{code}\"}}\n"
        );
        Answer { status, headers, body: Bytes::from(body), close: false }
    }
}

/// `Retry-After` counts whole seconds: rounded up, since asking too early is asking twice.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

fn default_wait(refusal: Refusal) -> Option<u64> {
    match refusal.retry() {
        Retry::Later => Some(RETRY_AFTER_SECONDS),
        Retry::Never => None,
    }
}

/// Names the event where the body does not, for whoever looks at a delivery by hand.
const EVENT: &str = "tidegate-event";

/// The answer to a committed delivery, in the form that its provider expects.
pub fn accepted(scheme: &Scheme, event: EventId) -> Answer {
    let form = &scheme.declaration().answer;
    let (content_type, body) = match form.body {
        AnswerBody::Event => {
            let ids = format!("{{\"eventId\":\"{event}\",\"executionId\":\"{}\"}}\n", event.execution());
            ("application/json", Bytes::from(ids))
        }
        AnswerBody::Text => (form.content_type.as_str(), Bytes::copy_from_slice(form.text.as_bytes())),
        AnswerBody::Empty => return Answer::new(form.status).with_header(EVENT, event.to_string()),
    };
    let mut headers = vec![("content-type", content_type.to_owned())];
    if form.body != AnswerBody::Event {
        headers.push((EVENT, event.to_string()));
    }
    Answer { status: form.status, headers, body, close: false }
}

/// The answer to a handshake: text or JSON, and never a page.
pub fn handshake(reply: Reply) -> Answer {
    let mut headers = reply.headers;
    if let Some(content_type) = reply.content_type {
        headers.push(("content-type", content_type.to_owned()));
    }
    headers.push(("x-content-type-options", "nosniff".to_owned()));
    headers.push(("cache-control", "no-store".to_owned()));
    Answer { status: reply.status, headers, body: reply.body, close: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Blame;

    fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
        answer.headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    #[test]
    fn every_refusal_is_a_problem_document() {
        for &refusal in Refusal::ALL {
            let answer = Refused::from(refusal).answer();
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(body["status"], answer.status);
            assert_eq!(body["code"], refusal.code());
            assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
        }
    }

    #[test]
    fn our_faults_are_5xx_and_what_may_be_sent_again_says_when() {
        for &refusal in Refusal::ALL {
            let answer = Refused::from(refusal).answer();
            assert_eq!(
                refusal.blame() == Blame::Appliance,
                (500..=503).contains(&answer.status) && answer.status != 501
            );
            assert_eq!(header(&answer, "retry-after").is_some(), refusal.retry() == Retry::Later, "{refusal}");
        }
    }

    #[test]
    fn waits_are_rounded_up() {
        let wait = |ms| {
            let answer = Refused::from(Refusal::RateLimited).after(Duration::from_millis(ms)).answer();
            header(&answer, "retry-after").unwrap().to_owned()
        };
        assert_eq!([wait(0), wait(1), wait(1000), wait(1001)], ["1", "1", "1", "2"]);
    }

    #[test]
    fn providers_hear_what_they_ask_for() {
        let presets = crate::scheme::Presets::load().unwrap();
        let event = EventId::from_bytes([9; 16]);
        let twilio = accepted(presets.get("twilio").unwrap(), event);
        assert_eq!((twilio.status, header(&twilio, "content-type")), (200, Some("text/xml; charset=utf-8")));
        assert_eq!(&twilio.body[..], b"<Response/>");
        let xero = accepted(presets.get("xero").unwrap(), event);
        assert_eq!((xero.status, header(&xero, "content-type"), xero.body.len()), (200, None, 0));
        for answer in [twilio, xero] {
            assert_eq!(header(&answer, "tidegate-event"), Some(&*event.to_string()));
        }
        let bare = Refused::from(Refusal::SignatureInvalid).bare_answer();
        assert_eq!((bare.status, header(&bare, "content-type"), bare.body.len()), (401, None, 0));
        let limited = Refused::from(Refusal::RateLimited).after(Duration::from_secs(7)).bare_answer();
        assert_eq!(header(&limited, "retry-after"), Some("7"));
    }

    /// A row says one thing about what comes again.
    #[test]
    fn what_comes_again_is_what_the_row_says() {
        let presets = crate::scheme::Presets::load().unwrap();
        let comes = |name: &str, refusal| presets.get(name).unwrap().comes_again(refusal);
        assert!(comes("stripe", Refusal::RateLimited) && comes("stripe", Refusal::LogUnavailable));
        assert!(!comes("github", Refusal::RateLimited) && !comes("github", Refusal::LogUnavailable));
        assert!(!comes("hubspot-v3", Refusal::RateLimited) && comes("hubspot-v3", Refusal::LogUnavailable));
        for scheme in presets.iter() {
            let ways = &scheme.declaration().redelivery;
            let says_how = ways.attempts.is_some() || ways.lasts.is_some();
            assert!(ways.automatic || !says_how, "{} does not send again", scheme.name());
        }
    }

    #[test]
    fn an_accepted_delivery_names_its_event_and_its_runs() {
        let event = EventId::from_bytes([9; 16]);
        let presets = crate::scheme::Presets::load().unwrap();
        let answer = accepted(presets.get("github").unwrap(), event);
        assert_eq!(answer.status, 202);
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["eventId"], event.to_string());
        assert_eq!(body["executionId"], event.execution().to_string());
    }
}
