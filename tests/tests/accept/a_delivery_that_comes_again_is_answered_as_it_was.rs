use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_tests::{Appliance, Request, Sender, endpoint, eventually, signing, tenant};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn signed(sender: &Sender, id: &str, body: &str, seconds_ago: u64) -> Request {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() - seconds_ago;
    let headers = signing::standard(SECRET, id, body.as_bytes(), now);
    headers.into_iter().fold(sender.unsigned(body), |request, (name, value)| request.header(&name, &value))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_and_one_signed_id_are_one_event_over_a_restart() {
    let hook = |id: &str| endpoint(id).scheme("standard-webhooks").secret("primary", SECRET);
    let keep = hook("wh_keep").set("repeats", "\"keep\"");
    let acme = tenant("acme").endpoint(hook("wh_1")).endpoint(hook("wh_2")).endpoint(keep);
    let mut node = Appliance::new().tenant(acme).set("logging", "format", "\"text\"").start().await;
    let sender = node.sender("wh_1");
    let first = sender.send(&signed(&sender, "msg_1", "{}", 60)).await;
    // The provider signs anew when it sends again.
    let again = sender.send(&signed(&sender, "msg_1", "{}", 0)).await;
    assert_eq!(again.comparable(), first.comparable());
    assert_ne!(sender.send(&signed(&sender, "msg_2", "{}", 0)).await.event_id(), first.event_id());
    let other = node.sender("wh_2");
    assert_ne!(other.send(&signed(&other, "msg_1", "{}", 0)).await.event_id(), first.event_id());
    let kept = node.sender("wh_keep");
    let ids = [kept.send(&signed(&kept, "msg_1", "{}", 0)).await, kept.send(&signed(&kept, "msg_1", "{}", 0)).await];
    assert_ne!(ids[0].event_id(), ids[1].event_id());
    assert_eq!(node.export().len(), 5);
    eventually!(node.output().contains("repeated event="));

    node.restart().await;
    eventually!(node.output().contains("remembered ids of deliveries"));
    let sender = node.sender("wh_1");
    assert_eq!(sender.send(&signed(&sender, "msg_1", "{}", 0)).await.event_id(), first.event_id());
    assert_eq!(node.export().len(), 5);
}

/// GitHub's signature does not cover the id: anybody who has seen one delivery could claim the id of the next.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_not_signed_counts_only_where_the_endpoint_says_so() {
    let drop = endpoint("wh_drop").set("repeats", "\"drop\"");
    let node = Appliance::new().tenant(tenant("acme").endpoint(endpoint("wh_1")).endpoint(drop)).start().await;
    for (id, events) in [("wh_1", 2), ("wh_drop", 1)] {
        let sender = node.sender(id);
        let delivery = |body: &str| sender.delivery(body).header("X-GitHub-Delivery", "72d3162e-cc78-11e3");
        let ids = [sender.send(&delivery("{}")).await.event_id(), sender.send(&delivery("{}")).await.event_id()];
        assert_eq!(ids[0] != ids[1], events == 2, "{id}");
    }
    assert_eq!(node.export().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_one_id_at_once_are_one_event() {
    let hook = endpoint("wh_1").scheme("standard-webhooks").secret("primary", SECRET);
    let node = Appliance::new().tenant(tenant("acme").endpoint(hook)).start().await;
    let sender = node.sender("wh_1");
    let request = signed(&sender, "msg_1", "{}", 0);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (sender, request) = (sender.clone(), request.clone());
        all.spawn(async move { sender.send(&request).await.event_id() });
    }
    let mut ids: Vec<_> = all.join_all().await;
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(node.export().len(), 1);
}
