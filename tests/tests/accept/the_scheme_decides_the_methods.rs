use tidegate_tests::{Appliance, Request};

#[tokio::test(flavor = "multi_thread")]
async fn the_scheme_decides_the_methods() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let request = Request { method: method.into(), ..sender.delivery("{}") };
        let response = sender.send(&request).await;
        assert_eq!((response.status, response.refusal().as_str()), (405, "method-not-allowed"), "{method}");
        assert_eq!(response.header("allow"), Some("POST"));
    }
    assert!(node.export().is_empty());
}
