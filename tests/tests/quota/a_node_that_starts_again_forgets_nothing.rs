use std::time::{Duration, SystemTime};

use tidegate_tests::callers::{Called, Callers, End};
use tidegate_tests::eventually;
use tidegate_tests::fleet::{Fleet, Plan};
use tidegate_tests::strict::{Fault, Kind, Limit, Strict, Terms};

use crate::lab::{USUAL, beside_another, tenants};

const DAY: u64 = 86_400;
const CAP: usize = 40;

fn provider(limits: Vec<Limit>) -> Strict {
    Strict::start(Terms { limits, skew_ms: 0, latency: Duration::from_millis(4), tells: false })
}

/// One node that has no Redis.
async fn node(provider: &Strict, settings: &[(&str, &str, &str)]) -> Fleet {
    let settings: Vec<_> = USUAL.into_iter().chain(settings.iter().copied()).collect();
    let plan =
        Plan { nodes: 1, tenants: &tenants(2), providers: &[("strict", provider)], settings: &settings, extra: "" };
    Fleet::start(&plan).await
}

async fn call(fleet: &Fleet, tenant: &str) -> Called {
    Callers::new().once(&fleet.caller(tenant, "strict")).await
}

fn is_by(called: &Called, by: &str) -> bool {
    matches!(&called.end, End::Parked(parked) if parked.source == by)
}

/// Around midnight a day is closed, on purpose.
async fn not_at_midnight() {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let left = DAY - since.as_secs() % DAY;
    if !(30..DAY - 30).contains(&left) {
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daily_quota_outlives_kill_9_and_a_restart() {
    let _turn = beside_another().await;
    not_at_midnight().await;
    let provider = provider(vec![Limit::connection("daily", Kind::Daily, u32::try_from(CAP).expect("small"))]);
    let mut fleet = node(&provider, &[]).await;
    for _ in 0..10 {
        assert_eq!(call(&fleet, "t01").await.end, End::Answered(200));
    }
    fleet.nodes[0].kill9().await;
    fleet.nodes[0].start().await;
    for _ in 0..5 {
        assert_eq!(call(&fleet, "t01").await.end, End::Answered(200));
    }
    fleet.nodes[0].restart().await;
    let mut calls = 0;
    while calls < 2 * CAP && call(&fleet, "t01").await.end == End::Answered(200) {
        calls += 1;
    }
    let parked = call(&fleet, "t01").await;
    assert!(is_by(&parked, "quota"), "{parked:?}");
    let used = provider.count_of("t01");
    println!("{used} of {CAP} calls arrived");
    provider.verdict().expect_none_over("a day");
    // What the crash took with it is what was leased at that moment.
    assert!((CAP * 3 / 4..=CAP).contains(&used), "{used} of {CAP} calls arrived");
    // It is over for the day, however often the node begins anew.
    for goodbye in [false, true] {
        if goodbye {
            fleet.nodes[0].restart().await;
        } else {
            fleet.nodes[0].kill9().await;
            fleet.nodes[0].start().await;
        }
        let parked = call(&fleet, "t01").await;
        assert!(is_by(&parked, "quota"), "{parked:?}");
    }
    assert_eq!(call(&fleet, "t02").await.end, End::Answered(200), "another account has a day of its own");
    assert_eq!(provider.count_of("t01"), used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker_outlives_kill_9_and_a_restart() {
    let _turn = beside_another().await;
    let provider = provider(Vec::new());
    let mut fleet = node(&provider, &[("quota.breaker", "open", "\"8s\"")]).await;
    provider.breaks_for("t01", Some(Fault::Status(500)));
    let mut calls = 0;
    while !is_by(&call(&fleet, "t01").await, "breaker") {
        calls += 1;
        assert!(calls < 50, "it never opens");
    }
    let opened = std::time::Instant::now();
    let arrived = provider.count_of("t01");
    for goodbye in [false, true] {
        if goodbye {
            fleet.nodes[0].restart().await;
        } else {
            fleet.nodes[0].kill9().await;
            fleet.nodes[0].start().await;
        }
        let parked = call(&fleet, "t01").await;
        assert!(is_by(&parked, "breaker"), "goodbye {goodbye}: {parked:?}");
        let End::Parked(parked) = parked.end else { unreachable!("it was parked") };
        assert!(parked.release <= Duration::from_secs(8), "its clock goes on: {parked:?}");
        assert_eq!(call(&fleet, "t02").await.end, End::Answered(200), "nobody else's is open");
    }
    println!("still open {:?} after it opened", opened.elapsed());
    assert_eq!(provider.count_of("t01"), arrived, "nothing was tried meanwhile");
    provider.breaks_for("t01", None);
    eventually!(call(&fleet, "t01").await.end == End::Answered(200));
    // Some time less than it says, at random, so that not all come back at once.
    assert!(opened.elapsed() >= Duration::from_secs(4), "{:?}", opened.elapsed());
}

/// The judge convicts a node that forgets: one whose journal is taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_journal_is_convicted() {
    let _turn = beside_another().await;
    not_at_midnight().await;
    let provider = provider(vec![Limit::connection("daily", Kind::Daily, 5)]);
    let mut fleet = node(&provider, &[]).await;
    for _ in 0..5 {
        assert_eq!(call(&fleet, "t01").await.end, End::Answered(200));
    }
    fleet.nodes[0].kill9().await;
    std::fs::remove_file(fleet.nodes[0].directory.join("state/quota.journal")).expect("there is a journal");
    fleet.nodes[0].start().await;
    let throttled = call(&fleet, "t01").await;
    assert!(is_by(&throttled, "provider"), "{throttled:?}");
    assert_eq!(provider.verdict().worst(), 1, "{:?}", provider.verdict());
}
