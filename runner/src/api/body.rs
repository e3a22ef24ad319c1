//! Bodies of requests: read strictly, and everything that is wrong with one is said at once.

use bytes::Bytes;
use domain::EndpointId;
use serde_json::{Map, Value};

use super::no::{DocumentFault, No};
use super::route::{AutomationName, is_replay};
use crate::automation::time::parse_rfc3339;
use crate::engine::REASON_BYTES_MAX;
use crate::failure::FailureClass;
use crate::ids::{AutomationId, StepId};
use crate::ledger::Choice;

/// How an automation is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentForm {
    Json,
    Yaml,
}

/// An automation as its author sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub text: Bytes,
    pub form: DocumentForm,
}

/// A run by hand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Start {
    /// What `input` of the automation is; null where none was sent.
    pub input: Value,
    /// Asked twice with one of these, it is one run.
    pub idempotency_key: Option<Box<str>>,
}

/// What somebody has decided about an ambiguous effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    pub node: StepId,
    pub choice: Choice,
}

/// Why somebody puts a dead letter away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dismiss {
    /// 1 to [`REASON_BYTES_MAX`] bytes.
    pub reason: Box<str>,
}

/// Something that may do an effect twice, and whether its asker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed(pub bool);

/// A node once more.
#[derive(Debug, Clone, PartialEq)]
pub struct Rerun {
    /// In place of what the graph gives it.
    pub input: Option<Value>,
    pub confirmed: Confirmed,
}

/// Which events to replay, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replays {
    pub automation: Option<AutomationId>,
    pub endpoint: Option<EndpointId>,
    /// Received at or after.
    pub from_unix_ms: Option<u64>,
    /// Received before.
    pub to_unix_ms: Option<u64>,
    pub which: Which,
}

/// Which of them, by what came of them before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    #[default]
    All,
    /// No run was ever begun.
    NeverBegan,
    /// All runs are over, and none has succeeded.
    NotSucceeded,
    /// The same, and one failed in this class.
    FailedWith(FailureClass),
}

/// A plan that was read, to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct StartReplays {
    /// As the planning answered it.
    pub plan: Value,
    pub confirmed: Confirmed,
    /// Of one that was begun before: it goes on. None: the plan's own, so that a plan is carried out once.
    pub name: Option<Box<str>>,
}

/// The fields of a body, taken one by one; what is left over is not known.
struct Fields {
    left: Map<String, Value>,
    faults: Vec<DocumentFault>,
}

impl Fields {
    /// An empty body is one without fields.
    fn of(content_type: Option<&str>, body: &Bytes) -> Result<Self, No> {
        if body.is_empty() {
            return Ok(Self { left: Map::new(), faults: Vec::new() });
        }
        if form(content_type) != Some(DocumentForm::Json) {
            return Err(No::MediaType(JSON));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(left)) => Ok(Self { left, faults: Vec::new() }),
            Ok(_) => Err(malformed("", "is no JSON object")),
            Err(fault) => {
                let place = (narrow(fault.line()), narrow(fault.column()));
                let mut told = DocumentFault::new("", "is no JSON");
                told.place = Some(place);
                Err(No::Malformed(vec![told]))
            }
        }
    }

    fn fault(&mut self, path: impl Into<Box<str>>, message: impl Into<Box<str>>) {
        self.faults.push(DocumentFault::new(path, message));
    }

    fn take<T>(&mut self, name: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.left.remove(name).filter(|value| !value.is_null())?;
        let found = read(&value);
        if found.is_none() {
            self.fault(name, format!("is no {what}"));
        }
        found
    }

    fn needed<T>(&mut self, name: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        if self.left.get(name).is_none_or(Value::is_null) {
            self.left.remove(name);
            self.fault(name, format!("is missing; write {what}"));
            return None;
        }
        let value = self.left.remove(name)?;
        let found = read(&value);
        if found.is_none() {
            self.fault(name, format!("cannot be read; write {what}"));
        }
        found
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name, "true or false", Value::as_bool).unwrap_or(false)
    }

    fn done<T>(mut self, value: Option<T>) -> Result<T, No> {
        let unknown: Vec<_> = self.left.keys().map(|name| shown(name)).collect();
        for name in unknown {
            self.fault(name, "is not known here");
        }
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => Err(No::Malformed(self.faults)),
        }
    }
}

fn malformed(path: &str, message: &str) -> No {
    No::Malformed(vec![DocumentFault::new(path, message)])
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn shown(text: &str) -> String {
    domain::text::Untrusted::with_limit(text.as_bytes(), 64).to_string()
}

/// What is taken as a body.
const JSON: &str = "application/json";

/// What is taken as an automation.
const JSON_OR_YAML: &str = "application/json, application/yaml";

/// What a media type says; none of one that is neither. Nothing is JSON.
fn form(content_type: Option<&str>) -> Option<DocumentForm> {
    let Some(content_type) = content_type else { return Some(DocumentForm::Json) };
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        JSON => Some(DocumentForm::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Some(DocumentForm::Yaml),
        _ => None,
    }
}

/// An automation; what is in it is for the one who compiles it to judge.
pub(super) fn document(content_type: Option<&str>, body: &Bytes) -> Result<Document, No> {
    let form = form(content_type).ok_or(No::MediaType(JSON_OR_YAML))?;
    if body.is_empty() {
        return Err(malformed("", "is empty; send the automation"));
    }
    Ok(Document { text: body.clone(), form })
}

/// Longest `Idempotency-Key`.
const KEY_BYTES_MAX: usize = 255;

pub(super) fn start(content_type: Option<&str>, key: Option<&str>, body: &Bytes) -> Result<Start, No> {
    let mut fields = Fields::of(content_type, body)?;
    let input = fields.left.remove("input").unwrap_or_default();
    if key.is_some_and(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
        fields.fault("Idempotency-Key", format!("has not 1 to {KEY_BYTES_MAX} bytes"));
    }
    fields.done(Some(Start { input, idempotency_key: key.map(Box::from) }))
}

/// The two choices, as they are written.
fn choice(word: &str) -> Option<Choice> {
    Some(match word {
        "continue-accept-gap" => Choice::ContinueAcceptGap,
        "retry-accept-duplicate" => Choice::RetryAcceptDuplicate,
        _ => return None,
    })
}

pub(super) fn resolve(content_type: Option<&str>, body: &Bytes) -> Result<Resolve, No> {
    let mut fields = Fields::of(content_type, body)?;
    let node = fields.needed("node", "the id of a node", |value| StepId::parse(value.as_str()?));
    let what = "\"continue-accept-gap\" or \"retry-accept-duplicate\"";
    let choice = fields.needed("choice", what, |value| choice(value.as_str()?));
    fields.done(node.zip(choice).map(|(node, choice)| Resolve { node, choice }))
}

pub(super) fn dismiss(content_type: Option<&str>, body: &Bytes) -> Result<Dismiss, No> {
    let mut fields = Fields::of(content_type, body)?;
    let what = format!("why, in 1 to {REASON_BYTES_MAX} bytes");
    let is_one = |text: &&str| (1..=REASON_BYTES_MAX).contains(&text.len()) && !text.trim().is_empty();
    let reason = fields.needed("reason", &what, |value| value.as_str().filter(is_one).map(Box::from));
    fields.done(reason.map(|reason| Dismiss { reason }))
}

pub(super) fn nothing(content_type: Option<&str>, body: &Bytes) -> Result<(), No> {
    Fields::of(content_type, body)?.done(Some(()))
}

pub(super) fn replay(content_type: Option<&str>, body: &Bytes) -> Result<Confirmed, No> {
    let mut fields = Fields::of(content_type, body)?;
    let confirmed = Confirmed(fields.flag("confirmDuplicates"));
    fields.done(Some(confirmed))
}

pub(super) fn rerun(content_type: Option<&str>, body: &Bytes) -> Result<Rerun, No> {
    let mut fields = Fields::of(content_type, body)?;
    // `null` is an input too.
    let input = fields.left.remove("input");
    let confirmed = Confirmed(fields.flag("confirmDuplicates"));
    fields.done(Some(Rerun { input, confirmed }))
}

/// What to replay, and the name of the automation where it is not named by its id.
pub(super) fn replays(content_type: Option<&str>, body: &Bytes) -> Result<(Replays, Option<Box<str>>), No> {
    let mut fields = Fields::of(content_type, body)?;
    let time = |value: &Value| value.as_str().map_or_else(|| value.as_u64(), parse_rfc3339);
    let named =
        fields.take("automation", "id or name of an automation", |value| AutomationName::parse(value.as_str()?));
    let is_named = named.is_some();
    let (automation, name) = AutomationName::parts(named);
    let replays = Replays {
        automation,
        endpoint: fields.take("endpoint", "id of an endpoint", |value| EndpointId::parse(value.as_str()?).ok()),
        from_unix_ms: fields.take("from", "time (RFC 3339)", time),
        to_unix_ms: fields.take("to", "time (RFC 3339)", time),
        which: which(&mut fields),
    };
    if !is_named && replays.endpoint.is_none() && fields.faults.is_empty() {
        fields.fault("", "names neither an automation nor an endpoint: everything is not replayed");
    }
    if replays.from_unix_ms.zip(replays.to_unix_ms).is_some_and(|(from, to)| from >= to) {
        fields.fault("to", "is not behind from");
    }
    fields.done(Some((replays, name)))
}

fn which(fields: &mut Fields) -> Which {
    let class = fields.take("class", "class of failures", |value| {
        FailureClass::ALL.iter().copied().find(|class| value.as_str() == Some(class.code()))
    });
    let said = fields.take("which", "one of all, never-began, not-succeeded, failed-with", |value| {
        Some(match value.as_str()? {
            "all" => Which::All,
            "never-began" => Which::NeverBegan,
            "not-succeeded" => Which::NotSucceeded,
            "failed-with" => Which::FailedWith(class?),
            _ => return None,
        })
    });
    match (said, class) {
        (Some(said @ Which::FailedWith(_)), _) | (Some(said), None) => said,
        (None, Some(class)) => Which::FailedWith(class),
        (Some(_), Some(_)) => {
            fields.fault("class", "belongs to which = \"failed-with\"");
            Which::All
        }
        (None, None) => Which::All,
    }
}

pub(super) fn start_replays(content_type: Option<&str>, body: &Bytes) -> Result<StartReplays, No> {
    let mut fields = Fields::of(content_type, body)?;
    let plan = fields.needed("plan", "the plan that was read", |value| value.is_object().then(|| value.clone()));
    let what = "name of a replay: 1 to 64 letters, digits, '-' and '_'";
    let name = fields.take("name", what, |value| Some(Box::from(value.as_str().filter(|it| is_replay(it))?)));
    let confirmed = Confirmed(fields.flag("confirmDuplicates"));
    fields.done(plan.map(|plan| StartReplays { plan, confirmed, name }))
}

/// `If-Match`: a version, in quotes or bare, or `*`.
pub(super) fn if_match(text: Option<&str>) -> Result<Option<crate::ids::Version>, No> {
    match text.map(|text| text.trim().trim_matches('"')) {
        None | Some("*") => Ok(None),
        Some(text) => match text.parse() {
            Ok(version) => Ok(Some(version)),
            Err(_) => Err(malformed("If-Match", "is no version; write a number, as the answer had it in ETag")),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn json(value: &Value) -> Bytes {
        Bytes::from(value.to_string())
    }

    fn faults(no: No) -> Vec<String> {
        let No::Malformed(faults) = no else { panic!("{no:?}") };
        faults.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect()
    }

    #[test]
    fn a_body_that_is_wrong_is_wrong_in_all_of_its_parts() {
        let body = json(&json!({ "node": "a b", "choise": "retry", "more": 1 }));
        assert_eq!(
            faults(resolve(None, &body).unwrap_err()),
            [
                "node: cannot be read; write the id of a node",
                "choice: is missing; write \"continue-accept-gap\" or \"retry-accept-duplicate\"",
                "choise: is not known here",
                "more: is not known here"
            ]
        );
        let good = json(&json!({ "node": "a/b", "choice": "retry-accept-duplicate" }));
        assert_eq!(
            resolve(Some("application/json; charset=utf-8"), &good).unwrap().choice,
            Choice::RetryAcceptDuplicate
        );
    }

    #[test]
    fn what_is_no_json_says_where() {
        let no = resolve(None, &Bytes::from_static(b"{\n  \"node\": }")).unwrap_err();
        let No::Malformed(faults) = no else { panic!() };
        assert_eq!(faults[0].place, Some((2, 11)));
        assert!(matches!(resolve(None, &Bytes::from_static(b"[1]")), Err(No::Malformed(_))));
        let told = |no: No| String::from_utf8(no.answer().body.to_vec()).unwrap();
        for other in ["text/plain", "application/yaml", ""] {
            let no = resolve(Some(other), &json(&json!({}))).unwrap_err();
            assert!(
                told(no.clone()).contains("send it with Content-Type: application/json\""),
                "{other}: {}",
                told(no)
            );
        }
        let no = document(Some("text/plain"), &json(&json!({}))).unwrap_err();
        assert_eq!(no.answer().headers.last(), Some(&("Accept", "application/json, application/yaml".to_owned())));
        assert!(told(no).contains("application/json or application/yaml"));
        let deep = "[".repeat(100_000);
        assert!(matches!(start(None, None, &Bytes::from(format!("{{\"input\":{deep}"))), Err(No::Malformed(_))));
    }

    #[test]
    fn a_replay_of_everything_is_none() {
        assert_eq!(faults(replays(None, &json(&json!({ "from": "2026-01-01T00:00:00Z" }))).unwrap_err()).len(), 1);
        let wrong = json!({ "endpoint": "a hook", "from": 5, "to": 5, "which": "some", "class": "odd", "events": [] });
        assert_eq!(faults(replays(None, &json(&wrong)).unwrap_err()).len(), 5);
        let of = |more: Value| {
            let mut body = json!({ "endpoint": "wh_1" });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            replays(None, &json(&body)).map(|(read, _)| read.which)
        };
        assert_eq!(of(json!({})).unwrap(), Which::All);
        assert_eq!(of(json!({ "class": "plan-limit" })).unwrap(), Which::FailedWith(FailureClass::PlanLimit));
        assert_eq!(of(json!({ "which": "never-began" })).unwrap(), Which::NeverBegan);
        assert!(of(json!({ "which": "failed-with" })).is_err());
        assert!(of(json!({ "which": "never-began", "class": "plan-limit" })).is_err());
    }

    #[test]
    fn an_automation_is_named_by_its_id_or_by_its_name() {
        let of = |automation: &str| replays(None, &json(&json!({ "automation": automation })));
        let id = AutomationId::from_bytes([1; 16]);
        assert_eq!(of(&id.to_string()).unwrap(), (Replays { automation: Some(id), ..Replays::default() }, None));
        assert_eq!(of("greet").unwrap(), (Replays::default(), Some("greet".into())));
        for no in ["", "aut_1", &"a".repeat(300)] {
            assert!(of(no).is_err(), "{no}");
        }
    }

    #[test]
    fn a_dismissal_says_why() {
        assert_eq!(&*dismiss(None, &json(&json!({ "reason": "called them" }))).unwrap().reason, "called them");
        for no in [json!({}), json!({ "reason": " " }), json!({ "reason": "a".repeat(1_025) }), json!({ "reason": 1 })]
        {
            assert!(dismiss(None, &json(&no)).is_err(), "{no}");
        }
    }

    #[test]
    fn a_replay_is_begun_with_the_plan_that_was_read() {
        let read =
            start_replays(None, &json(&json!({ "plan": {}, "name": "rep_1", "confirmDuplicates": true }))).unwrap();
        assert!(read.confirmed.0 && read.name.as_deref() == Some("rep_1"));
        for wrong in
            [json!({}), json!({ "plan": "p" }), json!({ "plan": {}, "name": "a b" }), json!({ "plan": {}, "x": 1 })]
        {
            assert!(start_replays(None, &json(&wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_input_may_be_null_and_a_confirmation_is_never_assumed() {
        assert_eq!(rerun(None, &Bytes::new()).unwrap(), Rerun { input: None, confirmed: Confirmed(false) });
        let body = json(&json!({ "input": null, "confirmDuplicates": true }));
        assert_eq!(rerun(None, &body).unwrap(), Rerun { input: Some(Value::Null), confirmed: Confirmed(true) });
        assert!(rerun(None, &json(&json!({ "confirmDuplicates": "yes" }))).is_err());
        assert_eq!(start(None, Some("k"), &Bytes::new()).unwrap().idempotency_key.as_deref(), Some("k"));
        assert!(start(None, Some(""), &Bytes::new()).is_err());
    }

    #[test]
    fn an_edit_says_which_version_it_is_of() {
        assert_eq!(if_match(None).unwrap(), None);
        assert_eq!(if_match(Some("*")).unwrap(), None);
        assert_eq!(if_match(Some("\"3\"")).unwrap().unwrap().get(), 3);
        for bad in ["", "\"a\"", "0", "W/\"3\"", "99999999999"] {
            assert!(if_match(Some(bad)).is_err(), "{bad}");
        }
    }
}
