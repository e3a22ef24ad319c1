use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, node};

/// The first run finds out, later ones ask no provider; once it is connected anew, all of them go on by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn and_goes_on_when_it_is_connected_anew() {
    let runs = Runs::start(&[]).await;
    runs.provider.always("/keyed/send", Act::Unauthorised);
    let nodes = json!([{ "id": "send", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/send",
        "body": { "order": "${event.body.order}" } }]);
    runs.put("acme", &Runs::automation("acme", "send", &nodes)).await;
    let first = runs.deliver("acme", &json!({ "order": "o-1" })).await;
    let seen = runs.once("acme", &first, &["needs-attention"]).await;
    assert_eq!(node(&seen, "send")["parked"]["reason"], "needs-reconnect", "{seen:#}");
    let asked = runs.provider.count("/keyed/send");

    let second = runs.deliver("acme", &json!({ "order": "o-2" })).await;
    runs.once("acme", &second, &["needs-attention"]).await;
    assert_eq!(runs.provider.count("/keyed/send"), asked, "a dead connection is not called again");
    let connections = runs.ask("acme", "GET", "/connections", None, 200).await;
    let desk =
        connections["connections"].as_array().expect("a list").iter().find(|one| one["id"] == "conn_desk").cloned();
    let desk = desk.expect("the connection");
    assert_eq!(desk["state"], "needs_reconnect");
    assert!(desk["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    let told = runs.node.cli_ok(&["runs", "show", "--tenant", "acme", &first]);
    assert!(told.contains("\n    tidegate runs reconnected --tenant acme conn_desk\n"), "{told}");
    let notices = runs.node.metrics().await.sum("tidegate_runner_notices_total", &["kind=\"needs-reconnect\""]);
    assert!((notices - 1.0).abs() < f64::EPSILON, "told once, and not {notices} times");

    runs.provider.always("/keyed/send", Act::Usual);
    // An operator says it as the tenant's own console would.
    let listed = runs.node.cli_ok(&["runs", "connections", "--tenant", "acme"]);
    assert!(listed.lines().any(|line| line.starts_with("conn_desk") && line.contains("needs_reconnect")), "{listed}");
    let answer = runs.node.cli_ok(&["runs", "reconnected", "--tenant", "acme", "conn_desk", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["runsReleased"], 2, "{answer}");
    runs.once("acme", &first, &["succeeded"]).await;
    runs.once("acme", &second, &["succeeded"]).await;
    let counted = runs.provider.effects_by("/order");
    assert_eq!(counted.values().collect::<Vec<_>>(), [&1, &1], "{counted:?}");
    let connections = runs.ask("acme", "GET", "/connections", None, 200).await;
    assert!(connections["connections"].as_array().expect("a list").iter().all(|one| one["state"] == "connected"));
    // Another tenant's is none, and neither is one that is nobody's.
    runs.ask("acme", "POST", "/connections/conn_nobody/reconnected", None, 404).await;
    assert_eq!(runs.node.cli(&["runs", "reconnected", "--tenant", "acme", "conn_nobody"]).status.code(), Some(1));
    eventually!(runs.statuses("acme").await.get("succeeded") == Some(&2), "lists say so too");
}
