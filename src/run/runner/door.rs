//! The API's listener: who asks, from where, and how often they may fail to say.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use domain::{Clock, Refusal};
use http::Method;
use listen::{Answer, Exchange, Handler, Head, Reply};
use ratelimit::Unauthenticated;
use runner::api::{Api, ApiAnswer, ApiRequest, Asker, No};
use tokio::runtime::Handle;

use super::config::InForce;
use super::metrics::ApiMetrics;

/// Failures of the API are counted apart from those of any endpoint.
const ENDPOINT: u64 = 0;

/// Answers whoever comes to `runner.api.listen`.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) api: Api,
    pub(super) config: Arc<ArcSwap<InForce>>,
    pub(super) unauthenticated: Arc<Unauthenticated>,
    pub(super) clock: Arc<dyn Clock>,
    /// The runner's own: what answers wait for is opened there.
    pub(super) runtime: Handle,
    pub(super) bytes_max: u64,
    pub(super) metrics: Arc<ApiMetrics>,
}

impl Door {
    async fn answer(&self, exchange: &mut Exchange) -> ApiAnswer {
        let source = ratelimit::Source::of(exchange.peer().ip());
        // Who has a token that counts is let in whatever else comes from there: recognising one costs a hash, and whoever
        // could find one by trying has found it by then.
        let recognised = self.recognise(exchange);
        if !matches!(recognised, Ok(Some(_))) && self.unauthenticated.admits(source, ENDPOINT).is_err() {
            return No::Throttled.answer();
        }
        let Ok(asker) = recognised else {
            self.unauthenticated.failed(source, ENDPOINT);
            return No::Unproved.answer();
        };
        if asker.is_some() {
            self.unauthenticated.verified(source, ENDPOINT);
        }
        // Nobody who is nobody has a body to be read.
        let body = match &asker {
            Some(_) => match exchange.body(self.bytes_max, &mut |_| true).await {
                Ok(body) => body,
                Err(Refusal::BodyTooLarge) => return No::TooLarge { bytes_max: self.bytes_max }.answer(),
                Err(_) => return No::Malformed(Vec::new()).answer(),
            },
            None => bytes::Bytes::new(),
        };
        let Some(request) = request(exchange.head(), body) else { return No::Malformed(Vec::new()).answer() };
        let api = self.api.clone();
        let answered = self.runtime.spawn(async move { api.answer(asker.as_deref(), request).await });
        answered.await.unwrap_or_else(|_| No::Internal.answer())
    }

    /// Who has the token that is there; nobody, where there is none; an error where there is one that proves nothing.
    fn recognise(&self, exchange: &Exchange) -> Result<Option<Arc<Asker>>, ()> {
        let mut fields = exchange.head().get_all("authorization");
        let Some(field) = fields.next() else { return Ok(None) };
        // Two of them are a quarrel about who it is.
        if fields.next().is_some() || !is_private(exchange) {
            return Err(());
        }
        let (scheme, token) = field.split_at(field.iter().position(|byte| *byte == b' ').ok_or(())?);
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err(());
        }
        let found = self.config.load().tokens.find(token.trim_ascii(), self.clock.unix_ms());
        found.map(Some).ok_or(())
    }
}

/// A token that others could have read on its way proves nothing.
fn is_private(exchange: &Exchange) -> bool {
    let is_here = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    exchange.tls().is_some() || (is_here(exchange.peer()) && is_here(exchange.local()))
}

fn request(head: &Head, body: bytes::Bytes) -> Option<ApiRequest> {
    let text = |name: &str| Some(str::from_utf8(head.get_one(name)?).ok()?.into());
    Some(ApiRequest {
        method: Method::from_bytes(head.method().as_bytes()).ok()?,
        path: head.path().into(),
        query: head.query().map(Box::from),
        content_type: text("content-type"),
        idempotency_key: text("idempotency-key"),
        if_match: text("if-match"),
        body,
    })
}

fn told(answer: ApiAnswer) -> Answer {
    let mut told = Answer::new(answer.status);
    if let Some(content_type) = answer.content_type {
        told = told.with_body(content_type, answer.body);
    }
    answer.headers.into_iter().fold(told, |told, (name, value)| told.with_header(name, value))
}

#[async_trait]
impl Handler for Door {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        let answer = self.answer(exchange).await;
        self.metrics.answered(answer.status);
        told(answer).into()
    }

    fn refused(&self, _peer: SocketAddr, refusal: Refusal) -> Answer {
        // What the gate itself can say.
        let status = match refusal {
            Refusal::HeaderTimeout | Refusal::BodyTimeout => 408,
            Refusal::BodyTooLarge => 413,
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
            | Refusal::SignatureInvalid
            | Refusal::HandshakeRefused
            | Refusal::RateLimited
            | Refusal::StorageLimited
            | Refusal::LogUnavailable => 400,
        };
        self.metrics.answered(status);
        let body = serde_json::json!({
            "type": "about:blank",
            "title": refusal.title(),
            "status": status,
            "code": refusal.code(),
        });
        Answer::new(status)
            .with_body("application/problem+json", format!("{body}\n"))
            .with_header("Cache-Control", "no-store")
    }
}
