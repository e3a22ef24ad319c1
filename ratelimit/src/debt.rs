//! What one bucket owes, and governor's arithmetic over it.
//!
//! governor keeps, per key, a time in nanoseconds that is relative to the age of one limiter, and one quota for all
//! keys. Both are wrong here: quotas differ per key, and a limiter rebuilt at a reload would shift every bucket by
//! the old one's age. So we own the store and the clock. A limiter is built for each check (it is two numbers), its
//! clock stands still at zero, and its state is the debt *as of now*, on the stack. What is kept between checks is
//! the moment when the debt is settled, on the process's own monotonic clock, and the rate that it was counted at.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};

use crate::local::Standing;
use crate::rate::{Pace, Rate};

/// Longest debt that is kept, 146 years: room above it keeps governor's sums, which do not saturate, in 64 bits.
const DEBT_NS_MAX: u64 = 1 << 62;

/// The state of one bucket between two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Debt {
    /// When nothing is owed any more: nanoseconds of the process's monotonic clock.
    settled_ns: u64,
    /// The rate that `settled_ns` was computed at.
    per_second: NonZeroU32,
}

impl Debt {
    pub(crate) fn none(rate: Rate) -> Self {
        Self { settled_ns: 0, per_second: rate.per_second }
    }

    /// The same debt *in units*, counted at another rate: who owed ten events owes ten events after a reload, and
    /// not what ten events' time is worth at the new rate. Rounded up.
    #[must_use]
    pub(crate) fn at_rate(self, rate: Rate, now_ns: u64) -> Self {
        if self.per_second == rate.per_second {
            return self;
        }
        let old = Pace::of(Rate { per_second: self.per_second, burst: rate.burst });
        let owed_ns = old.convert(self.owed_ns(now_ns), Pace::of(rate)).min(DEBT_NS_MAX);
        Self { settled_ns: now_ns.saturating_add(owed_ns), per_second: rate.per_second }
    }

    pub(crate) fn owed_ns(self, now_ns: u64) -> u64 {
        self.settled_ns.saturating_sub(now_ns)
    }

    /// A settled debt is the same as none: it need not be kept.
    pub(crate) fn is_settled(self, now_ns: u64) -> bool {
        self.settled_ns <= now_ns
    }

    /// It must have been counted at `rate`.
    pub(crate) fn standing(self, rate: Rate, now_ns: u64) -> Standing {
        let owed_ns = self.owed_ns(now_ns);
        Standing { remaining: Pace::of(rate).remaining(owed_ns), reset: Duration::from_nanos(owed_ns) }
    }

    /// The debt with `amount` on top, or how long until it would fit. It must have been counted at `rate`.
    pub(crate) fn plus(self, rate: Rate, amount: u32, now_ns: u64) -> Result<Self, Duration> {
        debug_assert_eq!(self.per_second, rate.per_second, "a debt is rescaled before it is added to");
        let pace = Pace::of(rate);
        let Some(granules) = pace.granules(amount) else { return Ok(self) };
        let Some(quota) = pace.quota(granules) else { return Ok(self) };
        let owed = OnStack(Cell::new(self.owed_ns(now_ns)));
        let limiter = RateLimiter::<_, _, _, NoOpMiddleware<Nanos>>::new(quota, owed, Still);
        match limiter.check_n(granules) {
            Ok(Ok(())) => {
                let owed_ns = limiter.into_state_store().0.get().min(DEBT_NS_MAX);
                Ok(Self { settled_ns: now_ns.saturating_add(owed_ns), per_second: self.per_second })
            }
            Ok(Err(until)) => Err(until.wait_time_from(Nanos::default())),
            // The quota's burst is at least `granules`, so that this cannot be; the full wait is then the honest answer.
            Err(_) => Err(rate.fills_in()),
        }
    }
}

/// governor's store for one check: what is owed as of now.
#[derive(Debug)]
struct OnStack(Cell<u64>);

impl StateStore for OnStack {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _key: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (answer, owed) = decide(Some(Nanos::new(self.0.get())))?;
        self.0.set(owed.as_u64());
        Ok(answer)
    }
}

/// governor's clock for one check: it is always now.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::default()
    }
}
