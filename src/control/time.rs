//! Times as they are printed: one form everywhere.

use jiff::Timestamp;

/// The end of 9999-12-30 in the westernmost zone, in milliseconds: no later time has a form in RFC 3339 everywhere.
pub(crate) const MS_END: u64 = 253_402_207_200_000;

/// RFC 3339 in UTC with milliseconds, always 24 characters.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms.min(MS_END - 1)).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| unix_ms.to_string(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_with_milliseconds_whatever_they_are() {
        assert_eq!(rfc3339(1_764_424_000_123), "2025-11-29T13:46:40.123Z");
        assert_eq!(rfc3339(1_764_424_000_000), "2025-11-29T13:46:40.000Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-30T21:59:59.999Z");
    }
}
