//! Times in RFC 3339, as authors write them and as events show them.

const DAY_MS: i64 = 86_400_000;

/// A time as RFC 3339 in UTC with milliseconds: `2026-01-02T03:04:05.678Z`. Years behind 9999 are written as the end of 9999.
pub fn format_rfc3339(unix_ms: u64) -> String {
    const END: i64 = 253_402_300_799_999;
    let ms = i64::try_from(unix_ms).unwrap_or(END).min(END);
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000)
}

/// Milliseconds since the Unix epoch of a time in RFC 3339: with `Z` or an offset, never without, so that no time zone and
/// no summer time has to be guessed. A leap second is the second behind it. Times before 1970 are 0.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !text.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = bytes.get(range)?;
        part.iter().all(u8::is_ascii_digit).then(|| part.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
    };
    let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut ms = 0;
    if is(at, b".") {
        let digits = bytes.get(at + 1..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&digits) {
            return None;
        }
        for place in 0..3 {
            ms = ms * 10 + if place < digits { i64::from(bytes.get(at + 1 + place)? - b'0') } else { 0 };
        }
        at += 1 + digits;
    }
    let offset_minutes = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && is(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1..at + 3)?, number(at + 4..at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_minutes * 60;
    Some(u64::try_from(seconds * 1000 + ms).unwrap_or(0))
}

/// Year, month and day of a count of days since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_with_their_offset() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-30T23:50:54Z", 1_796_082_654_000),
            ("2026-11-30T23:50:54.1239Z", 1_796_082_654_123),
            ("2000-02-29T12:00:00+05:30", 951_805_800_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("1969-12-31T23:59:59Z", 0),
            // The hour that Berlin has twice: the offset says which one.
            ("2026-10-25T02:30:00+02:00", 1_792_888_200_000),
            ("2026-10-25T02:30:00+01:00", 1_792_891_800_000),
            // The hour that Berlin has not, by an offset, is a time like any other.
            ("2026-03-29T02:30:00+01:00", 1_774_747_800_000),
        ] {
            assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_leaves_something_to_guess_is_no_time() {
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T23:50:54",
            "2026-11-30T23:50Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T23:50:54 Europe/Berlin",
            "2026-11-30T23:50:54+0100",
            "2026-11-30T23:50:54.Z",
            "2026-11-30T23:50:54Zx",
            "２026-11-30T23:50:54Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(ms in 0_u64..253_402_300_800_000) {
            prop_assert_eq!(parse_rfc3339(&format_rfc3339(ms)), Some(ms));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            parse_rfc3339(&text);
        }
    }
}
