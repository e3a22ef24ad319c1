//! Parks, and how a bucket is released after one.
//!
//! A park ends for all nodes and all that waits at the same moment. What is granted from then on is at first only a
//! part α of the rate, one call after the other, so that within δ of the release at most `α · rate · δ + 1` arrive:
//! several providers punish those who are not yet welcome. Each penalty halves α, each clean span gives a tenth back.
//! The rate is that of the window, of a long one as if all of its cap were for ten minutes: a day's average has nothing to
//! do with what a provider takes at once, and would stop whoever has hundreds left for minutes.

use crate::quota::op::{PARK_MS_MAX, Why};
use crate::quota::rule::Rule;

/// α of a bucket that was not penalised lately, in thousandths.
pub(super) const ALPHA_WHOLE: u16 = 1_000;
/// Four halvings: less finds out no sooner whether the provider means it.
const ALPHA_MIN: u16 = 62;
/// What a clean span gives back.
const ALPHA_STEP: u16 = 100;

/// A bucket's last penalty, kept until α is whole again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    /// Nothing is granted before.
    pub(super) park_until_ms: u64,
    pub(super) why: Why,
    pub(super) alpha_milli: u16,
    /// Since when the span that gives α back runs: not during a park.
    pub(super) clean_since_ms: u64,
    /// The next paced unit is not granted before.
    pub(super) paced_until_ms: u64,
}

impl Release {
    /// The penalty that begins a release: α is halved from what it was.
    pub(super) fn penalised(before: Option<Self>, now_ms: u64, delta_ms: u64, why: Why) -> Self {
        let alpha_milli = before.map_or(ALPHA_WHOLE, |before| before.alpha_milli);
        let mut release = Self {
            park_until_ms: before.map_or(0, |before| before.park_until_ms),
            why: before.map_or(why, |before| before.why),
            alpha_milli: (alpha_milli / 2).max(ALPHA_MIN),
            clean_since_ms: now_ms,
            paced_until_ms: before.map_or(0, |before| before.paced_until_ms),
        };
        release.extend(now_ms, delta_ms, why);
        release
    }

    /// Parks until the later of two moments: the order of penalties does not matter.
    pub(super) fn extend(&mut self, now_ms: u64, delta_ms: u64, why: Why) {
        let until_ms = now_ms + delta_ms.min(PARK_MS_MAX);
        if until_ms > self.park_until_ms {
            self.park_until_ms = until_ms;
            self.why = why;
        }
        self.clean_since_ms = self.clean_since_ms.max(self.park_until_ms);
    }

    /// α of this moment; false once it is whole and the release over.
    pub(super) fn advance(&mut self, rule: &Rule, now_ms: u64) -> bool {
        let span_ms = rule.window_ms().clamp(1_000, 60_000);
        let spans = now_ms.saturating_sub(self.clean_since_ms) / span_ms;
        let back = u16::try_from(spans.min(10)).unwrap_or(10) * ALPHA_STEP;
        self.alpha_milli = self.alpha_milli.saturating_add(back).min(ALPHA_WHOLE);
        self.clean_since_ms += spans * span_ms;
        self.alpha_milli < ALPHA_WHOLE || now_ms < self.park_until_ms
    }

    /// Units of a paced release that may go now: one call, or nothing.
    pub(super) fn room(&self, now_ms: u64, least: u32) -> u32 {
        if now_ms >= self.paced_until_ms { least.max(1) } else { 0 }
    }

    /// Spaces what comes next from what is granted now.
    pub(super) fn debit(&mut self, rule: &Rule, units: u32, now_ms: u64) {
        let rate = u128::from(rule.cap) * u128::from(self.alpha_milli.max(1));
        let apart_ms = (u128::from(units) * u128::from(rule.release_window_ms()) * 1_000).div_ceil(rate);
        self.paced_until_ms = now_ms + u64::try_from(apart_ms).unwrap_or(PARK_MS_MAX).min(PARK_MS_MAX);
    }
}
