use std::time::{Duration, Instant};

use tidegate_tests::{Appliance, Connection};

async fn cut_off(connection: &mut Connection, begun: Instant, at_most: Duration) {
    let response = connection.response().await;
    assert_eq!((response.status, response.refusal().as_str()), (408, "body-timeout"), "{response}");
    assert!(response.closes(), "the rest of the body may still come");
    assert!(begun.elapsed() < at_most, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_is_cut_off() {
    let node = Appliance::usual().set("gateway.listener", "body_timeout", "\"1s\"").start().await;
    let sender = node.sender("wh_1");
    for request in [sender.delivery(vec![b'x'; 10_000]), sender.delivery(vec![b'x'; 10_000]).chunked(5_000)] {
        let mut connection = sender.connect().await;
        let bytes = request.bytes();
        let begun = Instant::now();
        connection.send(&bytes[..bytes.len() - 3_000]).await;
        cut_off(&mut connection, begun, Duration::from_secs(6)).await;
    }
    assert!(node.export().is_empty());
}

/// A rate below the least one is cut off long before the bound on the whole body.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_is_cut_off() {
    let node = Appliance::usual()
        .set("gateway.listener", "body_rate_min", "\"1KiB\"")
        .set("gateway.listener", "body_rate_grace", "\"1s\"")
        .set("gateway.listener", "body_timeout", "\"60s\"")
        .start()
        .await;
    let sender = node.sender("wh_1");
    let request = sender.delivery(vec![b'x'; 100_000]);
    let mut connection = sender.connect().await;
    let begun = Instant::now();
    connection.send(&request.head_bytes()).await;
    while begun.elapsed() < Duration::from_secs(12) && connection.stays_silent(Duration::from_millis(100)).await {
        if connection.try_send(b"x").await.is_err() {
            break;
        }
    }
    cut_off(&mut connection, begun, Duration::from_secs(12)).await;
}
