//! Whatever the network and the machines do: never more than the rule allows, and all of it again afterwards.

use proptest::prelude::*;

use crate::kinds;
use tidegate_ratelimit::quota::sim::{Dice, Fleet, Load, Scene};

fn scene(seed: u64, kind: usize, nodes: usize) -> Scene {
    let (_, rule) = kinds()[kind];
    let rate = if rule.is_rate() { 30.0 } else { 60.0 };
    let loads = (0..4).map(|at| Load::of(rate / f64::from(at + 1))).collect();
    let mut scene = Scene::new(seed, rule, nodes, loads);
    scene.has_connections = seed.is_multiple_of(2);
    scene.serve_ms = 20;
    scene.backlog = 15;
    scene
}

/// Bad luck of all sorts for a while, of which nothing is exceeded. A centre that forgot and a holder that crashed, or
/// cannot tell it, at the same time would exceed the limit by what that holder had: these do not come together here.
fn trouble(fleet: &mut Fleet, dice: &mut Dice, has_crashes: bool, has_failovers: bool) {
    for _ in 0..150 {
        fleet.run(dice.below(200));
        if has_failovers {
            fleet.remember();
        }
        let node = dice.below(fleet.nodes.len() as u64) as usize;
        match dice.below(40) {
            0 if has_crashes => fleet.crash(node),
            1 | 2 if !has_failovers => fleet.nodes[node].is_cut_off = true,
            3..=6 => fleet.nodes[node].is_cut_off = false,
            7 => fleet.penalise(dice.below(1_500)),
            8 => fleet.are_pushes_lost = !fleet.are_pushes_lost,
            9 if has_failovers => fleet.fail_over(dice.below(800)),
            _ => {}
        }
    }
}

fn is_live_again(fleet: &mut Fleet) -> bool {
    for node in &mut fleet.nodes {
        node.is_cut_off = false;
    }
    (fleet.scene.loss_permille, fleet.scene.late_permille, fleet.scene.twice_permille) = (0, 0, 0);
    // Park, learning, backing off and pacing end; α comes back by tenths per window, of which some are ten seconds long.
    fleet.run(60_000);
    let before = fleet.sent();
    fleet.run(20_000);
    fleet.sent() - before > 100
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lost_late_and_repeated_answers_and_crashes_spend_nothing_twice(seed in any::<u64>(), kind in 0_usize..4) {
        let mut dice = Dice(seed);
        let mut scene = scene(seed, kind, 3);
        scene.loss_permille = dice.below(200);
        scene.twice_permille = dice.below(200);
        scene.late_permille = dice.below(200);
        let mut fleet = Fleet::new(scene);
        fleet.penalty_ms = 0;
        // Slots of a process that crashed are its calls' until they end: kept by the centre for as long as a lease.
        trouble(&mut fleet, &mut dice, true, false);
        prop_assert_eq!(fleet.provider.refused, 0, "worst {}", fleet.provider.worst);
        prop_assert!(is_live_again(&mut fleet), "live again");
        prop_assert_eq!(fleet.provider.refused, 0, "worst {}", fleet.provider.worst);
    }

    #[test]
    fn a_centre_that_forgot_is_told(seed in any::<u64>(), kind in 0_usize..3) {
        let mut dice = Dice(seed);
        let mut scene = scene(seed, kind, 3);
        scene.loss_permille = dice.below(30);
        let mut fleet = Fleet::new(scene);
        fleet.penalty_ms = 0;
        trouble(&mut fleet, &mut dice, false, true);
        prop_assert_eq!(fleet.provider.refused, 0, "worst {}", fleet.provider.worst);
        prop_assert!(is_live_again(&mut fleet), "live again");
        prop_assert_eq!(fleet.provider.refused, 0, "worst {}", fleet.provider.worst);
    }
}

/// Four penalties in a row, after which the release is slow for long: not a lack of liveness.
#[test]
fn a_found_schedule_is_live_again() {
    let mut dice = Dice(16_728_130_150_580_882_135);
    let mut scene = scene(dice.0, 1, 3);
    scene.loss_permille = dice.below(30);
    let mut fleet = Fleet::new(scene);
    fleet.penalty_ms = 0;
    trouble(&mut fleet, &mut dice, false, true);
    assert!(is_live_again(&mut fleet));
    assert_eq!(fleet.provider.refused, 0);
}
