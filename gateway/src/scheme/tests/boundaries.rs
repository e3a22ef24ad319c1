//! The neighbours of each boundary, and the traps that others fell into.

use std::sync::Arc;

use domain::Secret;

use super::super::{KeyFault, SeenUrl, VerifyFault};
use super::{Delivery, NOW, key, label, preset};

const SECRET: &str = "a secret of thirty-two bytes ...";

fn signed(name: &str, body: &str) -> Delivery {
    let scheme = preset(name);
    Delivery::signed(scheme, &key(scheme, SECRET), Delivery::new("https://h.example/x", &[], body.as_bytes()), NOW)
}

#[test]
fn tolerance_ends_where_it_says() {
    for (name, old_ms, future_ms) in [
        ("stripe", 300_000, 60_000),
        ("slack", 300_000, 300_000),
        ("zoom", 300_000, 60_000),
        ("paddle", 5_000, 5_000),
        ("twitch", 600_000, 60_000),
        ("front", 300_000, 60_000),
        ("hubspot-v3", 300_000, 60_000),
        ("box", 600_000, 600_000),
    ] {
        let scheme = preset(name);
        let key = key(scheme, SECRET);
        let delivery = signed(name, "{}");
        for (now, expected) in [
            (NOW + old_ms, "verified"),
            (NOW + old_ms + 1, "too-old"),
            (NOW - future_ms, "verified"),
            (NOW - future_ms - 1, "in-future"),
        ] {
            assert_eq!(label(&delivery.judge(scheme, &[&key], now)), expected, "{name} at {now}");
        }
    }
    let scheme = preset("sanity");
    assert!(signed("sanity", "{}").judge(scheme, &[&key(scheme, SECRET)], u64::MAX).is_ok());
}

#[test]
fn a_timestamp_is_there_once_and_reads_one_way() {
    let scheme = preset("slack");
    let key = key(scheme, SECRET);
    let delivery = signed("slack", "{}");
    let mut twice = delivery.clone();
    twice.headers.push(("x-slack-request-timestamp".to_owned(), b"1790000000".to_vec()));
    assert_eq!(label(&twice.judge(scheme, &[&key], NOW)), "duplicate");
    for text in ["", "1790000000 ", "+1790000000", "1790000000.0", "1.79e9", "1790000000000"] {
        let mut other = delivery.clone();
        *other.header("x-slack-request-timestamp") = text.as_bytes().to_vec();
        assert!(matches!(label(&other.judge(scheme, &[&key], NOW)), "malformed" | "in-future"), "{text:?}");
    }
    let mut without = delivery;
    without.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("x-slack-request-timestamp"));
    assert_eq!(label(&without.judge(scheme, &[&key], NOW)), "missing");
}

#[test]
fn a_list_may_hold_signatures_of_other_keys() {
    let scheme = preset("stripe");
    let (old, new) = (key(scheme, SECRET), key(scheme, "another secret that is coming in"));
    let mut delivery = signed("stripe", "{}");
    let value = delivery.header("stripe-signature");
    value.extend_from_slice(b",v1=");
    value.extend_from_slice("0".repeat(64).as_bytes());
    value.extend_from_slice(b",v0=junk,v2=,x");
    assert!(delivery.judge(scheme, &[&old], NOW).is_ok());
    assert_eq!(delivery.judge(scheme, &[&new, &old], NOW).unwrap().key_index, 1);
    assert_eq!(label(&delivery.judge(scheme, &[&new], NOW)), "mismatch");
    // More signatures than anybody sends.
    delivery.header("stripe-signature").extend_from_slice(",v1=00".repeat(130).as_bytes());
    assert_eq!(label(&delivery.judge(scheme, &[&old], NOW)), "malformed");
}

#[test]
fn one_header_does_not_hold_two_signatures_where_one_is_meant() {
    let scheme = preset("github");
    let key = key(scheme, SECRET);
    let mut delivery = signed("github", "{}");
    let one = String::from_utf8(delivery.header("x-hub-signature-256").clone()).unwrap();
    for text in [
        format!("{one},{one}"),
        format!("{one}, {one}"),
        format!("{one} "),
        one.replace('=', "= "),
        one.replace("sha256=", ""),
        one.replace("sha256=", "sha1="),
        one[..one.len() - 2].to_owned(),
        format!("{one}00"),
    ] {
        *delivery.header("x-hub-signature-256") = text.clone().into_bytes();
        assert_eq!(label(&delivery.judge(scheme, &[&key], NOW)), "malformed", "{text}");
    }
    *delivery.header("x-hub-signature-256") = one.to_ascii_uppercase().replace("SHA256", "sha256").into_bytes();
    assert!(delivery.judge(scheme, &[&key], NOW).is_ok());
}

#[test]
fn bodies_are_bytes() {
    let scheme = preset("github");
    let key = key(scheme, SECRET);
    let long = "x".repeat(100_000);
    for body in [&b""[..], b"\xff\xfe\0", b"{\"a\":\"\\u20ac\"}\r\n", b"payload=%7B%7D", long.as_bytes()] {
        let delivery = Delivery::signed(scheme, &key, Delivery::new("https://h.example/x", &[], body), NOW);
        assert!(delivery.judge(scheme, &[&key], NOW).is_ok());
        let mut stripped = delivery;
        stripped.body.push(b'\n');
        assert_eq!(label(&stripped.judge(scheme, &[&key], NOW)), "mismatch");
    }
}

#[test]
fn an_id_cannot_swallow_its_separator() {
    let scheme = preset("standard-webhooks");
    let key = key(scheme, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
    let given = [("webhook-id", "msg_1.1790000000")];
    let sign = |headers: &[(&str, &str)], body: &str| Delivery::new("https://h.example/x", headers, body.as_bytes());
    let honest = Delivery::signed(scheme, &key, sign(&[("webhook-id", "msg_1")], "1790000000.{}"), NOW);
    assert!(honest.judge(scheme, &[&key], NOW).is_ok());
    // The same signed bytes, cut elsewhere.
    let mut forged = honest.clone();
    *forged.header("webhook-id") = given[0].1.as_bytes().to_vec();
    forged.body = b"{}".to_vec();
    assert_eq!(label(&forged.judge(scheme, &[&key], NOW)), "malformed");
    let id = honest.judge(scheme, &[&key], NOW).unwrap().delivery_id.unwrap();
    assert!(id.signed && *id.value == *b"msg_1");
    let mut empty = honest;
    empty.header("webhook-id").clear();
    assert_eq!(label(&empty.judge(scheme, &[&key], NOW)), "malformed");
}

#[test]
fn short_keys_are_refused_where_the_provider_has_none() {
    let refused = |name: &str, secret: &str| preset(name).key(&Secret::new(secret.as_bytes())).unwrap_err();
    assert_eq!(refused("github", ""), KeyFault::Empty);
    for name in ["svix", "openai", "gitlab-signing-token"] {
        assert_eq!(refused(name, "whsec_QUJD"), KeyFault::TooShort { have: 3, least: 16 });
        assert!(matches!(refused(name, "whsec_not base64!"), KeyFault::Undecodable(_)));
    }
    assert_eq!(refused("postmark", "no password"), KeyFault::NoPassword);
    assert!(matches!(refused("onfleet", "xyz"), KeyFault::Undecodable(_)));
}

#[test]
fn a_form_is_signed_as_it_reads() {
    let scheme = preset("twilio");
    let key = key(scheme, SECRET);
    let delivery = signed("twilio", "b=2&a=x%2By&a=x+y&a=x+y");
    assert!(delivery.judge(scheme, &[&key], NOW).is_ok());
    for (body, expected) in [
        ("a=x%2by&b=2&a=x%20y", "verified"),
        ("a=x%2By&b=2", "mismatch"),
        ("ax+y=&b=2", "mismatch"),
        ("a", "malformed"),
        ("a=x%2By&b&2", "malformed"),
        (r#"{"a":1}"#, "malformed"),
    ] {
        let mut other = delivery.clone();
        other.body = body.as_bytes().to_vec();
        assert_eq!(label(&other.judge(scheme, &[&key], NOW)), expected, "{body}");
    }
    let mut retyped = delivery;
    *retyped.header("content-type") = b"application/json".to_vec();
    assert_eq!(label(&retyped.judge(scheme, &[&key], NOW)), "body-rule");
}

#[test]
fn the_url_is_the_one_that_the_provider_was_given() {
    let scheme = preset("square");
    let key = key(scheme, SECRET);
    let delivery = Delivery::signed(scheme, &key, Delivery::new("https://h.example/x", &[], b"{}"), NOW);
    for (origin, target, expected) in [
        ("https://h.example", "/x", "verified"),
        ("http://h.example", "/x", "mismatch"),
        ("https://h.example:443", "/x", "mismatch"),
        ("https://other.example", "/x", "mismatch"),
        ("https://h.example", "/x/", "mismatch"),
        ("https://h.example", "/x?", "mismatch"),
    ] {
        let mut other = delivery.clone();
        origin.clone_into(&mut other.origin);
        other.target = target.as_bytes().to_vec();
        // What a forwarded header says about it is nobody's business here.
        other.headers.push(("X-Forwarded-Host".to_owned(), b"h.example".to_vec()));
        assert_eq!(label(&other.judge(scheme, &[&key], NOW)), expected, "{origin}{target}");
    }
    let (seen, target) = SeenUrl::split("https://h.example/base/x").unwrap();
    assert_eq!((seen.base_path, target), ("", "/base/x"));
}

#[test]
fn several_lists_in_one_header_are_few() {
    let scheme = preset("persona");
    let key = key(scheme, SECRET);
    let delivery = signed("persona", "{}");
    let fits = String::from_utf8(delivery.clone().header("persona-signature").clone()).unwrap();
    let stale = format!("t=1700000000,v1={}", "0".repeat(64));
    for (text, expected) in [
        (format!("{stale} {fits}"), "verified"),
        (format!("{stale} {stale} {stale} {fits}"), "verified"),
        (format!("{stale} {stale} {stale} {stale} {fits}"), "malformed"),
        (stale, "too-old"),
    ] {
        let mut other = delivery.clone();
        *other.header("persona-signature") = text.into_bytes();
        assert_eq!(label(&other.judge(scheme, &[&key], NOW)), expected);
    }
}

#[test]
fn labels_are_a_closed_set() {
    let what: Arc<str> = "x".into();
    let all = [
        VerifyFault::NoActiveKey,
        VerifyFault::Missing { what: Arc::clone(&what) },
        VerifyFault::Duplicate { what: Arc::clone(&what) },
        VerifyFault::Malformed { what: Arc::clone(&what) },
        VerifyFault::Requirement { what },
        VerifyFault::BodyRule,
        VerifyFault::Mismatch,
        VerifyFault::BodyDigest,
        VerifyFault::TooOld { by_ms: 1 },
        VerifyFault::InFuture { by_ms: 1 },
        VerifyFault::Replayed,
    ];
    assert_eq!(all.iter().map(VerifyFault::label).collect::<Vec<_>>(), VerifyFault::LABELS);
    assert!(all.iter().all(|fault| fault.to_string().chars().all(|c| !c.is_control())));
    assert_eq!(all[8].to_string(), "the timestamp is 1 s older than allowed");
}
