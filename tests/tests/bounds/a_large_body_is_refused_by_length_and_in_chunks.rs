use tidegate_tests::{Appliance, endpoint, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_is_refused_by_length_and_in_chunks() {
    let small = endpoint("wh_small").set("body_bytes_max", "\"1KiB\"");
    let node = Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1")).endpoint(small))
        .set("gateway", "body_bytes_max", "\"64KiB\"")
        .start()
        .await;
    for (id, bound) in [("wh_1", 64 * 1024), ("wh_small", 1024)] {
        let sender = node.sender(id);
        for chunks in [None, Some(500)] {
            let of = |length: usize| {
                let mut request = sender.delivery(vec![b'x'; length]);
                request.chunks = chunks;
                request
            };
            assert_eq!(sender.send(&of(bound)).await.status, 202, "{id}: exactly {bound} bytes, {chunks:?}");
            // The refusal may come, and the connection go, before everything is sent.
            let mut connection = sender.connect().await;
            let _ = connection.try_send(&of(bound + 1).bytes()).await;
            let response = connection.response().await;
            assert_eq!((response.status, response.refusal().as_str()), (413, "body-too-large"), "{id}, {chunks:?}");
        }
    }
    assert_eq!(node.export().len(), 4);
}

/// A length alone is enough to be refused: nobody waits for a gigabyte.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_alone_is_enough() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    for length in ["999999999", "18446744073709551615"] {
        let mut connection = sender.connect().await;
        connection.send(&sender.delivery("{}").header("Content-Length", length).head_bytes()).await;
        let response = connection.response().await;
        assert_eq!(response.refusal(), "body-too-large", "{length}");
        assert!(response.closes());
    }
    let mut connection = sender.connect().await;
    connection.send(&sender.delivery("{}").header("Content-Length", "18446744073709551616").head_bytes()).await;
    assert!(matches!(connection.response().await.status, 400 | 413), "a length beyond 64 bits wraps to nothing");
}
