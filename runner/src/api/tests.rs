use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use domain::{ConnectionId, EndpointId, EventId, TenantId};
use http::Method;
use serde_json::{Value, json};

mod document;
mod full;

use self::document::{Answered, answered_schemas, document, fits, read, validator};
use super::*;
use crate::automation::{ConnectionState, Listed, Stored};
use crate::ids::{AutomationId, RunId, StepId, Version};
use crate::replay::ReplayState;
use crate::view::Part;

/// A desk of two tenants in memory: whatever is asked of it carries its tenant.
#[derive(Debug, Default)]
struct Book {
    stored: Mutex<Vec<Stored>>,
    runs: BTreeMap<RunId, (TenantId, Option<EventId>)>,
    acts: Mutex<Vec<String>>,
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn run(n: u8) -> RunId {
    RunId::from_bytes([n; 16])
}

fn event(n: u8) -> EventId {
    EventId::from_bytes([n; 16])
}

impl Book {
    fn act(&self, asker: &Asker, run: RunId, what: impl Into<String>) -> Result<(), No> {
        let (whose, _) = self.runs.get(&run).ok_or(No::NotFound)?;
        if *whose != asker.tenant {
            return Err(No::NotFound);
        }
        self.acts.lock().unwrap().push(what.into());
        Ok(())
    }

    fn last(&self, asker: &Asker, id: AutomationId) -> Result<Stored, No> {
        let stored = self.stored.lock().unwrap();
        let mut own = stored.iter().rev().filter(|one| one.id == id && one.tenant == asker.tenant);
        own.next().cloned().ok_or(No::NotFound)
    }

    fn keep(&self, asker: &Asker, id: AutomationId, version: u32, document: &Document) -> Result<Saved, No> {
        let value: Value = serde_json::from_slice(&document.text)
            .map_err(|_| No::Invalid(vec![DocumentFault::new("", "is no JSON")]))?;
        let Some(name) = value["name"].as_str() else {
            return Err(No::Invalid(vec![DocumentFault::new("name", "is missing")]));
        };
        let stored = Stored {
            tenant: asker.tenant.clone(),
            id,
            version: Version::new(version).unwrap(),
            name: name.into(),
            json: value.to_string().into(),
            digest: [7; 32],
            endpoints: [EndpointId::parse("wh_1").unwrap()].into(),
            is_enabled: true,
            is_deleted: false,
            at_unix_ms: 1_767_225_600_000,
            by: asker.by.clone(),
        };
        self.stored.lock().unwrap().push(stored.clone());
        Ok(Saved { stored, is_unchanged: false, warnings: vec![DocumentFault::new("nodes[0]", "is never reached")] })
    }
}

#[async_trait]
impl Desk for Book {
    async fn create(&self, asker: &Asker, document: Document) -> Result<Saved, No> {
        self.keep(asker, AutomationId::from_bytes([1; 16]), 1, &document)
    }

    async fn replace(
        &self,
        asker: &Asker,
        id: AutomationId,
        expected: Option<Version>,
        document: Document,
    ) -> Result<Saved, No> {
        let last = self.last(asker, id)?.version.get();
        if expected.is_some_and(|expected| expected.get() != last) {
            return Err(No::VersionConflict { last });
        }
        self.keep(asker, id, last + 1, &document)
    }

    async fn check(&self, _: &Asker, _: Document) -> Result<Vec<DocumentFault>, No> {
        Ok(vec![DocumentFault::new("nodes[0]", "is never reached")])
    }

    async fn workflows(&self, asker: &Asker, after: Option<AutomationId>, limit: usize) -> Result<Page<Listed>, No> {
        let own = |one: &&Stored| one.tenant == asker.tenant && after.is_none_or(|after| one.id > after);
        let listed = |one: &Stored| Listed {
            id: one.id,
            name: one.name.clone(),
            version: one.version,
            is_enabled: true,
            is_deleted: false,
            at_unix_ms: 0,
        };
        Ok(Page::whole(self.stored.lock().unwrap().iter().filter(own).map(listed).take(limit).collect()))
    }

    async fn workflow(&self, asker: &Asker, id: AutomationId, _: Option<Version>) -> Result<Stored, No> {
        self.last(asker, id)
    }

    async fn named(&self, asker: &Asker, name: &str) -> Result<Option<Listed>, No> {
        let page = self.workflows(asker, None, usize::MAX).await?;
        Ok(page.items.into_iter().find(|one| *one.name == *name))
    }

    async fn delete(&self, asker: &Asker, id: AutomationId) -> Result<(), No> {
        self.last(asker, id).map(drop)
    }

    async fn start(&self, asker: &Asker, id: AutomationId, start: Start) -> Result<(RunId, bool), No> {
        self.last(asker, id)?;
        match start.idempotency_key.as_deref() {
            Some("used") => Err(No::KeyReused),
            _ => Ok((run(1), true)),
        }
    }

    async fn executions(&self, asker: &Asker, filter: ExecutionFilter) -> Result<Page<Value>, No> {
        let own = self.runs.iter().filter(|(_, (whose, _))| *whose == asker.tenant);
        if let Some(automation) = filter.automation {
            self.acts.lock().unwrap().push(format!("list {automation}"));
        }
        let items = own.map(|(run, _)| full::line(&run.to_string())).take(filter.limit).collect();
        Ok(Page { items, next: Some("next-1".into()), is_stale: false })
    }

    async fn execution(&self, asker: &Asker, run: RunId) -> Result<Value, No> {
        self.act(asker, run, "show")?;
        Ok(full::run(&run.to_string()))
    }

    async fn runs_of(&self, asker: &Asker, event: EventId) -> Result<Vec<RunId>, No> {
        let of = |(run, (whose, began)): (&RunId, &(TenantId, Option<EventId>))| {
            (*whose == asker.tenant && *began == Some(event)).then_some(*run)
        };
        Ok(self.runs.iter().filter_map(of).collect())
    }

    async fn execution_of_event(&self, asker: &Asker, event: EventId) -> Result<Value, No> {
        let (mut shown, lines) = match self.runs_of(asker, event).await?.first() {
            Some(run) => (self.execution(asker, *run).await?, vec![full::line(&run.to_string())]),
            None if asker.tenant.as_str() == "acme" && event == self::event(5) => {
                (json!({ "status": "no-run", "failedAt": null, "nodes": [] }), Vec::new())
            }
            None => return Err(No::NotFound),
        };
        shown["executionId"] = event.execution().to_string().into();
        shown["eventId"] = event.to_string().into();
        shown["runs"] = lines.into();
        Ok(shown)
    }

    async fn node(&self, asker: &Asker, run: RunId, _: StepId) -> Result<Value, No> {
        self.act(asker, run, "node").map(|()| full::node_of(&run.to_string()))
    }

    async fn payload(&self, asker: &Asker, run: RunId, node: StepId, part: Part) -> Result<Payload, No> {
        self.act(asker, run, format!("payload {node} {part:?}"))?;
        let (shown, is_truncated): (&[u8], bool) = match node.as_str() {
            "cut" => (b"{\"a\": \"\xc3", true),
            "bytes" => (b"\xff\0", false),
            "text" => (b"<script>", false),
            "gone" => return Err(No::Expired("its time was up".into())),
            _ => (b"{\"a\":1}", false),
        };
        Ok(Payload { shown: Bytes::from_static(shown), bytes: 9, digest: [7; 32], is_truncated })
    }

    async fn inbox(&self, asker: &Asker, _: Option<Box<str>>, limit: usize) -> Result<Inbox, No> {
        let dead = self.connections(asker).await?.into_iter().skip(1).collect();
        let letters = vec![full::line(&run(1).to_string())].into_iter().take(limit).collect();
        let dead_letters = Page { items: letters, next: Some("next-1".into()), is_stale: false };
        Ok(Inbox { groups: vec![full::group()], is_partial: false, connections: dead, dead_letters })
    }

    async fn dismiss(&self, asker: &Asker, run: RunId, dismiss: Dismiss) -> Result<(), No> {
        self.act(asker, run, format!("dismiss {}", dismiss.reason))
    }

    async fn cancel(&self, asker: &Asker, run: RunId) -> Result<(), No> {
        self.act(asker, run, "cancel")
    }

    async fn resolve(&self, asker: &Asker, run: RunId, resolve: Resolve) -> Result<(), No> {
        self.act(asker, run, format!("resolve {} {:?}", resolve.node, resolve.choice))
    }

    async fn replay(&self, asker: &Asker, run: RunId, confirmed: Confirmed) -> Result<Replayed, No> {
        if !confirmed.0 {
            return Err(No::Unconfirmed("node send may charge twice".into()));
        }
        self.act(asker, run, "replay")?;
        Ok(Replayed { replay: "rep_1".into(), runs: 1, run_ids: vec![run], is_new: true })
    }

    async fn rerun(&self, asker: &Asker, run: RunId, step: StepId, rerun: Rerun) -> Result<u32, No> {
        self.act(asker, run, format!("rerun {step} {:?}", rerun.input)).map(|()| 2)
    }

    async fn plan_replays(&self, _: &Asker, wanted: Replays) -> Result<PlannedReplay, No> {
        self.acts.lock().unwrap().extend(wanted.automation.map(|automation| format!("plan {automation}")));
        let plan = json!({ "digest": "plan_1" });
        Ok(PlannedReplay { plan, replay: "rep_2".into(), events: 3, runs: 3, may_duplicate: 2, conditions_failed: 0 })
    }

    async fn start_replays(&self, _: &Asker, start: StartReplays) -> Result<Replayed, No> {
        match start.plan["digest"].as_str() {
            Some("plan_1") => {
                let replay = start.name.unwrap_or_else(|| "rep_2".into());
                Ok(Replayed { replay, runs: 3, run_ids: Vec::new(), is_new: true })
            }
            _ => Err(No::PlanChanged("it counted 3 runs, and there are 4".into())),
        }
    }

    async fn replays(&self, _: &Asker) -> Result<Vec<ReplayProgress>, No> {
        Ok([Some(ReplayState::UnderWay), Some(ReplayState::Done), Some(ReplayState::Stopped), None]
            .map(progress)
            .to_vec())
    }

    async fn replay_of_name(&self, asker: &Asker, name: &str) -> Result<(ReplayProgress, ReplayRuns, bool), No> {
        if asker.tenant.as_str() != "acme" || name != "rep_2" {
            return Err(No::NotFound);
        }
        let runs = ReplayRuns { begun: 2, over: 2, succeeded: 1, failed: 1, needs_attention: 0, is_partial: false };
        Ok((ReplayProgress { planned: None, ..progress(None) }, runs, false))
    }

    async fn stop_replay(&self, asker: &Asker, name: &str) -> Result<ReplayProgress, No> {
        self.replay_of_name(asker, name).await?;
        self.acts.lock().unwrap().push("stop".into());
        Ok(progress(Some(ReplayState::Stopped)))
    }

    async fn connections(&self, _: &Asker) -> Result<Vec<(ConnectionId, ConnectionState)>, No> {
        let dead = ConnectionState::NeedsReconnect { since_unix_ms: 0, reason: "token_revoked".into() };
        let id = |text| ConnectionId::parse(text).unwrap();
        Ok(vec![(id("conn_a"), ConnectionState::Connected), (id("conn_b"), dead)])
    }

    async fn reconnected(&self, asker: &Asker, connection: ConnectionId) -> Result<u64, No> {
        if asker.tenant.as_str() == "acme" && connection.as_str() == "conn_b" { Ok(4) } else { Err(No::NotFound) }
    }
}

fn progress(state: Option<ReplayState>) -> ReplayProgress {
    ReplayProgress { replay: "rep_2".into(), state, planned: Some(3), admitted: Some(2), refused: 0 }
}

fn asker(name: &str, scope: Scope) -> Asker {
    Asker { tenant: tenant(name), by: "token:test".into(), scope }
}

fn api() -> (Api, Arc<Book>) {
    let acme = |event| (tenant("acme"), event);
    let runs = BTreeMap::from([
        (run(1), acme(Some(event(1)))),
        (run(2), acme(Some(event(2)))),
        (run(3), acme(Some(event(2)))),
        (run(9), (tenant("other"), Some(event(9)))),
    ]);
    let book = Arc::new(Book { runs, ..Book::default() });
    (Api::new(Arc::<Book>::clone(&book)), book)
}

async fn ask(api: &Api, scope: Scope, method: Method, path: &str, body: Option<Value>) -> ApiAnswer {
    let mut request = ApiRequest::new(method, path);
    if let Some(body) = body {
        request = request.with_json(&body);
    }
    api.answer(Some(&asker("acme", scope)), request).await
}

/// One good request for each row, in an order in which each finds what it needs.
fn good() -> Vec<(Method, &'static str, String, Option<Value>, u16)> {
    let (aut, run, ex) = (AutomationId::from_bytes([1; 16]), run(1), event(1).to_string().replacen("evt_", "ex_", 1));
    let document = || Some(json!({ "name": "mail" }));
    let confirmed = || Some(json!({ "confirmDuplicates": true }));
    vec![
        (Method::GET, "/openapi.json", "/openapi.json".into(), None, 200),
        (Method::POST, "/workflows", "/workflows".into(), document(), 201),
        (Method::POST, "/workflows/check", "/workflows/check".into(), document(), 200),
        (Method::GET, "/workflows", "/workflows?limit=5".into(), None, 200),
        (Method::PUT, "/workflows/{id}", format!("/workflows/{aut}"), document(), 200),
        (Method::GET, "/workflows/{id}", format!("/workflows/{aut}?version=1"), None, 200),
        (Method::POST, "/workflows/{id}/runs", format!("/workflows/{aut}/runs"), Some(json!({ "input": 1 })), 202),
        (Method::GET, "/executions", "/executions?status=failed&automation=mail&replay=rep_2".into(), None, 200),
        (Method::GET, "/executions/{id}", format!("/executions/{run}"), None, 200),
        (Method::GET, "/executions/{id}", format!("/executions/{ex}"), None, 200),
        (Method::GET, "/executions/{id}", format!("/executions/{}", event(5)), None, 200),
        (Method::GET, "/executions/{id}/nodes/{node}", format!("/executions/{run}/nodes/a%2Fb"), None, 200),
        (
            Method::POST,
            "/executions/{id}/dismiss",
            format!("/executions/{run}/dismiss"),
            Some(json!({ "reason": "called them" })),
            202,
        ),
        (Method::GET, "/inbox", "/inbox?limit=5".into(), None, 200),
        (Method::POST, "/executions/{id}/cancel", format!("/executions/{ex}/cancel"), None, 202),
        (
            Method::POST,
            "/executions/{id}/resolve",
            format!("/executions/{run}/resolve"),
            Some(json!({ "node": "send", "choice": "continue-accept-gap" })),
            202,
        ),
        (Method::POST, "/executions/{id}/replay", format!("/executions/{run}/replay"), confirmed(), 202),
        (
            Method::POST,
            "/executions/{id}/nodes/{node}/rerun",
            format!("/executions/{run}/nodes/a%2Fb/rerun"),
            Some(json!({ "input": { "to": "b" }, "confirmDuplicates": true })),
            202,
        ),
        (
            Method::POST,
            "/replays/plan",
            "/replays/plan".into(),
            Some(json!({ "endpoint": "wh_1", "automation": "mail" })),
            200,
        ),
        (
            Method::POST,
            "/replays",
            "/replays".into(),
            Some(json!({ "plan": { "digest": "plan_1" }, "confirmDuplicates": true, "name": "rep_2" })),
            202,
        ),
        (Method::GET, "/replays", "/replays".into(), None, 200),
        (Method::GET, "/replays/{name}", "/replays/rep_2".into(), None, 200),
        (Method::POST, "/replays/{name}/stop", "/replays/rep_2/stop".into(), None, 200),
        (Method::GET, "/connections", "/connections".into(), None, 200),
        (Method::POST, "/connections/{id}/reconnected", "/connections/conn_b/reconnected".into(), None, 200),
        (Method::DELETE, "/workflows/{id}", format!("/workflows/{aut}"), None, 204),
    ]
}

#[test]
fn the_document_names_every_route_and_no_other() {
    let document = document();
    let mut named: Vec<(String, String)> = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        named.extend(operations.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    let mut there: Vec<_> = ROUTES.iter().map(|(method, path, _)| (method.to_string(), (*path).to_owned())).collect();
    named.sort();
    there.sort();
    assert_eq!(named, there);
    for (method, path, scope) in ROUTES {
        let operation = &document["paths"][*path][method.as_str().to_lowercase()];
        let said = operation["description"].as_str().unwrap_or_default();
        assert_eq!(scope.is_none(), operation["security"].as_array().is_some_and(Vec::is_empty), "{method} {path}");
        let word = scope.map(Scope::word).unwrap_or_default();
        assert!(said.contains(word), "{method} {path}: {said}");
        let ids = operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "path").count();
        assert_eq!(ids, path.matches('{').count(), "{method} {path}");
    }
}

#[tokio::test]
async fn real_answers_are_as_the_document_says() {
    let (api, _) = api();
    let document = document();
    let (mut asked, mut answered) = (std::collections::BTreeSet::new(), Answered::default());
    for (method, pattern, path, body, status) in good() {
        let answer = ask(&api, Scope::Author, method.clone(), &path, body.clone()).await;
        assert_eq!(answer.status, status, "{method} {path}: {:?}", answer.body);
        fits(&document, pattern, &method, &answer);
        if pattern != "/openapi.json" {
            answered.take(&document, pattern, &method, &answer);
        }
        let operation = &document["paths"][pattern][method.as_str().to_ascii_lowercase()];
        if let Some(body) = body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert!(validator(&document, schema).is_valid(&body), "{method} {pattern}: {body}");
        }
        asked.insert((method.to_string(), pattern));
    }
    assert_eq!(asked.len(), ROUTES.len());
    assert_eq!(answered.missing(&document), Vec::<String>::new(), "in the document, and in no answer");
    let wrappers = ["Execution", "Run"];
    let wanted: Vec<_> = answered_schemas(&document).into_iter().filter(|name| !wrappers.contains(&&**name)).collect();
    let unseen: Vec<_> = wanted.iter().filter(|name| !answered.schemas().contains(&***name)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

/// Every object of an answer is closed, so that a field which is not in the document fails the test above.
#[test]
fn what_is_answered_is_written_out_to_the_last_field() {
    let document = document();
    for name in answered_schemas(&document) {
        let schema = &document["components"]["schemas"][&name];
        let is_closed = schema["additionalProperties"] == false || schema["unevaluatedProperties"] == false;
        assert!(is_closed || name == "RunFields" || schema["oneOf"].is_array(), "{name}");
    }
    let more = |of: &str, value: Value| {
        let schema = json!({ "$ref": format!("#/components/schemas/{of}") });
        let validator = validator(&document, &schema);
        assert!(validator.is_valid(&value), "{of}");
        let mut value = value;
        value["surprise"] = 1.into();
        assert!(!validator.is_valid(&value), "{of} takes what is not in it");
        value.as_object_mut().unwrap().remove("surprise");
        value.as_object_mut().unwrap().remove("status");
        assert!(!validator.is_valid(&value), "{of} is taken without what is in it");
    };
    more("Execution", full::run("run_1"));
    more("ExecutionLine", full::line("run_1"));
}

#[tokio::test]
async fn refusals_are_as_the_document_says() {
    let (api, _) = api();
    let document = document();
    for (method, pattern, path, body, _) in good() {
        if pattern == "/openapi.json" {
            continue;
        }
        let unproved = api.answer(None, ApiRequest::new(method.clone(), &path)).await;
        assert_eq!(unproved.status, 401);
        fits(&document, pattern, &method, &unproved);
        let odd = ask(
            &api,
            Scope::Author,
            method.clone(),
            &format!("{path}{}colour=red", if path.contains('?') { '&' } else { '?' }),
            body,
        )
        .await;
        assert_eq!(odd.status, 400, "{method} {path}");
        fits(&document, pattern, &method, &odd);
    }
    let replay =
        ask(&api, Scope::Operate, Method::POST, &format!("/executions/{}/replay", run(1)), Some(json!({}))).await;
    assert_eq!((replay.status, read(&replay)["code"].as_str()), (409, Some("confirmation-needed")));
    fits(&document, "/executions/{id}/replay", &Method::POST, &replay);
    let invalid = ask(&api, Scope::Author, Method::POST, "/workflows", Some(json!({}))).await;
    assert_eq!((invalid.status, read(&invalid)["faults"][0]["path"].as_str()), (422, Some("name")));
    fits(&document, "/workflows", &Method::POST, &invalid);
    let several = ask(&api, Scope::Operate, Method::POST, &format!("/executions/{}/cancel", event(2)), None).await;
    assert_eq!(several.status, 409);
    let detail = read(&several)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(&run(2).to_string()) && detail.contains(&run(3).to_string()), "{detail}");
}

/// What is another tenant's and what nobody has get the same bytes, whatever is asked and however it is asked.
#[tokio::test]
async fn not_yours_is_not_there() {
    let (api, book) = api();
    let there = asker("other", Scope::Author);
    let document = Document { text: Bytes::from_static(b"{\"name\":\"theirs\"}"), form: DocumentForm::Json };
    let theirs = book.create(&there, document).await.unwrap().stored.id;
    let nobodys = AutomationId::from_bytes([8; 16]);
    let confirmed = json!({ "confirmDuplicates": true });
    let resolve = json!({ "node": "send", "choice": "continue-accept-gap" });
    let paths = |run: String, aut: String| {
        vec![
            (Method::GET, format!("/workflows/{aut}"), None),
            (Method::PUT, format!("/workflows/{aut}"), Some(json!({ "name": "x" }))),
            (Method::DELETE, format!("/workflows/{aut}"), None),
            (Method::POST, format!("/workflows/{aut}/runs"), None),
            (Method::GET, format!("/executions/{run}"), None),
            (Method::POST, format!("/executions/{run}/cancel"), None),
            (Method::POST, format!("/executions/{run}/resolve"), Some(resolve.clone())),
            (Method::POST, format!("/executions/{run}/replay"), Some(confirmed.clone())),
            (Method::POST, format!("/executions/{run}/nodes/send/rerun"), Some(confirmed.clone())),
            (Method::POST, format!("/executions/{run}/dismiss"), Some(json!({ "reason": "seen" }))),
            (Method::GET, format!("/executions/{run}/nodes/send"), None),
            (Method::GET, format!("/executions/{run}/nodes/send?part=output"), None),
            (Method::GET, format!("/replays/{aut}"), None),
            (Method::POST, format!("/replays/{aut}/stop"), None),
        ]
    };
    let ids = [
        (run(9).to_string(), theirs.to_string()),
        (run(7).to_string(), nobodys.to_string()),
        (event(9).to_string(), theirs.to_string()),
        (event(7).to_string().replacen("evt_", "ex_", 1), nobodys.to_string()),
        ("run_odd".to_owned(), "aut_odd".to_owned()),
    ];
    let mut all = Vec::new();
    for (run, aut) in ids {
        for (method, path, body) in paths(run, aut) {
            let answer = ask(&api, Scope::Author, method.clone(), &path, body).await;
            assert_eq!(answer.status, 404, "{method} {path}");
            all.push(answer);
        }
    }
    assert!(all.iter().all(|answer| *answer == all[0]), "byte for byte, head and body");
    assert!(book.acts.lock().unwrap().is_empty());
    let own = ask(&api, Scope::Author, Method::GET, "/workflows", None).await;
    assert_eq!(read(&own)["workflows"], json!([]));
}

#[tokio::test]
async fn a_token_does_what_its_scope_says_and_no_more() {
    for (method, pattern, path, body, status) in good() {
        let (_, _, needed) = ROUTES.iter().find(|(own, row, _)| *own == method && *row == pattern).unwrap();
        for scope in [Scope::Read, Scope::Operate, Scope::Author] {
            let (api, book) = api();
            let document = Document { text: Bytes::from_static(b"{\"name\":\"mail\"}"), form: DocumentForm::Json };
            book.create(&asker("acme", Scope::Author), document).await.unwrap();
            let answer = ask(&api, scope, method.clone(), &path, body.clone()).await;
            if needed.is_some_and(|needed| scope < needed) {
                assert_eq!(
                    (answer.status, read(&answer)["code"].as_str()),
                    (403, Some("scope-missing")),
                    "{method} {path}"
                );
                assert!(book.acts.lock().unwrap().is_empty(), "{method} {path}");
            } else {
                assert_eq!(answer.status, status, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn who_is_nobody_does_not_learn_which_paths_there_are() {
    let (api, _) = api();
    let mut answers = Vec::new();
    for path in ["/workflows", "/nonsense", "/executions/run_1", "/workflows/aut_1/runs"] {
        answers.push(api.answer(None, ApiRequest::new(Method::GET, path)).await);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.status == 401));
    assert!(answers[0].headers.iter().any(|(name, value)| *name == "WWW-Authenticate" && value.starts_with("Bearer")));
    let open = api.answer(None, ApiRequest::new(Method::GET, "/openapi.json")).await;
    assert_eq!((open.status, open.body), (200, Bytes::from_static(OPENAPI.as_bytes())));
}

#[tokio::test]
async fn an_edit_of_what_somebody_else_has_edited_is_refused() {
    let (api, _) = api();
    let created = ask(&api, Scope::Author, Method::POST, "/workflows", Some(json!({ "name": "mail" }))).await;
    let id = read(&created)["id"].as_str().unwrap().to_owned();
    let put = |if_match: &str| {
        let mut request =
            ApiRequest::new(Method::PUT, &format!("/workflows/{id}")).with_json(&json!({ "name": "mail" }));
        request.if_match = Some(if_match.into());
        request
    };
    let who = asker("acme", Scope::Author);
    assert_eq!(api.answer(Some(&who), put("\"1\"")).await.status, 200);
    let late = api.answer(Some(&who), put("\"1\"")).await;
    assert_eq!((late.status, read(&late)["code"].as_str()), (409, Some("version-conflict")));
    assert_eq!(api.answer(Some(&who), put("x")).await.status, 400);
}

/// A payload goes out as it is, and says what is known of the original.
#[tokio::test]
async fn a_payload_is_as_it_is_kept() {
    let (api, book) = api();
    let part = async |node: &str, part: &str| {
        let path = format!("/executions/{}/nodes/{node}?part={part}", run(1));
        ask(&api, Scope::Read, Method::GET, &path, None).await
    };
    for (node, media, is_truncated) in [
        ("send", "application/json", false),
        ("text", "text/plain; charset=utf-8", false),
        ("cut", "text/plain; charset=utf-8", true),
        ("bytes", "application/octet-stream", false),
    ] {
        let answer = part(node, "output").await;
        assert_eq!((answer.status, answer.content_type), (200, Some(media)), "{node}");
        let header = |name: &str| answer.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| &**value);
        assert_eq!(header("Tidegate-Payload-Truncated"), is_truncated.then_some("too-large"), "{node}");
        assert_eq!((header("Tidegate-Payload-Bytes"), header("X-Content-Type-Options")), (Some("9"), Some("nosniff")));
        assert!(header("Tidegate-Payload-Digest").is_some_and(|digest| digest.starts_with("blake3:0707")));
    }
    assert_eq!(part("send", "input").await.body, Bytes::from_static(b"{\"a\":1}"));
    assert_eq!(book.acts.lock().unwrap().last().map(String::as_str), Some("payload send Input"));
    let gone = part("gone", "output").await;
    assert_eq!((gone.status, read(&gone)["code"].as_str()), (410, Some("input-expired")));
    fits(&document(), "/executions/{id}/nodes/{node}", &Method::GET, &gone);
    assert_eq!(part("send", "both").await.status, 400);
    // An event that began several runs has several such nodes.
    let several = format!("/executions/{}/nodes/send", event(2));
    let several = ask(&api, Scope::Read, Method::GET, &several, None).await;
    assert_eq!(several.status, 409);
    fits(&document(), "/executions/{id}/nodes/{node}", &Method::GET, &several);
}

/// A name is as good as an id, and one that nobody has is told as a fault of what was sent.
#[tokio::test]
async fn an_automation_is_named_by_its_name() {
    let (api, book) = api();
    let created = ask(&api, Scope::Author, Method::POST, "/workflows", Some(json!({ "name": "a mail" }))).await;
    let id = read(&created)["id"].as_str().unwrap().to_owned();
    let listed = ask(&api, Scope::Read, Method::GET, "/workflows?name=a+mail", None).await;
    assert_eq!(read(&listed)["workflows"][0]["id"], id);
    let none = ask(&api, Scope::Read, Method::GET, "/workflows?name=another", None).await;
    assert_eq!((none.status, read(&none)["workflows"].clone()), (200, json!([])));
    ask(&api, Scope::Read, Method::GET, "/executions?automation=a%20mail", None).await;
    ask(&api, Scope::Operate, Method::POST, "/replays/plan", Some(json!({ "automation": "a mail" }))).await;
    assert_eq!(*book.acts.lock().unwrap(), [format!("list {id}"), format!("plan {id}")]);
    let nobodys = ask(&api, Scope::Read, Method::GET, "/executions?automation=theirs", None).await;
    assert_eq!((nobodys.status, read(&nobodys)["faults"][0]["path"].as_str()), (400, Some("?automation")));
    let nobodys =
        ask(&api, Scope::Operate, Method::POST, "/replays/plan", Some(json!({ "automation": "theirs" }))).await;
    assert_eq!((nobodys.status, read(&nobodys)["faults"][0]["path"].as_str()), (400, Some("automation")));
}

#[tokio::test]
async fn a_key_that_came_with_another_input_is_a_conflict() {
    let (api, _) = api();
    let created = ask(&api, Scope::Author, Method::POST, "/workflows", Some(json!({ "name": "mail" }))).await;
    let path = format!("/workflows/{}/runs", read(&created)["id"].as_str().unwrap());
    let mut request = ApiRequest::new(Method::POST, &path).with_json(&json!({ "input": 2 }));
    request.idempotency_key = Some("used".into());
    let answer = api.answer(Some(&asker("acme", Scope::Operate)), request).await;
    assert_eq!((answer.status, read(&answer)["code"].as_str()), (409, Some("idempotency-conflict")));
    fits(&document(), "/workflows/{id}/runs", &Method::POST, &answer);
}

/// Whatever is sent, there is an answer, and it is one of those that the document knows.
#[test]
fn no_request_panics() {
    use proptest::prelude::*;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (api, _) = api();
    let path =
        "(/(workflows|executions|replays|connections|plan|runs|nodes|[a-z_%0-9]{0,12})){0,6}(\\?[a-z=&%0-9+]{0,40})?";
    proptest!(ProptestConfig::with_cases(512), |(path in path, method in "GET|PUT|POST|DELETE|HEAD", body in ".{0,200}")| {
        let mut request = ApiRequest::new(method.parse().unwrap(), &path);
        request.body = body.into();
        let answer = runtime.block_on(api.answer(Some(&asker("acme", Scope::Author)), request));
        prop_assert!((200..=599).contains(&answer.status));
        if answer.status >= 400 {
            let problem = read(&answer);
            prop_assert_eq!(problem["status"].as_u64(), Some(u64::from(answer.status)));
        }
    });
}

/// Every code that is answered is in the document, with its status, and no other.
#[test]
fn codes_are_documented() {
    let why = || Box::<str>::from("why");
    let all = [
        No::NotFound,
        No::Unproved,
        No::Throttled,
        No::Scope(Scope::Read),
        No::Method("GET"),
        No::Malformed(Vec::new()),
        No::Invalid(Vec::new()),
        No::TooLarge { bytes_max: 1 },
        No::MediaType("application/json"),
        No::VersionConflict { last: 1 },
        No::NameTaken(why()),
        No::KeyReused,
        No::State(why()),
        No::Unconfirmed(why()),
        No::Expired(why()),
        No::PlanChanged(why()),
        No::Full,
        No::Unavailable(why()),
        No::Damaged(why()),
        No::Internal,
    ];
    let said: std::collections::BTreeSet<String> =
        all.iter().map(|no| format!("| `{}` | {} |", no.code(), no.status())).collect();
    let text = include_str!("../../../docs/runner.md");
    let rows = text.lines().filter(|line| line.matches('|').count() == 4).filter_map(|line| {
        let mut cells = line.split('|').map(str::trim);
        let (code, status) = (cells.nth(1)?, cells.next()?);
        status.parse::<u16>().ok().map(|status| format!("| {code} | {status} |"))
    });
    assert_eq!(rows.collect::<std::collections::BTreeSet<_>>(), said);
}
