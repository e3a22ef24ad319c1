use std::collections::BTreeMap;

use tidegate_tests::{Appliance, Request, endpoint, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_cannot_be_found_by_probing() {
    let node = Appliance::new()
        .tenant(
            tenant("acme")
                .endpoint(endpoint("wh_1"))
                .endpoint(endpoint("wh_disabled").set("enabled", "false"))
                .endpoint(endpoint("wh_alias").set("aliases", r#"["alias.example.net/in"]"#)),
        )
        .set("gateway", "hosts", r#"["alias.example.net"]"#)
        .start()
        .await;
    let known = node.sender("wh_1");
    let at = |host: &str, target: &str| known.delivery("{}").replacing("Host", host).to(target);
    let probes: Vec<(&str, Request)> = vec![
        ("unknown", at("hooks.example.com", "/hooks/wh_unknown")),
        ("disabled", at("hooks.example.com", "/hooks/wh_disabled")),
        ("disabled, rightly signed", node.sender("wh_disabled").delivery("{}")),
        ("another host", at("elsewhere.example.com", "/hooks/wh_1")),
        ("another endpoint's host", at("hooks.example.com", "/in")),
        ("no endpoint at all", at("hooks.example.com", "/")),
        ("below one", at("hooks.example.com", "/hooks/wh_1/x")),
        ("an id of odd bytes", at("hooks.example.com", "/hooks/wh_%31")),
        ("a very long id", at("hooks.example.com", &format!("/hooks/{}", "a".repeat(4_000)))),
    ];

    for method in ["POST", "GET", "PUT"] {
        let mut answers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (what, probe) in &probes {
            let request = Request { method: method.into(), ..probe.clone() };
            let response = known.send(&request).await;
            assert_eq!(response.status, 404, "{method}, {what}: {response}");
            assert_eq!(response.refusal(), "endpoint-unknown");
            answers.entry(response.comparable()).or_default().push(what);
        }
        assert_eq!(answers.len(), 1, "{method} tells these apart: {answers:#?}");
    }
    assert_eq!(known.deliver("{}").await.status, 202);
}
