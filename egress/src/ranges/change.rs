//! One line of the book: what was changed, when, by which terms, and the proof of what was published with it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::prefix::Prefix;
use super::words::{City, Country, PoolName, Reason, Region};

/// A moment in whole seconds since the Unix epoch, shown as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct At(u64);

/// 9999-01-01: no later moment can be written.
const END: u64 = 253_370_764_800;

impl At {
    /// The second that this millisecond is in.
    pub fn of_unix_ms(unix_ms: u64) -> Self {
        Self((unix_ms / 1000).min(END))
    }

    /// In milliseconds since the Unix epoch.
    pub fn unix_ms(self) -> u64 {
        self.0 * 1000
    }

    /// So many seconds later, and never after 9998.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds).min(END))
    }

    /// Whole days from `now` until then, rounded down; negative when it is over.
    pub fn days_from(self, now: Self) -> i64 {
        let seconds = i64::try_from(self.0).unwrap_or(i64::MAX) - i64::try_from(now.0).unwrap_or(i64::MAX);
        seconds.div_euclid(86_400)
    }

    fn timestamp(self) -> Timestamp {
        i64::try_from(self.0).ok().and_then(|at| Timestamp::from_second(at).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// IMF-fixdate (RFC 9110 §5.6.7).
    pub fn imf(self) -> String {
        self.timestamp().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    /// Reads the same; none where it is another form.
    pub fn of_imf(text: &str) -> Option<Self> {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?.as_second();
        // That reads other forms, too.
        u64::try_from(at).ok().map(Self).filter(|at| at.imf() == text)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.timestamp(), f)
    }
}

impl From<At> for String {
    fn from(at: At) -> Self {
        at.to_string()
    }
}

impl FromStr for At {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let at = text.parse::<Timestamp>().map_err(|_| "is no moment")?;
        let at = u64::try_from(at.as_second()).ok().filter(|at| *at <= END).map(Self).ok_or("is no moment of ours")?;
        if at.to_string() == text { Ok(at) } else { Err("is no moment in whole seconds and UTC") }
    }
}

impl TryFrom<String> for At {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        text.parse()
    }
}

/// What a change does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Calls will leave from this range, once its notice is over.
    Announce {
        /// Which.
        prefix: Prefix,
        /// Of this pool alone; none: of any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<PoolName>,
        /// Where it is, for the geofeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        country: Option<Country>,
        /// Part of the country.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<Region>,
        /// City.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        city: Option<City>,
    },
    /// Calls may leave from it.
    Activate {
        /// Which.
        prefix: Prefix,
    },
    /// Calls are to leave from others. It is still ours.
    Drain {
        /// Which.
        prefix: Prefix,
    },
    /// It is not ours any more.
    Retire {
        /// Which.
        prefix: Prefix,
    },
    /// An announcement is taken back: no call ever left from it.
    Withdraw {
        /// Which.
        prefix: Prefix,
    },
    /// Nothing but a new date of validity.
    Renew,
}

impl Change {
    /// Its word: `announce`, `activate`, …
    pub fn word(&self) -> &'static str {
        match self {
            Self::Announce { .. } => "announce",
            Self::Activate { .. } => "activate",
            Self::Drain { .. } => "drain",
            Self::Retire { .. } => "retire",
            Self::Withdraw { .. } => "withdraw",
            Self::Renew => "renew",
        }
    }

    /// The range that it is about.
    pub fn prefix(&self) -> Option<Prefix> {
        match self {
            Self::Announce { prefix, .. }
            | Self::Activate { prefix }
            | Self::Drain { prefix }
            | Self::Retire { prefix }
            | Self::Withdraw { prefix } => Some(*prefix),
            Self::Renew => None,
        }
    }
}

/// The terms of the day. What a change was made by stays what it was: a notice that is shortened later shortens no
/// notice that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// From announcing to activating.
    pub notice_seconds: u64,
    /// From draining to retiring.
    pub drain_seconds: u64,
    /// How long the document is valid.
    pub validity_seconds: u64,
}

impl Policy {
    /// Those of the configuration.
    pub fn of(ranges: &config::EgressRanges) -> Self {
        let whole = |span: Duration| span.as_secs() + u64::from(span.subsec_nanos() > 0);
        Self {
            notice_seconds: whole(ranges.notice),
            drain_seconds: whole(ranges.drain),
            validity_seconds: whole(ranges.validity),
        }
    }
}

/// One change, numbered from 1 without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The version that it makes.
    pub serial: u64,
    /// When.
    pub at: At,
    /// What.
    pub what: Change,
    /// Whether a notice was not waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Why, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// By which terms.
    pub policy: Policy,
    /// SHA-256 of the entry before, as it is written: the document of this version holds it, so that its signature is one
    /// of the whole book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The key that signed the document of this version, `ed25519:…`.
    pub key: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// Ed25519 over the same bytes, in base64.
    pub signature: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_two_forms_and_survive_both() {
        let at = At::of_unix_ms(1_764_424_000_999);
        assert_eq!(
            (at.to_string().as_str(), at.imf().as_str()),
            ("2025-11-29T13:46:40Z", "Sat, 29 Nov 2025 13:46:40 GMT")
        );
        assert_eq!(At::of_imf(&at.imf()), Some(at));
        assert_eq!(at.to_string().parse(), Ok(at));
        for text in ["2025-11-29T13:46:40.5Z", "2025-11-29T14:46:40+01:00", "2025-11-29", "1969-12-31T23:59:59Z", ""] {
            assert!(text.parse::<At>().is_err(), "{text}");
        }
        for text in ["", "2025-11-29T13:46:40Z", "Sat, 29 Nov 2025 13:46:40 CET", "Sat, 99 Nov 2025 13:46:40 GMT"] {
            assert_eq!(At::of_imf(text), None, "{text}");
        }
        assert_eq!(At::of_unix_ms(u64::MAX).plus(u64::MAX).to_string(), "9999-01-01T00:00:00Z");
        let day = |days: u64| At(days * 86_400);
        assert_eq!((day(3).days_from(day(1)), day(1).days_from(At(86_401))), (2, -1));
    }
}
