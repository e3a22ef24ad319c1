use std::collections::BTreeSet;
use std::path::Path;

use tidegate_tests::{Appliance, endpoint, eventually, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_documented_and_bounded() {
    let node = Appliance::new()
        .tenant((0..30).fold(tenant("acme"), |tenant, n| tenant.endpoint(endpoint(&format!("wh_{n}")))))
        .start()
        .await;
    let sender = node.sender("wh_1");
    sender.deliver("{}").await.event_id();
    sender.clone().with_secret("x").deliver("{}").await.refusal();
    // It has no label, and is there once there is a rate.
    eventually!(node.metrics().await.families.contains_key("tidegate_log_days_left"));
    let before = node.metrics().await;
    assert!(before.families.keys().all(|name| name.starts_with("tidegate_")), "{:?}", before.families);
    let unexplained: Vec<_> = before.families.keys().filter(|name| !before.helped.contains(*name)).collect();
    assert!(unexplained.is_empty(), "no help for {unexplained:?}");
    assert!(before.sum("tidegate_gateway_accepted_total", &[]) >= 1.0);

    // Whatever comes from outside adds no label.
    for number in 0..30 {
        node.sender(&format!("wh_{number}")).deliver("{}").await.event_id();
        let odd = sender.delivery("{}").to(&format!("/hooks/wh_nobody_{number}"));
        assert_eq!(sender.send(&odd).await.status, 404);
        let odd = sender.delivery("{}").replacing("Host", &format!("host{number}.example.com"));
        assert_eq!(sender.send(&odd).await.status, 404);
    }
    let after = node.metrics().await;
    assert_eq!(before.cardinality(), after.cardinality(), "label sets grow with what is sent");

    // The document lists them all, and none that does not exist.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/metrics.md");
    let document = std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
    let documented: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `tidegate_"))
        .map(|rest| format!("tidegate_{}", rest.split(['`', '{']).next().expect("a name")))
        .collect();
    let real: BTreeSet<String> = after.families.keys().cloned().collect();
    let plain = |name: &String| name.trim_end_matches("_total").to_owned();
    let documented: BTreeSet<String> = documented.iter().map(plain).collect();
    let real: BTreeSet<String> = real.iter().map(plain).collect();
    let undocumented: Vec<_> = real.difference(&documented).collect();
    let unreal: Vec<_> = documented.difference(&real).collect();
    assert!(
        undocumented.is_empty() && unreal.is_empty(),
        "not in docs/metrics.md: {undocumented:?}; only there: {unreal:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_are_told_on_the_admin_listener_alone() {
    let node = Appliance::usual().start().await;
    assert_eq!(node.admin("/healthz").await.status, 200);
    assert_eq!(node.admin("/readyz").await.status, 200);
    assert_eq!(node.admin("/nothing").await.status, 404);
    let sender = node.sender("wh_1");
    for path in ["/metrics", "/healthz", "/readyz"] {
        let request = tidegate_tests::Request::new("GET", path).header("Host", &node.host);
        assert_eq!(sender.send(&request).await.status, 404, "{path} is nothing to a provider");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_calls_are_documented() {
    let node = Appliance::usual()
        .set("egress", "listen", "[\"127.0.0.1:0\"]")
        // Nothing is looked up here.
        .set("egress.dns", "servers", "[\"192.0.2.53\"]")
        .start()
        .await;
    let plain = |name: &str| name.trim_end_matches("_total").to_owned();
    // A listener has those of every listener; exit ranges have theirs where there is a book of them.
    let is_of_calls = |name: &str| {
        let of_others = ["tidegate_egress_listener_", "tidegate_egress_ranges_"];
        name.starts_with("tidegate_egress_") && !of_others.iter().any(|prefix| name.starts_with(prefix))
    };
    let metrics = node.metrics().await;
    let real: BTreeSet<String> =
        metrics.families.keys().filter(|name| is_of_calls(name)).map(|name| plain(name)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/egress.md");
    let document = std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split('`').next());
    let documented: BTreeSet<String> = rows.filter(|name| is_of_calls(name)).map(plain).collect();
    assert_eq!(real, documented, "docs/egress.md has not the metrics that there are");
}
