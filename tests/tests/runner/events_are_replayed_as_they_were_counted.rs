use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::runs::{Runs, endpoint_of};

#[tokio::test(flavor = "multi_thread")]
async fn and_only_by_whom_accepts_duplicates() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "note", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/note",
        "body": { "n": "${event.body.n}" } }]);
    let id = runs.put("acme", &Runs::automation("acme", "note", &nodes)).await;
    let mut executions = Vec::new();
    for n in 0..5 {
        executions.push(runs.deliver("acme", &json!({ "n": n })).await);
    }
    for execution in &executions {
        runs.once("acme", execution, &["succeeded"]).await;
    }
    // By its name as by its id.
    let by = |automation: &str| json!({ "automation": automation, "endpoint": endpoint_of("acme"), "to": "2100-01-01T00:00:00Z" });
    let no = runs.ask("acme", "POST", "/replays/plan", Some(&by("notes")), 400).await;
    assert_eq!(no["faults"][0]["path"], "automation", "{no}");
    let named = runs.ask("acme", "POST", "/replays/plan", Some(&by("note")), 200).await;
    assert_eq!(named["runs"], 5, "{named}");
    let what = json!({ "automation": id, "endpoint": endpoint_of("acme") });
    let plan = runs.ask("acme", "POST", "/replays/plan", Some(&what), 200).await;
    assert_eq!((&plan["events"], &plan["runs"], &plan["mayDuplicate"]), (&json!(5), &json!(5), &json!(5)), "{plan}");
    assert_eq!(runs.provider.effects().len(), 5, "counting does nothing");
    let start = json!({ "plan": plan["plan"] });
    let no = runs.ask("acme", "POST", "/replays", Some(&start), 409).await;
    assert_eq!(no["code"], "confirmation-needed", "{no}");
    // Another tenant's plan is none.
    let start = json!({ "plan": plan["plan"], "confirmDuplicates": true });
    runs.ask("other", "POST", "/replays", Some(&start), 404).await;
    let begun = runs.ask("acme", "POST", "/replays", Some(&start), 202).await;
    assert_eq!(begun["runs"], 5);
    eventually!(runs.provider.effects().len() == 10, "they are done again");
    // Under keys of their own.
    let keys: std::collections::BTreeSet<_> = runs.provider.effects().into_iter().map(|effect| effect.key).collect();
    assert_eq!(keys.len(), 10);
    assert_eq!((&begun["replay"], &begun["isNew"]), (&plan["replay"], &json!(true)), "it has the plan's name");
    // The same plan again adds nothing, and says so.
    let again = runs.ask("acme", "POST", "/replays", Some(&start), 202).await;
    assert_eq!((&again["replay"], &again["isNew"]), (&begun["replay"], &json!(false)));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(runs.provider.effects().len(), 10);
    let name = begun["replay"].as_str().expect("a name").to_owned();
    let show = async || runs.ask("acme", "GET", &format!("/replays/{name}"), None, 200).await;
    eventually!(show().await["succeeded"] == 5, "how far it is");
    let seen = show().await;
    assert_eq!((&seen["state"], &seen["planned"], &seen["admitted"]), (&json!("done"), &json!(5), &json!(5)), "{seen}");
    assert_eq!((&seen["begun"], &seen["over"], &seen["failed"]), (&json!(5), &json!(5), &json!(0)), "{seen}");
    let listed = runs.ask("acme", "GET", "/replays", None, 200).await;
    assert_eq!(listed["replays"][0]["replay"], name.as_str(), "{listed}");
    assert_eq!(runs.ask("other", "GET", "/replays", None, 200).await["replays"], json!([]));
    runs.ask("other", "GET", &format!("/replays/{name}"), None, 404).await;
    runs.ask("other", "POST", &format!("/replays/{name}/stop"), None, 404).await;
    let no = runs.ask("acme", "POST", &format!("/replays/{name}/stop"), None, 409).await;
    assert_eq!(no["code"], "state-conflict", "it is over: {no}");
    let of = runs.ask("acme", "GET", &format!("/executions?replay={name}"), None, 200).await;
    assert_eq!(of["executions"].as_array().map(Vec::len), Some(5));
    let of = runs.ask("acme", "GET", &format!("/executions?event={}", executions[1]), None, 200).await;
    assert_eq!(of["executions"].as_array().map(Vec::len), Some(2));
    let told = runs.node.cli_ok(&["runs", "replays", "show", "--tenant", "acme", &name]);
    assert!(told.contains("succeeded"), "{told}");
    let told = runs.node.cli_ok(&["runs", "list", "--tenant", "acme", "--automation", "note", "--replay", &name]);
    assert_eq!(told.lines().filter(|line| line.starts_with("run_")).count(), 5, "{told}");

    // One run, by itself.
    let path = format!("/executions/{}/replay", executions[0]);
    let no = runs.ask("acme", "POST", &path, Some(&json!({ "confirmDuplicates": true })), 409).await;
    assert_eq!(no["code"], "state-conflict", "its event has two runs by now: {no}");
    let first = runs.execution("acme", &executions[0]).await;
    let run = first["runs"][0]["id"].as_str().expect("a run").to_owned();
    let path = format!("/executions/{run}/replay");
    let replayed = runs.ask("acme", "POST", &path, Some(&json!({ "confirmDuplicates": true })), 202).await;
    let seen = runs.once("acme", replayed["runIds"][0].as_str().expect("a run"), &["succeeded"]).await;
    assert_eq!(seen["cause"]["kind"], "replay");
    assert_eq!(runs.provider.effects().len(), 11);

    // Another name is another replay.
    let another = json!({ "plan": plan["plan"], "confirmDuplicates": true, "name": "once-more" });
    let begun = runs.ask("acme", "POST", "/replays", Some(&another), 202).await;
    assert_eq!((&begun["replay"], &begun["isNew"]), (&json!("once-more"), &json!(true)));
    eventually!(runs.provider.effects().len() == 16, "they are done once more");
}

/// A run by hand has no event; its replay is a replay all the same, with the input that it had.
#[tokio::test(flavor = "multi_thread")]
async fn and_so_is_a_run_that_somebody_had_started() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "note", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/note",
        "body": { "n": "${input.n}" } }]);
    let id = runs.put("acme", &Runs::automation("acme", "note", &nodes)).await;
    let path = format!("/workflows/{id}/runs");
    let (operate, _) = tidegate_tests::runs::token("acme", "operate");
    let start = async |n: u64| {
        let request = tidegate_tests::sender::Request::new("POST", &path)
            .header("Host", &runs.api.to_string())
            .header("Authorization", &format!("Bearer {operate}"))
            .header("Idempotency-Key", "order-7")
            .header("Content-Type", "application/json")
            .body(json!({ "input": { "n": n } }).to_string());
        tidegate_tests::sender::Connection::open(runs.api).await.exchange(&request).await
    };
    let first = start(7).await.json();
    let run = first["runId"].as_str().expect("a run").to_owned();
    runs.once("acme", &run, &["succeeded"]).await;
    // The same key asks for the same run, and with another input for none.
    assert_eq!(start(7).await.json(), json!({ "runId": run, "isNew": false }));
    let no = start(8).await;
    assert_eq!((no.status, no.json()["code"].as_str()), (409, Some("idempotency-conflict")));
    assert_eq!(runs.provider.effects().len(), 1);

    let no = runs.node.cli(&["runs", "replay", "--tenant", "acme", &run]);
    assert_eq!(no.status.code(), Some(1), "it was not confirmed: {no:?}");
    let told = runs.node.cli_ok(&["runs", "replay", "--tenant", "acme", &run, "--accept-duplicates", "--json"]);
    let replayed: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let seen = runs.once("acme", replayed["runIds"][0].as_str().expect("a run"), &["succeeded"]).await;
    assert_eq!((&seen["cause"]["kind"], &seen["cause"]["of"]), (&json!("replay"), &json!(run)), "{seen:#}");
    assert_eq!(runs.provider.effects_by("/n")["7"], 2);
    let listed = runs.ask("acme", "GET", "/executions?cause=replay", None, 200).await;
    assert_eq!(listed["executions"][0]["id"], seen["id"]);
    let listed = runs.ask("acme", "GET", "/executions?cause=manual", None, 200).await;
    assert_eq!(listed["executions"][0]["id"], run.as_str());
}
