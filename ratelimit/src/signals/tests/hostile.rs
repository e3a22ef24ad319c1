//! Whatever bytes come: nothing panics, nothing is kept beyond the profile's bounds, nobody is parked beyond the cap.

use proptest::prelude::*;

use super::*;

/// All of them, and one of which nothing is known.
fn profiles() -> Vec<Arc<Manifest>> {
    Catalogue::shipped().unwrap().manifests().cloned().collect()
}

fn check(profile: &QuotaProfile, reading: &Reading) {
    assert!(reading.observations.len() <= profile.limits.len() + 1 && reading.settled.len() <= profile.limits.len());
    let mut limits: Vec<_> = reading.observations.iter().map(|seen| seen.limit).collect();
    limits.sort_unstable();
    assert!(limits.windows(2).all(|two| two[0] != two[1]), "one for each limit");
    for seen in &reading.observations {
        assert!(seen.reset_ms.is_none_or(|reset_ms| reset_ms <= RELEASE_MS_MAX));
        assert!(seen.limit.is_none_or(|limit| usize::from(limit) < profile.limits.len()));
        assert!(seen.cap.zip(seen.remaining).is_none_or(|(cap, remaining)| remaining <= cap || seen.limit.is_none()));
    }
    if let Some(throttle) = &reading.throttle {
        assert!(throttle.release_ms <= RELEASE_MS_MAX);
        assert!(!throttle.is_capped || throttle.release_ms == RELEASE_MS_MAX);
    }
}

/// Values that look like times and numbers more often than chance has them.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[0-9]{1,20}".prop_map(String::into_bytes),
        "-?[0-9]{0,20}\\.?[0-9]{0,40}(e[0-9]{1,3})?".prop_map(String::into_bytes),
        "([0-9]{1,12}(h|m|s|ms|us|ns)){1,6}".prop_map(String::into_bytes),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,12})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
            .prop_map(String::into_bytes),
        "(Mon|Thu|Sunday), [0-9]{2}[ -][A-Z][a-z]{2}[ -][0-9]{2,4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
            .prop_map(String::into_bytes),
        "(\"[a-z]{0,4}\"|[a-z]{1,4})(;(r|t|q|w|qu)=-?[0-9]{1,15}){0,5}(, \"b\";r=[0-9]{1,3}){0,40}"
            .prop_map(String::into_bytes),
        "\\{\"[a-z_]{1,16}\":(\\[)?\\{?\"?[a-z_0-9.:\"]{0,40}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..600),
        "\\{\"(error|errors|code|retry_after|policyName)\":[\\[\\]\\{\\}\",:a-z0-9.e-]{0,300}"
            .prop_map(String::into_bytes),
        (0_usize..40_000).prop_map(|depth| b"{\"error\":[".repeat(depth)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_answer_does_harm(
        values in prop::collection::vec((any::<prop::sample::Index>(), value()), 0..12),
        body in body(),
        status in 200_u16..600,
        received_unix_ms in any::<u64>(),
        throttles_before in any::<u32>(),
    ) {
        for manifest in profiles() {
            let profile = &manifest.quota;
            let mut names: Vec<String> = profile.headers.iter().map(|reading| reading.name.to_string()).collect();
            names.extend(profile.headers.iter().filter_map(|reading| Some(reading.when.as_ref()?.name.to_string())));
            names.extend(["retry-after", "date", "ratelimit", "ratelimit-policy", "beta-ratelimit", "age", "retry-after-ms",
                "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-reset", "content-type"].map(String::from));
            let mut headers = HeaderMap::new();
            for (index, value) in &values {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(HeaderName::from_bytes(index.get(&names).as_bytes()).unwrap(), value);
                }
            }
            let call = Call { method: "POST", path: "/api/v10/graphql", throttles_before };
            let status = StatusCode::from_u16(status).unwrap();
            let answered = Answered { status, headers: &headers, body: &body, received_unix_ms };
            prop_assert!(body_wanted(profile, &call, status, &headers) <= BODY_PREFIX_MAX);
            let reading = read(profile, &call, &answered);
            check(profile, &reading);
            prop_assert_eq!(read(profile, &call, &answered), reading, "it is pure");
            if status == StatusCode::TOO_MANY_REQUESTS {
                prop_assert!(read(profile, &call, &answered).throttle.is_some(), "429 is always one");
            }
        }
    }

    /// What is longer is never taken for shorter.
    #[test]
    fn seconds_are_rounded_up(whole in 0_u64..90_000, micros in 0_u64..1_000_000) {
        let text = format!("{whole}.{micros:06}");
        let profile = QuotaProfile::unknown();
        let reading = answer(&profile, ("GET", "/"), 429, &[("retry-after", &text)], "");
        let release_us = reading.throttle.unwrap().release_ms * 1_000;
        let asked_us = whole * 1_000_000 + micros;
        prop_assert!(release_us >= asked_us && release_us < asked_us + 1_000);
    }
}
