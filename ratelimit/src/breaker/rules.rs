//! When a breaker opens, for how long, and when it closes.

use super::outcome::Faults;

/// The rules of a connector's breakers. They come with every call, so that a reload resets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Which faults count.
    pub counted: Faults,
    /// One of the ten pieces of the rolling window, in milliseconds.
    pub slot_ms: u32,
    /// Opens at this part of the counted calls in the window, 1 to 100 percent…
    pub fault_percent: u8,
    /// …if there were at least so many.
    pub volume_min: u32,
    /// Opens at so many counted faults in a row, none of them `memory_ms` after the one before.
    pub consecutive_faults: u16,
    /// How long it stays open the first time, and at most; it doubles in between. Each time up to a quarter less,
    /// so that breakers that opened together do not probe together.
    pub open_ms: u32,
    pub open_max_ms: u32,
    /// After this, a probe that did not report is given up. Longer than a call may take.
    pub probe_lease_ms: u32,
    /// So many probes in a row must be good.
    pub probes_to_close: u8,
    /// A closed breaker without a fault for so long is as good as new: its row of faults and the doubling of its
    /// open time are forgotten. So is one that is past its open time when nobody came to probe for so long.
    pub memory_ms: u32,
}

/// Rules that cannot be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRules {
    #[error("a breaker's window, volume, row of faults, times and probes must be above zero")]
    Zero,
    #[error("a breaker's share of faults must be 1 to 100 percent")]
    Percent,
    #[error("a breaker's longest open time must not be below its first")]
    OpenTimes,
    #[error("a breaker's memory must be at least its window and its longest open time")]
    Memory,
}

impl Default for Rules {
    /// Half of at least 20 calls in ten seconds, or five in a row: what a person would call broken, at a volume where
    /// chance does not explain it. Five seconds is longer than a restart behind a load balancer, five minutes short
    /// enough that nobody has to reset a breaker by hand. The lease is longer than the default total time of a call.
    fn default() -> Self {
        Self {
            counted: Faults::ALL,
            slot_ms: 1_000,
            fault_percent: 50,
            volume_min: 20,
            consecutive_faults: 5,
            open_ms: 5_000,
            open_max_ms: 300_000,
            probe_lease_ms: 60_000,
            probes_to_close: 2,
            memory_ms: 600_000,
        }
    }
}

impl Rules {
    pub fn check(&self) -> Result<(), BadRules> {
        let above_zero = [self.slot_ms, self.volume_min, self.open_ms, self.probe_lease_ms, self.memory_ms]
            .iter()
            .chain(&[u32::from(self.consecutive_faults), u32::from(self.probes_to_close)])
            .all(|value| *value > 0);
        if !above_zero {
            return Err(BadRules::Zero);
        }
        if !(1..=100).contains(&self.fault_percent) {
            return Err(BadRules::Percent);
        }
        if self.open_max_ms < self.open_ms {
            return Err(BadRules::OpenTimes);
        }
        let window_ms = u64::from(self.slot_ms) * super::window::SLOTS as u64;
        if u64::from(self.memory_ms) < window_ms.max(u64::from(self.open_max_ms)) {
            return Err(BadRules::Memory);
        }
        Ok(())
    }

    /// How long it stays open the `level`-th time in a row, from one; `salt` is any number that differs between
    /// breakers.
    pub(crate) fn open_for_ms(&self, level: u8, salt: u64) -> u64 {
        let doublings = u32::from(level.max(1) - 1).min(31);
        let whole = (u64::from(self.open_ms) << doublings).min(u64::from(self.open_max_ms));
        whole - salt % (whole / 4 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cannot_be_meant_are_refused_at_their_boundaries() {
        let good = Rules::default();
        let cases = [
            (Rules { volume_min: 0, ..good }, Err(BadRules::Zero)),
            (Rules { probes_to_close: 0, ..good }, Err(BadRules::Zero)),
            (Rules { slot_ms: 0, ..good }, Err(BadRules::Zero)),
            (Rules { fault_percent: 0, ..good }, Err(BadRules::Percent)),
            (Rules { fault_percent: 1, ..good }, Ok(())),
            (Rules { fault_percent: 100, ..good }, Ok(())),
            (Rules { fault_percent: 101, ..good }, Err(BadRules::Percent)),
            (Rules { open_max_ms: 5_000, ..good }, Ok(())),
            (Rules { open_max_ms: 4_999, ..good }, Err(BadRules::OpenTimes)),
            (Rules { memory_ms: 300_000, ..good }, Ok(())),
            (Rules { memory_ms: 299_999, ..good }, Err(BadRules::Memory)),
            (Rules { slot_ms: 60_000, ..good }, Ok(())),
            (Rules { slot_ms: 60_001, ..good }, Err(BadRules::Memory)),
        ];
        for (rules, expected) in cases {
            assert_eq!(rules.check(), expected, "{rules:?}");
        }
        assert_eq!(good.check(), Ok(()));
    }

    #[test]
    fn open_times_double_up_to_the_longest_and_are_a_quarter_shorter_at_most() {
        let rules = Rules::default();
        for (level, whole) in [(0, 5_000), (1, 5_000), (2, 10_000), (6, 160_000), (7, 300_000), (255, 300_000)] {
            assert_eq!(rules.open_for_ms(level, 0), whole, "{level}");
            assert_eq!(rules.open_for_ms(level, whole / 4), whole - whole / 4, "{level}");
            assert_eq!(rules.open_for_ms(level, whole / 4 + 1), whole, "{level}");
        }
    }
}
