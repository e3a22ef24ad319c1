use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, node};

#[tokio::test(flavor = "multi_thread")]
async fn and_the_history_says_that_it_may_have_happened() {
    let runs = Runs::start(&[]).await;
    runs.provider.always("/plain/slow", Act::SilentAfter);
    let nodes = json!([
        { "id": "slow", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/slow",
          "body": {}, "timeoutMs": 60_000 },
        { "id": "after", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/after", "body": {} }
    ]);
    runs.put("acme", &Runs::automation("acme", "slow", &nodes)).await;
    let execution = runs.deliver("acme", &json!({})).await;
    eventually!(runs.provider.count("/plain/slow") == 1, "the call is under way");

    let began = Instant::now();
    runs.ask("acme", "POST", &format!("/executions/{execution}/cancel"), None, 202).await;
    let seen = runs.once("acme", &execution, &["cancelled"]).await;
    assert!(began.elapsed() < Duration::from_secs(5), "it did not wait for the provider");
    // Nobody knows whether it has happened, and the history does not say otherwise.
    let slow = node(&seen, "slow");
    assert_ne!(slow["status"], "succeeded", "{slow:#}");
    let text = slow.to_string();
    assert!(text.contains("ambiguous") || text.contains("sent-no-response"), "{slow:#}");
    assert_eq!(runs.provider.count("/plain/after"), 0, "nothing follows");
    assert_eq!(seen["cancelRequested"]["by"], "token:author");
    // Once is enough.
    let no = runs.ask("acme", "POST", &format!("/executions/{execution}/cancel"), None, 409).await;
    assert_eq!(no["code"], "state-conflict");
}
