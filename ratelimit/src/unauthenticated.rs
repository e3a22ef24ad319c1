//! What failed verifications may cost: the budget that is looked at before a body is read.
//!
//! Only a failed verification debits, and a body that never comes whole, which proves nothing either. Looking is free, and so is every delivery that verifies, so that a forger
//! spends his own budget and nobody else's. Who is debited:
//!
//! 1. **A known pair**: a source that has had a delivery verified at this endpoint of late. It has a bucket of its
//!    own, a large one, and each delivery that verifies clears it. An honest provider behind one address with a
//!    forger is refused only when the forger gets in more failures than the whole bucket between two deliveries
//!    that verify. The pair is with the *endpoint*: whoever can sign for an endpoint of his own is known there and
//!    a stranger everywhere else.
//! 2. **A stranger**: any other source. It has a small bucket.
//! 3. **The blocks around it** (IPv6 /48 and /32, IPv4 /24 and /16), for strangers that are not worth an own
//!    bucket. All of IPv6: a customer gets 65,536 sources for nothing and a provider four thousand million, so
//!    that a budget per source alone bounds nobody. IPv4 only once the table of strangers is full. A stranger in a
//!    block that is used up is refused, if he has failed himself or not: that is the price, paid by unknown
//!    neighbours of an attacker while he attacks, and never by a known pair.
//!
//! **When it is full.** Strangers: the newcomer is not recorded, and is judged by its blocks alone; nobody is
//! evicted. An entry lasts as long as its debt, so that filling a table of n sources and keeping it full takes n
//! failures per period, with the default some 65,000 every second. Known pairs: an endpoint takes places only from itself; when the
//! whole table is full, from endpoints that hold more than one, oldest first. The last pair of an endpoint goes when
//! it is no longer recent, and not before. A pair that finds no place is a stranger: nothing worse.
//!
//! **Between look and debit** lies a verification, so that requests in flight can fail together after passing
//! together. Those failures are still counted, up to another burst.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::Clock;

use crate::source::Source;
use crowd::Crowd;
use known::Known;
use meter::Meter;
use strangers::{Recorded, Strangers};

mod crowd;
mod known;
mod meter;
mod strangers;

/// Bounds of the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Failed verifications of one unknown source that are looked at, in the long run.
    pub failures_per_minute: NonZeroU32,
    /// … and at once.
    pub burst: NonZeroU32,
    /// Unknown sources that are remembered, each for as long as its failures are worth. In 64 parts: fewer than 64
    /// are as many as 64.
    pub sources_max: usize,
    /// Failed verifications of a known source at its endpoint, since its last delivery that verified.
    pub known_failures_per_minute: NonZeroU32,
    pub known_burst: NonZeroU32,
    /// Known pairs of source and endpoint that are remembered.
    pub known_max: usize,
    /// … of which one endpoint may have so many.
    pub known_per_endpoint_max: usize,
    /// How long a source stays known after its last delivery that verified.
    pub known_for: Duration,
}

impl Default for Settings {
    /// What `[limits.unauthenticated]` defaults to, with its reasons in `docs/configuration.md`; and the two bounds that
    /// are nobody's to set.
    fn default() -> Self {
        let count = |n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
        Self {
            failures_per_minute: count(60),
            burst: count(120),
            sources_max: 65_536,
            known_failures_per_minute: count(6_000),
            known_burst: count(12_000),
            known_for: Duration::from_hours(1),
            // 24 bytes each and 64 per endpoint: 20 MiB if every pair is of another endpoint.
            known_max: 262_144,
            // The largest providers send from some dozens of addresses.
            known_per_endpoint_max: 128,
        }
    }
}

/// Too many failures: come back later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    pub retry_after: Duration,
}

/// Sizes and counts, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub strangers: usize,
    pub known: usize,
    /// Failures of strangers that found no place in the table, since the start.
    pub unrecorded: u64,
}

/// The unauthenticated budget of a node.
#[derive(Debug)]
pub struct Unauthenticated {
    clock: Arc<dyn Clock>,
    known: Known,
    strangers: Strangers,
    crowd: Crowd,
    unrecorded: AtomicU64,
}

impl Unauthenticated {
    pub fn new(settings: &Settings, clock: Arc<dyn Clock>) -> Self {
        let stranger = Meter::per_minute(settings.failures_per_minute, settings.burst);
        let pair = Meter::per_minute(settings.known_failures_per_minute, settings.known_burst);
        Self {
            clock,
            known: Known::new(pair, settings),
            strangers: Strangers::new(stranger, settings.sources_max),
            crowd: Crowd::new(stranger),
            unrecorded: AtomicU64::new(0),
        }
    }

    /// Is a delivery from this source to this endpoint looked at? Costs nobody anything.
    pub fn admits(&self, source: Source, endpoint: u64) -> Result<(), Throttled> {
        let now_ns = self.now_ns();
        let wait_ns = self.known.wait_ns(source, endpoint, now_ns).unwrap_or_else(|| {
            let (own_ns, counted) = self.strangers.wait_ns(source, now_ns);
            let block_ns = if source.is_v6() || !counted { self.crowd.wait_ns(source, now_ns) } else { 0 };
            own_ns.max(block_ns)
        });
        if wait_ns == 0 { Ok(()) } else { Err(Throttled { retry_after: Duration::from_nanos(wait_ns) }) }
    }

    /// A delivery from this source did not verify.
    pub fn failed(&self, source: Source, endpoint: u64) {
        let now_ns = self.now_ns();
        if self.known.failed(source, endpoint, now_ns) {
            return;
        }
        let recorded = self.strangers.failed(source, now_ns);
        if recorded == Recorded::Full {
            self.unrecorded.fetch_add(1, Ordering::Relaxed);
        }
        if source.is_v6() || recorded == Recorded::Full {
            self.crowd.failed(source, now_ns);
        }
    }

    /// A delivery from this source did verify at this endpoint: from here on the two know each other.
    pub fn verified(&self, source: Source, endpoint: u64) {
        self.known.verified(source, endpoint, self.now_ns());
    }

    /// Forgets what is settled or no longer recent, and gives memory back.
    pub fn sweep(&self) {
        let now_ns = self.now_ns();
        self.known.sweep(now_ns);
        self.strangers.sweep(now_ns);
    }

    pub fn stat(&self) -> Stat {
        Stat {
            strangers: self.strangers.len(),
            known: self.known.len(),
            unrecorded: self.unrecorded.load(Ordering::Relaxed),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
