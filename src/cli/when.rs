//! Points in time as people write them: `1h` ago, RFC 3339, seconds since 1970.

use jiff::Timestamp;

use crate::control::time::MS_END;

/// A point in time as it was written; `ago` needs a clock to become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    /// Milliseconds before now.
    Ago(u64),
    /// Milliseconds since the Unix epoch.
    At(u64),
}

impl When {
    pub(crate) fn unix_ms(self, now_unix_ms: u64) -> u64 {
        match self {
            Self::Now => now_unix_ms,
            Self::Ago(ms) => now_unix_ms.saturating_sub(ms),
            Self::At(ms) => ms,
        }
    }
}

/// Reads `now`, a duration (that long ago), RFC 3339 with an offset, or Unix seconds. The argument parser's form.
pub(crate) fn parse(text: &str) -> Result<When, String> {
    if text == "now" {
        return Ok(When::Now);
    }
    if let Ok(seconds) = text.parse::<u64>() {
        let ms = seconds.checked_mul(1000).filter(|ms| *ms < MS_END);
        return ms.map(When::At).ok_or_else(|| "is too far in the future; plain numbers are seconds".to_owned());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        let ms = u64::try_from(at.as_millisecond()).map_err(|_| "is before 1970".to_owned())?;
        return Ok(When::At(ms));
    }
    duration_ms(text).map(When::Ago).ok_or_else(|| {
        "is no time: write 1h or 30m (that long ago), 2026-11-29T13:44:41Z, Unix seconds, or now".to_owned()
    })
}

/// A point in time to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// Milliseconds after now.
    In(u64),
    /// Milliseconds since the Unix epoch.
    At(u64),
}

impl Ahead {
    pub(crate) fn unix_ms(self, now_unix_ms: u64) -> u64 {
        match self {
            Self::In(ms) => now_unix_ms.saturating_add(ms),
            Self::At(ms) => ms,
        }
    }
}

/// Reads a duration (that long from now), RFC 3339 with an offset, or Unix seconds.
pub(crate) fn parse_ahead(text: &str) -> Result<Ahead, String> {
    match parse(text) {
        Ok(When::Ago(ms)) => Ok(Ahead::In(ms)),
        Ok(When::At(ms)) => Ok(Ahead::At(ms)),
        Ok(When::Now) => Err("is over already".to_owned()),
        Err(_) => Err("is no time: write 6h or 30m (from now), 2026-11-29T13:44:41Z, or Unix seconds".to_owned()),
    }
}

/// Milliseconds of `1h`, `1h30m`, `2d 12h`. Days are 24 hours: nobody who asks for `2d` of a log means a calendar.
fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(unit_ms)?;
        total = Some(total.unwrap_or_default()).and_then(|sum: u64| sum.checked_add(part));
        total?;
        rest = behind.trim_start();
    }
    total
}

/// The distance between two times, in the two largest units: `3m 12s later` is what a person can weigh.
pub(crate) fn distance(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse("1h"), Ok(When::Ago(3_600_000)));
        assert_eq!(parse("1h 30m"), Ok(When::Ago(5_400_000)));
        assert_eq!(parse("2d"), Ok(When::Ago(172_800_000)));
        assert_eq!(parse("1764424000"), Ok(When::At(1_764_424_000_000)));
        assert_eq!(parse("2025-11-29T13:46:40Z"), Ok(When::At(1_764_424_000_000)));
        assert_eq!(parse("2025-11-29T14:46:40.5+01:00"), Ok(When::At(1_764_424_000_500)));
        assert_eq!(parse("now"), Ok(When::Now));
        for bad in [
            "",
            "yesterday",
            "-1h",
            "1969-01-01T00:00:00Z",
            "1764424000000",
            "2025-11-29",
            "1y",
            "h",
            "1h x",
            "\u{1b}[31m",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ago_counts_from_the_given_now() {
        assert_eq!(When::Ago(1000).unix_ms(5000), 4000);
        assert_eq!(When::Ago(9000).unix_ms(5000), 0);
        assert_eq!(When::Now.unix_ms(5000), 5000);
    }

    #[test]
    fn what_is_to_come_counts_from_now() {
        assert_eq!(parse_ahead("6h").map(|ahead| ahead.unix_ms(5)), Ok(21_600_005));
        assert_eq!(parse_ahead("1764424000").map(|ahead| ahead.unix_ms(5)), Ok(1_764_424_000_000));
        for bad in ["now", "", "tomorrow"] {
            assert!(parse_ahead(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn distances_have_two_units() {
        assert_eq!(
            [12, 12_000, 192_000, 7_500_000, 180_000_000].map(distance),
            ["12ms", "12s", "3m 12s", "2h 5m", "2d 2h"]
        );
    }
}
