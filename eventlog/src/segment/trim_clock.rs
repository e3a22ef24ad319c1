//! The time that retention goes by. One wrong second of a clock must not delete what years are meant to keep.

use std::time::Duration;

use domain::Clock;

/// How far the wall clock may run ahead of the time that passed and be believed at once: an NTP client corrects less.
pub(crate) const SLACK_MS: u64 = 5 * 60 * 1000;
/// How long a larger step forward must hold until it is believed. A clock that somebody set wrong is set right within
/// hours; trimming as much later is nothing beside days of retention.
const HOLD: Duration = Duration::from_hours(6);
/// How far the believed time goes on before it is written down again. Less than the slack, so that a process that is
/// started again soon believes the clock at once; and no more than a small write a minute.
const KEEP_MS: u64 = 60 * 1000;

/// Follows the wall clock, and steps forward of it only when they last.
#[derive(Debug)]
pub(crate) struct TrimClock {
    /// What was believed at the last look, and when that was.
    believed: u64,
    looked: Duration,
    step: Option<Step>,
    /// What of it is on the disk.
    kept: Option<u64>,
}

/// A step forward that is not believed yet.
#[derive(Debug, Clone, Copy)]
struct Step {
    since: Duration,
    /// How far ahead the wall clock was then.
    ahead: u64,
}

impl TrimClock {
    /// `kept_unix_ms` is what was believed last; where nobody wrote that down, `newest_unix_ms` has to do, the time of the
    /// newest record, if there are any. The clock of a machine that has just started has to earn what it says beyond.
    pub(crate) fn new(clock: &dyn Clock, kept_unix_ms: Option<u64>, newest_unix_ms: Option<u64>) -> Self {
        let now = clock.unix_ms();
        let before = kept_unix_ms.or(newest_unix_ms);
        let believed = before.map_or(now, |before| before.min(now));
        Self { believed, looked: clock.monotonic(), step: None, kept: kept_unix_ms }
    }

    /// What is to be written down, if it is time for that.
    pub(crate) fn to_keep(&self) -> Option<u64> {
        let is_near = self.kept.is_some_and(|kept| kept.abs_diff(self.believed) < KEEP_MS);
        (!is_near).then_some(self.believed)
    }

    pub(crate) fn kept(&mut self, unix_ms: u64) {
        self.kept = Some(unix_ms);
    }

    /// The time now, as far as it is believed.
    pub(crate) fn unix_ms(&mut self, clock: &dyn Clock) -> u64 {
        let (wall, now) = (clock.unix_ms(), clock.monotonic());
        let passed = now.saturating_sub(self.looked);
        let expected = self.believed.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
        self.looked = now;
        let ahead = wall.saturating_sub(expected);
        if ahead <= SLACK_MS {
            self.step = None;
            // Also backwards: who believes too little deletes too little.
            self.believed = wall;
            return wall;
        }
        let step = self.step.filter(|step| step.ahead.abs_diff(ahead) <= SLACK_MS);
        let step = *self.step.insert(step.unwrap_or(Step { since: now, ahead }));
        self.believed = expected;
        if now.saturating_sub(step.since) >= HOLD {
            self.step = None;
            self.believed = wall;
        }
        self.believed
    }
}

#[cfg(test)]
mod tests {
    use domain::ManualClock;

    use super::*;

    const START: u64 = 1_790_000_000_000;
    const FAR: u64 = 4_070_908_800_000;
    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_step_forward_is_believed_when_it_has_lasted() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = TrimClock::new(&*clock, None, None);
        clock.advance(MINUTE);
        assert_eq!(trim.unix_ms(&*clock), START + 60_000);
        clock.step_to_unix_ms(FAR);
        let hold = HOLD.as_secs() / 60;
        for minute in 0..hold {
            assert_eq!(trim.unix_ms(&*clock), START + 60_000 * (1 + minute), "only the time that passed");
            clock.advance(MINUTE);
        }
        assert_eq!(trim.unix_ms(&*clock), FAR + 60_000 * hold);
    }

    #[test]
    fn a_step_that_is_taken_back_never_happened() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = TrimClock::new(&*clock, None, None);
        clock.step_to_unix_ms(FAR);
        assert_eq!(trim.unix_ms(&*clock), START);
        clock.advance(MINUTE);
        clock.step_to_unix_ms(START + 60_000);
        assert_eq!(trim.unix_ms(&*clock), START + 60_000);
        // Another one long after begins to wait anew.
        clock.advance(HOLD * 2);
        clock.step_to_unix_ms(FAR);
        assert!(trim.unix_ms(&*clock) < FAR);
    }

    #[test]
    fn steps_that_do_not_agree_are_not_one_that_lasts() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = TrimClock::new(&*clock, None, None);
        for hour in 0..24 {
            clock.advance(MINUTE * 60);
            clock.step_to_unix_ms(FAR + hour * 100_000_000_000);
            assert!(trim.unix_ms(&*clock) < FAR);
        }
    }

    #[test]
    fn drift_and_steps_of_minutes_are_followed_both_ways() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = TrimClock::new(&*clock, None, None);
        for step in [1_000, SLACK_MS, 0] {
            clock.step_to_unix_ms(START + step);
            assert_eq!(trim.unix_ms(&*clock), START + step);
        }
        clock.step_to_unix_ms(START + SLACK_MS + 1);
        assert_eq!(trim.unix_ms(&*clock), START);
        clock.step_to_unix_ms(5);
        assert_eq!(trim.unix_ms(&*clock), 5);
    }

    #[test]
    fn a_machine_that_starts_in_the_far_future_is_not_believed_either() {
        let clock = ManualClock::at_unix_ms(FAR);
        let mut trim = TrimClock::new(&*clock, None, Some(START));
        assert_eq!(trim.unix_ms(&*clock), START);
        // Nor is a record that was written in that future.
        assert_eq!(TrimClock::new(&*clock, Some(START), Some(FAR)).unix_ms(&*clock), START);
        // Records that such a machine wrote do not hold the right time up.
        clock.step_to_unix_ms(START);
        assert_eq!(TrimClock::new(&*clock, None, Some(FAR)).unix_ms(&*clock), START);
        assert_eq!(TrimClock::new(&*clock, Some(FAR), None).unix_ms(&*clock), START);
    }
}
