//! Providers of which nothing is known: standard forms, and nothing that could mean two things.

use super::*;

fn reads(status: u16, lines: &[(&str, &str)], body: &str) -> String {
    let profile = QuotaProfile::unknown();
    shown(&profile, &answer(&profile, ("GET", "/"), status, lines, body))
}

#[test]
fn what_is_ambiguous_is_as_absent() {
    let left = |reset| [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", reset)];
    let cases = [
        // Seconds, milliseconds or minutes: nobody knows.
        ("30", "- 7/100"),
        ("60000", "- 7/100"),
        ("-1", "- 7/100"),
        ("0", "- 7/100"),
        // Instants near the answer's own time.
        ("1774537260", "- 7/100 60000ms"),
        ("1774537260000", "- 7/100 60000ms"),
        ("1774537200", "- 7/100 0ms"),
        ("1774537139", "- 7/100"),
        ("1774537140", "- 7/100 0ms"),
        ("1774630800", "- 7/100 93600000ms"),
        ("1774630801", "- 7/100"),
        ("1000000000", "- 7/100"),
        ("2026-03-26T16:00Z", "- 7/100 3600000ms"),
        ("Thu, 26 Mar 2026 15:00:05 GMT", "- 7/100 5000ms"),
        ("6m0s", "- 7/100 360000ms"),
        ("tomorrow", "- 7/100"),
    ];
    for (reset, says) in cases {
        assert_eq!(reads(200, &left(reset), ""), says, "{reset}");
    }
    assert_eq!(
        reads(200, &[("ratelimit-remaining", "7"), ("ratelimit-reset", "30")], ""),
        "- 7/? 30000ms",
        "its draft says seconds"
    );
    assert_eq!(
        reads(200, &[("x-ratelimit-remaining", "7"), ("x-ratelimit-remaining", "8")], ""),
        "",
        "two that differ"
    );
    assert_eq!(reads(200, &[("x-ratelimit-remaining", "7"), ("x-ratelimit-remaining", "7")], ""), "- 7/?");
    assert_eq!(reads(200, &[("x-ratelimit-limit", "100")], ""), "", "a limit alone says nothing of now");
    assert_eq!(
        reads(200, &[("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "7")], ""),
        "- ?/5",
        "more than there is"
    );
    assert_eq!(reads(200, &[("x-ratelimit-remaining", "7"), ("age", "5")], ""), "", "out of a cache");
    assert_eq!(reads(200, &[("x-ratelimit-remaining", "7"), ("age", "0")], ""), "- 7/?");
}

#[test]
fn the_drafts_fields_are_read_and_clamped() {
    let policy =
        ("ratelimit-policy", "\"burst\";q=100;w=60, \"daily\";q=1000;w=86400, \"bytes\";q=5;qu=\"content-bytes\"");
    let with = |limits: &'static str| reads(200, &[policy, ("ratelimit", limits)], "");
    let cases = [
        ("\"burst\";r=50;t=30", "- 50/100 30000ms"),
        ("burst;r=50;t=30", "- 50/100 30000ms"),
        ("\"burst\";r=50;t=61", "- 50/100 60000ms"),
        ("\"burst\";r=50", "- 50/100"),
        ("\"burst\";t=30", ""),
        ("\"burst\";r=-1", ""),
        ("\"burst\";r=1.5", ""),
        ("\"burst\";r=\"5\"", ""),
        ("\"bytes\";r=0", ""),
        ("\"burst\";r=50;t=30, \"daily\";r=7;t=80000", "- 7/1000 80000000ms"),
        ("\"burst\";r=0;t=30, \"daily\";r=0;t=80000", "- 0/1000 80000000ms"),
        ("\"other\";r=3;t=999999999", "- 3/? 93600000ms"),
        ("\"burst\";r=50,", ""),
        ("\"burst;r=50", ""),
        ("5;r=50", ""),
        ("(\"burst\");r=1", ""),
        ("limit=100, remaining=50, reset=30", "- 50/100 30000ms"),
        ("limit=100, remaining=x", ""),
    ];
    for (limits, says) in cases {
        assert_eq!(with(limits), says, "{limits}");
    }
    let lines = [policy, ("ratelimit", "\"burst\";r=50;t=30"), ("ratelimit", "\"daily\";r=7;t=1")];
    assert_eq!(reads(200, &lines, ""), "- 7/1000 1000ms", "several lines are one list");
    let long = "x".repeat(5_000);
    assert_eq!(reads(200, &[("ratelimit", &format!("\"{long}\";r=1"))], ""), "");
}

#[test]
fn retry_after_takes_precedence() {
    let limits = ("ratelimit", "\"a\";r=0;t=30");
    assert_eq!(reads(429, &[limits], ""), "- 0/? 30000ms; throttle connection - unnamed 30000ms Reset");
    assert_eq!(
        reads(429, &[limits, ("retry-after", "5")], ""),
        "- 0/? 30000ms; throttle connection - unnamed 5000ms RetryAfter"
    );
    assert_eq!(
        reads(429, &[limits, ("retry-after", "5x")], ""),
        "- 0/? 30000ms; throttle connection - unnamed 30000ms Reset"
    );
    assert_eq!(
        reads(429, &[("retry-after", "5"), ("retry-after-ms", "4100")], ""),
        "throttle connection - unnamed 5000ms RetryAfter"
    );
    assert_eq!(reads(429, &[("retry-after", "0")], ""), "throttle connection - unnamed 0ms RetryAfter");
    assert_eq!(
        reads(429, &[("ratelimit", "\"a\";r=1;t=30")], ""),
        "- 1/? 30000ms; throttle connection - unnamed 2000ms Profile",
        "something is left"
    );
}

#[test]
fn dates_are_counted_from_the_answers_own() {
    let at = |text| [("retry-after", text)];
    assert_eq!(
        reads(429, &at("Thu, 26 Mar 2026 15:02:00 GMT"), ""),
        "throttle connection - unnamed 120000ms RetryAfter"
    );
    assert_eq!(reads(429, &at("Thu, 26 Mar 2026 14:59:30 GMT"), ""), "throttle connection - unnamed 0ms RetryAfter");
    assert_eq!(
        reads(429, &at("Wed, 21 Oct 2015 07:28:00 GMT"), ""),
        "throttle connection - unnamed 2000ms Profile",
        "long past says nothing"
    );
    assert_eq!(
        reads(429, &at("Fri, 26 Mar 2027 15:02:00 GMT"), ""),
        "throttle connection - unnamed 93600000ms RetryAfter capped"
    );
    let broken = [("date", "yesterday"), ("retry-after", "Thu, 26 Mar 2026 15:12:00 GMT")];
    assert_eq!(
        reads(429, &broken, ""),
        "throttle connection - unnamed 120000ms RetryAfter ours",
        "without a date, by our clock"
    );
    for (seconds, says) in [
        ("93599", "93599000ms RetryAfter"),
        ("93600", "93600000ms RetryAfter"),
        ("93601", "93600000ms RetryAfter capped"),
    ] {
        assert_eq!(reads(429, &at(seconds), ""), format!("throttle connection - unnamed {says}"));
    }
}

#[test]
fn only_a_throttle_is_one() {
    for (status, lines, is) in [
        (429, &[][..], true),
        (503, &[("retry-after", "5")][..], true),
        (503, &[][..], false),
        (503, &[("retry-after", "soon")][..], false),
        (502, &[("retry-after", "5")][..], false),
        (403, &[("retry-after", "5")][..], false),
        (301, &[("retry-after", "5")][..], false),
        (200, &[("x-ratelimit-remaining", "0")][..], false),
    ] {
        assert_eq!(reads(status, lines, "").contains("throttle"), is, "{status} {lines:?}");
    }
}

#[test]
fn problems_of_the_registry_are_throttles() {
    let kind = ("content-type", "application/problem+json; charset=utf-8");
    let of = |name: &str| {
        format!(
            r#"{{"type":"https://iana.org/assignments/http-problem-types#{name}","violated-policies":["daily","burst"]}}"#
        )
    };
    for (name, is) in [
        ("quota-exceeded", true),
        ("temporary-reduced-capacity", true),
        ("abnormal-usage-detected", true),
        ("date", false),
        ("quota-exceeded-not", false),
    ] {
        assert_eq!(reads(403, &[kind], &of(name)).contains("throttle"), is, "{name}");
        assert!(!reads(403, &[], &of(name)).contains("throttle"), "only as a problem");
        assert!(!reads(200, &[kind], &of(name)).contains("throttle"), "and only of a refusal");
    }
    let elsewhere = r#"{"type":"https://example.com/problems#quota-exceeded"}"#;
    assert!(!reads(403, &[kind], elsewhere).contains("throttle"));
    // What is violated is parked, where the profile knows it.
    let jira = manifest("jira");
    let body = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["x","tenant-app-quota"]}"#;
    let reading = answer(&jira.quota, ("GET", "/rest/api/3/myself"), 429, &[kind, ("retry-after", "9")], body);
    assert_eq!(shown(&jira.quota, &reading), "throttle connection quota-site 9000ms RetryAfter");
}

#[test]
fn default_parks_grow_with_throttles_in_a_row() {
    let profile = manifest("github");
    let headers = map(&[]);
    let parks: Vec<u64> = [0, 1, 2, 3, 4, 5, 31, 32, u32::MAX]
        .into_iter()
        .map(|throttles_before| {
            let call = Call { method: "GET", path: "/user", throttles_before };
            let status = StatusCode::TOO_MANY_REQUESTS;
            let answered = Answered { status, headers: &headers, body: b"", received_unix_ms: OURS_MS };
            let throttle = read(&profile.quota, &call, &answered).throttle.unwrap();
            assert!(throttle.wants_jitter && !throttle.source.is_providers());
            throttle.release_ms / 1_000
        })
        .collect();
    assert_eq!(parks, [60, 120, 240, 480, 900, 900, 900, 900, 900]);
}

#[test]
fn bodies_are_wanted_where_they_matter() {
    let wanted = |name: &str, call: (&str, &str), status: u16, lines: &[(&str, &str)]| {
        let call = Call { method: call.0, path: call.1, throttles_before: 0 };
        body_wanted(&manifest(name).quota, &call, StatusCode::from_u16(status).unwrap(), &map(lines)) > 0
    };
    assert!(wanted("shopify", ("POST", "/admin/api/2026-01/graphql.json"), 200, &[]));
    assert!(!wanted("shopify", ("POST", "/admin/api/2026-01/graphql.json"), 200, &[("content-encoding", "gzip")]));
    assert!(wanted("meta", ("GET", "/me"), 400, &[]) && !wanted("meta", ("GET", "/me"), 200, &[]));
    assert!(!wanted("asana", ("GET", "/api/1.0/tasks"), 429, &[]));
    assert!(!wanted("http", ("GET", "/"), 429, &[]));
    assert!(wanted("http", ("GET", "/"), 429, &[("content-type", "application/problem+json")]));
}
