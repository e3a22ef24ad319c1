//! The document, held against what is answered.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use super::super::{ApiAnswer, OPENAPI};

/// The document, with its references where validators look for them.
pub(super) fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

pub(super) fn validator(document: &Value, schema: &Value) -> jsonschema::Validator {
    let mut whole = json!({ "components": document["components"] });
    for (key, value) in schema.as_object().unwrap() {
        whole[key] = value.clone();
    }
    jsonschema::draft202012::new(&whole).unwrap()
}

pub(super) fn read(answer: &ApiAnswer) -> Value {
    if answer.body.is_empty() { Value::Null } else { serde_json::from_slice(&answer.body).unwrap() }
}

/// The schema of an answer; none of one without a body.
#[track_caller]
fn schema<'d>(document: &'d Value, pattern: &str, method: &Method, answer: &ApiAnswer) -> Option<&'d Value> {
    let operation = &document["paths"][pattern][method.as_str().to_ascii_lowercase()];
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{method} {pattern}: {} is not in the document", answer.status);
    for name in response["headers"].as_object().into_iter().flat_map(serde_json::Map::keys) {
        let is_of_payload = name.starts_with("Tidegate-Payload-");
        assert!(is_of_payload || answer.headers.iter().any(|(own, _)| own == name), "{method} {pattern}: no {name}");
    }
    let Some(media) = answer.content_type else {
        assert!(response.get("content").is_none());
        return None;
    };
    let schema = &response["content"][media]["schema"];
    assert!(schema.is_object(), "{method} {pattern} {}: {media} is not in the document", answer.status);
    // Beside the node stands a payload, which can be anything.
    if pattern == "/executions/{id}/nodes/{node}" && answer.status == 200 {
        return Some(&schema["anyOf"][0]);
    }
    Some(schema)
}

#[track_caller]
pub(super) fn fits(document: &Value, pattern: &str, method: &Method, answer: &ApiAnswer) {
    let Some(schema) = schema(document, pattern, method, answer) else { return };
    let validator = validator(document, schema);
    let faults: Vec<_> = validator.iter_errors(&read(answer)).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{method} {pattern} {}: {faults:?}\n{}", answer.status, read(answer));
}

/// Which fields of which schema were answered, over many answers.
#[derive(Debug, Default)]
pub(super) struct Answered(BTreeMap<String, BTreeSet<String>>);

impl Answered {
    pub(super) fn take(&mut self, document: &Value, pattern: &str, method: &Method, answer: &ApiAnswer) {
        if let Some(schema) = schema(document, pattern, method, answer) {
            self.walk(document, "", schema, &read(answer));
        }
    }

    fn walk(&mut self, document: &Value, name: &str, schema: &Value, value: &Value) {
        if let Some(to) = schema["$ref"].as_str() {
            let to = to.rsplit('/').next().unwrap();
            return self.walk(document, to, &document["components"]["schemas"][to], value);
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for one in schema[key].as_array().into_iter().flatten() {
                if key == "allOf" || validator(document, one).is_valid(value) {
                    self.walk(document, name, one, value);
                }
            }
        }
        for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(found) = value.get(key) {
                self.0.entry(name.to_owned()).or_default().insert(key.clone());
                self.walk(document, "", inner, found);
            }
        }
        for item in value.as_array().into_iter().flatten().filter(|_| schema["items"].is_object()) {
            self.walk(document, name, &schema["items"], item);
        }
    }

    /// Fields of schemas that were answered at all, and that no answer had.
    pub(super) fn missing(&self, document: &Value) -> Vec<String> {
        let fields = |name: &String| document["components"]["schemas"][name]["properties"].as_object();
        let of = |(name, had): (&String, &BTreeSet<String>)| {
            let keys = fields(name).into_iter().flat_map(serde_json::Map::keys);
            keys.filter(|key| !had.contains(*key)).map(|key| format!("{name}.{key}")).collect::<Vec<_>>()
        };
        self.0.iter().filter(|(name, _)| !name.is_empty()).flat_map(of).collect()
    }

    pub(super) fn schemas(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).filter(|name| !name.is_empty()).collect()
    }
}

/// Schemas that answers of success are made of.
pub(super) fn answered_schemas(document: &Value) -> BTreeSet<String> {
    fn gather(document: &Value, value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    if let ("$ref", Some(to)) = (key.as_str(), inner.as_str()) {
                        let to = to.rsplit('/').next().unwrap();
                        if into.insert(to.to_owned()) {
                            gather(document, &document["components"]["schemas"][to], into);
                        }
                    }
                    gather(document, inner, into);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| gather(document, item, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    for operations in document["paths"].as_object().unwrap().values() {
        for operation in operations.as_object().unwrap().values() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                if status.starts_with('2') {
                    gather(document, response, &mut found);
                }
            }
        }
    }
    found
}
