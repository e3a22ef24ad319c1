use serde_json::{Value, json};
use tidegate_tests::runs::{Runs, node, token};

/// What is too long for the view of a run is there in that of its node, and as it is.
#[tokio::test(flavor = "multi_thread")]
async fn also_where_its_payloads_are_large() {
    let runs = Runs::start(&[("runner.payloads", "bytes_max", "\"256KiB\"")]).await;
    let nodes = json!([{ "id": "put", "type": "http.request", "credential": "conn_plain", "method": "PUT", "path": "/named/it",
        "body": { "text": "${event.body.text}" } }]);
    runs.put("acme", &Runs::automation("acme", "put", &nodes)).await;
    let text = "Meer ".repeat(20_000);
    let execution = runs.deliver("acme", &json!({ "text": text })).await;
    let seen = runs.once("acme", &execution, &["succeeded"]).await;
    let short = &node(&seen, "put")["input"];
    assert_eq!((&short["truncated"], &short["because"]), (&json!(true), &json!("not-shown")), "{short}");

    let run = seen["id"].as_str().expect("a run");
    let path = format!("/executions/{run}/nodes/put");
    let whole = runs.ask("acme", "GET", &path, None, 200).await;
    assert_eq!((&whole["runId"], &whole["runStatus"]), (&json!(run), &json!("succeeded")));
    let input = &whole["node"]["input"];
    assert_eq!((&input["truncated"], &input["bytes"]), (&json!(false), &short["bytes"]));
    assert!(input["value"].to_string().contains(&text), "all of it is there");
    assert_eq!(whole["node"]["attempts"].as_array().map(Vec::len), Some(1));

    // The same as it is kept, for a program and on the command line.
    let (read, _) = token("acme", "read");
    let answer = runs.ask_as(Some(&read), "GET", &format!("{path}?part=input"), None).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(answer.header("tidegate-payload-bytes"), Some(&*short["bytes"].to_string()));
    assert_eq!(serde_json::from_slice::<Value>(&answer.body).expect("JSON"), input["value"]);
    let told = runs.node.cli_ok(&["runs", "show", "--tenant", "acme", run, "--node", "put", "--input"]);
    assert_eq!(told.as_bytes(), &answer.body[..]);
    let told = runs.node.cli_ok(&["runs", "show", "--tenant", "acme", run, "--node", "put"]);
    assert!(told.contains("✓ put  succeeded"), "{told}");
    // What was never there is not there.
    runs.ask("acme", "GET", &format!("/executions/{run}/nodes/none"), None, 404).await;
    runs.ask("other", "GET", &path, None, 404).await;
    runs.ask("other", "GET", &format!("{path}?part=input"), None, 404).await;

    // Of one that is larger than what is kept whole there is the beginning, and it is said.
    let execution = runs.deliver("acme", &json!({ "text": "Meer ".repeat(80_000) })).await;
    let seen = runs.once("acme", &execution, &["succeeded", "failed"]).await;
    let run = seen["id"].as_str().expect("a run");
    let answer = runs.ask_as(Some(&read), "GET", &format!("/executions/{run}/nodes/put?part=input"), None).await;
    assert_eq!((answer.status, answer.header("tidegate-payload-truncated")), (200, Some("too-large")), "{seen:#}");
    assert!(
        answer.body.len() < 300_000 && answer.header("content-type").is_some_and(|it| it.starts_with("text/plain"))
    );
}
