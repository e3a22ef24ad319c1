//! What a holder counts of itself: numbers of the node, never of a bucket.

use std::sync::atomic::{AtomicU64, Ordering};

use super::parked::Reason;

/// Upper bounds of the classes of [`Snapshot::latency`], in ms; the last class has none.
pub const LATENCY_BOUNDS_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

const CLASSES: usize = LATENCY_BOUNDS_MS.len() + 1;

/// Counters, each of which only grows.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) local: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) reserve: AtomicU64,
    parked: [AtomicU64; Reason::ALL.len()],
    pub(super) operations: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) granted_units: AtomicU64,
    pub(super) returned_units: AtomicU64,
    pub(super) forfeited_units: AtomicU64,
    pub(super) expired_units: AtomicU64,
    pub(super) spoilt: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) overshoots: AtomicU64,
    pub(super) overshoot_units: AtomicU64,
    pub(super) epochs: AtomicU64,
    latency: Classes,
    age: Classes,
}

/// How many values fell under each of [`LATENCY_BOUNDS_MS`], and their sum.
#[derive(Debug, Default)]
struct Classes {
    counts: [AtomicU64; CLASSES],
    sum_ms: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Calls that went at once, by what was held.
    pub local: u64,
    /// Calls that went after they had waited.
    pub waited: u64,
    /// Calls that went by what is set aside for the time in which the centre is gone.
    pub reserve: u64,
    /// Calls that were parked, by [`Reason::ALL`].
    pub parked: [u64; Reason::ALL.len()],
    /// Operations sent to the centre, again ones counted.
    pub operations: u64,
    pub errors: u64,
    pub given_up: u64,
    /// Answers that say that the protocol was broken.
    pub malformed: u64,
    /// Units of rates and slots that were granted; what was stated as unspent is in it again.
    pub granted_units: u64,
    /// Units that were given back to the centre.
    pub returned_units: u64,
    /// Units that a call did not spend and that were lost all the same, because their lease was another one by then.
    pub forfeited_units: u64,
    /// Units that were left when their lease was over or void.
    pub expired_units: u64,
    /// Calls whose lease was over when the request was about to be written.
    pub spoilt: u64,
    /// Throttles of providers.
    pub throttled: u64,
    /// What could not be remembered to be told: observations and settlements.
    pub dropped: u64,
    /// Observations by which a provider has counted more than the centre had granted, and by how many units.
    pub overshoots: u64,
    pub overshoot_units: u64,
    /// How often an application's centre began another life.
    pub epochs: u64,
    /// Answers of the centre by the time they took.
    pub latency: [u64; CLASSES],
    pub latency_sum_ms: u64,
    /// Leases by their age when another one took their place.
    pub age: [u64; CLASSES],
    pub age_sum_ms: u64,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Classes {
    fn record(&self, ms: u64) {
        let class = LATENCY_BOUNDS_MS.iter().position(|&bound| ms <= bound).unwrap_or(CLASSES - 1);
        add(&self.counts[class], 1);
        add(&self.sum_ms, ms);
    }

    fn read(&self) -> ([u64; CLASSES], u64) {
        (read(&self.counts), self.sum_ms.load(Ordering::Relaxed))
    }
}

fn read<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|at| counters[at].load(Ordering::Relaxed))
}

impl Counters {
    pub(super) fn parked(&self, reason: Reason) {
        add(&self.parked[reason.index()], 1);
    }

    pub(super) fn answered(&self, took_ms: u64) {
        self.latency.record(took_ms);
    }

    pub(super) fn replaced(&self, age_ms: u64) {
        self.age.record(age_ms);
    }

    pub fn snapshot(&self) -> Snapshot {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (latency, latency_sum_ms) = self.latency.read();
        let (age, age_sum_ms) = self.age.read();
        Snapshot {
            local: of(&self.local),
            waited: of(&self.waited),
            reserve: of(&self.reserve),
            parked: read(&self.parked),
            operations: of(&self.operations),
            errors: of(&self.errors),
            given_up: of(&self.given_up),
            malformed: of(&self.malformed),
            granted_units: of(&self.granted_units),
            returned_units: of(&self.returned_units),
            forfeited_units: of(&self.forfeited_units),
            expired_units: of(&self.expired_units),
            spoilt: of(&self.spoilt),
            throttled: of(&self.throttled),
            dropped: of(&self.dropped),
            overshoots: of(&self.overshoots),
            overshoot_units: of(&self.overshoot_units),
            epochs: of(&self.epochs),
            latency,
            latency_sum_ms,
            age,
            age_sum_ms,
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter() {
        let counters = Counters::default();
        for reason in Reason::ALL {
            counters.parked(reason);
        }
        assert_eq!(counters.snapshot().parked, [1; Reason::ALL.len()]);
    }

    #[test]
    fn a_latency_falls_into_the_class_that_bounds_it() {
        let counters = Counters::default();
        for ms in [0, 1, 2, 3, 1_000, 1_001] {
            counters.answered(ms);
        }
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.latency, [2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(snapshot.latency_sum_ms, 2_007);
    }
}
