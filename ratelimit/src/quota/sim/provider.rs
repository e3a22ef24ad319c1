//! Whom the calls go to.

use std::collections::VecDeque;

use crate::quota::rule::{Kind, Rule};

/// A provider, as strict as it says.
#[derive(Debug)]
pub struct Provider {
    rule: Rule,
    skew_ms: i64,
    are_refused_counted: bool,
    window: (u64, u64),
    recent: VecDeque<u64>,
    owed: f64,
    at_ms: u64,
    pub in_flight: u64,
    pub accepted: u64,
    pub refused: u64,
    /// The most by which a refused arrival was over the limit.
    pub worst: u64,
}

impl Provider {
    /// One that counts what it refuses, too, and whose clock is so much ahead.
    pub fn new(rule: Rule, skew_ms: i64) -> Self {
        Self {
            rule,
            skew_ms,
            are_refused_counted: true,
            window: (0, 0),
            recent: VecDeque::new(),
            owed: 0.0,
            at_ms: 0,
            in_flight: 0,
            accepted: 0,
            refused: 0,
            worst: 0,
        }
    }

    /// The same, which counts only what it accepts, if so.
    #[must_use]
    pub fn counting_refused(mut self, are_refused_counted: bool) -> Self {
        self.are_refused_counted = are_refused_counted;
        self
    }

    /// A request of so many units comes; whether it is accepted. Whatever it was, [`Self::answered`] follows.
    pub fn arrive(&mut self, now_ms: u64, cost: u32) -> bool {
        let own_ms = now_ms.saturating_add_signed(self.skew_ms);
        let cost = u64::from(cost);
        let (used, most) = self.count(own_ms, cost);
        let is_ok = used <= most;
        if is_ok {
            self.accepted += 1;
        } else {
            self.refused += 1;
            self.worst = self.worst.max(used - most);
            if !self.are_refused_counted {
                self.uncount(cost);
            }
        }
        is_ok
    }

    /// A request is over there.
    pub fn answered(&mut self, is_ok: bool) {
        if !self.rule.is_rate() && (is_ok || self.are_refused_counted) {
            self.in_flight -= 1;
        }
    }

    /// Counts a request; what is used with it, and how much may be.
    fn count(&mut self, own_ms: u64, cost: u64) -> (u64, u64) {
        let cap = u64::from(self.rule.cap);
        match self.rule.kind {
            Kind::Fixed { window_ms, offset_ms } => {
                let window = (own_ms - offset_ms) / window_ms;
                if self.window.0 != window {
                    self.window = (window, 0);
                }
                self.window.1 += cost;
                (self.window.1, cap)
            }
            Kind::Sliding { window_ms, .. } | Kind::Anchored { window_ms, .. } => {
                while self.recent.front().is_some_and(|&at_ms| at_ms + window_ms <= own_ms) {
                    self.recent.pop_front();
                }
                self.recent.extend(std::iter::repeat_n(own_ms, cost as usize));
                (self.recent.len() as u64, cap)
            }
            Kind::Bucket { window_ms, burst } => {
                let drained = (own_ms - self.at_ms.min(own_ms)) as f64 * cap as f64 / window_ms as f64;
                self.owed = (self.owed - drained).max(0.0) + cost as f64;
                self.at_ms = own_ms;
                // In thousandths, so that rounding is no excess.
                ((self.owed * 1_000.0) as u64, u64::from(burst) * 1_000 + 1)
            }
            Kind::Concurrency => {
                self.in_flight += 1;
                (self.in_flight, cap)
            }
            Kind::Calendar { .. } => unreachable!("no scene has it"),
        }
    }

    /// Takes back what was counted last.
    fn uncount(&mut self, cost: u64) {
        match self.rule.kind {
            Kind::Fixed { .. } | Kind::Calendar { .. } => self.window.1 -= cost,
            Kind::Sliding { .. } | Kind::Anchored { .. } => {
                self.recent.truncate(self.recent.len().saturating_sub(cost as usize));
            }
            Kind::Bucket { .. } => self.owed -= cost as f64,
            Kind::Concurrency => self.in_flight -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::START_MS;
    use super::*;
    use crate::quota::RuleSpec;

    fn provider(kind: Kind) -> Provider {
        let spec = RuleSpec { cfgver: 1, kind, cap: 10, lease_ms: 100, guard_ms: 0, skew_ms: 0 };
        Provider::new(Rule::checked(spec).unwrap(), 0)
    }

    /// Sends twice what is allowed, evenly, for ten windows.
    fn press(mut provider: Provider) -> (u64, u64) {
        for at_ms in (0..10_000).step_by(50) {
            let is_ok = provider.arrive(START_MS + at_ms, 1);
            provider.answered(is_ok);
        }
        (provider.accepted, provider.refused)
    }

    #[test]
    fn one_that_counts_what_it_refuses_shuts_out_who_goes_on() {
        let sliding = || provider(Kind::Sliding { window_ms: 1_000, slots: 10 });
        assert_eq!(press(sliding()), (10, 190));
        assert_eq!(press(sliding().counting_refused(false)), (100, 100));
        let fixed = || provider(Kind::Fixed { window_ms: 1_000, offset_ms: 0 });
        assert_eq!(press(fixed()), press(fixed().counting_refused(false)));
        let bucket = || provider(Kind::Bucket { window_ms: 1_000, burst: 5 });
        assert!(press(bucket()).0 < 20);
        assert!((100..=110).contains(&press(bucket().counting_refused(false)).0));
    }

    #[test]
    fn slots_come_free_with_the_answer() {
        for is_counted in [true, false] {
            let mut provider = provider(Kind::Concurrency).counting_refused(is_counted);
            let taken: Vec<bool> = (0..12).map(|_| provider.arrive(START_MS, 1)).collect();
            assert_eq!(taken.iter().filter(|&&is_ok| is_ok).count(), 10);
            for is_ok in taken {
                provider.answered(is_ok);
            }
            assert_eq!(provider.in_flight, 0);
        }
    }
}
