//! JWTs: what is asked of them, and the ways in which others were fooled by them.

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use domain::Secret;
use ring::hmac;

use super::super::{KeyFault, Scheme};
use super::{Delivery, ED25519, ED25519_PUBLIC, NOW, P256, P256_PUBLIC, RSA, RSA_PUBLIC, key, label, preset};

const SECRET: &str = "a secret of thirty-two bytes ...";
const AT: u64 = NOW / 1_000;

fn declared(algorithm: &str, rest: &str) -> Arc<Scheme> {
    let toml = format!("name = \"x\"\nalgorithm = \"{algorithm}\"\nsignature = {{ header = \"X-Jwt\" }}\n{rest}");
    Scheme::compile(&toml::from_str(&toml).unwrap()).unwrap()
}

fn b64(text: &str) -> String {
    BASE64URL_NOPAD.encode(text.as_bytes())
}

/// A token with an HMAC, under whatever header.
fn token(header: &str, claims: &str, secret: &[u8]) -> String {
    let signed = format!("{}.{}", b64(header), b64(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(tag.as_ref()))
}

fn judged(scheme: &Scheme, secret: &str, token: &str) -> &'static str {
    let delivery = Delivery::new("https://h.example/x", &[("X-Jwt", token)], b"{}");
    label(&delivery.judge(scheme, &[&key(scheme, secret)], NOW))
}

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn saying(rest: &str, claims: &str) -> &'static str {
    judged(&declared("jwt-hs256", rest), SECRET, &token(HEADER, claims, SECRET.as_bytes()))
}

#[test]
fn every_algorithm_signs_and_verifies() {
    let claim = "claim = [{ name = \"h\", content = \"{body}\", hash = \"sha512\", encoding = \"base64\" }]\ndelivery_id = \"claim:jti\"";
    for (algorithm, private, public) in [
        ("jwt-hs256", SECRET, SECRET),
        ("jwt-es256", P256, P256_PUBLIC),
        ("jwt-rs256", RSA, RSA_PUBLIC),
        ("jwt-eddsa", ED25519, ED25519_PUBLIC),
    ] {
        let scheme = declared(algorithm, claim);
        let unsigned = Delivery::new("https://h.example/x", &[], b"{}");
        let delivery = Delivery::signed(&scheme, &key(&scheme, private), unsigned, NOW);
        let verified = delivery.judge(&scheme, &[&key(&scheme, public)], NOW).unwrap();
        assert!(verified.covers_body && verified.delivery_id.is_some_and(|id| id.signed), "{algorithm}");
        let mut changed = delivery.clone();
        changed.body = b"{} ".to_vec();
        assert_eq!(label(&changed.judge(&scheme, &[&key(&scheme, public)], NOW)), "body-digest", "{algorithm}");
    }
}

#[test]
fn no_token_chooses_its_algorithm() {
    let hs = declared("jwt-hs256", "");
    let claims = r#"{"iss":"x"}"#;
    assert_eq!(judged(&hs, SECRET, &token(HEADER, claims, SECRET.as_bytes())), "verified");
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"alg":"HS512"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"alg":null}"#,
        r#"{"typ":"JWT"}"#,
        "{}",
    ] {
        assert_eq!(judged(&hs, SECRET, &token(header, claims, SECRET.as_bytes())), "requirement", "{header}");
    }
    // A token without a signature.
    let unsigned = format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64(claims));
    assert_eq!(judged(&hs, SECRET, &unsigned), "requirement");
    assert_eq!(judged(&hs, SECRET, &format!("{}.{}.", b64(HEADER), b64(claims))), "mismatch");
    // Two algorithms: readers differ about which one counts.
    assert_eq!(judged(&hs, SECRET, &token(r#"{"alg":"none","alg":"HS256"}"#, claims, SECRET.as_bytes())), "malformed");
}

#[test]
fn a_public_key_keys_no_hmac() {
    // The classic: the verifier's public key, taken as the secret of an HMAC.
    for (algorithm, public) in [("jwt-rs256", RSA_PUBLIC), ("jwt-es256", P256_PUBLIC), ("jwt-eddsa", ED25519_PUBLIC)] {
        let scheme = declared(algorithm, "");
        for name in ["HS256", "RS256", "ES256", "EdDSA"] {
            let forged = token(&format!(r#"{{"alg":"{name}"}}"#), "{}", public.as_bytes());
            assert!(matches!(judged(&scheme, public, &forged), "requirement" | "mismatch"), "{algorithm} {name}");
        }
    }
    // And the other way round: whoever configures it so is told.
    for public in [RSA_PUBLIC, P256_PUBLIC, ED25519_PUBLIC, r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#] {
        let fault = declared("jwt-hs256", "").key(&Secret::new(public.as_bytes()));
        assert_eq!(fault, Err(KeyFault::NotSecret));
    }
}

#[test]
fn keys_and_addresses_in_a_token_are_not_followed() {
    let hs = declared("jwt-hs256", "");
    let header = r#"{"alg":"HS256","kid":"../../etc/passwd","jku":"https://evil.example/keys","x5u":"https://evil.example/c","jwk":{"kty":"oct","k":"ZXZpbA"}}"#;
    assert_eq!(judged(&hs, SECRET, &token(header, "{}", SECRET.as_bytes())), "verified");
    assert_eq!(judged(&hs, SECRET, &token(header, "{}", b"evil")), "mismatch");
    // What has to be understood is not.
    for header in [r#"{"alg":"HS256","crit":["exp"]}"#, r#"{"alg":"HS256","b64":false}"#] {
        assert_eq!(judged(&hs, SECRET, &token(header, "{}", SECRET.as_bytes())), "requirement");
    }
}

#[test]
fn a_token_has_one_text() {
    let hs = declared("jwt-hs256", "");
    let good = token(HEADER, "{}", SECRET.as_bytes());
    let parts: Vec<_> = good.split('.').collect();
    for text in [
        format!("{good}="),
        format!("{good}."),
        format!("{good}.{}", parts[2]),
        format!(" {good}"),
        good.replace('.', ".."),
        format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
        format!("{}.{}", parts[0], parts[1]),
        String::new(),
        "a".repeat(20_000),
    ] {
        assert_eq!(judged(&hs, SECRET, &text), "malformed", "{text:.90}");
    }
    // What is signed and no object in one reading.
    for claims in ["", "[]", "1", r#"{"a":1,"a":2}"#, r#"{"a":1}x"#] {
        assert_eq!(judged(&hs, SECRET, &token(HEADER, claims, SECRET.as_bytes())), "malformed", "{claims}");
    }
}

#[test]
fn times_end_where_they_say() {
    let at = |claims: String| saying("", &claims);
    assert_eq!(at(format!(r#"{{"exp":{}}}"#, AT + 1)), "verified");
    assert_eq!(at(format!(r#"{{"exp":{AT}}}"#)), "too-old");
    assert_eq!(at(format!(r#"{{"nbf":{AT}}}"#)), "verified");
    assert_eq!(at(format!(r#"{{"nbf":{}}}"#, AT + 1)), "in-future");
    // Milliseconds where seconds are meant, and what is no number.
    for exp in [format!("{NOW}"), "\"1790000001\"".into(), "1790000001.5".into(), "-1".into(), "null".into()] {
        assert_eq!(at(format!(r#"{{"exp":{exp}}}"#)), "malformed", "{exp}");
    }
    assert_eq!(saying("jwt = { expires = true }", "{}"), "missing");
    let leeway = "jwt = { leeway = \"30s\" }";
    assert_eq!(saying(leeway, &format!(r#"{{"exp":{},"nbf":{}}}"#, AT - 29, AT + 30)), "verified");
    assert_eq!(saying(leeway, &format!(r#"{{"exp":{}}}"#, AT - 30)), "too-old");
    assert_eq!(saying(leeway, &format!(r#"{{"nbf":{}}}"#, AT + 31)), "in-future");
    let issued = "timestamp = { from = \"claim:iat\", format = \"seconds\", old = \"5m\", future = \"1m\" }";
    for (iat, expected) in
        [(AT - 300, "verified"), (AT - 301, "too-old"), (AT + 60, "verified"), (AT + 61, "in-future")]
    {
        assert_eq!(saying(issued, &format!(r#"{{"iat":{iat}}}"#)), expected);
    }
    assert_eq!(saying(issued, "{}"), "missing");
}

#[test]
fn claims_say_what_the_scheme_says() {
    let issuer = r#"claim = [{ name = "iss", equals = ["a", "b"] }]"#;
    assert_eq!(saying(issuer, r#"{"iss":"b"}"#), "verified");
    assert_eq!(saying(issuer, r#"{"iss":"c"}"#), "requirement");
    assert_eq!(saying(issuer, r#"{"iss":["a"]}"#), "malformed");
    assert_eq!(saying(issuer, "{}"), "missing");
    let audience = r#"claim = [{ name = "aud", content = "{url}" }]"#;
    assert_eq!(saying(audience, r#"{"aud":"https://h.example/x"}"#), "verified");
    assert_eq!(saying(audience, r#"{"aud":["other","https://h.example/x"]}"#), "verified");
    assert_eq!(saying(audience, r#"{"aud":"https://h.example/"}"#), "requirement");
    assert_eq!(saying(audience, r#"{"aud":[]}"#), "requirement");
    let flag = r#"claim = [{ name = "ok", equals = ["true"] }]"#;
    assert_eq!(saying(flag, r#"{"ok":true}"#), "verified");
    assert_eq!(saying(flag, r#"{"ok":false}"#), "requirement");
    let optional = r#"claim = [{ name = "sub", equals = ["a"], optional = true }]"#;
    assert_eq!(saying(optional, "{}"), "verified");
    assert_eq!(saying(optional, r#"{"sub":"b"}"#), "requirement");
}

#[test]
fn a_claim_about_a_body_is_absent_where_there_is_none() {
    let scheme = preset("vonage");
    let key = key(scheme, SECRET);
    let claims = |more: &str| format!(r#"{{"iss":"Vonage","iat":{AT},"jti":"1"{more}}}"#);
    let judged = |claims: String, body: &str| {
        let token = format!("Bearer {}", token(HEADER, &claims, SECRET.as_bytes()));
        label(&Delivery::new("https://h.example/x", &[("Authorization", &token)], body.as_bytes()).judge(
            scheme,
            &[&key],
            NOW,
        ))
    };
    let empty = r#","payload_hash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855""#;
    assert_eq!(judged(claims(""), ""), "verified");
    // Without it, any body could be put behind a token that was meant for none.
    assert_eq!(judged(claims(""), "{}"), "missing");
    assert_eq!(judged(claims(empty), ""), "requirement");
    assert_eq!(judged(claims(empty), "{}"), "body-digest");
}

#[test]
fn the_hash_of_a_query_is_that_of_atlassian() {
    // The value of Atlassian's documentation, Understanding JWT: GET, /test, ?param=value.
    let scheme = preset("jira-connect");
    let qsh = "be16910858a41fd19ea5c1b4e9decca9a784d1024cb00b2158defe2f29dc86dd";
    let claims = format!(r#"{{"exp":{},"qsh":"{qsh}"}}"#, AT + 60);
    let token = format!("JWT {}", token(HEADER, &claims, SECRET.as_bytes()));
    let judged = |url: &str| {
        let mut delivery = Delivery::new(url, &[("Authorization", &token)], b"");
        delivery.method = "GET".to_owned();
        label(&delivery.judge(scheme, &[&key(scheme, SECRET)], NOW))
    };
    assert_eq!(judged("https://api.bitbucket.org/test?param=value"), "verified");
    assert_eq!(judged("https://api.bitbucket.org/test?jwt=x&param=value"), "verified");
    for url in ["https://api.bitbucket.org/test?param=other", "https://api.bitbucket.org/other?param=value"] {
        assert_eq!(judged(url), "requirement");
    }
}

#[test]
fn declarations_that_mean_nothing_do_not_compile() {
    let faults = |algorithm: &str, rest: &str| {
        let toml = format!("name = \"x\"\nalgorithm = \"{algorithm}\"\n{rest}");
        let faults = Scheme::compile(&toml::from_str(&toml).unwrap()).expect_err(rest);
        faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>()
    };
    let place = "signature = { header = \"X\" }\n";
    for (algorithm, rest, word) in [
        ("jwt-hs256", format!("{place}content = \"{{body}}\""), "signs itself"),
        ("jwt-hs256", "signature = { header = \"X\", encoding = \"hex\" }".into(), "no `encoding`"),
        ("jwt-hs256", "signature = { from = \"query:jwt\" }".into(), "in the query"),
        ("jwt-hs256", format!("{place}claim = [{{ name = \"exp\", equals = [\"1\"] }}]"), "always judged"),
        ("jwt-hs256", format!("{place}claim = [{{ name = \"a\" }}]"), "either `equals` or `content`"),
        ("jwt-hs256", format!("{place}claim = [{{ name = \"a\", content = \"{{secret}}{{body}}\" }}]"), "of the delivery"),
        ("jwt-hs256", format!("{place}url = {{ variants = [\"with-port\"] }}"), "content has none"),
        (
            "hmac-sha256",
            "signature = { header = \"X\", encoding = \"hex\" }\ncontent = \"{body}\"\ndelivery_id = \"claim:jti\"".into(),
            "only a JWT has claims",
        ),
        (
            "hmac-sha256",
            "signature = { header = \"X\", encoding = \"hex\" }\ncontent = \"{body}{item:/a}\"".into(),
            "no items without signature.each",
        ),
        (
            "hmac-sha256",
            "signature = { header = \"X\", encoding = \"hex\" }\ncontent = \"{body}\"\nclaim = [{ name = \"a\", equals = [\"b\"] }]".into(),
            "only a JWT has claims",
        ),
    ] {
        let faults = faults(algorithm, &rest);
        assert!(faults.iter().any(|fault| fault.contains(word)), "{rest}: {faults:#?}");
    }
}
