//! A window that may begin at any time, counted in sub-slots.
//!
//! A unit that was granted in a sub-slot which ends at `e` arrives at the provider before `e + lease + guard`, so that it
//! may be in one window with a unit that is granted at `t` as long as `e + lease + guard + window > t`. Counting every
//! sub-slot for so long is therefore right for any beginning of the provider's window.
//!
//! Of windows whose end the provider has told, what certainly arrived before an end does not count after it.

use crate::quota::rule::{Kind, Rule};

use super::meter::{Credit, late_ms};

/// Sub-slots that count, the oldest first, and the provider's window where it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Slots {
    /// By the ms in which they end. Their length is the rule's of then.
    pub(super) parts: Vec<Slot>,
    /// Of a window whose beginning the provider decides: its last two known ends, 0 where not known.
    pub(super) previous_end_ms: u64,
    pub(super) end_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) end_ms: u64,
    pub(super) units: u64,
}

impl Slots {
    pub(super) fn counted(&self) -> u64 {
        self.parts.iter().map(|slot| slot.units).sum()
    }

    /// Forgets what counts no more.
    pub(super) fn advance(&mut self, rule: &Rule, now_ms: u64) {
        let since_ms = self.since_ms(rule, now_ms);
        self.parts.retain(|slot| slot.units > 0 && slot.end_ms + late_ms(rule) > since_ms);
    }

    /// What arrives up to here does not count.
    fn since_ms(&self, rule: &Rule, now_ms: u64) -> u64 {
        let sliding_ms = now_ms.saturating_sub(rule.window_ms());
        match rule.kind {
            Kind::Anchored { .. } if self.end_ms != 0 && self.end_ms <= now_ms => sliding_ms.max(self.end_ms),
            // The window that is known to end has begun a window's length before.
            Kind::Anchored { .. } if self.end_ms != 0 => sliding_ms.max(self.end_ms.saturating_sub(rule.window_ms())),
            Kind::Anchored { .. }
            | Kind::Sliding { .. }
            | Kind::Fixed { .. }
            | Kind::Calendar { .. }
            | Kind::Bucket { .. }
            | Kind::Concurrency => sliding_ms,
        }
    }

    pub(super) fn debit(&mut self, rule: &Rule, units: u64, now_ms: u64) {
        if units == 0 {
            return;
        }
        let slot_ms = slot_ms(rule);
        let end_ms = (now_ms / slot_ms + 1) * slot_ms;
        match self.parts.last_mut() {
            // Also where the length has changed since: later is never too early.
            Some(last) if last.end_ms >= end_ms => last.units += units,
            _ => self.parts.push(Slot { end_ms, units }),
        }
    }

    /// Of these units, how many are in a sub-slot that still counts.
    pub(super) fn creditable(&self, rule: &Rule, credit: Credit) -> u64 {
        self.slot_of(rule, credit).map_or(0, |slot| slot.units.min(u64::from(credit.units)))
    }

    pub(super) fn credit(&mut self, rule: &Rule, credit: Credit) {
        let Some(Slot { end_ms, .. }) = self.slot_of(rule, credit) else { return };
        if let Some(slot) = self.parts.iter_mut().find(|slot| slot.end_ms == end_ms) {
            slot.units = slot.units.saturating_sub(u64::from(credit.units));
        }
    }

    /// The sub-slot in which units of that time were counted: the first that ends after it.
    fn slot_of(&self, rule: &Rule, credit: Credit) -> Option<Slot> {
        let slot = self.parts.iter().find(|slot| slot.end_ms > credit.granted_ms).copied()?;
        (slot.end_ms <= credit.granted_ms + 2 * slot_ms(rule)).then_some(slot)
    }

    /// Until enough sub-slots have run out.
    pub(super) fn retry_ms(&self, rule: &Rule, cap: u32, units: u32, now_ms: u64) -> u64 {
        let mut counted = self.counted();
        for slot in &self.parts {
            counted -= slot.units;
            if counted + u64::from(units) <= u64::from(cap) {
                return (slot.end_ms + late_ms(rule) + rule.window_ms()).saturating_sub(now_ms);
            }
        }
        rule.window_ms()
    }

    /// The provider's window ends in `reset_ms`. A window is never shorter than the rule's: what a header says too
    /// early, or too often, is not believed, because it would grant more. Of what several say of one window the least
    /// is nearest to the truth: answers take time to come.
    pub(super) fn learn_end(&mut self, rule: &Rule, reset_ms: u64, now_ms: u64) {
        let Kind::Anchored { window_ms, .. } = rule.kind else { return };
        if reset_ms > window_ms + late_ms(rule) {
            return;
        }
        let end_ms = now_ms + reset_ms.min(window_ms);
        let is_window_after = |end: u64| end == 0 || end_ms + late_ms(rule) >= end + window_ms;
        if is_window_after(self.end_ms) {
            self.previous_end_ms = self.end_ms;
            self.end_ms = end_ms;
        } else if end_ms < self.end_ms && is_window_after(self.previous_end_ms) {
            self.end_ms = end_ms;
        }
    }
}

pub(super) fn slot_ms(rule: &Rule) -> u64 {
    match rule.kind {
        Kind::Anchored { window_ms, slots } | Kind::Sliding { window_ms, slots } => {
            window_ms.div_ceil(u64::from(slots))
        }
        Kind::Fixed { .. } | Kind::Calendar { .. } | Kind::Bucket { .. } | Kind::Concurrency => rule.window_ms(),
    }
}
