use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_tests::patience::{PATIENCE, how_many};
use tidegate_tests::random::Random;
use tidegate_tests::runs::Runs;

/// The built binary, killed in loops under load, while the provider breaks by chance: what is keyed happens once for each
/// key, what is unsafe happens at most once unless somebody chose otherwise, and every run ends or waits for somebody.
#[tokio::test(flavor = "multi_thread")]
async fn however_often_the_node_is_killed() {
    let kills = how_many("TIDEGATE_RUNNER_KILLS", 6);
    let mut random = Random::announced("kills_repeat_no_completed_effect");
    let mut runs = Runs::start(&[("logging", "level", "\"error\"")]).await;
    let retry = json!({ "maxAttempts": 50, "backoffMs": 100, "maxBackoffMs": 500 });
    let nodes = json!([
        { "id": "keyed", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/charge",
          "body": { "keyed": "${event.body.order}" }, "retryPolicy": retry },
        { "id": "plain", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/charge",
          "body": { "plain": "${event.body.order}" }, "retryPolicy": retry },
        { "id": "last", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/last",
          "body": { "last": "${event.body.order}" }, "retryPolicy": retry }
    ]);
    runs.put("acme", &Runs::automation("acme", "orders", &nodes)).await;
    runs.provider.chaos(20, random.clone());

    let mut delivered = 0;
    for _ in 0..kills {
        for _ in 0..25 {
            runs.deliver("acme", &json!({ "order": format!("o-{delivered}") })).await;
            delivered += 1;
        }
        tokio::time::sleep(Duration::from_millis(random.within(0, 400))).await;
        runs.node.kill9().await;
        runs.up().await;
    }
    runs.provider.calm();

    // Every run ends, or waits for somebody.
    let deadline = Instant::now() + PATIENCE * 2;
    let statuses = loop {
        let statuses = runs.statuses("acme").await;
        let settled: usize =
            ["succeeded", "failed", "needs-attention"].iter().filter_map(|status| statuses.get(*status)).sum();
        if settled == delivered && statuses.values().sum::<usize>() == delivered {
            break statuses;
        }
        assert!(Instant::now() < deadline, "{statuses:?} of {delivered}\n{}", runs.node.output());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    println!("{delivered} runs over {kills} kills: {statuses:?}");

    let keyed = runs.provider.effects_by("/keyed");
    assert_eq!(keyed.len(), delivered, "each order's first step happened");
    assert!(keyed.values().all(|count| *count == 1), "a keyed effect happened twice: {:?}", twice(&keyed));
    let plain = runs.provider.effects_by("/plain");
    assert!(plain.values().all(|count| *count == 1), "an unsafe effect was repeated by itself: {:?}", twice(&plain));
    let last = runs.provider.effects_by("/last");
    assert!(last.values().all(|count| *count == 1), "{:?}", twice(&last));
    assert_eq!(last.len(), statuses.get("succeeded").copied().unwrap_or_default(), "who succeeded did all of it");
    // One run for each event: the ledger refused every other.
    assert_eq!(statuses.values().sum::<usize>(), delivered);
}

fn twice(counted: &BTreeMap<String, usize>) -> Vec<(&String, &usize)> {
    counted.iter().filter(|(_, count)| **count != 1).collect()
}
