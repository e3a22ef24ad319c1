use std::time::Duration;

use tidegate_tests::callers::Callers;
use tidegate_tests::eventually;
use tidegate_tests::fleet::{Fleet, Plan};
use tidegate_tests::redis::Redis;
use tidegate_tests::strict::{Kind, Limit, Strict, Terms};

use crate::lab::{USUAL, alone, ends, fleet, is_soaked, seconds, tenants};

/// A provider, and how much of its limit has to be used.
struct Case {
    name: &'static str,
    provider: Strict,
    /// Units that there are in a second, if it is a rate.
    rate: Option<f64>,
    /// Of these, in per cent.
    used: f64,
}

fn case(limit: Limit, skew_ms: i64, rate: Option<f64>, used: f64) -> Case {
    let terms = Terms { limits: vec![limit], skew_ms, latency: Duration::from_millis(50), tells: false };
    Case { name: limit.name, provider: Strict::start(terms), rate, used }
}

/// Units that are granted within any window arrive within it, its lease, its guard and a tenth of it: so much of a
/// sliding window, in per cent, can be used.
fn usable(window: f64) -> f64 {
    100.0 * window / (window + 0.5 + 0.5 + window / 10.0)
}

/// Windows of every kind, each at a provider of its own whose clock is off, each wanted far more of than there is, at
/// three nodes: nothing arrives that is over a limit, and most of each is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_every_kind_hold_at_three_nodes() {
    let _turn = alone().await;
    let Some(redis) = Redis::start().await else { return };
    // Windows by the clock are told apart from others where they are long: 2 s of skew either way and the guard are less
    // than a tenth. The shorter run has those that are not.
    let (whole, part) = if is_soaked() { (60, 10) } else { (4, 4) };
    let (fixed, window) = (Duration::from_secs(whole), Duration::from_secs(part));
    let per = |units: u32, window: Duration| Some(f64::from(units) / window.as_secs_f64());
    let all = usable(window.as_secs_f64());
    // Of what is usable. In windows of seconds each late wake of a busy machine shows; over them nothing may be, ever.
    let least = if is_soaked() { 0.9 } else { 0.75 };
    let of_fixed = if is_soaked() { 100.0 * (60.0 - 4.5) / 60.0 } else { all };
    let cap = 20 * u32::try_from(part).expect("small");
    let of_second = Kind::Token { window: Duration::from_secs(1), burst: 120 };
    let cases = [
        case(Limit::app("fixed", Kind::Fixed { window: fixed }, cap), 2_000, per(cap, fixed), of_fixed),
        case(Limit::app("behind", Kind::Fixed { window: fixed }, cap), -2_000, per(cap, fixed), of_fixed),
        case(Limit::connection("sliding", Kind::Sliding { window }, cap), 500, per(cap, window), all),
        case(Limit::connection("token", of_second, 30), 0, Some(30.0), 100.0),
        case(Limit::app("points", Kind::Sliding { window }, 10 * cap).points(8), 0, per(10 * cap, window), all),
        case(Limit::connection("slots", Kind::Concurrent, 5), 0, None, 0.0),
    ];
    // One that says with every answer what is left, which only ever lowers what is believed.
    let told = Limit::connection("told", Kind::Sliding { window }, cap);
    let terms = Terms { limits: vec![told], skew_ms: -1_000, latency: Duration::from_millis(50), tells: true };
    let told = Case { name: told.name, provider: Strict::start(terms), rate: per(cap, window), used: all };
    let cases: Vec<_> = cases.into_iter().chain([told]).collect();
    let providers: Vec<_> = cases.iter().map(|case| (case.name, &case.provider)).collect();
    // The first places of a store that knows nothing come after a lease of them.
    let fleet = fleet(3, &redis, &tenants(1), &providers, &[("quota", "slot_lease", "\"1s\"")]).await;
    let mut callers = Callers::new();
    for case in &cases {
        let query = if case.name == "points" { "?cost=7" } else { "" };
        callers.greedy(&fleet.caller("t01", case.name).named(case.name).waiting(3).asking(query), 15);
    }
    // The first windows of a store that knows nothing begin late.
    tokio::time::sleep(window + Duration::from_secs(1)).await;
    let from: Vec<u64> = cases.iter().map(|case| case.provider.now_ms()).collect();
    tokio::time::sleep(2 * fixed + seconds(1)).await;
    let to: Vec<u64> = cases.iter().map(|case| case.provider.now_ms()).collect();
    let overshot = fleet.sum("tidegate_egress_quota_overshoot_units_total", &[]).await;
    let granted = fleet.sum("tidegate_egress_quota_granted_units_total", &[]).await;
    let book = callers.settle().await;
    // An answer is older than what has come free since.
    assert!(overshot * 100.0 <= granted, "answers say that {overshot} more were counted than the {granted} granted");
    for (place, case) in cases.iter().enumerate() {
        let own: Vec<_> = book.iter().filter(|called| *called.who == *case.name).cloned().collect();
        let (verdict, span_ms) = (case.provider.verdict(), to[place] - from[place]);
        println!("{}: {verdict:?} {}", case.name, ends(&own));
        verdict.expect_none_over(case.name);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let (units, seconds) =
            (case.provider.units_between(case.name, from[place], to[place]) as f64, span_ms as f64 / 1_000.0);
        if let Some(rate) = case.rate {
            let used = 100.0 * units / (rate * seconds);
            println!("   {used:.1} % used, {:.1} % usable", case.used);
            assert!(
                used >= least * case.used,
                "{}: {used:.1} % of the limit are used, of {:.1} %",
                case.name,
                case.used
            );
        } else {
            // As long as a call takes on its way and at the provider a place is in use.
            let used = 100.0 * units * 0.05 / (5.0 * seconds);
            println!("   {units} calls in {seconds} s: {used:.1} % used");
            assert!(used >= 75.0 * least, "{}: {used:.1} % of the places are used", case.name);
        }
    }
}

/// The judge convicts who does not keep to a limit: the same nodes, of which each counts for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_count_each_for_itself_are_convicted() {
    let _turn = alone().await;
    let window = Duration::from_secs(2);
    let case = case(Limit::connection("sliding", Kind::Sliding { window }, 40), 0, None, 0.0);
    let providers = [("sliding", &case.provider)];
    let plan = Plan { nodes: 3, tenants: &tenants(1), providers: &providers, settings: &USUAL, extra: "" };
    let fleet = Fleet::start(&plan).await;
    let mut callers = Callers::new();
    callers.greedy(&fleet.caller("t01", "sliding"), 15);
    eventually!(case.provider.verdict().refused > 0);
    callers.settle().await;
    let verdict = case.provider.verdict();
    println!("{verdict:?}");
    assert!(verdict.worst() > 0, "{verdict:?}");
}
