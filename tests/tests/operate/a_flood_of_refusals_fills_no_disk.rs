use tidegate_tests::patience::how_many;
use tidegate_tests::{Appliance, Request, eventually};

/// Sends the same request over and over, pipelined in batches, and counts the answers.
async fn flood(to: std::net::SocketAddr, request: Request, total: usize) -> usize {
    const BATCH: usize = 50;
    let batch = request.bytes().repeat(BATCH);
    let mut answers = 0;
    while answers < total {
        let mut connection = tidegate_tests::Connection::open(to).await;
        while answers < total {
            if connection.try_send(&batch).await.is_err() {
                break;
            }
            let mut closed = false;
            for _ in 0..BATCH {
                let Ok(response) = connection.try_response().await else {
                    closed = true;
                    break;
                };
                assert!(response.status >= 400, "{response}");
                answers += 1;
            }
            if closed {
                break;
            }
        }
    }
    answers
}

fn bytes_on_disk(directory: &std::path::Path) -> i64 {
    let used = std::process::Command::new("du").args(["-s", "-B1"]).arg(directory).output().expect("du");
    let used = String::from_utf8_lossy(&used.stdout);
    used.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).expect("a number of bytes")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_refusals_fills_no_disk() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let before = bytes_on_disk(&node.directory);
    let total = how_many("TIDEGATE_FLOOD", 50_000);
    let unknown = sender.delivery("{}").to("/hooks/wh_unknown");
    let forged = sender.clone().with_secret("a guess").delivery("x".repeat(200));
    let (one, two) = tokio::join!(
        tokio::spawn(flood(node.gateway, unknown, total / 2)),
        tokio::spawn(flood(node.gateway, forged, total / 2)),
    );
    let answers = one.expect("no panic") + two.expect("no panic");
    assert!(answers >= total);

    let refused = node.metrics().await.sum("tidegate_gateway_refused_total", &[]);
    assert!(refused >= f64::from(u32::try_from(total).expect("few")), "every one is counted: {refused}");
    let output = node.output();
    let (lines, bytes) = (output.lines().count(), output.len());
    assert!(lines < 2_000, "{lines} lines for {answers} refusals");
    assert!(bytes < 1_000_000, "{bytes} bytes for {answers} refusals");
    assert!(lines > 2, "a flood leaves its trace");
    // A thousand forged deliveries are held, at a block each, and not 25,000.
    let grown = bytes_on_disk(&node.directory) - before;
    assert!(grown < 16 << 20, "{grown} bytes more on disk");

    // The honest sender comes from elsewhere, and is served.
    eventually!(sender.clone().from("127.0.0.9").deliver("{}").await.status == 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_delivery_writes_one_line() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let mut connection = sender.connect().await;
    let mut ids = Vec::new();
    for number in 0..200 {
        ids.push(connection.exchange(&sender.delivery(format!("{number}"))).await.event_id());
    }
    eventually!(ids.iter().all(|id| node.output().contains(id.as_str())));
    let output = node.output();
    for id in &ids {
        assert_eq!(output.matches(id.as_str()).count(), 1, "{id}");
    }
}
