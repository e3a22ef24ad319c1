use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { per_tenant: 4, total: 1_000 };
const KEY: (u64, u64) = (1, 1);

fn at(mono_ms: u64) -> Now {
    Now { mono_ms, unix_ms: 0 }
}

fn key() -> PairKey {
    PairKey::of(KEY.0, KEY.1)
}

fn retry(budgets: &RetryBudgets, ms: u64) -> Result<u32, Exhausted> {
    budgets.admit(key(), Budget::default(), Attempt::Retry, at(ms))
}

fn first(budgets: &RetryBudgets, ms: u64) -> u32 {
    budgets.admit(key(), Budget::default(), Attempt::First, at(ms)).unwrap()
}

#[test]
fn ten_at_once_then_one_every_six_seconds() {
    let budgets = RetryBudgets::new(BOUNDS);
    for left in (0..10).rev() {
        assert_eq!(retry(&budgets, 0), Ok(left));
    }
    assert_eq!(retry(&budgets, 0), Err(Exhausted { retry_after_ms: 6_000 }));
    assert_eq!(retry(&budgets, 5_999), Err(Exhausted { retry_after_ms: 1 }));
    assert_eq!(retry(&budgets, 6_000), Ok(0));
    assert_eq!(retry(&budgets, 6_000), Err(Exhausted { retry_after_ms: 6_000 }));
}

#[test]
fn ten_first_attempts_earn_one_retry_up_to_the_most() {
    let budgets = RetryBudgets::new(BOUNDS);
    for _ in 0..10 {
        retry(&budgets, 0).unwrap();
    }
    for _ in 0..9 {
        assert_eq!(first(&budgets, 0), 0);
    }
    assert!(retry(&budgets, 0).is_err());
    assert_eq!(first(&budgets, 0), 1);
    assert_eq!(retry(&budgets, 0), Ok(0));
    for _ in 0..5_000 {
        first(&budgets, 0);
    }
    assert_eq!(budgets.remaining(key(), Budget::default(), at(0)), 100);
}

#[test]
fn time_gives_back_up_to_the_floor_and_takes_nothing_that_was_earned() {
    let budgets = RetryBudgets::new(BOUNDS);
    retry(&budgets, 0).unwrap();
    let left = |ms| budgets.remaining(key(), Budget::default(), at(ms));
    assert_eq!([left(5_999), left(6_000), left(59_999)], [9, 10, 10]);
    for _ in 0..200 {
        first(&budgets, 59_999);
    }
    retry(&budgets, 59_999).unwrap();
    assert_eq!([left(60_000), left(119_998)], [29, 29]);
}

#[test]
fn a_park_spends_nothing_and_earns_nothing() {
    let budgets = RetryBudgets::new(BOUNDS);
    retry(&budgets, 0).unwrap();
    for _ in 0..1_000 {
        assert_eq!(budgets.admit(key(), Budget::default(), Attempt::AfterPark, at(0)), Ok(9));
    }
}

#[test]
fn nothing_is_kept_of_a_pair_that_does_not_retry_and_of_one_a_minute_after() {
    let budgets = RetryBudgets::new(BOUNDS);
    assert_eq!(first(&budgets, 0), 10);
    assert_eq!(budgets.remaining(key(), Budget::default(), at(0)), 10);
    assert_eq!(budgets.tracked(), 0);
    retry(&budgets, 0).unwrap();
    assert_eq!(budgets.sweep(at(59_999)), 1);
    assert_eq!(budgets.sweep(at(60_000)), 0);
}

#[test]
fn without_room_there_is_no_retry_and_nobody_elses_is_touched() {
    let budgets = RetryBudgets::new(BOUNDS);
    let budget = Budget::default();
    let ask = |tenant, subject, ms| budgets.admit(PairKey::of(tenant, subject), budget, Attempt::Retry, at(ms));
    for subject in 0..4 {
        assert_eq!(ask(1, subject, 0), Ok(9));
    }
    assert_eq!(ask(1, 4, 0), Err(Exhausted { retry_after_ms: 60_000 }));
    assert_eq!(ask(2, 4, 0), Ok(9));
    assert_eq!(ask(1, 0, 0), Ok(8));
    assert_eq!(ask(1, 4, 60_000), Ok(9), "room comes back");
}

#[test]
fn a_budget_of_nothing_gives_nothing() {
    let budgets = RetryBudgets::new(BOUNDS);
    let none = Budget { per_mille: 0, floor: 0, tokens_max: 0 };
    for ms in [0, 60_000, 600_000] {
        assert_eq!(budgets.admit(key(), none, Attempt::Retry, at(ms)), Err(Exhausted { retry_after_ms: 60_000 }));
        assert_eq!(budgets.admit(key(), none, Attempt::First, at(ms)), Ok(0));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Attempt(Attempt),
    Wait(u64),
    Sweep,
    Flood(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Attempt(Attempt::First)),
        5 => Just(Step::Attempt(Attempt::Retry)),
        1 => Just(Step::Attempt(Attempt::AfterPark)),
        2 => (0..3_000_u64).prop_map(Step::Wait),
        1 => (0..90_000_u64).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
        1 => (2..20_u64).prop_map(Step::Flood),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Over every span, not only from the start: the promise is about any.
    #[test]
    fn no_span_has_more_retries_than_the_budget_says(
        steps in proptest::collection::vec(step(), 0..150),
        floor in 0..30_u16,
        per_mille in 0..=1_000_u16,
    ) {
        let budget = Budget { per_mille, floor, tokens_max: floor + 5 };
        let budgets = RetryBudgets::new(BOUNDS);
        let mut now_ms = 0;
        // Time, first attempts and retries so far, at each granted retry.
        let (mut firsts, mut granted) = (0_u64, Vec::new());
        for step in steps {
            match step {
                Step::Wait(ms) => now_ms += ms,
                Step::Sweep => { budgets.sweep(at(now_ms)); }
                Step::Flood(subject) => {
                    let flood = PairKey::of(KEY.0, subject);
                    prop_assert!(budgets.admit(flood, budget, Attempt::Retry, at(now_ms)).map_or(0, |left| left) <= 35);
                }
                Step::Attempt(attempt) => {
                    let before = budgets.remaining(key(), budget, at(now_ms));
                    let got = budgets.admit(key(), budget, attempt, at(now_ms));
                    match attempt {
                        Attempt::First => firsts += 1,
                        Attempt::AfterPark => prop_assert_eq!(got, Ok(before)),
                        Attempt::Retry if got.is_ok() => {
                            prop_assert_eq!(got, Ok(before - 1));
                            granted.push((now_ms, firsts));
                        }
                        Attempt::Retry => prop_assert!(got.unwrap_err().retry_after_ms > 0),
                    }
                }
            }
        }
        for (from, (begin_ms, firsts_then)) in granted.iter().enumerate() {
            for (to, (end_ms, firsts_now)) in granted.iter().enumerate().skip(from) {
                let retries = (to - from + 1) as u64 * 1_000;
                let time = (end_ms - begin_ms) * u64::from(floor) * 1_000 / 60_000;
                let earned = (firsts_now - firsts_then) * u64::from(per_mille);
                // What was saved up before the span is at most the most.
                prop_assert!(retries <= u64::from(budget.tokens_max) * 1_000 + time + earned);
                if from == 0 {
                    prop_assert!(retries <= u64::from(floor) * 1_000 + time + earned);
                }
            }
        }
    }
}
