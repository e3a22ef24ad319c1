//! The published document, for everybody: GET and HEAD of a handful of files, and nothing else.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use config::Listener;
use domain::Refusal;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use listen::{Answer, Exchange, Handler, Head, Reply, Streamed};
use tokio::sync::Mutex;

use super::change::At;
use super::published::{Label, Page, Published, Shelf};

/// Answers with what is on the shelf.
#[derive(Debug)]
pub struct PublicSite {
    shelf: Arc<Shelf>,
    past: Mutex<VecDeque<Page>>,
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

/// Documents of past versions that are kept once they were made. They never change, and whoever catches up asks for a few
/// in a row, often several at a time; each is a megabyte at most.
const PAST_MAX: usize = 8;

impl PublicSite {
    /// Serves this shelf.
    pub fn new(shelf: Arc<Shelf>) -> Self {
        Self { shelf, past: Mutex::default() }
    }

    async fn answer(&self, head: &Head) -> Reply {
        if !matches!(head.method(), "GET" | "HEAD") {
            return plain(405, "GET or HEAD\n").with_header("Allow", "GET, HEAD").into();
        }
        let Some(name) = head.path().strip_prefix(ROOT) else { return nothing().into() };
        let Some(published) = self.shelf.current() else {
            // An automation must not take this for an empty list.
            return plain(503, "nothing is published yet\n").with_header("Retry-After", "300").into();
        };
        let Some(label) = published.label(name) else { return nothing().into() };
        if is_known(head, &label) {
            return labelled(Answer::new(304), &label).into();
        }
        match self.page(&published, name, head.method() == "HEAD").await {
            Found::Page(page) => {
                let answer = Answer::new(200).with_body(page.media_type, page.bytes);
                labelled(answer.with_header("X-Content-Type-Options", "nosniff"), &label).into()
            }
            Found::Unmade => {
                let answer = Answer::new(200).with_header("Content-Type", label.media_type);
                unmade(labelled(answer.with_header("X-Content-Type-Options", "nosniff"), &label))
            }
            Found::Nothing => nothing().into(),
        }
    }

    /// A file. One of a past version is kept, and where only its head is wanted it is not made. One is made at a time:
    /// anybody can ask for four thousand of them.
    pub(super) async fn page(&self, published: &Published, name: &str, head_only: bool) -> Found {
        if let Some(page) = published.pages().iter().find(|page| page.name == name) {
            return Found::Page(page.clone());
        }
        let mut past = self.past.lock().await;
        if let Some(page) = past.iter().find(|page| page.name == name) {
            return Found::Page(page.clone());
        }
        if head_only {
            return Found::Unmade;
        }
        let Some(page) = published.page(name) else { return Found::Nothing };
        past.truncate(PAST_MAX - 1);
        past.push_front(page.clone());
        Found::Page(page)
    }
}

/// A file that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Here.
    Page(Page),
    /// It is not worth making.
    Unmade,
    /// This build cannot make it.
    Nothing,
}

fn labelled(answer: Answer, label: &Label) -> Answer {
    answer
        .with_header("ETag", label.etag.as_str())
        .with_header("Last-Modified", label.modified.imf())
        .with_header("Cache-Control", if label.is_for_ever { FOR_EVER } else { FRESH })
}

/// To HEAD, without the length of what was not made (RFC 9110 §8.6 allows to leave it out).
fn unmade(answer: Answer) -> Reply {
    let fields = Streamed::from(answer);
    let nothing = StreamBody::new(stream::empty::<Result<Frame<Bytes>, Infallible>>());
    let mut response = http::Response::new(nothing);
    *response.status_mut() = fields.status;
    *response.headers_mut() = fields.headers;
    Streamed::new(response).into()
}

/// Does the client have it already (RFC 9110 §13.2.2)? A date counts only where no tag is asked about.
fn is_known(head: &Head, label: &Label) -> bool {
    let mut tags = head.get_all("if-none-match").peekable();
    if tags.peek().is_some() {
        let named = tags.flat_map(|value| value.split(|byte| *byte == b','));
        return named.map(<[u8]>::trim_ascii).any(|tag| {
            // Compared weakly, as §13.1.2 has it.
            tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == label.etag.as_bytes()
        });
    }
    let since = head.get_one("if-modified-since").and_then(|value| str::from_utf8(value).ok()).and_then(At::of_imf);
    since.is_some_and(|since| label.modified <= since)
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
        self.answer(exchange.head()).await
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
            | Refusal::HandshakeRefused
            | Refusal::RateLimited
            | Refusal::StorageLimited
            | Refusal::LogUnavailable => 400,
        };
        plain(status, "no\n")
    }
}
