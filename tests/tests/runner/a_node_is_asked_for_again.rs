use serde_json::{Value, json};
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, node};

/// With an input that somebody has corrected, under a key of its own, and what comes behind it follows.
#[tokio::test(flavor = "multi_thread")]
async fn with_another_input() {
    let runs = Runs::start(&[]).await;
    runs.provider.next("/keyed/send", [Act::Status(422, json!({ "error": { "message": "no such address" } }))]);
    let nodes = json!([
        { "id": "send", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/send",
          "body": { "to": "nobody" } },
        { "id": "log", "type": "http.request", "credential": "conn_plain", "method": "PUT", "path": "/named/log",
          "body": "${steps.send.output.body.id}" }
    ]);
    runs.put("acme", &Runs::automation("acme", "send", &nodes)).await;
    let execution = runs.deliver("acme", &json!({})).await;
    let seen = runs.once("acme", &execution, &["failed"]).await;
    let send = node(&seen, "send");
    assert_eq!((&seen["failedAt"], &send["errorClass"]), (&json!("send"), &json!("invalid-request")), "{seen:#}");
    assert_eq!(send["providerMessage"], "no such address");
    assert!(send["userAction"].as_str().is_some_and(|action| !action.is_empty()));
    assert_eq!(runs.provider.effects().len(), 0);

    let path = format!("/executions/{execution}/nodes/send/rerun");
    let input = json!({ "method": "POST", "path": "/keyed/send", "body": { "to": "somebody" } });
    let no = runs.ask("acme", "POST", &path, Some(&json!({ "input": input })), 409).await;
    assert_eq!(no["code"], "confirmation-needed");
    let said = runs.node.cli(&["runs", "rerun", "--tenant", "acme", "--node", "send", &execution]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.status.code(), Some(1));
    assert!(text.contains("--accept-duplicates") && !text.contains("confirmDuplicates"), "its own option: {text}");
    let body = json!({ "input": input, "confirmDuplicates": true });
    let again = runs.ask("acme", "POST", &path, Some(&body), 202).await;
    assert_eq!(again["logicalAttempt"], 2);
    let seen = runs.once("acme", &execution, &["succeeded"]).await;
    let send = node(&seen, "send");
    let attempts = send["attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 2, "{send:#}");
    assert_ne!(attempts[0]["effectKey"], attempts[1]["effectKey"]);
    assert_eq!((&attempts[1]["attempt"], &attempts[1]["why"]), (&json!("2.1"), &json!("rerun")));
    assert_eq!(send["choices"][0]["by"], "token:author", "{send:#}");
    let effects = runs.provider.effects();
    assert_eq!(effects[0].body, json!({ "to": "somebody" }));
    assert_eq!(effects[0].key.as_deref().map(Value::from), Some(attempts[1]["effectKey"].clone()));
    assert_eq!(node(&seen, "log")["status"], "succeeded");
}
