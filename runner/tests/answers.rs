//! What answers of the shipped connectors' providers mean: `answers/CONNECTOR.json`, each row an answer as a provider gives
//! it, the class that it has, and a part of the message that is kept.
//!
//! A row: `status`; `headers`; `json`, or `text` as it is; `class`, or `done`; `message`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use config::connector::{Catalogue, Manifest};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use tidegate_runner::connector::{Action, HttpRequest, ManifestAction, Verdict};
use tidegate_runner::failure::FailureClass;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    json: Option<Value>,
    text: Option<String>,
    class: String,
    message: Option<String>,
}

impl Row {
    fn headers(&self) -> HeaderMap {
        let each = self.headers.iter();
        each.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())).collect()
    }

    fn body(&self) -> Bytes {
        let json = self.json.as_ref().map(Value::to_string);
        json.or_else(|| self.text.clone()).unwrap_or_default().into()
    }
}

fn rows(connector: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/answers/{connector}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

fn all() -> Vec<(Arc<Manifest>, Vec<Row>)> {
    let catalogue = Catalogue::shipped().unwrap();
    catalogue.manifests().map(|manifest| (Arc::clone(manifest), rows(manifest.connector.as_str()))).collect()
}

#[test]
fn every_answer_means_what_its_row_says() {
    let (mut wrong, mut seen, mut unclassified) = (Vec::new(), 0_u32, 0_u32);
    for (manifest, rows) in all() {
        let http = HttpRequest::new(Arc::clone(&manifest));
        for (index, row) in rows.iter().enumerate() {
            seen += 1;
            let verdict = http.judge(row.status, &row.headers(), &row.body());
            let (class, message) = match &verdict {
                Verdict::Done(_) => ("done", None),
                Verdict::Failed { class, message } => (class.code(), message.as_deref()),
            };
            unclassified += u32::from(class == FailureClass::Unclassified.code());
            let is_said =
                row.message.as_deref().is_none_or(|part| message.is_some_and(|message| message.contains(part)));
            if class != row.class || !is_said {
                wrong.push(format!(
                    "{} row {index}: {class} {message:?}, not {} {:?}",
                    manifest.connector, row.class, row.message
                ));
            }
            if let Some(message) = message {
                assert!(message.len() <= 1024 && !message.chars().any(char::is_control), "{message}");
                assert!(!message.contains("sk_live_51") && !message.contains("sk-proj-"), "{message}");
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen >= 150, "{seen}");
    assert!(unclassified * 50 <= seen, "{unclassified} of {seen} have no class: more than 2 %");
}

/// An action of a connector judges as `http.request` through the same connection does.
#[test]
fn actions_judge_as_their_connector_does() {
    for (manifest, rows) in all() {
        let Some(spec) = manifest.actions.first() else { continue };
        let action = ManifestAction::new(&manifest, &spec.name).unwrap().unwrap();
        for row in &rows {
            match action.judge(row.status, &row.headers(), &row.body()) {
                Verdict::Done(_) => assert_eq!(row.class, "done", "{action:?} {row:?}"),
                Verdict::Failed { class, .. } => assert_eq!(class.code(), row.class, "{action:?} {row:?}"),
            }
        }
    }
}

#[test]
fn every_connector_has_its_dead_credential_and_its_invalid_request() {
    for (manifest, rows) in all() {
        let name = manifest.connector.as_str();
        assert!(rows.len() >= 4, "{name}");
        let of = |class: FailureClass| rows.iter().filter(|row| row.class == class.code()).count();
        assert!(of(FailureClass::AuthenticationExpired) >= 1, "{name}");
        assert!(of(FailureClass::InvalidRequest) >= 1, "{name}");
        assert!(of(FailureClass::ProviderUnavailable) >= 1, "{name}");
        assert!(rows.iter().any(|row| row.class == "done"), "{name}");
        // A provider that could not do it now never makes a credential dead, nor the other way round.
        for row in &rows {
            assert!(row.status < 500 || row.class != FailureClass::AuthenticationExpired.code(), "{name}: {row:?}");
        }
    }
}
