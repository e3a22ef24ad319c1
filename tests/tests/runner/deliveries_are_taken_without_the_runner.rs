use serde_json::json;
use tidegate_tests::runs::Runs;

/// A runner that cannot open its ledger is an alarm: deliveries are taken, the API says what is, and once it can be opened
/// nothing that came meanwhile is missing.
#[tokio::test(flavor = "multi_thread")]
async fn and_become_runs_once_it_is_there() {
    let mut runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": "${event.body.n}" }]);
    runs.put("acme", &Runs::automation("acme", "say", &nodes)).await;
    runs.node.terminate().await;
    let ledger = runs.node.directory.join("runner");
    let aside = runs.node.directory.join("aside");
    std::fs::rename(&ledger, &aside).expect("the directory");
    std::fs::write(&ledger, "in the way").expect("a file");

    runs.node.start().await;
    let mut executions = Vec::new();
    for n in 0..20 {
        executions.push(runs.deliver("acme", &json!({ "n": n })).await);
    }
    let ready = runs.node.admin("/readyz").await;
    let text = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(ready.status == 200 && text.contains("runner: no runs are performed"), "{text}");
    let no = runs.ask("acme", "GET", "/executions", None, 503).await;
    assert_eq!(no["code"], "unavailable");

    std::fs::remove_file(&ledger).expect("the file");
    std::fs::rename(&aside, &ledger).expect("the directory");
    runs.performs().await;
    for execution in &executions {
        let seen = runs.once("acme", execution, &["succeeded"]).await;
        assert_eq!(seen["runs"].as_array().expect("runs").len(), 1);
    }
    let ready = runs.node.admin("/readyz").await;
    assert!(!String::from_utf8_lossy(&ready.body).contains("runner:"));
}

/// Passing a damaged place is for an operator who has seen one: where admission is not halted, nothing is passed.
#[tokio::test(flavor = "multi_thread")]
async fn and_nothing_is_passed_that_is_not_damaged() {
    let runs = Runs::start(&[]).await;
    let no = runs.node.cli(&["runs", "pass-damage", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&no.stdout).expect("JSON");
    assert_eq!((no.status.code(), &told["code"]), (Some(1), &json!("state-conflict")), "{told}");
}

/// Events that came while the role was off begin their runs when it is on, and no run begins twice however often it starts.
#[tokio::test(flavor = "multi_thread")]
async fn and_a_restart_admits_none_twice() {
    let mut runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "note", "type": "http.request", "credential": "conn_plain", "method": "PUT", "path": "/named/note",
        "body": { "n": "${event.body.n}" } }]);
    runs.put("acme", &Runs::automation("acme", "note", &nodes)).await;
    for start in 0..4 {
        for n in 0..10 {
            runs.deliver("acme", &json!({ "n": start * 10 + n })).await;
        }
        runs.node.kill9().await;
        runs.up().await;
    }
    tidegate_tests::eventually!(runs.statuses("acme").await.get("succeeded") == Some(&40), "all are done");
    let statuses = runs.statuses("acme").await;
    assert_eq!(statuses.len(), 1, "{statuses:?}");
}
