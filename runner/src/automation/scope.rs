//! What expressions see of a run.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use domain::{EndpointId, EventId};
use serde_json::{Map, Value, json};

use super::time::format_rfc3339;
use crate::ids::{AutomationId, RunId, StepId, Version};

/// The names that an expression of a run may use, with their values:
///
/// - `event`: `id`, `endpoint`, `receivedAt` (RFC 3339), `headers` (names in lower case, first values), `headersAll` (all
///   values, as lists), `body` (the body read as JSON; null if it is none), `bodyText` (null if it is no UTF-8); null
///   itself for a run that no event began,
/// - `input`: what the run was started with by hand, else null,
/// - `run`: `id`, `automation`, `version`, `startedAt`,
/// - `steps.<id>`: `status` and `output` of each node that is settled.
#[derive(Debug, Default)]
pub struct Scope {
    event: Option<EventFacts>,
    /// Made when something asks for it first: most nodes need no event.
    event_json: OnceLock<Value>,
    input: Value,
    run: Value,
    steps: BTreeMap<StepId, Value>,
}

/// An event, as it came.
#[derive(Debug, Clone)]
pub struct EventFacts {
    pub id: EventId,
    pub endpoint: EndpointId,
    pub received_unix_ms: u64,
    /// In their order, as they came; bytes that are no UTF-8 are replaced.
    pub headers: Vec<(Box<str>, Box<str>)>,
    pub body: Bytes,
}

impl From<&eventlog::StoredEvent> for EventFacts {
    fn from(event: &eventlog::StoredEvent) -> Self {
        let text = |bytes: &[u8]| Box::from(String::from_utf8_lossy(bytes));
        Self {
            id: event.id,
            endpoint: event.endpoint.clone(),
            received_unix_ms: event.received_unix_ms,
            headers: event.headers.iter().map(|(name, value)| (text(name), text(value))).collect(),
            body: event.body.clone(),
        }
    }
}

impl Scope {
    /// Of a run. A trigger's `when` is asked before there is one: it has `Scope::default` and an event.
    pub fn new(run: RunId, automation: AutomationId, version: Version, started_unix_ms: u64) -> Self {
        let run = json!({
            "id": run.to_string(),
            "automation": automation.to_string(),
            "version": version.get(),
            "startedAt": format_rfc3339(started_unix_ms),
        });
        Self { run, ..Self::default() }
    }

    #[must_use]
    pub fn with_event(mut self, event: EventFacts) -> Self {
        self.event = Some(event);
        self.event_json = OnceLock::new();
        self
    }

    #[must_use]
    pub fn with_input(mut self, input: Value) -> Self {
        self.input = input;
        self
    }

    /// What came of a node: its status as people see it (`done`, `skipped`, `failed`) and its output.
    pub fn settle(&mut self, step: StepId, status: &str, output: Value) {
        let settled = Map::from_iter([("status".to_owned(), status.into()), ("output".to_owned(), output)]);
        self.steps.insert(step, Value::Object(settled));
    }

    pub(super) fn event(&self) -> &Value {
        self.event_json.get_or_init(|| self.event.as_ref().map_or(Value::Null, EventFacts::to_json))
    }

    pub(super) fn input(&self) -> &Value {
        &self.input
    }

    pub(super) fn run(&self) -> &Value {
        &self.run
    }

    pub(super) fn step(&self, step: &StepId) -> Option<&Value> {
        self.steps.get(step)
    }
}

impl EventFacts {
    fn to_json(&self) -> Value {
        let mut first = Map::new();
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (name, value) in &self.headers {
            let name = name.to_ascii_lowercase();
            first.entry(name.clone()).or_insert_with(|| Value::from(&**value));
            all.entry(name).or_default().push(Value::from(&**value));
        }
        let all: Map<String, Value> = all.into_iter().map(|(name, values)| (name, Value::Array(values))).collect();
        json!({
            "id": self.id.to_string(),
            "endpoint": self.endpoint.to_string(),
            "receivedAt": format_rfc3339(self.received_unix_ms),
            "headers": first,
            "headersAll": all,
            "body": serde_json::from_slice::<Value>(&self.body).unwrap_or(Value::Null),
            "bodyText": std::str::from_utf8(&self.body).map_or(Value::Null, Value::from),
        })
    }
}
