//! Headers that speak of limits, as the profile reads them; what the profile does not know, by [`super::standard`].

use std::ops::ControlFlow;

use config::connector::quota::{HeaderReading, Inside, JsonPath, Part, QuotaLimit, QuotaProfile, Settle, TimeForm};
use http::HeaderMap;

use super::body::{self, Scalar};
use super::time::{self, Now, Time};
use super::{Answered, Call, Observation, RELEASE_MS_MAX, Scale, Settled, header_is, ms, number, standard};

/// Every limit that the answer speaks of.
pub(super) fn observations(profile: &QuotaProfile, call: &Call<'_>, headers: &HeaderMap, now: Now) -> Vec<Observation> {
    let mut all = Vec::new();
    for (place, limit) in (0..).zip(&*profile.limits) {
        // A header with the limit of whatever was asked speaks of no other one.
        if limit.cost_of(call.method, call.path).is_none() {
            continue;
        }
        let mut seen = Observation { limit: Some(place), level: limit.level, ..standard::NOTHING };
        for reading in profile.headers.iter().filter(|reading| reading.limit == place) {
            if reading.when.as_ref().is_none_or(|when| header_is(when, headers)) {
                take(&mut seen, reading, limit, headers, now);
            }
        }
        all.extend(finished(seen, limit));
    }
    standard::add(&mut all, profile, headers, now);
    all
}

/// Takes what one header says; what is known already stays.
fn take(seen: &mut Observation, reading: &HeaderReading, limit: &QuotaLimit, headers: &HeaderMap, now: Now) {
    let Some(value) = number::single(headers, &reading.name) else { return };
    if let (Inside::Json(path), Part::Reset(form)) = (&reading.inside, reading.part) {
        seen.reset_ms = seen.reset_ms.or_else(|| Some(now.until(time_in(value.as_bytes(), path, form)?)?.0));
        return;
    }
    let json;
    let text = match &reading.inside {
        Inside::Whole => value,
        Inside::Pair(name) => match number::pair(value, name) {
            Some(text) => text,
            None => return,
        },
        Inside::Json(path) => match largest(value.as_bytes(), path) {
            Some(number) => {
                json = number.to_string();
                &json
            }
            None => return,
        },
    };
    match reading.part {
        // Some name each window behind the number that counts: `3, 3;w=1, 60;w=60`.
        Part::Limit => seen.cap = seen.cap.or_else(|| number::whole(text.split(',').next()?.trim())),
        Part::Remaining => seen.remaining = seen.remaining.or_else(|| number::whole(text)),
        Part::Used => seen.used = seen.used.or_else(|| number::whole_up(text)),
        Part::UsedOfLimit => {
            if let Some((used, cap)) = number::ratio(text) {
                (seen.used, seen.cap) = (seen.used.or(Some(used)), seen.cap.or(Some(cap)));
            }
        }
        Part::PercentUsed => {
            if let Some(used) = number::whole_up(text) {
                (seen.used, seen.cap, seen.scale) = (Some(used.min(100)), Some(100), Scale::Percent);
            }
        }
        Part::Rate => {
            let window_ms = limit.kind.window().map_or(1_000, ms);
            seen.cap = seen.cap.or_else(|| number::rate(text, window_ms));
        }
        Part::Reset(form) => seen.reset_ms = seen.reset_ms.or_else(|| Some(now.until(time::parse(form, text)?)?.0)),
    }
}

/// An observation that says something, and nothing that cannot be.
fn finished(mut seen: Observation, limit: &QuotaLimit) -> Option<Observation> {
    if seen.remaining.is_none() {
        seen.remaining = seen.cap.zip(seen.used).map(|(cap, used)| cap.saturating_sub(used));
    }
    if seen.cap.zip(seen.remaining).is_some_and(|(cap, remaining)| remaining > cap) {
        // One of the two is wrong, and the limit is the one that was written down when it was not busy.
        seen.remaining = None;
    }
    let longest = limit.kind.window().map_or(RELEASE_MS_MAX, ms).min(RELEASE_MS_MAX);
    seen.reset_ms = seen.reset_ms.map(|reset_ms| reset_ms.min(longest));
    let says = seen.cap.is_some() || seen.remaining.is_some() || seen.used.is_some() || seen.reset_ms.is_some();
    says.then_some(seen)
}

/// What the call did cost, where the answer says so.
pub(super) fn settled(profile: &QuotaProfile, call: &Call<'_>, answered: &Answered<'_>) -> Vec<Settled> {
    let counted = (0..).zip(&*profile.limits).filter(|(_, limit)| limit.cost_of(call.method, call.path).is_some());
    let costs = counted.filter_map(|(place, limit)| {
        let cost = match limit.settle.as_ref()? {
            Settle::Header(name) => number::whole_up(number::single(answered.headers, name)?)?,
            Settle::Body(path) => largest(answered.body, path)?,
        };
        Some(Settled { limit: place, cost })
    });
    costs.collect()
}

/// The largest number at a place, rounded up; numbers that are written as texts count. None of what is negative.
fn largest(text: &[u8], path: &JsonPath) -> Option<u64> {
    let mut most = None;
    body::each(text, path, |scalar| {
        let value = match scalar {
            Scalar::Whole(value) => Some(value),
            Scalar::Fraction(value) => up(value),
            Scalar::Text(text) => number::whole_up(text),
            Scalar::Other => None,
        };
        most = most.max(value);
        ControlFlow::Continue(())
    });
    most
}

/// The longest time at a place.
pub(super) fn time_in(text: &[u8], path: &JsonPath, form: TimeForm) -> Option<Time> {
    let mut most: Option<Time> = None;
    body::each(text, path, |scalar| {
        let time = match scalar {
            Scalar::Whole(value) => time::parse(form, &value.to_string()),
            // To a microsecond, as decimals: no form has an exponent.
            Scalar::Fraction(value) if (0.0..1e12).contains(&value) => time::parse(form, &format!("{value:.6}")),
            Scalar::Text(text) => time::parse(form, text),
            Scalar::Fraction(_) | Scalar::Other => None,
        };
        most = match (most, time) {
            (Some(Time::In(one)), Some(Time::In(other))) => Some(Time::In(one.max(other))),
            (Some(Time::At(one)), Some(Time::At(other))) => Some(Time::At(one.max(other))),
            (known, new) => known.or(new),
        };
        ControlFlow::Continue(())
    });
    most
}

/// A number that is no whole one, rounded up.
fn up(value: f64) -> Option<u64> {
    // Below 2^53, so that the conversion is exact.
    let is_sane = (0.0..9e15).contains(&value);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within 0 and 2^53")]
    is_sane.then(|| value.ceil() as u64)
}
