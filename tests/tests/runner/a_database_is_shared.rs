use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_tests::eventually;
use tidegate_tests::patience::{PATIENCE, how_many};
use tidegate_tests::postgres::Postgres;
use tidegate_tests::provider::Act;
use tidegate_tests::random::Random;
use tidegate_tests::runs::{Runs, node};

/// Two nodes and what they share. The first takes deliveries and has the only event log; the second has none.
struct Fleet {
    first: Runs,
    second: Runs,
    database: Postgres,
}

/// None where there is no PostgreSQL. Leases are short, so that nobody waits long for what a dead node had.
async fn fleet() -> Option<Fleet> {
    let database = Postgres::start(&[]).await?;
    let settings = database.shared("tidegate");
    let mut settings: Vec<(&str, &str, &str)> =
        settings.iter().map(|(table, key, value)| (*table, *key, value.as_str())).collect();
    settings.extend([("runner", "lease", "\"2s\""), ("logging", "level", "\"warn\"")]);
    let mut first = Runs::prepare(&settings);
    settings.push(("gateway", "enabled", "false"));
    let mut second = first.prepare_beside(&settings);
    // Both make the tables at once.
    tokio::join!(first.up(), second.up());
    Some(Fleet { first, second, database })
}

fn call(id: &str, connection: &str, path: &str) -> Value {
    json!({ "id": id, "type": "http.request", "credential": connection, "method": "POST", "path": path,
        "body": { "order": "${event.body.order}" }, "timeoutMs": 60_000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn automations_runs_and_lists_are_the_same_on_both() {
    let Some(Fleet { first, second, database: _database }) = fleet().await else { return };
    // Put at the one that takes no deliveries, and large enough that what goes in and out stands outside of the ledger.
    let large = "x".repeat(20_000);
    let nodes = json!([
        { "id": "echo", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/echo",
          "body": { "large": large, "order": "${event.body.order}" } },
        { "id": "wait", "type": "delay", "for": "2s" },
        { "id": "say", "type": "transform", "value": "${event.body.order}" }
    ]);
    let id = second.put("acme", &Runs::automation("acme", "orders", &nodes)).await;
    eventually!(
        first.ask("acme", "GET", "/workflows", None, 200).await.to_string().contains(&id),
        "what is put at one node is at the other"
    );
    // The node that admits may have looked a moment ago.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let execution = first.deliver("acme", &json!({ "order": "o-1" })).await;
    for node_of in [&first, &second] {
        let seen = node_of.once("acme", &execution, &["succeeded", "failed"]).await;
        assert_eq!(seen["status"], "succeeded", "{seen:#}");
        assert_eq!(node(&seen, "say")["output"]["value"], "o-1", "{seen:#}");
        let echo = &node(&seen, "echo")["output"];
        assert!(echo["bytes"].as_u64().is_some_and(|bytes| bytes > 20_000), "{echo:#}");
        assert_eq!(node_of.statuses("acme").await, BTreeMap::from([("succeeded".to_owned(), 1)]));
    }
    // Somebody deletes it at one: no event begins it at the other.
    second.ask("acme", "DELETE", &format!("/workflows/{id}"), None, 204).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let execution = first.deliver("acme", &json!({ "order": "o-2" })).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(first.execution("acme", &execution).await["status"], "no-run");
}

/// The node that has the event, its log and the run's lease is gone: the other goes on, with the event that it never had.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_elsewhere_when_its_node_is_gone() {
    let Some(Fleet { mut first, second, database: _database }) = fleet().await else { return };
    let nodes = json!([call("one", "conn_desk", "/keyed/one"), call("two", "conn_desk", "/keyed/two")]);
    first.put("acme", &Runs::automation("acme", "orders", &nodes)).await;
    first.provider.always("/keyed/one", Act::SilentAfter);
    let mut executions = Vec::new();
    for n in 0..5 {
        executions.push(first.deliver("acme", &json!({ "order": format!("o-{n}") })).await);
    }
    eventually!(first.provider.count("/keyed/one") >= 5, "the calls are under way");
    first.node.kill9().await;
    first.provider.always("/keyed/one", Act::Usual);
    for execution in &executions {
        let seen = second.once("acme", execution, &["succeeded", "failed", "needs-attention"]).await;
        assert_eq!(seen["status"], "succeeded", "{seen:#}");
    }
    let effects = second.provider.effects_by("/order");
    assert_eq!(effects.len(), 5);
    assert!(effects.values().all(|count| *count == 2), "each step of each once: {effects:?}");
    let claimed = second.node.metrics().await.sum("tidegate_runner_claimed_total", &[]);
    assert!(claimed >= 5.0, "{claimed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_at_one_node_reaches_a_run_of_the_other() {
    let Some(Fleet { first, second, database: _database }) = fleet().await else { return };
    // A call that is under way at one of them is cancelled at the other.
    first.provider.always("/plain/slow", Act::SilentAfter);
    first.put("acme", &Runs::automation("acme", "slow", &json!([call("slow", "conn_plain", "/plain/slow")]))).await;
    let execution = first.deliver("acme", &json!({ "order": "o-1" })).await;
    eventually!(first.provider.count("/plain/slow") == 1, "the call is under way");
    let began = Instant::now();
    second.ask("acme", "POST", &format!("/executions/{execution}/cancel"), None, 202).await;
    first.once("acme", &execution, &["cancelled"]).await;
    assert!(began.elapsed() < Duration::from_secs(10), "it waited for the provider: {:?}", began.elapsed());

    // A choice.
    first.provider.next("/plain/charge", [Act::CutAfter]);
    first
        .put("other", &Runs::automation("other", "charge", &json!([call("charge", "conn_plain", "/plain/charge")])))
        .await;
    let execution = first.deliver("other", &json!({ "order": "o-2" })).await;
    first.once("other", &execution, &["needs-attention"]).await;
    let choice = json!({ "node": "charge", "choice": "retry-accept-duplicate" });
    second.ask("other", "POST", &format!("/executions/{execution}/resolve"), Some(&choice), 202).await;
    for runs in [&first, &second] {
        runs.once("other", &execution, &["succeeded"]).await;
    }
    assert_eq!(first.provider.effects_by("/order")["o-2"], 2, "as was chosen");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_died_at_one_is_made_anew_at_the_other() {
    let Some(Fleet { first, second, database: _database }) = fleet().await else { return };
    first.provider.always("/keyed/send", Act::Unauthorised);
    first.put("acme", &Runs::automation("acme", "send", &json!([call("send", "conn_desk", "/keyed/send")]))).await;
    let mut executions = Vec::new();
    for n in 0..4 {
        executions.push(first.deliver("acme", &json!({ "order": format!("o-{n}") })).await);
    }
    for execution in &executions {
        first.once("acme", execution, &["needs-attention"]).await;
    }
    let notices = |metrics: tidegate_tests::metrics::Metrics| {
        metrics.sum("tidegate_runner_notices_total", &["kind=\"needs-reconnect\""])
    };
    let told = notices(first.node.metrics().await) + notices(second.node.metrics().await);
    assert!((told - 1.0).abs() < f64::EPSILON, "told once in all of the fleet, and not {told} times");
    first.provider.always("/keyed/send", Act::Usual);
    second.ask("acme", "POST", "/connections/conn_desk/reconnected", None, 200).await;
    for execution in &executions {
        first.once("acme", execution, &["succeeded"]).await;
    }
    assert!(first.provider.effects_by("/order").values().all(|count| *count == 1));
}

/// A database that is not there keeps nobody from delivering, and one that comes back is got over without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_taken_while_the_database_is_down() {
    let Some(mut database) = Postgres::start(&[]).await else { return };
    let settings = database.shared("tidegate");
    database.kill9();
    let settings: Vec<(&str, &str, &str)> =
        settings.iter().map(|(table, key, value)| (*table, *key, value.as_str())).collect();
    let mut runs = Runs::prepare(&settings);
    runs.node.start().await;
    let says = |text: String| text.contains("runner: no runs are performed: the database: ");
    let readyz = async |runs: &Runs| {
        let ready = runs.node.admin("/readyz").await;
        assert_eq!(ready.status, 200);
        String::from_utf8_lossy(&ready.body).into_owned()
    };
    eventually!(says(readyz(&runs).await), "readyz says why");
    database.up().await;
    runs.performs().await;
    let nodes = json!([call("one", "conn_desk", "/keyed/one"), call("two", "conn_plain", "/plain/two")]);
    runs.put("acme", &Runs::automation("acme", "orders", &nodes)).await;

    // It goes away under runs that are under way, and comes back.
    let mut executions = Vec::new();
    for round in 0..3 {
        for n in 0..5 {
            executions.push(runs.deliver("acme", &json!({ "order": format!("o-{round}-{n}") })).await);
        }
        tokio::time::sleep(Duration::from_millis(50 * round)).await;
        database.kill9();
        for n in 5..10 {
            executions.push(runs.deliver("acme", &json!({ "order": format!("o-{round}-{n}") })).await);
        }
        eventually!(readyz(&runs).await.contains("runner: the database does not answer"), "readyz says it");
        database.up().await;
    }
    eventually!(!readyz(&runs).await.contains("runner: the database"), "and says so no more");
    for execution in &executions {
        let seen = runs.once("acme", execution, &["succeeded", "failed", "needs-attention"]).await;
        assert_eq!(seen["status"], "succeeded", "{seen:#}");
        assert_eq!(seen["runs"].as_array().map(Vec::len), Some(1));
    }
    let effects = runs.provider.effects_by("/order");
    assert_eq!(effects.len(), 30);
    assert!(effects.values().all(|count| *count == 2), "each step of each once: {effects:?}");
}

/// Nodes and the database are killed in loops under load, while the provider breaks by chance.
#[tokio::test(flavor = "multi_thread")]
async fn kills_of_nodes_and_of_the_database_repeat_no_completed_effect() {
    let Some(Fleet { mut first, mut second, mut database }) = fleet().await else { return };
    let kills = how_many("TIDEGATE_RUNNER_KILLS", 6);
    let mut random = Random::announced("kills_of_nodes_and_of_the_database");
    let retry = json!({ "maxAttempts": 50, "backoffMs": 100, "maxBackoffMs": 500 });
    let nodes = json!([
        { "id": "keyed", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/charge",
          "body": { "keyed": "${event.body.order}" }, "retryPolicy": retry },
        { "id": "plain", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/charge",
          "body": { "plain": "${event.body.order}" }, "retryPolicy": retry },
        { "id": "last", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/last",
          "body": { "last": "${event.body.order}" }, "retryPolicy": retry }
    ]);
    first.put("acme", &Runs::automation("acme", "orders", &nodes)).await;
    first.provider.chaos(20, random.clone());
    let mut delivered = 0;
    for kill in 0..kills {
        for _ in 0..20 {
            first.deliver("acme", &json!({ "order": format!("o-{delivered}") })).await;
            delivered += 1;
        }
        tokio::time::sleep(Duration::from_millis(random.within(0, 400))).await;
        match kill % 3 {
            0 => {
                first.node.kill9().await;
                tokio::time::sleep(Duration::from_millis(random.within(0, 3_000))).await;
                first.up().await;
            }
            1 => {
                second.node.kill9().await;
                second.up().await;
            }
            _ => {
                database.kill9();
                tokio::time::sleep(Duration::from_millis(random.within(0, 500))).await;
                database.up().await;
            }
        }
    }
    first.provider.calm();
    let deadline = Instant::now() + PATIENCE * 3;
    let statuses = loop {
        let statuses = second.statuses("acme").await;
        let settled: usize =
            ["succeeded", "failed", "needs-attention"].iter().filter_map(|status| statuses.get(*status)).sum();
        if settled == delivered && statuses.values().sum::<usize>() == delivered {
            break statuses;
        }
        assert!(
            Instant::now() < deadline,
            "{statuses:?} of {delivered}\n{}\n{}",
            first.node.output(),
            second.node.output()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    println!("{delivered} runs over {kills} kills: {statuses:?}");
    eventually!(first.statuses("acme").await == statuses, "both nodes say the same");
    let keyed = first.provider.effects_by("/keyed");
    assert_eq!(keyed.len(), delivered, "each order's first step happened");
    assert!(keyed.values().all(|count| *count == 1), "a keyed effect happened twice: {keyed:?}");
    let plain = first.provider.effects_by("/plain");
    assert!(plain.values().all(|count| *count == 1), "an unsafe effect was repeated by itself: {plain:?}");
    let last = first.provider.effects_by("/last");
    assert!(last.values().all(|count| *count == 1), "{last:?}");
    assert_eq!(last.len(), statuses.get("succeeded").copied().unwrap_or_default(), "who succeeded did all of it");
}
