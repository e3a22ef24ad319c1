//! The runner over the control socket: the API itself, for any tenant, and what only an operator may do.
//!
//! | request | answer |
//! |---|---|
//! | any, `/v1/runner/tenants/{tenant}/…` | what the API answers to the rest of the path, for that tenant |
//! | `GET /v1/runner/stat` | how the runner is |
//! | `GET /v1/runner/quarantined?limit=N` | runs of all tenants that were quarantined |
//! | `POST /v1/runner/release/{tenant}/{run}` | whether it goes on |
//! | `POST /v1/runner/pass-damage` | whether admission was halted at a damaged place, and passes it |
//! | `GET /v1/runner/set-aside?limit=N` | events that could not be admitted and were set aside |
//! | `POST /v1/runner/set-aside/retry` | how many of them are tried again |
//! | `POST /v1/runner/rebuild` | what the index was made of |

use std::sync::Arc;

use bytes::Bytes;
use domain::TenantId;
use http::header::{CONTENT_TYPE, HeaderName, IF_MATCH};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use runner::api::{Api, ApiAnswer, ApiRequest, Asker, No, Operations, Scope};
use serde_json::json;

use super::body::{AnswerBody, full};
use super::quota::Peer;

/// Largest body: an automation, or an input that somebody edited.
pub(super) const BODY_BYTES_MAX: usize = 2 << 20;

/// Quarantined runs, or events that were set aside, of one answer at most.
const LINES_MAX: usize = 10_000;

/// What there is to look at and to act on. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RunnerDesk {
    pub(crate) api: Api,
    pub(crate) operations: Arc<dyn Operations>,
}

impl RunnerDesk {
    /// `path` is what stands behind `/v1/runner`.
    pub(super) async fn answer(&self, path: &str, head: &Parts, body: Bytes, peer: Peer) -> Response<AnswerBody> {
        let answer = self.route(path, head, body, peer).await.unwrap_or_else(|no| no.answer());
        response(answer)
    }

    async fn route(&self, path: &str, head: &Parts, body: Bytes, peer: Peer) -> Result<ApiAnswer, No> {
        if let Some(rest) = path.strip_prefix("/tenants/") {
            let (tenant, rest) = rest.split_once('/').ok_or(No::NotFound)?;
            let asker = asker(tenant, peer)?;
            return Ok(self.api.answer(Some(&asker), request(head, &format!("/{rest}"), body)).await);
        }
        if let Some(rest) = path.strip_prefix("/release/") {
            let (tenant, run) = rest.split_once('/').ok_or(No::NotFound)?;
            let run = run.parse().map_err(|_| No::NotFound)?;
            only(head, &Method::POST, "POST")?;
            self.operations.release(&asker(tenant, peer)?, run).await?;
            return Ok(ApiAnswer::json(202, &json!({ "runId": run })));
        }
        match path {
            "/stat" => {
                only(head, &Method::GET, "GET")?;
                Ok(ApiAnswer::json(200, &self.operations.stat().await?))
            }
            "/quarantined" => {
                only(head, &Method::GET, "GET")?;
                Ok(ApiAnswer::json(200, &json!({ "quarantined": self.operations.quarantined(limit(head)).await? })))
            }
            "/set-aside" => {
                only(head, &Method::GET, "GET")?;
                Ok(ApiAnswer::json(200, &json!({ "setAside": self.operations.set_aside(limit(head)).await? })))
            }
            "/set-aside/retry" => {
                only(head, &Method::POST, "POST")?;
                Ok(ApiAnswer::json(202, &json!({ "tried": self.operations.try_set_aside().await? })))
            }
            "/pass-damage" => {
                only(head, &Method::POST, "POST")?;
                self.operations.pass_damage().await?;
                Ok(ApiAnswer::json(202, &json!({ "passes": true })))
            }
            "/rebuild" => {
                only(head, &Method::POST, "POST")?;
                Ok(ApiAnswer::json(200, &self.operations.rebuild().await?))
            }
            _ => Err(No::NotFound),
        }
    }
}

fn limit(head: &Parts) -> usize {
    let limit = head.uri.query().and_then(|query| query.strip_prefix("limit=")?.parse().ok());
    limit.unwrap_or(LINES_MAX).min(LINES_MAX)
}

fn only(head: &Parts, method: &Method, word: &'static str) -> Result<(), No> {
    if head.method == *method { Ok(()) } else { Err(No::Method(word)) }
}

/// Whoever may open the socket may do everything, for every tenant, and histories say who it was.
fn asker(tenant: &str, peer: Peer) -> Result<Asker, No> {
    let tenant = TenantId::parse(tenant).map_err(|_| No::NotFound)?;
    let by = peer.uid.map_or_else(|| "operator".to_owned(), |uid| format!("operator:{uid}"));
    Ok(Asker { tenant, by: by.into(), scope: Scope::Author })
}

/// What an HTTP request says to the API.
fn request(head: &Parts, path: &str, body: Bytes) -> ApiRequest {
    let text = |name: HeaderName| Some(head.headers.get(name)?.to_str().ok()?.into());
    ApiRequest {
        method: head.method.clone(),
        path: path.into(),
        query: head.uri.query().map(Box::from),
        content_type: text(CONTENT_TYPE),
        idempotency_key: text(HeaderName::from_static("idempotency-key")),
        if_match: text(IF_MATCH),
        body,
    }
}

fn response(answer: ApiAnswer) -> Response<AnswerBody> {
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = http::StatusCode::from_u16(answer.status).unwrap_or_default();
    if let Some(content_type) = answer.content_type {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
