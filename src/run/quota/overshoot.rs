//! What providers counted beyond what was granted, lately: something is wrong that no counter of ours can see.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ratelimit::quota::holder::Snapshot;

/// Samples that are kept, one with each sweep: ten minutes.
const SAMPLES: usize = 30;
/// Less than this part of what was granted is a matter of headers that are read late.
const PERCENT_MIN: u64 = 5;
/// Fewer units say nothing.
const UNITS_MIN: u64 = 100;

/// Granted and overshot, in all, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sums {
    granted: u64,
    overshot: u64,
}

/// The last ten minutes.
#[derive(Debug, Default)]
pub(super) struct Overshoot(Mutex<VecDeque<Sums>>);

impl Overshoot {
    /// With each sweep.
    pub(super) fn sample(&self, counters: &Snapshot) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
        // Units that were given back or ran out were granted all the same, and counted by the centre or not.
        samples.push_back(Sums { granted: counters.granted_units, overshot: counters.overshoot_units });
    }

    /// A sentence for `readyz`.
    pub(super) fn alarm(&self) -> Option<String> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = samples.front().zip(samples.back())?;
        let (granted, overshot) = (last.granted - first.granted, last.overshot - first.overshot);
        (overshot >= UNITS_MIN && overshot * 100 >= granted * PERCENT_MIN).then(|| {
            format!(
                "quota: by their answers, providers counted {overshot} units more within ten minutes than the {granted} that were granted here: \
                 something else uses the same credentials, or a limit is configured too high"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use ratelimit::quota::HolderId;
    use ratelimit::quota::holder::Leases;

    use super::*;

    fn counters(granted: u64, overshot: u64) -> Snapshot {
        let leases: Leases<Nobody> =
            Leases::new(ratelimit::quota::holder::Settings::default(), HolderId(1), 1).unwrap();
        Snapshot { granted_units: granted, overshoot_units: overshot, ..leases.counters().snapshot() }
    }

    #[derive(Debug)]
    struct Nobody;

    impl ratelimit::quota::holder::Token for Nobody {
        fn is_gone(&self) -> bool {
            true
        }
    }

    #[test]
    fn what_providers_count_beyond_a_twentieth_is_told_for_ten_minutes() {
        let overshoot = Overshoot::default();
        assert_eq!(overshoot.alarm(), None);
        overshoot.sample(&counters(1_000, 50));
        overshoot.sample(&counters(9_000, 449));
        assert_eq!(overshoot.alarm(), None, "399 of 8,000");
        overshoot.sample(&counters(9_000, 450));
        let told = overshoot.alarm().unwrap();
        assert!(told.contains("400 units") && told.contains("8000"), "{told}");
        for _ in 0..SAMPLES {
            overshoot.sample(&counters(9_000, 450));
        }
        assert_eq!(overshoot.alarm(), None, "{:?}", overshoot.0);
        overshoot.sample(&counters(9_000, 549));
        assert_eq!(overshoot.alarm(), None, "few");
    }
}
