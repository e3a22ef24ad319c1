//! Runs, their ledger and a provider in virtual time, on one thread: whatever happens is drawn from a list of bytes, and the
//! same list makes the same thing happen. Zero is always "nothing bad", and so is what comes behind the list's end, so that
//! every schedule calms down, and a failing one shrinks to what matters.
//!
//! What happens: workers are dropped at any poll, two work on one run, calls fail before and after their effect, answers are
//! lost or late, the ledger fails before and after it is durable or answers late or never, and so do other parts of ours,
//! leases lapse in the middle of calls, processes stop, the wall clock steps, admissions are repeated, people cancel, choose,
//! re-run and release.
//!
//! What has to hold, whatever happens, is in [`invariants`].

mod choices;
#[expect(clippy::wildcard_enum_match_arm, reason = "it looks for a few kinds of records among all")]
mod invariants;
mod ledger;
mod ports;
mod provider;
mod world;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use world::Scenario;

/// Schedules of one run of the tests: as many as take about fifteen seconds without optimisation.
const SCHEDULES: u32 = 4_500;

fn holds(scenario: &Scenario) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| error.to_string())?.block_on(world::play(scenario)).map(drop)
}

fn schedules(seed: u8, cases: u32) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_096, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let played = runner.run(&vec(any::<u8>(), 0..160), |bytes| {
        holds(&Scenario { bytes, ..Scenario::default() }).map_err(TestCaseError::fail)
    });
    if let Err(error) = played {
        panic!("seed {seed}: {error}");
    }
}

#[test]
fn whatever_happens_nothing_is_repeated_hidden_or_left_a() {
    schedules(1, SCHEDULES / 3);
}

#[test]
fn whatever_happens_nothing_is_repeated_hidden_or_left_b() {
    schedules(2, SCHEDULES / 3);
}

#[test]
fn whatever_happens_nothing_is_repeated_hidden_or_left_c() {
    schedules(3, SCHEDULES / 3);
}

/// Of every shape of automation, and with every kind of answer: the first worker is dropped at its first poll, at its second,
/// and so on to the last one that it has.
#[test]
fn a_worker_may_be_lost_at_every_await() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut crashes = 0;
    for shape in 0..world::SHAPES {
        for behaviour in 0..=provider::BEHAVIOURS {
            for crash_at in 1..1_000 {
                let scenario = Scenario {
                    shape: Some(shape),
                    first_call: Some(behaviour),
                    crash_first_at: Some(crash_at),
                    ..Scenario::default()
                };
                let played = runtime().block_on(world::play(&scenario));
                match played {
                    Ok(true) => crashes += 1,
                    Ok(false) => break,
                    Err(error) => panic!("shape {shape}, behaviour {behaviour}, lost at poll {crash_at}: {error}"),
                }
            }
        }
    }
    assert!(crashes > 1_000, "only {crashes} crashes");
}

/// Of every shape: its process stops at the first worker's first poll, at its second, and so on; and the ledger answers nobody
/// from the first append on, from the second, and so on. While the process lives it knows what it has done: nothing is in doubt.
#[test]
fn neither_a_stop_nor_a_ledger_that_does_not_answer_leaves_a_doubt() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut happened = [0; 2];
    for shape in 0..world::SHAPES {
        for at in 1..1_000 {
            let stops = Scenario { shape: Some(shape), stop_first_at: Some(at), ..Scenario::default() };
            let played = runtime().block_on(world::play_without_doubt(&stops));
            match played {
                Ok(true) => happened[0] += 1,
                Ok(false) => break,
                Err(error) => panic!("shape {shape}, stopped at poll {at}: {error}"),
            }
        }
        for at in 1..1_000 {
            let deaf = Scenario { shape: Some(shape), deaf_from: Some(at), ..Scenario::default() };
            let played = runtime().block_on(world::play_without_doubt(&deaf));
            match played {
                Ok(true) => happened[1] += 1,
                Ok(false) => break,
                Err(error) => panic!("shape {shape}, deaf from append {at}: {error}"),
            }
        }
    }
    assert!(happened[0] > 100 && happened[1] > 15, "{happened:?}");
}

/// What the simulation is able to see is what it is worth: without these it would pass over a world in which nothing happens.
#[test]
fn the_schedules_see_all_that_they_are_about() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400_u32 {
        let mut bytes = vec![0; 120];
        blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut bytes);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let scenario = Scenario { bytes, ..Scenario::default() };
        seen.extend(runtime.block_on(world::witness(&scenario)).unwrap());
    }
    for wanted in [
        "succeeded",
        "failed",
        "cancelled",
        "ended-ambiguous",
        "quarantined",
        "late-outcome",
        "resolved",
        "rerun",
        "read-back",
        "worker-lost",
        "no-answer",
        "needs-reconnect",
        "released",
        "retried",
        "deferred",
        "adopted",
        "left",
    ] {
        assert!(seen.contains(wanted), "{wanted} never happened: {seen:?}");
    }
}
