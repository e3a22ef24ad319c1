//! What breakers, retry budgets and runaway detection cost: bytes per key, and nanoseconds per call, by number of tenants.
//!
//! Run with `cargo run -p tidegate-ratelimit --example guards`; times want `--release`, bytes do not. Bytes are how much the
//! resident memory of the process grew, so that the tables' slack and the allocator's are in them; with few tenants that is
//! less than a page each and says nothing.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use domain::{Clock, ConnectorId, SystemClock, TenantId};
use ratelimit::breaker::{self, Breakers, Fault, Outcome};
use ratelimit::retry_budget::{Attempt, Budget, RetryBudgets};
use ratelimit::runaway::{self, Runaways};
use ratelimit::{Bounds, Now, PairKey};
use tidegate_ratelimit as ratelimit;

const BOUNDS: Bounds = Bounds { per_tenant: 256, total: 4_000_000 };

fn keys(count: usize) -> Vec<PairKey> {
    let connector = ConnectorId::parse("provider").expect("a name");
    let tenant = |nth| TenantId::parse(&format!("tenant-{nth}")).expect("a name");
    (0..count).map(|nth| PairKey::connector(&tenant(nth), &connector)).collect()
}

/// Resident bytes of this process, from the kernel: what an operator sees.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * 4_096
}

/// Nanoseconds a call, over all keys in an order that no cache foresees.
fn measure(clock: &SystemClock, keys: &[PairKey], mut call: impl FnMut(PairKey)) -> u128 {
    const STEP: usize = 7_919;
    let rounds = 200_000;
    let began = clock.monotonic();
    for nth in 0..rounds {
        call(keys[nth * STEP % keys.len()]);
    }
    clock.monotonic().saturating_sub(began).as_nanos() / rounds as u128
}

struct Costs {
    healthy: u128,
    failing: u128,
    budget: u128,
    attempt: u128,
}

fn costs(clock: &SystemClock, keys: &[PairKey]) -> (Costs, [u64; 3]) {
    let now = Now { mono_ms: 1_000, unix_ms: 1_700_000_000_000 };
    let (rules, watch) = (breaker::Rules::default(), runaway::Rules::default());
    let (breakers, budgets, runaways) = (Breakers::new(BOUNDS), RetryBudgets::new(BOUNDS), Runaways::new(BOUNDS));
    let call = |key, outcome| {
        if let Ok(ticket) = breakers.admit(key, &rules, now) {
            breakers.report(key, &rules, ticket, outcome, now);
        }
    };
    let healthy = measure(clock, keys, |key| call(key, Outcome::Answered));
    assert_eq!(breakers.tracked(), 0, "what works has no entry");
    let mut before = resident_bytes();
    let mut grown = || {
        let after = resident_bytes();
        after.saturating_sub(std::mem::replace(&mut before, after)) / keys.len() as u64
    };
    for key in keys {
        call(*key, Outcome::Failed(Fault::Timeout));
    }
    let breaker_bytes = grown();
    for key in keys {
        assert!(budgets.admit(*key, Budget::default(), Attempt::Retry, now).is_ok());
    }
    let budget_bytes = grown();
    for key in keys {
        runaways.attempt(*key, &watch, now);
    }
    let runaway_bytes = grown();
    let failing = measure(clock, keys, |key| call(key, Outcome::Answered));
    let budget = measure(clock, keys, |key| {
        assert!(budgets.admit(key, Budget::default(), Attempt::First, now).is_ok());
    });
    let attempt = measure(clock, keys, |key| {
        runaways.attempt(key, &watch, now);
    });
    (Costs { healthy, failing, budget, attempt }, [breaker_bytes, budget_bytes, runaway_bytes])
}

fn main() {
    let clock = SystemClock::new();
    println!(
        "tenants | healthy call | tracked breaker | retry budget | runaway (ns each) | resident bytes per key of each"
    );
    for count in [1, 1_000, 10_000, 100_000] {
        let keys = keys(count);
        let (ns, bytes) = costs(&clock, &keys);
        println!(
            "{count:>7} | {:>12} | {:>15} | {:>12} | {:>17} | {bytes:?}",
            ns.healthy, ns.failing, ns.budget, ns.attempt
        );
    }
    println!(
        "records: breaker {} B, baseline {} B, report {} B",
        breaker::RECORD_BYTES,
        runaway::RECORD_BYTES,
        breaker::fleet::REPORT_BYTES
    );
}
