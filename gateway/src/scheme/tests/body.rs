//! Signatures that stand in the body.

use super::super::Scheme;
use super::{Delivery, NOW, key, label, preset};

const ADYEN_KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

fn item(reference: &str, value: u64, signature: &str) -> String {
    let signed = if signature.is_empty() {
        String::new()
    } else {
        format!(r#","additionalData":{{"hmacSignature":"{signature}"}}"#)
    };
    format!(
        r#"{{"NotificationRequestItem":{{"pspReference":"7914073381342284","merchantAccountCode":"TestMerchant","merchantReference":"{reference}","amount":{{"value":{value},"currency":"EUR"}},"eventCode":"AUTHORISATION","success":"true"{signed}}}}}"#
    )
}

/// What Adyen's libraries sign of such an item.
fn signed(reference: &str, value: u64) -> String {
    let content = format!("7914073381342284::TestMerchant:{reference}:{value}:EUR:AUTHORISATION:true");
    let secret = data_encoding::HEXUPPER.decode(ADYEN_KEY.as_bytes()).unwrap();
    let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret), content.as_bytes());
    data_encoding::BASE64.encode(tag.as_ref())
}

fn adyen(items: &[String]) -> &'static str {
    let body = format!(r#"{{"live":"false","notificationItems":[{}]}}"#, items.join(","));
    let scheme = preset("adyen");
    label(&Delivery::new("https://h.example/x", &[], body.as_bytes()).judge(scheme, &[&key(scheme, ADYEN_KEY)], NOW))
}

#[test]
fn every_item_has_to_be_signed_and_a_forged_second_one_refuses_all() {
    let good = |reference: &str| item(reference, 1130, &signed(reference, 1130));
    assert_eq!(signed("TestPayment-1407325143704", 1130), "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=");
    assert_eq!(adyen(&[good("a")]), "verified");
    assert_eq!(adyen(&[good("a"), good("b"), good("c")]), "verified");
    // A reference of the merchant's own may hold colons; nothing else may, so that there is one reading.
    assert_eq!(adyen(&[good("a:b")]), "verified");
    assert_eq!(adyen(&[good("a"), item("b", 999_999, &signed("b", 1130))]), "mismatch");
    assert_eq!(adyen(&[good("a"), item("b", 1130, "")]), "missing");
    assert_eq!(adyen(&[item("b", 1130, ""), good("a")]), "missing");
    assert_eq!(adyen(&[]), "missing");
    let shifted = good("a").replace("\"currency\":\"EUR\"", "\"currency\":\"E:UR\"");
    assert_eq!(adyen(&[shifted]), "malformed");
    let twice = good("a").replace("\"success\":\"true\"", "\"success\":\"false\",\"success\":\"true\"");
    assert_eq!(adyen(&[twice]), "duplicate");
    assert_eq!(adyen(&vec![good("a"); 65]), "malformed");
}

#[test]
fn a_body_that_is_no_list_of_items_is_refused() {
    let scheme = preset("adyen");
    let key = key(scheme, ADYEN_KEY);
    for body in ["", "[]", "{}", r#"{"notificationItems":1}"#, r#"{"notificationItems":[1]}"#, &"[".repeat(100_000)] {
        let verdict = Delivery::new("https://h.example/x", &[], body.as_bytes()).judge(scheme, &[&key], NOW);
        assert!(matches!(label(&verdict), "missing" | "malformed"), "{body:.20} {verdict:?}");
    }
    let large = format!(r#"{{"x":"{}"}}"#, "y".repeat(1 << 18));
    let verdict = Delivery::new("https://h.example/x", &[], large.as_bytes()).judge(scheme, &[&key], NOW);
    assert_eq!(label(&verdict), "malformed");
}

const MAILGUN_KEY: &str = "key-0p6mqbf74lb20gzq9f4dhpn9rg3zyk26";

fn mailgun(more: &str) -> Delivery {
    let body = format!(
        r#"{{"signature": {{"token": "d1931d9645b65e60f6fddf94448e982ff8db9256144a7fcb15", "timestamp": "1661621787", "signature": "1aed11dcc25700d6b75f9a6d568343ea02ecdd3fc89cc3209e2883a19e5cdd50"}}, "event-data": {{{more}}}}}"#
    );
    Delivery::new("https://h.example/x", &[], body.as_bytes())
}

#[test]
fn a_signature_without_the_body_names_the_token_that_proves_one() {
    let scheme = preset("mailgun");
    let key = key(scheme, MAILGUN_KEY);
    let at = 1_661_621_787_000;
    let (one, other) = (mailgun("").judge(scheme, &[&key], at), mailgun("\"a\":1").judge(scheme, &[&key], at));
    let (one, other) = (one.unwrap(), other.unwrap());
    // Both fit, and both name the same token: who takes deliveries takes the first.
    assert_eq!((one.once, one.covers_body), (other.once, false));
    assert!(one.once.is_some());
    assert_eq!(scheme.once_ms(), Some(16 * 60_000));
    assert_eq!(label(&mailgun("").judge(scheme, &[&key], at + 900_001)), "too-old");
    for other in super::PRESETS.iter().filter(|other| other.name() != "mailgun") {
        assert_eq!(other.once_ms(), None, "{}", other.name());
    }
}

#[test]
fn what_proves_one_delivery_is_signed_and_ends() {
    let faults = |rest: &str| {
        let base = "name = \"x\"\nalgorithm = \"hmac-sha256\"\nsignature = { header = \"X\", encoding = \"hex\" }\n";
        let declared = toml::from_str(&format!("{base}{rest}")).unwrap();
        Scheme::compile(&declared).map(drop).map_err(|faults| faults[0].message.clone())
    };
    let timed = "timestamp = { from = \"header:T\", format = \"seconds\", old = \"5m\", future = \"1m\" }";
    assert!(faults(&format!("content = \"{{timestamp}}{{header:N}}\"\nonce = \"header:N\"\n{timed}")).is_ok());
    let unsigned = faults(&format!("content = \"{{timestamp}}\"\nonce = \"header:N\"\n{timed}")).unwrap_err();
    assert!(unsigned.contains("does not cover `once`"), "{unsigned}");
    let endless = faults("content = \"{header:N}\"\nonce = \"header:N\"").unwrap_err();
    assert!(endless.contains("`timestamp`"), "{endless}");
}

fn braintree(body: &str) -> &'static str {
    let scheme = preset("braintree");
    let key = key(scheme, "integration_private_key");
    label(&Delivery::new("https://h.example/x", &[], body.as_bytes()).judge(scheme, &[&key], NOW))
}

#[test]
fn a_form_of_two_fields_has_no_third() {
    let body = preset("braintree").declaration().known_answers[0].body.clone();
    assert_eq!(braintree(&body), "verified");
    assert_eq!(braintree(&format!("{body}&kind=x")), "body-rule");
    assert_eq!(braintree(&format!("{body}&bt_payload=x")), "body-rule");
    let payload = body.split("bt_payload=").nth(1).unwrap();
    assert_eq!(braintree(&body.replace(payload, "eA%3D%3D")), "mismatch");
    // The newline at the end of the payload is signed.
    assert_eq!(braintree(&body.replace("%0A", "")), "mismatch");
    assert_eq!(braintree(&format!("bt_payload={payload}&bt_payload={payload}")), "missing");
}
