use serde_json::json;
use tidegate_tests::provider::Act;
use tidegate_tests::runs::{Runs, node};

#[tokio::test(flavor = "multi_thread")]
async fn also_while_an_effect_is_ambiguous() {
    let runs = Runs::start(&[]).await;
    let with = |name: &str, nodes: &serde_json::Value| {
        let mut document = Runs::automation("acme", name, nodes);
        document["deadlineMs"] = 3_000.into();
        document
    };
    // Longer than the deadline, which nobody can tell beforehand.
    let slow = json!([{ "id": "wait", "type": "delay", "until": "${event.body.until}" }]);
    runs.put("acme", &with("slow", &slow)).await;
    let first = runs.deliver("acme", &json!({ "until": "2999-01-01T00:00:00Z" })).await;
    let seen = runs.once("acme", &first, &["timed-out"]).await;
    assert_eq!(seen["errorClass"], "deadline-exceeded", "{seen:#}");

    runs.provider.always("/plain/cut", Act::CutAfter);
    let cut = json!([{ "id": "cut", "type": "http.request", "credential": "conn_plain", "method": "POST", "path": "/plain/cut",
        "body": {} }]);
    let other = {
        let mut document = with("cut", &cut);
        document["trigger"]["endpoint"] = "wh_other".into();
        document
    };
    runs.put("other", &other).await;
    let second = runs.deliver("other", &json!({})).await;
    runs.once("other", &second, &["needs-attention"]).await;
    let seen = runs.once("other", &second, &["ended-ambiguous"]).await;
    // Somebody has to look at that one, however old it gets, and at the other one nobody has.
    let letters = runs.ask("other", "GET", "/executions?deadLetters=true", None, 200).await;
    assert_eq!(letters["executions"][0]["id"], seen["id"], "{letters}");
    let letters = runs.node.cli_ok(&["runs", "list", "--tenant", "other", "--dead-letters", "--json"]);
    assert!(letters.lines().count() == 1 && letters.contains("\"isDeadLetter\":true"), "{letters}");
    let none = runs.ask("acme", "GET", "/executions?deadLetters=true", None, 200).await;
    assert_eq!(none["executions"], json!([]), "{none}");
    assert_eq!(runs.provider.count("/plain/cut"), 1, "{:#}", node(&seen, "cut"));
}
