use tidegate_tests::Appliance;
use tidegate_tests::response::NoAnswer;

/// Every one of these has been taken for a whole body by some HTTP parser. The signature is that of the truncated
/// body, so that nothing but the framing stands between it and a 202.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_early_is_never_acknowledged() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let chunked = [
        ("an empty size", "5\r\nhello\r\n\r\n"),
        ("an empty size, and more", "5\r\nhello\r\n\r\n5\r\nworld\r\n0\r\n\r\n"),
        ("bytes in place of the last line", "5\r\nhello\r\n0\r\nXX"),
        ("bytes in place of the last line, and an end", "5\r\nhello\r\n0\r\nXX\r\n\r\n"),
        ("a bare line feed in an extension", "5;a\nhello\r\n0\r\n\r\n"),
        ("a bare line feed behind the size", "5\nhello\r\n0\r\n\r\n"),
        ("a NUL in an extension", "5;a=\0\r\nhello\r\n0\r\n\r\n"),
        ("no end of the chunk", "5\r\nhello0\r\n\r\n"),
        ("a negative size", "5\r\nhello\r\n-1\r\n\r\n"),
        ("a size with a prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("a size that wraps to five", "100000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("a size with a space", " 5\r\nhello\r\n0\r\n\r\n"),
        ("no last chunk", "5\r\nhello\r\n"),
        ("half a last chunk", "5\r\nhello\r\n0\r\n"),
        ("half a chunk", "9\r\nhello"),
    ];
    let head = {
        let mut request = sender.delivery("hello").chunked(5);
        request.body.clear();
        request.head_bytes()
    };
    let declared = sender.delivery("hello").header("Content-Length", "10").head_bytes();
    let cases = chunked.iter().map(|(what, body)| (*what, &head, *body)).chain([("half a length", &declared, "hello")]);
    for (what, head, body) in cases {
        let mut connection = sender.connect().await;
        connection.send(&[head, body.as_bytes()].concat()).await;
        connection.stream_shutdown().await;
        match connection.try_response().await {
            Ok(response) => assert_eq!(response.status, 400, "{what}: {response}"),
            // There is nobody left to answer to.
            Err(NoAnswer::Closed) => {}
            Err(NoAnswer::Cut(seen)) => panic!("{what}: half an answer: {seen}"),
        }
    }
    assert!(node.export().is_empty(), "a truncated body was stored");
    sender.deliver("hello").await.event_id();
}
