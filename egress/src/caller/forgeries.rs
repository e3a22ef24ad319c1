//! What signatures may cost that turn out to be false.
//!
//! To check one takes some 70 µs, about as long as to take the connection and the request that it came with. A true one is
//! checked once and then known by its hash; a false one may be made up anew for every request. Who makes them up and who
//! has a new grant cannot be told apart before they are checked, and both may well come from one address: that of a host
//! with many runs on it, or the loopback address. So no address is locked out for what was false, and what bounds the cost
//! is:
//!
//! - **A connection** that a false one came over takes no more requests
//!   ([`Exchange::distrust`](listen::Exchange::distrust)): each costs its sender a connection.
//! - **An address** has [`PER_SECOND`] false ones a second checked, less than a hundredth of a CPU.
//! - **Beyond that**, all addresses together have [`SPARE_PER_SECOND`] a second, a third of a CPU. Only where that is used
//!   up as well, by thousands of connections a second, proofs from an address that is over its own are not looked at. Even
//!   then some are, since both budgets refill all the time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::Clock;
use ratelimit::{Source, Throttled, Unauthenticated, unauthenticated};

/// False signatures of one address that are checked each second, and at once: 7 ms of a CPU.
const PER_SECOND: u32 = 100;
/// … and of all addresses that are beyond that, together: 350 ms of a CPU.
const SPARE_PER_SECOND: u64 = 5_000;

/// Nobody has a place here by which he is known: the budget of strangers is everybody's.
const NO_PLACE: u64 = 0;

/// Counts them.
#[derive(Debug)]
pub(super) struct Forgeries {
    clock: Arc<dyn Clock>,
    sources: Unauthenticated,
    spare: Spare,
}

/// Whose budget a false signature is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaidBy {
    Source,
    Spare,
}

impl Forgeries {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let count = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        let settings = unauthenticated::Settings {
            failures_per_minute: count(60 * PER_SECOND),
            burst: count(PER_SECOND),
            ..unauthenticated::Settings::default()
        };
        let sources = Unauthenticated::new(&settings, Arc::clone(&clock));
        Self { clock, sources, spare: Spare::default() }
    }

    /// Is a signature from there looked at? Costs nobody anything yet.
    pub(super) fn admit(&self, source: Source) -> Result<PaidBy, Throttled> {
        match self.sources.admits(source, NO_PLACE) {
            Ok(()) => Ok(PaidBy::Source),
            Err(_) if self.spare.has_room(self.now_ns()) => Ok(PaidBy::Spare),
            Err(throttled) => Err(throttled),
        }
    }

    /// It was false.
    pub(super) fn found(&self, source: Source, paid_by: PaidBy) {
        match paid_by {
            PaidBy::Source => self.sources.failed(source, NO_PLACE),
            PaidBy::Spare => self.spare.spend(self.now_ns()),
        }
    }

    /// Forgets what is settled.
    pub(super) fn sweep(&self) {
        self.sources.sweep();
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// One bucket: the moment when its debt is settled, in nanoseconds.
#[derive(Debug, Default)]
struct Spare(AtomicU64);

const SECOND_NS: u64 = 1_000_000_000;
const PERIOD_NS: u64 = SECOND_NS / SPARE_PER_SECOND;

impl Spare {
    fn has_room(&self, now_ns: u64) -> bool {
        self.0.load(Ordering::Relaxed).saturating_sub(now_ns) + PERIOD_NS <= SECOND_NS
    }

    /// Several may have looked at once: what they spend together beyond a second's worth is owed, up to another second's.
    fn spend(&self, now_ns: u64) {
        let spent = |settled: u64| Some(settled.max(now_ns).saturating_add(PERIOD_NS).min(now_ns + 2 * SECOND_NS));
        // It never says no.
        let _before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use domain::ManualClock;

    use super::*;

    fn source(text: &str) -> Source {
        Source::of(text.parse::<IpAddr>().unwrap())
    }

    /// So many are made up at once: how many of them are looked at.
    fn forge(forgeries: &Forgeries, from: &str, count: usize) -> usize {
        let looked_at = (0..count).filter(|_| {
            let paid_by = forgeries.admit(source(from));
            paid_by.is_ok_and(|paid_by| {
                forgeries.found(source(from), paid_by);
                true
            })
        });
        looked_at.count()
    }

    #[test]
    fn an_address_has_its_own_and_then_what_is_left_for_all() {
        let clock = ManualClock::at_unix_ms(0);
        let forgeries = Forgeries::new(Arc::clone(&clock) as _);
        assert_eq!(forge(&forgeries, "127.0.0.1", 100_000), 5_100);
        assert_eq!(forge(&forgeries, "10.0.0.2", 100_000), 100, "its own is nobody else's");
        for _ in 0..10 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(forge(&forgeries, "127.0.0.1", 100_000), 5_100);
        }
        // Whoever makes up less than that locks nobody out.
        for _ in 0..100 {
            clock.advance(Duration::from_millis(100));
            assert_eq!(forge(&forgeries, "127.0.0.1", 500), 500);
            assert!(forgeries.admit(source("127.0.0.1")).is_ok());
        }
    }
}
