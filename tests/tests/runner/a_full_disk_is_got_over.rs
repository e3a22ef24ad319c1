use serde_json::json;
use skip::skipped;
use tidegate_tests::disk::SmallDisk;
use tidegate_tests::eventually;
use tidegate_tests::runs::Runs;

/// A full disk fails the indexes of ledger and runs, which then take nothing more. With room again they are opened anew,
/// without a restart, and no run is lost and none done twice.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_restart() {
    let disk = match SmallDisk::new(160) {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    let directory = format!("\"{}\"", disk.path().join("runner").display());
    let runs = Runs::start(&[("runner", "directory", &directory)]).await;
    let nodes = json!([
        { "id": "charge", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/charge",
          "body": { "order": "${event.body.order}" }, "retryPolicy": { "maxAttempts": 50, "backoffMs": 100 } }
    ]);
    runs.put("acme", &Runs::automation("acme", "orders", &nodes)).await;
    let mut executions = Vec::new();
    let before = runs.deliver("acme", &json!({ "order": "before" })).await;
    runs.once("acme", &before, &["succeeded"]).await;
    executions.push(before);

    disk.fill();
    let mut number = 0;
    eventually!(
        {
            executions.push(runs.deliver("acme", &json!({ "order": format!("o-{number}") })).await);
            number += 1;
            runs.node.try_readyz().await == Some(503) || runs.node.admin("/readyz").await.body.starts_with(b"degraded")
        },
        "a runner that cannot write says so"
    );
    disk.free();
    let ready = async || runs.node.admin("/readyz").await.body.starts_with(b"ready");
    for _ in 0..2 {
        eventually!(ready().await, "{}", runs.node.output());
        // What is wrong is looked at every few seconds.
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    }
    for execution in &executions {
        runs.once("acme", execution, &["succeeded"]).await;
    }
    let happened = runs.provider.effects_by("/order");
    assert_eq!(happened.len(), executions.len());
    assert!(happened.values().all(|count| *count == 1), "{happened:?}");
}
