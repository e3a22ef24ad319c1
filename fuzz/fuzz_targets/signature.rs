//! Signatures: nothing that a sender can write into headers, target or body panics a scheme or is taken for a proof,
//! and what a scheme signs itself it verifies.
#![no_main]

use std::sync::LazyLock;

use domain::Secret;
use gateway::scheme::{ActiveKey, Presets, SeenUrl, Unsigned, Unverified};
use libfuzzer_sys::fuzz_target;

static PRESETS: LazyLock<Presets> = LazyLock::new(|| Presets::load().expect("the presets are sound"));

const NOW: u64 = 1_800_000_000_000;
const URL: SeenUrl<'_> = SeenUrl { scheme: "https", host: "hooks.example.com", port: None, base_path: "" };

// The first line says which scheme; then headers, an empty line, the body.
fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let Some(scheme) = PRESETS.iter().nth(usize::from(*choice) % PRESETS.len()) else { return };
    // One of these suits every scheme: plain text, base64 with and without its prefix, or a private key of tests.
    let secrets = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "00112233445566778899aabbccddeeff",
        "a secret of sixty-four bytes, since that is what some want here.",
        include_str!("../../gateway/src/scheme/tests/keys/ed.pem"),
        include_str!("../../gateway/src/scheme/tests/keys/p256.pem"),
        include_str!("../../gateway/src/scheme/tests/keys/rsa.pem"),
    ];
    let Some(key) = secrets.iter().find_map(|text| scheme.key(&Secret::new(text.as_bytes())).ok()) else { return };
    let keys = [ActiveKey { index: 0, key: &key }];

    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    let mut body = rest;
    while let Some(end) = body.iter().position(|byte| *byte == b'\n') {
        let (line, behind) = (&body[..end], &body[end + 1..]);
        body = behind;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
        headers.push((String::from_utf8_lossy(&line[..colon]).into_owned(), line[colon + 1..].to_vec()));
    }
    let delivery = Unverified {
        method: b"POST",
        target: b"/hooks/wh_1",
        url: URL,
        headers: &headers,
        body,
        received_unix_ms: NOW,
    };
    if let Ok(verified) = scheme.verify(&delivery, &keys) {
        // Forging a token is guessing it; forging a code is not to be expected in this universe.
        assert!(!verified.covers_body, "{} took a forgery", scheme.name());
    }

    let unsigned = Unsigned { method: scheme.methods()[0], target: "/hooks/wh_1", url: URL, headers: &[], body };
    let Ok(signed) = scheme.sign(&unsigned, &key, NOW) else { return };
    let target = signed.target.as_deref().unwrap_or("/hooks/wh_1");
    let delivery = Unverified {
        method: scheme.methods()[0].as_bytes(),
        target: target.as_bytes(),
        url: URL,
        headers: &signed.headers,
        body,
        received_unix_ms: NOW,
    };
    let verified = scheme.verify(&delivery, &keys);
    assert!(verified.is_ok(), "{} does not verify what it signed: {verified:?}", scheme.name());

    // One byte more is another body.
    let longer = [body, b"x"].concat();
    let verified = scheme.verify(&Unverified { body: &longer, ..delivery }, &keys);
    assert!(!verified.is_ok_and(|verified| verified.covers_body), "{} ignores the end of the body", scheme.name());
});
