//! When a delivery was signed, and whether that is near enough to now.

use config::scheme::{TimestampFormat, TimestampRule, Window};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::fault::VerifyFault;

/// From this number on, a count since the epoch is in milliseconds: as seconds it would be the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// How far a timestamp may lie from the clock, in milliseconds on each side; none: as far as it likes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    old_ms: Option<u64>,
    future_ms: Option<u64>,
}

impl Tolerance {
    pub(super) fn of(rule: &TimestampRule) -> Self {
        let ms = |window| match window {
            Window::Within(span) => Some(span.ms()),
            Window::Unlimited => None,
        };
        Self { old_ms: ms(rule.old), future_ms: ms(rule.future) }
    }

    /// For how long one timestamp is taken, from the first moment to the last; none: for ever.
    pub(super) fn span_ms(self) -> Option<u64> {
        Some(self.old_ms?.saturating_add(self.future_ms?))
    }

    /// Exactly as old, or exactly as far ahead, as allowed is allowed.
    pub(super) fn judge(self, signed_unix_ms: u64, now_unix_ms: u64) -> Result<(), VerifyFault> {
        let age = now_unix_ms.saturating_sub(signed_unix_ms);
        let lead = signed_unix_ms.saturating_sub(now_unix_ms);
        match self {
            Self { old_ms: Some(most), .. } if age > most => Err(VerifyFault::TooOld { by_ms: age - most }),
            Self { future_ms: Some(most), .. } if lead > most => Err(VerifyFault::InFuture { by_ms: lead - most }),
            Self { .. } => Ok(()),
        }
    }
}

/// Reads a timestamp as milliseconds since the Unix epoch.
pub(super) fn read(format: TimestampFormat, text: &[u8]) -> Option<u64> {
    match format {
        TimestampFormat::Seconds => digits(text, 12).map(|s| s * 1_000),
        TimestampFormat::Milliseconds => digits(text, 15),
        TimestampFormat::SecondsOrMilliseconds => {
            digits(text, 15).map(|n| if n < MILLISECONDS_FROM { n * 1_000 } else { n })
        }
        TimestampFormat::Rfc3339 => rfc3339(text),
        TimestampFormat::ImfFixdate => imf_fixdate(text),
        TimestampFormat::Opaque => None,
    }
}

/// Writes a timestamp as the provider would.
pub(super) fn write(format: TimestampFormat, unix_ms: u64) -> Option<String> {
    let moment = || Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok();
    match format {
        TimestampFormat::Seconds | TimestampFormat::SecondsOrMilliseconds | TimestampFormat::Opaque => {
            Some((unix_ms / 1_000).to_string())
        }
        TimestampFormat::Milliseconds => Some(unix_ms.to_string()),
        TimestampFormat::Rfc3339 => Some(moment()?.to_string()),
        TimestampFormat::ImfFixdate => rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&moment()?).ok(),
    }
}

fn digits(text: &[u8], digits_max: usize) -> Option<u64> {
    if text.is_empty() || text.len() > digits_max {
        return None;
    }
    text.iter().try_fold(0_u64, |n, b| b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0')))
}

/// Only the form of RFC 3339 with `T` and a zone: the library also takes other spellings.
fn rfc3339(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let shape = |at: usize, b: u8| text.as_bytes().get(at) == Some(&b);
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'T' | b':' | b'.' | b'+' | b'-' | b'Z'));
    if !(plain && shape(4, b'-') && shape(7, b'-') && shape(10, b'T') && shape(13, b':') && shape(16, b':')) {
        return None;
    }
    u64::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok()
}

/// Only the one spelling of RFC 9110: what is read must write back to the same text.
fn imf_fixdate(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let moment = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let written = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&moment).ok()?;
    if written == text { u64::try_from(moment.as_millisecond()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::read as read_as;
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [TimestampFormat; 5] = [
        TimestampFormat::Seconds,
        TimestampFormat::Milliseconds,
        TimestampFormat::SecondsOrMilliseconds,
        TimestampFormat::Rfc3339,
        TimestampFormat::ImfFixdate,
    ];

    #[test]
    fn each_side_has_its_own_edge() {
        let tolerance = Tolerance { old_ms: Some(300_000), future_ms: Some(60_000) };
        let now = 1_000_000_000;
        assert_eq!(tolerance.judge(now - 300_000, now), Ok(()));
        assert_eq!(tolerance.judge(now - 300_001, now), Err(VerifyFault::TooOld { by_ms: 1 }));
        assert_eq!(tolerance.judge(now + 60_000, now), Ok(()));
        assert_eq!(tolerance.judge(now + 60_001, now), Err(VerifyFault::InFuture { by_ms: 1 }));
        let unlimited = Tolerance { old_ms: None, future_ms: None };
        assert_eq!(unlimited.judge(0, u64::MAX), Ok(()));
        assert_eq!(unlimited.judge(u64::MAX, 0), Ok(()));
        let none = Tolerance { old_ms: Some(0), future_ms: Some(0) };
        assert_eq!(none.judge(now, now), Ok(()));
        assert!(none.judge(now - 1, now).is_err() && none.judge(now + 1, now).is_err());
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        let read = |text: &str| read_as(TimestampFormat::Seconds, text.as_bytes());
        assert_eq!(read("1531420618"), Some(1_531_420_618_000));
        for text in
            ["", "+1531420618", "-1", " 1531420618", "1531420618 ", "1531420618.0", "1e9", "0x10", "1234567890123"]
        {
            assert_eq!(read(text), None, "{text:?}");
        }
        let either = |text: &str| read_as(TimestampFormat::SecondsOrMilliseconds, text.as_bytes());
        assert_eq!(either("99999999999"), Some(99_999_999_999_000));
        assert_eq!(either("100000000000"), Some(100_000_000_000));
    }

    #[test]
    fn dates_have_one_spelling() {
        let read = |text: &str| read_as(TimestampFormat::Rfc3339, text.as_bytes());
        assert_eq!(read("2020-01-01T00:00:00-07:00"), Some(1_577_862_000_000));
        assert_eq!(read("2020-01-01T00:00:00.123456789Z"), Some(1_577_836_800_123));
        for text in [
            "2020-01-01 00:00:00Z",
            "2020-01-01T00:00:00",
            "2020-01-01",
            "20200101T000000Z",
            "2020-13-01T00:00:00Z",
            "2020-01-01T00:00:00Z[UTC]",
            "2020-01-01t00:00:00z",
            " 2020-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        let read = |text: &str| read_as(TimestampFormat::ImfFixdate, text.as_bytes());
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        for text in [
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(seconds in 0_u64..=9_999_999_999, ms in 0_u64..1_000) {
            for format in FORMATS {
                let at = seconds * 1_000 + ms;
                let text = write(format, at).unwrap();
                let exact = matches!(format, TimestampFormat::Milliseconds | TimestampFormat::Rfc3339);
                // Below the threshold, milliseconds and seconds cannot be told apart; nobody signs in 1973.
                if format != TimestampFormat::Milliseconds || at >= MILLISECONDS_FROM {
                    prop_assert_eq!(read(format, text.as_bytes()), Some(if exact { at } else { seconds * 1_000 }));
                }
            }
        }

        #[test]
        fn no_text_panics(text: Vec<u8>) {
            for format in FORMATS {
                let _: Option<u64> = read(format, &text);
            }
        }
    }
}
