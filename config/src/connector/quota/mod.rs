//! Quota profiles: a provider's limits, and how its answers speak of them, as data.
//!
//! A profile says what is limited at which level, what a call costs, which headers tell how much is left and in which
//! form they write a time, which answers are a throttle and what they throttle. It promises nothing: it is what the
//! provider's documents said on a day. What a tenant's connection really may is less or more by [`QuotaProfile::cap`].
//!
//! Names of limits come from manifests alone, so that no answer can choose a bucket, a label or a word in a log.

mod build;
mod choice;
mod path;
mod tables;

use std::time::Duration;

pub(super) use build::build;
pub use choice::{CapChoice, Ceiling, ConnectionQuota};
pub(crate) use choice::{CapTable, QuotaChoiceTable, caps};
pub(super) use path::json_path;
pub use path::{JsonPath, Step};
pub(super) use tables::{MatchTable, QuotaTable, WhenTable};

/// What is known of a provider's limits.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaProfile {
    /// When it was last compared with its sources: `YYYY-MM-DD`.
    pub checked: Box<str>,
    pub sources: Box<[Box<str>]>,
    /// What of it no source says, in sentences.
    pub recalled: Box<[Box<str>]>,
    /// Plans with limits of their own; the first is the one that is assumed. May be empty.
    pub tiers: Box<[Box<str>]>,
    pub limits: Box<[QuotaLimit]>,
    pub headers: Box<[HeaderReading]>,
    /// Where a throttled answer says how long, beside `Retry-After`: the first that is there counts.
    pub retries: Box<[RetryReading]>,
    /// Which answers are a throttle, beside 429 and 503 with `Retry-After`: the first that matches counts.
    pub signals: Box<[ThrottleSignal]>,
    pub park: DefaultPark,
    pub penalty: Penalty,
}

/// Whose units a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaLevel {
    /// The application credential that all tenants share.
    App,
    /// One account at the provider.
    Connection,
    /// One region of the provider.
    Region,
    /// The source address.
    Source,
}

impl QuotaLevel {
    /// As it is written in manifests, headers and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Connection => "connection",
            Self::Region => "region",
            Self::Source => "source",
        }
    }
}

/// One limit.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaLimit {
    pub name: Box<str>,
    pub level: QuotaLevel,
    pub kind: QuotaKind,
    /// Units in a window, or at the same time, in the first tier.
    pub cap: u64,
    /// Of other tiers; a tier without one has the first's.
    pub tiers: Box<[TierCap]>,
    pub unit: QuotaUnit,
    /// Names by which answers call it: policies of `RateLimit`, `violated-policies`.
    pub policies: Box<[Box<str>]>,
    /// The requests that count towards it; empty: all.
    pub counts: Box<[RequestMatch]>,
    /// Of those, the ones that do not.
    pub except: Box<[RequestMatch]>,
    /// What a request costs; the first that matches counts, else `cost`.
    pub costs: Box<[(RequestMatch, u32)]>,
    pub cost: u32,
    /// How many segments at the beginning of the path have a bucket of their own: 0 is one bucket for all.
    pub split_segments: u8,
    /// Where an answer says what the call did cost.
    pub settle: Option<Settle>,
}

/// How a limit counts. Windows are whole milliseconds and never zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaKind {
    /// A window that starts anew all at once.
    Fixed { window: Duration, anchor: Anchor },
    /// At most `cap` in any span of a window.
    Sliding { window: Duration },
    /// `cap` a window, evenly, and at most the burst at once.
    Token { window: Duration, burst: u64 },
    /// At the same time.
    Concurrent,
    /// A day of a time zone.
    Daily { zone: Zone },
}

impl QuotaKind {
    /// What no honest reset is later than; none of what has no window.
    pub fn window(&self) -> Option<Duration> {
        match self {
            Self::Fixed { window, .. } | Self::Sliding { window } | Self::Token { window, .. } => Some(*window),
            Self::Daily { .. } => Some(DAY_MAX),
            Self::Concurrent => None,
        }
    }
}

/// The longest day: one in which clocks go back, twice over.
const DAY_MAX: Duration = Duration::from_hours(26);

/// When a fixed window starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// At whole multiples of itself since the epoch.
    Clock,
    /// At the first request in it; its end is known from a reset.
    FirstRequest,
}

/// Where a day begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Zone {
    Utc,
    /// That of the provider's account, which only the account's owner knows.
    Account,
    /// A name of the IANA time zone database; its form is checked, not whether it exists.
    Named(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaUnit {
    Requests,
    /// The provider's own: points, units, complexity.
    Points,
    /// Of a language model.
    Tokens,
    /// Milliseconds of the provider's processors.
    CpuMs,
}

/// What a tier allows of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierCap {
    /// Place in [`QuotaProfile::tiers`], never 0.
    pub tier: u8,
    pub cap: u64,
    /// Of a token bucket.
    pub burst: Option<u64>,
}

/// Some requests: those with one of the methods and one of the beginnings of a path. An empty list is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestMatch {
    pub methods: Box<[Box<str>]>,
    pub paths: Box<[Box<str>]>,
}

impl RequestMatch {
    /// `path` is the one that the provider sees, without its query.
    pub fn covers(&self, method: &str, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|one| **one == *method))
            && (self.paths.is_empty() || self.paths.iter().any(|start| begins(path, start)))
    }
}

impl RequestMatch {
    /// As [`RequestMatch::covers`], and of paths only those that end where one that is named does; behind one that ends in a
    /// slash comes anything.
    pub fn names(&self, method: &str, path: &str) -> bool {
        let ends = |named: &str| named.ends_with('/') || named.split('/').count() == path.split('/').count();
        (self.methods.is_empty() || self.methods.iter().any(|one| **one == *method))
            && (self.paths.is_empty() || self.paths.iter().any(|named| ends(named) && begins(path, named)))
    }
}

/// Whether a path has a beginning: whole segments, of which `*` is any. Only one that ends in `.`, `_`, `-` or `:` ends
/// within a segment.
fn begins(path: &str, start: &str) -> bool {
    let mut parts = path.split('/');
    let mut wanted = start.split('/').peekable();
    while let Some(want) = wanted.next() {
        let is_last = wanted.peek().is_none();
        let Some(part) = parts.next() else { return false };
        let fits = match want {
            // Behind a slash at the end comes anything, or nothing.
            "" if is_last => true,
            "*" => !part.is_empty(),
            want if is_last && want.ends_with(['.', '_', '-', ':']) => part.starts_with(want),
            want => part == want,
        };
        if !fits {
            return false;
        }
    }
    true
}

/// Where an answer says what a call did cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// Header, in lower case: a number.
    Header(Box<str>),
    Body(JsonPath),
}

/// A header of answers that speaks of a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct HeaderReading {
    /// In lower case.
    pub name: Box<str>,
    /// Place in [`QuotaProfile::limits`].
    pub limit: u16,
    pub part: Part,
    pub inside: Inside,
    pub when: Option<HeaderIs>,
}

/// What of a limit a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Limit,
    Remaining,
    /// With the limit of another header, it says what remains.
    Used,
    /// `32/40`: used, and the limit.
    UsedOfLimit,
    /// Used, in hundredths of the limit.
    PercentUsed,
    /// Units a second, with a fraction: the limit of a token bucket.
    Rate,
    /// When units come back.
    Reset(TimeForm),
}

/// Where in a header the value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inside {
    Whole,
    /// The value of a pair: `total=100; remaining=99; resets=41`, `api-usage=25/5000`.
    Pair(Box<str>),
    /// The header is JSON: the largest value at the path.
    Json(JsonPath),
}

/// A header has one of some values, without regard to case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderIs {
    /// In lower case.
    pub name: Box<str>,
    pub values: Box<[Box<str>]>,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeForm {
    /// From now, a fraction is allowed.
    Seconds,
    Milliseconds,
    Minutes,
    /// Since the Unix epoch.
    EpochSeconds,
    EpochMilliseconds,
    /// A moment with its offset, at least to the minute.
    Iso8601,
    /// `6m0s`, `120ms`.
    GoDuration,
    /// Any of the three forms of RFC 9110.
    HttpDate,
    /// Whatever `Retry-After` is seen with: seconds, seconds with a fraction, a date, a moment, a duration.
    RetryAfter,
}

/// Where a throttled answer says how long.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryReading {
    pub place: RetryPlace,
    pub form: TimeForm,
    /// The time is what follows this within the text, up to the next space or the end; empty: the text is the time.
    pub after: Box<str>,
    /// Of which requests: beginnings of their paths; empty: all.
    pub paths: Box<[Box<str>]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryPlace {
    /// Name in lower case, and where in it.
    Header(Box<str>, Inside),
    Body(JsonPath),
}

impl RetryReading {
    pub fn covers(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|start| begins(path, start))
    }
}

/// An answer that is a throttle: all that it says must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct ThrottleSignal {
    /// One of these; never empty.
    pub statuses: Box<[u16]>,
    pub header: Option<HeaderIs>,
    pub body: Option<BodyHas>,
    /// What is throttled; none where the provider does not say.
    pub target: Option<Target>,
    /// In place of the profile's.
    pub park: Option<Duration>,
}

/// A text or a number at a path of a JSON body: it is one of `values`, or has one of `contains` in it (without regard
/// to case).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyHas {
    pub path: JsonPath,
    pub values: Box<[Box<str>]>,
    pub contains: Box<[Box<str>]>,
}

/// What a throttle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Place in [`QuotaProfile::limits`]; the level is that limit's.
    Limit(u16),
    Level(QuotaLevel),
}

/// How long where the provider does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultPark {
    pub first: Duration,
    /// Each throttle after another without a success between doubles it.
    pub doubles: bool,
    pub max: Duration,
    /// Up to as much again at random, so that not all come back at once.
    pub jitter: bool,
}

impl DefaultPark {
    /// Of the throttle after `before` others in a row, without the jitter.
    pub fn after(&self, before: u32) -> Duration {
        let times = if self.doubles { 1_u32.checked_shl(before).unwrap_or(u32::MAX) } else { 1 };
        self.first.saturating_mul(times).min(self.max)
    }
}

/// What a call while limited does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Penalty {
    /// Nothing that is documented.
    None,
    /// It counts towards the limit.
    Counts,
    /// It makes the wait longer.
    Extends,
    /// Who goes on is banned.
    Bans,
}

impl QuotaProfile {
    /// Of a provider of which nothing is known.
    pub fn unknown() -> Self {
        Self {
            checked: Box::default(),
            sources: Box::default(),
            recalled: Box::default(),
            tiers: Box::default(),
            limits: Box::default(),
            headers: Box::default(),
            retries: Box::default(),
            signals: Box::default(),
            park: tables::PARK,
            penalty: Penalty::None,
        }
    }

    /// A limit by its name.
    pub fn limit(&self, name: &str) -> Option<(u16, &QuotaLimit)> {
        (0..).zip(&*self.limits).find(|(_, limit)| *limit.name == *name)
    }

    /// A tier by its name.
    pub fn tier(&self, name: &str) -> Option<u8> {
        (0..).zip(&*self.tiers).find(|(_, tier)| ***tier == *name).map(|(place, _)| place)
    }
}

impl QuotaLimit {
    /// What a tier allows: the cap, and of a token bucket the burst.
    pub fn of_tier(&self, tier: u8) -> (u64, Option<u64>) {
        let own = self.tiers.iter().find(|one| one.tier == tier);
        let burst = match self.kind {
            QuotaKind::Token { burst, .. } => Some(own.and_then(|own| own.burst).unwrap_or(burst)),
            QuotaKind::Fixed { .. } | QuotaKind::Sliding { .. } | QuotaKind::Concurrent | QuotaKind::Daily { .. } => {
                None
            }
        };
        (own.map_or(self.cap, |own| own.cap), burst)
    }

    /// Units that a request takes; none where it does not count. The path is without its query.
    pub fn cost_of(&self, method: &str, path: &str) -> Option<u32> {
        let within = |list: &[RequestMatch]| list.iter().any(|one| one.covers(method, path));
        if !self.counts.is_empty() && !within(&self.counts) || within(&self.except) {
            return None;
        }
        let own = self.costs.iter().find(|(one, _)| one.covers(method, path));
        Some(own.map_or(self.cost, |(_, cost)| *cost))
    }

    /// The beginning of the path that has a bucket of its own; empty where one bucket is for all.
    pub fn bucket_of<'p>(&self, path: &'p str) -> &'p str {
        if self.split_segments == 0 {
            return "";
        }
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let end = ends.take(self.split_segments.into()).nth(usize::from(self.split_segments) - 1);
        &path[..end.unwrap_or(path.len())]
    }
}

#[cfg(test)]
mod tests;
