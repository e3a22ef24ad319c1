//! From a request to an answer.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::answer::{ApiAnswer, ApiRequest};
use super::asker::Asker;
use super::desk::{Desk, Page, Replayed, Saved};
use super::no::No;
use super::openapi::OPENAPI;
use super::route::{ExecutionName, Route};
use super::{body, query};
use crate::automation::time::format_rfc3339;
use crate::automation::{ConnectionState, Listed, Stored};
use crate::ids::RunId;

/// Answers requests.
#[derive(Debug, Clone)]
pub struct Api {
    desk: Arc<dyn Desk>,
}

impl Api {
    pub fn new(desk: Arc<dyn Desk>) -> Self {
        Self { desk }
    }

    /// `asker`: who was recognised, if anybody was. The method of a HEAD is GET.
    pub async fn answer(&self, asker: Option<&Asker>, request: ApiRequest) -> ApiAnswer {
        match self.route(asker, request).await {
            Ok(answer) => answer,
            Err(no) => {
                if no == No::Internal {
                    tracing::error!("the API could not answer: a fault of ours");
                }
                no.answer()
            }
        }
    }

    async fn route(&self, asker: Option<&Asker>, request: ApiRequest) -> Result<ApiAnswer, No> {
        let method = if request.method == Method::HEAD { Method::GET } else { request.method.clone() };
        let routed = Route::of(&method, &request.path);
        if let Ok((Route::OpenApi, _)) = routed {
            return Ok(ApiAnswer::document(OPENAPI));
        }
        // Who is nobody does not learn which paths there are.
        let asker = asker.ok_or(No::Unproved)?;
        let (route, scope) = routed?;
        if let Some(scope) = scope.filter(|scope| asker.scope < *scope) {
            return Err(No::Scope(scope));
        }
        match route {
            Route::OpenApi
            | Route::CreateWorkflow
            | Route::ListWorkflows
            | Route::ShowWorkflow(_)
            | Route::ReplaceWorkflow(_)
            | Route::DeleteWorkflow(_)
            | Route::CheckWorkflow
            | Route::StartRun(_) => self.workflows(asker, route, request).await,
            Route::ListExecutions
            | Route::ShowExecution(_)
            | Route::Cancel(_)
            | Route::Resolve(_)
            | Route::Replay(_)
            | Route::Rerun(..) => self.executions(asker, route, request).await,
            Route::PlanReplays | Route::StartReplays => self.replays(asker, route, request).await,
            Route::ListConnections | Route::Reconnected(_) => self.connections(asker, route, request).await,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the routes of one kind; whoever calls has sorted them")]
    async fn workflows(&self, asker: &Asker, route: Route, request: ApiRequest) -> Result<ApiAnswer, No> {
        let (query, media) = (request.query.as_deref(), request.content_type.as_deref());
        match route {
            Route::CreateWorkflow => {
                query::nothing(query)?;
                let saved = self.desk.create(asker, body::document(media, &request.body)?).await?;
                let location = format!("/workflows/{}", saved.stored.id);
                Ok(stored_answer(201, &saved).with("Location", location))
            }
            Route::ReplaceWorkflow(id) => {
                query::nothing(query)?;
                let expected = body::if_match(request.if_match.as_deref())?;
                let document = body::document(media, &request.body)?;
                let saved = self.desk.replace(asker, id, expected, document).await?;
                Ok(stored_answer(200, &saved))
            }
            Route::CheckWorkflow => {
                query::nothing(query)?;
                let warnings = self.desk.check(asker, body::document(media, &request.body)?).await?;
                let warnings: Vec<_> = warnings.iter().map(warning_line).collect();
                Ok(ApiAnswer::json(200, &json!({ "ok": true, "warnings": warnings })))
            }
            Route::ListWorkflows => {
                let paging = query::paging(query)?;
                let after = match paging.after.as_deref().map(str::parse) {
                    Some(Ok(after)) => Some(after),
                    Some(Err(_)) => return Err(place_unknown()),
                    None => None,
                };
                let page = self.desk.workflows(asker, after, paging.limit).await?;
                let items: Vec<_> = page.items.iter().map(listed).collect();
                Ok(paged("workflows", &items, page.next.as_deref(), page.is_stale))
            }
            Route::ShowWorkflow(id) => {
                let stored = self.desk.workflow(asker, id, query::version(query)?).await?;
                let mut shown = stored_json(&stored);
                shown["document"] = serde_json::from_str(&stored.json).map_err(|_| No::Internal)?;
                Ok(ApiAnswer::json(200, &shown).with("ETag", etag(&stored)))
            }
            Route::DeleteWorkflow(id) => {
                query::nothing(query)?;
                self.desk.delete(asker, id).await?;
                Ok(ApiAnswer::empty(204))
            }
            Route::StartRun(id) => {
                query::nothing(query)?;
                let start = body::start(media, request.idempotency_key.as_deref(), &request.body)?;
                let (run, is_new) = self.desk.start(asker, id, start).await?;
                let answer = ApiAnswer::json(202, &json!({ "runId": run, "isNew": is_new }));
                Ok(answer.with("Location", format!("/executions/{run}")))
            }
            _ => Err(No::Internal),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the routes of one kind; whoever calls has sorted them")]
    async fn executions(&self, asker: &Asker, route: Route, request: ApiRequest) -> Result<ApiAnswer, No> {
        let (query, media) = (request.query.as_deref(), request.content_type.as_deref());
        if route == Route::ListExecutions {
            let filter = query::executions(query)?;
            let Page { items, next, is_stale } = self.desk.executions(asker, filter).await?;
            return Ok(paged("executions", &items, next.as_deref(), is_stale));
        }
        query::nothing(query)?;
        match route {
            Route::ShowExecution(name) => {
                let shown = match name {
                    ExecutionName::Run(run) => self.desk.execution(asker, run).await?,
                    ExecutionName::Event(event) => self.desk.execution_of_event(asker, event).await?,
                };
                Ok(ApiAnswer::json(200, &shown))
            }
            Route::Cancel(name) => {
                body::nothing(media, &request.body)?;
                let run = self.one(asker, name).await?;
                self.desk.cancel(asker, run).await?;
                Ok(accepted(run))
            }
            Route::Resolve(name) => {
                let resolve = body::resolve(media, &request.body)?;
                let run = self.one(asker, name).await?;
                self.desk.resolve(asker, run, resolve).await?;
                Ok(accepted(run))
            }
            Route::Replay(name) => {
                let confirmed = body::replay(media, &request.body)?;
                let run = self.one(asker, name).await?;
                let replayed = self.desk.replay(asker, run, confirmed).await?;
                Ok(ApiAnswer::json(202, &replayed_json(&replayed)))
            }
            Route::Rerun(name, step) => {
                let rerun = body::rerun(media, &request.body)?;
                let run = self.one(asker, name).await?;
                let logical = self.desk.rerun(asker, run, step, rerun).await?;
                let answer = ApiAnswer::json(202, &json!({ "runId": run, "logicalAttempt": logical }));
                Ok(answer.with("Location", format!("/executions/{run}")))
            }
            _ => Err(No::Internal),
        }
    }

    async fn replays(&self, asker: &Asker, route: Route, request: ApiRequest) -> Result<ApiAnswer, No> {
        query::nothing(request.query.as_deref())?;
        let media = request.content_type.as_deref();
        if route == Route::PlanReplays {
            let plan = self.desk.plan_replays(asker, body::replays(media, &request.body)?).await?;
            return Ok(ApiAnswer::json(
                200,
                &json!({
                    "plan": plan.plan,
                    "events": plan.events,
                    "runs": plan.runs,
                    "mayDuplicate": plan.may_duplicate,
                    "conditionsFailed": plan.conditions_failed,
                }),
            ));
        }
        let replayed = self.desk.start_replays(asker, body::start_replays(media, &request.body)?).await?;
        Ok(ApiAnswer::json(202, &replayed_json(&replayed)))
    }

    async fn connections(&self, asker: &Asker, route: Route, request: ApiRequest) -> Result<ApiAnswer, No> {
        query::nothing(request.query.as_deref())?;
        let Route::Reconnected(id) = route else {
            let all = self.desk.connections(asker).await?;
            let lines: Vec<_> = all.iter().map(|(id, state)| connection_json(id.as_str(), state)).collect();
            return Ok(paged("connections", &lines, None, false));
        };
        body::nothing(request.content_type.as_deref(), &request.body)?;
        let released = self.desk.reconnected(asker, id.clone()).await?;
        Ok(ApiAnswer::json(200, &json!({ "id": id.as_str(), "state": "connected", "runsReleased": released })))
    }

    /// The run that is meant: an event that began several is none of them.
    async fn one(&self, asker: &Asker, name: ExecutionName) -> Result<RunId, No> {
        let event = match name {
            ExecutionName::Run(run) => return Ok(run),
            ExecutionName::Event(event) => event,
        };
        match self.desk.runs_of(asker, event).await?.as_slice() {
            [] => Err(No::NotFound),
            [run] => Ok(*run),
            several => {
                let named: Vec<_> = several.iter().take(8).map(RunId::to_string).collect();
                let said =
                    format!("its event began {} runs; name the one that is meant: {}", several.len(), named.join(" "));
                Err(No::State(said.into()))
            }
        }
    }
}

fn place_unknown() -> No {
    No::Malformed(vec![super::no::DocumentFault::new("?after", "is no place that an answer named")])
}

fn accepted(run: RunId) -> ApiAnswer {
    ApiAnswer::json(202, &json!({ "runId": run })).with("Location", format!("/executions/{run}"))
}

fn paged(name: &str, items: &[Value], next: Option<&str>, is_stale: bool) -> ApiAnswer {
    ApiAnswer::json(200, &json!({ name: items, "next": next, "isStale": is_stale }))
}

fn warning_line(warning: &super::no::DocumentFault) -> Value {
    json!({ "path": warning.path, "message": warning.message })
}

fn etag(stored: &Stored) -> String {
    format!("\"{}\"", stored.version)
}

fn stored_answer(status: u16, saved: &Saved) -> ApiAnswer {
    let mut shown = stored_json(&saved.stored);
    shown["isUnchanged"] = saved.is_unchanged.into();
    shown["warnings"] = saved.warnings.iter().map(warning_line).collect();
    ApiAnswer::json(status, &shown).with("ETag", etag(&saved.stored))
}

fn stored_json(stored: &Stored) -> Value {
    json!({
        "id": stored.id,
        "name": stored.name,
        "version": stored.version,
        "digest": data_encoding::HEXLOWER.encode(&stored.digest),
        "endpoints": stored.endpoints.iter().map(domain::EndpointId::as_str).collect::<Vec<_>>(),
        "isEnabled": stored.is_enabled,
        "isDeleted": stored.is_deleted,
        "at": format_rfc3339(stored.at_unix_ms),
        "by": stored.by,
    })
}

fn listed(listed: &Listed) -> Value {
    json!({
        "id": listed.id,
        "name": listed.name,
        "version": listed.version,
        "isEnabled": listed.is_enabled,
        "isDeleted": listed.is_deleted,
        "at": format_rfc3339(listed.at_unix_ms),
    })
}

fn replayed_json(replayed: &Replayed) -> Value {
    json!({ "replay": replayed.replay, "runs": replayed.runs, "runIds": replayed.run_ids })
}

fn connection_json(id: &str, state: &ConnectionState) -> Value {
    match state {
        ConnectionState::Connected => json!({ "id": id, "state": "connected" }),
        ConnectionState::NeedsReconnect { since_unix_ms, reason } => json!({
            "id": id,
            "state": "needs_reconnect",
            "since": format_rfc3339(*since_unix_ms),
            "reason": reason,
        }),
    }
}
