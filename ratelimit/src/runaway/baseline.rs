//! The last seven days of a key, one byte an hour.
//!
//! A count is kept as eight times its binary logarithm, so each step is 9 % and a byte reaches four thousand million: the
//! question is whether something is ten times as large as usual, which 5 % either way does not change.

/// Hours of a week.
pub const HOURS: usize = 168;

/// Hours that must be known before a baseline is worth more than the plan's default.
pub const WARM_HOURS: usize = 24;

const HOURS_A_DAY: usize = 24;
const MINUTES_AN_HOUR: u64 = 60;

/// The byte of an hour that is not known.
pub(crate) const UNKNOWN: u8 = u8::MAX;

/// Attempts per hour of the last 168, by the hour's number since 1970 modulo 168.
#[derive(Clone, PartialEq, Eq)]
pub struct Baseline {
    codes: [u8; HOURS],
}

impl std::fmt::Debug for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Baseline({} hours known)", self.known())
    }
}

impl Default for Baseline {
    fn default() -> Self {
        Self { codes: [UNKNOWN; HOURS] }
    }
}

impl Baseline {
    pub(crate) fn from_codes(codes: [u8; HOURS]) -> Self {
        Self { codes }
    }

    pub(crate) fn codes(&self) -> &[u8; HOURS] {
        &self.codes
    }

    /// Sets what an hour had; `None`: it is not known.
    pub fn set(&mut self, hour: u32, attempts: Option<u32>) {
        self.codes[slot(hour)] = attempts.map_or(UNKNOWN, encode);
    }

    /// Hours that are known.
    pub fn known(&self) -> usize {
        self.codes.iter().filter(|code| **code != UNKNOWN).count()
    }

    /// What is usual in `hour`, per minute: the larger of the median of this hour of the day and the mean of all that is
    /// known. `None` before a day is known. While an hour is in progress its slot still has what it had a week ago.
    pub fn per_minute(&self, hour: u32) -> Option<u32> {
        let known = self.codes.iter().filter(|code| **code != UNKNOWN);
        let (count, sum) = known.fold((0_u64, 0_u64), |(count, sum), code| (count + 1, sum + decode(*code)));
        if count < WARM_HOURS as u64 {
            return None;
        }
        let usual = (sum / count).max(self.median_of_day(slot(hour))) / MINUTES_AN_HOUR;
        Some(u32::try_from(usual).unwrap_or(u32::MAX))
    }

    /// The median of the same hour on seven days; zero where none is known. Of an even number, the lower of the two in
    /// the middle: an exceptional day is no habit.
    fn median_of_day(&self, slot: usize) -> u64 {
        let mut same: [u8; HOURS / HOURS_A_DAY] =
            std::array::from_fn(|day| self.codes[(slot + day * HOURS_A_DAY) % HOURS]);
        let count = same.iter().filter(|code| **code != UNKNOWN).count();
        // Unknown ones sort behind: what is known is in front.
        same.sort_unstable();
        if count == 0 { 0 } else { decode(same[(count - 1) / 2]) }
    }
}

fn slot(hour: u32) -> usize {
    hour as usize % HOURS
}

/// The nearest step on the scale of `2^(1/8)`; zero is zero.
fn encode(attempts: u32) -> u8 {
    if attempts == 0 {
        return 0;
    }
    let code = (f64::from(attempts).log2() * 8.0).round() + 1.0;
    // 1 to 257 before the cut, whole: 254 is 3.3 thousand million an hour.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to 1..=254 just before")]
    let code = code.clamp(1.0, f64::from(UNKNOWN - 1)) as u8;
    code
}

fn decode(code: u8) -> u64 {
    if code == 0 {
        return 0;
    }
    let value = (f64::from(code - 1) / 8.0).exp2().round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 2^32")]
    let value = value as u64;
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_count_comes_back_within_five_percent(attempts in 1..3_000_000_000_u32) {
            let back = decode(encode(attempts));
            let off = back.abs_diff(u64::from(attempts));
            prop_assert!(off * 100 <= u64::from(attempts) * 5, "{attempts} came back as {back}");
        }
    }

    #[test]
    fn the_ends_of_the_scale_are_kept_apart_from_unknown() {
        for (attempts, code) in [(0, 0), (1, 1), (2, 9), (3_000_000_000, 253), (u32::MAX, 254)] {
            assert_eq!(encode(attempts), code, "{attempts}");
        }
        let mut baseline = Baseline::default();
        baseline.set(5, Some(u32::MAX));
        assert_eq!(baseline.known(), 1);
        baseline.set(5 + 168, None);
        assert_eq!(baseline.known(), 0);
    }

    #[test]
    fn nothing_is_usual_before_a_day_is_known() {
        let mut baseline = Baseline::default();
        for hour in 0..23 {
            baseline.set(hour, Some(6_000));
        }
        assert_eq!(baseline.per_minute(23), None);
        baseline.set(23, Some(6_000));
        let usual = baseline.per_minute(24).unwrap();
        assert!((96..=104).contains(&usual), "{usual}");
    }

    #[test]
    fn a_busy_hour_of_every_day_is_usual_in_that_hour_alone() {
        let mut baseline = Baseline::default();
        for hour in 0..168 {
            baseline.set(hour, Some(if hour % 24 == 3 { 600_000 } else { 600 }));
        }
        let at_three = baseline.per_minute(168 + 3).unwrap();
        assert!((9_500..=10_500).contains(&at_three), "{at_three}");
        let at_four = baseline.per_minute(168 + 4).unwrap();
        assert!((380..=460).contains(&at_four), "the mean: {at_four}");
    }

    #[test]
    fn one_exceptional_day_is_no_habit() {
        let mut baseline = Baseline::default();
        for hour in 0..168 {
            baseline.set(hour, Some(600));
        }
        let usual = [0, 1, 2, 3].map(|day| {
            baseline.set(3 + day * 24, Some(600_000));
            baseline.per_minute(168 + 3).unwrap()
        });
        assert!(usual[0] < 80 && usual[2] < 250, "up to three of seven only the mean has them: {usual:?}");
        assert!(usual[3] > 9_000, "four of seven are a habit: {usual:?}");
    }
}
