use serde_json::{Value, json};
use tidegate_tests::runs::{Runs, endpoint_of, node};

fn nodes() -> Value {
    json!([
        { "id": "compose", "type": "transform", "value": { "order": "${event.body.order}" } },
        { "id": "charge", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/charge",
          "body": "${steps.compose.output}", "idempotent": true, "effectful": true },
        { "id": "large", "type": "branch", "cases": [{ "case": "yes", "when": "event.body.amount > 100" }] },
        { "id": "tell", "type": "http.request", "credential": "conn_plain", "after": ["large.yes"], "method": "PUT",
          "path": "/named/told", "body": { "charge": "${steps.charge.output.body.id}" } },
        { "id": "log", "type": "http.request", "credential": "conn_plain", "after": ["large.otherwise"], "method": "PUT",
          "path": "/named/log", "body": {} }
    ])
}

/// Webhook in, run, governed calls out, and a history that a person can read.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_loop() {
    let runs = Runs::start(&[]).await;
    let id = runs.put("acme", &Runs::automation("acme", "charge", &nodes())).await;
    let execution = runs.deliver("acme", &json!({ "order": "o-1", "amount": 200 })).await;
    let seen = runs.once("acme", &execution, &["succeeded", "failed"]).await;

    assert_eq!(seen["status"], "succeeded", "{seen:#}");
    assert_eq!((&seen["automation"], &seen["version"]), (&json!(id), &json!(1)));
    assert_eq!(seen["failedAt"], Value::Null);
    assert_eq!(node(&seen, "compose")["output"]["value"], json!({ "order": "o-1" }));
    let charge = node(&seen, "charge");
    assert_eq!((&charge["status"], &charge["provider"]), (&json!("succeeded"), &json!("desk")));
    assert_eq!(charge["output"]["value"]["body"]["id"], "obj_1");
    assert!(charge["durationMs"].is_u64());
    assert_eq!(node(&seen, "large")["chosen"], "yes");
    assert_eq!(node(&seen, "tell")["status"], "succeeded");
    assert_eq!(node(&seen, "log")["status"], "skipped");

    let effects = runs.provider.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert_eq!(effects[0].body, json!({ "order": "o-1" }));
    // The key that the provider was given is the one in the history, and it names run, step and asking.
    let key = effects[0].key.as_deref().expect("a key");
    assert_eq!(charge["attempts"][0]["effectKey"], key);
    assert!(key.starts_with("eff_"));
    assert_eq!(effects[1].body, json!({ "charge": "obj_1" }));
    assert_eq!(effects[1].key, None, "a connector that has no header for it gets none");

    // The same by its other names, and by the command line.
    let run = seen["id"].as_str().expect("a run");
    let event = execution.replacen("ex_", "evt_", 1);
    assert_eq!(runs.execution("acme", run).await["nodes"], seen["nodes"]);
    assert_eq!(runs.execution("acme", &event).await["nodes"], seen["nodes"]);
    let shown = runs.node.cli(&["runs", "show", "--tenant", "acme", &execution]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.contains("charge") && text.contains(key), "{text}");
    assert!(shown.status.success() && !text.contains("What to do"), "{text}");
    // Lists say what an automation is called.
    let listed = runs.ask("acme", "GET", "/executions", None, 200).await;
    assert_eq!(listed["executions"][0]["automationName"], "charge", "{listed}");
    assert_eq!(runs.execution("acme", &execution).await["runs"][0]["automationName"], "charge");
    // What it says is to be done can be pasted: of a run that failed, with the tenant that its command wants.
    let nodes = json!([
        { "id": "say", "type": "transform", "value": "${event.body.missing}" }
    ]);
    runs.put("other", &Runs::automation("other", "faulty", &nodes)).await;
    let faulty = runs.deliver("other", &json!({})).await;
    runs.once("other", &faulty, &["failed"]).await;
    let shown = runs.node.cli(&["runs", "show", "--tenant", "other", &faulty]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("tidegate runs replay --tenant other run_"), "{text}");
    // What a run called is what the way out has recorded, by the id that the history has.
    let correlation = charge["attempts"][0]["correlationId"].as_str().expect("a correlation id");
    let logged = runs.node.cli(&["egress", "log", "--correlation", correlation, "--json"]);
    let logged = String::from_utf8_lossy(&logged.stdout).into_owned();
    assert!(logged.contains(run), "{logged}");
}

/// Every edit is a version, runs end under the one that they began with, and history outlives its automation.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_of_one_version() {
    let runs = Runs::start(&[]).await;
    let with = |text: &str| {
        let nodes = json!([
            { "id": "wait", "type": "delay", "for": "2s" },
            { "id": "say", "type": "transform", "value": text }
        ]);
        Runs::automation("acme", "say", &nodes)
    };
    let id = runs.put("acme", &with("first")).await;
    let first = runs.deliver("acme", &json!({})).await;
    runs.once("acme", &first, &["parked"]).await;
    let saved = runs.ask("acme", "PUT", &format!("/workflows/{id}"), Some(&with("second")), 200).await;
    assert_eq!((&saved["version"], &saved["isUnchanged"]), (&json!(2), &json!(false)));
    let again = runs.ask("acme", "PUT", &format!("/workflows/{id}"), Some(&with("second")), 200).await;
    assert_eq!((&again["version"], &again["isUnchanged"]), (&json!(2), &json!(true)));
    let second = runs.deliver("acme", &json!({})).await;
    let first = runs.once("acme", &first, &["succeeded"]).await;
    let second = runs.once("acme", &second, &["succeeded"]).await;
    assert_eq!((&first["version"], &node(&first, "say")["output"]["value"]), (&json!(1), &json!("first")));
    assert_eq!((&second["version"], &node(&second, "say")["output"]["value"]), (&json!(2), &json!("second")));

    runs.ask("acme", "DELETE", &format!("/workflows/{id}"), None, 204).await;
    let third = runs.deliver("acme", &json!({})).await;
    let gone = runs.execution("acme", &third).await;
    assert_eq!((&gone["status"], &gone["runs"]), (&json!("no-run"), &json!([])));
    let run = first["id"].as_str().expect("a run");
    assert_eq!(runs.execution("acme", run).await["status"], "succeeded");
    assert_eq!(runs.ask("acme", "GET", &format!("/workflows/{id}?version=1"), None, 200).await["isDeleted"], true);
}

/// By hand, and asked twice it is one run; an automation that is wrong is told all that is wrong with it.
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_started_by_hand() {
    let runs = Runs::start(&[]).await;
    let document = json!({ "name": "double", "nodes": [
        { "id": "twice", "type": "transform", "value": "${input.n * 2}" }
    ]});
    let id = runs.put("acme", &document).await;
    let path = format!("/workflows/{id}/runs");
    let started = runs.ask("acme", "POST", &path, Some(&json!({ "input": { "n": 21 } })), 202).await;
    let seen = runs.once("acme", started["runId"].as_str().expect("a run"), &["succeeded"]).await;
    assert_eq!(node(&seen, "twice")["output"]["value"], 42);
    assert_eq!(seen["cause"]["kind"], "manual");
    assert_eq!(seen["cause"]["by"], "token:author");

    let wrong = json!({ "name": "", "trigger": { "endpoint": endpoint_of("acme"), "when": "event.body.(" }, "nodes": [
        { "id": "a", "type": "http.request", "credential": "conn_nobody", "path": "/x" },
        { "id": "a", "type": "transform", "value": "${steps.later.output}" },
        { "id": "c", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/x", "colour": "red" }
    ]});
    let no = runs.ask("acme", "POST", "/workflows", Some(&wrong), 422).await;
    assert_eq!(no["code"], "automation-invalid");
    assert!(no["faults"].as_array().expect("faults").len() >= 4, "{no:#}");
    // An assertion that contradicts what the connector says is refused, with the reason.
    let claim = json!({ "name": "claim", "nodes": [
        { "id": "post", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/x", "idempotent": true }
    ]});
    let no = runs.ask("acme", "POST", "/workflows", Some(&claim), 422).await;
    assert!(no["faults"][0]["path"].as_str().expect("a path").starts_with("nodes[0]"), "{no:#}");
}
