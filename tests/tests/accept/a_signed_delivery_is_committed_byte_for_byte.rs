use tidegate_tests::Appliance;

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_delivery_is_committed_byte_for_byte() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let every_byte: Vec<u8> = (0..=255).cycle().take(3_000).collect();
    let request = sender
        .delivery(every_byte.clone())
        .header("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
        .header("x-gitHub-EVENT", "push")
        .header("X-Twice", "first")
        .header("X-Between", "x")
        .header("x-twice", "second")
        .to("/hooks/wh_1?ref=%2Fmain&x");

    let response = sender.send(&request).await;
    let id = response.event_id();
    assert_eq!(response.header("content-type"), Some("application/json"));

    let events = node.export();
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(event.id, id);
    assert_eq!(event.execution_id.strip_prefix("ex_"), id.strip_prefix("evt_"));
    assert_eq!((event.tenant.as_str(), event.endpoint.as_str()), ("acme", "wh_1"));
    assert_eq!(event.body, every_byte);
    assert_eq!(event.headers, request.wire_headers(), "in order, duplicates and spelling kept");
    let json = &event.json;
    assert_eq!(json["method"], "POST");
    assert_eq!(json["target"], "/hooks/wh_1?ref=%2Fmain&x");
    assert_eq!(json["scheme"], "github");
    assert_eq!(json["secret"], "primary");
    assert_eq!(json["class"], "normal");
    assert_eq!(json["bodyBytes"], 3_000);
    assert!(json["peer"].as_str().expect("a peer").starts_with("127.0.0.1:"), "{json}");
    // GitHub's signature covers the body alone: its delivery id is no evidence.
    assert_eq!(json["deliveryId"]["value"], "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    assert_eq!(json["deliveryId"]["signed"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_framing_and_not_body() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let body = vec![b'x'; 70_000];
    let request = sender.delivery(body.clone()).chunked(999);
    let id = sender.send(&request).await.event_id();

    let events = node.export();
    assert_eq!((events.len(), &events[0].id, &events[0].body), (1, &id, &body));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_is_a_body() {
    let node = Appliance::usual().start().await;
    let id = node.sender("wh_1").deliver("").await.event_id();
    let events = node.export();
    assert_eq!((events.len(), &events[0].id, events[0].body.len()), (1, &id, 0));
}
