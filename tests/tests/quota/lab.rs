//! What scenarios of quota have in common.

use std::time::Duration;

use tidegate_tests::callers::{Called, End};
use tidegate_tests::fleet::{Fleet, Plan, shared};
use tidegate_tests::patience::how_many;
use tidegate_tests::redis::Redis;
use tidegate_tests::strict::Strict;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Two scenarios at a time, or one that measures what a call takes.
static TURN: Semaphore = Semaphore::const_new(2);

/// Nobody else runs meanwhile.
pub async fn alone() -> SemaphorePermit<'static> {
    TURN.acquire_many(2).await.expect("it is never closed")
}

/// One other scenario may run meanwhile.
pub async fn beside_another() -> SemaphorePermit<'static> {
    TURN.acquire().await.expect("it is never closed")
}

/// Seconds that load runs for: so many, times what `TIDEGATE_QUOTA_TIMES` says.
pub fn seconds(usual: u64) -> Duration {
    let times = how_many("TIDEGATE_QUOTA_TIMES", 1);
    Duration::from_secs(usual * u64::try_from(times).expect("a number of a test"))
}

/// Whether this is the long run.
pub fn is_soaked() -> bool {
    how_many("TIDEGATE_QUOTA_TIMES", 1) > 1
}

pub fn tenants(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("t{number:02}")).collect()
}

/// Settings of every scenario. Nobody has run away who is to be greedy.
pub const USUAL: [(&str, &str, &str); 4] = [
    ("logging", "level", "\"error\""),
    ("quota.runaway", "plan_per_minute", "1000000"),
    ("quota.runaway", "floor_per_minute", "1000000"),
    ("egress.limits", "first_byte_timeout", "\"10s\""),
];

/// Nodes that share this Redis, and start.
pub async fn fleet(
    nodes: usize,
    redis: &Redis,
    tenants: &[String],
    providers: &[(&'static str, &Strict)],
    settings: &[(&str, &str, &str)],
) -> Fleet {
    let mut fleet = prepare(nodes, redis, tenants, providers, settings);
    fleet.up().await;
    fleet
}

/// The same, not started.
pub fn prepare(
    nodes: usize,
    redis: &Redis,
    tenants: &[String],
    providers: &[(&'static str, &Strict)],
    settings: &[(&str, &str, &str)],
) -> Fleet {
    let shared = shared(redis.address);
    let shared = shared.iter().map(|(table, key, value)| (*table, *key, value.as_str()));
    let settings: Vec<_> = USUAL.into_iter().chain(shared).chain(settings.iter().copied()).collect();
    Fleet::prepare(&Plan { nodes, tenants, providers, settings: &settings, extra: "" })
}

/// How many ended like this.
pub fn count(book: &[Called], is: impl Fn(&End) -> bool) -> usize {
    book.iter().filter(|called| is(&called.end)).count()
}

pub fn is_success(end: &End) -> bool {
    *end == End::Answered(200)
}

/// How often each end was, for whoever looks into a failure.
pub fn ends(book: &[Called]) -> String {
    let mut ends = std::collections::BTreeMap::<String, usize>::new();
    for called in book {
        let end = match &called.end {
            End::Parked(parked) => format!("parked {} {}", parked.level, parked.source),
            other => format!("{other:?}"),
        };
        *ends.entry(end).or_default() += 1;
    }
    format!("{ends:?}")
}
