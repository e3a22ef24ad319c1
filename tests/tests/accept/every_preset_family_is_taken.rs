use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use tidegate_tests::signing;
use tidegate_tests::{Appliance, Request, endpoint, tenant};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn with(request: Request, headers: impl IntoIterator<Item = (String, String)>) -> Request {
    headers.into_iter().fold(request, |request, (name, value)| request.header(&name, &value))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_in_the_signature_bounds_replays() {
    let node = Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1").scheme("stripe").secret("primary", "whsec_stripe_secret")))
        .start()
        .await;
    let sender = node.sender("wh_1");
    let at = |seconds: u64| with(sender.unsigned("{}"), [signing::stripe(sender.secret.as_bytes(), b"{}", seconds)]);
    assert_eq!(sender.send(&at(now())).await.status, 202);
    assert_eq!(sender.send(&at(now() - 240)).await.status, 202, "within the five minutes of Stripe's tolerance");
    assert_eq!(sender.send(&at(now() - 3_600)).await.refusal(), "signature-invalid", "an hour old");
    assert_eq!(sender.send(&at(now() + 3_600)).await.refusal(), "signature-invalid", "an hour ahead");
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_webhooks_are_taken_and_their_id_is_evidence() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let node = Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1").scheme("standard-webhooks").secret("primary", secret)))
        .start()
        .await;
    let sender = node.sender("wh_1");
    let signed = with(sender.unsigned("{}"), signing::standard(secret, "msg_1", b"{}", now()));
    sender.send(&signed).await.event_id();
    let relabelled = signed.replacing("webhook-id", "msg_2");
    assert_eq!(sender.send(&relabelled).await.refusal(), "signature-invalid", "the id is signed");

    let events = node.export();
    assert_eq!(events[0].json["deliveryId"]["value"], "msg_1");
    assert_eq!(events[0].json["deliveryId"]["signed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_active_secret_will_do_and_the_event_says_which() {
    let rotating = endpoint("wh_1").secret("old", "yesterday's secret").another_secret("new", "tomorrow's secret");
    let node = Appliance::new().tenant(tenant("acme").endpoint(rotating)).start().await;
    let sender = node.sender("wh_1");
    sender.deliver("a").await.event_id();
    sender.clone().with_secret("tomorrow's secret").deliver("b").await.event_id();
    let used: Vec<_> = node.export().into_iter().map(|event| event.json["secret"].clone()).collect();
    assert_eq!(used, ["old", "new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_can_declare_a_scheme_of_its_own() {
    let declared = r#"
[[scheme]]
name = "in-house"
algorithm = "hmac-sha256"
content = "{body}"
[scheme.signature]
header = "X-Acme-Signature"
encoding = "hex"
"#;
    let own = tenant("acme").endpoint(endpoint("wh_1").scheme("in-house")).extra(declared);
    let node = Appliance::new().tenant(own).start().await;
    let sender = node.sender("wh_1");
    let mac = HEXLOWER.encode(&signing::mac(sender.secret.as_bytes(), b"{}"));
    let request = sender.unsigned("{}").header("X-Acme-Signature", &mac);
    sender.send(&request).await.event_id();
    assert_eq!(sender.deliver("{}").await.refusal(), "signature-invalid", "GitHub's form is not this one's");
}
