use proptest::prelude::*;

use super::*;
use crate::{Bounds, Now, PairKey};

const BOUNDS: Bounds = Bounds { per_tenant: 4, total: 1_000 };

fn pair(tenant: u64, subject: u64) -> PairKey {
    PairKey::of(tenant, subject)
}

/// Both clocks go together, from a wall clock of 1,000,000.
fn at(mono_ms: u64) -> Now {
    Now { mono_ms, unix_ms: 1_000_000 + mono_ms }
}

const BAD: Outcome = Outcome::Failed(Fault::ServerError);

struct Fixture {
    breakers: Breakers,
    rules: Rules,
    key: PairKey,
}

fn fixture() -> Fixture {
    Fixture { breakers: Breakers::new(BOUNDS), rules: Rules::default(), key: pair(1, 1) }
}

impl Fixture {
    fn admit(&self, ms: u64) -> Result<Ticket, Refused> {
        self.breakers.admit(self.key, &self.rules, at(ms))
    }

    fn report(&self, ticket: Ticket, outcome: Outcome, ms: u64) -> Option<Change> {
        self.breakers.report(self.key, &self.rules, ticket, outcome, at(ms))
    }

    fn call(&self, outcome: Outcome, ms: u64) -> Option<Change> {
        let ticket = self.admit(ms).unwrap();
        self.report(ticket, outcome, ms)
    }

    /// Five faults in a row at `ms`; until when it is open.
    fn trip(&self, ms: u64) -> u64 {
        for _ in 0..4 {
            assert_eq!(self.call(BAD, ms), None);
        }
        let Some(Change::Opened { for_ms, times: 1 }) = self.call(BAD, ms) else { panic!("five in a row open") };
        ms + for_ms
    }
}

#[test]
fn five_faults_in_a_row_open_and_four_do_not() {
    let f = fixture();
    for round in 0..10 {
        for _ in 0..4 {
            assert_eq!(f.call(BAD, round), None);
        }
        for outcome in [Outcome::Throttled, Outcome::Parked, Outcome::Abandoned] {
            assert_eq!(f.call(outcome, round), None);
        }
        if round < 9 {
            // A 4xx is an answer. More of them, so that the share stays low.
            for _ in 0..9 {
                assert_eq!(f.call(Outcome::ClientError, round), None);
            }
        }
    }
    assert!(matches!(f.call(BAD, 10), Some(Change::Opened { .. })), "what is neither good nor bad ends no row");
}

#[test]
fn the_share_opens_at_its_volume_and_its_percentage_and_not_below() {
    for (good, bad, opens) in [(10, 10, true), (9, 10, false), (11, 10, false), (9, 11, true), (100, 99, false)] {
        let mut f = fixture();
        f.rules.consecutive_faults = 1_000;
        // The first fault begins the counting.
        f.call(BAD, 5);
        for _ in 0..good {
            assert_eq!(f.call(Outcome::Answered, 5), None);
        }
        for _ in 2..bad {
            assert_eq!(f.call(BAD, 5), None, "{good} good, {bad} bad opened early");
        }
        assert_eq!(f.call(BAD, 5).is_some(), opens, "{good} good, {bad} bad");
    }
}

#[test]
fn calls_before_the_first_fault_are_not_in_the_share_and_a_good_one_never_opens() {
    let f = fixture();
    for _ in 0..1_000 {
        f.call(Outcome::Answered, 5);
    }
    for _ in 0..9 {
        f.call(BAD, 5);
        f.call(Outcome::Answered, 5);
    }
    f.call(Outcome::Answered, 5);
    assert!(f.call(BAD, 5).is_some(), "ten of twenty since the first fault");
    let mut f = fixture();
    f.rules.fault_percent = 1;
    f.call(BAD, 5);
    for _ in 0..99 {
        assert_eq!(f.call(Outcome::Answered, 5), None);
    }
}

#[test]
fn faults_that_left_the_window_do_not_count() {
    for (later, opens) in [(9_999, true), (10_000, false)] {
        let f = fixture();
        for _ in 0..9 {
            f.call(BAD, 0);
            f.call(Outcome::Answered, 0);
        }
        f.call(Outcome::Answered, later);
        assert_eq!(f.call(BAD, later).is_some(), opens, "{later}");
    }
}

#[test]
fn open_refuses_until_its_time_and_then_one_probe_is_out() {
    let f = fixture();
    let until = f.trip(100);
    assert!((3_850..=5_100).contains(&until), "{until}");
    assert_eq!(f.admit(until - 1), Err(Refused { retry_after_ms: 1, phase: Phase::Open }));
    let probe = f.admit(until).unwrap();
    assert!(probe.is_probe());
    assert_eq!(f.admit(until), Err(Refused { retry_after_ms: 1_000, phase: Phase::HalfOpen }));
    assert_eq!(f.report(probe, Outcome::Answered, until + 5), None);
    let second = f.admit(until + 5).unwrap();
    assert!(f.admit(until + 5).is_err());
    assert_eq!(f.report(second, Outcome::ClientError, until + 9), Some(Change::Closed));
    assert!(!f.admit(until + 9).unwrap().is_probe());
    assert_eq!(f.breakers.phase(f.key, at(until + 9)), Phase::Closed);
}

#[test]
fn a_bad_probe_opens_for_twice_as_long_and_what_proves_nothing_frees_the_probe() {
    let f = fixture();
    let until = f.trip(0);
    let probe = f.admit(until).unwrap();
    let Some(Change::Opened { for_ms, times: 2 }) = f.report(probe, BAD, until + 50) else { panic!("opens again") };
    assert!((7_500..=10_000).contains(&for_ms), "{for_ms}");
    let again = until + 50 + for_ms;
    for outcome in [Outcome::Throttled, Outcome::Parked, Outcome::Abandoned] {
        let probe = f.admit(again).unwrap();
        assert!(probe.is_probe());
        assert_eq!(f.report(probe, outcome, again), None);
    }
    assert_eq!(f.breakers.phase(f.key, at(again)), Phase::HalfOpen);
}

#[test]
fn a_lost_probe_is_given_up_when_its_lease_ends_and_heard_only_if_no_other_went_out() {
    let f = fixture();
    let until = f.trip(0);
    let lost = f.admit(until).unwrap();
    assert!(f.admit(until + 59_999).is_err());
    let second = f.admit(until + 60_000).unwrap();
    assert_eq!(f.report(lost, BAD, until + 60_001), None, "another is out");
    assert!(f.admit(until + 60_002).is_err(), "the late one freed nothing");
    // The second is late too, but nobody came in between.
    assert!(matches!(f.report(second, BAD, until + 200_000), Some(Change::Opened { .. })));
}

#[test]
fn outcomes_of_calls_from_before_it_opened_are_not_heard() {
    let f = fixture();
    let (early_bad, early_good, later) = (f.admit(0).unwrap(), f.admit(0).unwrap(), f.admit(0).unwrap());
    let until = f.trip(0);
    assert_eq!(f.report(early_bad, BAD, 10), None);
    let _probe = f.admit(until).unwrap();
    assert_eq!(f.report(early_good, Outcome::Answered, until), None);
    assert_eq!(f.breakers.phase(f.key, at(until)), Phase::HalfOpen);
    let probe = f.admit(until + 60_000).unwrap();
    f.report(probe, Outcome::Answered, until + 60_000);
    assert_eq!(f.call(Outcome::Answered, until + 60_001), Some(Change::Closed));
    assert_eq!(f.report(later, BAD, until + 60_002), None);
    for _ in 0..4 {
        assert_eq!(f.call(BAD, until + 60_003), None, "the late fault is in no row");
    }
}

#[test]
fn what_works_costs_nothing_and_one_tenants_fault_is_its_own() {
    let f = fixture();
    for outcome in [Outcome::Answered, Outcome::ClientError, Outcome::Throttled, Outcome::Parked, Outcome::Abandoned] {
        f.call(outcome, 0);
    }
    assert_eq!(f.breakers.tracked(), 0);
    f.trip(0);
    assert_eq!(f.breakers.tracked(), 1);
    for other in [pair(2, 1), pair(1, 2)] {
        assert!(f.breakers.admit(other, &f.rules, at(1)).is_ok());
    }
}

#[test]
fn a_tenant_with_too_many_broken_destinations_harms_itself_alone() {
    let f = fixture();
    let other = Fixture { breakers: Breakers::new(BOUNDS), key: pair(2, 1), ..fixture() };
    let shared = &f.breakers;
    let fault = |key, ms| {
        let ticket = shared.admit(key, &f.rules, at(ms)).unwrap();
        shared.report(key, &f.rules, ticket, BAD, at(ms))
    };
    for _ in 0..5 {
        fault(other.key, 0);
    }
    for subject in 0..4 {
        fault(pair(1, subject), subject);
    }
    // The fifth takes the place of the closed one whose fault is oldest.
    for _ in 0..5 {
        fault(pair(1, 9), 10);
    }
    assert_eq!(shared.tracked(), 5);
    assert_eq!(shared.phase(pair(1, 9), at(10)), Phase::Open);
    for subject in 1..4 {
        for _ in 0..4 {
            fault(pair(1, subject), 10);
        }
        assert_eq!(shared.phase(pair(1, subject), at(10)), Phase::Open, "{subject} still had its first fault");
    }
    for _ in 0..100 {
        assert_eq!(fault(pair(1, 77), 11), None, "all are open: the new one has no breaker");
    }
    assert_eq!(shared.untracked(), 100);
    assert_eq!(shared.phase(other.key, at(11)), Phase::Open);
}

#[test]
fn a_quiet_breaker_is_as_good_as_new_and_forgotten() {
    let f = fixture();
    for _ in 0..4 {
        f.call(BAD, 0);
    }
    assert_eq!(f.breakers.sweep(at(599_999)), 1);
    assert_eq!(f.call(BAD, 600_000), None, "the row is forgotten");
    let f = fixture();
    for _ in 0..4 {
        f.call(BAD, 0);
    }
    assert!(f.call(BAD, 599_999).is_some(), "one in time is in the row");

    let f = fixture();
    let until = f.trip(0);
    assert_eq!(f.breakers.sweep(at(until + 599_999)), 1);
    assert!(!f.admit(until + 600_000).unwrap().is_probe(), "nobody probed for ten minutes");
    assert_eq!(f.breakers.sweep(at(until + 600_000)), 0);
}

#[test]
fn an_operator_closes_it() {
    let f = fixture();
    f.trip(0);
    assert!(f.breakers.reset(f.key));
    assert!(!f.admit(0).unwrap().is_probe());
    assert!(!f.breakers.reset(f.key));
}

fn restored(bytes: &[u8], unix_ms: u64, rules: &Rules) -> (Result<Restored, BadRecord>, Breakers) {
    let breakers = Breakers::new(BOUNDS);
    let now = Now { mono_ms: 3, unix_ms };
    let restored = breakers.restore(pair(1, 1), rules, bytes, now);
    (restored, breakers)
}

#[test]
fn open_survives_a_restart_whatever_the_wall_clock_did() {
    let f = fixture();
    let until = f.trip(0);
    let record = f.breakers.record(f.key, at(1_000)).unwrap();
    let (left, written) = (until - 1_000, at(1_000).unix_ms);
    let cases = [
        (written, Restored::Open { for_ms: left }),
        (written + 1_000, Restored::Open { for_ms: left - 1_000 }),
        (written + left - 1, Restored::Open { for_ms: 1 }),
        (written + left, Restored::Open { for_ms: 0 }),
        (written + left + 599_999, Restored::Open { for_ms: 0 }),
        (written + left + 600_000, Restored::Stale),
        (u64::MAX, Restored::Stale),
        (written - 1, Restored::Open { for_ms: left }),
        (0, Restored::Open { for_ms: left }),
    ];
    for (unix_ms, expected) in cases {
        let (got, breakers) = restored(&record, unix_ms, &f.rules);
        assert_eq!(got, Ok(expected), "{unix_ms}");
        let Restored::Open { for_ms } = expected else {
            assert_eq!(breakers.tracked(), 0);
            continue;
        };
        let now = |mono_ms| Now { mono_ms, unix_ms };
        if for_ms > 0 {
            assert!(breakers.admit(f.key, &f.rules, now(3 + for_ms - 1)).is_err());
        }
        let probe = breakers.admit(f.key, &f.rules, now(3 + for_ms)).unwrap();
        assert!(probe.is_probe());
        assert!(breakers.admit(f.key, &f.rules, now(3 + for_ms)).is_err(), "and only one");
        let change = breakers.report(f.key, &f.rules, probe, BAD, now(3 + for_ms));
        assert!(matches!(change, Some(Change::Opened { times: 2, .. })), "the doubling goes on: {change:?}");
    }
}

#[test]
fn a_probe_that_was_out_is_a_probe_again_and_closed_has_no_record() {
    let f = fixture();
    assert_eq!(f.breakers.record(f.key, at(0)), None);
    f.call(BAD, 0);
    assert_eq!(f.breakers.record(f.key, at(0)), None);
    let f = fixture();
    let until = f.trip(0);
    let _lost = f.admit(until).unwrap();
    let record = f.breakers.record(f.key, at(until)).unwrap();
    let (got, _) = restored(&record, at(until).unix_ms, &f.rules);
    assert_eq!(got, Ok(Restored::Open { for_ms: 0 }));
    let mut all = Vec::new();
    f.breakers.records(at(until), |key, bytes| all.push((key, bytes)));
    assert_eq!(all, [(f.key, record)]);
    assert_eq!(f.breakers.restore(f.key, &f.rules, &record, at(until)), Ok(Restored::Known));
}

#[test]
fn a_look_takes_no_probe_and_says_when_asking_helps() {
    let f = fixture();
    let view = |ms| f.breakers.view(f.key, at(ms));
    assert_eq!(view(0), None, "what works is not kept");
    f.call(BAD, 0);
    f.call(Outcome::Answered, 1);
    let closed = View { phase: Phase::Closed, retry_after_ms: 0, times: 0, calls: 2, faults: 1 };
    assert_eq!(view(1), Some(closed));
    let until = f.trip(2);
    let open = View { phase: Phase::Open, retry_after_ms: until - 3, times: 1, calls: 0, faults: 0 };
    assert_eq!(view(3), Some(open));
    assert_eq!(view(until), Some(View { retry_after_ms: 0, ..open }), "the next call is let out");
    let probe = f.admit(until).unwrap();
    assert!(probe.is_probe(), "a look takes none");
    let probing = view(until).unwrap();
    assert_eq!((probing.phase, probing.retry_after_ms > 0), (Phase::HalfOpen, true));
    let mut all = Vec::new();
    f.breakers.views(at(until), |key, view| all.push((key, view)));
    assert_eq!(all, [(f.key, probing)]);
}

proptest! {
    #[test]
    fn hostile_records_are_refused_or_shut_for_no_longer_than_the_rules_allow(
        bytes in proptest::collection::vec(any::<u8>(), 0..32),
        head in 0..3_u8,
        unix_ms in any::<u64>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if whole {
            bytes.resize(RECORD_BYTES, 0xff);
            bytes[0] = head;
        }
        let rules = Rules::default();
        let (got, breakers) = restored(&bytes, unix_ms, &rules);
        if bytes.len() != RECORD_BYTES {
            prop_assert_eq!(got, Err(BadRecord::Length(bytes.len())));
        } else if bytes[0] != 1 {
            prop_assert_eq!(got, Err(BadRecord::Version(bytes[0])));
        }
        let longest = 3 + u64::from(rules.open_max_ms);
        let later = Now { mono_ms: longest, unix_ms };
        prop_assert!(breakers.admit(pair(1, 1), &rules, later).is_ok());
    }
}

mod model;
