use domain::TenantId;
use ratelimit::PairKey;

use super::*;
use crate::cli::exit::Exit;
use crate::cli::testing::{Ran, printed, run};
use crate::control::quota::tests::Bench;
use crate::control::quota::wire::{
    BreakerLine, BucketLine, ExplainAnswer, Fate, Guards, HolderLine, HoldingLine, LevelLine, ParkLine, RefusalLine,
    RuleLine, RunawayLine, Shown, WhoLine,
};

const DAILY: &str = "hubspot:app/connection:acme.crm:daily";

fn bucket(name: &str) -> BucketLine {
    BucketLine {
        bucket: name.to_owned(),
        level: "connection".to_owned(),
        scope: "acme.crm".to_owned(),
        policy: "daily".to_owned(),
        rule: RuleLine {
            kind: "sliding".to_owned(),
            cap: 500,
            window_ms: 1_000,
            burst: None,
            lease_ms: 500,
            version: 1,
            words: "500 in any 1 s\u{7}".to_owned(),
        },
        used: 498,
        room: 2,
        limit_seen: Some(400),
        park: Some(ParkLine { ms: 61_000, until: "2026-11-30T00:00:00.000Z".to_owned(), why: "provider".to_owned() }),
        released_milli: 125,
        lambda_milli: Some(2_250),
        tenants: 3,
        learning_ms: None,
        generation: 9,
        holders: vec![HolderLine { holder: "\u{1b}[2J".to_owned(), here: true, units: 4, ttl_ms: 900 }],
        refusal: Some(RefusalLine { reason: "provider".to_owned(), retry_ms: 61_000 }),
    }
}

fn who(name: &str) -> WhoLine {
    WhoLine { name: name.to_owned(), key: "0".repeat(32), tenant: None, kind: None, what: None }
}

#[test]
fn tables_say_everything_and_print_nothing_as_it_came() {
    let listed = printed(|shell| buckets::table(&[bucket(DAILY), bucket("\u{1b}[31m")], shell));
    let row = listed.lines().find(|line| line.contains(DAILY)).unwrap();
    for part in ["498/400", "1m 1s", "2026-11-30T00:00:00.000Z", "provider", "2.25"] {
        assert!(row.contains(part), "{part} is not in\n{listed}");
    }
    let here = HoldingLine {
        tenant: "acme\u{9b}".to_owned(),
        free: 3,
        granted: 5,
        in_use: 0,
        ttl_ms: 400,
        generation: 9,
        queued: 1,
        wanted_milli: 1_500,
        asking: true,
    };
    let shown = Shown { line: bucket(DAILY), node: String::new(), here: vec![here], here_all: 3 };
    let whole = printed(|shell| buckets::whole(&shown, shell));
    for part in ["12.5 % of the rate", "2.25 a second and weight each", "(this one)", "and 2 more tenants", "1.5"] {
        assert!(whole.contains(part), "{part} is not in\n{whole}");
    }
    let breakers = Guards {
        all: 5,
        lines: vec![BreakerLine {
            who: who("acme/\u{1b}x:443"),
            phase: "open".to_owned(),
            retry_ms: 5_000,
            times: 2,
            calls: 0,
            faults: 0,
        }],
    };
    let breakers = printed(|shell| guards::breaker_table(&breakers, shell));
    assert!(breakers.contains("open") && breakers.contains("and 4 more"), "{breakers}");
    let runaway = RunawayLine {
        who: who("acme/automation:\u{1b}]0;x"),
        state: "paused".to_owned(),
        throttled_to: None,
        paused_since: Some("2026".to_owned()),
        baseline: Some(300),
        trigger: Some(3_000),
        wanted: 9_000,
        announced: None,
    };
    let runaways = Guards { all: 1, lines: vec![runaway.clone()] };
    let runaways = printed(|shell| guards::runaway_table(&runaways, shell));
    assert!(runaways.contains("paused since 2026") && runaways.contains("9000"), "{runaways}");
    let level = LevelLine {
        bucket: DAILY.to_owned(),
        level: "connection".to_owned(),
        units: 1,
        free: 0,
        asks: true,
        here: None,
        centre: Some(bucket(DAILY)),
        unanswered: None,
    };
    let explained = ExplainAnswer {
        fate: Fate::Parked,
        said: format!("{DAILY} is parked\u{1b}"),
        release_ms: Some(61_000),
        until: Some("2026".to_owned()),
        application: "hubspot:app".to_owned(),
        runaways: vec![runaway],
        breaker: BreakerLine {
            who: who("acme/hubspot"),
            phase: "closed".to_owned(),
            retry_ms: 0,
            times: 0,
            calls: 0,
            faults: 0,
        },
        fleet_breaker: Some(RefusalLine { reason: "half-open\u{1b}".to_owned(), retry_ms: 1_000 }),
        retries_left: 10,
        levels: vec![level.clone(), LevelLine { centre: None, unanswered: Some("no\u{7}".to_owned()), ..level }],
    };
    let explained = printed(|shell| explain::print(&explained, shell));
    for part in ["parked: ", "for 1m 1s (until 2026)", "asks", "provider 1m 1s", "over 3000 it runs away"] {
        assert!(explained.contains(part), "{part} is not in\n{explained}");
    }
    for text in [listed, whole, breakers, runaways, explained] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}

#[test]
fn thousandths_are_short() {
    assert_eq!([0, 5, 1_000, 2_250, 1_000_001].map(milli), ["0", "0.005", "1", "2.25", "1000.001"]);
}

#[test]
fn what_makes_no_sense_is_refused_before_anybody_is_asked() {
    for words in [
        &["park", DAILY][..],
        &["park", DAILY, "--for", "27h"],
        &["park", "daily", "--for", "1m"],
        &["park", "a:b/world:-:c", "--for", "1m"],
        &["reset"],
        &["reset", DAILY],
        &["reset", DAILY, "--breaker", "acme/hubspot"],
        &["reset", "--breaker", "acme"],
        &["reset", "--breaker", "acme/"],
        &["resume", "acme"],
        &["resume", "a b/crm"],
        &["announce", "acme/crm", "--factor", "1", "--until", "1h"],
        &["announce", "acme/crm", "--factor", "20"],
        &["announce", "acme/crm", "--factor", "20", "--until", "now"],
        &["explain", "--tenant", "acme"],
        &["list", "--level", "world"],
        &["list", "--limit", "0"],
        &["park", DAILY, "--for", "1m", "--reason", &"x".repeat(501)],
    ] {
        let ran = run(&[&["quota"], words].concat());
        assert_eq!((ran.exit, ran.answer.as_str()), (Exit::Usage, ""), "{words:?}: {}", ran.remarks);
    }
    let ran = run(&["quota", "list", "--socket", "/nonexistent/tidegate.sock"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.remarks.contains("tidegate run"), "{}", ran.remarks);
}

/// Everything from the command line to the centre and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_looks_parks_and_releases() {
    let bench = Bench::new();
    bench.hold(DAILY, 500).await.unwrap().sent();
    let acme = TenantId::parse("acme").unwrap();
    bench.break_down(PairKey::authority(&acme, "api.example.com:443"));
    let socket = bench.serve();
    let told = tokio::task::spawn_blocking(move || {
        let quota = |words: &[&str]| run(&[&["quota"], words, &["--socket", socket.to_str().unwrap()]].concat());
        let yes = |ran: &Ran| assert_eq!((ran.exit, ran.remarks.as_str()), (Exit::Yes, ""), "{}", ran.answer);

        let listed = quota(&["list"]);
        yes(&listed);
        assert!(listed.answer.contains(DAILY), "{}", listed.answer);
        let lines = quota(&["list", "--json"]).answer;
        let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((line["bucket"].as_str(), line["rule"]["cap"].as_u64()), (Some(DAILY), Some(500)));
        yes(&quota(&["show", DAILY]));
        let nothing = quota(&["show", "hubspot:app/app:-:nothing"]);
        assert_eq!(nothing.exit, Exit::No);

        let goes = quota(&["explain", "--tenant", "acme", "--connection", "crm", "--path", "/crm/v3/objects"]);
        yes(&goes);
        assert!(goes.answer.starts_with("goes: it would go once units are granted of"), "{}", goes.answer);
        let parked = quota(&["park", DAILY, "--for", "10m", "--reason", "ticket 4711"]);
        yes(&parked);
        assert!(parked.answer.starts_with("parked until "), "{}", parked.answer);
        let refused = quota(&["explain", "--tenant", "acme", "--connection", "crm", "--class", "bulk"]);
        assert_eq!(refused.exit, Exit::No, "{}", refused.answer);
        assert!(refused.answer.contains("is parked by an operator, for 9m 59s"), "{}", refused.answer);
        assert!(quota(&["list", "--parked"]).answer.contains("operator"));
        yes(&quota(&["release", DAILY]));
        assert_eq!(quota(&["release", DAILY]).exit, Exit::No);
        yes(&quota(&["reset", DAILY, "--yes"]));

        let breakers = quota(&["breakers", "--open"]);
        assert!(breakers.answer.contains("acme/api.example.com:443"), "{}", breakers.answer);
        yes(&quota(&["reset", "--breaker", "acme/api.example.com:443"]));
        assert_eq!(quota(&["breakers", "--open"]).answer, "no breaker is open\n");
        assert_eq!(quota(&["resume", "acme/crm"]).exit, Exit::No);
        // Its clock is the command's own, and far behind the machine's: what is over is refused by the node.
        yes(&quota(&["announce", "acme/crm", "--factor", "20", "--until", "6h"]));
        assert!(quota(&["runaways"]).answer.contains("20x until "));
        yes(&quota(&["withdraw", "acme/crm"]));
        quota(&["explain", "--tenant", "nobody", "--connection", "crm"])
    });
    let told = told.await.unwrap();
    assert_eq!(told.exit, Exit::Failed);
    assert!(told.remarks.contains("no connection of this id"), "{}", told.remarks);
}
