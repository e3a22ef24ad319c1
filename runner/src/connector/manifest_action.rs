//! An action as a manifest declares it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::connector::Manifest;
use config::connector::action::{
    ActionSpec, AnswerTest, EffectForm, Encoding, Found, Part, PathPart, ReplayClass, RequestSpec, Template,
};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use super::answer::{Answer, cleaned};
use super::target::{Target, fault, header};
use super::{Action, InputFault, ReadBack, ReplaySafety, Request, Verdict, body, classify, place};
use crate::failure::FailureClass;
use crate::ids::EffectKey;

/// Faults of an input that are told at once.
const FAULTS_MAX: usize = 5;

/// One action of one connector, ready to be asked for.
pub struct ManifestAction {
    manifest: Arc<Manifest>,
    /// Place in the manifest's actions.
    index: usize,
    validator: Validator,
    /// Members of the input that stand somewhere in the request, and so not in `{*}`.
    named: BTreeSet<Box<str>>,
    /// The effect's key goes into the connector's idempotency header.
    has_key: bool,
}

/// Why an action of a manifest cannot be used. A manifest that was checked has none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the input of {connector}.{action} is no schema: {detail}")]
pub struct SchemaFault {
    connector: Box<str>,
    action: Box<str>,
    detail: Box<str>,
}

impl fmt::Debug for ManifestAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManifestAction({}.{})", self.manifest.connector, self.spec().map_or("", |spec| &spec.name))
    }
}

impl ManifestAction {
    /// The action of this name; none where the manifest has none.
    pub fn new(manifest: &Arc<Manifest>, name: &str) -> Option<Result<Self, SchemaFault>> {
        let index = manifest.actions.iter().position(|action| *action.name == *name)?;
        let spec = manifest.actions.get(index)?;
        // Nothing is fetched and no expression backtracks: the loader takes references to the schema's own definitions, and
        // patterns that compile so.
        let options = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
            .should_validate_formats(false)
            .offline();
        let validator = match options.build(&spec.input) {
            Ok(validator) => validator,
            Err(detail) => {
                let detail = cleaned(&detail.to_string()).unwrap_or_default();
                return Some(Err(SchemaFault {
                    connector: manifest.connector.as_str().into(),
                    action: spec.name.clone(),
                    detail,
                }));
            }
        };
        let has_key = manifest.remembers(spec.request.method, &spec.request.path.to_string());
        Some(Ok(Self { manifest: Arc::clone(manifest), index, validator, named: named(spec), has_key }))
    }

    /// As the manifest has it.
    pub fn spec(&self) -> Option<&ActionSpec> {
        self.manifest.actions.get(self.index)
    }

    fn found(&self) -> Result<&ActionSpec, InputFault> {
        self.spec().ok_or_else(|| fault("the action is not in its manifest"))
    }

    fn validate(&self, input: &Value) -> Result<(), InputFault> {
        let faults = self.validator.iter_errors(input).take(FAULTS_MAX).map(|error| {
            let at = error.instance_path().to_string();
            // Values are the tenant's data, and stay out of messages.
            let words = error.masked().to_string();
            if at.is_empty() { words } else { format!("{}: {words}", at.trim_start_matches('/').replace('/', ".")) }
        });
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(fault(faults.join("; ")))
    }

    fn build(&self, spec: &RequestSpec, input: &Value, effect: EffectKey, is_act: bool) -> Result<Request, InputFault> {
        let mut target = Target::default();
        for part in spec.path.parts() {
            match part {
                PathPart::Text(text) => target.push_text(text),
                PathPart::Place(part) => {
                    let value = scalar_of(part, input, effect)?
                        .ok_or_else(|| fault(format!("{part} is not there, and stands in the path")))?;
                    target.push_value(part.field().unwrap_or("the effect's key"), &value)?;
                }
            }
        }
        for (name, part) in &spec.query {
            match part {
                Part::Field(field) => target.push_parameter(name, input.get(&**field).unwrap_or(&Value::Null))?,
                Part::Constant(_) | Part::Effect(_) => {
                    let value = scalar_of(part, input, effect)?.unwrap_or_default();
                    target.push_parameter(name, &Value::String(value))?;
                }
            }
        }
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (name, part) in &spec.headers {
            if let Some(value) = scalar_of(part, input, effect)? {
                headers.push(header(name, &value)?);
            }
        }
        let mut bytes = Bytes::new();
        if let Some((encoding, template)) = &spec.body {
            let value = self.fill(template, input, effect).unwrap_or_else(|| Value::Object(Map::new()));
            bytes = body::encode(*encoding, &value)?;
            add_content_type(&mut headers, *encoding);
        }
        if is_act
            && self.has_key
            && let Some(name) = self.manifest.idempotency_header.as_deref()
        {
            headers.push(header(name, &effect.to_string())?);
        }
        let method = http::Method::from_bytes(spec.method.as_str().as_bytes())
            .map_err(|_| fault("the action's method is none"))?;
        Ok(Request { method, target: target.finish()?, headers, body: bytes })
    }

    /// The value of a template; none where it is a member that the input does not have.
    fn fill(&self, template: &Template, input: &Value, effect: EffectKey) -> Option<Value> {
        match template {
            Template::Constant(value) => Some(value.clone()),
            Template::Part(Part::Field(field)) => input.get(&**field).cloned(),
            Template::Part(Part::Effect(form)) => Some(Value::String(effect_text(effect, *form))),
            Template::Part(Part::Constant(text)) => Some(Value::String(text.to_string())),
            Template::Rest => {
                let members = input.as_object().into_iter().flatten();
                let rest = members.filter(|(name, _)| !self.named.contains(name.as_str()));
                Some(Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect()))
            }
            Template::List(items) => {
                Some(Value::Array(items.iter().filter_map(|item| self.fill(item, input, effect)).collect()))
            }
            Template::Table(members) => {
                let filled = members
                    .iter()
                    .filter_map(|(name, member)| Some((name.to_string(), self.fill(member, input, effect)?)));
                Some(Value::Object(filled.collect()))
            }
        }
    }

    /// Members of the input that would go nowhere.
    fn stray(&self, spec: &ActionSpec, input: &Value) -> Option<InputFault> {
        let has_rest = spec.request.body.as_ref().is_some_and(|(_, template)| has_rest(template));
        let mut members = input.as_object().into_iter().flatten();
        let stray = members.find(|(name, _)| !has_rest && !self.named.contains(name.as_str()))?;
        Some(fault(format!("{} is no field of this action", stray.0)))
    }
}

impl Action for ManifestAction {
    fn safety(&self, _: &Value) -> ReplaySafety {
        match self.spec().map(|spec| spec.class) {
            Some(ReplayClass::Idempotent) => ReplaySafety::Idempotent,
            Some(ReplayClass::Checkable) => ReplaySafety::Checkable,
            Some(ReplayClass::Unsafe) | None => ReplaySafety::Unsafe,
        }
    }

    fn request(&self, input: &Value, effect: EffectKey) -> Result<Request, InputFault> {
        let spec = self.found()?;
        let input = without_nulls(spec, input);
        self.validate(&input)?;
        if let Some(fault) = self.stray(spec, &input) {
            return Err(fault);
        }
        self.build(&spec.request, &input, effect, true)
    }

    fn remembered_for(&self, _: &Value) -> Option<Duration> {
        // One that gives another reason for its class does not rely on the key.
        let relies = self.has_key && self.spec().is_some_and(|spec| !spec.reads && spec.reason.is_empty());
        self.manifest.idempotency_window.filter(|_| relies)
    }

    fn is_effectful(&self, _: &Value) -> bool {
        self.spec().is_none_or(|spec| !spec.reads)
    }

    fn read_back(&self, input: &Value, effect: EffectKey) -> Option<Result<Request, InputFault>> {
        let check = self.spec()?.check.as_ref()?;
        Some(self.build(&check.request, input, effect, false))
    }

    fn judge_read_back(
        &self,
        input: &Value,
        effect: EffectKey,
        status: u16,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> ReadBack {
        let Some(check) = self.spec().and_then(|spec| spec.check.as_ref()) else { return ReadBack::Unknown };
        let answer = Answer::read(status, headers, body);
        // A success that the connector's rules know for a failure says nothing of what was asked.
        if (200..300).contains(&status) && classify::failure(&answer, &self.manifest.errors).is_some() {
            return ReadBack::Unknown;
        }
        let fits = |test: &AnswerTest| fits(test, &answer, input, effect);
        match (fits(&check.happened), fits(&check.not_happened)) {
            (true, false) => ReadBack::Happened(output(answer, check.output.as_ref())),
            (false, true) => ReadBack::NotHappened,
            (true, true) | (false, false) => ReadBack::Unknown,
        }
    }

    fn judge(&self, status: u16, headers: &HeaderMap, body: &Bytes) -> Verdict {
        let answer = Answer::read(status, headers, body);
        match classify::failure(&answer, &self.manifest.errors) {
            Some((class, message)) => Verdict::Failed { class, message },
            None => Verdict::Done(output(answer, self.spec().and_then(|spec| spec.output.as_ref()))),
        }
    }

    fn judge_cut(
        &self,
        status: u16,
        headers: &HeaderMap,
        beginning: &Bytes,
    ) -> Option<(FailureClass, Option<Box<str>>)> {
        classify::failure(&Answer::cut(status, headers, beginning), &self.manifest.errors)
    }
}

/// An expression that finds nothing gives `null`: it is as if the member were not there, unless its schema has that.
fn without_nulls<'v>(spec: &ActionSpec, input: &'v Value) -> Cow<'v, Value> {
    let is_absent = |name: &String, value: &Value| {
        let kind = spec.input["properties"].get(name).and_then(|schema| schema.get("type"));
        let takes_null =
            |kind: &Value| kind == "null" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == "null"));
        value.is_null() && kind.is_some_and(|kind| !takes_null(kind))
    };
    let Some(members) = input.as_object() else { return Cow::Borrowed(input) };
    if !members.iter().any(|(name, value)| is_absent(name, value)) {
        return Cow::Borrowed(input);
    }
    let mut members = members.clone();
    members.retain(|name, value| !is_absent(name, value));
    Cow::Owned(Value::Object(members))
}

/// What later nodes see: what is at the place, or all of it where there is nothing.
fn output(answer: Answer<'_>, path: Option<&config::connector::quota::JsonPath>) -> Value {
    let at = path.and_then(|path| place::first(answer.json()?, path).cloned());
    at.unwrap_or_else(|| answer.value())
}

fn fits(test: &AnswerTest, answer: &Answer<'_>, input: &Value, effect: EffectKey) -> bool {
    if !test.statuses.iter().any(|range| range.holds(answer.status)) {
        return false;
    }
    let Some((path, found)) = &test.body else { return true };
    // Nothing is at a place of a body that is no JSON; that it is nothing says only a body that is.
    let Some(json) = answer.json() else { return false };
    let there = place::at(json, path);
    match found {
        Found::Something => there.iter().any(|(_, value)| place::is_something(value)),
        Found::Nothing => !there.iter().any(|(_, value)| place::is_something(value)),
        Found::Equal(part) => {
            let wanted = scalar_of(part, input, effect).ok().flatten();
            wanted.is_some_and(|wanted| there.iter().any(|(_, value)| place::scalar(value).as_ref() == Some(&wanted)))
        }
    }
}

/// A part as text; none where the input does not have it.
fn scalar_of(part: &Part, input: &Value, effect: EffectKey) -> Result<Option<String>, InputFault> {
    match part {
        Part::Constant(text) => Ok(Some(text.to_string())),
        Part::Effect(form) => Ok(Some(effect_text(effect, *form))),
        Part::Field(field) => match input.get(&**field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match place::scalar(value) {
                Some(text) => Ok(Some(text)),
                None => Err(fault(format!("{field} is a list or an object, and stands where a text does"))),
            },
        },
    }
}

fn effect_text(effect: EffectKey, form: EffectForm) -> String {
    match form {
        EffectForm::Key => effect.to_string(),
        EffectForm::Hex => data_encoding::HEXLOWER.encode(effect.as_bytes()),
        EffectForm::Uuid => {
            // RFC 9562, section 5.4: version 4, variant 10.
            let mut bytes = *effect.as_bytes();
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            let hex = data_encoding::HEXLOWER.encode(&bytes);
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            parts.join("-")
        }
    }
}

fn add_content_type(headers: &mut Vec<(HeaderName, HeaderValue)>, encoding: Encoding) {
    if !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
        headers.push((CONTENT_TYPE, HeaderValue::from_static(body::content_type(encoding))));
    }
}

fn has_rest(template: &Template) -> bool {
    match template {
        Template::Rest => true,
        Template::Constant(_) | Template::Part(_) => false,
        Template::List(items) => items.iter().any(has_rest),
        Template::Table(members) => members.iter().any(|(_, member)| has_rest(member)),
    }
}

/// Fields that stand in the request by name.
fn named(spec: &ActionSpec) -> BTreeSet<Box<str>> {
    let request = &spec.request;
    let path = request.path.parts().iter().filter_map(|part| match part {
        PathPart::Place(part) => part.field(),
        PathPart::Text(_) => None,
    });
    let pairs = request.query.iter().chain(&request.headers).filter_map(|(_, part)| part.field());
    let body = request.body.iter().flat_map(|(_, template)| template.parts()).filter_map(Part::field);
    path.chain(pairs).chain(body).map(Into::into).collect()
}
