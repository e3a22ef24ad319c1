use proptest::prelude::*;

use super::watch::HOUR_MS;
use super::*;
use crate::{Bounds, Now, PairKey};

const BOUNDS: Bounds = Bounds { per_tenant: 4, total: 1_000 };
/// An hour's beginning, some years after 1970.
const EPOCH_MS: u64 = 400_000 * HOUR_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

fn key() -> PairKey {
    PairKey::of(1, 1)
}

struct Fixture {
    runaways: Runaways,
    rules: Rules,
    now: Now,
    events: Vec<(u64, Event)>,
}

fn fixture() -> Fixture {
    let now = Now { mono_ms: 7_000, unix_ms: EPOCH_MS };
    Fixture {
        runaways: Runaways::new(BOUNDS),
        rules: Rules { plan_per_minute: 300, ..Rules::default() },
        now,
        events: Vec::new(),
    }
}

impl Fixture {
    fn wait(&mut self, ms: u64) {
        self.now = Now { mono_ms: self.now.mono_ms + ms, unix_ms: self.now.unix_ms + ms };
    }

    fn attempt(&mut self) -> Verdict {
        let seen = self.runaways.attempt(key(), &self.rules, self.now);
        self.events.extend(seen.event.map(|event| (self.now.mono_ms, event)));
        seen.verdict
    }

    /// So many a minute, evenly, for so long; the verdict of the last.
    fn demand(&mut self, per_minute: u64, ms: u64) -> Verdict {
        let count = per_minute * ms / 60_000;
        let begin = self.now;
        let mut last = Verdict::Fine;
        for nth in 1..=count {
            let passed = nth * ms / count;
            self.now = Now { mono_ms: begin.mono_ms + passed, unix_ms: begin.unix_ms + passed };
            last = self.attempt();
        }
        self.now = Now { mono_ms: begin.mono_ms + ms, unix_ms: begin.unix_ms + ms };
        last
    }

    /// A week in which each hour of the day had so many, without making every attempt: by a record.
    fn with_week(mut self, per_hour: impl Fn(u32) -> u32) -> Self {
        let mut bytes = self.record_of_one();
        let hour = u32::try_from(self.now.unix_ms / HOUR_MS).unwrap();
        let mut week = baseline::Baseline::default();
        for ago in 1..=168 {
            week.set(hour - ago, Some(per_hour(hour - ago)));
        }
        bytes[11..11 + 168].copy_from_slice(week.codes());
        self.runaways = Runaways::new(BOUNDS);
        assert_eq!(self.runaways.restore(key(), &bytes, self.now), Ok(Restored::Watched));
        self
    }

    fn record_of_one(&self) -> [u8; RECORD_BYTES] {
        let one = Runaways::new(BOUNDS);
        one.attempt(key(), &self.rules, self.now);
        one.record(key(), self.now).unwrap()
    }

    fn baseline(&self) -> u32 {
        self.runaways.baseline(key(), &self.rules, self.now).unwrap()
    }

    fn restart(&mut self, down_ms: u64, step_ms: i64) {
        let bytes = self.runaways.record(key(), self.now).unwrap();
        let unix_ms = (self.now.unix_ms + down_ms).saturating_add_signed(step_ms);
        self.now = Now { mono_ms: 0, unix_ms };
        self.runaways = Runaways::new(BOUNDS);
        assert_eq!(self.runaways.restore(key(), &bytes, self.now), Ok(Restored::Watched));
    }

    fn events(&self) -> Vec<Event> {
        self.events.iter().map(|(_, event)| *event).collect()
    }
}

/// One quiet week: the floor holds, 60 a minute, trigger 600.
fn quiet() -> Fixture {
    fixture().with_week(|_| 60)
}

#[test]
fn two_samples_over_throttle_and_one_or_two_at_the_trigger_do_not() {
    // At the floor a sample is over above 200.
    for (first, second, throttled) in [(201, 201, true), (200, 201, false), (201, 200, false), (200, 200, false)] {
        let mut f = quiet();
        f.wait(13_000);
        for (count, offset) in [(first, 0), (second, 20_000)] {
            f.wait(offset);
            for _ in 0..count {
                f.attempt();
            }
        }
        let began = f.events() == [Event::Began { baseline: 60, wanted: 603, throttled_to: 120 }];
        assert_eq!(began, throttled, "{first}, {second}: {:?}", f.events);
    }
}

#[test]
fn a_calm_sample_between_two_that_are_over_begins_the_row_again() {
    let mut f = quiet();
    f.wait(13_000);
    for _ in 0..10 {
        for _ in 0..300 {
            assert_eq!(f.attempt(), Verdict::Fine);
        }
        f.wait(40_000);
    }
    assert_eq!(f.events(), []);
}

#[test]
fn a_runaway_is_throttled_then_paused_once_each_and_an_operator_resumes_it() {
    let mut f = quiet();
    let verdict = f.demand(700, 60_000);
    assert_eq!(verdict, Verdict::Throttled { per_minute: 120 });
    let rate = verdict.rate().unwrap();
    assert_eq!((rate.per_second.get(), rate.burst.get()), (2, 2));
    let (began_ms, _) = f.events[0];
    assert!(began_ms <= 7_000 + 60_000);
    let left = began_ms + 600_000 - f.now.mono_ms;
    assert!(matches!(f.demand(700, left - 200), Verdict::Throttled { .. }), "{:?}", f.events);
    let Verdict::Paused { since_unix_ms } = f.demand(700, 30_000) else { panic!("{:?}", f.events) };
    f.demand(700, DAY_MS / 4);
    assert_eq!(f.attempt(), Verdict::Paused { since_unix_ms }, "and it stays so, however long");
    f.wait(DAY_MS * 30);
    assert_eq!(f.attempt(), Verdict::Paused { since_unix_ms });
    assert_eq!(f.runaways.sweep(&f.rules, f.now, |_, event| panic!("{event:?}")), 1, "it is not forgotten either");
    let events = f.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(matches!(events[1], Event::Paused { baseline: 60, wanted } if wanted > 600));
    assert!(f.runaways.resume(key(), f.now));
    assert!(!f.runaways.resume(key(), f.now));
    assert_eq!(f.attempt(), Verdict::Fine);
}

#[test]
fn a_look_says_what_is_wanted_of_what_is_usual() {
    let mut f = quiet();
    let view = |f: &Fixture| f.runaways.view(key(), &f.rules, f.now);
    f.demand(300, 60_000);
    let fine = view(&f).unwrap();
    assert_eq!((fine.verdict, fine.baseline, fine.trigger, fine.spike), (Verdict::Fine, 60, 600, None));
    assert!((270..=330).contains(&fine.wanted), "{fine:?}");
    let verdict = f.demand(700, 60_000);
    let spike = Spike { factor: 3, until_unix_ms: f.now.unix_ms + HOUR_MS };
    f.runaways.announce(key(), spike, f.now).unwrap();
    let throttled = view(&f).unwrap();
    assert_eq!((throttled.verdict, throttled.baseline), (verdict, 60));
    assert_eq!((throttled.trigger, throttled.spike), (1_800, Some(spike)));
    assert!((650..=750).contains(&throttled.wanted), "{throttled:?}");
    let mut all = Vec::new();
    f.runaways.views(&f.rules, f.now, |key, view| all.push((key, view)));
    assert_eq!(all, [(key(), throttled)]);
    f.wait(60_000);
    assert_eq!(view(&f).unwrap().wanted, 0, "nobody wants anything now");
    assert_eq!(f.runaways.view(PairKey::of(9, 9), &f.rules, f.now), None);
}

#[test]
fn who_calms_down_is_let_go_after_a_minute_by_an_attempt_or_by_a_sweep() {
    for is_silent in [false, true] {
        let mut f = quiet();
        f.demand(700, 60_000);
        if is_silent {
            f.wait(80_000);
            let mut told = Vec::new();
            f.runaways.sweep(&f.rules, f.now, |key, event| told.push((key, event)));
            assert_eq!(told, [(key(), Event::Ended)]);
            f.runaways.sweep(&f.rules, f.now, |_, event| panic!("twice: {event:?}"));
        } else {
            // The sample in progress is not over any more, and two after it.
            assert!(matches!(f.demand(100, 52_900), Verdict::Throttled { .. }));
            assert_eq!(f.demand(100, 40_000), Verdict::Fine);
            assert_eq!(f.events.len(), 2);
            assert_eq!(f.events[1].1, Event::Ended);
        }
    }
}

#[test]
fn what_the_throttle_refuses_still_counts() {
    // Nothing tells the watch what was granted: a caller that gets a tenth of what it wants is over all the same.
    let mut f = quiet();
    f.demand(700, 60_000);
    assert!(matches!(f.demand(620, 620_000), Verdict::Paused { .. }));
}

#[test]
fn a_new_key_is_measured_by_its_plan_until_a_day_is_known() {
    let mut f = fixture();
    f.attempt();
    assert_eq!(f.baseline(), 300);
    f.rules.plan_per_minute = 10;
    assert_eq!(f.baseline(), 60, "the floor holds for a plan too");
    f.rules.plan_per_minute = 300;
    // The hour it began in is a part, then 23 that are whole.
    for _ in 0..24 {
        f.wait(HOUR_MS);
        for _ in 0..6_000 {
            f.attempt();
        }
    }
    assert_eq!(f.baseline(), 300);
    f.wait(HOUR_MS);
    f.attempt();
    assert!((95..=105).contains(&f.baseline()), "{}", f.baseline());
}

#[test]
fn an_announced_spike_is_none_until_its_end_and_not_beyond_its_factor() {
    let mut f = quiet();
    let spike = Spike { factor: 5, until_unix_ms: f.now.unix_ms + HOUR_MS };
    f.runaways.announce(key(), spike, f.now).unwrap();
    assert_eq!(f.demand(2_900, 300_000), Verdict::Fine);
    assert!(f.baseline() < 70);
    assert!(matches!(f.demand(3_200, 60_000), Verdict::Throttled { per_minute: 120 }), "over five times the trigger");
    let mut f = quiet();
    f.runaways.announce(key(), spike, f.now).unwrap();
    f.wait(HOUR_MS);
    assert!(matches!(f.demand(700, 60_000), Verdict::Throttled { .. }), "its end");
    let mut f = quiet();
    f.runaways.announce(key(), spike, f.now).unwrap();
    assert!(f.runaways.withdraw(key(), f.now));
    assert!(!f.runaways.withdraw(key(), f.now));
    assert!(matches!(f.demand(700, 60_000), Verdict::Throttled { .. }));
}

#[test]
fn an_announcement_has_bounds() {
    let f = fixture();
    let week = 168 * HOUR_MS;
    let cases = [
        (1, 1, Err(BadSpike::Factor(1))),
        (2, 1, Ok(())),
        (1_000, week, Ok(())),
        (1_001, 1, Err(BadSpike::Factor(1_001))),
        (2, 0, Err(BadSpike::Until)),
        (2, week + 1, Err(BadSpike::Until)),
    ];
    for (factor, ahead_ms, expected) in cases {
        let spike = Spike { factor, until_unix_ms: f.now.unix_ms + ahead_ms };
        assert_eq!(f.runaways.announce(key(), spike, f.now), expected, "{factor} for {ahead_ms}");
    }
    let past = Spike { factor: 2, until_unix_ms: f.now.unix_ms - 1 };
    assert_eq!(f.runaways.announce(key(), past, f.now), Err(BadSpike::Until));
    for subject in 2..6 {
        let spike = Spike { factor: 2, until_unix_ms: f.now.unix_ms + 1 };
        let got = f.runaways.announce(PairKey::of(1, subject), spike, f.now);
        assert_eq!(got, if subject < 5 { Ok(()) } else { Err(BadSpike::NoRoom) });
    }
}

#[test]
fn neither_a_runaway_nor_a_spike_is_learned() {
    for announced in [false, true] {
        let mut f = fixture().with_week(|_| 60_000);
        let usual = f.baseline();
        if announced {
            let spike = Spike { factor: 20, until_unix_ms: f.now.unix_ms + 2 * HOUR_MS };
            f.runaways.announce(key(), spike, f.now).unwrap();
        }
        f.demand(15_000, 2 * HOUR_MS);
        f.wait(HOUR_MS);
        f.attempt();
        assert!(f.baseline().abs_diff(usual) <= 10, "{} of {usual}", f.baseline());
    }
}

#[test]
fn an_hour_is_not_learned_if_a_spike_began_in_it_or_if_it_passed_in_a_pause() {
    let mut f = fixture().with_week(|_| 60_000);
    let usual = f.baseline();
    f.wait(HOUR_MS);
    f.attempt();
    // The hour is whole so far; now a spike begins.
    let spike = Spike { factor: 20, until_unix_ms: f.now.unix_ms + HOUR_MS / 2 };
    f.runaways.announce(key(), spike, f.now).unwrap();
    f.demand(60_000, HOUR_MS / 4);
    f.wait(HOUR_MS);
    f.attempt();
    assert!(f.baseline().abs_diff(usual) <= 10, "{} of {usual}", f.baseline());

    let mut f = fixture().with_week(|_| 60_000);
    assert!(matches!(f.demand(15_000, 900_000), Verdict::Paused { .. }), "{:?}", f.events);
    for _ in 0..100 {
        f.wait(HOUR_MS);
        f.runaways.sweep(&f.rules, f.now, |_, event| panic!("{event:?}"));
    }
    f.runaways.resume(key(), f.now);
    assert!(f.baseline().abs_diff(usual) <= 10, "{} of {usual}", f.baseline());
}

#[test]
fn silence_is_learned_as_nothing_and_a_clock_step_is_not() {
    let mut f = fixture().with_week(|_| 60_000);
    let usual = f.baseline();
    f.wait(96 * HOUR_MS);
    f.attempt();
    assert!(f.baseline() < usual * 50 / 100, "most of the week is idle: {}", f.baseline());
    for step_ms in [84_i64, -84, -1, 1_000, -100_000].map(|hours| hours * 3_600_000) {
        let mut f = fixture().with_week(|_| 60_000);
        f.now.unix_ms = f.now.unix_ms.saturating_add_signed(step_ms);
        f.attempt();
        f.wait(2 * HOUR_MS);
        f.attempt();
        let expected = if step_ms == 3_600_000_000 { 300 } else { usual };
        // The hours that really passed in silence, two of 168 at most, are learned.
        assert!(f.baseline().abs_diff(expected) <= expected / 40, "{step_ms}: {} of {expected}", f.baseline());
    }
}

#[test]
fn a_restart_keeps_the_hours_the_part_of_this_one_and_what_is_throttled_or_paused() {
    let mut f = fixture();
    f.attempt();
    for _ in 0..30 {
        f.wait(HOUR_MS);
        for _ in 0..600 {
            f.attempt();
            f.wait(1);
        }
        f.now.unix_ms -= f.now.unix_ms % HOUR_MS;
        f.restart(1_000, 0);
        for _ in 0..5_400 {
            f.attempt();
        }
        f.now.unix_ms -= f.now.unix_ms % HOUR_MS;
    }
    assert!((90..=110).contains(&f.baseline()), "parts before and after make an hour: {}", f.baseline());

    let mut f = quiet();
    f.demand(700, 60_000);
    f.demand(700, 300_000);
    f.restart(60_000, -7_200_000);
    assert!(matches!(f.demand(700, 200_000), Verdict::Throttled { per_minute: 120 }));
    assert!(matches!(f.demand(700, 140_000), Verdict::Paused { .. }), "the ten minutes went on");
    let paused = f.attempt();
    f.restart(DAY_MS, 0);
    assert_eq!(f.attempt(), paused);
    let spike = Spike { factor: 5, until_unix_ms: f.now.unix_ms + HOUR_MS };
    f.runaways.resume(key(), f.now);
    f.runaways.announce(key(), spike, f.now).unwrap();
    f.restart(10, 0);
    assert_eq!(f.demand(1_500, 60_000), Verdict::Fine);
}

#[test]
fn hours_that_a_restart_did_not_see_are_not_known() {
    let mut f = fixture().with_week(|_| 60_000);
    let usual = f.baseline();
    f.restart(100 * HOUR_MS, 0);
    f.attempt();
    assert!(f.baseline().abs_diff(usual) <= usual / 100, "the other 68 hours");
    f.restart(168 * HOUR_MS, 0);
    f.attempt();
    assert_eq!(f.baseline(), 300, "nothing is known: the plan");
}

#[test]
fn a_tenants_keys_are_bounded_and_the_longest_silent_makes_room() {
    let f = fixture();
    let attempt = |tenant, subject, ms| {
        let now = Now { mono_ms: ms, unix_ms: EPOCH_MS + ms };
        f.runaways.attempt(PairKey::of(tenant, subject), &f.rules, now);
    };
    attempt(2, 1, 0);
    for (nth, subject) in [1, 2, 3, 4, 1, 5].into_iter().enumerate() {
        attempt(1, subject, nth as u64);
    }
    let is_watched = |subject| f.runaways.baseline(PairKey::of(1, subject), &f.rules, f.now).is_some();
    assert_eq!([1, 2, 3, 4, 5].map(is_watched), [true, false, true, true, true]);
    assert_eq!(f.runaways.tracked(), 5);
    let now = |ms| Now { mono_ms: ms, unix_ms: EPOCH_MS + ms };
    assert_eq!(f.runaways.sweep(&f.rules, now(168 * HOUR_MS - 1), |_, _| {}), 5);
    assert_eq!(f.runaways.sweep(&f.rules, now(168 * HOUR_MS), |_, _| {}), 4, "a week of silence");
    assert_eq!(f.runaways.unwatched(), 0);
}

#[test]
fn records_are_small_and_others_bytes_are_refused() {
    let f = quiet();
    let good = f.runaways.record(key(), f.now).unwrap();
    const { assert!(RECORD_BYTES <= 400) };
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Runaways::new(BOUNDS).restore(key(), &bytes, f.now)
    };
    assert_eq!(with(0, 2), Err(BadRecord::Version(2)));
    assert_eq!(with(1, 3), Err(BadRecord::State(3)));
    assert_eq!(with(1, 1), Err(BadRecord::NoBaseline));
    assert_eq!(with(2, 2), Err(BadRecord::Flags(2)));
    assert_eq!(f.runaways.restore(key(), &good[1..], f.now), Err(BadRecord::Length(RECORD_BYTES - 1)));
    assert_eq!(f.runaways.restore(key(), &good, f.now), Ok(Restored::Known));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_refused_or_a_key_that_works(
        body in proptest::collection::vec(any::<u8>(), RECORD_BYTES),
        state in 0..3_u8,
        unix_ms in prop_oneof![any::<u64>(), Just(EPOCH_MS)],
    ) {
        let mut bytes = body;
        (bytes[0], bytes[1], bytes[2]) = (1, state, bytes[2] & 1);
        let mut f = fixture();
        f.now.unix_ms = unix_ms.min(u64::MAX / 2);
        let got = f.runaways.restore(key(), &bytes, f.now);
        prop_assert!(got == Ok(Restored::Watched) || got == Err(BadRecord::NoBaseline));
        f.runaways.resume(key(), f.now);
        f.attempt();
        f.wait(200 * HOUR_MS);
        f.attempt();
        prop_assert!(f.baseline() >= 60);
    }

    /// Random weeks, random moments, random fractions of a sample: ten times and a little more of what is usual.
    #[test]
    fn a_runaway_of_ten_times_is_throttled_within_a_minute_on_every_baseline(
        day in proptest::collection::vec(0..6_000_u32, 24), phase_ms in 0..DAY_MS, over in 31..60_u64,
    ) {
        let mut f = fixture();
        f.wait(phase_ms);
        let mut f = f.with_week(|hour| day[hour as usize % 24]);
        let usual = f.baseline();
        let begin_ms = f.now.mono_ms;
        // The hour may end meanwhile, and another's median hold.
        let both = u64::from(usual.max({
            let next = Now { unix_ms: f.now.unix_ms + 60_000, ..f.now };
            let mut other = fixture();
            other.now = next;
            other.with_week(|hour| day[hour as usize % 24]).baseline()
        }));
        // A sample has whole attempts: three more a minute, at least, than ten times.
        let verdict = f.demand(both * 10 + over.max(both / 5), 60_000);
        prop_assert!(matches!(verdict, Verdict::Throttled { .. }), "{:?} at {}", f.events, usual);
        prop_assert!(f.events[0].0 <= begin_ms + 60_000);
        prop_assert_eq!(f.events.len(), 1);

        // The same, announced, is left alone.
        let mut f = fixture();
        f.wait(phase_ms);
        let mut f = f.with_week(|hour| day[hour as usize % 24]);
        f.runaways.announce(key(), Spike { factor: 2, until_unix_ms: f.now.unix_ms + HOUR_MS }, f.now).unwrap();
        f.demand(u64::from(usual) * 10 + over, 60_000);
        prop_assert_eq!(f.events(), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Up to half as much again each day, for ten days, is growth and no runaway.
    #[test]
    fn slow_growth_is_left_alone(first in 60..100_u32, growth_percent in 100..=150_u32) {
        let mut f = fixture();
        f.attempt();
        let mut per_minute = first;
        for _ in 0..10 {
            for _ in 0..24 {
                f.wait(HOUR_MS - 60_000);
                prop_assert_eq!(f.demand(u64::from(per_minute), 60_000), Verdict::Fine);
                // That was one minute of the hour; the other 59, which are the same, are written into the record.
                let mut bytes = f.runaways.record(key(), f.now).unwrap();
                bytes[7..11].copy_from_slice(&(per_minute * 60).to_le_bytes());
                f.runaways = Runaways::new(BOUNDS);
                f.now.mono_ms = 0;
                f.runaways.restore(key(), &bytes, f.now).unwrap();
            }
            per_minute = per_minute * growth_percent / 100;
        }
        prop_assert_eq!(f.events(), []);
        // An hour is kept within five percent.
        prop_assert!(f.baseline() * 100 >= first * 95, "it was learned: {}", f.baseline());
    }
}
