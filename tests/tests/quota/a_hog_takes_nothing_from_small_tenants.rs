use std::time::Duration;

use tidegate_tests::callers::{Called, Callers, quantile};
use tidegate_tests::redis::Redis;
use tidegate_tests::strict::{Kind, Limit, Strict, Terms};

use crate::lab::{alone, count, ends, fleet, is_success, seconds, tenants};

/// Units a second that the application has.
const RATE: u32 = 60;
/// Calls a second of each small tenant: two thirds of the limit, all of them together.
const SMALL: f64 = 2.0;
/// Before this shares are not known yet.
const WARM: Duration = Duration::from_secs(3);

/// Three nodes, one application, one hog that wants all there is and more, and twenty tenants that want little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_tenants_get_all_they_ask_for_beside_a_hog() {
    let _turn = alone().await;
    let Some(redis) = Redis::start().await else { return };
    let kind = Kind::Token { window: Duration::from_secs(1), burst: 3 * RATE };
    let terms = Terms {
        limits: vec![Limit::app("shared", kind, RATE)],
        skew_ms: 0,
        latency: Duration::from_millis(50),
        tells: false,
    };
    let provider = Strict::start(terms);
    let names = tenants(21);
    let (hog, small) = names.split_first().expect("a hog");
    let fleet = fleet(3, &redis, &names, &[("strict", &provider)], &[]).await;

    let mut callers = Callers::new();
    let from_ms = provider.now_ms();
    callers.greedy(&fleet.caller(hog, "strict").waiting(10), 60);
    for name in small {
        callers.steady(&fleet.caller(name, "strict").waiting(10), SMALL);
    }
    tokio::time::sleep(WARM + seconds(12)).await;
    let to_ms = provider.now_ms();
    let book = callers.settle().await;

    let (of_hog, of_small): (Vec<Called>, Vec<Called>) = book.into_iter().partition(|called| *called.who == **hog);
    let verdict = provider.verdict();
    println!("hog: {}; small ones: {}; {verdict:?}", ends(&of_hog), ends(&of_small));
    assert_eq!(count(&of_small, is_success), of_small.len(), "small tenants get all they ask for: {}", ends(&of_small));
    let warm = of_small.iter().filter(|called| called.at >= WARM).map(|called| called.took);
    let waits = [500, 990, 1_000].map(|thousandths| quantile(warm.clone(), thousandths));
    println!("small tenants: half within {:?}, 99 of 100 within {:?}, all within {:?}", waits[0], waits[1], waits[2]);
    assert!(waits[1] <= Duration::from_secs(1), "99 of 100 calls of small tenants have their answer within {waits:?}");
    assert!(verdict.refused_ppm() <= 1_000 && verdict.worst() == 0, "{verdict:?}");

    let warm_ms = from_ms + u64::try_from(WARM.as_millis()).expect("seconds");
    let used = provider.units_between("shared", warm_ms, to_ms);
    let there_were = u64::from(RATE) * (to_ms - warm_ms) / 1_000;
    println!("{used} of {there_were} units used");
    assert!(
        used * 100 >= there_were * 95,
        "{used} of {there_were} units are used: what nobody else wants is the hog's"
    );
}
