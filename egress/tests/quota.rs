//! What quota does to calls, over real sockets: holds, parks, waits, breakers, budgets.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "this is a test, on real sockets")]

mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rig::{Origin, Rig};
use tidegate_egress::SendState;
use tidegate_egress::quota::QuotaRules;

fn call(rig: &Rig, path: &str, more: &str) -> String {
    rig.exchange(&request(rig, path, more))
}

fn request(rig: &Rig, path: &str, more: &str) -> String {
    let token = rig.token();
    format!(
        "GET /c/conn_api{path} HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {token}\r\n{more}Connection: close\r\n\r\n"
    )
}

fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = answer.split_once("\r\n\r\n")?;
    let mut fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

const PLAIN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Says this to the first so many requests, and then what a provider says.
fn first(count: usize, says: &'static str) -> (Origin, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let origin = Origin::provider_saying(move |_| {
        let before = counts.fetch_add(1, Ordering::Relaxed);
        Some(if before < count { says } else { PLAIN }.to_owned())
    });
    (origin, asked)
}

#[test]
fn a_throttle_is_a_park_and_the_next_call_does_not_reach_the_provider() {
    let (origin, asked) = first(1, "HTTP/1.1 429 x\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nslow");
    let rig = Rig::with_connection_to(&origin);
    let throttled = call(&rig, "/a", "");
    assert_eq!(status(&throttled), 429, "{throttled}");
    assert!(throttled.ends_with("slow"), "the provider's own body: {throttled}");
    assert_eq!(field(&throttled, "retry-after"), Some("7"));
    assert_eq!(
        field(&throttled, "tidegate-outcome"),
        Some("park; release=7.000; level=connection; source=provider"),
        "{throttled}"
    );
    assert_eq!(field(&throttled, "tidegate-send-state"), Some("response"));
    let record = rig.record();
    assert_eq!((record.status, &*record.outcome), (Some(429), "provider-parked"), "{record:?}");

    let parked = call(&rig, "/b", "");
    assert_eq!((status(&parked), asked.load(Ordering::Relaxed)), (429, 1), "{parked}");
    assert!(parked.contains("\"code\":\"provider-parked\""), "{parked}");
    assert!(field(&parked, "tidegate-outcome").unwrap().ends_with("; level=connection; source=provider"), "{parked}");
    let seconds: u64 = field(&parked, "retry-after").unwrap().parse().unwrap();
    assert!((6..=8).contains(&seconds), "{parked}");
    assert_eq!(field(&parked, "tidegate-retry-budget"), Some("10"), "a park spends none");
    let record = rig.record();
    assert_eq!((record.send_state, record.address), (SendState::NotSent, None), "{record:?}");
}

#[test]
fn a_caller_that_would_rather_wait_waits_here() {
    let (origin, asked) = first(1, "HTTP/1.1 503 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    let rig = Rig::with_connection_to(&origin);
    let throttled = call(&rig, "/a", "");
    assert_eq!((status(&throttled), field(&throttled, "tidegate-provider-status")), (429, Some("503")), "{throttled}");
    let began = Instant::now();
    assert_eq!(status(&call(&rig, "/b", "Prefer: respond-async, wait=10\r\n")), 200);
    assert!((900..4_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[test]
fn a_limit_is_held_and_what_is_over_it_is_parked_by_quota() {
    let (origin, asked) = first(0, "");
    let limits = "[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com\"]\n\
                  [[quota.limit]]\nname = \"hourly\"\nlevel = \"connection\"\nkind = \"fixed\"\nwindow = \"1h\"\ncap = 5\n";
    let rig = Rig::with_limits(&origin, limits);
    let statuses: Vec<u16> = (0..8).map(|_| status(&call(&rig, "/a", ""))).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    let parked = call(&rig, "/a", "");
    let outcome = field(&parked, "tidegate-outcome").unwrap();
    assert!(outcome.starts_with("park; release=") && outcome.ends_with("; level=connection; source=quota"), "{parked}");
    assert!(parked.contains("\"code\":\"quota-exhausted\""), "{parked}");
    let details: Vec<_> = rig.records(9).into_iter().map(|record| record.detail).collect();
    assert_eq!(&*details[8], "connection, hourly: exhausted", "{details:?}");
}

#[test]
fn what_was_not_sent_is_there_again() {
    let (origin, asked) = first(0, "");
    let limits = "[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com\"]\n\
                  [[quota.limit]]\nname = \"hourly\"\nlevel = \"connection\"\nkind = \"fixed\"\nwindow = \"1h\"\ncap = 3\n";
    let rig = Rig::with_limits(&origin, limits);
    // Its certificate is of nobody that is trusted from here on: not one byte of a request is sent.
    rig.trust_nobody(&origin, limits);
    for _ in 0..4 {
        let failed = call(&rig, "/a", "");
        assert_eq!((status(&failed), field(&failed, "tidegate-send-state")), (502, Some("not-sent")), "{failed}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    rig.limit(&origin, limits);
    let statuses: Vec<u16> = (0..4).map(|_| status(&call(&rig, "/a", ""))).collect();
    assert_eq!(statuses, [200, 200, 200, 429], "units are back");
}

#[test]
fn slots_are_held_until_the_answer_has_ended() {
    let origin = Origin::provider_saying(|head| {
        head.contains("/base/long").then(|| {
            std::thread::sleep(Duration::from_millis(700));
            PLAIN.to_owned()
        })
    });
    let limits = "[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com\"]\n\
                  [[quota.limit]]\nname = \"slots\"\nlevel = \"connection\"\nkind = \"concurrent\"\ncap = 1\n";
    let rig = Rig::with_limits(&origin, limits);
    let mut long = rig.open();
    long.send(request(&rig, "/long", "").as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    let parked = call(&rig, "/short", "");
    assert_eq!(status(&parked), 429, "{parked}");
    let waited = call(&rig, "/short", "Prefer: wait=5\r\n");
    assert_eq!(status(&waited), 200, "{waited}");
    assert!(long.read_head().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_throttle_in_a_body_is_read_and_the_body_is_whole() {
    let says = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 54\r\n\r\n\
                {\"errors\":[{\"extensions\":{\"code\":\"THROTTLED\"}}],\"a\":1}";
    let (origin, asked) = first(1, says);
    let limits = "[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com\"]\n\
                  [[quota.signal]]\nstatus = [200]\nbody = { at = \"errors[].extensions.code\", values = [\"THROTTLED\"] }\n\
                  level = \"app\"\npark = \"3s\"\n";
    let rig = Rig::with_limits(&origin, limits);
    let throttled = call(&rig, "/graphql", "");
    assert_eq!((status(&throttled), field(&throttled, "tidegate-provider-status")), (429, Some("200")), "{throttled}");
    assert!(throttled.ends_with("\"a\":1}"), "{throttled}");
    assert!(field(&throttled, "tidegate-outcome").unwrap().contains("level=app"), "{throttled}");
    assert_eq!(status(&call(&rig, "/graphql", "")), 429);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_breaker_opens_for_who_fails_and_for_nobody_else() {
    let (origin, asked) = first(usize::MAX, "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n");
    let rig = Rig::with_connection_to(&origin);
    for _ in 0..5 {
        assert_eq!(status(&call(&rig, "/a", "")), 500);
    }
    let refused = call(&rig, "/a", "");
    assert_eq!((status(&refused), asked.load(Ordering::Relaxed)), (429, 5), "{refused}");
    assert!(refused.contains("\"code\":\"breaker-open\""), "{refused}");
    assert!(field(&refused, "tidegate-outcome").unwrap().ends_with("; level=tenant; source=breaker"), "{refused}");
    // An operator is told by name.
    let egress = rig.egress().parts();
    let node = egress.snapshot.load();
    let (tenant, entry) = node.connections.iter().next().unwrap();
    let called = egress.quota.name_of(entry.connection.breaker_key().unwrap()).unwrap();
    let (kind, what) = entry.connection.breaker_name();
    assert_eq!((&called.tenant, called.kind, &called.what), (tenant, kind, &what));
    // The same tenant elsewhere.
    let other = Origin::http(PLAIN);
    let asked =
        format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}Connection: close\r\n\r\n", other.name(), rig.proof());
    assert_eq!(status(&rig.exchange(&asked)), 200);
}

#[test]
fn client_errors_and_throttles_open_nothing() {
    let (origin, _) = first(usize::MAX, "HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n");
    let rig = Rig::with_connection_to(&origin);
    for _ in 0..30 {
        assert_eq!(status(&call(&rig, "/a", "")), 404);
    }
}

#[test]
fn retries_that_are_said_spend_what_is_told() {
    let (origin, _) = first(0, "");
    let rig = Rig::with_connection_to(&origin);
    assert_eq!(field(&call(&rig, "/a", ""), "tidegate-retry-budget"), Some("10"));
    let left: Vec<String> = (0..3)
        .map(|_| field(&call(&rig, "/a", "Tidegate-Attempt: retry\r\n"), "tidegate-retry-budget").unwrap().to_owned())
        .collect();
    assert_eq!(left, ["9", "8", "7"]);
    assert_eq!(field(&call(&rig, "/a", "Tidegate-Attempt: after-park\r\n"), "tidegate-retry-budget"), Some("7"));
}

#[test]
fn who_runs_away_is_held_back() {
    let (origin, asked) = first(0, "");
    let rig = Rig::with_connection_to(&origin);
    let runaway =
        ratelimit::runaway::Rules { plan_per_minute: 1, floor_per_minute: 1, ..QuotaRules::default().runaway };
    rig.set_quota(&origin, QuotaRules { runaway, ..QuotaRules::default() });
    let began = Instant::now();
    let mut held_back = None;
    while began.elapsed() < Duration::from_secs(50) && held_back.is_none() {
        let answer = call(&rig, "/a", "");
        if status(&answer) == 429 {
            held_back = Some(answer);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let answer = held_back.expect("held back within a minute");
    assert!(answer.contains("\"code\":\"runaway\""), "{answer}");
    assert!(field(&answer, "tidegate-outcome").unwrap().ends_with("; level=connection; source=quota"), "{answer}");
    assert!(asked.load(Ordering::Relaxed) > 5);
}

#[test]
fn what_counts_as_a_failure_is_the_connectors_to_say() {
    let (origin, asked) = first(usize::MAX, "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n");
    let rig = Rig::with_limits(&origin, "breaker_faults = [\"dns\", \"connect\", \"tls\", \"timeout\", \"broken\"]\n");
    for _ in 0..30 {
        assert_eq!(status(&call(&rig, "/a", "")), 500);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 30);
}

const ONE_SLOT: &str = "[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com\"]\n\
                        [[quota.limit]]\nname = \"slots\"\nlevel = \"connection\"\nkind = \"concurrent\"\ncap = 1\n";

#[test]
fn a_hop_gives_its_slot_back_before_the_next_one_asks_for_it() {
    let origin = Origin::provider_saying(|_| None);
    let rig = Rig::with_limits(&origin, ONE_SLOT);
    let answer = call(&rig, "/away", "Tidegate-Follow-Redirects: 3\r\n");
    assert_eq!(status(&answer), 200, "{answer}");
}

#[test]
fn a_slot_is_in_use_for_as_long_as_a_websocket_is_open() {
    let origin = Origin::provider_saying(|head| {
        let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        head.contains("/base/ws").then(|| switched.to_owned())
    });
    let rig = Rig::with_limits(&origin, ONE_SLOT);
    let mut client = rig.open();
    let token = rig.token();
    client.send(
        format!(
            "GET /c/conn_api/ws HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        .as_bytes(),
    );
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let parked = call(&rig, "/other", "");
    assert_eq!(status(&parked), 429, "{parked}");
    drop(client);
    let after = call(&rig, "/other", "Prefer: wait=10\r\n");
    assert_eq!(status(&after), 200, "{after}");
}

#[test]
fn a_retry_that_is_redirected_spends_one() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    let answer = call(&rig, "/away", "Tidegate-Follow-Redirects: 3\r\nTidegate-Attempt: retry\r\n");
    assert_eq!((status(&answer), field(&answer, "tidegate-retry-budget")), (200, Some("9")), "{answer}");
}

/// Its throttles are looked for in bodies, and this one breaks off.
#[test]
fn an_answer_that_breaks_off_is_no_whole_one_for_having_been_looked_into() {
    let says =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\nzz\r\n";
    let (origin, _) = first(1, says);
    let limits = "[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com\"]\n\
                  [[quota.signal]]\nstatus = [200]\nbody = { at = \"errors[].extensions.code\", values = [\"THROTTLED\"] }\n\
                  level = \"app\"\npark = \"3s\"\n";
    let rig = Rig::with_limits(&origin, limits);
    let answer = call(&rig, "/graphql", "");
    assert_eq!((status(&answer), field(&answer, "content-length")), (200, None), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
fn a_retry_that_is_parked_spends_none() {
    let (origin, asked) = first(1, "HTTP/1.1 429 x\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n");
    let rig = Rig::with_connection_to(&origin);
    assert_eq!(status(&call(&rig, "/a", "")), 429);
    for _ in 0..3 {
        let parked = call(&rig, "/a", "Tidegate-Attempt: retry\r\n");
        assert_eq!((status(&parked), field(&parked, "tidegate-retry-budget")), (429, Some("10")), "{parked}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_provider_without_limits_is_believed_that_nothing_is_left() {
    let (origin, asked) = first(1, "HTTP/1.1 200 OK\r\nRateLimit: \"hour\";r=0;t=30\r\nContent-Length: 2\r\n\r\nok");
    let rig = Rig::with_connection_to(&origin);
    assert_eq!(status(&call(&rig, "/a", "")), 200);
    let parked = call(&rig, "/b", "");
    let outcome = field(&parked, "tidegate-outcome").unwrap_or_default();
    assert!(
        outcome.starts_with("park; release=") && outcome.ends_with("; level=connection; source=provider"),
        "{parked}"
    );
    let seconds: u64 = field(&parked, "retry-after").unwrap().parse().unwrap();
    assert!((29..=34).contains(&seconds), "{parked}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
