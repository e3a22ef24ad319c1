//! From a profile to the buckets of a call: keys and rules as leases are counted by.

use std::time::Duration;

use config::connector::quota::{
    Anchor, Ceiling, ConnectionQuota, QuotaKind, QuotaLevel, QuotaLimit, QuotaProfile, Zone,
};
use jiff::{Timestamp, ZonedDateTime};

use super::{Call, ms, plain};
use crate::quota::{BucketKey, CAP_MAX, Kind, Level, NAME_BYTES_MAX, Name, RuleSpec, SLOTS_MAX};

const DAY_MS: u64 = 86_400_000;

/// A day of which nobody here knows when it begins: right for any beginning.
const ANY_DAY: Kind = Kind::Anchored { window_ms: DAY_MS, slots: SLOTS_MAX };

/// Of a bucket's window, before it is counted by a shorter one.
const BUCKET_CAP_MAX: u64 = 1_000_000;

/// What the rules of this node have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counting {
    /// Grows with each change of configuration.
    pub cfgver: u32,
    /// Longest validity of a lease of units.
    pub lease_ms: u32,
    /// Of slots of concurrency: longer than the longest call.
    pub slot_lease_ms: u32,
    /// From the last moment at which a unit may be spent to the arrival at the provider.
    pub guard_ms: u32,
    /// How far a provider's clock may be off.
    pub skew_ms: u32,
    /// What time it is, in ms since the Unix epoch: which day it is.
    pub now_unix_ms: u64,
}

/// Whose buckets a call is of.
#[derive(Debug, Clone, Copy)]
pub struct Scopes<'s> {
    pub connection: &'s Name,
    /// Without one, limits of regions are the application's.
    pub region: Option<&'s Name>,
    /// Without one, limits of source addresses are the application's: stricter than they are.
    pub source: Option<&'s Name>,
    /// The scope of the application itself.
    pub app: &'s Name,
}

/// One limit that a call counts towards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRule {
    /// Place in [`QuotaProfile::limits`].
    pub limit: u16,
    pub key: BucketKey,
    pub rule: RuleSpec,
    /// Units of the call, by estimate where the answer settles; 0 where nothing is known beforehand: then the bucket is
    /// only heeded, and parked when an answer says that nothing is left.
    pub cost: u32,
    /// Whether the answer says the cost.
    pub settles: bool,
}

impl From<QuotaLevel> for Level {
    fn from(level: QuotaLevel) -> Self {
        match level {
            QuotaLevel::App => Self::App,
            QuotaLevel::Connection => Self::Connection,
            QuotaLevel::Region => Self::Region,
            QuotaLevel::Source => Self::Source,
        }
    }
}

/// The limits that a call counts towards, with the caps that hold for its connection.
pub fn limits(
    profile: &QuotaProfile,
    (ceiling, quota): (&Ceiling, Option<&ConnectionQuota>),
    call: &Call<'_>,
    scopes: &Scopes<'_>,
    counting: &Counting,
) -> Vec<LimitRule> {
    let path = plain::path(call.path);
    let counted = (0..).zip(&*profile.limits).filter_map(|(place, limit)| {
        let cost = limit.cost_of(call.method, &path)?;
        let (cap, burst) = profile.cap(place, ceiling, quota)?;
        Some(LimitRule {
            limit: place,
            key: key(limit, &path, scopes)?,
            rule: rule_spec(limit, (cap, burst), counting),
            cost,
            settles: limit.settle.is_some(),
        })
    });
    counted.collect()
}

/// The bucket of a limit. The path makes one of its own where the profile splits by it, as a digest: paths are a
/// tenant's, and a key is not to grow with them.
fn key(limit: &QuotaLimit, path: &str, scopes: &Scopes<'_>) -> Option<BucketKey> {
    let level = Level::from(limit.level);
    let scope = match level {
        Level::App => scopes.app,
        Level::Connection => scopes.connection,
        Level::Region => scopes.region.unwrap_or(scopes.app),
        Level::Source => scopes.source.unwrap_or(scopes.app),
    };
    let part = limit.bucket_of(path);
    let policy = if part.is_empty() {
        Name::parse(&limit.name).ok()?
    } else {
        let digest = blake3::hash(part.as_bytes()).to_hex();
        let room = NAME_BYTES_MAX - 17;
        let stem = limit.name.get(..limit.name.len().min(room))?;
        Name::parse(&format!("{stem}.{}", &digest[..16])).ok()?
    };
    Some(BucketKey { level, scope: scope.clone(), policy })
}

/// The rule of a limit with a cap, and of a token bucket a burst.
pub fn rule_spec(limit: &QuotaLimit, (cap, burst): (u64, Option<u64>), counting: &Counting) -> RuleSpec {
    let bounded = |units: u64| u32::try_from(units).unwrap_or(CAP_MAX).clamp(1, CAP_MAX);
    let lost_ms = u64::from(counting.guard_ms) + 2 * u64::from(counting.skew_ms);
    let mut cap = cap;
    let kind = match &limit.kind {
        // Where guard and skew would take much of it, it is counted as if it began anywhere.
        QuotaKind::Fixed { window, anchor: Anchor::Clock } if ms(*window) >= 10 * lost_ms => {
            Kind::Fixed { window_ms: ms(*window), offset_ms: 0 }
        }
        QuotaKind::Fixed { window, .. } => Kind::Anchored { window_ms: ms(*window), slots: slots(*window) },
        QuotaKind::Sliding { window } => Kind::Sliding { window_ms: ms(*window), slots: slots(*window) },
        QuotaKind::Token { window, .. } => {
            let burst = bounded(burst.unwrap_or(cap));
            let window_ms;
            (cap, window_ms) = slower(cap, ms(*window));
            Kind::Bucket { window_ms, burst }
        }
        QuotaKind::Concurrent => Kind::Concurrency,
        QuotaKind::Daily { zone: Zone::Utc } => {
            let today_ms = counting.now_unix_ms - counting.now_unix_ms % DAY_MS;
            Kind::Calendar { bounds_ms: [today_ms, today_ms + DAY_MS, today_ms + 2 * DAY_MS] }
        }
        QuotaKind::Daily { zone: Zone::Account } => ANY_DAY,
        QuotaKind::Daily { zone: Zone::Named(zone) } => {
            days_of(zone, counting.now_unix_ms).map_or(ANY_DAY, |bounds_ms| Kind::Calendar { bounds_ms })
        }
    };
    let lease_ms = if kind == Kind::Concurrency { counting.slot_lease_ms } else { counting.lease_ms };
    RuleSpec {
        cfgver: counting.cfgver,
        kind,
        cap: bounded(cap),
        lease_ms,
        guard_ms: counting.guard_ms,
        skew_ms: counting.skew_ms,
    }
}

/// Today and tomorrow in a zone of the machine's time zone database; none where it has no such zone. Days are 23 to 25
/// hours long where clocks are put forward or back.
fn days_of(zone: &str, now_unix_ms: u64) -> Option<[u64; 3]> {
    let now = Timestamp::from_millisecond(i64::try_from(now_unix_ms).ok()?).ok()?;
    let today = now.in_tz(zone).ok()?.start_of_day().ok()?;
    let tomorrow = today.tomorrow().ok()?.start_of_day().ok()?;
    let after = tomorrow.tomorrow().ok()?.start_of_day().ok()?;
    let ms = |moment: &ZonedDateTime| u64::try_from(moment.timestamp().as_millisecond()).ok();
    Some([ms(&today)?, ms(&tomorrow)?, ms(&after)?])
}

/// The same rate in a shorter window, rounded down, where the figures of a longer one would be too large to be counted
/// exactly.
fn slower(cap: u64, window_ms: u64) -> (u64, u64) {
    let parts = window_ms / 1_000;
    if cap < BUCKET_CAP_MAX || parts < 2 { (cap, window_ms) } else { (cap / parts, window_ms.div_ceil(parts)) }
}

/// Ten, and of a day quarters of an hour.
fn slots(window: Duration) -> u16 {
    if ms(window) >= DAY_MS { SLOTS_MAX } else { 10 }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn days_are_those_of_the_zone_and_as_long_as_they_are() {
        // 2026-11-01 06:30 UTC: the day on which New York puts its clocks back has begun at 04:00 UTC.
        let bounds_ms = days_of("America/New_York", 1_793_514_600_000).expect("the time zone database is installed");
        assert_eq!(bounds_ms[0], 1_793_505_600_000);
        assert_eq!([bounds_ms[1] - bounds_ms[0], bounds_ms[2] - bounds_ms[1]], [25 * 3_600_000, 24 * 3_600_000]);
        assert_eq!(days_of("No/Where", 1_793_514_600_000), None);
    }
}
