//! Sizes and durations as people write them: a number and a unit, always.

use std::fmt::Write;
use std::time::Duration;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", TIB),
    ("GiB", GIB),
    ("MiB", MIB),
    ("KiB", KIB),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const TIME_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

/// Reads `25MiB`, `64 KiB`, `10MB`, `512B`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or_else(|| format!("{text:?} is no size; {BYTES_HINT}"))?;
    if unit.is_empty() {
        return Err(format!("{text:?} has no unit; {BYTES_HINT}"));
    }
    let Some((_, factor)) = BYTE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(match BYTE_UNITS.iter().find(|(name, _)| unit_like(name, unit)) {
            Some((name, _)) => format!("{text:?} has no unit that is known here; did you mean \"{number}{name}\"?"),
            None => format!("{text:?} has no unit that is known here; {BYTES_HINT}"),
        });
    };
    number.checked_mul(*factor).ok_or_else(|| format!("{text:?} is too large"))
}

const BYTES_HINT: &str = "write a whole number and B, KiB, MiB, GiB or TiB, such as \"25MiB\"";

fn unit_like(name: &str, unit: &str) -> bool {
    name.eq_ignore_ascii_case(unit) || name.strip_suffix("iB").is_some_and(|letter| letter.eq_ignore_ascii_case(unit))
}

/// The shortest exact form that [`parse_bytes`] reads.
pub fn format_bytes(bytes: u64) -> String {
    let unit = BYTE_UNITS[..4].iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    match unit {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// Reads `500ms`, `10s`, `5m`, `1h30m`, `30d`: units in descending order, each once.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let no = || format!("{text:?} is no duration; {TIME_HINT}");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(no());
    }
    let (mut total, mut below) = (0_u64, usize::MAX);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| no())?;
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[digits..digits + letters];
        if unit.is_empty() {
            return Err(format!("{text:?} has no unit; {TIME_HINT}"));
        }
        let at = TIME_UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(no)?;
        if below != usize::MAX && at <= below {
            return Err(no());
        }
        below = at;
        let part = number.checked_mul(TIME_UNITS[at].1);
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| format!("{text:?} is too long"))?;
        rest = &rest[digits + letters..];
    }
    Ok(Duration::from_millis(total))
}

const TIME_HINT: &str = "write a whole number and ms, s, m, h or d, such as \"10s\"";

/// The shortest exact form that [`parse_duration`] reads; what is below a millisecond is dropped.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".into();
    }
    if let Some((name, factor)) = TIME_UNITS.iter().find(|(_, factor)| rest.is_multiple_of(*factor)) {
        // 90s reads better as 90s than as 1m30s, and 36h better than as 1d12h.
        return format!("{}{name}", rest / factor);
    }
    let mut out = String::new();
    for (name, factor) in TIME_UNITS {
        if rest >= factor {
            // Writing to a string cannot fail.
            write!(out, "{}{name}", rest / factor).unwrap_or_default();
            rest %= factor;
        }
    }
    out
}

/// `25 MiB` to `(25, "MiB")`.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(parse_bytes("25MiB"), Ok(25 * MIB));
        assert_eq!(parse_bytes("64 KiB"), Ok(64 * KIB));
        assert_eq!(parse_bytes("10MB"), Ok(10_000_000));
        assert_eq!(parse_bytes("0B"), Ok(0));
        assert!(parse_bytes("25").unwrap_err().contains("has no unit"));
        assert!(parse_bytes("25M").unwrap_err().contains("did you mean \"25MiB\"?"));
        assert!(parse_bytes("25mib").unwrap_err().contains("did you mean \"25MiB\"?"));
        assert!(parse_bytes("1.5GiB").is_err());
        assert!(parse_bytes("-1B").is_err());
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("99999999TiB").unwrap_err().contains("too large"));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1h30m"), Ok(seconds(5400)));
        assert_eq!(parse_duration("30d"), Ok(days(30)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for wrong in ["10", "", "s", "1m1h", "1s1s", "1.5s", "-1s", "1 year", "9999999999999999999d", "é", "1é"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: u64, ms in 0..u64::MAX / 2) {
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text: String) {
            drop((parse_bytes(&text), parse_duration(&text)));
        }
    }
}
