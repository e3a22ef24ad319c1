use std::time::Instant;

use rustix::process::Signal;
use tidegate_tests::{Appliance, Sender, endpoint, eventually, tenant};

/// How many of `count` deliveries in a row were taken; the refused ones have to say when to come back.
async fn taken(sender: &Sender, count: usize) -> usize {
    let mut connection = sender.connect().await;
    let mut taken = 0;
    for _ in 0..count {
        let response = connection.exchange(&sender.delivery("{}")).await;
        if response.status == 202 {
            taken += 1;
        } else {
            assert_eq!((response.status, response.refusal().as_str()), (429, "rate-limited"));
            assert!(response.header("ratelimit").is_some(), "{response}");
            assert!(response.header("ratelimit-policy").is_some(), "{response}");
        }
        if response.closes() {
            connection = sender.connect().await;
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_say_when_to_come_back() {
    let limited = endpoint("wh_1").set("limits", "{ events = \"1/s burst 20\" }").set("over_limit", "\"refuse\"");
    let node = Appliance::new().tenant(tenant("acme").endpoint(limited).endpoint(endpoint("wh_2"))).start().await;
    let sender = node.sender("wh_1");
    let begun = Instant::now();
    let mut all = taken(&sender, 40).await;
    assert!(all >= 20, "the burst is there to be used: {all}");

    // A reload does not fill a bucket again.
    let loaded = || node.output().matches("configuration loaded").count();
    let before = loaded();
    node.signal(Signal::HUP);
    eventually!(loaded() > before);
    all += taken(&sender, 40).await;
    let allowed = 20.0 + begun.elapsed().as_secs_f64() + 1.0;
    assert!(f64::from(u32::try_from(all).expect("few")) <= allowed, "{all} were taken, {allowed} were allowed");

    assert_eq!(taken(&node.sender("wh_2"), 40).await, 40, "its neighbour has a limit of its own: none");
    assert_eq!(node.export().len(), all + 40);
}

/// GitHub does not deliver again: what is over its limit is kept in a class of its own instead of being lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_redeliver_loses_nothing() {
    let limited = endpoint("wh_1").set("limits", "{ events = \"1/s burst 5\" }");
    let node = Appliance::new().tenant(tenant("acme").endpoint(limited)).start().await;
    assert_eq!(taken(&node.sender("wh_1"), 30).await, 30);
    let events = node.export();
    let bulk = events.iter().filter(|event| event.json["class"] == "bulk").count();
    assert_eq!(events.len(), 30);
    assert!((10..=25).contains(&bulk), "{bulk} of 30 in the bulk class");
}

/// What was refused is in a line, with what there is to ask its provider for.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_delivery_can_be_asked_for() {
    let limited = endpoint("wh_1").set("limits", "{ events = \"1/s burst 1\" }").set("over_limit", "\"refuse\"");
    let node =
        Appliance::new().tenant(tenant("acme").endpoint(limited)).set("logging", "format", "\"text\"").start().await;
    let sender = node.sender("wh_1");
    let delivery = || sender.delivery("{}").header("X-GitHub-Delivery", "72d3162e\t-cc78");
    let mut refused = false;
    for _ in 0..3 {
        refused |= sender.send(&delivery()).await.status == 429;
    }
    assert!(refused);
    eventually!(node.output().contains("code=rate-limited"));
    let output = node.output();
    let line = output.lines().find(|line| line.contains("code=rate-limited")).expect("a line");
    assert!(line.contains("tenant=acme endpoint=wh_1 delivery=\"72d3162e\\t-cc78\" received=20"), "{line}");
    assert!(line.contains(" bytes=2 comes_again=false "), "{line}");
}
