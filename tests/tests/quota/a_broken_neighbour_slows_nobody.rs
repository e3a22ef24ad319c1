use std::time::Duration;

use tidegate_tests::callers::{Called, Callers, End, quantile};
use tidegate_tests::redis::Redis;
use tidegate_tests::strict::{Fault, Kind, Limit, Strict, Terms};

use crate::lab::{alone, count, ends, fleet, is_success, seconds, tenants};

/// Calls a second of each of ten tenants, and of the neighbour: ten times all of theirs.
const EACH: f64 = 2.0;
const NEIGHBOUR: f64 = 200.0;
/// What a call may take longer beside it: time of a processor that both need.
const SLOWER: Duration = Duration::from_millis(300);

/// The 99th of 100 of those that were due since then.
fn p99(book: &[Called], who: impl Fn(&str) -> bool, from: Duration) -> Duration {
    quantile(book.iter().filter(|called| called.at >= from && who(&called.who)).map(|called| called.took), 990)
}

async fn beside(fault: Fault) {
    let _turn = alone().await;
    let Some(redis) = Redis::start().await else { return };
    let kind = Kind::Sliding { window: Duration::from_secs(1) };
    let terms = Terms {
        limits: vec![Limit::app("shared", kind, 200)],
        skew_ms: 0,
        latency: Duration::from_millis(50),
        tells: false,
    };
    let provider = Strict::start(terms);
    let names = tenants(11);
    let (neighbour, others) = names.split_first().expect("a neighbour");
    let patience = [("egress.limits", "first_byte_timeout", "\"2s\"")];
    let fleet = fleet(2, &redis, &names, &[("strict", &provider)], &patience).await;
    let is_other = |who: &str| who != neighbour;

    let mut callers = Callers::new();
    for name in others {
        callers.steady(&fleet.caller(name, "strict").waiting(5), EACH);
    }
    tokio::time::sleep(seconds(4)).await;
    let alone = p99(&callers.so_far(), is_other, Duration::from_secs(1));

    provider.breaks_for(neighbour, Some(fault));
    let from = callers.now();
    callers.steady(&fleet.caller(neighbour, "strict"), NEIGHBOUR);
    tokio::time::sleep(seconds(8)).await;
    let book = callers.settle().await;
    let (its, theirs): (Vec<Called>, Vec<Called>) = book.into_iter().partition(|called| *called.who == **neighbour);
    let beside = p99(&theirs, is_other, from);
    let arrived = provider.count_of(neighbour);
    println!("{fault:?}: the neighbour's {arrived} arrived, {}; p99 of others {alone:?}, then {beside:?}", ends(&its));
    assert_eq!(count(&theirs, is_success), theirs.len(), "others keep their success: {}", ends(&theirs));
    assert!(beside <= alone + SLOWER, "99 of 100 within {beside:?} beside it, {alone:?} before");
    let by_breaker = count(&its, |end| matches!(end, End::Parked(parked) if parked.source == "breaker"));
    assert!(by_breaker * 2 > its.len(), "most of its calls are held back by its breaker: {}", ends(&its));
    assert!(provider.verdict().worst() == 0, "{:?}", provider.verdict());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_whose_provider_resets_slows_nobody() {
    beside(Fault::Resets).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_whose_provider_is_silent_slows_nobody() {
    beside(Fault::Silence).await;
}
