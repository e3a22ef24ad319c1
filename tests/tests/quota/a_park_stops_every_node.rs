use std::time::Duration;

use tidegate_tests::callers::Callers;
use tidegate_tests::eventually;
use tidegate_tests::redis::Redis;
use tidegate_tests::strict::{Kind, Limit, Strict, Terms};

use crate::lab::{beside_another, ends, fleet, is_success, tenants};

/// Until a node that heard nothing from the provider has heard it from another.
const HEARD_MS: u64 = 500;

/// Somebody else has used the same credentials up. The first call that is told so parks everybody at every node until the
/// provider's own moment; then calls come back at a pace, and not all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_park_stops_every_node_and_ends_when_the_provider_said() {
    let _turn = beside_another().await;
    let Some(redis) = Redis::start().await else { return };
    let window = Duration::from_secs(4);
    let limits = vec![Limit::connection("sliding", Kind::Sliding { window }, 120)];
    let terms = Terms { limits, skew_ms: 0, latency: Duration::from_millis(50), tells: false };
    let provider = Strict::start(terms);
    let fleet = fleet(3, &redis, &tenants(2), &[("strict", &provider)], &[]).await;
    let mut callers = Callers::new();
    callers.greedy(&fleet.caller("t01", "strict").waiting(1), 15);
    callers.steady(&fleet.caller("t02", "strict"), 10.0);
    eventually!(provider.count_of("t01") >= 40);

    let from = callers.now();
    provider.is_used_up("t01");
    eventually!(provider.verdict().refused > 0);
    let refused_ms = provider.arrivals().iter().find(|one| one.refused_by.is_some()).expect("there is one").at_ms;
    eventually!(provider.arrivals().iter().any(|one| one.scope == "t01" && one.at_ms > refused_ms + 1_500));
    let book = callers.settle().await;
    let arrivals = provider.arrivals();
    let after = |from_ms: u64, to_ms: u64| {
        let of = arrivals.iter().filter(|one| one.scope == "t01");
        of.filter(|one| (refused_ms + from_ms..refused_ms + to_ms).contains(&one.at_ms)).count()
    };
    // `Retry-After` is in whole seconds, of at least one.
    let (told, parked) = (after(1, HEARD_MS), after(HEARD_MS, 1_000));
    println!("{told} calls arrived within {HEARD_MS} ms of the refusal, {parked} later in its park; {}", ends(&book));
    assert!(told <= 15, "no more than were under way: {told}");
    assert_eq!(parked, 0, "nothing arrives while it is parked");
    let refused = arrivals.iter().filter(|one| one.refused_by.is_some()).count();
    assert!(refused <= 20, "{refused} calls were refused");
    let mut of_other = book.iter().filter(|called| *called.who == *"t02" && called.at >= from);
    assert!(of_other.all(|called| is_success(&called.end)), "another account is not parked: {}", ends(&book));
}
