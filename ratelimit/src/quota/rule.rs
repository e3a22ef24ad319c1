//! What a provider allows, as the centre counts it.

use std::ops::Deref;

/// Most units of one rule: sums of a few stay within 53 bits, which a store that counts in doubles needs.
pub const CAP_MAX: u32 = 1 << 30;
/// Longest window: 31 days.
pub const WINDOW_MS_MAX: u64 = 31 * 24 * 3_600_000;
/// Longest validity of a lease. After a failover the centre listens this long before it grants again.
pub const LEASE_MS_MAX: u32 = 60_000;
/// Longest guard or skew.
pub const GUARD_MS_MAX: u32 = 60_000;
/// Windows of ten minutes and more are not rationed by the second: neither shared out nor released after a park.
pub(super) const LONG_WINDOW_MS: u64 = 600_000;
/// Most sub-slots of a window: a day by quarters of an hour.
pub const SLOTS_MAX: u16 = 96;
/// The largest integer that is exact in a double.
const EXACT_MAX: u64 = 1 << 53;

/// How a provider's window behaves. All times are ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Windows of equal length, one after the other, that begin at `offset_ms` after the Unix epoch.
    Fixed { window_ms: u64, offset_ms: u64 },
    /// Windows of equal length whose beginning the provider decides (the first request, say) and tells by its reset.
    /// While that is not known it is counted as sliding, which is right for any beginning; once [`super::Observe`]
    /// has told the end of one, nothing of it counts against the next.
    Anchored { window_ms: u64, slots: u16 },
    /// Days of some time zone. The caller computes three boundaries that follow each other, as Unix ms, the first of
    /// which is past: it knows the zone, the centre knows what time it is, so that a caller whose clock is wrong by
    /// less than a day changes nothing. Within `bounds[0]..bounds[1]` is one window, `bounds[1]..bounds[2]` the next;
    /// outside of both nothing is granted. Later bounds replace earlier ones, also under the same `cfgver`.
    Calendar { bounds_ms: [u64; 3] },
    /// Any span of `window_ms`: counted in `slots` sub-slots, of which the trailing `slots + 1` and those that a lease
    /// may still be spent from count. A steady load gets `cap · W / (W + lease + guard + W/slots)`.
    Sliding { window_ms: u64, slots: u16 },
    /// A bucket of `burst` units that refills by `cap` units in each `window_ms`. A lease that is spent late makes the
    /// burst look larger by `rate · lease`; the centre therefore counts with `burst − rate · (lease + guard)`, and
    /// where that is under one unit with one unit and a lower rate.
    Bucket { window_ms: u64, burst: u32 },
    /// At most `cap` calls at a time. A lease is slots, which its holder uses again and again, and keeps by
    /// [`super::Renew`]; slots that are not renewed within `lease_ms` come back. `lease_ms` has to be longer than the
    /// longest call of a node that has lost contact.
    Concurrency,
}

/// A rule as it is written; [`Rule::checked`] makes it one that can be counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleSpec {
    /// Grows with each change of configuration. A centre takes up a higher one and ignores a lower one.
    pub cfgver: u32,
    pub kind: Kind,
    /// Units per window; of concurrency, slots.
    pub cap: u32,
    /// How long a lease is valid, at most.
    pub lease_ms: u32,
    /// From the last moment at which a unit may be spent to the arrival at the provider, nearly always (p99.9).
    pub guard_ms: u32,
    /// How far the provider's clock may be from the centre's, either way. Only [`Kind::Fixed`] and
    /// [`Kind::Calendar`] need it: their windows open that much later and close that much earlier.
    pub skew_ms: u32,
}

/// A rule that can be counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule(RuleSpec);

/// The integers that a bucket is counted with: a debt of `unit` is one unit, `per_ms` drains in each ms, and a debt may
/// not come to be over `most`. Exact for any rate, as fractions of a ms would not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub unit: u64,
    pub per_ms: u64,
    pub most: u64,
}

impl Pace {
    /// Of `burst` units that refill by `cap` per `window_ms`, where what is granted is spent up to `late_ms` later.
    ///
    /// `n` units that are granted within a span `s` arrive within `s − late`, so that grants have to keep
    /// `n ≤ burst + rate · (s − late)`: the burst is smaller by `rate · late`. Where that leaves less than one unit,
    /// one unit at a time is granted, `(window / cap + late) / burst` apart: then `n` arrivals take at least
    /// `(n − 1)(window / cap + late) / burst − late`, which is no less than `(n − burst) · window / cap` for each
    /// `n > burst`.
    pub fn of(cap: u32, window_ms: u64, burst: u32, late_ms: u32) -> Self {
        let (cap, burst, late_ms) = (u64::from(cap), u64::from(burst), u64::from(late_ms));
        let whole = burst * window_ms;
        match whole.checked_sub(cap * late_ms) {
            Some(most) if most >= window_ms => Self { unit: window_ms, per_ms: cap, most },
            _ => {
                let unit = window_ms + cap * late_ms;
                Self { unit, per_ms: cap.saturating_mul(burst), most: unit }
            }
        }
    }
}

/// Why a rule cannot be counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    #[error("cap is not within 1..={CAP_MAX}")]
    Cap,
    #[error("window is not within 10..={WINDOW_MS_MAX} ms")]
    Window,
    #[error("offset is not shorter than the window")]
    Offset,
    #[error("bounds do not follow each other by 10 ms to {WINDOW_MS_MAX} ms")]
    Bounds,
    #[error("slots are not within 2..={SLOTS_MAX}, or shorter than 1 ms")]
    Slots,
    #[error("burst is not within 1..={CAP_MAX}")]
    Burst,
    #[error("burst or rate times the window is more than 2^53")]
    Exact,
    #[error("lease is not within 10..={LEASE_MS_MAX} ms")]
    Lease,
    #[error("guard or skew is over {GUARD_MS_MAX} ms")]
    Guard,
    #[error("guard and skew leave nothing of the window")]
    NothingLeft,
}

impl Rule {
    /// The rule, if every figure is within its bounds.
    pub fn checked(spec: RuleSpec) -> Result<Self, InvalidRule> {
        if !(1..=CAP_MAX).contains(&spec.cap) {
            return Err(InvalidRule::Cap);
        }
        if !(10..=LEASE_MS_MAX).contains(&spec.lease_ms) {
            return Err(InvalidRule::Lease);
        }
        if spec.guard_ms > GUARD_MS_MAX || spec.skew_ms > GUARD_MS_MAX {
            return Err(InvalidRule::Guard);
        }
        check_kind(&spec)?;
        Ok(Self(spec))
    }

    /// Length of a window; of a calendar the first of the two, of concurrency the lease.
    pub fn window_ms(&self) -> u64 {
        match self.kind {
            Kind::Fixed { window_ms, .. }
            | Kind::Anchored { window_ms, .. }
            | Kind::Sliding { window_ms, .. }
            | Kind::Bucket { window_ms, .. } => window_ms,
            Kind::Calendar { bounds_ms: [first, second, _] } => second - first,
            Kind::Concurrency => u64::from(self.lease_ms),
        }
    }

    /// In which the cap is released where calls come one after the other: a long window's own would put minutes between
    /// two calls of a day that has hundreds left.
    pub fn release_window_ms(&self) -> u64 {
        self.window_ms().min(LONG_WINDOW_MS)
    }

    /// How long a grant of now can still matter to what is granted later.
    pub fn memory_ms(&self) -> u64 {
        let late_ms = u64::from(self.lease_ms) + u64::from(self.guard_ms);
        match self.kind {
            Kind::Fixed { window_ms, .. } => window_ms,
            Kind::Calendar { bounds_ms: [first, second, third] } => (second - first).max(third - second),
            Kind::Anchored { window_ms, slots } | Kind::Sliding { window_ms, slots } => {
                window_ms + window_ms.div_ceil(u64::from(slots)) + late_ms
            }
            Kind::Bucket { window_ms, burst } => (u64::from(burst) * window_ms).div_ceil(u64::from(self.cap)) + late_ms,
            Kind::Concurrency => u64::from(self.lease_ms),
        }
    }

    /// Units of a rate are spent once; slots of concurrency come back.
    pub fn is_rate(&self) -> bool {
        !matches!(self.kind, Kind::Concurrency)
    }
}

impl Deref for Rule {
    type Target = RuleSpec;

    fn deref(&self) -> &RuleSpec {
        &self.0
    }
}

fn check_kind(spec: &RuleSpec) -> Result<(), InvalidRule> {
    let lost_ms = u64::from(spec.guard_ms) + 2 * u64::from(spec.skew_ms);
    match spec.kind {
        Kind::Fixed { window_ms, offset_ms } => {
            check_window(window_ms)?;
            if offset_ms >= window_ms {
                return Err(InvalidRule::Offset);
            }
            if lost_ms >= window_ms { Err(InvalidRule::NothingLeft) } else { Ok(()) }
        }
        Kind::Calendar { bounds_ms: [first, second, third] } => {
            let are_windows = second > first && third > second && third < EXACT_MAX;
            if !are_windows || check_window(second - first).is_err() || check_window(third - second).is_err() {
                return Err(InvalidRule::Bounds);
            }
            if lost_ms >= (second - first).min(third - second) { Err(InvalidRule::NothingLeft) } else { Ok(()) }
        }
        Kind::Anchored { window_ms, slots } | Kind::Sliding { window_ms, slots } => {
            check_window(window_ms)?;
            let is_in_bounds = (2..=SLOTS_MAX).contains(&slots) && u64::from(slots) <= window_ms;
            if is_in_bounds { Ok(()) } else { Err(InvalidRule::Slots) }
        }
        Kind::Bucket { window_ms, burst } => {
            check_window(window_ms)?;
            if !(1..=CAP_MAX).contains(&burst) {
                return Err(InvalidRule::Burst);
            }
            // Debts may be several times the burst: of settlements, and of what a provider's headers tell.
            let pace = Pace::of(spec.cap, window_ms, burst, spec.lease_ms + spec.guard_ms);
            let largest = u128::from(pace.unit) * u128::from(burst.max(spec.cap)) * 4;
            let is_exact = largest <= u128::from(EXACT_MAX) && pace.per_ms <= EXACT_MAX / WINDOW_MS_MAX;
            if is_exact { Ok(()) } else { Err(InvalidRule::Exact) }
        }
        Kind::Concurrency => Ok(()),
    }
}

fn check_window(window_ms: u64) -> Result<(), InvalidRule> {
    if (10..=WINDOW_MS_MAX).contains(&window_ms) { Ok(()) } else { Err(InvalidRule::Window) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: Kind) -> RuleSpec {
        RuleSpec { cfgver: 1, kind, cap: 100, lease_ms: 500, guard_ms: 500, skew_ms: 0 }
    }

    #[test]
    fn figures_out_of_bounds_make_no_rule() {
        let fixed = spec(Kind::Fixed { window_ms: 10_000, offset_ms: 9_999 });
        let calendar = |bounds_ms| spec(Kind::Calendar { bounds_ms });
        let bucket = |window_ms, burst| spec(Kind::Bucket { window_ms, burst });
        let refused = [
            (RuleSpec { cap: 0, ..fixed }, InvalidRule::Cap),
            (RuleSpec { cap: CAP_MAX + 1, ..fixed }, InvalidRule::Cap),
            (RuleSpec { lease_ms: 9, ..fixed }, InvalidRule::Lease),
            (RuleSpec { lease_ms: LEASE_MS_MAX + 1, ..fixed }, InvalidRule::Lease),
            (RuleSpec { guard_ms: GUARD_MS_MAX + 1, ..fixed }, InvalidRule::Guard),
            (RuleSpec { guard_ms: 6_000, skew_ms: 2_000, ..fixed }, InvalidRule::NothingLeft),
            (spec(Kind::Fixed { window_ms: 9, offset_ms: 0 }), InvalidRule::Window),
            (spec(Kind::Fixed { window_ms: 10_000, offset_ms: 10_000 }), InvalidRule::Offset),
            (calendar([10, 10, 100_000]), InvalidRule::Bounds),
            (calendar([0, u64::MAX, u64::MAX]), InvalidRule::Bounds),
            (spec(Kind::Sliding { window_ms: 10_000, slots: 1 }), InvalidRule::Slots),
            (spec(Kind::Anchored { window_ms: 10_000, slots: 97 }), InvalidRule::Slots),
            (bucket(1_000, 0), InvalidRule::Burst),
            (RuleSpec { cap: CAP_MAX, ..bucket(WINDOW_MS_MAX, CAP_MAX) }, InvalidRule::Exact),
        ];
        for (spec, why) in refused {
            assert_eq!(Rule::checked(spec), Err(why), "{spec:?}");
        }
        for spec in [fixed, calendar([0, 86_400_000, 169_200_000]), bucket(1_000, 1), spec(Kind::Concurrency)] {
            Rule::checked(spec).unwrap();
        }
    }

    /// Whatever the figures: the fastest that a pace grants, spent as late as it may be, is within the provider's own.
    #[test]
    fn no_pace_lets_more_arrive_than_the_provider_refills() {
        for (cap, window_ms, burst, late_ms) in
            [(3, 1_000, 1, 100), (100, 1_000, 100, 900), (100, 1_000, 40, 500), (2, 1_000, 3, 1_000), (7, 60_000, 2, 1)]
        {
            let pace = Pace::of(cap, window_ms, burst, late_ms);
            for count in 2..200_u64 {
                // `count` units: all but what the burst covers have to drain first.
                let granted_within_ms = (count * pace.unit).saturating_sub(pace.most).div_ceil(pace.per_ms);
                let arrive_within_ms = granted_within_ms.saturating_sub(u64::from(late_ms));
                let allowed = u64::from(burst) * window_ms + arrive_within_ms * u64::from(cap);
                assert!(count * window_ms <= allowed, "{count} of {cap}/{window_ms} ms, burst {burst}, late {late_ms}");
            }
        }
    }
}
