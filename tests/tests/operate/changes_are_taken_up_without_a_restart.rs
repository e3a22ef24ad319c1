use rustix::process::Signal;
use tidegate_tests::{Appliance, endpoint, eventually, tenant};

fn with(endpoints: &[&str]) -> tidegate_tests::Tenant {
    endpoints.iter().fold(tenant("acme"), |tenant, id| tenant.endpoint(endpoint(id)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_noticed() {
    let mut node = Appliance::new().tenant(with(&["wh_1", "wh_2"])).start().await;
    node.rewrite(with(&["wh_2", "wh_3"]));
    eventually!(node.sender("wh_3").deliver("{}").await.status == 202, "an endpoint that was added");
    let gone = node.sender("wh_2").with_secret("x");
    assert_eq!(gone.send(&gone.delivery("{}").to("/hooks/wh_1")).await.status, 404, "one that was removed");

    // A tenant's file that appears, and one that goes.
    node.rewrite(tenant("globex").endpoint(endpoint("wh_4")));
    eventually!(node.sender("wh_4").deliver("{}").await.status == 202, "a tenant that was added");
    std::fs::remove_file(node.tenants_directory().join("globex.toml")).expect("it is there");
    eventually!(node.sender("wh_4").deliver("{}").await.status == 404, "a tenant that was removed");

    // Its events are still there.
    assert!(node.export().iter().any(|event| event.tenant == "globex"));
}

/// The file is the same; the secret that it names is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_secret_is_taken_up_by_a_reload() {
    let mut node = Appliance::usual().start().await;
    let new = node.sender("wh_1").with_secret("the next secret");
    assert_eq!(new.deliver("{}").await.status, 401);
    node.rewrite(tenant("acme").endpoint(endpoint("wh_1").secret("primary", "the next secret")));
    node.signal(Signal::HUP);
    eventually!(new.deliver("{}").await.status == 202);
}

/// One request sees one configuration: a reload under load changes no answer.
#[tokio::test(flavor = "multi_thread")]
async fn reloads_under_load_change_no_answer() {
    use tidegate_tests::judge::assert_lawful;
    use tidegate_tests::load::{Ledger, Outcome};

    let mut node = Appliance::new().tenant(with(&["wh_1", "wh_2"])).start().await;
    let senders = ["wh_1", "wh_2"].map(|id| (id.to_owned(), node.sender(id)));
    let mut ledger = Ledger::seeded(11);
    let load = ledger.load(&senders, 2);
    for round in 0..20 {
        let extra = format!("wh_extra_{round}");
        node.rewrite(with(&["wh_1", "wh_2", &extra]));
        node.signal(Signal::HUP);
        eventually!(node.sender(&extra).deliver(format!("0-{round} not of the load")).await.status == 202);
    }
    ledger.settle(load).await;
    let odd: Vec<_> =
        ledger.attempts.values().filter(|attempt| !matches!(attempt.outcome, Outcome::Acknowledged(_))).collect();
    assert!(odd.is_empty(), "{odd:?}");
    let events: Vec<_> = node.export().into_iter().filter(|event| !event.endpoint.contains("extra")).collect();
    assert_lawful(&ledger, &senders, &events);
}
