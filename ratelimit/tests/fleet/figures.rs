//! Throughput and refusals without faults.

use tidegate_ratelimit::quota::{Kind, Rule};

use crate::rule;
use tidegate_ratelimit::quota::sim::{Dice, Fleet, Load, Provider, START_MS, Scene};

struct Figures {
    /// Of what the rule allows in the time.
    part: f64,
    refused: f64,
    operations: f64,
}

fn measure(rule: Rule, allowed_per_second: f64, seconds: u64, set: impl Fn(&mut Scene)) -> Figures {
    let loads = vec![Load::of(allowed_per_second / 8.0); 5];
    let mut scene = Scene::new(7, rule, 3, loads);
    scene.arrive_ms = 50;
    scene.backlog = 20;
    scene.arrive_ms_max = 500;
    set(&mut scene);
    let mut fleet = Fleet::new(scene);
    fleet.run(20_000);
    let (before, operations) = (fleet.provider.accepted, fleet.operations);
    fleet.run(seconds * 1_000);
    let accepted = (fleet.provider.accepted - before) as f64;
    let provider = &fleet.provider;
    let figures = Figures {
        part: accepted / (allowed_per_second * seconds as f64),
        refused: provider.refused as f64 / (provider.accepted + provider.refused) as f64,
        operations: (fleet.operations - operations) as f64 / accepted,
    };
    println!(
        "{:?}: {:.3} of the limit, {:.5} refused, {:.3} operations per call, {} spoilt",
        rule.kind, figures.part, figures.refused, figures.operations, fleet.spoilt
    );
    figures
}

#[test]
fn a_fixed_window_is_used_whatever_the_provider_s_clock_says() {
    for skew_ms in [-2_000, 0, 2_000] {
        let rule = rule(Kind::Fixed { window_ms: 60_000, offset_ms: 0 }, 6_000, 1_000, 500, 2_000);
        let figures = measure(rule, 100.0, 300, |scene| scene.skew_ms = skew_ms);
        assert!(figures.part >= 0.95, "{}", figures.part);
        assert!(figures.refused <= 0.001, "{}", figures.refused);
    }
}

#[test]
fn a_bucket_is_used() {
    let rule = rule(Kind::Bucket { window_ms: 1_000, burst: 100 }, 100, 250, 500, 0);
    let figures = measure(rule, 100.0, 120, |_| {});
    assert!(figures.part >= 0.95, "{}", figures.part);
    assert!(figures.refused <= 0.001, "{}", figures.refused);
}

#[test]
fn a_sliding_window_is_used() {
    let rule = rule(Kind::Sliding { window_ms: 10_000, slots: 40 }, 1_000, 500, 500, 0);
    let figures = measure(rule, 100.0, 120, |scene| scene.skew_ms = 1_000);
    assert!(figures.part >= 0.83, "{}", figures.part);
    assert!(figures.refused <= 0.001, "{}", figures.refused);
}

#[test]
fn slots_are_used() {
    // Calls of 250 ms on average: 40 slots are 160 calls per second.
    let rule = rule(Kind::Concurrency, 40, 5_000, 0, 0);
    let figures = measure(rule, 160.0, 60, |scene| {
        scene.serve_ms = 200;
        scene.loads = vec![Load { wait_ms: 1_000, ..Load::of(20.0) }; 5];
    });
    assert!(figures.part >= 0.90, "{}", figures.part);
    assert!(figures.refused <= 0.001, "{}", figures.refused);
}

/// What is done without leases: each node limits itself to the whole limit, and after a refusal is quiet for a second.
#[test]
fn nodes_that_know_nothing_of_each_other_are_refused() {
    let rule = rule(Kind::Bucket { window_ms: 1_000, burst: 100 }, 100, 250, 500, 0);
    let mut provider = Provider::new(rule, 0);
    let mut dice = Dice(7);
    let mut arriving: Vec<(u64, usize)> = Vec::new();
    let (mut tokens, mut quiet_until_ms) = ([100.0_f64; 3], [0_u64; 3]);
    for now_ms in START_MS..START_MS + 120_000 {
        for node in 0..3 {
            tokens[node] = (tokens[node] + 0.1).min(100.0);
            // 62 calls per second want to go, as in the other figures.
            if dice.permille(62) && tokens[node] >= 1.0 && now_ms >= quiet_until_ms[node] {
                tokens[node] -= 1.0;
                arriving.push((now_ms + (dice.exponential(50.0) as u64).min(500), node));
            }
        }
        let due: Vec<_> = arriving.extract_if(.., |&mut (at_ms, _)| at_ms <= now_ms).collect();
        for (_, node) in due {
            if !provider.arrive(now_ms, 1) {
                quiet_until_ms[node] = now_ms + 1_000;
            }
        }
    }
    let refused = provider.refused as f64 / (provider.accepted + provider.refused) as f64;
    println!("without leases: {:.3} of the limit, {refused:.5} refused", provider.accepted as f64 / 12_000.0);
    assert!(refused > 0.01, "{refused}");
}
