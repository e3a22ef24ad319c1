//! Random schedules over everything that can go wrong, against a provider that counts for itself.

use proptest::prelude::*;

use super::fleet::{Fate, Fleet};
use super::*;

#[derive(Debug, Clone)]
enum Action {
    Tick(u64),
    Ask { member: usize, mask: usize, want: u32, least: u32, fate: Fate },
    Call { member: usize, mask: usize, count: u32, latency_ms: u64, lasts_ms: u64 },
    GiveBack { member: usize, at: usize, units: u32, fate: Fate },
    Renew { member: usize, at: usize, fate: Fate },
    Penalise { at: usize, delta_ms: u64, fate: Fate },
    Crash { member: usize },
    FailOver { lost: usize },
    Sweep,
    StepBack(u64),
}

const HOLDERS: usize = 3;
const TENANTS: usize = 2;

fn buckets() -> Vec<Metered> {
    let fixed = Kind::Fixed { window_ms: 4_000, offset_ms: 0 };
    let sliding = Kind::Sliding { window_ms: 4_000, slots: 8 };
    let bucket = Kind::Bucket { window_ms: 1_000, burst: 30 };
    let slow = Kind::Bucket { window_ms: 1_000, burst: 2 };
    vec![
        metered(Level::App, "fixed", rule(fixed, 60)),
        metered(Level::Connection, "sliding", rule(sliding, 40)),
        metered(Level::Connection, "bucket", rule(bucket, 20)),
        metered(Level::Connection, "slow", rule(slow, 5)),
        metered(Level::App, "slots", RuleSpec { lease_ms: 900, ..rule(Kind::Concurrency, 6) }),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::Twice),
        1 => Just(Fate::ReplyLost),
        1 => Just(Fate::RequestLost),
        1 => (1..2_500_u64).prop_map(Fate::LateMs),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let (member, mask, at) = (0..HOLDERS * TENANTS, 1..32_usize, 0..5_usize);
    prop_oneof![
        6 => prop_oneof![1..40_u64, 50..600_u64, 900..5_000_u64].prop_map(Action::Tick),
        8 => (member.clone(), mask.clone(), 0..12_u32, 0..3_u32, fate()).prop_map(|(member, mask, want, least, fate)| {
            Action::Ask { member, mask, want: want.max(least), least, fate }
        }),
        8 => (member.clone(), mask, 1..12_u32, 0..100_u64, 0..500_u64).prop_map(
            |(member, mask, count, latency_ms, lasts_ms)| Action::Call { member, mask, count, latency_ms, lasts_ms }
        ),
        2 => (member.clone(), at.clone(), 1..10_u32, fate())
            .prop_map(|(member, at, units, fate)| Action::GiveBack { member, at, units, fate }),
        2 => (member.clone(), at.clone(), fate()).prop_map(|(member, at, fate)| Action::Renew { member, at, fate }),
        1 => (at, 1..3_000_u64, fate()).prop_map(|(at, delta_ms, fate)| Action::Penalise { at, delta_ms, fate }),
        1 => member.prop_map(|member| Action::Crash { member }),
        1 => (0..12_usize).prop_map(|lost| Action::FailOver { lost }),
        1 => Just(Action::Sweep),
        1 => prop_oneof![3 => Just(60_000_u64), 1 => 1..3_000_u64].prop_map(|ms| match ms {
            60_000 => Action::Tick(200_000),
            ms => Action::StepBack(ms),
        }),
    ]
}

fn of_mask(mask: usize) -> Vec<usize> {
    (0..5).filter(|at| mask & (1 << at) != 0).collect()
}

fn run(actions: &[Action]) -> Fleet {
    let mut fleet = Fleet::new(buckets(), HOLDERS, TENANTS);
    for action in actions {
        match *action {
            Action::Tick(ms) => fleet.tick(ms),
            Action::Ask { member, mask, want, least, fate } => fleet.ask(member, &of_mask(mask), want, least, fate),
            Action::Call { member, mask, count, latency_ms, lasts_ms } => {
                (0..count).for_each(|_| fleet.call(member, &of_mask(mask), latency_ms, lasts_ms));
            }
            Action::GiveBack { member, at, units, fate } => fleet.give_back(member, at, units, fate),
            Action::Renew { member, at, fate } => fleet.renew(member, at, fate),
            Action::Penalise { at, delta_ms, fate } => fleet.penalise(at, delta_ms, None, fate),
            Action::Crash { member } => fleet.crash(member),
            Action::FailOver { lost } => fleet.fail_over(lost),
            Action::Sweep => fleet.sweep(),
            Action::StepBack(ms) => fleet.step_back(ms),
        }
    }
    fleet.tick(10_000);
    fleet
}

/// The most that was over the limit at any moment, as the provider of this rule counts.
fn excess(rule: &Rule, arrivals: &[(u64, u64)]) -> u64 {
    let mut arrivals = arrivals.to_vec();
    arrivals.sort_unstable();
    let cap = u64::from(rule.cap);
    let within = |from: u64, until: u64| arrivals.iter().filter(|(at, _)| (from..until).contains(at)).count() as u64;
    let each = arrivals.iter().map(|&(at_ms, _)| match rule.kind {
        Kind::Fixed { window_ms, .. } => {
            let start_ms = at_ms / window_ms * window_ms;
            within(start_ms, start_ms + window_ms).saturating_sub(cap)
        }
        Kind::Sliding { window_ms, .. } | Kind::Anchored { window_ms, .. } => {
            within(at_ms, at_ms + window_ms).saturating_sub(cap)
        }
        Kind::Concurrency => {
            let open = arrivals.iter().filter(|&&(start_ms, end_ms)| start_ms <= at_ms && at_ms < end_ms);
            (open.count() as u64).saturating_sub(cap)
        }
        Kind::Bucket { .. } | Kind::Calendar { .. } => 0,
    });
    match rule.kind {
        Kind::Bucket { window_ms, burst } => over_bucket(cap, window_ms, u64::from(burst), &arrivals),
        _ => each.max().unwrap_or(0),
    }
}

/// Calls that a bucket of `burst` units, full at first, refuses.
fn over_bucket(cap: u64, window_ms: u64, burst: u64, arrivals: &[(u64, u64)]) -> u64 {
    let (mut level, mut last_ms, mut refused) = (burst * window_ms, 0, 0);
    for &(at_ms, _) in arrivals {
        level = (level + (at_ms - last_ms) * cap).min(burst * window_ms);
        last_ms = at_ms;
        match level.checked_sub(window_ms) {
            Some(left) => level = left,
            None => refused += 1,
        }
    }
    refused
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(1_500))]

    /// Whatever is lost, late or twice, whoever dies, and however the centre forgets a suffix: the provider sees no more
    /// than its limit, but for what the dead of a failover may have spent.
    #[test]
    fn no_schedule_exceeds_a_limit(actions in prop::collection::vec(action(), 1..90)) {
        let fleet = run(&actions);
        let has_failed_over = actions.iter().any(|action| matches!(action, Action::FailOver { .. }));
        let may_be_over = if has_failed_over { fleet.forgotten } else { 0 };
        let has_died = actions.iter().any(|action| matches!(action, Action::Crash { .. }));
        for (bucket, arrivals) in fleet.buckets.iter().zip(&fleet.arrivals) {
            // Slots of the dead that a failover forgets have no other bound than their calls' length.
            if !bucket.rule.is_rate() && has_failed_over && has_died {
                continue;
            }
            // Where windows begin is a matter of the clock: one that is wrong is a skew, which these rules allow none of.
            let is_skewed = actions.iter().any(|action| matches!(action, Action::StepBack(_)));
            if is_skewed && matches!(bucket.rule.kind, Kind::Fixed { .. }) {
                continue;
            }
            let excess = excess(&bucket.rule, arrivals);
            prop_assert!(excess <= may_be_over, "{excess} over {}, {may_be_over} allowed", bucket.key);
        }
    }
}
