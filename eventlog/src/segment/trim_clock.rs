//! The time that retention goes by. One wrong second of a clock must not delete what years are meant to keep.

use std::time::Duration;

use domain::Clock;

use super::eras::Eras;
use super::position::SegmentId;

/// How far the wall clock may run ahead of the time that passed and be believed at once: an NTP client corrects less.
pub(crate) const SLACK_MS: u64 = 5 * 60 * 1000;
/// How long a larger step forward must hold until it is believed. A clock that somebody set wrong is set right within
/// hours; trimming as much later is nothing beside days of retention.
const HOLD: Duration = Duration::from_hours(6);
/// How far the believed time goes on before it is written down again. Less than the slack, so that a process that is
/// started again soon believes the clock at once; and no more than a small write a minute.
const KEEP_MS: u64 = 60 * 1000;

/// What is written down, so that a start knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Belief {
    pub(crate) unix_ms: u64,
    pub(crate) eras: Eras,
}

/// Follows the wall clock, and steps forward of it only when they last; and keeps account of what was written before
/// each step.
#[derive(Debug)]
pub(crate) struct TrimClock {
    /// What was believed at the last look, and when that was.
    believed: u64,
    looked: Duration,
    step: Option<Step>,
    eras: Eras,
    /// The eras have changed, and nobody was told to write them down.
    is_news: bool,
    /// What of it is on the disk.
    kept: Option<Belief>,
}

/// A step forward that is not believed yet.
#[derive(Debug, Clone, Copy)]
struct Step {
    since: Duration,
    /// How far ahead the wall clock was then.
    ahead: u64,
}

impl TrimClock {
    /// `kept` is what was believed last; where nobody wrote that down, `newest_unix_ms` has to do, the time of the newest
    /// record, if there are any. The clock of a machine that has just started has to earn what it says beyond. `written`
    /// is the segment that this process begins with, `last` the last one that is there.
    pub(crate) fn new(
        clock: &dyn Clock,
        kept: Option<Belief>,
        newest_unix_ms: Option<u64>,
        written: SegmentId,
        last: Option<SegmentId>,
    ) -> Self {
        let now = clock.unix_ms();
        let (believed, mut eras) = match (&kept, newest_unix_ms) {
            (Some(kept), _) => (kept.unix_ms.min(now), kept.eras.clone()),
            // Which clock any of it came under is not known.
            (None, Some(newest)) => (newest.min(now), Eras::unknown(written, newest.min(now))),
            (None, None) => (now, Eras::default()),
        };
        if let Some(kept) = kept.as_ref().filter(|kept| kept.unix_ms - believed > SLACK_MS) {
            // It may have fallen before the last process ended, and another one may go on for a while: what is last there
            // has something from before and from after.
            eras.step(between(kept.unix_ms, believed), last.unwrap_or(written), believed);
        }
        Self { believed, looked: clock.monotonic(), step: None, eras, is_news: false, kept }
    }

    /// What is to be written down, if it is time for that.
    pub(crate) fn to_keep(&self) -> Option<Belief> {
        let is_kept = self
            .kept
            .as_ref()
            .is_some_and(|kept| kept.unix_ms.abs_diff(self.believed) < KEEP_MS && kept.eras == self.eras);
        (!is_kept).then(|| Belief { unix_ms: self.believed, eras: self.eras.clone() })
    }

    /// What was written down last.
    pub(crate) fn last_kept(&self) -> Option<&Belief> {
        self.kept.as_ref()
    }

    pub(crate) fn kept(&mut self, belief: Belief) {
        self.kept = Some(belief);
    }

    /// Takes in what another process believed, which has ended. As at a start, the time since then is a step. `last` is
    /// the last segment that is there.
    pub(crate) fn inherit(&mut self, there: &Belief, last: SegmentId) {
        let mut eras = there.eras.clone();
        if there.unix_ms.abs_diff(self.believed) > SLACK_MS {
            eras.step(between(there.unix_ms, self.believed), last, self.believed);
        }
        self.eras.unite(&eras);
    }

    /// A record that says `unix_ms` is about to be written to this segment. One that is further behind than the slack
    /// came while the clock was, however short that was: nobody else looks at the clock as often as this. True if what is
    /// believed has to be written down before the record is; it is said once.
    pub(crate) fn stamped(&mut self, clock: &dyn Clock, unix_ms: u64, written: SegmentId) -> bool {
        let expected = self.expected(clock.monotonic());
        if expected.saturating_sub(unix_ms) > SLACK_MS {
            self.is_news |= self.eras.dip(between(unix_ms, expected), written, expected);
        }
        std::mem::take(&mut self.is_news)
    }

    /// What was believed last, and the time that passed since.
    fn expected(&self, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.looked);
        self.believed.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
    }

    fn set(&mut self, by_ms: i64, written: SegmentId) {
        self.eras.step(by_ms, written, self.believed);
        self.is_news = true;
    }

    /// The latest time, by the clock that is believed now, of a record of this segment that says `unix_ms`.
    pub(crate) fn latest(&self, segment: SegmentId, unix_ms: u64) -> u64 {
        self.eras.latest(segment, unix_ms)
    }

    /// Nothing is left before this segment.
    pub(crate) fn forget_before(&mut self, oldest: SegmentId) {
        self.eras.forget_before(oldest);
    }

    /// The time now, as far as it is believed. `written` is the segment that is written now.
    pub(crate) fn unix_ms(&mut self, clock: &dyn Clock, written: SegmentId) -> u64 {
        let (wall, now) = (clock.unix_ms(), clock.monotonic());
        let expected = self.expected(now);
        self.looked = now;
        let ahead = wall.saturating_sub(expected);
        if ahead <= SLACK_MS {
            self.step = None;
            // Also backwards: who believes too little deletes too little.
            self.believed = wall;
            if expected.saturating_sub(wall) > SLACK_MS {
                self.set(between(expected, wall), written);
            }
            return wall;
        }
        let step = self.step.filter(|step| step.ahead.abs_diff(ahead) <= SLACK_MS);
        let step = *self.step.insert(step.unwrap_or(Step { since: now, ahead }));
        self.believed = expected;
        if now.saturating_sub(step.since) >= HOLD {
            self.step = None;
            self.believed = wall;
            self.set(between(expected, wall), written);
        }
        self.believed
    }
}

/// From one time to another, in ms.
fn between(from_unix_ms: u64, to_unix_ms: u64) -> i64 {
    let ms = |unix_ms| i64::try_from(unix_ms).unwrap_or(i64::MAX);
    ms(to_unix_ms).saturating_sub(ms(from_unix_ms))
}

#[cfg(test)]
mod tests {
    use domain::ManualClock;

    use super::*;

    const START: u64 = 1_790_000_000_000;
    const FAR: u64 = 4_070_908_800_000;
    const MINUTE: Duration = Duration::from_mins(1);
    const WRITTEN: SegmentId = SegmentId { epoch: 3, sequence: 1 };

    fn new(clock: &ManualClock, kept_unix_ms: Option<u64>, newest_unix_ms: Option<u64>) -> TrimClock {
        let kept = kept_unix_ms.map(|unix_ms| Belief { unix_ms, eras: Eras::default() });
        TrimClock::new(clock, kept, newest_unix_ms, WRITTEN, Some(SegmentId { epoch: 2, sequence: 9 }))
    }

    #[test]
    fn a_step_forward_is_believed_when_it_has_lasted() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = new(&clock, None, None);
        clock.advance(MINUTE);
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), START + 60_000);
        clock.step_to_unix_ms(FAR);
        let hold = HOLD.as_secs() / 60;
        for minute in 0..hold {
            assert_eq!(trim.unix_ms(&*clock, WRITTEN), START + 60_000 * (1 + minute), "only the time that passed");
            clock.advance(MINUTE);
        }
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), FAR + 60_000 * hold);
    }

    #[test]
    fn a_step_that_is_taken_back_never_happened() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = new(&clock, None, None);
        clock.step_to_unix_ms(FAR);
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), START);
        clock.advance(MINUTE);
        clock.step_to_unix_ms(START + 60_000);
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), START + 60_000);
        // Another one long after begins to wait anew.
        clock.advance(HOLD * 2);
        clock.step_to_unix_ms(FAR);
        assert!(trim.unix_ms(&*clock, WRITTEN) < FAR);
    }

    #[test]
    fn steps_that_do_not_agree_are_not_one_that_lasts() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = new(&clock, None, None);
        for hour in 0..24 {
            clock.advance(MINUTE * 60);
            clock.step_to_unix_ms(FAR + hour * 100_000_000_000);
            assert!(trim.unix_ms(&*clock, WRITTEN) < FAR);
        }
    }

    #[test]
    fn drift_and_steps_of_minutes_are_followed_both_ways() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = new(&clock, None, None);
        for step in [1_000, SLACK_MS, 0] {
            clock.step_to_unix_ms(START + step);
            assert_eq!(trim.unix_ms(&*clock, WRITTEN), START + step);
        }
        clock.step_to_unix_ms(START + SLACK_MS + 1);
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), START);
        clock.step_to_unix_ms(5);
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), 5);
    }

    #[test]
    fn a_machine_that_starts_in_the_far_future_is_not_believed_either() {
        let clock = ManualClock::at_unix_ms(FAR);
        let mut trim = new(&clock, None, Some(START));
        assert_eq!(trim.unix_ms(&*clock, WRITTEN), START);
        // Nor is a record that was written in that future.
        assert_eq!(new(&clock, Some(START), Some(FAR)).unix_ms(&*clock, WRITTEN), START);
        // Records that such a machine wrote do not hold the right time up.
        clock.step_to_unix_ms(START);
        assert_eq!(new(&clock, None, Some(FAR)).unix_ms(&*clock, WRITTEN), START);
        assert_eq!(new(&clock, Some(FAR), None).unix_ms(&*clock, WRITTEN), START);
    }

    #[test]
    fn every_step_that_is_believed_ends_an_era_and_no_other_does() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = new(&clock, None, None);
        for step in [SLACK_MS, 0] {
            clock.step_to_unix_ms(START + step);
            trim.unix_ms(&*clock, WRITTEN);
        }
        clock.step_to_unix_ms(FAR);
        trim.unix_ms(&*clock, WRITTEN);
        assert_eq!(trim.latest(WRITTEN, START), START, "it is not believed yet");
        clock.advance(HOLD);
        trim.unix_ms(&*clock, WRITTEN);
        assert_eq!(trim.latest(WRITTEN, START), FAR);
        clock.step_to_unix_ms(START + 21_600_000);
        trim.unix_ms(&*clock, WRITTEN);
        assert_eq!(trim.latest(SegmentId { epoch: 2, ..WRITTEN }, START), START);
    }

    #[test]
    fn what_was_written_before_a_start_in_the_past_keeps_its_age() {
        let clock = ManualClock::at_unix_ms(7);
        let elder = SegmentId { epoch: 2, sequence: 8 };
        let last = SegmentId { epoch: 2, sequence: 9 };
        let mut trim = new(&clock, Some(START), Some(START));
        assert_eq!((trim.unix_ms(&*clock, WRITTEN), trim.latest(elder, START)), (7, START));
        let belief = trim.to_keep().unwrap();
        clock.step_to_unix_ms(START + 600_000);
        // Also where it is set right only at the next start.
        for (held, mut trim) in (1..).zip([trim, TrimClock::new(&*clock, Some(belief), None, WRITTEN, None)]) {
            trim.unix_ms(&*clock, WRITTEN);
            clock.advance(HOLD);
            let now = trim.unix_ms(&*clock, WRITTEN);
            assert!(now > START);
            assert_eq!(now - trim.latest(elder, START - 1_000_000), 1_000_000 + held * 21_600_000);
            assert_eq!(trim.latest(WRITTEN, 7 + held * 21_600_000), now);
            assert_eq!(trim.latest(last, 7 + held * 21_600_000), now, "it may have fallen before that process ended");
        }
    }

    #[test]
    fn a_record_that_is_behind_says_that_the_clock_fell() {
        let clock = ManualClock::at_unix_ms(START);
        let mut trim = new(&clock, None, None);
        assert!(!trim.stamped(&*clock, START - SLACK_MS, WRITTEN));
        assert!(trim.stamped(&*clock, 5, WRITTEN));
        assert!(!trim.stamped(&*clock, 5, WRITTEN), "it is said once");
        assert_eq!(trim.latest(WRITTEN, 5), START);
        // What a look finds has to be on the disk before what comes after it.
        clock.step_to_unix_ms(7);
        trim.unix_ms(&*clock, WRITTEN);
        assert!(trim.stamped(&*clock, 7, WRITTEN));
        assert!(!trim.stamped(&*clock, 7, WRITTEN));
    }

    #[test]
    fn without_a_belief_nothing_is_older_than_the_newest_record() {
        let clock = ManualClock::at_unix_ms(FAR);
        let trim = new(&clock, None, Some(START));
        assert_eq!(trim.latest(WRITTEN, 5), START);
        assert!(trim.to_keep().is_some_and(|belief| belief.unix_ms == START));
    }
}
