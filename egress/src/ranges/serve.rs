//! The published document, for everybody: GET and HEAD of a handful of files, and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use listen::{Answer, Exchange, Handler, Head, Reply};

use super::change::At;
use super::published::{Page, Shelf};

/// Answers with what is on the shelf.
#[derive(Debug)]
pub struct PublicSite {
    shelf: Arc<Shelf>,
}

/// Bounds of its listener. Anybody can connect, and what they want is small and the same for all: they get seconds and
/// little memory, and neither calls nor deliveries can feel it.
pub fn bounds() -> Listener {
    Listener {
        header_bytes_max: 8 << 10,
        header_count_max: 64,
        target_bytes_max: 1 << 10,
        header_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(10),
        // Nobody has a body to send.
        body_timeout: Duration::from_secs(1),
        body_rate_min: 1 << 10,
        body_rate_grace: Duration::from_secs(1),
        // The largest document over 1 Mbit/s.
        write_timeout: Duration::from_secs(10),
        connections_max: 128,
        requests_per_connection_max: 100,
        linger_timeout: Duration::from_secs(1),
        drain_timeout: Duration::from_secs(5),
    }
}

const ROOT: &str = "/.well-known/";

/// A cache may answer for so long: a change is announced weeks before it matters.
const FRESH: &str = "public, max-age=300";
/// Versions that are past never change.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

impl PublicSite {
    /// Serves this shelf.
    pub fn new(shelf: Arc<Shelf>) -> Self {
        Self { shelf }
    }

    fn answer(&self, head: &Head) -> Answer {
        if !matches!(head.method(), "GET" | "HEAD") {
            return plain(405, "GET or HEAD\n").with_header("Allow", "GET, HEAD");
        }
        let Some(name) = head.path().strip_prefix(ROOT) else { return nothing() };
        let Some(published) = self.shelf.current() else {
            // An automation must not take this for an empty list.
            return plain(503, "nothing is published yet\n").with_header("Retry-After", "300");
        };
        let Some(page) = published.page(name) else { return nothing() };
        let answer = if is_known(head, &page) {
            Answer::new(304)
        } else {
            Answer::new(200)
                .with_body(page.media_type, page.bytes.clone())
                .with_header("X-Content-Type-Options", "nosniff")
        };
        answer
            .with_header("ETag", page.etag.as_str())
            .with_header("Last-Modified", page.modified.imf())
            .with_header("Cache-Control", if page.is_for_ever { FOR_EVER } else { FRESH })
    }
}

/// Does the client have it already (RFC 9110 §13.2.2)? A date counts only where no tag is asked about.
fn is_known(head: &Head, page: &Page) -> bool {
    let mut tags = head.get_all("if-none-match").peekable();
    if tags.peek().is_some() {
        let named = tags.flat_map(|value| value.split(|byte| *byte == b','));
        return named.map(<[u8]>::trim_ascii).any(|tag| {
            // Compared weakly, as §13.1.2 has it.
            tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == page.etag.as_bytes()
        });
    }
    let since = head.get_one("if-modified-since").and_then(|value| str::from_utf8(value).ok()).and_then(At::of_imf);
    since.is_some_and(|since| page.modified <= since)
}

fn nothing() -> Answer {
    plain(
        404,
        "egress-ranges.json, .json.sig, .txt, .pub.pem, egress-ranges-geofeed.csv, egress-ranges/{serial}.json\n",
    )
}

fn plain(status: u16, text: &'static str) -> Answer {
    Answer::new(status).with_body("text/plain; charset=utf-8", text).with_header("Cache-Control", "no-store")
}

#[async_trait]
impl Handler for PublicSite {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        self.answer(exchange.head()).into()
    }

    fn refused(&self, _peer: SocketAddr, refusal: Refusal) -> Answer {
        // What the gate itself can say; all else is said by whoever knows tenants and endpoints.
        let status = match refusal {
            Refusal::HeaderTimeout | Refusal::BodyTimeout => 408,
            Refusal::TargetTooLong => 414,
            Refusal::ExpectationFailed => 417,
            Refusal::HeadersTooLarge => 431,
            Refusal::CodingNotSupported => 501,
            Refusal::Overloaded => 503,
            Refusal::VersionNotSupported => 505,
            Refusal::Internal => 500,
            Refusal::MalformedRequest
            | Refusal::EndpointUnknown
            | Refusal::EndpointUnavailable
            | Refusal::MethodNotAllowed
            | Refusal::SourceNotAllowed
            | Refusal::SourceThrottled
            | Refusal::BodyTooLarge
            | Refusal::SignatureInvalid
            | Refusal::RateLimited
            | Refusal::StorageLimited
            | Refusal::LogUnavailable => 400,
        };
        plain(status, "no\n")
    }
}
