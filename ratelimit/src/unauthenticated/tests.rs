use std::net::{IpAddr, Ipv4Addr};

use domain::{ManualClock, SystemClock};
use proptest::prelude::*;

use super::*;

const ENDPOINT: u64 = 7;
const OTHER: u64 = 8;

fn settings() -> Settings {
    let count = |n| NonZeroU32::new(n).unwrap();
    Settings {
        failures_per_minute: count(60),
        burst: count(5),
        sources_max: 64 * 4,
        known_failures_per_minute: count(600),
        known_burst: count(50),
        known_max: 64 * 4,
        known_per_endpoint_max: 3,
        known_for: Duration::from_hours(1),
    }
}

struct Fixture {
    clock: Arc<ManualClock>,
    budget: Unauthenticated,
}

fn fixture_of(settings: &Settings) -> Fixture {
    let clock = ManualClock::at_unix_ms(0);
    let budget = Unauthenticated::new(settings, Arc::<ManualClock>::clone(&clock));
    Fixture { clock, budget }
}

fn fixture() -> Fixture {
    fixture_of(&settings())
}

fn source(text: &str) -> Source {
    Source::of(text.parse().unwrap())
}

/// The nth /64 of `2001:db8::/32`.
fn v6(n: u32) -> Source {
    source(&format!("2001:db8:{:x}:{:x}::1", n >> 16, n & 0xffff))
}

fn v4(n: u32) -> Source {
    Source::of(IpAddr::from(Ipv4Addr::from(0x0a00_0000 + n)))
}

impl Fixture {
    /// What a forger does: asks, and fails if he is looked at. How many were looked at.
    fn forge(&self, source: Source, endpoint: u64, times: usize) -> usize {
        (0..times)
            .filter(|_| {
                let admitted = self.budget.admits(source, endpoint).is_ok();
                if admitted {
                    self.budget.failed(source, endpoint);
                }
                admitted
            })
            .count()
    }

    fn wait(&self, source: Source, endpoint: u64) -> Option<Duration> {
        self.budget.admits(source, endpoint).err().map(|throttled| throttled.retry_after)
    }
}

#[test]
fn a_stranger_has_its_burst_of_failures_and_then_one_per_period() {
    let f = fixture();
    let (forger, other) = (source("192.0.2.1"), source("192.0.2.2"));
    assert_eq!(f.forge(forger, ENDPOINT, 100), 5);
    assert_eq!(f.wait(forger, ENDPOINT), Some(Duration::from_secs(1)));
    assert_eq!(f.wait(forger, OTHER), Some(Duration::from_secs(1)), "whichever endpoint it tries");
    assert_eq!(f.wait(other, ENDPOINT), None, "its neighbour is another source");
    f.clock.advance(Duration::from_nanos(999_999_999));
    assert_eq!(f.wait(forger, ENDPOINT), Some(Duration::from_nanos(1)));
    f.clock.advance(Duration::from_nanos(1));
    assert_eq!(f.forge(forger, ENDPOINT, 100), 1);
}

#[test]
fn looking_and_verifying_cost_nothing() {
    let f = fixture();
    let honest = source("192.0.2.1");
    for _ in 0..1_000 {
        assert_eq!(f.wait(honest, ENDPOINT), None);
        f.budget.verified(honest, ENDPOINT);
    }
    assert_eq!(f.budget.stat(), Stat { strangers: 0, known: 1, unrecorded: 0 });
}

#[test]
fn a_64_shares_one_bucket_and_mapped_ipv4_is_ipv4() {
    let f = fixture();
    assert_eq!(f.forge(source("2001:db8::1"), ENDPOINT, 3), 3);
    assert_eq!(f.forge(source("2001:db8::ffff:1"), ENDPOINT, 100), 2);
    assert_eq!(f.forge(source("192.0.2.1"), ENDPOINT, 3), 3);
    assert_eq!(f.forge(source("::ffff:192.0.2.1"), ENDPOINT, 100), 2);
}

#[test]
fn an_honest_provider_behind_one_address_with_a_forger_is_served() {
    let f = fixture();
    let shared = source("192.0.2.1");
    f.budget.verified(shared, ENDPOINT);
    // Forty forgeries for each honest delivery, for an hour.
    for _ in 0..3_600 {
        f.forge(shared, ENDPOINT, 40);
        assert_eq!(f.wait(shared, ENDPOINT), None);
        f.budget.verified(shared, ENDPOINT);
        f.clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_forger_at_one_endpoint_costs_a_known_pair_at_another_nothing() {
    let f = fixture();
    let shared = source("192.0.2.1");
    f.budget.verified(shared, ENDPOINT);
    f.forge(shared, OTHER, 1_000);
    assert!(f.wait(shared, OTHER).is_some());
    assert_eq!(f.wait(shared, ENDPOINT), None);
    assert_eq!(f.forge(shared, ENDPOINT, 1_000), 50, "the pair's bucket was untouched");
}

#[test]
fn whoever_signs_for_his_own_endpoint_is_a_stranger_everywhere_else() {
    let f = fixture();
    let attacker = source("192.0.2.66");
    for _ in 0..10 {
        f.budget.verified(attacker, OTHER);
        f.forge(attacker, ENDPOINT, 100);
    }
    assert!(f.wait(attacker, ENDPOINT).is_some());
    assert_eq!(f.wait(attacker, OTHER), None);
}

#[test]
fn a_known_pair_is_throttled_too_and_the_next_delivery_that_verifies_clears_it() {
    let f = fixture();
    let shared = source("192.0.2.1");
    f.budget.verified(shared, ENDPOINT);
    assert_eq!(f.forge(shared, ENDPOINT, 1_000), 50);
    assert_eq!(f.wait(shared, ENDPOINT), Some(Duration::from_millis(100)));
    f.clock.advance(Duration::from_millis(100));
    assert_eq!(f.wait(shared, ENDPOINT), None);
    f.budget.verified(shared, ENDPOINT);
    assert_eq!(f.forge(shared, ENDPOINT, 1_000), 50);
}

#[test]
fn known_ends_when_it_is_no_longer_recent() {
    let f = fixture();
    let provider = source("192.0.2.1");
    f.budget.verified(provider, ENDPOINT);
    f.clock.advance(Duration::from_secs(3_599));
    f.budget.failed(provider, ENDPOINT);
    assert_eq!(f.budget.stat().strangers, 0);
    f.clock.advance(Duration::from_secs(1));
    f.budget.failed(provider, ENDPOINT);
    assert_eq!(f.budget.stat().strangers, 1);
    f.budget.sweep();
    assert_eq!(f.budget.stat().known, 0);
}

#[test]
fn an_attacker_with_a_32_is_bounded_as_a_network_and_as_a_site() {
    let f = fixture();
    // One /48: its 65,536 sources have the failures of eight.
    let site: usize = (0..20_000).map(|n| f.forge(v6(n), ENDPOINT, 1)).sum();
    assert_eq!(site, 8 * 5);
    // The whole /32, spread over /48s so that none of them is used up: those of sixty-four.
    let network: usize = (0..60_000).map(|n: u32| f.forge(v6(n.rotate_right(16)), ENDPOINT, 1)).sum();
    assert_eq!(site + network, 64 * 5);
    // One hour later: the rate of sixty-four.
    let mut more = 0;
    for second in 0..3_600 {
        f.clock.advance(Duration::from_secs(1));
        more += (0..200).map(|n| f.forge(v6((second * 200 + n) << 16), ENDPOINT, 1)).sum::<usize>();
    }
    assert!(more <= 64 * 3_600 + 64 * 5, "{more}");
    let table = f.budget.stat();
    assert!(table.strangers <= settings().sources_max, "{table:?}");
    assert_eq!(f.wait(source("2001:db9::1"), ENDPOINT), None, "another network");
    assert_eq!(f.wait(source("198.51.100.1"), ENDPOINT), None, "and IPv4");
}

#[test]
fn a_known_pair_inside_the_attackers_network_is_served() {
    let f = fixture();
    f.budget.verified(v6(5), ENDPOINT);
    for n in 0..10_000 {
        f.forge(v6(n), OTHER, 1);
    }
    assert!(f.wait(v6(20_000), ENDPOINT).is_some(), "a stranger is not");
    assert_eq!(f.wait(v6(5), ENDPOINT), None);
}

#[test]
fn a_flood_of_ipv4_sources_neither_grows_the_table_nor_evicts_anybody() {
    let f = fixture();
    let caught = source("192.0.2.1");
    f.forge(caught, ENDPOINT, 10);
    f.budget.verified(source("203.0.113.1"), ENDPOINT);
    let looked_at: usize = (0..100_000).map(|n| f.forge(v4(n * 7), ENDPOINT, 1)).sum();
    let stat = f.budget.stat();
    assert!(stat.strangers <= settings().sources_max, "{stat:?}");
    assert!(stat.unrecorded > 0, "{stat:?}");
    assert_eq!(stat.known, 1);
    assert!(f.wait(caught, ENDPOINT).is_some(), "who was caught stays caught");
    assert_eq!(f.wait(source("203.0.113.1"), ENDPOINT), None, "who is known stays known");
    // 700,000 addresses are eleven /16: each has the burst of sixty-four sources, beside the table's own places.
    assert!(looked_at <= settings().sources_max + 11 * 64 * 5, "{looked_at}");
    // Once the debts are settled there is room again.
    f.clock.advance(Duration::from_secs(10));
    let late = source("198.51.100.1");
    assert_eq!(f.forge(late, ENDPOINT, 100), 5);
    assert_eq!(f.wait(late, ENDPOINT), Some(Duration::from_secs(1)));
}

#[test]
fn the_smallest_table_still_remembers() {
    let f = fixture_of(&Settings { sources_max: 1, known_max: 1, known_per_endpoint_max: 0, ..settings() });
    f.budget.verified(v4(1), ENDPOINT);
    f.budget.verified(v4(2), ENDPOINT);
    assert_eq!(f.forge(v4(3), ENDPOINT, 100), 5);
    assert_eq!(f.budget.stat(), Stat { strangers: 1, known: 1, unrecorded: 0 });
}

#[test]
fn an_endpoint_takes_places_from_itself_first() {
    let f = fixture();
    for n in 0..10 {
        f.budget.verified(v4(n), ENDPOINT);
        f.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(f.budget.stat().known, 3);
    // The last three are the known ones.
    for n in 0..10 {
        f.budget.failed(v4(n), ENDPOINT);
    }
    assert_eq!(f.budget.stat().strangers, 7);
}

#[test]
fn a_tenant_with_many_endpoints_and_sources_takes_nobodys_last_pair() {
    let settings = Settings { known_max: 64 * 16, ..settings() };
    let f = fixture_of(&settings);
    let honest: Vec<u64> = (0..100).collect();
    for endpoint in &honest {
        f.budget.verified(source("203.0.113.1"), *endpoint);
    }
    let before = f.budget.stat().known;
    for n in 0..20_000_u32 {
        f.clock.advance(Duration::from_millis(1));
        f.budget.verified(v4(n), 1_000_000 + u64::from(n % 5_000));
    }
    assert!(f.budget.stat().known <= settings.known_max);
    assert_eq!(before, 100);
    for endpoint in honest {
        // Known: a failure is not a stranger's.
        let strangers = f.budget.stat().strangers;
        f.budget.failed(source("203.0.113.1"), endpoint);
        assert_eq!(f.budget.stat().strangers, strangers, "endpoint {endpoint} lost its pair");
    }
}

#[test]
fn failures_in_flight_are_counted_and_the_wait_stays_bounded() {
    let f = fixture();
    let forger = source("192.0.2.1");
    // A thousand requests pass the look together, and then all of them fail.
    for _ in 0..1_000 {
        f.budget.failed(forger, ENDPOINT);
    }
    assert_eq!(f.wait(forger, ENDPOINT), Some(Duration::from_secs(6)));
}

#[test]
fn threads_share_one_budget() {
    let budget = Unauthenticated::new(&settings(), SystemClock::shared());
    let clock = SystemClock::shared();
    let looked_at = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (budget, looked_at) = (&budget, &looked_at);
            scope.spawn(move || {
                for turn in 0..20_000_u32 {
                    budget.verified(v4(turn % 50), u64::from(turn % 30));
                    if budget.admits(source("192.0.2.1"), 99).is_ok() {
                        budget.failed(source("192.0.2.1"), 99);
                        looked_at.fetch_add(1, Ordering::SeqCst);
                    }
                    if turn.is_multiple_of(1_000) && thread == 0 {
                        budget.sweep();
                    }
                }
            });
        }
    });
    let bound = 5 + clock.monotonic().as_secs() + 1 + 8;
    assert!(looked_at.into_inner() <= bound);
    let stat = budget.stat();
    assert!(stat.known <= 30 * 3 && stat.strangers <= 1, "{stat:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Advance(u64),
    Forge { source: usize, endpoint: u64, times: usize },
    Verify { source: usize, endpoint: u64 },
    Sweep,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..5_000_u64).prop_map(Step::Advance),
        5 => (0..6_usize, 0..3_u64, 1..30_usize)
            .prop_map(|(source, endpoint, times)| Step::Forge { source, endpoint, times }),
        2 => (0..6_usize, 0..3_u64).prop_map(|(source, endpoint)| Step::Verify { source, endpoint }),
        1 => Just(Step::Sweep),
    ]
}

proptest! {
    /// In any interleaving: what is looked at of a stranger is within rate × time + burst, what is looked at of a
    /// pair since it last verified is within its own, and a source that never failed is never refused.
    #[test]
    fn failures_stay_within_their_budgets(steps in prop::collection::vec(any_step(), 1..80)) {
        // Room for all pairs, so that known-ness is plain to say.
        let settings = Settings { known_per_endpoint_max: 10, known_max: 64 * 64, known_for: Duration::MAX, ..settings() };
        let f = fixture_of(&settings);
        let sources: Vec<Source> = (0..6).map(|n| v4(n * 0x0100_0000)).collect();
        let mut known = std::collections::HashMap::new();
        let mut strangers = [0_u64; 6];
        let mut now_ms = 0_u64;
        for step in steps {
            match step {
                Step::Advance(ms) => {
                    f.clock.advance(Duration::from_millis(ms));
                    now_ms += ms;
                }
                Step::Sweep => f.budget.sweep(),
                Step::Verify { source, endpoint } => {
                    f.budget.verified(sources[source], endpoint);
                    known.insert((source, endpoint), (now_ms, 0_u64));
                }
                Step::Forge { source, endpoint, times } => {
                    let looked_at = f.forge(sources[source], endpoint, times) as u64;
                    if let Some((since_ms, failures)) = known.get_mut(&(source, endpoint)) {
                        *failures += looked_at;
                        prop_assert!(*failures <= 50 + (now_ms - *since_ms) / 100);
                    } else {
                        strangers[source] += looked_at;
                        prop_assert!(strangers[source] <= 5 + now_ms / 1_000);
                    }
                }
            }
        }
        prop_assert_eq!(f.budget.stat().known, known.len());
        for (at, failures) in strangers.iter().enumerate() {
            prop_assert!(*failures > 0 || f.wait(sources[at], 99).is_none());
        }
    }
}
