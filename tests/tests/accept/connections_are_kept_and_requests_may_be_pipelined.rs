use tidegate_tests::Appliance;

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_and_requests_may_be_pipelined() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let mut connection = sender.connect().await;

    let kept = connection.exchange(&sender.delivery("first")).await;
    let mut ids = vec![kept.event_id()];
    assert!(!kept.closes());

    let pipelined: Vec<u8> = (0..5).flat_map(|number| sender.delivery(format!("pipelined {number}")).bytes()).collect();
    connection.send(&pipelined).await;
    for _ in 0..5 {
        ids.push(connection.response().await.event_id());
    }

    // A refusal whose body was read in full does not end the connection.
    let refused = connection.exchange(&sender.clone().with_secret("wrong").delivery("refused")).await;
    assert_eq!(refused.status, 401);
    assert!(!refused.closes());
    let last = connection.exchange(&sender.delivery("last").header("Connection", "close")).await;
    ids.push(last.event_id());
    assert!(connection.is_closed_by_peer().await, "it closes when it is asked to");

    let stored: Vec<String> = node.export().into_iter().map(|event| event.id).collect();
    assert_eq!(stored, ids, "in the order of their connection");
}

/// What follows a request that was refused before its body was read must never be taken for a request.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_body_is_no_request() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let smuggled = sender.delivery("smuggled").bytes();
    for target in ["/hooks/wh_unknown", "/hooks/wh_1"] {
        let method = if target == "/hooks/wh_1" { "PUT" } else { "POST" };
        let mut outer = sender.unsigned(smuggled.clone()).to(target);
        outer.method = method.into();
        let mut connection = sender.connect().await;
        connection.send(&outer.bytes()).await;
        let response = connection.response().await;
        assert!(matches!(response.status, 404 | 405), "{response}");
        // Either the body was drained and the connection goes on, or it ends; a second answer is out of the question.
        connection.stream_shutdown().await;
        assert!(connection.is_closed_by_peer().await, "the body of a refused request was answered");
    }
    assert!(node.export().is_empty());
}
