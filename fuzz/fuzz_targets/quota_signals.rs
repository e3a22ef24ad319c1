//! What answers say of limits: no status, header or body panics the reading, says more limits than the profile has, or
//! parks anybody for longer than the cap.
#![no_main]

use std::sync::LazyLock;

use config::connector::Catalogue;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use ratelimit::signals::{Answered, BODY_PREFIX_MAX, Call, RELEASE_MS_MAX, body_wanted, read};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::shipped().expect("it is ours"));

// The first byte is the profile, two are the status, then lines of headers, an empty one, and the body.
fuzz_target!(|data: &[u8]| {
    let [which, high, low, rest @ ..] = data else { return };
    let count = CATALOGUE.manifests().count();
    let manifest = CATALOGUE.manifests().nth(usize::from(*which) % count).expect("there is one");
    let status = StatusCode::from_u16(200 + u16::from_be_bytes([*high, *low]) % 400).expect("a status");
    let mut headers = HeaderMap::new();
    let mut body = rest;
    while let Some(end) = body.iter().position(|byte| *byte == b'\n') {
        let line = &body[..end];
        body = &body[end + 1..];
        if line.is_empty() || headers.len() >= 64 {
            break;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..])) {
            headers.append(name, value);
        }
    }
    for path in ["/user", "/api/v6/graphql", "/admin/api/2026-01/graphql.json", "/v1/chat/completions"] {
        let call = Call { method: "POST", path, throttles_before: u32::from(*low) };
        let answered = Answered { status, headers: &headers, body, received_unix_ms: 1_774_537_200_000 };
        assert!(body_wanted(&manifest.quota, &call, status, &headers) <= BODY_PREFIX_MAX);
        let reading = read(&manifest.quota, &call, &answered);
        assert!(reading.observations.len() <= manifest.quota.limits.len() + 1);
        assert!(reading.observations.iter().all(|seen| seen.reset_ms.is_none_or(|reset| reset <= RELEASE_MS_MAX)));
        assert!(reading.throttle.is_none_or(|throttle| throttle.release_ms <= RELEASE_MS_MAX));
        assert!(status != StatusCode::TOO_MANY_REQUESTS || reading.throttle.is_some());
    }
});
