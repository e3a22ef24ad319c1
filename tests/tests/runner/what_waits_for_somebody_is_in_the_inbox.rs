use serde_json::{Value, json};
use tidegate_tests::eventually;
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, endpoint_of};

async fn inbox(runs: &Runs) -> Value {
    runs.ask("acme", "GET", "/inbox", None, 200).await
}

fn of<'i>(inbox: &'i Value, why: &str) -> Option<&'i Value> {
    inbox["groups"].as_array().expect("groups").iter().find(|group| group["why"] == why)
}

/// By why and where; and what ended badly stays until somebody puts it away, who says why.
#[tokio::test(flavor = "multi_thread")]
async fn until_it_is_done_or_put_away() {
    let runs = Runs::start(&[]).await;
    assert_eq!(inbox(&runs).await["groups"], json!([]));
    let call = |name: &str, connection: &str, method: &str, path: &str, deadline: u64| {
        json!({ "name": name, "trigger": { "endpoint": endpoint_of("acme"), "when": format!("event.body.to == '{name}'") },
            "deadlineMs": deadline,
            "nodes": [{ "id": "go", "type": "http.request", "credential": connection, "method": method, "path": path,
                "body": { "order": "o" } }] })
    };
    runs.put("acme", &call("doubtful", "conn_plain", "POST", "/plain/charge", 3_600_000)).await;
    runs.put("acme", &call("dead", "conn_desk", "POST", "/keyed/send", 3_600_000)).await;
    runs.put("acme", &call("lost", "conn_plain", "POST", "/plain/other", 3_000)).await;
    runs.provider.next("/plain/charge", [Act::CutAfter]);
    runs.provider.next("/plain/other", [Act::CutAfter]);
    runs.provider.always("/keyed/send", Act::Unauthorised);
    let doubtful = runs.deliver("acme", &json!({ "to": "doubtful" })).await;
    let dead = runs.deliver("acme", &json!({ "to": "dead" })).await;
    let lost = runs.deliver("acme", &json!({ "to": "lost" })).await;
    runs.once("acme", &doubtful, &["needs-attention"]).await;
    runs.once("acme", &dead, &["needs-attention"]).await;
    // This one finds it dead before it calls, and is found by the connection all the same.
    let later = runs.deliver("acme", &json!({ "to": "dead" })).await;
    runs.once("acme", &later, &["needs-attention"]).await;
    let by = runs.ask("acme", "GET", "/executions?connection=conn_desk", None, 200).await;
    assert_eq!(by["executions"].as_array().map(Vec::len), Some(2), "{by}");
    let ended = runs.once("acme", &lost, &["ended-ambiguous"]).await;
    let run = ended["id"].as_str().expect("a run").to_owned();

    let found = inbox(&runs).await;
    let group = of(&found, "ambiguous").expect("what is in doubt");
    assert_eq!(
        (&group["automationName"], &group["node"], &group["count"]),
        (&json!("doubtful"), &json!("go"), &json!(1))
    );
    let waiting = found["groups"].as_array().expect("groups").iter().filter(|group| group["why"] == "needs-reconnect");
    let waiting: Vec<_> = waiting.map(|group| (group["connection"].clone(), group["count"].as_u64())).collect();
    assert!(waiting.iter().all(|(connection, _)| connection == "conn_desk"), "{found:#}");
    assert_eq!(waiting.iter().filter_map(|(_, count)| *count).sum::<u64>(), 2, "{found:#}");
    assert_eq!(found["connections"][0]["id"], "conn_desk");
    assert_eq!(found["deadLetters"][0]["id"], run.as_str(), "{found:#}");
    let told = runs.node.cli_ok(&["runs", "inbox", "--tenant", "acme"]);
    assert!(told.contains("doubtful") && told.contains("conn_desk") && told.contains(&run), "{told}");
    let others = runs.ask("other", "GET", "/inbox", None, 200).await;
    assert_eq!(
        (&others["groups"], &others["deadLetters"], &others["connections"]),
        (&json!([]), &json!([]), &json!([]))
    );

    // Somebody has looked.
    let path = format!("/executions/{run}/dismiss");
    runs.ask("acme", "POST", &path, Some(&json!({})), 400).await;
    runs.ask("other", "POST", &path, Some(&json!({ "reason": "mine" })), 404).await;
    let doubt = runs.execution("acme", &doubtful).await["id"].as_str().expect("a run").to_owned();
    let no = runs.node.cli(&["runs", "dismiss", "--tenant", "acme", &doubt, "--reason", "not yet"]);
    assert_eq!(no.status.code(), Some(1), "it is not over: {no:?}");
    runs.ask("acme", "POST", &path, Some(&json!({ "reason": "the order was refunded" })), 202).await;
    eventually!(inbox(&runs).await["deadLetters"] == json!([]), "it leaves the inbox");
    let seen = runs.execution("acme", &run).await;
    assert_eq!((&seen["status"], &seen["isDeadLetter"]), (&json!("ended-ambiguous"), &json!(false)), "the run stays");
    assert_eq!(
        (&seen["dismissed"]["by"], &seen["dismissed"]["reason"]),
        (&json!("token:author"), &json!("the order was refunded"))
    );
    let listed = runs.ask("acme", "GET", "/executions?status=ended-ambiguous&automation=lost", None, 200).await;
    assert_eq!(listed["executions"][0]["id"], run.as_str());
    runs.ask("acme", "POST", &path, Some(&json!({ "reason": "again" })), 409).await;
    // It is in the ledger: an index that is made anew says the same.
    runs.node.cli_ok(&["runs", "rebuild"]);
    assert_eq!(inbox(&runs).await["deadLetters"], json!([]));
}
