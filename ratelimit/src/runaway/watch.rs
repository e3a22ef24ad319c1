//! One key that is watched: its samples, its hours, and whether it is throttled or paused.

use super::baseline::Baseline;
use super::table::{Spike, View};
use crate::moment::Now;
use crate::rate::Rate;

/// When a key has run away. They come with each attempt, so that a reload resets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Stands in for the baseline before a day of the key is known, per minute: the plan's.
    pub plan_per_minute: u32,
    /// No baseline is taken to be lower, per minute. At least one.
    pub floor_per_minute: u32,
    /// Over this many times its baseline it has run away. At least two.
    pub trigger_factor: u16,
    /// It is throttled to this many times its baseline. At least one.
    pub throttle_factor: u16,
    /// Throttled for so long and still over the trigger, it is paused; milliseconds.
    pub pause_after_ms: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            plan_per_minute: 6_000,
            floor_per_minute: 60,
            trigger_factor: 10,
            throttle_factor: 2,
            pause_after_ms: 600_000,
        }
    }
}

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// At most so many a minute may pass. Asked for above it is answered like any limit.
    Throttled {
        per_minute: u32,
    },
    /// None pass until an operator resumes it.
    Paused {
        since_unix_ms: u64,
    },
}

impl Verdict {
    /// The rate to enforce, if there is one: rounded down to whole attempts a second but never to none, and no burst
    /// beyond one second's worth.
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::Fine | Self::Paused { .. } => None,
            Self::Throttled { per_minute } => {
                let per_second = (per_minute / 60).max(1);
                Rate::new(per_second, per_second)
            }
        }
    }
}

/// What is worth a line in the log, and a notice to the tenant. Each comes once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is throttled from here on. Numbers per minute; `wanted` is the sample's pace.
    Began { baseline: u32, wanted: u32, throttled_to: u32 },
    /// It wants no more than the trigger for a minute, and is let go.
    Ended,
    /// It is paused from here on.
    Paused { baseline: u32, wanted: u32 },
}

/// Length of a sample.
pub(crate) const SAMPLE_MS: u64 = 20_000;
const SAMPLES_A_MINUTE: u32 = 3;
/// Samples over in a row that throttle.
const OVER_TO_BEGIN: u8 = 2;
/// Samples in a row that are not over, which let go: a minute.
const CALM_TO_END: u8 = 3;
pub(crate) const HOUR_MS: u64 = 3_600_000;
/// A key is forgotten after so much silence: then nothing is left of its week.
pub(crate) const WEEK_MS: u64 = 168 * HOUR_MS;
/// How far the two clocks may differ over a gap before the wall clock has stepped: a minute, and slewing is slower.
const STEP_MS: u64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Fine,
    /// `pause_at_ms` is a moment of the monotonic clock, `baseline` what it was when it began: what was said to the
    /// tenant then holds.
    Throttled {
        pause_at_ms: u64,
        baseline: u32,
    },
    Paused {
        since_unix_ms: u64,
        baseline: u32,
    },
}

/// Everything that is known of one key.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) hours: Baseline,
    /// The hour in progress, since 1970, what it had so far, and whether that may be learned.
    pub(crate) hour: u32,
    pub(crate) hour_count: u32,
    pub(crate) is_hour_learned: bool,
    pub(crate) state: State,
    pub(crate) spike: Option<Spike>,
    /// What is usual in this hour; worked out when the hour begins.
    usual: Option<u32>,
    /// The sample in progress and what it had.
    sample: u64,
    sample_count: u32,
    /// What the sample right before it had; for people.
    sample_before: u32,
    /// Samples in a row that were over, before the one in progress.
    over: u8,
    /// Samples in a row that were not.
    calm: u8,
    /// The latest attempt.
    pub(crate) seen: Now,
}

impl Watch {
    /// A key that nobody knows.
    pub(crate) fn new(now: Now) -> Self {
        Self::begin(Baseline::default(), now)
    }

    /// One with a past. The hour it begins in is seen in part only: not learned.
    pub(crate) fn begin(hours: Baseline, now: Now) -> Self {
        let hour = hour_of(now);
        Self {
            usual: hours.per_minute(hour),
            hours,
            hour,
            hour_count: 0,
            is_hour_learned: false,
            state: State::Fine,
            spike: None,
            sample: now.mono_ms / SAMPLE_MS,
            sample_count: 0,
            sample_before: 0,
            over: 0,
            calm: 0,
            seen: now,
        }
    }

    /// Counts an attempt that was wanted.
    pub(crate) fn attempt(&mut self, rules: &Rules, now: Now) -> Option<Event> {
        let event = self.catch_up(rules, now);
        self.is_hour_learned &= !self.has_stepped(now);
        self.seen = Now { mono_ms: self.seen.mono_ms.max(now.mono_ms), unix_ms: now.unix_ms };
        self.hour_count = self.hour_count.saturating_add(1);
        self.sample_count = self.sample_count.saturating_add(1);
        self.is_hour_learned &= self.is_plain(now);
        // No two in one step: who was just let go had three calm samples, and no row of two.
        event.or_else(|| self.judge(rules, now))
    }

    pub(crate) fn verdict(&self, rules: &Rules) -> Verdict {
        match self.state {
            State::Fine => Verdict::Fine,
            State::Throttled { baseline, .. } => Verdict::Throttled { per_minute: throttled_to(rules, baseline) },
            State::Paused { since_unix_ms, .. } => Verdict::Paused { since_unix_ms },
        }
    }

    /// Lets time pass without an attempt.
    pub(crate) fn catch_up(&mut self, rules: &Rules, now: Now) -> Option<Event> {
        self.roll_hours(now);
        let event = self.roll_samples(rules, now);
        self.spike = self.spike.filter(|spike| now.unix_ms < spike.until_unix_ms);
        event
    }

    /// An operator's word: fine from here on, with nothing held against it. Whether it was not.
    pub(crate) fn resume(&mut self) -> bool {
        let was = self.state != State::Fine;
        self.state = State::Fine;
        self.over = 0;
        self.calm = 0;
        self.sample_count = 0;
        was
    }

    /// Neither throttled nor paused nor in an announced spike: what it does now is what it usually does.
    fn is_plain(&self, now: Now) -> bool {
        self.state == State::Fine && self.spike_factor(now) == 1
    }

    /// The baseline, per minute.
    pub(crate) fn baseline(&self, rules: &Rules) -> u32 {
        self.usual.unwrap_or(rules.plan_per_minute).max(rules.floor_per_minute.max(1))
    }

    fn spike_factor(&self, now: Now) -> u16 {
        self.spike.filter(|spike| now.unix_ms < spike.until_unix_ms).map_or(1, |spike| spike.factor.max(1))
    }

    /// Above this a sample is over, in attempts a minute.
    fn trigger(&self, rules: &Rules, now: Now) -> u64 {
        let baseline = match self.state {
            State::Fine => self.baseline(rules),
            State::Throttled { baseline, .. } | State::Paused { baseline, .. } => baseline,
        };
        u64::from(baseline) * u64::from(rules.trigger_factor.max(2)) * u64::from(self.spike_factor(now))
    }

    pub(crate) fn view(&self, rules: &Rules, now: Now) -> View {
        let baseline = match self.state {
            State::Fine => self.baseline(rules),
            State::Throttled { baseline, .. } | State::Paused { baseline, .. } => baseline,
        };
        // Nothing rolls samples while nobody attempts anything.
        let count = match (now.mono_ms / SAMPLE_MS).saturating_sub(self.sample) {
            0 => self.sample_count.max(self.sample_before),
            1 => self.sample_count,
            _ => 0,
        };
        View {
            verdict: self.verdict(rules),
            baseline,
            trigger: self.trigger(rules, now),
            wanted: count.saturating_mul(SAMPLES_A_MINUTE),
            spike: self.spike.filter(|spike| now.unix_ms < spike.until_unix_ms),
        }
    }

    fn wanted(&self) -> u32 {
        self.sample_count.saturating_mul(SAMPLES_A_MINUTE)
    }

    fn is_over(&self, rules: &Rules, now: Now) -> bool {
        u64::from(self.wanted()) > self.trigger(rules, now)
    }

    /// What the sample in progress shows already.
    fn judge(&mut self, rules: &Rules, now: Now) -> Option<Event> {
        if !self.is_over(rules, now) {
            return None;
        }
        match self.state {
            State::Fine if self.over + 1 >= OVER_TO_BEGIN => {
                let baseline = self.baseline(rules);
                let pause_at_ms = now.mono_ms.saturating_add(u64::from(rules.pause_after_ms));
                self.state = State::Throttled { pause_at_ms, baseline };
                self.is_hour_learned = false;
                let throttled_to = throttled_to(rules, baseline);
                Some(Event::Began { baseline, wanted: self.wanted(), throttled_to })
            }
            State::Throttled { pause_at_ms, baseline } if now.mono_ms >= pause_at_ms => {
                self.state = State::Paused { since_unix_ms: now.unix_ms, baseline };
                Some(Event::Paused { baseline, wanted: self.wanted() })
            }
            State::Fine | State::Throttled { .. } | State::Paused { .. } => None,
        }
    }

    fn roll_samples(&mut self, rules: &Rules, now: Now) -> Option<Event> {
        let sample = now.mono_ms / SAMPLE_MS;
        if sample <= self.sample {
            return None;
        }
        let skipped = sample - self.sample - 1;
        if self.is_over(rules, now) {
            self.over = self.over.saturating_add(1);
            self.calm = 0;
        } else {
            self.over = 0;
            self.calm = self.calm.saturating_add(1);
        }
        if skipped > 0 {
            self.over = 0;
            self.calm = self.calm.saturating_add(u8::try_from(skipped).unwrap_or(u8::MAX));
        }
        self.sample = sample;
        self.sample_before = if skipped == 0 { self.sample_count } else { 0 };
        self.sample_count = 0;
        if matches!(self.state, State::Throttled { .. }) && self.calm >= CALM_TO_END {
            self.state = State::Fine;
            return Some(Event::Ended);
        }
        None
    }

    /// Whether the wall clock has not gone along with the monotonic one since the latest attempt.
    fn has_stepped(&self, now: Now) -> bool {
        let passed_ms = now.mono_ms.saturating_sub(self.seen.mono_ms);
        now.unix_ms.abs_diff(self.seen.unix_ms.saturating_add(passed_ms)) > STEP_MS
    }

    fn roll_hours(&mut self, now: Now) {
        let hour = hour_of(now);
        if hour == self.hour || hour + 1 == self.hour {
            return;
        }
        let is_step = hour < self.hour || self.has_stepped(now);
        let learned = (self.is_hour_learned && !is_step).then_some(self.hour_count);
        self.hours.set(self.hour, learned);
        let is_idle_known = !is_step && self.is_plain(now);
        if hour > self.hour {
            let last = hour.min(self.hour.saturating_add(168));
            for between in self.hour + 1..last {
                self.hours.set(between, is_idle_known.then_some(0));
            }
        }
        // After a step the hour began somewhere in the middle.
        self.is_hour_learned = !is_step && self.is_plain(now);
        self.hour = hour;
        self.hour_count = 0;
        self.usual = self.hours.per_minute(hour);
    }
}

fn throttled_to(rules: &Rules, baseline: u32) -> u32 {
    baseline.saturating_mul(u32::from(rules.throttle_factor.max(1)))
}

/// Hours since 1970: 32 bits of them are enough for any clock that is not broken, and for a broken one it is the last.
pub(crate) fn hour_of(now: Now) -> u32 {
    u32::try_from(now.unix_ms / HOUR_MS).unwrap_or(u32::MAX - 1)
}
