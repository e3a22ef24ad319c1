//! Schemes that a tenant declares.

use config::scheme::SchemeDeclaration;

use super::super::{Scheme, VerifyFault};
use super::{Delivery, NOW, key, label};

fn faults(toml: &str) -> Vec<String> {
    let declared: SchemeDeclaration = toml::from_str(toml).unwrap();
    let faults = Scheme::compile(&declared).expect_err("should not compile");
    faults.into_iter().map(|fault| fault.message).collect()
}

fn compile(toml: &str) -> std::sync::Arc<Scheme> {
    Scheme::compile(&toml::from_str(toml).unwrap()).unwrap()
}

#[test]
fn a_tenant_declares_a_scheme_of_its_own() {
    let scheme = compile(
        r#"
        name = "acme-erp"
        algorithm = "hmac-sha512"
        key = { decode = "base64", strip = ["acme_"], bytes_min = 16 }
        signature = { header = "X-Acme", encoding = "base64url-nopad", list = { separator = ";", key = "s" } }
        content = "{method} {url}\n{field:t}\n{delivery_id}|{body_hash:sha256:hex}"
        timestamp = { from = "field:t", format = "milliseconds", old = "30s", future = "2s" }
        delivery_id = "header:X-Acme-Delivery"
        url = { variants = ["as-seen", "without-trailing-slash"] }
        methods = ["POST", "PUT"]
        strip = ["X-Acme-Debug"]
        redelivery = { automatic = true, after_429 = true }
        answer = { status = 200 }
    "#
        .replace("{field:t}", "{timestamp}")
        .as_str(),
    );
    assert_eq!(scheme.methods(), ["POST", "PUT"]);
    assert_eq!(*scheme.strips(), [Box::<str>::from("x-acme-debug")]);
    assert!(scheme.redelivers() && scheme.covers_body() && scheme.delivery_id_signed());
    let key = key(&scheme, "acme_MDEyMzQ1Njc4OWFiY2RlZg==");
    let mut delivery = Delivery::new("https://h.example/x?y", &[], b"<order/>");
    delivery.method = "PUT".to_owned();
    let delivery = Delivery::signed(&scheme, &key, delivery, NOW);
    let verified = delivery.judge(&scheme, &[&key], NOW + 30_000).unwrap();
    assert_eq!(verified.signed_at_unix_ms, Some(NOW));
    assert_eq!(label(&delivery.judge(&scheme, &[&key], NOW + 30_001)), "too-old");
    assert_eq!(label(&delivery.judge(&scheme, &[&key], NOW - 2_001)), "in-future");
    let mut slash = delivery.clone();
    slash.target = b"/x/?y".to_vec();
    assert!(slash.judge(&scheme, &[&key], NOW).is_ok());
    let mut posted = delivery;
    posted.method = "POST".to_owned();
    assert_eq!(label(&posted.judge(&scheme, &[&key], NOW)), "mismatch");
}

#[test]
fn the_documented_example_works() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schemes.md")).unwrap();
    let example = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let table: std::collections::BTreeMap<String, Vec<SchemeDeclaration>> = toml::from_str(example).unwrap();
    let scheme = Scheme::compile(&table["scheme"][0]).unwrap();
    assert_eq!(scheme.self_test(), Ok(2));
    let token = text.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    let table: std::collections::BTreeMap<String, Vec<SchemeDeclaration>> = toml::from_str(token).unwrap();
    assert!(Scheme::compile(&table["scheme"][0]).unwrap().covers_body());
    for label in VerifyFault::LABELS {
        assert!(text.contains(&format!("`{label}`")), "docs/schemes.md does not explain {label}");
    }
}

#[test]
fn a_known_answer_that_does_not_come_out_is_said() {
    let text = r#"
        name = "x"
        algorithm = "token"
        signature = { header = "X" }
        known_answer = [
            { secret = "abc", headers = { X = "abc" } },
            { secret = "abc", headers = { X = "abd" } },
            { secret = "abc", headers = { X = "abc" }, fault = "mismatch" },
            { secret = "abc", headers = { X = "abd" }, fault = "missing" },
            { secret = "", headers = { X = "" } },
            { secret = "abc", url = "nowhere" },
        ]
    "#;
    let faults = compile(text).self_test().unwrap_err();
    assert_eq!(faults.len(), 5, "{faults:#?}");
    assert!(faults[0].message.contains("known answer 2 of scheme x"));
    assert_eq!(faults[0].key, "known_answer[1]");
}

#[test]
fn a_signature_may_be_in_the_body() {
    let scheme = compile(
        r#"
        name = "in-body"
        algorithm = "hmac-sha256"
        signature = { from = "json:/signature/signature", encoding = "hex" }
        content = "{timestamp}{delivery_id}"
        timestamp = { from = "json:/signature/timestamp", format = "seconds", old = "8h", future = "1m" }
        delivery_id = "json:/signature/token"
    "#,
    );
    // Mailgun's recipe, with the answer that its libraries test.
    let body = r#"{"signature": {"token": "d1931d9645b65e60f6fddf94448e982ff8db9256144a7fcb15", "timestamp": "1661621787", "signature": "1aed11dcc25700d6b75f9a6d568343ea02ecdd3fc89cc3209e2883a19e5cdd50"}, "event-data": {}}"#;
    let key = key(&scheme, "key-0p6mqbf74lb20gzq9f4dhpn9rg3zyk26");
    let delivery = Delivery::new("https://h.example/x", &[], body.as_bytes());
    let verified = delivery.judge(&scheme, &[&key], 1_661_621_787_000).unwrap();
    assert!(!verified.covers_body, "any body fits that signature");
    let id = verified.delivery_id.unwrap();
    assert!(id.signed && id.value.starts_with(b"d1931d96"));
    let twice = body.replace(r#""token""#, r#""timestamp": "1661621787", "token""#);
    let twice = Delivery::new("https://h.example/x", &[], twice.as_bytes());
    assert_eq!(label(&twice.judge(&scheme, &[&key], 1_661_621_787_000)), "duplicate");
}

#[test]
fn a_timestamp_in_a_signed_body_may_be_absent_but_not_wrong() {
    let scheme = super::preset("linear");
    let key = key(scheme, "a secret of thirty-two bytes ...");
    for (body, expected) in [
        (r#"{"a":1}"#.to_owned(), "verified"),
        (format!(r#"{{"webhookTimestamp":{NOW}}}"#), "verified"),
        (format!(r#"{{"webhookTimestamp":{}}}"#, NOW - 60_001), "too-old"),
        (r#"{"webhookTimestamp":"soon"}"#.to_owned(), "malformed"),
        (format!(r#"{{"webhookTimestamp":{NOW},"webhookTimestamp":{NOW}}}"#), "duplicate"),
    ] {
        let mut delivery = Delivery::new("https://h.example/x", &[], b"");
        delivery.body = body.clone().into_bytes();
        let mac = ring::hmac::sign(
            &ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"a secret of thirty-two bytes ..."),
            body.as_bytes(),
        );
        delivery.headers.push(("Linear-Signature".into(), data_encoding::HEXLOWER.encode(mac.as_ref()).into_bytes()));
        assert_eq!(label(&delivery.judge(scheme, &[&key], NOW)), expected, "{body}");
    }
    // The body is not read before its signature fits.
    let unsigned = Delivery::new("https://h.example/x", &[("Linear-Signature", &"0".repeat(64))], b"not json");
    assert_eq!(label(&unsigned.judge(scheme, &[&key], NOW)), "mismatch");
}

#[test]
fn declarations_that_prove_nothing_do_not_compile() {
    let base = "name = \"x\"\nalgorithm = \"hmac-sha256\"\nsignature = { header = \"X\", encoding = \"hex\" }\n";
    for (rest, word) in [
        ("", "`content`"),
        ("content = \"constant\"", "nothing of the delivery"),
        ("content = \"{timestamp}{body}\"", "`timestamp`"),
        ("content = \"{delivery_id}{body}\"", "`delivery_id`"),
        ("content = \"{secret}{body}\"", "leave {secret} out"),
        (
            "content = \"{body}\"\ntimestamp = { from = \"header:T\", format = \"seconds\", old = \"5m\", future = \"5m\" }",
            "anybody could renew it",
        ),
        (
            "content = \"{body}\"\ntimestamp = { from = \"field:t\", format = \"seconds\", old = \"5m\", future = \"5m\" }",
            "no field t",
        ),
        (
            "content = \"{timestamp}{body}\"\ntimestamp = { from = \"header:T\", format = \"seconds\", old = \"5m\", future = \"5m\", required = false }",
            "leave it out",
        ),
        ("content = \"{body}\"\nurl = { variants = [\"with-port\"] }", "content has none"),
        ("content = \"[{body}]\"", "[…]"),
        ("content = \"{body}\"\nmethods = []", "methods is empty"),
        ("content = \"{body}\"\nanswer = { status = 500 }", "answer.status"),
        ("content = \"{body}\"\nredelivery = { after_429 = true }", "redelivery"),
        ("content = \"{body}\"\nrequire = [{ header = \"A b\", equals = [\"x\"] }]", "no header's name"),
        ("content = \"{body}\"\nrequire = [{ header = \"A\", equals = [] }]", "equals nothing"),
        (
            "[[case]]\ncontent = \"{method}\"\nbody_digest = { from = \"header:D\", hash = \"sha256\", encoding = \"hex\" }",
            "does not cover body_digest",
        ),
        (
            "content = \"[{url}{header:X-Opt}]{body}\"\ntimestamp = { from = \"query:t\", format = \"seconds\", old = \"5m\", future = \"5m\" }",
            "anybody could renew it",
        ),
    ] {
        let faults = faults(&format!("{base}{rest}"));
        assert!(faults.iter().any(|fault| fault.contains(word)), "{rest}: {faults:#?}");
    }
    let hash = "name = \"x\"\nalgorithm = \"sha256\"\nsignature = { header = \"X\", encoding = \"hex\" }\ncontent = \"{body}\"";
    assert!(faults(hash)[0].contains("{secret}"));
    for (place, word) in [
        ("from = \"query:token\"", "in the query"),
        ("headers = [\"A\", \"B\"]", "one place"),
        ("numbered = \"A-\"", "one place"),
    ] {
        let token = format!("name = \"x\"\nalgorithm = \"token\"\nsignature = {{ {place} }}");
        assert!(faults(&token).iter().any(|fault| fault.contains(word)), "{place}");
    }
    compile(
        "name = \"x\"\nalgorithm = \"hmac-sha256\"\nsignature = { header = \"X\", encoding = \"hex\" }\ncontent = \"{url}{body}\"\ntimestamp = { from = \"query:t\", format = \"seconds\", old = \"5m\", future = \"5m\" }",
    );
    let token = "name = \"X y\"\nalgorithm = \"token\"\nsignature = { header = \"X\", headers = [\"Y\"] }\ncontent = \"{body}\"";
    assert_eq!(faults(token).len(), 3, "the name, the two headers and the content");
}
