//! A bucket that is debited after the fact: what happened is counted, room or no room.

use std::num::NonZeroU32;

/// Rate and burst of failures. The state of a bucket is the moment when its debt is settled, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meter {
    period_ns: u64,
    burst_ns: u64,
}

impl Meter {
    pub(super) fn per_minute(failures: NonZeroU32, burst: NonZeroU32) -> Self {
        let period_ns = 60_000_000_000_u64.div_ceil(u64::from(failures.get()));
        Self { period_ns, burst_ns: period_ns.saturating_mul(u64::from(burst.get())) }
    }

    /// The same burst and rate for `times` as many.
    pub(super) fn times(self, times: u32) -> Self {
        let period_ns = self.period_ns.div_ceil(u64::from(times)).max(1);
        let burst = (self.burst_ns / self.period_ns).saturating_mul(u64::from(times));
        Self { period_ns, burst_ns: period_ns.saturating_mul(burst) }
    }

    /// How long until one more failure would be within the burst; zero for now.
    pub(super) fn wait_ns(self, settled_ns: u64, now_ns: u64) -> u64 {
        let owed = settled_ns.saturating_sub(now_ns);
        owed.saturating_add(self.period_ns).saturating_sub(self.burst_ns)
    }

    /// The bucket after one more failure. Counts up to twice the burst, so that the wait stays bounded.
    pub(super) fn failed(self, settled_ns: u64, now_ns: u64) -> u64 {
        let owed = settled_ns.saturating_sub(now_ns).saturating_add(self.period_ns);
        now_ns.saturating_add(owed.min(self.burst_ns.saturating_mul(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(per_minute: u32, burst: u32) -> Meter {
        Meter::per_minute(NonZeroU32::new(per_minute).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn the_burst_passes_and_the_next_waits_for_one_period() {
        let meter = meter(60, 3);
        let mut settled = 0;
        for _ in 0..3 {
            assert_eq!(meter.wait_ns(settled, 5), 0);
            settled = meter.failed(settled, 5);
        }
        assert_eq!(meter.wait_ns(settled, 5), 1_000_000_000);
        assert_eq!(meter.wait_ns(settled, 5 + 999_999_999), 1);
        assert_eq!(meter.wait_ns(settled, 5 + 1_000_000_000), 0);
    }

    #[test]
    fn what_fails_beyond_the_burst_is_counted_up_to_another_burst() {
        let meter = meter(60, 3);
        let settled = (0..100).fold(0, |settled, _| meter.failed(settled, 0));
        assert_eq!(meter.wait_ns(settled, 0), 4_000_000_000);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let meter = meter(1, u32::MAX).times(u32::MAX);
        let settled = meter.failed(u64::MAX, u64::MAX - 1);
        assert_eq!(meter.wait_ns(settled, u64::MAX), 0);
        assert_eq!(Meter::per_minute(NonZeroU32::MAX, NonZeroU32::MIN).times(64).period_ns, 1);
    }
}
