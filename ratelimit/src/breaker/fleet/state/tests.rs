use proptest::prelude::*;

use super::*;
use crate::breaker::Weight;
use crate::pair::PairKey;
use crate::shards::spread;

const NOW_MS: u64 = 5_000_000;

fn reading(keeper_ms: u64) -> Reading {
    Reading { asked_ms: NOW_MS, answered_ms: NOW_MS + 3, keeper_ms }
}

fn tally(calls: &[(u64, bool)]) -> Tally {
    let mut tally = Tally::default();
    for (tenant, is_bad) in calls {
        tally.count(PairKey::of(*tenant, 1), if *is_bad { Weight::Bad } else { Weight::Good });
    }
    tally
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Closed { since_ms: 1 }),
        (0..300_000_u64).prop_map(|ms| State::Open { until_ms: NOW_MS + ms }),
        (0..2_u8, any::<bool>()).prop_map(|(good, is_out)| State::HalfOpen {
            good,
            probe_until_ms: NOW_MS + 1_000,
            is_out
        }),
    ]
}

fn any_fleet() -> impl Strategy<Value = FleetBreaker> {
    let calls = || proptest::collection::vec((0..400_u64, any::<bool>()), 0..120);
    let holder = (any::<u64>(), 0..u64::MAX, 0..29_000_u64, calls(), calls(), any::<Option<u32>>());
    let holders = proptest::collection::vec(holder, 0..12);
    let suspected = proptest::option::of(0..9_000_u64);
    (any_state(), any::<u8>(), any::<u64>(), suspected, holders).prop_map(
        |(state, level, probe, suspected, holders)| FleetBreaker {
            suspected_ms: suspected.map(|age_ms| NOW_MS - age_ms),
            gate: Gate { state, level },
            probe,
            holders: holders
                .into_iter()
                .enumerate()
                .map(|(at, (id, window, age_ms, latest, before, spent))| Holder {
                    id: id << 8 | at as u64,
                    heard_ms: NOW_MS - age_ms,
                    window,
                    latest: tally(&latest),
                    before: tally(&before),
                    spent: spent.map(u64::from),
                })
                .collect(),
        },
    )
}

/// What a reader makes of it that reads as it is written.
fn as_read(mut fleet: FleetBreaker, rules: &FleetRules) -> FleetBreaker {
    let at = reading(0);
    fleet.gate.state = match fleet.gate.state {
        State::Closed { .. } => State::Closed { since_ms: at.answered_ms },
        State::Open { until_ms } => State::Open { until_ms },
        State::HalfOpen { good, is_out, .. } => {
            let watch_ms = if is_out { rules.watch_ms() } else { 0 };
            State::HalfOpen { good, probe_until_ms: at.answered_ms + watch_ms, is_out }
        }
    };
    fleet.suspected_ms = fleet.suspected_ms.map(|since_ms| since_ms + 3);
    for holder in &mut fleet.holders {
        holder.heard_ms += 3;
    }
    fleet
}

proptest! {
    #[test]
    fn a_state_comes_back_and_hostile_bytes_do_no_harm(
        fleet in any_fleet(), keeper_ms: u64, cut in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let rules = FleetRules::default();
        let mut at = reading(keeper_ms);
        at.answered_ms = NOW_MS;
        let bytes = write(&fleet, &rules, at, NOW_MS);
        prop_assert!(bytes.len() <= STATE_BYTES_MAX);
        prop_assert_eq!(read(&bytes, &rules, reading(keeper_ms)), Ok(as_read(fleet, &rules)));
        let cut = cut.index(bytes.len());
        prop_assert_eq!(read(&bytes[..cut], &rules, at), Err(BadState::Malformed));
        let mut other = bytes;
        other[cut] ^= 1 << bit;
        if let Ok(fleet) = read(&other, &rules, at) {
            let until_ms = match fleet.gate.state {
                State::Closed { .. } => 0,
                State::Open { until_ms } | State::HalfOpen { probe_until_ms: until_ms, .. } => until_ms,
            };
            prop_assert!(until_ms <= NOW_MS + u64::from(rules.gate.open_max_ms));
            prop_assert!(fleet.holders.iter().all(|holder| holder.latest.faults() <= holder.latest.calls()));
        }
        other.push(0);
        prop_assert!(read(&other, &rules, at).is_err());
    }

    #[test]
    fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..600), keeper_ms: u64) {
        let mut bytes = bytes;
        for version in [None, Some(VERSION)] {
            if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
                *first = version;
            }
            drop(read(&bytes, &FleetRules::default(), reading(keeper_ms)));
        }
    }
}

fn open_for(remaining_ms: u64, written_ms: u64, read_ms: u64) -> u64 {
    let rules = FleetRules::default();
    let gate = Gate { state: State::Open { until_ms: NOW_MS + remaining_ms }, level: 1 };
    let fleet = FleetBreaker { gate, ..FleetBreaker::default() };
    let at = Reading { asked_ms: NOW_MS, answered_ms: NOW_MS, keeper_ms: written_ms };
    let bytes = write(&fleet, &rules, at, NOW_MS);
    match read(&bytes, &rules, Reading { keeper_ms: read_ms, ..at }).unwrap().gate.state {
        State::Open { until_ms } => until_ms - NOW_MS,
        state @ (State::Closed { .. } | State::HalfOpen { .. }) => panic!("{state:?}"),
    }
}

#[test]
fn what_has_passed_is_the_keepers_time_and_a_step_of_it_prolongs_nothing() {
    assert_eq!(open_for(4_000, 100_000, 101_500), 2_500);
    assert_eq!(open_for(4_000, 100_000, 104_001), 0);
    assert_eq!(open_for(4_000, 100_000, 0), 4_000, "the keeper's clock went back");
    assert_eq!(open_for(4_000, 100_000, u64::MAX), 0, "and forward");
    assert_eq!(open_for(9_000_000, 100_000, 100_000), 300_000, "longer than the rules allow");
}

#[test]
fn a_whole_fleet_fits_and_the_stale_are_left_out() {
    let rules = FleetRules::default();
    let everybody: Vec<_> = (0..4_000).map(|tenant| (spread(tenant), tenant % 2 == 0)).collect();
    let full = tally(&everybody);
    assert!(full.calling() > 250 && full.failing() > 32);
    let holder = |id: u64, heard_ms| Holder { id, heard_ms, window: 7, latest: full, before: full, spent: Some(5) };
    let holders: Vec<_> = (0..HOLDERS_MAX as u64).map(|id| holder(id, NOW_MS)).collect();
    let mut fleet = FleetBreaker { holders, ..FleetBreaker::default() };
    let at = Reading { asked_ms: NOW_MS, answered_ms: NOW_MS, keeper_ms: 9 };
    assert_eq!(write(&fleet, &rules, at, NOW_MS).len(), STATE_BYTES_MAX);
    fleet.holders[3].heard_ms = NOW_MS - 30_000;
    let read = read(&write(&fleet, &rules, at, NOW_MS), &rules, at).unwrap();
    assert_eq!(read.holders.len(), HOLDERS_MAX - 1);
    assert!(read.holders.iter().all(|holder| holder.id != 3));
}
