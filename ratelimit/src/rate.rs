//! A rate and a burst, and the form of them that governor's arithmetic can hold without losing precision.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;

/// How much per second, and how much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

impl Rate {
    /// `None` where either is zero: a rate of nothing is a disabled endpoint, not a limit.
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        Some(Self { per_second: NonZeroU32::new(per_second)?, burst: NonZeroU32::new(burst)? })
    }

    /// How long an empty bucket takes to fill.
    pub fn fills_in(self) -> Duration {
        Duration::from_nanos(u64::from(self.burst.get()) * NANOS_PER_SECOND / u64::from(self.per_second.get()))
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A period below this many nanoseconds would be off by more than 1/256 when rounded to whole nanoseconds.
const PERIOD_NS_MIN: u64 = 256;

/// A rate in granules: governor counts in whole nanoseconds per unit, and a byte at 1 GB/s takes one of them, so
/// that every rate above a few million a second is counted in granules of 2, 4, 8 … units. Rounding is always to
/// the strict side: a rate is never exceeded, and falls short by at most 0.4 % and one granule per request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) period_ns: u64,
    shift: u32,
    burst: NonZeroU32,
}

impl Pace {
    pub(crate) fn of(rate: Rate) -> Self {
        let per_second = u64::from(rate.per_second.get());
        let mut shift = 0;
        while (NANOS_PER_SECOND << shift) / per_second < PERIOD_NS_MIN {
            shift += 1;
        }
        Self {
            period_ns: (NANOS_PER_SECOND << shift).div_ceil(per_second),
            shift,
            burst: NonZeroU32::new(rate.burst.get() >> shift).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// `None` for nothing at all.
    pub(crate) fn granules(self, amount: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(amount.div_ceil(1 << self.shift))
    }

    /// The quota under which `granules` can pass. An amount above the burst passes when the bucket is full, and
    /// only then: governor would refuse it for ever.
    pub(crate) fn quota(self, granules: NonZeroU32) -> Option<Quota> {
        Some(Quota::with_period(Duration::from_nanos(self.period_ns))?.allow_burst(self.burst.max(granules)))
    }

    /// A debt that was counted at this pace, counted at another: the same units, rounded up.
    pub(crate) fn convert(self, debt_ns: u64, other: Self) -> u64 {
        // Shifts are at most 10, periods below 2^30 << 10: nothing overflows.
        let old = u128::from(self.period_ns) << other.shift;
        let new = u128::from(other.period_ns) << self.shift;
        u64::try_from((u128::from(debt_ns) * new).div_ceil(old)).unwrap_or(u64::MAX)
    }

    /// Units that can pass now, for somebody who owes `debt_ns`.
    pub(crate) fn remaining(self, debt_ns: u64) -> u32 {
        let room_ns = (u64::from(self.burst.get()) * self.period_ns).saturating_sub(debt_ns);
        let units = (room_ns / self.period_ns) << self.shift;
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_that_people_write_are_counted_in_single_units() {
        for per_second in [1, 3, 10, 1_000, 1_000_000, 3_906_250] {
            let pace = Pace::of(Rate::new(per_second, 10).unwrap());
            assert_eq!(pace.granules(7).unwrap().get(), 7, "at {per_second}/s");
        }
        assert_eq!(Pace::of(Rate::new(3_906_251, 10).unwrap()).granules(7).unwrap().get(), 4);
    }

    proptest! {
        #[test]
        fn a_pace_is_never_faster_than_its_rate_and_hardly_slower(per_second in 1..=u32::MAX, burst in 1..=u32::MAX) {
            let pace = Pace::of(Rate::new(per_second, burst).unwrap());
            let ideal_ns = (f64::from(1 << pace.shift)) * 1e9 / f64::from(per_second);
            let ratio = Duration::from_nanos(pace.period_ns).as_secs_f64() * 1e9 / ideal_ns;
            prop_assert!((0.999_999_999..1.004).contains(&ratio), "{ratio}");
            prop_assert!(u64::from(pace.burst.get()) << pace.shift <= u64::from(burst).max(1 << pace.shift));
        }
    }
}
