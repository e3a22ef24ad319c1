//! What verifying one delivery costs under each preset, beside an HMAC-SHA256 over the same body: CPU time of one thread.
//!
//! Aimed at: a preset with a shared secret costs at most five times that HMAC, one with a public key less than 100 µs.

use std::hint::black_box;

use clap::Parser;
use config::scheme::{Algorithm, KeyDecode, SchemeDeclaration};
use domain::Secret;
use gateway::scheme::{ActiveKey, Key, Presets, Scheme, SeenUrl, Unsigned, Unverified};
use ring::hmac;

const NOW: u64 = 1_790_000_000_000;
const URL: SeenUrl<'_> = SeenUrl { scheme: "https", host: "hooks.example.com", port: None, base_path: "" };
const RATIO_MAX: f64 = 5.0;
const PUBLIC_NS_MAX: f64 = 100_000.0;

/// Keys of the gateway's tests: they protect nothing.
const ED25519: &str = include_str!("../../../gateway/src/scheme/tests/keys/ed.pem");
const P256: &str = include_str!("../../../gateway/src/scheme/tests/keys/p256.pem");
const RSA: &str = include_str!("../../../gateway/src/scheme/tests/keys/rsa.pem");

#[derive(Parser)]
struct Args {
    /// Bytes of the body
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// Verifications of each preset
    #[arg(long, default_value_t = 20_000)]
    turns: u32,
}

/// A delivery that verifies.
struct Sample {
    key: Option<Key>,
    url: String,
    method: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    at_unix_ms: u64,
}

fn main() {
    let args = Args::parse();
    let presets = Presets::load().expect("the presets are sound");
    let (mut over, mut asked) = (Vec::new(), 0);
    println!("{:<28} {:<18} {:>7} {:>9} {:>9} {:>6}", "preset", "algorithm", "bytes", "ns", "hmac ns", "ratio");
    for scheme in presets.iter() {
        let row = scheme.declaration();
        let sample = signed(scheme, row, args.bytes).unwrap_or_else(|| known(scheme, row));
        let turns = if row.algorithm.is_public() { args.turns / 20 } else { args.turns }.max(1);
        let cost = cost(scheme, &sample, turns);
        let base = hmac_cost(&sample.body, turns);
        let name = serde_json::to_value(row.algorithm).expect("a word");
        let name = name.as_str().unwrap_or_default();
        let ratio = cost / base;
        let is_over = if row.algorithm.is_public() { cost > PUBLIC_NS_MAX } else { ratio > RATIO_MAX };
        let mark = if is_over { "  over" } else { "" };
        println!("{:<28} {name:<18} {:>7} {cost:>9.0} {base:>9.0} {ratio:>6.1}{mark}", row.name, sample.body.len());
        asked += 1;
        if is_over {
            over.push(row.name.clone());
        }
    }
    println!("\n{asked} presets, {} over what is aimed at: {}", over.len(), over.join(", "));
}

fn secret(row: &SchemeDeclaration) -> &'static str {
    match (row.algorithm, row.key.decode) {
        (Algorithm::Ed25519 | Algorithm::JwtEddsa, _) => ED25519,
        (Algorithm::EcdsaP256Sha256 | Algorithm::JwtEs256, _) => P256,
        (Algorithm::RsaPkcs1Sha256 | Algorithm::JwtRs256, _) => RSA,
        (Algorithm::Basic, _) => "user:a password with 23 b",
        (_, KeyDecode::Utf8) => "a secret of sixty-four bytes, since that is what some want here.",
        (_, KeyDecode::Hex) => "00112233445566778899aabbccddeeff",
        (_, KeyDecode::Base64 | KeyDecode::Base64url) => "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    }
}

/// One of the wanted size; none where the signature stands in the body.
fn signed(scheme: &Scheme, row: &SchemeDeclaration, bytes: usize) -> Option<Sample> {
    let is_form =
        row.content.contains("{sorted_form") || row.cases.iter().any(|case| case.content.contains("{sorted_form"));
    let mut body = match (is_form, row.name.as_str()) {
        (true, _) => b"Body=hello&From=%2B1415&To=%2B1416&Sid=CA1&Text=".to_vec(),
        (_, "linear") => format!(r#"{{"webhookTimestamp":{NOW},"id":"1","text":""#).into_bytes(),
        _ => br#"{"id":"evt_1","type":"test.event","text":""#.to_vec(),
    };
    body.resize(bytes.max(body.len() + 2) - if is_form { 0 } else { 2 }, b'x');
    if !is_form {
        body.extend_from_slice(b"\"}");
    }
    let given: Vec<(String, String)> = [
        ("x-request-id", "r-1"),
        ("x-sinch-webhook-signature-nonce", "01FJA8B4A7BM43YGWSG9GBV067"),
        ("x-plivo-signature-v2-nonce", "05429567804466091622"),
        ("x-plivo-signature-v3-nonce", "05429567804466091622"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let target = "/hooks/wh_1?data.id=7&z=1";
    let method = scheme.methods().first()?;
    let key = scheme.key(&Secret::new(secret(row).as_bytes())).ok()?;
    let unsigned = Unsigned { method, target, url: URL, headers: &given, body: &body };
    let made = scheme.sign(&unsigned, &key, NOW).ok()?;
    let headers = given.into_iter().chain(made.headers).collect();
    let url = format!("https://hooks.example.com{}", made.target.as_deref().unwrap_or(target));
    Some(Sample { key: Some(key), url, method: (*method).to_owned(), headers, body, at_unix_ms: NOW })
}

/// The row's own known answer.
fn known(scheme: &Scheme, row: &SchemeDeclaration) -> Sample {
    let answer = row.known_answers.iter().find(|answer| answer.fault.is_none()).expect("every preset has one");
    Sample {
        key: (!answer.secret.is_empty()).then(|| scheme.key(&Secret::new(answer.secret.as_bytes())).expect("a key")),
        url: answer.url.clone(),
        method: answer.method.as_str().to_owned(),
        headers: answer.headers.clone().into_iter().collect(),
        body: answer.body.clone().into_bytes(),
        at_unix_ms: answer.at_unix_ms.unwrap_or(NOW),
    }
}

fn cost(scheme: &Scheme, sample: &Sample, turns: u32) -> f64 {
    let (url, target) = SeenUrl::split(&sample.url).expect("a URL");
    let delivery = Unverified {
        method: sample.method.as_bytes(),
        target: target.as_bytes(),
        url,
        headers: &sample.headers,
        body: &sample.body,
        received_unix_ms: sample.at_unix_ms,
    };
    let keys: Vec<_> = sample.key.iter().map(|key| ActiveKey { index: 0, key }).collect();
    timed(turns, || {
        black_box(scheme.verify(black_box(&delivery), &keys))
            .unwrap_or_else(|fault| panic!("{}: {fault}", scheme.name()));
    })
}

fn hmac_cost(body: &[u8], turns: u32) -> f64 {
    let secret = [7; 32];
    timed(turns, || {
        let key = hmac::Key::new(hmac::HMAC_SHA256, black_box(&secret));
        black_box(hmac::sign(&key, black_box(body)));
    })
}

/// Nanoseconds of CPU time for each turn: the best of five, the same however busy the machine is.
fn timed(turns: u32, mut turn: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let started = cpu_seconds();
        for _ in 0..turns {
            turn();
        }
        best = best.min((cpu_seconds() - started) * 1e9 / f64::from(turns));
    }
    best
}

/// What this thread has used.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
