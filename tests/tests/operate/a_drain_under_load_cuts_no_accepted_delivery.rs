use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidegate_tests::judge::assert_lawful;
use tidegate_tests::load::{Key, Ledger, Outcome};
use tidegate_tests::{Appliance, endpoint, eventually, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_under_load_cuts_no_accepted_delivery() {
    let acme = tenant("acme").endpoint(endpoint("wh_1")).endpoint(endpoint("wh_2"));
    let mut node = Appliance::new().tenant(acme).start().await;
    let senders = ["wh_1", "wh_2"].map(|id| (id.to_owned(), node.sender(id)));
    let mut ledger = Ledger::seeded(3);
    for round in 0..5 {
        if round > 0 {
            node.start().await;
        }
        let load = ledger.load(&senders, 4);
        eventually!(node.metrics().await.sum("tidegate_gateway_accepted_total", &[]) > 50.0);
        node.terminate().await;
        ledger.settle(load).await;
    }
    node.start().await;
    let events = node.export();
    assert_lawful(&ledger, &senders, &events);
    assert!(ledger.acknowledged().count() > 250);
    // What was taken in was answered: nothing is in the log that its sender does not know of.
    let unanswered: Vec<Key> = events
        .iter()
        .filter_map(|event| Key::of_body(&event.body))
        .filter(|key| !matches!(ledger.attempts[key].outcome, Outcome::Acknowledged(_)))
        .collect();
    assert!(unanswered.is_empty(), "accepted, and cut off before the answer: {unanswered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_under_way_is_finished_and_told_to_close() {
    let mut node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let request = sender.delivery("under way");
    let mut under_way = sender.connect().await;
    let mut idle = sender.connect().await;
    idle.exchange(&sender.delivery("before")).await.event_id();
    under_way.send(&request.head_bytes()).await;
    under_way.send(&request.body[..3]).await;

    node.signal(Signal::TERM);
    eventually!(node.try_readyz().await != Some(200), "a draining node is not ready");
    assert!(idle.is_closed_by_peer().await, "an idle connection has nothing to wait for");
    assert!(node.exited().is_none(), "it waits for what is under way");

    under_way.send(&request.body[3..]).await;
    let response = under_way.response().await;
    response.event_id();
    assert!(response.closes(), "{response}");
    assert!(node.ended().await.success());

    node.start().await;
    assert_eq!(node.export().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_early_when_idle_and_has_a_deadline() {
    let mut node = Appliance::usual().set("gateway.listener", "drain_timeout", "\"2s\"").start().await;
    let begun = Instant::now();
    node.terminate().await;
    assert!(begun.elapsed() < Duration::from_millis(1_900), "nobody was there to wait for: {:?}", begun.elapsed());

    node.start().await;
    let sender = node.sender("wh_1");
    let mut stuck = sender.connect().await;
    stuck.send(&sender.delivery("never finished").head_bytes()).await;
    eventually!(node.metrics().await.sum("tidegate_listener_connections_open", &[]) > 0.0);
    let begun = Instant::now();
    node.signal(Signal::TERM);
    node.ended().await;
    assert!(begun.elapsed() >= Duration::from_millis(1_500), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Each listener keeps its own bound: one that gives its calls more time does not lengthen another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_deliveries_does_not_wait_for_that_of_calls() {
    let appliance = Appliance::usual().set("gateway.listener", "drain_timeout", "\"1s\"");
    let appliance = appliance.set("egress", "listen", "[\"127.0.0.1:0\"]");
    let mut node = appliance.set("egress.listener", "drain_timeout", "\"10m\"").start().await;
    let sender = node.sender("wh_1");
    let mut stuck = sender.connect().await;
    stuck.send(&sender.delivery("never finished").head_bytes()).await;
    eventually!(node.metrics().await.sum("tidegate_listener_connections_open", &[]) > 0.0);
    let begun = Instant::now();
    node.signal(Signal::TERM);
    node.ended().await;
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
