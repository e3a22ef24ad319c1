//! Numbers of headers, and where in a header they stand.

use http::HeaderMap;

/// Headers of limits are short; what is longer is something else.
pub(super) const VALUE_MAX: usize = 4_096;

/// Digits of a number that is believed.
const DIGITS_MAX: usize = 15;

/// The value of a header that is there once, or several times with the same value: two that differ are ambiguous.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if first.len() > VALUE_MAX || values.any(|other| other != first) {
        return None;
    }
    first.to_str().ok().map(|text| text.trim_matches([' ', '\t']))
}

/// A whole number. One with a fraction is rounded down: what is left of a unit is none.
pub(super) fn whole(text: &str) -> Option<u64> {
    parts(text).map(|(whole, _)| whole)
}

/// The same, rounded up: a unit that is begun is used.
pub(super) fn whole_up(text: &str) -> Option<u64> {
    parts(text).map(|(whole, has_rest)| whole + u64::from(has_rest))
}

fn parts(text: &str) -> Option<(u64, bool)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number =
        |part: &str| (1..=DIGITS_MAX).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((whole.parse().ok()?, fraction.bytes().any(|digit| digit != b'0')))
}

/// `32/40`: used, and the limit.
pub(super) fn ratio(text: &str) -> Option<(u64, u64)> {
    let (used, limit) = text.split_once('/')?;
    Some((whole_up(used.trim())?, whole(limit.trim())?))
}

/// Units in `window_ms` of a rate a second, rounded down. A rate of less than one unit in a window is none.
pub(super) fn rate(text: &str, window_ms: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| (1..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let unit = 10_u128.pow(u32::try_from(digits.len()).ok()?);
    let value = whole.parse::<u128>().ok()? * unit + digits.parse::<u128>().ok()?;
    u64::try_from(value * u128::from(window_ms) / (unit * 1_000)).ok().filter(|units| *units > 0)
}

/// The value of `name=value` among pairs apart by `;` or `,`, up to what is in brackets behind it.
pub(super) fn pair<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.split([';', ',']).find_map(|one| {
        let (key, value) = one.split_once('=')?;
        let value = value.split('(').next().unwrap_or(value).trim();
        key.trim().eq_ignore_ascii_case(name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_or_absent() {
        let cases = [
            ("0", Some(0)),
            ("5000", Some(5000)),
            ("99.9", Some(99)),
            ("999999999999999", Some(999_999_999_999_999)),
            ("1000000000000000", None),
            ("-1", None),
            ("+1", None),
            ("1.", None),
            ("", None),
            ("12a", None),
            ("1e3", None),
            ("٣", None),
        ];
        for (text, expected) in cases {
            assert_eq!(whole(text), expected, "{text:?}");
        }
        assert_eq!((whole_up("9.01"), whole_up("9.0")), (Some(10), Some(9)));
        assert_eq!((ratio("32/40"), ratio("32"), ratio("/40"), ratio("1/2/3")), (Some((32, 40)), None, None, None));
    }

    #[test]
    fn a_rate_is_of_a_window() {
        assert_eq!(rate("0.0167", 60_000), Some(1));
        assert_eq!(rate("2.0", 1_000), Some(2));
        assert_eq!(rate("0.5", 1_000), None, "less than one");
        assert_eq!((rate("-1", 1_000), rate("1.5.1", 1_000), rate("1e9", 1_000)), (None, None, None));
    }

    #[test]
    fn pairs_have_names() {
        let info = "api-usage=113/5000000; per-app-api-usage=17/250(appName=sample)";
        assert_eq!(pair(info, "api-usage"), Some("113/5000000"));
        assert_eq!(pair(info, "per-app-api-usage"), Some("17/250"));
        assert_eq!(pair("total=100; remaining=99; resets=41", "resets"), Some("41"));
        assert_eq!((pair(info, "usage"), pair("", "a"), pair("a", "a")), (None, None, None));
    }
}
