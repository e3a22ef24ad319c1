use tidegate_tests::{Appliance, endpoint, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_answers_by_host_and_path() {
    let moved = endpoint("wh_1").set("aliases", r#"["old.example.net/webhooks/github", "/anywhere"]"#);
    let node = Appliance::new()
        .tenant(tenant("acme").endpoint(moved).endpoint(endpoint("wh_2")))
        .set("gateway", "hosts", r#"["old.example.net"]"#)
        .start()
        .await;
    let sender = node.sender("wh_1");
    let at = |host: &str, path: &str| sender.delivery("{}").replacing("Host", host).to(path);

    for (host, path) in [
        ("old.example.net", "/webhooks/github"),
        ("OLD.example.net:443", "/webhooks/github?x=1"),
        ("old.example.net", "/anywhere"),
        ("hooks.example.com", "/anywhere"),
        ("hooks.example.com", "/hooks/wh_1"),
    ] {
        let response = sender.send(&at(host, path)).await;
        assert_eq!(response.status, 202, "{host}{path}: {response}");
    }
    for (host, path) in [
        ("hooks.example.com", "/webhooks/github"),
        ("other.example.net", "/webhooks/github"),
        ("other.example.net", "/anywhere"),
        ("old.example.net", "/webhooks/github/"),
        ("old.example.net", "/WEBHOOKS/github"),
        ("old.example.net", "/webhooks%2Fgithub"),
        ("old.example.net", "//webhooks/github"),
        ("old.example.net", "/./webhooks/github"),
    ] {
        let response = sender.send(&at(host, path)).await;
        // Dot segments have no business in a request; the gate may say so before anybody looks for an endpoint.
        assert!(matches!(response.status, 400 | 404), "{host}{path}: {response}");
    }
    assert!(node.export().iter().all(|event| event.endpoint == "wh_1"));
}
