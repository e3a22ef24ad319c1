use std::collections::BTreeSet;

use tidegate_tests::Appliance;
use tidegate_tests::signing;

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_proves_nothing_is_refused_and_held() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let signed = sender.delivery("{}");
    let (name, good) = signing::github(sender.secret.as_bytes(), b"{}");
    let (_, wrong) = signing::github(b"another secret", b"{}");
    let refused = [
        ("wrong", signed.clone().replacing(&name, &wrong)),
        ("missing", signed.clone().without(&name)),
        ("two of them, one right", signed.clone().header(&name, &wrong)),
        ("the right one twice", signed.clone().header(&name, &good)),
        ("a list in one line", signed.clone().replacing(&name, &format!("{good}, {wrong}"))),
        ("empty", signed.clone().replacing(&name, "")),
        ("no prefix", signed.clone().replacing(&name, good.trim_start_matches("sha256="))),
        ("one digit short", signed.clone().replacing(&name, &good[..good.len() - 1])),
        ("another body", signed.clone().body("{} ")),
    ];

    let mut answers = BTreeSet::new();
    for (what, request) in &refused {
        let response = sender.send(request).await;
        assert_eq!(response.status, 401, "{what}: {response}");
        assert_eq!(response.refusal(), "signature-invalid");
        assert!(response.header("www-authenticate").is_some(), "a 401 names a challenge (RFC 9110, 15.5.2)");
        answers.insert(response.comparable());
    }
    assert_eq!(answers.len(), 1, "an answer tells a prober which check failed: {answers:#?}");

    assert!(node.export().is_empty(), "nothing unverified is in the log");
    let held = node.cli_ok(&["events", "list", "--held", "--tenant", "acme", "--json"]);
    let held: Vec<serde_json::Value> = held.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(held.len(), refused.len(), "{held:#?}");
    assert!(held.iter().all(|row| row["status"] == "quarantined"), "{held:#?}");
    let reasons: BTreeSet<&str> = held.iter().map(|row| row["reason"].as_str().expect("a reason")).collect();
    assert!(reasons.len() >= 3, "the operator is told them apart: {reasons:?}");
    assert!((node.metrics().await.sum("tidegate_gateway_refused_total", &["signature-invalid"]) - 9.0).abs() < 0.1);
}

/// The failures of a forger spend a budget of his own, and not the honest sender's.
#[tokio::test(flavor = "multi_thread")]
async fn a_forger_throttles_himself_and_nobody_else() {
    let node = Appliance::usual()
        .set("limits.unauthenticated", "failures_per_minute", "6")
        .set("limits.unauthenticated", "burst", "5")
        .start()
        .await;
    let honest = node.sender("wh_1").from("127.0.0.9");
    honest.deliver("before").await.event_id();

    let forger = node.sender("wh_1").from("127.0.0.66").with_secret("a guess");
    let mut connection = forger.connect().await;
    let mut codes = Vec::new();
    for number in 0..20 {
        let response = connection.exchange(&forger.delivery(format!("forged {number}"))).await;
        codes.push(response.refusal());
        if response.closes() {
            connection = forger.connect().await;
        }
    }
    assert_eq!(codes[0], "signature-invalid");
    assert_eq!(codes[19], "source-throttled", "{codes:?}");

    for number in 0..20 {
        honest.deliver(format!("during {number}")).await.event_id();
    }
    assert_eq!(node.export().len(), 21);
}
