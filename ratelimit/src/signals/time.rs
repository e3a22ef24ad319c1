//! Times as providers write them: each form is matched whole or is absent, nothing is guessed, and what is rounded is
//! rounded up.

use std::time::UNIX_EPOCH;

use config::connector::quota::TimeForm;

/// Nobody is parked for longer: a day that has 25 hours, and one more. What says more is capped, and told.
pub const RELEASE_MS_MAX: u64 = 26 * 3_600_000;

/// A moment that is past by more says nothing of when to come back: its clock, or ours, or the sender is wrong.
const STALE_MS: u64 = 60_000;

/// Longer than any form of a time.
const TEXT_MAX: usize = 64;

/// A time as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    /// Milliseconds from now.
    In(u64),
    /// Milliseconds since the Unix epoch.
    At(u64),
}

/// What moments are counted from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The answer's own `Date`, in ms since the Unix epoch: the clock that wrote the moment.
    pub(super) date_ms: Option<u64>,
    /// When it came, by our clock.
    pub(super) received_ms: u64,
}

impl Now {
    /// How long, in milliseconds; whether our clock had to serve. None of a moment that is long past.
    pub(super) fn until(self, time: Time) -> Option<(u64, bool)> {
        let at_ms = match time {
            Time::In(delta_ms) => return Some((delta_ms, false)),
            Time::At(at_ms) => at_ms,
        };
        let now_ms = self.date_ms.unwrap_or(self.received_ms);
        (at_ms.saturating_add(STALE_MS) >= now_ms).then(|| (at_ms.saturating_sub(now_ms), self.date_ms.is_none()))
    }

    /// Whether a moment is near enough to be meant as one: within what a park can last, either way.
    pub(super) fn is_near(self, at_ms: u64) -> bool {
        at_ms.abs_diff(self.date_ms.unwrap_or(self.received_ms)) <= RELEASE_MS_MAX
    }
}

/// Reads one form; spaces around are no part of a header's value.
pub(super) fn parse(form: TimeForm, text: &str) -> Option<Time> {
    let text = text.trim_matches([' ', '\t']);
    if text.is_empty() || text.len() > TEXT_MAX {
        return None;
    }
    match form {
        TimeForm::Seconds => decimal(text, 9, 1_000).map(Time::In),
        TimeForm::Milliseconds => decimal(text, 12, 1).map(Time::In),
        TimeForm::Minutes => decimal(text, 7, 60_000).map(Time::In),
        TimeForm::EpochSeconds => decimal(text, 11, 1_000).filter(|ms| *ms >= 1_000_000_000_000).map(Time::At),
        TimeForm::EpochMilliseconds => decimal(text, 14, 1).filter(|ms| *ms >= 1_000_000_000_000).map(Time::At),
        TimeForm::Iso8601 => iso_8601(text),
        TimeForm::GoDuration => go_duration(text).map(Time::In),
        TimeForm::HttpDate => http_date(text).map(Time::At),
        TimeForm::RetryAfter => retry_after(text),
    }
}

/// What `Retry-After` is seen with, in this order; the forms exclude each other.
fn retry_after(text: &str) -> Option<Time> {
    [TimeForm::Seconds, TimeForm::HttpDate, TimeForm::Iso8601, TimeForm::GoDuration]
        .into_iter()
        .find_map(|form| parse(form, text))
}

/// `digits`, or `digits.digits`, times `scale`, rounded up.
fn decimal(text: &str, digits_max: usize, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || whole.len() > digits_max || fraction.is_some_and(|fraction| !is_number(fraction)) {
        return None;
    }
    let whole_ms = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    whole_ms.checked_add(fraction.map_or(0, |fraction| fraction_up(fraction, scale)))
}

/// `0.fraction × scale`, rounded up. Only digits.
fn fraction_up(fraction: &str, scale: u64) -> u64 {
    // Twelve digits are a thousandth of a nanosecond of a second; what is behind them only rounds up.
    let (head, tail) = fraction.split_at(fraction.len().min(12));
    let mut value: u64 = head.bytes().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    value += u64::from(tail.bytes().any(|digit| digit != b'0'));
    let unit = 10_u128.pow(u32::try_from(head.len()).unwrap_or(12));
    u64::try_from((u128::from(value) * u128::from(scale)).div_ceil(unit)).unwrap_or(u64::MAX)
}

/// RFC 9110, 5.6.7: IMF-fixdate, RFC 850, asctime.
pub(super) fn http_date(text: &str) -> Option<u64> {
    let moment = httpdate::parse_http_date(text).ok()?;
    u64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// A moment with its offset, to the minute or finer: `2026-03-26T16:00Z`.
fn iso_8601(text: &str) -> Option<Time> {
    let has_shape = text.is_ascii() && text.as_bytes().get(10).is_some_and(|byte| matches!(byte, b'T' | b't'));
    // A named zone in brackets would need a database, and is none of this form.
    if !has_shape || text.contains('[') {
        return None;
    }
    let moment: jiff::Timestamp = text.parse().ok()?;
    let up = i64::from(moment.subsec_nanosecond() % 1_000_000 > 0);
    u64::try_from(moment.as_millisecond() + up).ok().map(Time::At)
}

/// What Go prints of a duration: `6m0s`, `1h2m3.5s`, `120ms`; rounded up. Units once each and in falling order, so that
/// a text that only looks alike is none.
fn go_duration(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ns", 1),
    ];
    let (mut rest, mut total_ns, mut last) = (text, 0_u128, u64::MAX);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(end);
        let unit_end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        let (_, unit_ns) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        if unit_ns >= last {
            return None;
        }
        last = unit_ns;
        total_ns += u128::from(decimal(number, 9, unit_ns)?);
        rest = behind;
    }
    u64::try_from(total_ns.div_ceil(1_000_000)).ok()
}

#[cfg(test)]
mod tests;
