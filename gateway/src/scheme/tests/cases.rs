//! The shared cases, where they are there: each one that a preset can speak about.

use std::collections::BTreeMap;

use domain::Secret;
use serde::Deserialize;

use super::super::{ActiveKey, SeenUrl, Unverified};
use super::{NOW, PRESETS};

#[derive(Deserialize)]
struct Case {
    id: String,
    provider: String,
    scheme: String,
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    secret: Option<String>,
    secrets: Option<Vec<String>>,
    #[serde(default)]
    body: String,
    body_base64: Option<String>,
    now: Option<u64>,
    expected: String,
    reason: Option<String>,
}

/// The preset that a case is about, or why there is none.
fn preset(case: &Case) -> Result<String, &'static str> {
    let left = match case.scheme.as_str() {
        kind if kind.starts_with("handshake:") => Some("handshakes are not schemes"),
        kind if kind.starts_with("component:") => Some("a part of a JWT scheme"),
        kind if kind.starts_with("jwt-") || kind.starts_with("oidc-") => Some("JWT"),
        kind if kind.contains("ed25519") || kind.contains("ecdsa") || kind.contains("rsa-") => Some("public keys"),
        "standard-webhooks-v1a" => Some("public keys"),
        _ => match case.provider.as_str() {
            "paypal" | "aws-sns" | "ebay" => Some("fetched keys"),
            "adyen" => Some("signatures per item"),
            "braintree" => Some("signatures in form fields, by pairs"),
            "mailgun" => Some("needs its token consumed"),
            _ => None,
        },
    };
    if let Some(why) = left {
        return Err(why);
    }
    let name = match (case.provider.as_str(), case.scheme.as_str()) {
        ("gitlab", "standard-webhooks") => "gitlab-signing-token".to_owned(),
        ("hubspot", version) => version.to_owned(),
        (provider, _) => provider.to_owned(),
    };
    if PRESETS.get(&name).is_some() { Ok(name) } else { Err("no preset") }
}

/// Labels that a case's reason can mean.
fn labels(reason: &str) -> &'static [&'static str] {
    match reason {
        "timestamp" => &["too-old", "in-future"],
        "malformed" => &["malformed"],
        "unsupported version" => &["requirement"],
        reason if reason.starts_with("mismatch") => &["mismatch"],
        reason if reason.contains("empty secret") => &["key"],
        _ => &[],
    }
}

fn verdict(case: &Case, name: &str) -> Result<(), &'static str> {
    let scheme = PRESETS.get(name).unwrap();
    let secrets = case.secrets.clone().unwrap_or_else(|| case.secret.iter().cloned().collect());
    let keys: Result<Vec<_>, _> = secrets.iter().map(|secret| scheme.key(&Secret::new(secret.as_bytes()))).collect();
    let keys = keys.map_err(|_| "key")?;
    let active: Vec<_> = keys.iter().enumerate().map(|(index, key)| ActiveKey { index, key }).collect();
    let body = match &case.body_base64 {
        Some(text) => data_encoding::BASE64.decode(text.as_bytes()).unwrap(),
        None => case.body.clone().into_bytes(),
    };
    let (url, target) = SeenUrl::split(&case.url).unwrap();
    let headers: Vec<_> = case.headers.iter().collect();
    let delivery = Unverified {
        method: case.method.as_bytes(),
        target: target.as_bytes(),
        url,
        headers: &headers,
        body: &body,
        received_unix_ms: case.now.map_or(NOW, |seconds| seconds * 1_000),
    };
    scheme.verify(&delivery, &active).map(drop).map_err(|fault| fault.label())
}

#[test]
fn shared_cases_come_out() {
    let Some(text) = skip::shared_cases("signatures.json") else { return };
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    let (mut ran, mut left, mut wrong) = (0, BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for case in &cases {
        let name = match preset(case) {
            Ok(name) => name,
            Err(why) => {
                left.entry(why).or_default().push(case.id.as_str());
                continue;
            }
        };
        ran += 1;
        let verdict = verdict(case, &name);
        let fits = match (&verdict, case.expected.as_str()) {
            (Ok(()), "valid") => true,
            (Err(label), "invalid") => {
                let meant = labels(case.reason.as_deref().unwrap_or_default());
                meant.is_empty() || meant.contains(label)
            }
            _ => false,
        };
        if !fits {
            wrong.push(format!("{} ({name}): {verdict:?}, expected {} {:?}", case.id, case.expected, case.reason));
        }
    }
    println!("{ran} of {} cases ran", cases.len());
    for (why, ids) in &left {
        println!("left, {why}: {}", ids.join(", "));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(!left.contains_key("no preset"), "a provider that is named has lost its preset: {:?}", left["no preset"]);
}
