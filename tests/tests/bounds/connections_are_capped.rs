use tidegate_tests::{Appliance, Connection, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_capped() {
    let node = Appliance::usual().set("gateway.listener", "connections_max", "8").start().await;
    let sender = node.sender("wh_1");
    let mut kept = Vec::new();
    for number in 0..8 {
        let mut connection = sender.connect().await;
        connection.exchange(&sender.delivery(format!("{number}"))).await.event_id();
        kept.push(connection);
    }
    let mut beyond = sender.connect().await;
    // It is told, and not only hung up on: a provider counts that as an answer and comes back.
    beyond.try_send(&sender.delivery("beyond").bytes()).await.expect("it is heard out");
    let response = beyond.try_response().await.expect("an answer");
    assert_eq!((response.status, response.header("retry-after").is_some()), (503, true), "{response}");
    // Those within the cap do not notice, and a place that is given up is taken.
    kept[3].exchange(&sender.delivery("still")).await.event_id();
    kept.pop();
    eventually!({
        let mut next = Connection::open(node.gateway).await;
        let sent = next.try_send(&sender.delivery("next").bytes()).await;
        sent.is_ok() && next.try_response().await.is_ok_and(|response| response.status == 202)
    });
}
