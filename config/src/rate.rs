//! Rates as people write them: `100/s burst 200`, `10MiB/s burst 50MiB`.

use std::fmt;

use crate::units::{format_bytes, parse_bytes};

/// So many per second in the long run, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// At least 1 in everything that was read from a file.
    pub per_second: u32,
    /// At least `per_second` in everything that was read from a file.
    pub burst: u32,
}

impl Rate {
    /// What `unlimited` is read as; say it to lift a default.
    pub const UNLIMITED: Self = Self { per_second: u32::MAX, burst: u32::MAX };

    pub fn is_unlimited(self) -> bool {
        self == Self::UNLIMITED
    }

    /// Reads `100/s`, `100/s burst 200`, `unlimited`. Without a burst it is one second's worth.
    pub fn parse_events(text: &str) -> Result<Self, String> {
        Self::parse(text, "100/s burst 200", |number| {
            number
                .parse()
                .map_err(|_| format!("{number:?} is no whole number; write a rate such as \"100/s burst 200\""))
        })
    }

    /// Reads `10MiB/s`, `10MiB/s burst 50MiB`, `unlimited`.
    pub fn parse_bytes(text: &str) -> Result<Self, String> {
        Self::parse(text, "10MiB/s burst 50MiB", parse_bytes)
    }

    fn parse(text: &str, example: &str, number: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        let no = || format!("{text:?} is no rate; write it as {example:?}, or \"unlimited\"");
        let bounded = |value: u64| {
            let value = u32::try_from(value).ok().filter(|value| (1..u32::MAX).contains(value));
            value.ok_or_else(|| format!("{text:?} is out of range; each number is 1 to {}", u32::MAX - 1))
        };
        let text = text.trim();
        if text == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        let (per, burst) = match text.split_once("burst") {
            Some((per, burst)) => (per.trim(), Some(burst.trim())),
            None => (text, None),
        };
        let (per, unit) = per.split_once('/').ok_or_else(no)?;
        if unit.trim() != "s" {
            return Err(format!("{text:?}: rates are per second; write it as {example:?}"));
        }
        let per_second = bounded(number(per.trim())?)?;
        let burst = burst.map_or(Ok(per_second), |burst| bounded(number(burst)?))?;
        if burst < per_second {
            return Err(format!("{text:?}: the burst is below one second's worth; write at least the rate itself"));
        }
        Ok(Self { per_second, burst })
    }

    /// The form that [`Self::parse_events`] reads.
    pub fn show_events(self) -> String {
        self.show(|number| number.to_string())
    }

    /// The form that [`Self::parse_bytes`] reads.
    pub fn show_bytes(self) -> String {
        self.show(|number| format_bytes(u64::from(number)))
    }

    fn show(self, number: impl Fn(u32) -> String) -> String {
        if self.is_unlimited() {
            "unlimited".into()
        } else if self.burst == self.per_second {
            format!("{}/s", number(self.per_second))
        } else {
            format!("{}/s burst {}", number(self.per_second), number(self.burst))
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show_events())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_per_second_with_a_burst() {
        assert_eq!(Rate::parse_events("100/s burst 200"), Ok(Rate { per_second: 100, burst: 200 }));
        assert_eq!(Rate::parse_events("100/s"), Ok(Rate { per_second: 100, burst: 100 }));
        assert_eq!(Rate::parse_bytes("1MiB/s burst 4MiB"), Ok(Rate { per_second: 1 << 20, burst: 1 << 22 }));
        assert_eq!(Rate::parse_events("unlimited"), Ok(Rate::UNLIMITED));
        for wrong in ["", "100", "100/m", "0/s", "100/s burst 99", "100/s burst", "1/s burst 4294967295", "-1/s", "x/s"]
        {
            assert!(Rate::parse_events(wrong).is_err(), "{wrong}");
        }
        assert!(Rate::parse_bytes("100/s").unwrap_err().contains("unit"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(per_second in 1..u32::MAX - 1, more in 0_u32..1000) {
            let rate = Rate { per_second, burst: per_second.saturating_add(more).min(u32::MAX - 1) };
            prop_assert_eq!(Rate::parse_events(&rate.show_events()), Ok(rate));
            prop_assert_eq!(Rate::parse_bytes(&rate.show_bytes()), Ok(rate));
        }
    }
}
