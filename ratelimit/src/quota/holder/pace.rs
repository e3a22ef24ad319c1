//! How fast units are wanted, and how many to ask for at a time.

/// What arrivals are averaged over.
const MEAN_MS: u64 = 1_000;
/// Arrivals of less than this are not a rate yet.
const FOLD_MS: u64 = 50;
/// Largest block: a bound for arithmetic, no limit is as high.
const BLOCK_MAX: u32 = 1 << 20;

/// Of one lease: what is wanted, granted or not, and how far the block may grow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Thousandths of a unit per second, until `since_ms`.
    rate_milli: u32,
    /// Units since then.
    arrived: u32,
    since_ms: u64,
    /// Largest block: doubled by each one that is used up (1, 2, 4), halved by a park.
    most: u32,
    /// Since a park the block grows by one for each clean window: since when this one runs.
    careful_since_ms: u64,
}

/// No park was noticed lately.
const NEVER: u64 = u64::MAX;

impl Pace {
    pub(super) fn new(now_ms: u64) -> Self {
        Self { rate_milli: 0, arrived: 0, since_ms: now_ms, most: 1, careful_since_ms: NEVER }
    }

    /// Units are wanted. That they are not granted is no reason not to count them.
    pub(super) fn arrive(&mut self, units: u32, now_ms: u64) {
        self.arrived = self.arrived.saturating_add(units);
        if now_ms.saturating_sub(self.since_ms) >= FOLD_MS {
            self.fold(now_ms);
        }
    }

    fn fold(&mut self, now_ms: u64) {
        self.rate_milli = self.rate_milli(now_ms);
        self.arrived = 0;
        self.since_ms = now_ms;
    }

    /// Thousandths of a unit per second that are wanted now.
    pub(super) fn rate_milli(&self, now_ms: u64) -> u32 {
        let span_ms = now_ms.saturating_sub(self.since_ms);
        if span_ms < FOLD_MS {
            return self.rate_milli;
        }
        // The mean of what was, weighted by its length, and of what came since.
        let was = u64::from(self.rate_milli) * MEAN_MS;
        let came = u64::from(self.arrived) * 1_000_000;
        u32::try_from((was + came) / (MEAN_MS + span_ms)).unwrap_or(u32::MAX)
    }

    /// Units that last for `span_ms`, as it looks now.
    pub(super) fn units_in(&self, span_ms: u64, now_ms: u64) -> u32 {
        let units = u64::from(self.rate_milli(now_ms)) * span_ms / 1_000_000;
        u32::try_from(units).unwrap_or(u32::MAX).min(BLOCK_MAX)
    }

    /// How many to ask for, to last for `horizon_ms`.
    pub(super) fn block(&self, horizon_ms: u64, now_ms: u64) -> u32 {
        self.units_in(horizon_ms, now_ms).saturating_add(1).min(self.most)
    }

    /// A block was granted: the next one may be larger.
    pub(super) fn granted(&mut self, window_ms: u64, now_ms: u64) {
        match self.careful_since_ms {
            NEVER => self.most = self.most.saturating_mul(2).min(BLOCK_MAX),
            since_ms if now_ms.saturating_sub(since_ms) >= window_ms => {
                self.most = self.most.saturating_add(1).min(BLOCK_MAX);
                self.careful_since_ms = now_ms;
            }
            _ => {}
        }
    }

    /// The bucket was parked: half the block that was.
    pub(super) fn parked(&mut self, horizon_ms: u64, now_ms: u64) {
        self.most = (self.block(horizon_ms, now_ms) / 2).max(1);
        self.careful_since_ms = now_ms;
    }

    /// Nothing was wanted for long: as at first, but for what a park has taught.
    pub(super) fn rest(&mut self, now_ms: u64) {
        self.fold(now_ms);
        self.most = 1;
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn blocks_grow_by_doubling_to_what_the_rate_needs() {
        let mut pace = Pace::new(0);
        let mut blocks = Vec::new();
        for at_ms in (0..4_000).step_by(10) {
            pace.arrive(1, at_ms);
            if at_ms % 400 == 0 {
                blocks.push(pace.block(1_000, at_ms));
                pace.granted(60_000, at_ms);
            }
        }
        assert_eq!(&blocks[..4], &[1, 2, 4, 8]);
        // 100 per second, as the mean of a second comes to know.
        assert!((95..=101).contains(blocks.last().unwrap()), "{blocks:?}");
    }

    #[test]
    fn a_park_halves_the_block_and_clean_windows_give_it_back_one_by_one() {
        let mut pace = Pace::new(0);
        for at_ms in 0..10_000 {
            pace.arrive(1, at_ms);
            pace.granted(1_000, at_ms);
        }
        let before = pace.block(100, 10_000);
        pace.parked(100, 10_000);
        let after = pace.block(100, 10_000);
        assert_eq!(after, before / 2);
        pace.granted(1_000, 10_500);
        assert_eq!(pace.block(100, 10_000), after, "not within the window");
        pace.granted(1_000, 11_000);
        assert_eq!(pace.block(100, 10_000), after + 1);
    }

    #[test]
    fn a_rate_falls_when_nothing_comes() {
        let mut pace = Pace::new(0);
        for at_ms in 0..5_000 {
            pace.arrive(1, at_ms);
        }
        assert!(pace.rate_milli(5_000) > 900_000);
        assert!(pace.rate_milli(15_000) < 100_000);
    }
}
