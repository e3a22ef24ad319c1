use std::time::Duration;

use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, file_of};

/// Calls that never end hold their slots: as many as the file allows are under way, and more when it allows more.
#[tokio::test(flavor = "multi_thread")]
async fn and_so_does_that_of_a_tier() {
    let mut runs = Runs::prepare(&[]);
    let config = runs.node.config();
    let text = std::fs::read_to_string(&config).expect("the file");
    let tier = "\n[[runner.tier]]\nname = \"small\"\nconcurrency = 3\nreserve_percent = 10\n";
    std::fs::write(&config, text + tier).expect("the file");
    let bounded = |provider: &_, more: &str| file_of("acme", provider).extra(&format!("\n[runner]\n{more}\n"));
    let file = bounded(&runs.provider, "tier = \"small\"\nconcurrency = 1");
    runs.node.rewrite(file);
    runs.up().await;
    runs.provider.always("/plain/slow", Act::SilentAfter);
    let nodes = json!([{ "id": "slow", "type": "http.request", "credential": "conn_plain", "method": "POST",
        "path": "/plain/slow", "body": {}, "timeoutMs": 120_000 }]);
    runs.put("acme", &Runs::automation("acme", "slow", &nodes)).await;
    for _ in 0..6 {
        runs.deliver("acme", &json!({})).await;
    }
    let holds_at = async |runs: &Runs, count: usize| {
        eventually!(runs.provider.count("/plain/slow") == count, "as many as may be");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(runs.provider.count("/plain/slow"), count, "and no more");
    };
    holds_at(&runs, 1).await;
    // Its own bound goes: that of its tier is left.
    let file = bounded(&runs.provider, "tier = \"small\"");
    runs.node.rewrite(file);
    holds_at(&runs, 3).await;
    // And the tier.
    let file = bounded(&runs.provider, "");
    runs.node.rewrite(file);
    holds_at(&runs, 6).await;
    // A tier that is not there leaves the file as it was.
    let file = bounded(&runs.provider, "tier = \"gold\"");
    runs.node.rewrite(file);
    let said = runs.node.cli(&["check"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("\"gold\" is no tier; known here: default, small"), "{said}");
}
