use tidegate_tests::{Appliance, Request, endpoint, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn an_expectation_is_met_only_for_a_known_endpoint() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let request = sender.delivery("expected").header("Expect", "100-continue");

    let mut connection = sender.connect().await;
    connection.send(&request.head_bytes()).await;
    let go_on = connection.any_response().await.expect("an interim answer");
    assert_eq!(go_on.status, 100);
    connection.send(&request.body_bytes()).await;
    let response = connection.response().await;
    response.event_id();
    assert!(response.informational.is_empty(), "one 100 is enough");

    // The body is never asked for where it is of no use.
    let refused: [(&str, Request, u16); 4] = [
        ("unknown", request.clone().to("/hooks/wh_unknown"), 404),
        ("wrong method", Request { method: "PUT".into(), ..request.clone() }, 405),
        ("too large", request.clone().header("Content-Length", "999999999"), 413),
        ("another expectation", request.clone().replacing("Expect", "200-ok"), 417),
    ];
    for (what, request, status) in refused {
        let mut connection = sender.connect().await;
        connection.send(&request.head_bytes()).await;
        let response = connection.response().await;
        assert_eq!((response.status, &response.informational[..]), (status, &[][..]), "{what}: {response}");
        assert!(response.closes(), "{what}: a body may or may not follow, so the connection cannot go on");
    }
    assert_eq!(node.export().len(), 1);
}

/// Curl and others wait a second for the 100 and then send anyway; some do not wait at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_does_not_wait_is_served_too() {
    let node = Appliance::new().tenant(tenant("acme").endpoint(endpoint("wh_1"))).start().await;
    let sender = node.sender("wh_1");
    let response = sender.send(&sender.delivery("impatient").header("Expect", "100-continue")).await;
    response.event_id();
}
