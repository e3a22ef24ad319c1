//! What the accept path says, turned into HTTP: the only place in the gateway that knows status codes.
//!
//! The body of a refusal is a problem document (RFC 9457). It names the stable code and nothing that would tell a
//! prober which check failed; the log line does that.

use std::time::Duration;

use bytes::Bytes;
use domain::{EventId, Refusal, Retry};
use listen::Answer;

/// How long a sender is asked to wait where nothing better is known, in seconds. Short, because what it waits for
/// (a sync, a restart) takes seconds; not zero, so that a fleet of senders does not hammer a node that is down.
const RETRY_AFTER_SECONDS: u64 = 5;

/// The status code of a refusal.
pub fn status(refusal: Refusal) -> u16 {
    match refusal {
        Refusal::MalformedRequest => 400,
        Refusal::SignatureInvalid => 401,
        Refusal::SourceNotAllowed => 403,
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
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, fields: Vec::new(), retry_after: None }
    }
}

impl Refused {
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The answer on the wire.
    pub fn answer(self) -> Answer {
        let status = status(self.refusal);
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

/// The answer to a committed delivery.
pub fn accepted(status: u16, event: EventId) -> Answer {
    let body = format!("{{\"eventId\":\"{event}\",\"executionId\":\"{}\"}}\n", event.execution());
    Answer {
        status,
        headers: vec![("content-type", "application/json".to_owned())],
        body: Bytes::from(body),
        close: false,
    }
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
    fn an_accepted_delivery_names_its_event_and_its_runs() {
        let event = EventId::from_bytes([9; 16]);
        let answer = accepted(202, event);
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["eventId"], event.to_string());
        assert_eq!(body["executionId"], event.execution().to_string());
    }
}
