//! What an operator sees of the scheduler: plain numbers.

use domain::TenantId;

use super::core::Counts;

/// Everything at one moment. Counters count from the start of the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    pub slots: u32,
    pub counts: Counts,
    /// The ten tenants with the most slot-milliseconds of the last 60 s, the largest first.
    pub top: Vec<(TenantId, u64)>,
    /// How long runs waited for a slot, in the order of [`crate::ledger::QueueClass`].
    pub waits: [Waits; 4],
    /// The same of runs that were all that their tenant had: the promise is that p99 of these is at most 1 s.
    pub waits_alone: Waits,
    pub turns: Turns,
    /// Runs that were handed in for one tenant and are another's: faults of ours.
    pub mismatches: u64,
    /// Times that the ledger's open runs were gone through, and times that this failed.
    pub scans: u64,
    pub scan_failures: u64,
    /// Runs that were taken up here since the ledger said that nobody works on them.
    pub claimed: u64,
    /// What the queues and timers have allocated.
    pub memory_bytes: usize,
}

/// How turns ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turns {
    pub terminal: u64,
    pub parked: u64,
    pub fenced: u64,
    pub unavailable: u64,
    /// The worker panicked.
    pub crashed: u64,
}

/// A histogram of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// By bound; the last is of what is above them all.
    pub buckets: [u64; Self::BOUNDS_MS.len() + 1],
    pub sum_ms: u64,
}

impl Waits {
    /// Upper bounds, each included, in milliseconds.
    pub const BOUNDS_MS: [u64; 15] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

    pub fn add(&mut self, waited_ms: u64) {
        let at = Self::BOUNDS_MS.iter().position(|bound| waited_ms <= *bound).unwrap_or(Self::BOUNDS_MS.len());
        self.buckets[at] += 1;
        self.sum_ms = self.sum_ms.saturating_add(waited_ms);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The bound that so many of a thousand are at or under; none where nothing was counted, or where it lies above the
    /// last bound.
    pub fn quantile_ms(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        let wanted = (count * per_mille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        let mut bounds = Self::BOUNDS_MS.iter().zip(&self.buckets);
        bounds
            .find(|(_, bucket)| {
                seen += **bucket;
                seen >= wanted
            })
            .map(|(bound, _)| *bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile_ms(990), None);
        for _ in 0..99 {
            waits.add(1);
        }
        waits.add(700);
        assert_eq!((waits.quantile_ms(990), waits.quantile_ms(991), waits.count()), (Some(1), Some(1000), 100));
        waits.add(600_000);
        assert_eq!(waits.quantile_ms(1000), None, "above the last bound");
    }
}
