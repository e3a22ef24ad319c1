//! The shared cases, where they are there: each one that a preset can speak about.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::Secret;
use serde::Deserialize;

use super::super::{ActiveKey, Scheme, SeenUrl, Unverified};
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
    public_key: Option<String>,
    #[serde(default)]
    body: String,
    body_base64: Option<String>,
    now: Option<u64>,
    expected: String,
    reason: Option<String>,
}

/// The preset that a case is about, or why there is none.
fn preset(case: &Case) -> Result<Arc<Scheme>, &'static str> {
    let left = match case.scheme.as_str() {
        kind if kind.starts_with("handshake:") => Some("handshakes are not schemes"),
        kind if kind.starts_with("component:") => {
            Some("a part of a scheme: `the_hash_of_a_query_is_that_of_atlassian`")
        }
        _ => match case.provider.as_str() {
            "paypal" | "aws-sns" | "ebay" => Some("fetched keys"),
            _ => None,
        },
    };
    if let Some(why) = left {
        return Err(why);
    }
    let name = match (case.provider.as_str(), case.scheme.as_str()) {
        ("plaid", _) => return Ok(declared(PLAID)),
        ("google-pubsub", _) => return Ok(declared(&PUBSUB.replace("EMAIL", case.secret.as_deref().unwrap()))),
        ("gitlab", "standard-webhooks") => "gitlab-signing-token".to_owned(),
        ("hubspot", version) => version.to_owned(),
        (provider, _) => provider.to_owned(),
    };
    PRESETS.get(&name).cloned().ok_or("no preset")
}

/// Of these two the keys are fetched, which is not for a scheme; with a key at hand, the rest is what a tenant may declare.
const PLAID: &str = r#"
    name = "plaid-by-one-key"
    algorithm = "jwt-es256"
    signature = { header = "Plaid-Verification" }
    claim = [{ name = "request_body_sha256", content = "{body}", hash = "sha256" }]
    timestamp = { from = "claim:iat", format = "seconds", old = "5m", future = "1m" }
"#;

const PUBSUB: &str = r#"
    name = "pubsub-by-one-key"
    algorithm = "jwt-rs256"
    signature = { header = "Authorization", prefix = "Bearer ", prefix_ignores_case = true }
    jwt = { expires = true }
    claim = [
        { name = "iss", equals = ["https://accounts.google.com", "accounts.google.com"] },
        { name = "aud", content = "{url}" },
        { name = "email", equals = ["EMAIL"] },
        { name = "email_verified", equals = ["true"] },
    ]
"#;

fn declared(toml: &str) -> Arc<Scheme> {
    Scheme::compile(&toml::from_str(toml).unwrap()).unwrap()
}

/// Labels that a case's reason can mean.
fn labels(reason: &str) -> &'static [&'static str] {
    match reason {
        "timestamp" => &["too-old", "in-future"],
        "malformed" => &["malformed"],
        "unsupported version" => &["requirement"],
        reason if reason.starts_with("mismatch") => &["mismatch"],
        "alg confusion" => &["requirement"],
        "body-hash" => &["body-digest"],
        "unsigned item" => &["missing"],
        reason if reason.contains("empty secret") => &["key"],
        _ => &[],
    }
}

/// The keys of a case: public ones, of which a set may have been captured, or shared ones.
fn secrets(case: &Case) -> Vec<String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    match &case.public_key {
        Some(text) => match serde_json::from_str::<Set>(text) {
            Ok(set) => set.keys.iter().map(ToString::to_string).collect(),
            Err(_) => vec![text.clone()],
        },
        None => case.secrets.clone().unwrap_or_else(|| case.secret.iter().cloned().collect()),
    }
}

fn verdict(case: &Case, scheme: &Scheme) -> Result<(), &'static str> {
    let secrets = secrets(case);
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
        let scheme = match preset(case) {
            Ok(scheme) => scheme,
            Err(why) => {
                left.entry(why).or_default().push(case.id.as_str());
                continue;
            }
        };
        ran += 1;
        let verdict = verdict(case, &scheme);
        let fits = match (&verdict, case.expected.as_str()) {
            (Ok(()), "valid") => true,
            (Err(label), "invalid") => {
                let meant = labels(case.reason.as_deref().unwrap_or_default());
                meant.is_empty() || meant.contains(label)
            }
            _ => false,
        };
        if !fits {
            let (id, name) = (&case.id, scheme.name());
            wrong.push(format!("{id} ({name}): {verdict:?}, expected {} {:?}", case.expected, case.reason));
        }
    }
    assert!(ran >= 63, "{ran} of {} cases ran", cases.len());
    println!("{ran} of {} cases ran", cases.len());
    for (why, ids) in &left {
        println!("left, {why}: {}", ids.join(", "));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(!left.contains_key("no preset"), "a provider that is named has lost its preset: {:?}", left["no preset"]);
}
