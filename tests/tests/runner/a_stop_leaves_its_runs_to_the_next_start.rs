use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, node};

/// Calls under way are taken to their end, nothing new is begun, and nobody is asked about anything when the node is back.
#[tokio::test(flavor = "multi_thread")]
async fn with_what_they_have_done() {
    const RUNS: usize = 5;
    let mut runs = Runs::start(&[]).await;
    runs.provider.always("/plain/slow", Act::After(Duration::from_secs(2)));
    let call = |id: &str, after: &[&str]| {
        json!({ "id": id, "type": "http.request", "credential": "conn_plain", "method": "POST", "path": format!("/plain/{id}"),
                "body": {}, "after": after })
    };
    let nodes = json!([call("slow", &[]), call("next", &["slow"]), call("last", &["next"])]);
    runs.put("acme", &Runs::automation("acme", "slow", &nodes)).await;
    let mut executions = Vec::new();
    for _ in 0..RUNS {
        executions.push(runs.deliver("acme", &json!({})).await);
    }
    eventually!(runs.provider.count("/plain/slow") == RUNS, "the calls are under way");
    let began = Instant::now();
    runs.node.terminate().await;
    assert!(began.elapsed() < Duration::from_secs(10), "it waits for calls and not for its time to be up");
    assert_eq!(runs.provider.count("/plain/next"), 0, "nothing new is begun");

    let back = Instant::now();
    runs.up().await;
    for execution in &executions {
        let seen = runs.once("acme", execution, &["succeeded", "needs-attention", "failed"]).await;
        assert_eq!(seen["status"], "succeeded", "{seen:#}");
        let attempts = node(&seen, "slow")["attempts"].as_array().expect("attempts").clone();
        assert_eq!(attempts.len(), 1, "{attempts:#?}");
    }
    assert!(back.elapsed() < Duration::from_secs(15), "they go on at once");
    for path in ["/plain/slow", "/plain/next", "/plain/last"] {
        assert_eq!(runs.provider.count(path), RUNS, "{path}");
    }
}
