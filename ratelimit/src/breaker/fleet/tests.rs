use proptest::prelude::*;

use super::*;
use crate::breaker::{Fault, Weight};
use crate::pair::{PairKey, ProviderKey};

const PROVIDER: u64 = 9;

fn at(mono_ms: u64) -> Now {
    Now { mono_ms, unix_ms: 77_000_000 + mono_ms }
}

/// Tenants whose bits in a set all differ, so that tests can count them.
fn tenants() -> Vec<u64> {
    let mut seen = std::collections::HashSet::new();
    (0..).filter(|tenant| seen.insert(spread(*tenant) % 256)).take(60).collect()
}

/// A tally of tenants `from..to` with so many good and bad calls each.
fn tally(from: usize, to: usize, good: u32, bad: u32) -> Tally {
    let mut tally = Tally::default();
    for tenant in &tenants()[from..to] {
        for _ in 0..good {
            tally.count(PairKey::of(*tenant, 1), Weight::Good);
        }
        for _ in 0..bad {
            tally.count(PairKey::of(*tenant, 1), Weight::Bad);
        }
    }
    tally
}

fn sum(tallies: &[Tally]) -> Tally {
    let mut sum = Tally::default();
    for tally in tallies {
        sum.add(tally);
    }
    sum
}

fn report(holder: u64, window: u64, tally: Tally) -> Report {
    Report { provider: ProviderKey::from_u64(PROVIDER), holder, window, tally }
}

fn opens(tally: Tally) -> bool {
    FleetBreaker::default().observe(&FleetRules::default(), &report(1, 1, tally), at(0)).is_some()
}

#[test]
fn each_condition_has_to_hold_and_its_boundary_is_where_it_says() {
    // Five tenants, ten faults each, against as many good calls.
    assert!(opens(sum(&[tally(0, 5, 0, 10), tally(5, 10, 10, 0)])));
    assert!(!opens(sum(&[tally(0, 4, 0, 13), tally(5, 10, 10, 0)])), "four tenants");
    assert!(!opens(sum(&[tally(0, 5, 0, 10), tally(5, 10, 10, 0), tally(0, 1, 1, 0)])), "50 of 101 calls");
    assert!(!opens(tally(0, 7, 0, 7)), "49 calls");
    assert!(opens(sum(&[tally(0, 7, 0, 7), tally(0, 1, 1, 0)])), "50 calls");
    assert!(opens(sum(&[tally(0, 6, 0, 10), tally(6, 20, 1, 0)])), "6 of 20 tenants");
    assert!(!opens(sum(&[tally(0, 6, 0, 10), tally(6, 21, 1, 0)])), "6 of 21 tenants");
}

#[test]
fn one_loud_tenant_and_a_few_chance_faults_stop_nobody() {
    let loud = tally(0, 1, 0, 10_000);
    let chance = tally(1, 6, 5, 1);
    let others = tally(6, 40, 25, 0);
    assert!(!opens(sum(&[loud, chance, others])), "six of forty tenants");
    assert!(opens(tally(0, 40, 0, 2)), "but each of forty with a fault or two does");
}

#[test]
fn holders_are_added_and_a_stale_one_is_left_out() {
    let rules = FleetRules::default();
    for (second_ms, expected) in [(29_999, true), (30_000, false)] {
        let mut fleet = FleetBreaker::default();
        assert_eq!(fleet.observe(&rules, &report(1, 7, tally(0, 3, 0, 10)), at(0)), None);
        let change = fleet.observe(&rules, &report(2, 90_000, tally(3, 6, 0, 10)), at(second_ms));
        assert_eq!(change.is_some(), expected, "{second_ms}");
    }
}

#[test]
fn two_windows_of_a_holder_count_and_a_third_does_not() {
    let rules = FleetRules::default();
    for (next, expected) in [(8, true), (9, false)] {
        let mut fleet = FleetBreaker::default();
        fleet.observe(&rules, &report(1, 7, tally(0, 3, 0, 10)), at(0));
        assert_eq!(fleet.observe(&rules, &report(1, next, tally(3, 6, 0, 10)), at(1)).is_some(), expected, "{next}");
    }
}

fn open_fleet(rules: &FleetRules) -> (FleetBreaker, u64) {
    let mut fleet = FleetBreaker::default();
    let Some(Change::Opened { for_ms, times: 1 }) = fleet.observe(rules, &report(1, 7, tally(0, 10, 0, 10)), at(0))
    else {
        panic!("ten tenants with a hundred faults open it")
    };
    (fleet, for_ms)
}

#[test]
fn there_is_one_probe_in_the_fleet_and_a_lost_one_comes_back() {
    let rules = FleetRules::default();
    let (mut fleet, until) = open_fleet(&rules);
    assert_eq!(fleet.admit(&rules, at(until - 1)).unwrap_err().retry_after_ms, 1);
    let lost = fleet.admit(&rules, at(until)).unwrap();
    assert!(lost.is_probe());
    assert!(fleet.admit(&rules, at(until + 59_999)).is_err());
    let second = fleet.admit(&rules, at(until + 60_000)).unwrap();
    assert_eq!(fleet.report(&rules, lost, Outcome::Failed(Fault::Timeout), at(until + 60_000)), None);
    assert_eq!(fleet.report(&rules, second, Outcome::Answered, at(until + 60_001)), None);
    let third = fleet.admit(&rules, at(until + 60_001)).unwrap();
    assert_eq!(fleet.report(&rules, third, Outcome::Answered, at(until + 60_002)), Some(Change::Closed));
    assert!(!fleet.admit(&rules, at(until + 60_003)).unwrap().is_probe());
}

#[test]
fn what_opened_it_is_not_counted_again_after_it_closed() {
    let rules = FleetRules::default();
    let (mut fleet, until) = open_fleet(&rules);
    // While it is open another window comes, and a node that was not heard before.
    fleet.observe(&rules, &report(1, 8, tally(0, 10, 0, 10)), at(10));
    fleet.observe(&rules, &report(2, 3, tally(0, 10, 0, 10)), at(10));
    for _ in 0..2 {
        let probe = fleet.admit(&rules, at(until)).unwrap();
        fleet.report(&rules, probe, Outcome::Answered, at(until));
    }
    assert_eq!(fleet.phase(), Phase::Closed);
    for (holder, window) in [(1, 7), (1, 8), (2, 2), (2, 3)] {
        let again = report(holder, window, tally(0, 10, 0, 20));
        assert_eq!(fleet.observe(&rules, &again, at(until + 1)), None, "{holder}/{window}");
    }
    assert!(fleet.observe(&rules, &report(1, 9, tally(0, 10, 0, 10)), at(until + 1)).is_some(), "a new one is");
}

#[test]
fn a_bad_probe_opens_it_for_longer_and_open_survives_a_restart() {
    let rules = FleetRules::default();
    let (mut fleet, until) = open_fleet(&rules);
    let probe = fleet.admit(&rules, at(until)).unwrap();
    let change = fleet.report(&rules, probe, Outcome::Failed(Fault::Connect), at(until));
    let Some(Change::Opened { for_ms, times: 2 }) = change else { panic!("{change:?}") };
    assert!((7_500..=10_000).contains(&for_ms));
    let record = fleet.record(at(until + 1_000)).unwrap();
    let mut after = FleetBreaker::default();
    let now = Now { mono_ms: 0, unix_ms: at(until + 2_000).unix_ms };
    assert_eq!(after.restore(&rules, &record, now), Ok(Restored::Open { for_ms: for_ms - 2_000 }));
    assert_eq!(after.restore(&rules, &record, now), Ok(Restored::Known));
    assert_eq!(FleetBreaker::default().record(now), None);
    let late = Now { mono_ms: 0, unix_ms: at(until + for_ms + 600_000).unix_ms };
    assert_eq!(FleetBreaker::default().restore(&rules, &record, late), Ok(Restored::Stale));
}

#[test]
fn holders_are_bounded_and_stale_ones_make_room() {
    let rules = FleetRules::default();
    let mut fleet = FleetBreaker::default();
    for holder in 0..300 {
        fleet.observe(&rules, &report(holder, 1, tally(0, 1, 1, 0)), at(0));
    }
    assert_eq!(fleet.holders.len(), HOLDERS_MAX);
    fleet.observe(&rules, &report(999, 1, tally(0, 1, 1, 0)), at(30_000));
    assert_eq!(fleet.holders.len(), 1);
}

#[test]
fn a_node_reports_the_window_in_progress_and_the_one_before() {
    let node = NodeTallies::new(4, 1_000, 64);
    let (a, b) = (ProviderKey::from_u64(1), ProviderKey::from_u64(2));
    let key = PairKey::of(5, 5);
    node.count(a, key, Weight::Bad, at(10_500));
    node.count(a, key, Weight::Nothing, at(10_500));
    node.count(b, key, Weight::Nothing, at(10_500));
    node.count(a, key, Weight::Good, at(11_500));
    let reports = |ms| {
        let mut all = Vec::new();
        node.reports(at(ms), |report| all.push((report.window, report.tally.calls(), report.tally.faults())));
        all
    };
    assert_eq!(reports(11_999), [(10, 1, 1), (11, 1, 0)]);
    assert_eq!(reports(12_000), [(11, 1, 0)]);
    assert_eq!(reports(13_000), []);
    assert_eq!(node.tracked(), 0, "forgotten");
}

fn any_tally() -> impl Strategy<Value = Tally> {
    proptest::collection::vec((0..300_u64, 0..3_u8), 0..40).prop_map(|calls| {
        let mut tally = Tally::default();
        for (tenant, weight) in calls {
            let weight = [Weight::Good, Weight::Bad, Weight::Nothing][usize::from(weight)];
            tally.count(PairKey::of(tenant, 0), weight);
        }
        tally
    })
}

proptest! {
    #[test]
    fn a_report_comes_back_and_hostile_bytes_are_refused(
        tally in any_tally(), holder: u64, window in 0..u64::MAX, at in 0..REPORT_BYTES, bit in 0..8_u8, cut in 0..REPORT_BYTES,
    ) {
        let sent = report(holder, window, tally);
        let mut bytes = sent.to_bytes();
        prop_assert_eq!(Report::from_bytes(&bytes), Ok(sent));
        prop_assert_eq!(Report::from_bytes(&bytes[..cut]), Err(BadReport::Length(cut)));
        bytes[at] ^= 1 << bit;
        if let Ok(other) = Report::from_bytes(&bytes) {
            prop_assert!(other.tally.faults() <= other.tally.calls());
            prop_assert!(other.tally.failing() <= other.tally.calling());
            prop_assert!(at > 0);
        }
    }

    /// Cumulative reports of some windows, delivered in any order, repeated and with losses: the result is that of the
    /// latest report of each of the last two windows.
    #[test]
    fn reports_merge_in_any_order_and_any_number_of_times(
        parts in proptest::collection::vec(any_tally(), 6),
        order in proptest::collection::vec(0..6_usize, 1..30),
    ) {
        // Three windows of two reports each, the second of which has the first in it.
        let reports: Vec<_> = (0..6).map(|nth| {
            let first = parts[nth - nth % 2];
            report(1, 10 + nth as u64 / 2, if nth % 2 == 0 { first } else { sum(&[first, parts[nth]]) })
        }).collect();
        // Nothing opens: only counts are looked at.
        let rules = FleetRules { volume_min: u32::MAX, ..FleetRules::default() };
        let mut fleet = FleetBreaker::default();
        for nth in &order {
            fleet.observe(&rules, &reports[*nth], at(0));
        }
        let last = order.iter().map(|nth| nth / 2).max().unwrap();
        let latest_of = |window: usize| {
            let heard = order.iter().filter(|nth| **nth / 2 == window).max();
            heard.map(|nth| reports[*nth].tally).unwrap_or_default()
        };
        let holder = &fleet.holders[0];
        prop_assert_eq!(holder.window, 10 + last as u64);
        prop_assert_eq!(holder.latest, latest_of(last));
        prop_assert_eq!(holder.before, if last == 0 { Tally::default() } else { latest_of(last - 1) });
    }
}

mod face;
mod model;
mod net;
mod world;
