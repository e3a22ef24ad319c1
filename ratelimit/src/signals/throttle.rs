//! Whether an answer is a throttle, of what, and for how long.

use std::ops::ControlFlow;
use std::time::Duration;

use config::connector::quota::{
    BodyHas, DefaultPark, Inside, JsonPath, QuotaKind, QuotaLevel, QuotaProfile, RetryPlace, RetryReading, Step,
    Target, ThrottleSignal, TimeForm, Zone,
};
use http::{HeaderMap, StatusCode};

use super::body::{self, Scalar};
use super::observe::time_in;
use super::standard;
use super::time::{self, Now, Time};
use super::{Answered, Call, Observation, RELEASE_MS_MAX, Throttle, TimeSource, header_is, media_type, ms, number};

const DAY_MS: u64 = 86_400_000;

/// Problem types of the IANA registry that say a quota is used up, or that less is given for a while.
const PROBLEMS: [&str; 3] = ["quota-exceeded", "temporary-reduced-capacity", "abnormal-usage-detected"];

/// What is throttled.
struct Found {
    target: Option<Target>,
    park: DefaultPark,
}

pub(super) fn find(
    profile: &QuotaProfile,
    call: &Call<'_>,
    answered: &Answered<'_>,
    observations: &[Observation],
    now: Now,
) -> Option<Throttle> {
    let times = Times { profile, call, answered, now };
    let found = classify(profile, answered, &times)?;
    let is_named = found.target.is_some();
    let (limit, level) = match found.target {
        Some(Target::Limit(place)) => (Some(place), profile.limits.get(usize::from(place))?.level),
        Some(Target::Level(level)) => (None, level),
        None => used_up(observations).map_or((None, QuotaLevel::Connection), |seen| (seen.limit, seen.level)),
    };
    let release = times.said().or_else(|| times.of_limit(limit, is_named, observations));
    let Release { after_ms, source, by_our_clock } = release.unwrap_or_else(|| Release {
        after_ms: ms(found.park.after(call.throttles_before)),
        source: TimeSource::Profile,
        by_our_clock: false,
    });
    Some(Throttle {
        level,
        limit,
        is_named: is_named || limit.is_some(),
        release_ms: after_ms.min(RELEASE_MS_MAX),
        source,
        by_our_clock,
        is_capped: after_ms > RELEASE_MS_MAX,
        wants_jitter: source == TimeSource::Profile && found.park.jitter,
    })
}

fn classify(profile: &QuotaProfile, answered: &Answered<'_>, times: &Times<'_>) -> Option<Found> {
    let own = |park: Option<Duration>| match park {
        Some(first) => DefaultPark { first, max: profile.park.max.max(first), ..profile.park },
        None => profile.park,
    };
    let fits = |signal: &&ThrottleSignal| {
        fits_head(signal, answered.status, answered.headers)
            && signal.body.as_ref().is_none_or(|wanted| body_has(wanted, answered.body))
    };
    if let Some(signal) = profile.signals.iter().find(fits) {
        return Some(Found { target: signal.target, park: own(signal.park) });
    }
    let is_problem = is_quota_problem(answered);
    let status = answered.status;
    let is_throttle = status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::SERVICE_UNAVAILABLE && times.retry_after().is_some()
        || is_problem;
    let target = if is_problem { violated(profile, answered.body) } else { None };
    is_throttle.then_some(Found { target, park: profile.park })
}

/// Whether status and headers are those of a signal.
pub(super) fn fits_head(signal: &ThrottleSignal, status: StatusCode, headers: &HeaderMap) -> bool {
    signal.statuses.contains(&status.as_u16()) && signal.header.as_ref().is_none_or(|wanted| header_is(wanted, headers))
}

fn body_has(wanted: &BodyHas, text: &[u8]) -> bool {
    let mut has = false;
    body::each(text, &wanted.path, |scalar| {
        has = match scalar {
            Scalar::Text(text) => {
                wanted.values.iter().any(|one| **one == *text) || wanted.contains.iter().any(|one| contains(text, one))
            }
            Scalar::Whole(value) => wanted.values.iter().any(|one| one.parse() == Ok(value)),
            Scalar::Fraction(_) | Scalar::Other => false,
        };
        if has { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    has
}

/// Without regard to the case of ASCII. What is looked for is never empty in a profile that was read.
fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    !part.is_empty() && text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

pub(super) fn is_problem(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("application/problem+json"))
}

/// A problem of RFC 9457 with one of the registered types.
fn is_quota_problem(answered: &Answered<'_>) -> bool {
    let refused = answered.status.is_client_error() || answered.status.is_server_error();
    if !refused || !is_problem(answered.headers) {
        return false;
    }
    let mut is = false;
    body::each(answered.body, &path(&["type"], false), |scalar| {
        if let Scalar::Text(kind) = scalar {
            is = kind.rsplit_once('#').is_some_and(|(registry, name)| {
                registry.ends_with("iana.org/assignments/http-problem-types") && PROBLEMS.contains(&name)
            });
        }
        ControlFlow::Break(())
    });
    is
}

/// The first limit among `violated-policies` that the profile knows.
fn violated(profile: &QuotaProfile, text: &[u8]) -> Option<Target> {
    let mut target = None;
    body::each(text, &path(&["violated-policies"], true), |scalar| {
        if let Scalar::Text(name) = scalar {
            target = standard::known(profile, name).0.map(Target::Limit);
        }
        if target.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    target
}

fn path(names: &[&str], is_list: bool) -> JsonPath {
    let members = names.iter().map(|name| Step::Member((*name).into()));
    JsonPath::of(members.chain(is_list.then_some(Step::Element)))
}

/// The limit that shows nothing left; of several, the one that lasts longest.
fn used_up(observations: &[Observation]) -> Option<&Observation> {
    observations.iter().filter(|seen| seen.remaining == Some(0)).max_by_key(|seen| seen.reset_ms)
}

struct Release {
    after_ms: u64,
    source: TimeSource,
    by_our_clock: bool,
}

/// Where a throttled answer may say how long.
struct Times<'t> {
    profile: &'t QuotaProfile,
    call: &'t Call<'t>,
    answered: &'t Answered<'t>,
    now: Now,
}

impl Times<'_> {
    /// What the answer says in so many words.
    fn said(&self) -> Option<Release> {
        let vendor = self.profile.retries.iter().filter(|retry| retry.covers(self.call.path)).find_map(|retry| {
            // Zero is what such places say when they say nothing: it is another limit that was met.
            self.release(self.vendor(retry)?, TimeSource::Vendor).filter(|release| release.after_ms > 0)
        });
        let after = || self.release(self.retry_after()?, TimeSource::RetryAfter);
        let after_ms = || {
            let text = ["retry-after-ms", "x-ms-retry-after-ms"]
                .into_iter()
                .find_map(|name| number::single(self.answered.headers, name))?;
            self.release(time::parse(TimeForm::Milliseconds, text)?, TimeSource::RetryAfterMs)
        };
        vendor.or_else(after).or_else(after_ms)
    }

    /// `Retry-After`; none where its profile says that it is of another form, and it was not of that either.
    fn retry_after(&self) -> Option<Time> {
        let is_other = |retry: &RetryReading| {
            retry.covers(self.call.path)
                && matches!(&retry.place, RetryPlace::Header(name, Inside::Whole) if **name == *"retry-after")
        };
        if self.profile.retries.iter().any(is_other) {
            return None;
        }
        time::parse(TimeForm::RetryAfter, number::single(self.answered.headers, "retry-after")?)
    }

    fn vendor(&self, retry: &RetryReading) -> Option<Time> {
        if !retry.after.is_empty() {
            return self.within_text(retry);
        }
        match &retry.place {
            RetryPlace::Body(path) => time_in(self.answered.body, path, retry.form),
            RetryPlace::Header(name, inside) => {
                let value = number::single(self.answered.headers, name)?;
                match inside {
                    Inside::Whole => time::parse(retry.form, value),
                    Inside::Pair(name) => time::parse(retry.form, number::pair(value, name)?),
                    Inside::Json(path) => time_in(value.as_bytes(), path, retry.form),
                }
            }
        }
    }

    /// A time behind some words of a text.
    fn within_text(&self, retry: &RetryReading) -> Option<Time> {
        let behind = |text: &str| {
            let (_, rest) = text.split_once(&*retry.after)?;
            time::parse(retry.form, rest.split(' ').next()?)
        };
        match &retry.place {
            RetryPlace::Header(name, _) => behind(number::single(self.answered.headers, name)?),
            RetryPlace::Body(path) => {
                let mut found = None;
                body::each(self.answered.body, path, |scalar| {
                    if let Scalar::Text(text) = scalar {
                        found = behind(text);
                    }
                    if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                found
            }
        }
    }

    /// What follows from the limit that is meant: its reset, or the end of its day.
    fn of_limit(&self, limit: Option<u16>, is_named: bool, observations: &[Observation]) -> Option<Release> {
        // Of what is named, its own; of what is not, whatever shows that nothing is left.
        let seen = match limit {
            Some(_) => observations.iter().find(|seen| seen.limit == limit && seen.remaining.unwrap_or(0) == 0),
            None if is_named => None,
            None => used_up(observations),
        };
        if let Some(after_ms) = seen.and_then(|seen| seen.reset_ms) {
            return Some(Release { after_ms, source: TimeSource::Reset, by_our_clock: false });
        }
        let kind = &self.profile.limits.get(usize::from(limit?))?.kind;
        if !matches!(kind, QuotaKind::Daily { zone: Zone::Utc }) {
            return None;
        }
        let now_ms = self.now.date_ms.unwrap_or(self.now.received_ms);
        let by_our_clock = self.now.date_ms.is_none();
        Some(Release { after_ms: DAY_MS - now_ms % DAY_MS, source: TimeSource::Window, by_our_clock })
    }

    fn release(&self, time: Time, source: TimeSource) -> Option<Release> {
        self.now.until(time).map(|(after_ms, by_our_clock)| Release { after_ms, source, by_our_clock })
    }
}
