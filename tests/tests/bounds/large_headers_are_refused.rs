use tidegate_tests::{Appliance, Sender};

/// The refusal may come, and the connection go, before everything is sent.
async fn refusal(sender: &Sender, bytes: &[u8]) -> (u16, String) {
    let mut connection = sender.connect().await;
    let _ = connection.try_send(bytes).await;
    let response = connection.response().await;
    assert!(response.closes(), "{response}");
    (response.status, response.refusal())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_headers_are_refused() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let too_large = (431, "headers-too-large".to_owned());

    let one = sender.delivery("{}").header("X-Large", &"x".repeat(40 * 1024));
    assert_eq!(refusal(&sender, &one.bytes()).await, too_large);

    let many = (0..150).fold(sender.delivery("{}"), |request, n| request.header(&format!("X-{n}"), "x"));
    assert_eq!(refusal(&sender, &many.bytes()).await, too_large);

    // It never ends; the bound is on what has come, not on what is complete.
    let mut endless = sender.delivery("{}").head_bytes();
    endless.truncate(endless.len() - 2);
    endless.extend(b"X-Endless: ".iter().chain(std::iter::repeat_n(&b'x', 200 * 1024)));
    assert_eq!(refusal(&sender, &endless).await, too_large);

    let long = sender.delivery("{}").to(&format!("/hooks/wh_1?{}", "x".repeat(20_000)));
    assert_eq!(refusal(&sender, &long.bytes()).await, (414, "target-too-long".to_owned()));

    let fits = sender.delivery("{}").to(&format!("/hooks/wh_1?{}", "x".repeat(7_900)));
    assert_eq!(sender.send(&fits).await.status, 202, "a target of 8,000 bytes has to pass (RFC 9110, 4.1)");
    let fits = sender.delivery("{}").header("X-Large", &"x".repeat(16 * 1024));
    assert_eq!(sender.send(&fits).await.status, 202);
}
