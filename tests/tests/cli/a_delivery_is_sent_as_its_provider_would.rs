use std::process::Command;

use tidegate_tests::{Appliance, endpoint, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_sent_as_its_provider_would() {
    let node = Appliance::new()
        .tenant(
            tenant("acme")
                .endpoint(endpoint("wh_1"))
                .endpoint(endpoint("wh_2").scheme("stripe").secret("primary", "whsec_x"))
                .endpoint(endpoint("wh_3").scheme("slack").secret("primary", "8f742231b10e8888abcd99yyyzzz85a5")),
        )
        .start()
        .await;
    std::fs::write(node.directory.join("body.json"), "{\"mine\":true}").expect("a body");
    for id in ["wh_1", "wh_2", "wh_3"] {
        let said = node.cli_ok(&["send", "--endpoint", id, "--body", "body.json"]);
        assert!(said.contains("202") && said.contains("evt_"), "{said}");
        let json = node.cli_ok(&["send", "--endpoint", id, "--body", "body.json", "--json"]);
        let json: serde_json::Value = serde_json::from_str(json.trim()).expect("one JSON object");
        assert_eq!(json["status"], 202, "{json}");
    }
    node.cli_ok(&["send", "--endpoint", "wh_1"]);
    node.cli_ok(&["send", "--endpoint", "wh_1", "--count", "20", "--concurrency", "4"]);
    let events = node.export();
    assert_eq!(events.len(), 6 + 1 + 20);
    assert!(events[..6].iter().all(|event| event.body == b"{\"mine\":true}"));

    let unknown = node.cli(&["send", "--endpoint", "wh_unknown"]);
    assert_ne!(unknown.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("wh_unknown"));
}

/// What it prints for pasting works when it is pasted.
#[tokio::test(flavor = "multi_thread")]
async fn the_printed_curl_works() {
    let node = Appliance::usual().start().await;
    std::fs::write(node.directory.join("body.json"), "{\"it's\":\"quoted $HOME `x`\"}\n").expect("a body");
    let line = node.cli_ok(&["send", "--endpoint", "wh_1", "--body", "body.json", "--print-curl"]);
    let output = Command::new("sh")
        .args(["-c", &format!("{} --silent --show-error", line.trim())])
        .current_dir(&node.directory)
        .output()
        .expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("evt_"), "{line}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(node.export()[0].body, b"{\"it's\":\"quoted $HOME `x`\"}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_listens_it_says_so() {
    let mut node = Appliance::usual().start().await;
    node.terminate().await;
    let output = node.cli(&["send", "--endpoint", "wh_1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&node.gateway.to_string()), "{output:?}");
}
