use rustix::process::Signal;
use tidegate_tests::{Appliance, Node, endpoint, eventually, tenant};

fn two_tenants() -> Appliance {
    Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1")))
        .tenant(tenant("globex").endpoint(endpoint("wh_2")))
}

fn damage(node: &Node) {
    let path = node.tenants_directory().join("acme.toml");
    let text = std::fs::read_to_string(&path).expect("the file");
    tidegate_tests::settings::replace(&path, &format!("{text}\nno_such_key = 1\n"));
}

async fn degraded(node: &Node) -> bool {
    let readyz = node.admin("/readyz").await;
    assert_eq!(readyz.status, 200, "a bad push must never drain a fleet: {readyz}");
    String::from_utf8_lossy(&readyz.body).contains("degraded")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_tenant_file_touches_nobody_else() {
    let mut node = two_tenants().start().await;
    assert!(!degraded(&node).await);
    damage(&node);
    node.signal(Signal::HUP);
    eventually!(degraded(&node).await);
    assert_eq!(node.sender("wh_1").deliver("{}").await.status, 202, "its last good version goes on");
    assert_eq!(node.sender("wh_2").deliver("{}").await.status, 202, "and so does everybody else");

    let check = node.cli(&["check"]);
    assert_eq!(check.status.code(), Some(1));
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    assert!(said.contains("acme.toml:") && said.contains("no_such_key"), "{said}");

    // A cold start finds the last good version where it was kept.
    node.restart().await;
    assert!(degraded(&node).await);
    assert_eq!(node.sender("wh_1").deliver("{}").await.status, 202);
    assert_eq!(node.sender("wh_2").deliver("{}").await.status, 202);

    node.rewrite(tenant("acme").endpoint(endpoint("wh_1")).endpoint(endpoint("wh_3")));
    node.signal(Signal::HUP);
    eventually!(node.sender("wh_3").deliver("{}").await.status == 202);
    assert!(!degraded(&node).await);
}

/// With no version to go on with, its endpoints answer 503, so that a provider tries again, and never 404.
#[tokio::test(flavor = "multi_thread")]
async fn with_no_good_version_an_endpoint_is_unavailable() {
    let mut node = two_tenants().prepare();
    damage(&node);
    node.start().await;
    assert!(degraded(&node).await);
    assert_eq!(node.sender("wh_1").deliver("{}").await.refusal(), "endpoint-unavailable");
    assert_eq!(node.sender("wh_2").deliver("{}").await.status, 202);
    node.rewrite(tenant("acme").endpoint(endpoint("wh_1")));
    eventually!(node.sender("wh_1").deliver("{}").await.status == 202);
}

/// The appliance's own file is one unit: a faulty one is refused at start, and ignored when it comes later.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_appliance_file_stops_no_running_node() {
    let mut node = two_tenants().start().await;
    let good = std::fs::read_to_string(node.config()).expect("the file");
    std::fs::write(node.config(), format!("{good}\n[nonsense]\nx = 1\n")).expect("it is written");
    node.signal(Signal::HUP);
    eventually!(degraded(&node).await);
    assert_eq!(node.sender("wh_1").deliver("{}").await.status, 202);

    node.terminate().await;
    node.spawn();
    let status = node.ended().await;
    assert_eq!(status.code(), Some(1), "it does not start on a file with faults");
    assert!(node.output().contains("nonsense"), "{}", node.output());
}
