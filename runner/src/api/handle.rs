//! From a request to an answer.

use std::sync::Arc;

use http::Method;
use serde_json::json;

use super::answer::{ApiAnswer, ApiRequest};
use super::asker::Asker;
use super::desk::{Desk, Page};
use super::forms::{
    accepted, connection_json, etag, inbox_json, listed, paged, place_unknown, planned_json, progress_json,
    replay_json, replayed_json, stored_answer, stored_json, warning_line,
};
use super::no::{DocumentFault, No};
use super::openapi::OPENAPI;
use super::route::{ExecutionName, Route};
use super::{body, query};
use crate::ids::{AutomationId, RunId};

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
            | Route::Dismiss(_)
            | Route::ShowNode(..)
            | Route::Rerun(..) => self.executions(asker, route, request).await,
            Route::Inbox => self.inbox(asker, request).await,
            Route::PlanReplays
            | Route::StartReplays
            | Route::ListReplays
            | Route::ShowReplay(_)
            | Route::StopReplay(_) => self.replays(asker, route, request).await,
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
                let (paging, name) = query::workflows(query)?;
                if let Some(name) = name {
                    let found = self.desk.named(asker, &name).await?;
                    let items: Vec<_> = found.iter().map(listed).collect();
                    return Ok(paged("workflows", &items, None, false));
                }
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
            let (mut filter, named) = query::executions(query)?;
            if let Some(name) = named {
                filter.automation = Some(self.named(asker, "?automation", &name).await?);
            }
            let Page { items, next, is_stale } = self.desk.executions(asker, filter).await?;
            return Ok(paged("executions", &items, next.as_deref(), is_stale));
        }
        if let Route::ShowNode(name, node) = route {
            let part = query::part(query)?;
            let run = self.one(asker, name).await?;
            return Ok(match part {
                Some(part) => ApiAnswer::payload(self.desk.payload(asker, run, node, part).await?),
                None => ApiAnswer::json(200, &self.desk.node(asker, run, node).await?),
            });
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
            Route::Dismiss(name) => {
                let dismiss = body::dismiss(media, &request.body)?;
                let run = self.one(asker, name).await?;
                self.desk.dismiss(asker, run, dismiss).await?;
                Ok(accepted(run))
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

    async fn inbox(&self, asker: &Asker, request: ApiRequest) -> Result<ApiAnswer, No> {
        let paging = query::paging(request.query.as_deref())?;
        let inbox = self.desk.inbox(asker, paging.after, paging.limit).await?;
        Ok(ApiAnswer::json(200, &inbox_json(&inbox)))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the routes of one kind; whoever calls has sorted them")]
    async fn replays(&self, asker: &Asker, route: Route, request: ApiRequest) -> Result<ApiAnswer, No> {
        query::nothing(request.query.as_deref())?;
        let media = request.content_type.as_deref();
        match route {
            Route::PlanReplays => {
                let (mut wanted, named) = body::replays(media, &request.body)?;
                if let Some(name) = named {
                    wanted.automation = Some(self.named(asker, "automation", &name).await?);
                }
                let plan = self.desk.plan_replays(asker, wanted).await?;
                Ok(ApiAnswer::json(200, &planned_json(&plan)))
            }
            Route::StartReplays => {
                let replayed = self.desk.start_replays(asker, body::start_replays(media, &request.body)?).await?;
                let location = format!("/replays/{}", replayed.replay);
                Ok(ApiAnswer::json(202, &replayed_json(&replayed)).with("Location", location))
            }
            Route::ListReplays => {
                let all = self.desk.replays(asker).await?;
                let lines: Vec<_> = all.iter().map(progress_json).collect();
                Ok(paged("replays", &lines, None, false))
            }
            Route::ShowReplay(name) => {
                let (progress, runs, is_stale) = self.desk.replay_of_name(asker, &name).await?;
                Ok(ApiAnswer::json(200, &replay_json(&progress, runs, is_stale)))
            }
            Route::StopReplay(name) => {
                body::nothing(media, &request.body)?;
                Ok(ApiAnswer::json(200, &progress_json(&self.desk.stop_replay(asker, &name).await?)))
            }
            _ => Err(No::Internal),
        }
    }

    /// The automation of a name; where there is none the request is wrong at this place.
    async fn named(&self, asker: &Asker, place: &str, name: &str) -> Result<AutomationId, No> {
        let found = self.desk.named(asker, name).await?;
        let none = || {
            No::Malformed(vec![DocumentFault::new(
                place,
                "names no automation that there is; a deleted one has only its id",
            )])
        };
        found.map(|listed| listed.id).ok_or_else(none)
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
