use rustix::process::Signal;
use serde_json::Value;
use tidegate_tests::{Appliance, Node, endpoint, eventually, tenant};

fn held(node: &Node) -> Vec<Value> {
    let rows = node.cli_ok(&["events", "list", "--held", "--tenant", "acme", "--json"]);
    rows.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_secret_lets_held_deliveries_be_promoted() {
    let acme = |secret: &str| tenant("acme").endpoint(endpoint("wh_1").secret("primary", secret));
    let mut node = Appliance::new().tenant(acme("a secret with a typo")).start().await;
    let provider = node.sender("wh_1").with_secret("the right secret");
    let forger = node.sender("wh_1").with_secret("a guess");
    let request = provider.delivery("rotated").header("X-Twice", "1").header("X-Twice", "2");
    assert_eq!(provider.send(&request).await.refusal(), "signature-invalid");
    assert_eq!(forger.deliver("forged").await.refusal(), "signature-invalid");
    let before = held(&node);
    assert_eq!(before.len(), 2, "{before:#?}");

    node.rewrite(acme("the right secret"));
    let loaded = || node.output().matches("configuration loaded").count();
    let once = loaded();
    node.signal(Signal::HUP);
    eventually!(loaded() > once, "the corrected secret is taken up");
    provider.deliver("after").await.event_id();
    assert_eq!(node.export().len(), 1, "promotion waits to be asked for");

    let dry = node.cli(&["events", "reverify", "--tenant", "acme", "--dry-run", "--json"]);
    assert_eq!(dry.status.code(), Some(1), "one still does not verify");
    assert_eq!(node.export().len(), 1, "a dry run promotes nothing");

    let real = node.cli(&["events", "reverify", "--tenant", "acme", "--json"]);
    assert_eq!(real.status.code(), Some(1), "one still does not verify");

    let events = node.export();
    assert_eq!(events.len(), 2);
    let promoted = events.iter().find(|event| event.body == b"rotated").expect("it was promoted");
    let was = before.iter().find(|row| row["id"] == *promoted.id).expect("under its original id");
    assert_eq!(promoted.json["receivedAt"], was["receivedAt"], "with its original receive time");
    assert_eq!(promoted.headers, request.wire_headers());
    assert!(events.iter().all(|event| event.body != b"forged"), "a forgery is never promoted");

    // Asked again, it finds only what still does not verify, and promotes nothing twice.
    let _ = node.cli(&["events", "reverify", "--tenant", "acme"]);
    assert_eq!(node.export().len(), 2);
    let left: Vec<_> = held(&node).into_iter().filter(|row| row["status"] == "quarantined").collect();
    assert_eq!(left.len(), 1, "{left:#?}");

    // And it is all the same after a restart.
    node.restart().await;
    let _ = node.cli(&["events", "reverify", "--tenant", "acme"]);
    assert_eq!(node.export().len(), 2);
}
