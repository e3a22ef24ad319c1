use super::*;
use crate::cli::testing::{printed, run};

fn call(correlation: &str, stage: &str, sent_bytes: u64, received_bytes: u64) -> CallLine {
    CallLine {
        correlation: correlation.to_owned(),
        tenant: domain::TenantId::parse("acme").unwrap(),
        role: None,
        caller: "grant:main/run \u{1b}[2J".to_owned(),
        run: None,
        connection: None,
        way: "connect".to_owned(),
        stage: stage.to_owned(),
        destination: "api.example.com:443".to_owned(),
        exit: Some([192, 0, 2, 1].into()),
        age_ms: 61_000,
        sent_bytes,
        received_bytes,
    }
}

fn top(at_unix_ms: u64, calls: Vec<CallLine>) -> Top {
    let acme = || domain::TenantId::parse("acme").unwrap();
    Top {
        at_unix_ms,
        under_way: 40,
        tunnels: 30,
        tenants: vec![Count { tenant: acme(), caller: None, under_way: 40 }],
        callers: vec![Count { tenant: acme(), caller: Some("token:\u{7}ci".to_owned()), under_way: 40 }],
        ports: vec![crate::control::top::PortLine {
            exit: None,
            to: "198.51.100.7:443".parse().unwrap(),
            open: 9,
            open_max: 10,
        }],
        calls,
    }
}

#[test]
fn rates_are_of_the_time_between_two_looks_and_text_is_escaped() {
    let before = top(1_000, vec![call("call_a", "tunnel", 1_000, 0)]);
    let now = top(3_000, vec![call("call_a", "tunnel", 5_096, 2 << 20), call("call_b", "waiting", 0, 0)]);
    let shown = printed(|shell| show(&now, Some(&before), shell));
    assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    let line = |id: &str| shown.lines().find(|line| line.contains(id)).unwrap().to_owned();
    let cells: Vec<String> = line("call_a").split("  ").filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
    assert_eq!(cells[6..11], ["1m 1s", "4.9 KiB", "2.0 MiB", "2.0 KiB", "1.0 MiB"], "{shown}");
    let waits = line("call_b");
    assert!(waits.contains("waiting") && waits.split_whitespace().filter(|cell| *cell == "-").count() == 4, "{shown}");
    for part in ["40 under way: 30 tunnels, 10 requests", "unbound to 198.51.100.7:443: 9 of 10", "and 38 more"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let json = with_rates(&now, &before).unwrap();
    assert_eq!(json["calls"][0]["sentBytesPerSecond"], 2048);
    assert_eq!(json["calls"][1]["sentBytesPerSecond"], serde_json::Value::Null);
}

#[test]
fn a_clock_that_stands_still_or_steps_back_makes_no_rate() {
    let (before, now) =
        (top(3_000, vec![call("call_a", "tunnel", 9, 9)]), top(3_000, vec![call("call_a", "tunnel", 1, 1)]));
    assert_eq!(Rates::between(Some(&before), &now).of(&now.calls[0]), None);
    assert_eq!(Rates::between(None, &now).of(&now.calls[0]), None);
}

#[test]
fn without_an_appliance_it_could_not_tell() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none.sock");
    let socket = socket.to_str().unwrap();
    assert_eq!(run(&["egress", "top", "--socket", socket]).exit, Exit::Failed);
    let id = "call_06dczqd2000020000000000000";
    assert_eq!(run(&["egress", "close", id, "--socket", socket]).exit, Exit::Failed);
    assert_eq!(run(&["egress", "close", "call_?", "--socket", socket]).exit, Exit::Usage);
    assert_eq!(run(&["egress", "top", "--limit", "1001", "--socket", socket]).exit, Exit::Usage);
}
