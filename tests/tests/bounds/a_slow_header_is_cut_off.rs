use std::time::{Duration, Instant};

use tidegate_tests::{Appliance, Connection};

/// The bound is on the whole header section, so a byte now and then buys no time.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_header_is_cut_off() {
    let node = Appliance::usual().set("gateway.listener", "header_timeout", "\"1s\"").start().await;
    let head = node.sender("wh_1").delivery("{}").head_bytes();
    let mut connection = Connection::open(node.gateway).await;
    let begun = Instant::now();
    for byte in &head[..60] {
        // Once it has been cut off, the rest is in vain; the answer says so.
        if connection.try_send(&[*byte]).await.is_err() || begun.elapsed() > Duration::from_secs(3) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let response = connection.response().await;
    assert_eq!((response.status, response.refusal().as_str()), (408, "header-timeout"));
    assert!(response.closes());
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_says_nothing_is_closed() {
    let node = Appliance::usual().set("gateway.listener", "idle_timeout", "\"1s\"").start().await;
    let sender = node.sender("wh_1");
    let mut silent = sender.connect().await;
    let begun = Instant::now();
    assert!(silent.is_closed_by_peer().await);
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());

    let mut kept = sender.connect().await;
    kept.exchange(&sender.delivery("{}")).await.event_id();
    assert!(kept.is_closed_by_peer().await, "the same after an answer");
}
