use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::{BASE64, HEXLOWER};
use tidegate_tests::{Appliance, Node, Request, Response, endpoint, eventually, signing, tenant};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// An endpoint of each scheme, named after it; `meta` has a verify token.
async fn node(schemes: &[&str]) -> Node {
    let mut acme = tenant("acme");
    for scheme in schemes {
        let mut one = endpoint(&format!("wh_{scheme}")).scheme(scheme);
        if *scheme == "meta" {
            // The file of the token is written as that of a second secret.
            one = one
                .another_secret("verify", "verify-me-7b3f")
                .set("handshake", "{ token = \"secret:wh_meta-verify\" }");
        }
        acme = acme.endpoint(one);
    }
    Appliance::new().tenant(acme).set("logging", "format", "\"text\"").start().await
}

async fn ask(
    node: &Node,
    scheme: &str,
    method: &str,
    query: &str,
    change: impl FnOnce(Request) -> Request,
) -> Response {
    let sender = node.sender(&format!("wh_{scheme}"));
    let request = Request::new(method, &format!("{}{query}", sender.target)).header("Host", &sender.host);
    sender.send(&change(request)).await
}

fn heard(response: &Response) -> (u16, Option<&str>, String) {
    (response.status, response.header("content-type"), String::from_utf8(response.body.clone()).expect("text"))
}

const TEXT: Option<&str> = Some("text/plain; charset=utf-8");
const JSON: Option<&str> = Some("application/json");

/// Slack and Zoom sign `v0:{seconds}:{body}` under names of their own.
fn v0(request: Request, prefix: &str, secret: &str, body: &str) -> Request {
    let seconds = now();
    let mac = HEXLOWER.encode(&signing::mac(secret.as_bytes(), format!("v0:{seconds}:{body}").as_bytes()));
    let (signature, timestamp) = match prefix {
        "slack" => ("X-Slack-Signature", "X-Slack-Request-Timestamp"),
        _ => ("x-zm-signature", "x-zm-request-timestamp"),
    };
    request.header(signature, &format!("v0={mac}")).header(timestamp, &seconds.to_string()).body(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_is_echoed_in_the_form_that_its_provider_reads() {
    let node = node(&["meta", "dropbox", "microsoft-graph", "okta", "azure-event-grid"]).await;
    let same = |request| request;
    let meta = "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    let right = ask(&node, "meta", "GET", &format!("{meta}verify-me-7b3f"), same).await;
    assert_eq!(heard(&right), (200, TEXT, "1158201444".into()));
    assert_eq!(right.header("x-content-type-options"), Some("nosniff"));
    for token in ["", "wrong", "the+secret+of+wh_meta"] {
        let wrong = ask(&node, "meta", "GET", &format!("{meta}{token}"), same).await;
        assert_eq!((wrong.status, wrong.refusal().as_str()), (403, "handshake-refused"), "{token}");
    }
    let dropbox = ask(&node, "dropbox", "GET", "?challenge=abc-123_X", same).await;
    assert_eq!(heard(&dropbox), (200, TEXT, "abc-123_X".into()));
    let page = ask(&node, "dropbox", "GET", "?challenge=%3Cscript%3E", same).await;
    assert_eq!(page.refusal(), "handshake-refused");
    assert!(!String::from_utf8_lossy(&page.body).contains("script"));
    let graph = ask(&node, "microsoft-graph", "POST", "?validationToken=Validation%3A+Testing+client", same).await;
    assert_eq!(heard(&graph), (200, TEXT, "Validation: Testing client".into()));
    let okta =
        ask(&node, "okta", "GET", "", |request| request.header("X-Okta-Verification-Challenge", "Cxn9a7eHaXUmU4C6"))
            .await;
    assert_eq!(heard(&okta), (200, JSON, r#"{"verification":"Cxn9a7eHaXUmU4C6"}"#.into()));
    let grid = r#"[{"id":"1","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}}]"#;
    let grid = ask(&node, "azure-event-grid", "POST", "", |request| {
        request.header("aeg-event-type", "SubscriptionValidation").header("Content-Type", "application/json").body(grid)
    })
    .await;
    assert_eq!(heard(&grid), (200, JSON, r#"{"validationResponse":"512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}"#.into()));
    // Without its question, a GET is no handshake; and a method that is none stays none.
    assert_eq!(ask(&node, "dropbox", "GET", "", same).await.refusal(), "method-not-allowed");
    let put = ask(&node, "dropbox", "PUT", "", same).await;
    assert_eq!((put.refusal().as_str(), put.header("allow")), ("method-not-allowed", Some("POST, GET")));
    assert!(node.export().is_empty());
    eventually!(node.output().contains("handshake tenant=acme endpoint=wh_dropbox scheme=dropbox kind=echo"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_made_with_the_endpoints_secret_and_is_no_signature() {
    let node = node(&["x", "linkedin", "zoom"]).await;
    let secret = node.sender("wh_x").secret;
    let mac = |content: &[u8]| signing::mac(secret.as_bytes(), content);
    let x = ask(&node, "x", "GET", "?crc_token=MDgyODFkYzU&nonce=1", |request| request).await;
    let expected = format!(r#"{{"response_token":"sha256={}"}}"#, BASE64.encode(&mac(b"MDgyODFkYzU")));
    assert_eq!(heard(&x), (200, JSON, expected));

    // What it gave out signs a body, and such a body is not taken.
    let forged = format!("sha256={}", BASE64.encode(&mac(b"MDgyODFkYzU")));
    let forged = ask(&node, "x", "POST", "", |request| {
        request.header("X-Twitter-Webhooks-Signature", &forged).body("MDgyODFkYzU")
    })
    .await;
    assert_eq!(forged.refusal(), "signature-invalid");
    // What could be a delivery is not signed.
    for token in ["%7B%22a%22%3A1%7D", "", "a&crc_token=b", &"a".repeat(200)] {
        let refused = ask(&node, "x", "GET", &format!("?crc_token={token}"), |request| request).await;
        assert!(["handshake-refused", "method-not-allowed"].contains(&refused.refusal().as_str()), "{token}");
    }
    let body = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let zoom_secret = node.sender("wh_zoom").secret;
    let zoom = ask(&node, "zoom", "POST", "", |request| v0(request, "zoom", &zoom_secret, body)).await;
    let digest = HEXLOWER.encode(&signing::mac(zoom_secret.as_bytes(), b"qgg8vlvZRS6UYooatFL8Aw"));
    assert_eq!(zoom.json()["encryptedToken"], digest);
    let unsigned = ask(&node, "zoom", "POST", "", |request| request.body(body)).await;
    assert_eq!(unsigned.refusal(), "signature-invalid", "whoever cannot sign gets nothing signed");
    assert!(node.export().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_pings_get_exactly_what_proves_the_endpoint() {
    let node = node(&["slack", "xero", "trello", "azure-event-grid", "twitch"]).await;
    let slack = r#"{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmd","type":"url_verification"}"#;
    let secret = node.sender("wh_slack").secret;
    let right = ask(&node, "slack", "POST", "", |request| v0(request, "slack", &secret, slack)).await;
    assert_eq!(heard(&right), (200, TEXT, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmd".into()));
    let wrong = ask(&node, "slack", "POST", "", |request| v0(request, "slack", "another", slack)).await;
    assert_eq!(wrong.refusal(), "signature-invalid");

    let xero = r#"{"events":[],"lastEventSequence":0,"firstEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}"#;
    let mac = BASE64.encode(&signing::mac(node.sender("wh_xero").secret.as_bytes(), xero.as_bytes()));
    for (signature, status) in [(mac.as_str(), 200), ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 401)] {
        let answer =
            ask(&node, "xero", "POST", "", |request| request.header("x-xero-signature", signature).body(xero)).await;
        assert_eq!(heard(&answer), (status, None, String::new()));
    }
    // An event of the same endpoint is one.
    let event = r#"{"events":[{}],"lastEventSequence":2,"firstEventSequence":1,"entropy":"x"}"#;
    let mac = BASE64.encode(&signing::mac(node.sender("wh_xero").secret.as_bytes(), event.as_bytes()));
    let taken = ask(&node, "xero", "POST", "", |request| request.header("x-xero-signature", &mac).body(event)).await;
    assert_eq!(heard(&taken), (200, None, String::new()));
    assert!(taken.header("tidegate-event").is_some_and(|id| id.starts_with("evt_")));

    let sender = node.sender("wh_trello");
    let mut connection = sender.connect().await;
    connection
        .send(
            format!("HEAD {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", sender.target, sender.host).as_bytes(),
        )
        .await;
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut connection.stream, &mut answer).await.expect("an answer");
    assert!(
        answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"\r\n\r\n"),
        "{}",
        String::from_utf8_lossy(&answer)
    );

    let origin = |origin: &'static str| {
        move |request: Request| request.header("WebHook-Request-Origin", origin).header("WebHook-Request-Rate", "120")
    };
    let welcome = ask(&node, "azure-event-grid", "OPTIONS", "", origin("eventgrid.azure.net")).await;
    assert_eq!(welcome.status, 200);
    assert_eq!(welcome.header("webhook-allowed-origin"), Some("eventgrid.azure.net"));
    assert_eq!((welcome.header("webhook-allowed-rate"), welcome.header("allow")), (Some("*"), Some("POST")));
    let other = ask(&node, "azure-event-grid", "OPTIONS", "", origin("evil.example")).await;
    assert_eq!((other.refusal().as_str(), other.header("webhook-allowed-origin")), ("handshake-refused", None));

    assert_eq!(node.export().len(), 1, "Xero's one event");
    let held = node.cli_ok(&["events", "list", "--tenant", "acme", "--held", "--json"]);
    assert_eq!(held.lines().filter(|line| line.contains("wh_slack")).count(), 0, "a handshake is not held: {held}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_without_end_is_a_stranger_that_does_too_much() {
    let node = node(&["dropbox"]).await;
    let mut taken = 0;
    for _ in 0..200 {
        let response = ask(&node, "dropbox", "GET", "?challenge=a", |request| request).await;
        match response.status {
            200 => taken += 1,
            429 => assert!(["source-throttled", "rate-limited"].contains(&response.refusal().as_str())),
            other => panic!("{other}"),
        }
    }
    assert!((100..200).contains(&taken), "{taken}");
}
