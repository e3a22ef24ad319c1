//! How many slots there are, and who may have how many of them.

use super::window::WINDOW_SECONDS;

/// Most tiers: each costs a look when a slot is given away.
pub const TIERS_MAX: usize = 8;

/// Most slots of a pool.
const SLOTS_MAX: u32 = 65_536;

/// Most runs that wait in memory, of either kind: 60 bytes each.
const RUNS_MAX: u32 = 1 << 26;

/// What tenants of one kind may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Most slots that one of them holds at a time, whoever else waits.
    pub slots_max: u32,
    /// Slots that only they get.
    pub reserve: u32,
}

/// Where a tenant belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// A place in [`Limits::tiers`].
    pub tier: u8,
    /// Most slots that it holds at a time, where that is less than its tier's.
    pub slots_max: u32,
}

impl Member {
    /// Bounded by its tier alone.
    pub fn of(tier: u8) -> Self {
        Self { tier, slots_max: u32::MAX }
    }
}

/// Bounds of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub slots: u32,
    /// By number, 1 to 8 of them. A tenant of a number that is not there has the last.
    pub tiers: Vec<Tier>,
    /// Runs that wait for a slot, in memory.
    pub queued_max: u32,
    /// Runs that wait for a time, in memory.
    pub parked_max: u32,
}

/// Why limits are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitsFault {
    #[error("slots are {slots}, and must be 1 to 65536")]
    Slots { slots: u32 },
    #[error("there are {count} tiers, and must be 1 to 8")]
    Tiers { count: usize },
    #[error("tier {tier} lets a tenant have no slot")]
    NoSlot { tier: usize },
    #[error("tiers reserve {reserved} slots of {slots}, and must leave one")]
    Reserve { reserved: u64, slots: u32 },
    #[error("runs in memory are {runs}, and must be 4 to 67108864")]
    Runs { runs: u32 },
}

impl Default for Limits {
    /// 512 slots, one tier without a bound, and 1,048,576 runs of either kind.
    fn default() -> Self {
        const SLOTS: u32 = 512;
        const RUNS: u32 = 1 << 20;
        Self { slots: SLOTS, tiers: vec![Tier { slots_max: SLOTS, reserve: 0 }], queued_max: RUNS, parked_max: RUNS }
    }
}

impl Limits {
    /// One tier that is bounded by the pool alone.
    pub fn of_slots(slots: u32) -> Self {
        Self { slots, tiers: vec![Tier { slots_max: slots, reserve: 0 }], ..Self::default() }
    }

    /// What they must be for a scheduler to keep them.
    pub fn check(&self) -> Result<(), LimitsFault> {
        let slots = self.slots;
        if !(1..=SLOTS_MAX).contains(&slots) {
            return Err(LimitsFault::Slots { slots });
        }
        if !(1..=TIERS_MAX).contains(&self.tiers.len()) {
            return Err(LimitsFault::Tiers { count: self.tiers.len() });
        }
        if let Some(tier) = self.tiers.iter().position(|tier| tier.slots_max == 0) {
            return Err(LimitsFault::NoSlot { tier });
        }
        // What is reserved is nobody else's: without a shared slot tenants of other tiers would wait for ever.
        let reserved: u64 = self.tiers.iter().map(|tier| u64::from(tier.reserve)).sum();
        if reserved >= u64::from(slots) {
            return Err(LimitsFault::Reserve { reserved, slots });
        }
        let bounds = [self.queued_max, self.parked_max];
        match bounds.into_iter().find(|runs| !(4..=RUNS_MAX).contains(runs)) {
            Some(runs) => Err(LimitsFault::Runs { runs }),
            None => Ok(()),
        }
    }

    /// Slots that no tier reserves.
    pub(super) fn shared(&self) -> u32 {
        self.slots.saturating_sub(self.tiers.iter().map(|tier| tier.reserve).sum())
    }

    /// Of the shared slots, those that only tenants without a slot get.
    pub(super) fn newcomers(&self) -> u32 {
        const PART: u32 = 16;
        const FEWEST: u32 = 4;
        let shared = self.shared();
        if shared < FEWEST { 0 } else { (shared / PART).max(1) }
    }

    /// Slot-milliseconds that one tenant of a tier may have of the last 60 s: max(5 %, pool ÷ tenants waiting, 1 slot). Its
    /// pool is what its tier can have: the shared slots, and those that it reserves.
    pub(super) fn cap_slot_ms(&self, tier: usize, waiting: u32) -> u64 {
        const PART: u64 = 20;
        let reserve = self.tiers.get(tier).map_or(0, |tier| tier.reserve);
        let pool = u64::from(self.shared().saturating_add(reserve)) * WINDOW_SECONDS * 1000;
        let one = WINDOW_SECONDS * 1000;
        (pool / PART).max(pool / u64::from(waiting.max(1))).max(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_is_the_largest_of_three() {
        let of = |slots, waiting| Limits::of_slots(slots).cap_slot_ms(0, waiting);
        assert_eq!(of(512, 0), 512 * 60_000);
        assert_eq!(of(512, 1), 512 * 60_000);
        assert_eq!(of(512, 2), 256 * 60_000);
        assert_eq!(of(400, 20), 20 * 60_000);
        assert_eq!(of(400, 1000), 20 * 60_000, "5 %");
        assert_eq!(of(8, 1000), 60_000, "one slot");
        let tiers = vec![Tier { slots_max: 512, reserve: 0 }, Tier { slots_max: 512, reserve: 112 }];
        let tiered = Limits { tiers, ..Limits::of_slots(512) };
        assert_eq!(tiered.cap_slot_ms(0, 2), 200 * 60_000, "of what it can have");
        assert_eq!(tiered.cap_slot_ms(1, 2), 256 * 60_000);
    }

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        assert_eq!(Limits::default().check(), Ok(()));
        let with = |change: fn(&mut Limits)| {
            let mut limits = Limits::of_slots(8);
            change(&mut limits);
            limits.check()
        };
        assert_eq!(with(|limits| limits.slots = 0), Err(LimitsFault::Slots { slots: 0 }));
        assert_eq!(with(|limits| limits.tiers.clear()), Err(LimitsFault::Tiers { count: 0 }));
        assert_eq!(with(|limits| limits.tiers[0].slots_max = 0), Err(LimitsFault::NoSlot { tier: 0 }));
        assert_eq!(with(|limits| limits.tiers[0].reserve = 8), Err(LimitsFault::Reserve { reserved: 8, slots: 8 }));
        assert_eq!(with(|limits| limits.queued_max = 0), Err(LimitsFault::Runs { runs: 0 }));
        assert_eq!(with(|limits| limits.tiers[0].reserve = 7), Ok(()));
    }

    #[test]
    fn newcomers_have_a_sixteenth() {
        let of = |slots| Limits::of_slots(slots).newcomers();
        assert_eq!([of(1), of(3), of(4), of(31), of(512)], [0, 0, 1, 1, 32]);
    }
}
