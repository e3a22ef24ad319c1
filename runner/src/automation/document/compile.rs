//! From a document's value to what the engine walks.

use std::time::Duration;

use domain::{ConnectionId, EndpointId};
use serde_json::{Map, Value};

use super::bounds::{BACKOFF_LONGEST_MS, BACKOFF_MS, DEADLINE_MS, EXPRESSIONS_MAX, TIMEOUT_MS, TRIES};
use super::fault::{Faults, Gathered};
use super::form::{self, Class, OnFailure};
use super::layout::{Form, Laid, Layout, OTHERWISE};
use super::order::{Before, order};
use super::{explain, schema};
use crate::automation::expression::{Expression, FromLost, Names};
use crate::automation::graph::{Delay, Edge, Kind, Node, RetryPolicy, Trigger};
use crate::automation::template::Template;
use crate::automation::time::parse_rfc3339;
use crate::connector::Assertion;
use crate::ids::StepId;
use crate::ledger::QueueClass;

/// A document, compiled: an `Automation` but for what its version adds.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) name: Box<str>,
    pub(super) trigger: Trigger,
    pub(super) nodes: Box<[Node]>,
    pub(super) deadline: Duration,
    pub(super) class: QueueClass,
    pub(super) is_enabled: bool,
    /// Of each node, for faults that are found when all of it is there.
    pub(super) sources: Box<[Source]>,
}

/// Where a node stands in its document.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: Box<str>,
    /// Of a call: its input as it is written, with its expressions as text.
    pub(super) input: Value,
}

impl<T> FromLost for Result<T, Faults> {
    fn lost(why: &str) -> Self {
        Err(Faults::one(format!("the document cannot be compiled: {why}")))
    }
}

/// On a thread with a large stack.
pub(super) fn compile(value: &Value) -> Result<Compiled, Faults> {
    let mut faults = Gathered::default();
    if !value.is_object() {
        return Err(Faults::one("an automation is an object with `name` and `nodes`"));
    }
    let read: Option<form::Automation> = schema::read("automation", value, "", &mut faults);
    // Nodes are looked at also where something around them is wrong.
    let no_nodes = Vec::new();
    let nodes = value.get("nodes").and_then(Value::as_array).unwrap_or(&no_nodes);
    let layout = Layout::of(nodes, &mut faults);
    let ordered = ordered(&layout, &mut faults);
    let mut compiler =
        Compiler { faults, expressions: 0, is_told: false, deadline: Duration::from_millis(DEADLINE_MS) };
    if let Some(deadline_ms) = read.as_ref().and_then(|read| read.deadline_ms) {
        compiler.deadline = Duration::from_millis(deadline_ms);
    }
    let trigger = compiler.trigger(read.as_ref().and_then(|read| read.trigger.as_ref()));
    let name = read.as_ref().map_or("", |read| read.name.as_str());
    if read.is_some() && (name.trim() != name || name.contains(char::is_control)) {
        compiler.faults.add("name", "has neither control characters nor blanks at its ends");
    }
    let (mut nodes, mut sources) = (Vec::new(), Vec::new());
    if let Some((order, before)) = ordered {
        let ids: Vec<StepId> = layout.nodes.iter().map(|laid| laid.id.clone()).collect();
        let place_of = |node: usize| order.iter().position(|at| *at == node);
        for at in &order {
            let (Some(laid), Some(before)) = (layout.nodes.get(*at), before.get(*at)) else { continue };
            let find = |name: &str| find_step(&layout, &ids, laid.list, *at, before, name);
            let made = compiler.node(laid, &Names::of_run(&find));
            let after = laid
                .after
                .iter()
                .filter_map(|after| Some(Edge { from: place_of(after.node)?, case: after.case.clone() }));
            if let Some((kind, settings, input)) = made {
                nodes.push(settings.into_node(laid.id.clone(), after.collect(), kind));
                sources.push(Source { path: laid.path.as_str().into(), input });
            }
        }
    }
    let deadline = compiler.deadline;
    compiler.faults.into_result(|| {
        let read = read?;
        Some(Compiled {
            name: read.name.into(),
            trigger: trigger?,
            nodes: nodes.into(),
            deadline,
            class: match read.class {
                Some(Class::Bulk) => QueueClass::Bulk,
                Some(Class::Interactive) | None => QueueClass::Interactive,
            },
            is_enabled: read.enabled.unwrap_or(true),
            sources: sources.into(),
        })
    })
}

/// The order of the nodes; a circle is told with its names.
fn ordered(layout: &Layout, faults: &mut Gathered) -> Option<(Vec<usize>, Vec<Before>)> {
    let after: Vec<Vec<usize>> =
        layout.nodes.iter().map(|laid| laid.after.iter().map(|after| after.node).collect()).collect();
    order(&after)
        .map_err(|circle| {
            let mut names: Vec<String> =
                circle.iter().filter_map(|node| layout.nodes.get(*node)).map(|laid| format!("`{}`", laid.id)).collect();
            names.extend(names.first().cloned());
            let path = circle.first().and_then(|node| layout.nodes.get(*node)).map_or("nodes", |laid| &laid.path);
            faults.add(path, format!("nodes wait for each other in a circle: {}", names.join(" before ")));
        })
        .ok()
}

fn find_step(
    layout: &Layout,
    ids: &[StepId],
    list: usize,
    own: usize,
    before: &Before,
    name: &str,
) -> Result<StepId, String> {
    let node = layout.lists.find(list, name)?;
    let shown = explain::cut(name, 64);
    if node == own {
        return Err(format!("`{shown}` is this node itself, which has no output yet"));
    }
    if !before.contains(node) {
        return Err(format!("`{shown}` is not before this node: put it, or something behind it, into `after`"));
    }
    ids.get(node).cloned().ok_or_else(|| format!("there is no step `{shown}`"))
}

/// What every node has beside its kind.
struct Settings {
    when: Option<Expression>,
    timeout: Duration,
    retry: RetryPolicy,
    continues_on_failure: bool,
    assertion: Assertion,
}

impl Settings {
    fn into_node(self, id: StepId, after: Box<[Edge]>, kind: Kind) -> Node {
        Node {
            id,
            after,
            when: self.when,
            kind,
            timeout: self.timeout,
            retry: self.retry,
            continues_on_failure: self.continues_on_failure,
            assertion: self.assertion,
        }
    }
}

/// Of a call, as its form has it.
struct Call<'f> {
    credential: &'f str,
    action: Box<str>,
    when: Option<&'f str>,
    timeout_ms: Option<u64>,
    retry: Option<&'f form::Retry>,
    on_failure: Option<OnFailure>,
    assertion: Assertion,
}

struct Compiler {
    faults: Gathered,
    expressions: usize,
    /// That they are too many.
    is_told: bool,
    deadline: Duration,
}

impl Compiler {
    fn trigger(&mut self, trigger: Option<&form::Trigger>) -> Option<Trigger> {
        let Some(trigger) = trigger else { return Some(Trigger { endpoints: Box::default(), when: None }) };
        let named: Vec<(String, &str)> = match (&trigger.endpoint, &trigger.endpoints) {
            (Some(one), None) => vec![("trigger.endpoint".into(), one.as_str())],
            (None, Some(several)) => {
                several.iter().enumerate().map(|(at, one)| (format!("trigger.endpoints[{at}]"), one.as_str())).collect()
            }
            (Some(_), Some(_)) | (None, None) => {
                self.faults.add("trigger", "has `endpoint`, or `endpoints` for several of them");
                Vec::new()
            }
        };
        let mut endpoints = Vec::new();
        for (path, name) in named {
            match EndpointId::parse(name) {
                Ok(endpoint) if endpoints.contains(&endpoint) => self.faults.add(path, "is there twice"),
                Ok(endpoint) => endpoints.push(endpoint),
                Err(why) => self.faults.add(path, why.to_string()),
            }
        }
        let when = match &trigger.when {
            Some(source) => Some(self.expression(source, "trigger.when", &Names::of_event())?),
            None => None,
        };
        Some(Trigger { endpoints: endpoints.into(), when })
    }

    fn node(&mut self, laid: &Laid, names: &Names<'_>) -> Option<(Kind, Settings, Value)> {
        match &laid.form {
            Form::HttpRequest(form) => {
                let fields = [
                    ("method", form.method.as_ref()),
                    ("path", Some(&form.path)),
                    ("query", form.query.as_ref()),
                    ("headers", form.headers.as_ref()),
                    ("body", form.body.as_ref()),
                    ("encoding", form.encoding.as_ref()),
                ];
                let input: Map<String, Value> =
                    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.clone()))).collect();
                let call = Call {
                    credential: &form.credential,
                    action: "http.request".into(),
                    when: form.when.as_deref(),
                    timeout_ms: form.timeout_ms,
                    retry: form.retry_policy.as_ref(),
                    on_failure: form.on_failure,
                    assertion: Assertion { idempotent: form.idempotent, effectful: form.effectful },
                };
                self.call(laid, call, Value::Object(input), "", names)
            }
            Form::Action(form, action) => {
                let call = Call {
                    credential: &form.credential,
                    action: action.clone(),
                    when: form.when.as_deref(),
                    timeout_ms: form.timeout_ms,
                    retry: form.retry_policy.as_ref(),
                    on_failure: form.on_failure,
                    assertion: Assertion { idempotent: form.idempotent, effectful: form.effectful },
                };
                let input = form.input.clone().unwrap_or_else(|| Value::Object(Map::new()));
                self.call(laid, call, input, ".input", names)
            }
            Form::Effect(form) => {
                let call = Call {
                    credential: &form.credential,
                    action: form.action.as_str().into(),
                    when: form.when.as_deref(),
                    timeout_ms: form.timeout_ms,
                    retry: form.retry_policy.as_ref(),
                    on_failure: form.on_failure,
                    assertion: Assertion { idempotent: form.idempotent, effectful: form.effectful },
                };
                let input = form.input.clone().unwrap_or_else(|| Value::Object(Map::new()));
                self.call(laid, call, input, ".input", names)
            }
            Form::Branch(form) => {
                let settings = self.settings(laid, form.when.as_deref(), None, names);
                let kind = self.branch(laid, form, names);
                Some((kind?, settings?, Value::Null))
            }
            Form::Delay(form) => {
                let settings = self.settings(laid, form.when.as_deref(), form.on_failure, names);
                let kind = self.delay(laid, form, names);
                Some((Kind::Delay(kind?), settings?, Value::Null))
            }
            Form::Transform(form) => {
                let settings = self.settings(laid, form.when.as_deref(), form.on_failure, names);
                let value = self.template(&form.value, &format!("{}.value", laid.path), names);
                Some((Kind::Transform { value: value? }, settings?, Value::Null))
            }
            Form::Gate(when) => {
                let settings = self.settings(laid, when.as_deref(), None, names);
                let value = self.template(&Value::Null, &laid.path, names);
                Some((Kind::Transform { value: value? }, settings?, Value::Null))
            }
        }
    }

    fn call(
        &mut self,
        laid: &Laid,
        call: Call<'_>,
        input: Value,
        at: &str,
        names: &Names<'_>,
    ) -> Option<(Kind, Settings, Value)> {
        let path = &laid.path;
        let connection = ConnectionId::parse(call.credential)
            .map_err(|why| self.faults.add(format!("{path}.credential"), format!("names no connection: {why}")))
            .ok();
        let settings = self.settings(laid, call.when, call.on_failure, names);
        let retry = self.retry(path, call.retry);
        let template = self.template(&input, &format!("{path}{at}"), names);
        let settings = Settings {
            timeout: Duration::from_millis(call.timeout_ms.unwrap_or(TIMEOUT_MS)),
            retry: retry?,
            assertion: call.assertion,
            ..settings?
        };
        Some((Kind::Call { connection: connection?, action: call.action, input: template? }, settings, input))
    }

    /// What a node has that makes no call.
    fn settings(
        &mut self,
        laid: &Laid,
        when: Option<&str>,
        on_failure: Option<OnFailure>,
        names: &Names<'_>,
    ) -> Option<Settings> {
        let when = match when {
            Some(source) => Some(self.expression(source, &format!("{}.when", laid.path), names)?),
            None => None,
        };
        Some(Settings {
            when,
            timeout: Duration::from_millis(TIMEOUT_MS),
            // It fails again for the same reason, whenever it is tried.
            retry: RetryPolicy {
                attempts_max: 1,
                backoff: Duration::from_millis(BACKOFF_MS),
                backoff_max: Duration::from_millis(BACKOFF_LONGEST_MS),
            },
            continues_on_failure: on_failure == Some(OnFailure::Continue),
            assertion: Assertion::default(),
        })
    }

    fn retry(&mut self, path: &str, retry: Option<&form::Retry>) -> Option<RetryPolicy> {
        let tries = retry.and_then(|retry| retry.max_attempts).unwrap_or(TRIES);
        let backoff_ms = retry.and_then(|retry| retry.backoff_ms).unwrap_or(BACKOFF_MS);
        let longest = retry.and_then(|retry| retry.max_backoff_ms);
        if longest.is_some_and(|longest| longest < backoff_ms) {
            self.faults.add(
                format!("{path}.retryPolicy.maxBackoffMs"),
                format!("is shorter than the first pause, which has {backoff_ms} ms"),
            );
            return None;
        }
        Some(RetryPolicy {
            attempts_max: u32::try_from(tries).ok()?,
            backoff: Duration::from_millis(backoff_ms),
            backoff_max: Duration::from_millis(longest.unwrap_or_else(|| BACKOFF_LONGEST_MS.max(backoff_ms))),
        })
    }

    fn branch(&mut self, laid: &Laid, form: &form::Branch, names: &Names<'_>) -> Option<Kind> {
        let mut cases: Vec<(Box<str>, Expression)> = Vec::with_capacity(form.cases.len());
        let mut is_whole = true;
        for (at, case) in form.cases.iter().enumerate() {
            let path = format!("{}.cases[{at}]", laid.path);
            let is_name = !case.case.is_empty()
                && case.case.len() <= 64
                && case.case.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
            if !is_name {
                self.faults.add(format!("{path}.case"), "is 1 to 64 letters, digits, `-` and `_`");
                is_whole = false;
            } else if case.case == OTHERWISE || cases.iter().any(|(known, _)| **known == *case.case) {
                self.faults.add(format!("{path}.case"), format!("`{}` is there already", case.case));
                is_whole = false;
            }
            match self.expression(&case.when, &format!("{path}.when"), names) {
                Some(when) => cases.push((case.case.as_str().into(), when)),
                None => is_whole = false,
            }
        }
        is_whole.then(|| Kind::Branch { cases: cases.into() })
    }

    fn delay(&mut self, laid: &Laid, form: &form::Delay, names: &Names<'_>) -> Option<Delay> {
        let path = &laid.path;
        match (&form.r#for, &form.until) {
            (Some(text), None) => {
                let path = format!("{path}.for");
                match config::units::parse_duration(text) {
                    Ok(time) if time <= self.deadline => Some(Delay::For(time)),
                    Ok(_) => {
                        self.faults.add(path, "is longer than the automation's deadline");
                        None
                    }
                    Err(why) => {
                        self.faults.add(path, explain::cut(&why, 200));
                        None
                    }
                }
            }
            (None, Some(until)) => {
                let path = format!("{path}.until");
                let template = self.template(until, &path, names)?;
                if template.constant().is_some_and(|until| Delay::time_of(until).is_none()) {
                    self.faults.add(path, NO_TIME);
                    return None;
                }
                Some(Delay::Until(template))
            }
            (Some(_), Some(_)) | (None, None) => {
                self.faults.add(path.as_str(), "a delay has `for`, or `until`");
                None
            }
        }
    }

    fn expression(&mut self, source: &str, path: &str, names: &Names<'_>) -> Option<Expression> {
        if !self.may_compile(1, path) {
            return None;
        }
        Expression::compile_here(source, names).map_err(|why| self.faults.add(path, why.to_string())).ok()
    }

    fn template(&mut self, value: &Value, path: &str, names: &Names<'_>) -> Option<Template> {
        if !self.may_compile(0, path) {
            return None;
        }
        match Template::compile_here(value, names) {
            Ok(template) => {
                self.expressions += template.expressions();
                Some(template)
            }
            Err(faults) => {
                self.expressions += faults.len();
                for fault in faults {
                    self.faults.add(format!("{path}{}", fault.path), fault.why.to_string());
                }
                None
            }
        }
    }

    /// Counts expressions, and says once that they are too many.
    fn may_compile(&mut self, more: usize, path: &str) -> bool {
        self.expressions += more;
        if self.expressions <= EXPRESSIONS_MAX {
            return true;
        }
        if !std::mem::replace(&mut self.is_told, true) {
            self.faults.add(path, format!("an automation has at most {EXPRESSIONS_MAX} expressions"));
        }
        false
    }
}

/// What a delay cannot wait for.
const NO_TIME: &str =
    "is no time: write it as RFC 3339 with its offset, as `2026-03-01T09:00:00+01:00`, or as seconds since 1970";

impl Delay {
    /// Milliseconds since the Unix epoch of what `until` has come to: RFC 3339 with its offset, or seconds since 1970.
    pub fn time_of(value: &Value) -> Option<u64> {
        match value {
            Value::String(text) => parse_rfc3339(text),
            Value::Number(number) => {
                let seconds = number.as_f64().filter(|seconds| (0.0..=253_402_300_799.0).contains(seconds))?;
                u64::try_from(Duration::from_secs_f64(seconds).as_millis()).ok()
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}
