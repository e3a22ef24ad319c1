//! The arithmetic of each kind: what counts against a limit at a moment, and what one more unit would do.
//!
//! Everything here is in integers and takes the time as an argument. What is over the limit is a debt: it comes from
//! settlements, headers and tallies, never from grants.

use crate::quota::rule::{GUARD_MS_MAX, Kind, Pace, Rule};

use super::slots::Slots;

/// What a bucket has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meter {
    Window(Window),
    Slots(Box<Slots>),
    Debt(Debt),
    /// Slots of concurrency are with their lessees.
    Held,
}

/// One window of those that follow each other. `start_ms` is its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) used: u64,
}

/// A bucket that drains, in the integers of [`Pace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Debt {
    pub(super) owed: u64,
    pub(super) at_ms: u64,
    /// The `unit` that it is counted in.
    pub(super) unit: u64,
    /// Since when nothing is owed, where nothing is.
    pub(super) clear_ms: u64,
}

/// Units that were granted at some time and are counted anew, or not at all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Credit {
    pub(super) units: u32,
    pub(super) granted_ms: u64,
}

/// Whether units may be granted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// So many, and at least as many ms until a lease has to be over.
    Units {
        units: u64,
        ttl_ms: u64,
    },
    /// Not between these two windows.
    Shut {
        retry_ms: u64,
    },
    NoWindow,
}

impl Meter {
    pub(super) fn new(rule: &Rule) -> Self {
        match rule.kind {
            Kind::Fixed { .. } | Kind::Calendar { .. } => Self::Window(Window::default()),
            Kind::Anchored { .. } | Kind::Sliding { .. } => Self::Slots(Box::default()),
            Kind::Bucket { .. } => Self::Debt(Debt::default()),
            Kind::Concurrency => Self::Held,
        }
    }

    /// Takes the meter to this moment. What is over is forgotten, and nothing else is, also when the rule is another
    /// one than last time: what was used stays used in the window that is then.
    pub(super) fn advance(&mut self, rule: &Rule, now_ms: u64) {
        match self {
            // A window that has not begun was told by a holder: the clock that it began by was ahead of this one.
            Self::Window(window) if now_ms < window.start_ms => {}
            Self::Window(window) => {
                let (start_ms, end_ms) = bounds(rule, now_ms).unwrap_or((window.start_ms, window.end_ms));
                if (window.start_ms, window.end_ms) != (start_ms, end_ms) {
                    let used = if window.end_ms > start_ms { window.used } else { 0 };
                    *window = Window { start_ms, end_ms, used };
                }
            }
            Self::Slots(slots) => slots.advance(rule, now_ms),
            Self::Debt(debt) => debt.advance(pace(rule), now_ms),
            Self::Held => {}
        }
    }

    /// The id of the window of this moment: see [`crate::quota::Tally`].
    pub(super) fn wid(&self, rule: &Rule, now_ms: u64) -> u64 {
        match self {
            Self::Window(window) => window.start_ms,
            Self::Slots(_) | Self::Debt(_) => now_ms / rule.memory_ms(),
            Self::Held => 0,
        }
    }

    /// Whether what was counted in the last span of time still counts in this one.
    pub(super) fn is_continuous(&self) -> bool {
        matches!(self, Self::Slots(_) | Self::Debt(_))
    }

    /// Goes to a window that a lessee was granted units in and that has not begun by this clock: what was granted in it
    /// is counted in it, and nothing more is granted before. Clocks of two centres that differ by more than
    /// [`GUARD_MS_MAX`] are not believed.
    pub(super) fn reach(&mut self, rule: &Rule, wid: u64, now_ms: u64) {
        if let Self::Window(window) = self
            && wid > now_ms
            && wid > window.start_ms
            && wid - now_ms <= u64::from(GUARD_MS_MAX)
            && let Some((start_ms, end_ms)) = bounds(rule, wid)
            && start_ms == wid
        {
            *window = Window { start_ms, end_ms, used: 0 };
        }
    }

    pub(super) fn window(&self) -> Option<&Window> {
        match self {
            Self::Window(window) => Some(window),
            Self::Slots(_) | Self::Debt(_) | Self::Held => None,
        }
    }

    /// Units that count now.
    pub(super) fn used(&self) -> u64 {
        match self {
            Self::Window(window) => window.used,
            Self::Slots(slots) => slots.counted(),
            Self::Debt(debt) => debt.owed.div_ceil(debt.unit.max(1)),
            Self::Held => 0,
        }
    }

    /// What may be granted under `cap` (of a bucket that refills, its burst), once `credit` is taken off. The meter is at this moment.
    pub(super) fn room(&self, rule: &Rule, cap: u32, credit: Credit, now_ms: u64) -> Room {
        let lease_ms = u64::from(rule.lease_ms);
        let cap = u64::from(cap);
        match self {
            Self::Window(window) => {
                let (open_ms, close_ms) = window.opening(rule);
                if now_ms >= window.end_ms {
                    return Room::NoWindow;
                }
                if now_ms < open_ms {
                    return Room::Shut { retry_ms: open_ms - now_ms };
                }
                if now_ms >= close_ms {
                    return Room::Shut { retry_ms: window.end_ms + u64::from(rule.skew_ms) - now_ms };
                }
                let units = (cap + u64::from(credit.units)).saturating_sub(window.used);
                Room::Units { units, ttl_ms: lease_ms.min(close_ms - now_ms) }
            }
            Self::Slots(slots) => {
                let credited = slots.creditable(rule, credit);
                Room::Units { units: (cap + credited).saturating_sub(slots.counted()), ttl_ms: lease_ms }
            }
            Self::Debt(debt) => {
                let pace = pace(rule);
                let left = debt.owed - debt.creditable(pace, credit);
                // A limit that the provider told is of the whole bucket.
                let most = pace.most.min(cap.saturating_mul(pace.unit));
                let units = most.saturating_sub(left) / pace.unit;
                // One call may cost more than the lease delay leaves of the burst: it goes once everything that was
                // granted has drained and has had the time to arrive, too.
                let is_clear = debt.owed == 0 && now_ms.saturating_sub(debt.clear_ms) >= late_ms(rule);
                let whole = if is_clear { cap } else { 0 };
                Room::Units { units: units.max(whole), ttl_ms: lease_ms }
            }
            Self::Held => Room::Units { units: cap, ttl_ms: lease_ms },
        }
    }

    /// How many units a block may be part of: a window's cap, or what a bucket grants at once.
    pub(super) fn whole(rule: &Rule, cap: u32) -> u32 {
        match rule.kind {
            Kind::Bucket { .. } => u32::try_from(pace(rule).most / pace(rule).unit).unwrap_or(cap).min(cap),
            Kind::Fixed { .. }
            | Kind::Anchored { .. }
            | Kind::Calendar { .. }
            | Kind::Sliding { .. }
            | Kind::Concurrency => cap,
        }
    }

    /// Until there would be room for `units`, if nobody else takes them.
    pub(super) fn retry_ms(&self, rule: &Rule, cap: u32, units: u32, now_ms: u64) -> u64 {
        let wait_ms = match self {
            Self::Window(window) => (window.end_ms + u64::from(rule.skew_ms)).saturating_sub(now_ms),
            Self::Slots(slots) => slots.retry_ms(rule, cap, units, now_ms),
            Self::Debt(debt) => {
                let pace = pace(rule);
                match pace.most.checked_sub(u64::from(units).saturating_mul(pace.unit)) {
                    Some(room) => debt.owed.saturating_sub(room).div_ceil(pace.per_ms),
                    None if debt.owed == 0 => (debt.clear_ms + late_ms(rule)).saturating_sub(now_ms),
                    None => debt.owed.div_ceil(pace.per_ms) + late_ms(rule),
                }
            }
            Self::Held => u64::from(rule.lease_ms) / 4,
        };
        wait_ms.max(1)
    }

    /// Counts units that are granted, or turn out to be used.
    pub(super) fn debit(&mut self, rule: &Rule, units: u64, now_ms: u64) {
        match self {
            Self::Window(window) => window.used = window.used.saturating_add(units),
            Self::Slots(slots) => slots.debit(rule, units, now_ms),
            Self::Debt(debt) => debt.owed = debt.owed.saturating_add(units.saturating_mul(pace(rule).unit)),
            Self::Held => {}
        }
    }

    /// Takes back units that are not spent. The caller has checked that they are of the window of this moment.
    pub(super) fn credit(&mut self, rule: &Rule, credit: Credit) {
        match self {
            Self::Window(window) => window.used = window.used.saturating_sub(u64::from(credit.units)),
            Self::Slots(slots) => slots.credit(rule, credit),
            Self::Debt(debt) => {
                debt.owed -= debt.creditable(pace(rule), credit);
                if debt.owed == 0 {
                    debt.clear_ms = debt.at_ms;
                }
            }
            Self::Held => {}
        }
    }

    /// Counts at least so many, as the provider says.
    pub(super) fn raise_to(&mut self, rule: &Rule, used: u64, now_ms: u64) {
        match self {
            Self::Debt(debt) => debt.owed = debt.owed.max(used.saturating_mul(pace(rule).unit)),
            Self::Window(_) | Self::Slots(_) => {
                let missing = used.saturating_sub(self.used());
                self.debit(rule, missing, now_ms);
            }
            Self::Held => {}
        }
    }

    /// Whether it is as a new one.
    pub(super) fn is_blank(&self, now_ms: u64) -> bool {
        match self {
            Self::Window(window) => window.used == 0 || window.end_ms <= now_ms,
            Self::Slots(slots) => slots.counted() == 0,
            Self::Debt(debt) => debt.owed == 0,
            Self::Held => true,
        }
    }
}

impl Window {
    /// Between which moments units may be granted: the provider's clock may be behind when the window begins and ahead
    /// when it ends, and what is spent last still has to arrive in it.
    pub(super) fn opening(&self, rule: &Rule) -> (u64, u64) {
        let (skew_ms, guard_ms) = (u64::from(rule.skew_ms), u64::from(rule.guard_ms));
        (self.start_ms + skew_ms, self.end_ms.saturating_sub(guard_ms + skew_ms))
    }
}

impl Debt {
    fn advance(&mut self, pace: Pace, now_ms: u64) {
        if self.unit != pace.unit {
            // A rate that changes leaves units as they are: what is owed is counted in them, not in time.
            let scaled = u128::from(self.owed) * u128::from(pace.unit);
            self.owed = u64::try_from(scaled.div_ceil(u128::from(self.unit.max(1)))).unwrap_or(u64::MAX);
            self.unit = pace.unit;
        }
        if self.owed > 0 {
            let drained = now_ms.saturating_sub(self.at_ms).saturating_mul(pace.per_ms);
            if drained >= self.owed {
                self.clear_ms = self.at_ms + self.owed.div_ceil(pace.per_ms);
            }
            self.owed = self.owed.saturating_sub(drained);
        }
        self.at_ms = now_ms;
    }

    /// Of a unit that will not be spent, what has not drained since it was granted. Not more: had it never been
    /// granted, the bucket might have been empty meanwhile, and nothing drains from an empty one. The debt with it and
    /// the debt without it differ by at least `units − rate · age`, and crediting more would grant what never refilled.
    fn creditable(&self, pace: Pace, credit: Credit) -> u64 {
        let drained = self.at_ms.saturating_sub(credit.granted_ms).saturating_mul(pace.per_ms);
        u64::from(credit.units).saturating_mul(pace.unit).saturating_sub(drained).min(self.owed)
    }
}

pub(super) fn late_ms(rule: &Rule) -> u64 {
    u64::from(rule.lease_ms) + u64::from(rule.guard_ms)
}

/// The pace of a rule of kind [`Kind::Bucket`]; of others never asked.
pub(super) fn pace(rule: &Rule) -> Pace {
    match rule.kind {
        Kind::Bucket { window_ms, burst } => Pace::of(rule.cap, window_ms, burst, rule.lease_ms + rule.guard_ms),
        Kind::Fixed { .. }
        | Kind::Anchored { .. }
        | Kind::Calendar { .. }
        | Kind::Sliding { .. }
        | Kind::Concurrency => Pace::of(rule.cap, rule.window_ms(), rule.cap, 0),
    }
}

/// Begin and end of the window of this moment.
fn bounds(rule: &Rule, now_ms: u64) -> Option<(u64, u64)> {
    match rule.kind {
        Kind::Fixed { window_ms, offset_ms } => {
            let since_ms = (now_ms + window_ms - offset_ms) % window_ms;
            let start_ms = now_ms.saturating_sub(since_ms);
            Some((start_ms, start_ms + window_ms))
        }
        Kind::Calendar { bounds_ms: [first, second, third] } => {
            [(first, second), (second, third)].into_iter().find(|&(start, end)| (start..end).contains(&now_ms))
        }
        Kind::Anchored { .. } | Kind::Sliding { .. } | Kind::Bucket { .. } | Kind::Concurrency => None,
    }
}
