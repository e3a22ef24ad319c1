use serde_json::{Value, json};
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, node};

async fn ambiguous(runs: &Runs, order: &str) -> (String, Value) {
    let execution = runs.deliver("acme", &json!({ "order": order })).await;
    let seen = runs.once("acme", &execution, &["needs-attention", "succeeded", "failed"]).await;
    assert_eq!(seen["status"], "needs-attention", "{seen:#}");
    (execution, seen)
}

/// Nobody knows, so nobody does it again by itself; somebody looks, chooses one of two, and the history has who.
#[tokio::test(flavor = "multi_thread")]
async fn and_is_never_repeated_by_itself() {
    let mut runs = Runs::start(&[]).await;
    let nodes = json!([
        { "id": "charge", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/charge",
          "body": { "order": "${event.body.order}" } },
        { "id": "tell", "type": "http.request", "credential": "conn_plain", "method": "PUT", "path": "/named/told",
          "body": "${event.body.order}" }
    ]);
    runs.put("acme", &Runs::automation("acme", "charge", &nodes)).await;
    runs.provider.next("/plain/charge", [Act::CutAfter, Act::CutAfter]);
    let (first, seen) = ambiguous(&runs, "o-1").await;
    let (second, _) = ambiguous(&runs, "o-2").await;
    let charge = node(&seen, "charge");
    assert_eq!(charge["parked"]["reason"], "ambiguous", "{charge:#}");
    assert_eq!(charge["attempts"][0]["sendState"], "sent-no-response", "{charge:#}");
    let next = seen["next"].to_string();
    assert!(next.contains("continue-accept-gap") && next.contains("retry-accept-duplicate"), "{next}");
    assert_eq!(runs.provider.count("/plain/charge"), 2);

    // A restart makes nobody wiser.
    runs.node.terminate().await;
    runs.up().await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(runs.provider.count("/plain/charge"), 2, "it was repeated");

    let resolve = |execution: &str, choice: &str| {
        (format!("/executions/{execution}/resolve"), json!({ "node": "charge", "choice": choice }))
    };
    let (path, body) = resolve(&first, "continue-accept-gap");
    runs.ask("acme", "POST", &path, Some(&body), 202).await;
    let seen = runs.once("acme", &first, &["succeeded"]).await;
    assert_eq!(node(&seen, "charge")["choices"][0]["choice"], "continue-accept-gap", "{seen:#}");
    assert_eq!(node(&seen, "charge")["choices"][0]["by"], "token:author");
    let (path, body) = resolve(&second, "retry-accept-duplicate");
    runs.ask("acme", "POST", &path, Some(&body), 202).await;
    runs.once("acme", &second, &["succeeded"]).await;
    let counted = runs.provider.effects_by("/order");
    assert_eq!((counted["o-1"], counted["o-2"]), (1, 2), "the one that was chosen to be done again, and no other");
    // There is nothing to choose any more.
    runs.ask("acme", "POST", &path, Some(&body), 409).await;
}

/// Where a provider takes keys, it is asked again under the same one, and does it once.
#[tokio::test(flavor = "multi_thread")]
async fn and_one_that_has_a_key_is_asked_again_under_it() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "charge", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/charge",
        "body": { "order": "${event.body.order}" }, "retryPolicy": { "maxAttempts": 5, "backoffMs": 100 } }]);
    runs.put("acme", &Runs::automation("acme", "charge", &nodes)).await;
    runs.provider.next("/keyed/charge", [Act::CutAfter, Act::CutBefore, Act::Status(503, Value::Null)]);
    let execution = runs.deliver("acme", &json!({ "order": "o-1" })).await;
    let seen = runs.once("acme", &execution, &["succeeded", "failed", "needs-attention"]).await;
    assert_eq!(seen["status"], "succeeded", "{seen:#}");
    let attempts = node(&seen, "charge")["attempts"].as_array().expect("attempts").clone();
    assert_eq!(attempts.len(), 4, "{attempts:#?}");
    assert!(attempts.iter().all(|attempt| attempt["effectKey"] == attempts[0]["effectKey"]), "{attempts:#?}");
    assert_eq!(runs.provider.effects().len(), 1);
}

/// A throttle is no try, and waits as long as the provider says.
#[tokio::test(flavor = "multi_thread")]
async fn and_a_throttle_spends_no_try() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "charge", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/charge",
        "body": { "order": "o-1" }, "retryPolicy": { "maxAttempts": 1 } }]);
    runs.put("acme", &Runs::automation("acme", "charge", &nodes)).await;
    runs.provider.next("/plain/charge", [Act::Throttle(1), Act::Throttle(1)]);
    let execution = runs.deliver("acme", &json!({})).await;
    let seen = runs.once("acme", &execution, &["succeeded", "failed", "needs-attention"]).await;
    assert_eq!(seen["status"], "succeeded", "{seen:#}");
    assert_eq!(runs.provider.effects().len(), 1);
}
