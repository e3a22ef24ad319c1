use tidegate_tests::{Appliance, endpoint, tenant};

/// A token in a header is the secret itself: it proves the sender and is then forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_not_stored() {
    let token = "canary-gitlab-token-5b1f";
    let gitlab = endpoint("wh_1").scheme("gitlab").secret("primary", token);
    let node = Appliance::new().tenant(tenant("acme").endpoint(gitlab)).start().await;
    let sender = node.sender("wh_1");
    let request = sender.unsigned("{}").header("X-Gitlab-Token", token).header("X-Gitlab-Event", "Push Hook");
    sender.send(&request).await.event_id();

    let events = node.export();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].header("x-gitlab-event"), Some("Push Hook"));
    assert_eq!(events[0].header("x-gitlab"), None);
    assert!(!events[0].json.to_string().contains(token));
}
