use config::connector::quota::TimeForm::{
    EpochMilliseconds, EpochSeconds, GoDuration, HttpDate, Iso8601, Milliseconds, Minutes, RetryAfter, Seconds,
};

use super::*;

/// Sun, 06 Nov 1994 08:49:37 GMT.
const NOVEMBER_MS: u64 = 784_111_777_000;

#[test]
fn each_form_is_matched_whole_or_is_absent() {
    let cases = [
        (RetryAfter, "120", Some(Time::In(120_000))),
        (RetryAfter, " 120\t", Some(Time::In(120_000))),
        (RetryAfter, "0", Some(Time::In(0))),
        (RetryAfter, "999999999", Some(Time::In(999_999_999_000))),
        (RetryAfter, "1000000000", None),
        (RetryAfter, "120junk", None),
        (RetryAfter, "120 ", Some(Time::In(120_000))),
        (RetryAfter, "1 20", None),
        (RetryAfter, "-1", None),
        (RetryAfter, "+1", None),
        (RetryAfter, "NaN", None),
        (RetryAfter, "inf", None),
        (RetryAfter, "1e3", None),
        (RetryAfter, "0x10", None),
        (RetryAfter, "", None),
        (RetryAfter, "2.0", Some(Time::In(2_000))),
        (RetryAfter, "0.493", Some(Time::In(493))),
        (RetryAfter, "1.5", Some(Time::In(1_500))),
        (RetryAfter, "1.0000000001", Some(Time::In(1_001))),
        (RetryAfter, "0.49300000000000005", Some(Time::In(494))),
        (RetryAfter, "1.", None),
        (RetryAfter, ".5", None),
        (RetryAfter, "1.5.1", None),
        (RetryAfter, "1,5", None),
        (RetryAfter, "Sun, 06 Nov 1994 08:49:37 GMT", Some(Time::At(NOVEMBER_MS))),
        (RetryAfter, "Sunday, 06-Nov-94 08:49:37 GMT", Some(Time::At(NOVEMBER_MS))),
        (RetryAfter, "Sun Nov  6 08:49:37 1994", Some(Time::At(NOVEMBER_MS))),
        (RetryAfter, "Sun, 06 Nov 1994 08:49:37 PST", None),
        (RetryAfter, "Sun, 31 Feb 1994 08:49:37 GMT", None),
        (RetryAfter, "2020-05-31T00:00:00Z", Some(Time::At(1_590_883_200_000))),
        (RetryAfter, "2020-05-31T02:00:00+02:00", Some(Time::At(1_590_883_200_000))),
        (RetryAfter, "2020-05-31T00:00:00", None),
        (RetryAfter, "2020-05-31", None),
        (RetryAfter, "6m0s", Some(Time::In(360_000))),
        (RetryAfter, "6m0", None),
        (Seconds, "0.65", Some(Time::In(650))),
        (Seconds, "64.5701", Some(Time::In(64_571))),
        (Seconds, "2020-05-31T00:00:00Z", None),
        (Milliseconds, "6457", Some(Time::In(6_457))),
        (Milliseconds, "0.2", Some(Time::In(1))),
        (Minutes, "5", Some(Time::In(300_000))),
        (Minutes, "-5", None),
        (EpochSeconds, "1754002980", Some(Time::At(1_754_002_980_000))),
        (EpochSeconds, "1470173023.123", Some(Time::At(1_470_173_023_123))),
        (EpochSeconds, "999999999", None),
        (EpochSeconds, "1000000000", Some(Time::At(1_000_000_000_000))),
        (EpochSeconds, "0", None),
        (EpochSeconds, "1754002980000", None),
        (EpochMilliseconds, "1754002980000", Some(Time::At(1_754_002_980_000))),
        (EpochMilliseconds, "999999999999", None),
        (EpochMilliseconds, "1754002980", None),
        (EpochMilliseconds, "-62135596800000", None),
        (Iso8601, "2026-03-26T16:00Z", Some(Time::At(1_774_540_800_000))),
        (Iso8601, "2026-03-26T16:00:00.0001Z", Some(Time::At(1_774_540_800_001))),
        (Iso8601, "2026-03-26T16:00Zjunk", None),
        (Iso8601, "2026-03-26T16:00[Europe/Berlin]", None),
        (Iso8601, "2026-13-26T16:00Z", None),
        (Iso8601, "1960-01-01T00:00Z", None),
        (GoDuration, "1s", Some(Time::In(1_000))),
        (GoDuration, "6m0s", Some(Time::In(360_000))),
        (GoDuration, "120ms", Some(Time::In(120))),
        (GoDuration, "1h2m3.5s", Some(Time::In(3_723_500))),
        (GoDuration, "1.5ms", Some(Time::In(2))),
        (GoDuration, "17.5µs", Some(Time::In(1))),
        (GoDuration, "1s1ms", Some(Time::In(1_001))),
        (GoDuration, "1s1s", None),
        (GoDuration, "1s1m", None),
        (GoDuration, "1d", None),
        (GoDuration, "s", None),
        (GoDuration, "1", None),
        (GoDuration, "-1s", None),
        (GoDuration, "1 s", None),
        (HttpDate, "120", None),
    ];
    for (form, text, expected) in cases {
        assert_eq!(parse(form, text), expected, "{form:?} {text:?}");
    }
    assert_eq!(parse(Seconds, &format!("1.{}", "0".repeat(62))), Some(Time::In(1_000)));
    assert_eq!(parse(Seconds, &format!("1.{}", "0".repeat(63))), None, "longer than any form");
}

#[test]
fn moments_are_counted_from_the_answers_own_date() {
    let now = Now { date_ms: Some(100_000), received_ms: 900_000 };
    assert_eq!(now.until(Time::At(160_000)), Some((60_000, false)));
    assert_eq!(now.until(Time::At(100_000)), Some((0, false)));
    assert_eq!(now.until(Time::At(40_000)), Some((0, false)), "past by a minute");
    assert_eq!(now.until(Time::At(39_999)), None, "and by more it says nothing");
    assert_eq!(now.until(Time::In(5)), Some((5, false)));
    let ours = Now { date_ms: None, received_ms: 900_000 };
    assert_eq!(ours.until(Time::At(960_000)), Some((60_000, true)));
}
