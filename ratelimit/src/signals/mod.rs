//! What an answer of a provider says of its limits: one reading of status, headers and the beginning of the body, by the
//! connector's profile.
//!
//! [`read`] is pure. It gives **observations**, which can only lower what is believed to be left, and perhaps a
//! **throttle**: which level to park and for how long. All of it is hostile text. So nothing is guessed (a form that the
//! profile does not name is absent, and so is a value that could mean two things), nothing is longer than
//! [`RELEASE_MS_MAX`], no name comes from outside (limits are places in the profile), and what is allocated is bounded
//! by the profile, not by the answer.
//!
//! Order of times of a throttle: what the profile says of this provider, `Retry-After`, its variants in milliseconds,
//! the reset of the limit that is meant (clamped by its window), the end of its day, the profile's default. `Retry-After`
//! takes precedence over `RateLimit`, as its draft demands.
//!
//! A throttle that names nothing is the connection's; [`Spread`] says when it is to be the application's.

mod body;
mod number;
mod observe;
mod plain;
mod rules;
mod spread;
mod standard;
mod throttle;
mod time;

use std::time::Duration;

use config::connector::quota::{HeaderIs, QuotaLevel, QuotaProfile, RetryPlace, Settle};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE};
use http::{HeaderMap, StatusCode};

pub use plain::path as plain_path;
pub use rules::{Counting, LimitRule, Scopes, limits, rule_spec};
pub use spread::{APPLICATIONS_MAX, CONNECTIONS, Spread, WITHIN_MS};
pub use time::RELEASE_MS_MAX;

use time::Now;

/// How much of a body is looked at. Errors are shorter; costs that stand behind a larger answer are not seen.
pub const BODY_PREFIX_MAX: usize = 16 * 1024;

/// What was asked.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// In capitals.
    pub method: &'a str,
    /// As it goes out, without its query. Whatever of it is needlessly encoded is read as plain.
    pub path: &'a str,
    /// Throttles of the same bucket in a row before this one: a default park grows with them.
    pub throttles_before: u32,
}

/// What came back. Not for answers out of a cache.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    /// The beginning of the body, as far as [`body_wanted`] asked for it; more is not looked at.
    pub body: &'a [u8],
    /// When its head came, in ms since the Unix epoch. It serves only where the answer has no `Date`.
    pub received_unix_ms: u64,
}

/// What an answer says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// At most one for each limit of the profile, and one of no limit that it knows.
    pub observations: Vec<Observation>,
    /// What the call did cost, by limit; at most one for each.
    pub settled: Vec<Settled>,
    pub throttle: Option<Throttle>,
}

/// What is said of one limit. It is no grant: it can only lower what is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Place in [`QuotaProfile::limits`]; none where the answer speaks of one that the profile does not know.
    pub limit: Option<u16>,
    pub level: QuotaLevel,
    /// Units of a window, by the answer.
    pub cap: Option<u64>,
    pub remaining: Option<u64>,
    pub used: Option<u64>,
    /// From now until units come back, in ms, within the limit's window and [`RELEASE_MS_MAX`].
    pub reset_ms: Option<u64>,
    pub scale: Scale,
}

/// What the numbers of an observation are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Units,
    /// Hundredths of the limit, whatever that is.
    Percent,
}

/// What a call did cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Place in [`QuotaProfile::limits`].
    pub limit: u16,
    pub cost: u64,
}

/// Park this.
#[expect(clippy::struct_excessive_bools, reason = "four facts that do not depend on each other")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    pub level: QuotaLevel,
    /// Place in [`QuotaProfile::limits`], where the answer named it or showed that it is used up.
    pub limit: Option<u16>,
    /// Whether the provider said what it throttles. If not, [`Spread`] has to be asked.
    pub is_named: bool,
    /// From now until calls may go out again, in ms; never more than [`RELEASE_MS_MAX`]. Zero is at once, and paced.
    pub release_ms: u64,
    pub source: TimeSource,
    /// A moment was counted from our clock, for want of a `Date`.
    pub by_our_clock: bool,
    /// More was said than anybody waits for: somebody should look.
    pub is_capped: bool,
    /// Up to as much again is to be added at random.
    pub wants_jitter: bool,
}

/// Who said how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeSource {
    /// A header or a place in the body that is this provider's own.
    Vendor,
    RetryAfter,
    /// `Retry-After-Ms` and the like.
    RetryAfterMs,
    /// The reset of the limit.
    Reset,
    /// Nobody: the day of the limit ends then.
    Window,
    /// Nobody: the profile's default.
    Profile,
}

impl TimeSource {
    /// Whether the provider said it.
    pub fn is_providers(self) -> bool {
        match self {
            Self::Vendor | Self::RetryAfter | Self::RetryAfterMs | Self::Reset => true,
            Self::Window | Self::Profile => false,
        }
    }
}

/// How many bytes of the body [`read`] would look at: 0 for most answers, and for a body that is coded.
pub fn body_wanted(profile: &QuotaProfile, call: &Call<'_>, status: StatusCode, headers: &HeaderMap) -> usize {
    let path = plain::path(call.path);
    let call = &Call { path: &path, ..*call };
    let coded = headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    let refused = status.is_client_error() || status.is_server_error();
    let of_signals =
        || profile.signals.iter().any(|signal| signal.body.is_some() && throttle::fits_head(signal, status, headers));
    let of_times = || {
        let places = profile.retries.iter().filter(|retry| retry.covers(call.path));
        refused && places.into_iter().any(|retry| matches!(retry.place, RetryPlace::Body(_)))
    };
    let of_costs = || {
        let costs = profile.limits.iter().filter(|limit| matches!(limit.settle, Some(Settle::Body(_))));
        !refused && costs.into_iter().any(|limit| limit.cost_of(call.method, call.path).is_some())
    };
    let is_problem = || refused && throttle::is_problem(headers);
    let wanted = !coded && (of_signals() || of_times() || of_costs() || is_problem());
    if wanted { BODY_PREFIX_MAX } else { 0 }
}

/// Reads an answer.
pub fn read(profile: &QuotaProfile, call: &Call<'_>, answered: &Answered<'_>) -> Reading {
    let path = plain::path(call.path);
    let call = &Call { path: &path, ..*call };
    let body = &answered.body[..answered.body.len().min(BODY_PREFIX_MAX)];
    let answered = &Answered { body, ..*answered };
    let date_ms = number::single(answered.headers, DATE.as_str()).and_then(time::http_date);
    let now = Now { date_ms, received_ms: answered.received_unix_ms };
    // What a cache kept is of another time. `Age: 0` is of a cache that asked anew.
    let is_cached = answered.headers.get("age").is_some_and(|age| age != "0");
    let observations = if is_cached { Vec::new() } else { observe::observations(profile, call, answered.headers, now) };
    let throttle = throttle::find(profile, call, answered, &observations, now);
    let settled = if is_cached { Vec::new() } else { observe::settled(profile, call, answered) };
    Reading { observations, settled, throttle }
}

/// Whether a header has one of some values.
fn header_is(wanted: &HeaderIs, headers: &HeaderMap) -> bool {
    let value = number::single(headers, &wanted.name);
    value.is_some_and(|value| wanted.values.iter().any(|one| one.eq_ignore_ascii_case(value)))
}

/// Whole milliseconds.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The media type, without its parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let whole = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(whole.split(';').next().unwrap_or(whole).trim())
}

#[cfg(test)]
mod tests;
