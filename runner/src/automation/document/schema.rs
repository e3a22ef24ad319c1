//! Reading by schema: what is published is what documents are read by.
//!
//! The schemas are those that `schemars` makes of the types in `form`; of JSON Schema's keywords only those that they use
//! are known here, and a test says that no other one is in them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::fault::Gathered;
use super::{below, explain, form};
use crate::automation::expression::values::describe;

static KINDS: LazyLock<BTreeMap<&'static str, Value>> =
    LazyLock::new(|| form::kinds().into_iter().map(|(name, schema)| (name, schema.to_value())).collect());

/// `type` of a node, and the schema that it has by then; any other with a dot in it is a connector's action.
pub(super) const TYPES: [(&str, &str); 6] = [
    ("http.request", "httpRequest"),
    ("effect", "effect"),
    ("branch", "branch"),
    ("delay", "delay"),
    ("transform", "transform"),
    ("graph", "graph"),
];

/// Holds a value against the schema of this name, and gives it as its type if nothing is wrong with it.
pub(super) fn read<T: DeserializeOwned>(kind: &str, value: &Value, path: &str, faults: &mut Gathered) -> Option<T> {
    let before = faults.count();
    match KINDS.get(kind) {
        Some(schema) => hold(schema, value, path, faults),
        None => faults.add(path, "there is no such kind of node"),
    }
    if faults.count() > before {
        return None;
    }
    T::deserialize(value).map_err(|error| faults.add(path, explain::cut(&error.to_string(), 200))).ok()
}

fn hold(schema: &'static Value, value: &Value, path: &str, faults: &mut Gathered) {
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = |schema: &&'static Value| kinds_of(schema).contains(&kind_of(value));
        match any.iter().find(fits) {
            Some(schema) => hold(schema, value, path, faults),
            None => wrong_kind(any.iter().flat_map(kinds_of).collect(), value, path, faults),
        }
        return;
    }
    let kinds = kinds_of(schema);
    if !kinds.is_empty() && !kinds.contains(&kind_of(value)) {
        return wrong_kind(kinds, value, path, faults);
    }
    let words = words(schema);
    if !words.is_empty() && !words.contains(&value) {
        let words: Vec<String> = words.iter().filter(|word| !word.is_null()).map(ToString::to_string).collect();
        return faults.add(path, format!("is {} and has to be {}", describe(value), either(&words)));
    }
    if kinds.is_empty() && words.is_empty() {
        // Any value.
        return;
    }
    match value {
        Value::Number(number) => hold_number(schema, number.as_u64(), path, faults),
        Value::String(text) => hold_text(schema, text, path, faults),
        Value::Array(elements) => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
            let count = elements.len() as u64;
            if count < least || count > most {
                faults.add(path, format!("has {count} elements and may have {least} to {most}"));
            }
            for (at, element) in elements.iter().enumerate().take(1000) {
                hold(&schema["items"], element, &format!("{path}[{at}]"), faults);
            }
        }
        Value::Object(members) => hold_object(schema, members, path, faults),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Values that may be: of an enumeration, with or without prose for each of them.
fn words(schema: &Value) -> Vec<&Value> {
    let either = schema["oneOf"].as_array().into_iter().flatten().flat_map(words);
    let consts = schema.get("const").into_iter();
    schema["enum"].as_array().into_iter().flatten().chain(consts).chain(either).collect()
}

fn hold_number(schema: &Value, number: Option<u64>, path: &str, faults: &mut Gathered) {
    let least = schema["minimum"].as_u64().unwrap_or(0);
    let most = schema["maximum"].as_u64().unwrap_or(u64::MAX);
    if !number.is_some_and(|number| (least..=most).contains(&number)) {
        faults.add(path, format!("has to be from {least} to {most}"));
    }
}

fn hold_text(schema: &Value, text: &str, path: &str, faults: &mut Gathered) {
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let length = text.chars().count() as u64;
    if length < least || length > most {
        faults.add(path, format!("has {length} characters and may have {least} to {most}"));
    }
}

fn hold_object(schema: &'static Value, members: &Map<String, Value>, path: &str, faults: &mut Gathered) {
    let Some(known) = schema["properties"].as_object() else { return };
    for (key, value) in members {
        let path = format!("{path}{}", below(key));
        match known.get(key) {
            Some(schema) => hold(schema, value, &path, faults),
            None => faults.add(path, unknown(key, known)),
        }
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(key) {
            faults.add(path, format!("`{key}` is missing"));
        }
    }
}

fn unknown(key: &str, known: &Map<String, Value>) -> String {
    let shown = explain::cut(key, 64);
    match key {
        "class" | "safety" | "replaySafety" => {
            return "how safe an action is to repeat is its connector's to say, and no author's".into();
        }
        _ => {}
    }
    let near = known.keys().find(|candidate| is_near(key, candidate));
    near.map_or_else(
        || format!("`{shown}` is not known here: there are {}", known.keys().cloned().collect::<Vec<_>>().join(", ")),
        |near| format!("`{shown}` is not known here: is `{near}` meant?"),
    )
}

/// The same letters in another case or order or with other signs between them, or one of them wrong, missing or too many.
fn is_near(a: &str, b: &str) -> bool {
    let fold = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase()).collect()
    };
    if a.len() > 64 {
        return false;
    }
    let (a, b) = (fold(a), fold(b));
    let sorted = |text: &[u8]| -> Vec<u8> {
        let mut sorted = text.to_vec();
        sorted.sort_unstable();
        sorted
    };
    if a.len() > 2 && sorted(&a) == sorted(&b) {
        return true;
    }
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    let behind = |rest: &[u8]| rest.get(1..).unwrap_or_default().to_vec();
    rest_a == rest_b || behind(rest_a) == rest_b || rest_a == behind(rest_b) || behind(rest_a) == behind(rest_b)
}

fn kinds_of(schema: &'static Value) -> Vec<&'static str> {
    match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            schema["oneOf"].as_array().into_iter().flatten().flat_map(kinds_of).collect()
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong_kind(mut kinds: Vec<&'static str>, value: &Value, path: &str, faults: &mut Gathered) {
    kinds.dedup();
    let words: Vec<String> = kinds
        .into_iter()
        .filter(|kind| *kind != "null")
        .map(|kind| match kind {
            "boolean" => "true or false".into(),
            "integer" => "a whole number".into(),
            "string" => "a text".into(),
            "array" => "a list".into(),
            "object" => "an object".into(),
            other => format!("a {other}"),
        })
        .collect();
    faults.add(path, format!("is {} and has to be {}", describe(value), either(&words)));
}

fn either(words: &[String]) -> String {
    words.join(" or ")
}

/// The schema of documents, for editors and for other programs: JSON Schema, draft 2020-12.
pub fn published_schema() -> Value {
    let mut kinds: Map<String, Value> =
        KINDS.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let mut automation = kinds.remove("automation").unwrap_or_default();
    let nodes = json!({ "$ref": "#/$defs/node" });
    automation["properties"]["nodes"]["items"] = nodes.clone();
    if let Some(graph) = kinds.get_mut("graph") {
        graph["properties"]["nodes"]["items"] = nodes;
    }
    let mut either = Vec::new();
    for (word, name) in TYPES {
        if let Some(kind) = kinds.get_mut(name) {
            kind["properties"]["type"] = json!({ "const": word });
        }
        either.push(json!({ "$ref": format!("#/$defs/{name}") }));
    }
    if let Some(action) = kinds.get_mut("action") {
        let own: Vec<&str> = TYPES.iter().map(|(word, _)| *word).collect();
        action["properties"]["type"] = json!({ "type": "string", "pattern": ACTION_PATTERN, "not": { "enum": own }, "description": "`connector.action`." });
    }
    either.push(json!({ "$ref": "#/$defs/action" }));
    if let Some(delay) = kinds.get_mut("delay") {
        delay["oneOf"] = json!([{ "required": ["for"] }, { "required": ["until"] }]);
    }
    automation["properties"]["trigger"]["oneOf"] =
        json!([{ "type": "null" }, { "required": ["endpoint"] }, { "required": ["endpoints"] }]);
    kinds.insert("node".into(), json!({ "description": "A node, by its `type`.", "oneOf": either }));
    let mut made = Map::new();
    made.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    made.insert("$id".into(), "https://tidegate.dev/schema/automation.json".into());
    if let Value::Object(automation) = automation {
        made.extend(automation);
    }
    made.insert("title".into(), "Tidegate: an automation".into());
    made.insert("$defs".into(), Value::Object(kinds));
    Value::Object(made)
}

/// `stripe.create_charge`.
const ACTION_PATTERN: &str = "^[a-z0-9][a-z0-9-]*(\\.[A-Za-z0-9_-]+)+$";

/// Whether a type is a connector's action, as [`ACTION_PATTERN`] has it.
pub(super) fn is_action(kind: &str) -> bool {
    let mut parts = kind.split('.');
    let connector = parts.next().unwrap_or_default();
    let mut names = 0;
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let all = parts.all(|name| {
        names += 1;
        is_name(name)
    });
    let begins = connector.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    begins
        && connector.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && all
        && names > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keyword that is not read would be published and not kept to.
    #[test]
    fn no_keyword_is_in_the_schemas_that_is_not_read() {
        const READ: [&str; 16] = [
            "oneOf",
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "anyOf",
            "enum",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "pattern",
            "const",
        ];
        const PROSE: [&str; 4] = ["description", "title", "default", "format"];
        fn walk(schema: &Value) {
            let Some(object) = schema.as_object() else { return };
            for (key, value) in object {
                assert!(READ.contains(&key.as_str()) || PROSE.contains(&key.as_str()), "{key} in {schema}");
                match key.as_str() {
                    "properties" => value.as_object().unwrap().values().for_each(walk),
                    "items" => walk(value),
                    "anyOf" | "oneOf" => value.as_array().unwrap().iter().for_each(walk),
                    // Nothing but what is known; ids have the only pattern, which is read with them.
                    "additionalProperties" => assert_eq!(value, &json!(false)),
                    "pattern" => assert_eq!(value, "^[A-Za-z0-9_-]+$"),
                    _ => {}
                }
            }
        }
        KINDS.values().for_each(walk);
    }

    #[test]
    fn a_word_that_is_nearly_known_is_found() {
        for (a, b) in [
            ("retrypolicy", "retryPolicy"),
            ("retry_policy", "retryPolicy"),
            ("whn", "when"),
            ("nmae", "name"),
            ("whenn", "when"),
            ("wren", "when"),
        ] {
            assert!(is_near(a, b), "{a} {b}");
        }
        for (a, b) in [("body", "path"), ("", "when"), ("aft", "when")] {
            assert!(!is_near(a, b), "{a} {b}");
        }
    }
}
