//! Parks.

use tidegate_ratelimit::quota::holder::{Reason, Source};

use crate::kinds;
use tidegate_ratelimit::quota::sim::{Fleet, Load, Scene};

#[test]
fn nobody_sends_while_a_bucket_is_parked_and_a_parked_bucket_costs_no_question() {
    for (name, rule) in kinds() {
        let mut scene = Scene::new(5, rule, 3, vec![Load::of(20.0); 3]);
        scene.arrive_ms = 0;
        let mut fleet = Fleet::new(scene);
        fleet.run(5_000);
        fleet.penalise(10_000);
        // Pushes arrive within 20 ms.
        fleet.run(25);
        let (sent, acquires) = (fleet.sent(), fleet.acquires);
        fleet.run(9_900);
        assert_eq!(fleet.sent(), sent, "{name}");
        assert!(fleet.acquires - acquires <= 3 * 3, "{name}: {}", fleet.acquires - acquires);
        let parked = fleet.on_parked.last().unwrap();
        assert_eq!((parked.source(), parked.reason.source()), (Source::Provider, Source::Provider), "{name}");
        fleet.run(30_000);
        assert!(fleet.sent() > sent + 100, "{name}: released, {}", fleet.sent() - sent);
    }
}

#[test]
fn a_park_that_nobody_pushed_is_found_by_asking() {
    let (_, rule) = kinds()[2];
    let mut fleet = Fleet::new(Scene::new(5, rule, 3, vec![Load::of(20.0); 3]));
    fleet.are_pushes_lost = true;
    fleet.run(5_000);
    fleet.penalise(10_000);
    // What is held may go on for as long as a lease.
    fleet.run(u64::from(rule.lease_ms) + 50);
    let sent = fleet.sent();
    fleet.run(9_000);
    assert_eq!(fleet.sent(), sent);
}

#[test]
fn a_release_is_paced() {
    let (_, rule) = kinds()[2];
    let mut fleet = Fleet::new(Scene::new(5, rule, 3, vec![Load::of(50.0); 3]));
    fleet.run(5_000);
    fleet.penalise(2_000);
    fleet.run(2_000);
    let sent = fleet.sent();
    fleet.run(1_000);
    // Half the rate, and one.
    assert!(fleet.sent() - sent <= 25 + 1, "{}", fleet.sent() - sent);
    assert!(fleet.sent() - sent >= 10, "{}", fleet.sent() - sent);
    assert!(fleet.on_parked.iter().any(|parked| matches!(parked.reason, Reason::Denied(_) | Reason::Park(_))));
}
