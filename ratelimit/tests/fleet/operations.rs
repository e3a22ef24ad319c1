//! How often the centre is asked, for each call that goes.

use tidegate_ratelimit::quota::{Kind, Rule};

use crate::rule;
use tidegate_ratelimit::quota::sim::{Fleet, Load, Scene};

/// Operations per call in the steady state: so many nodes, each with so many tenants, who together want
/// so many calls per second.
fn operations(name: &str, rule: Rule, nodes: usize, tenants: usize, per_second: f64) -> f64 {
    let each = per_second / nodes as f64 / tenants as f64;
    let mut scene = Scene::new(7, rule, nodes, vec![Load::of(each); tenants]);
    scene.backlog = 20;
    let mut fleet = Fleet::new(scene);
    fleet.run(10_000);
    let (sent, operations, acquires) = (fleet.sent(), fleet.operations, fleet.acquires);
    fleet.run(10_000);
    let sent = (fleet.sent() - sent) as f64;
    let per_call = (fleet.operations - operations) as f64 / sent;
    println!(
        "{name:<9} {:>6}/s wanted, {nodes} nodes x {tenants:>2} tenants: {:>7.0}/s sent, {per_call:.4} operations per call ({:.4} acquires), {} refused",
        per_second,
        sent / 10.0,
        (fleet.acquires - acquires) as f64 / sent,
        fleet.provider.refused,
    );
    per_call
}

#[test]
fn the_centre_is_asked_for_blocks() {
    let fixed = |cap: u32, lease_ms| rule(Kind::Fixed { window_ms: 60_000, offset_ms: 0 }, cap * 60, lease_ms, 250, 0);
    let sliding = |cap: u32| rule(Kind::Sliding { window_ms: 10_000, slots: 40 }, cap * 10, 1_000, 250, 0);
    // Where the limit allows blocks and leases are long enough for them.
    for per_call in [
        operations("fixed", fixed(1_000, 1_000), 1, 1, 700.0),
        operations("sliding", sliding(1_000), 4, 1, 700.0),
        operations("long", fixed(100, 10_000), 1, 1, 10.0),
        operations("long", fixed(100, 10_000), 4, 1, 70.0),
    ] {
        assert!(per_call <= 0.02, "{per_call}");
    }
    // Forty lessees, each of which calls so seldom that a lease of a second lasts for a few calls.
    let per_call = operations("fixed", fixed(1_000, 1_000), 4, 10, 2_000.0);
    assert!(per_call <= 0.05, "{per_call}");
    let per_call = operations("sliding", sliding(1_000), 4, 10, 2_000.0);
    assert!(per_call <= 0.15, "{per_call}");
}

#[test]
fn the_centre_is_not_asked_for_each_unit_that_refills() {
    // Half of the burst is granted at once, and a block is a twentieth of that over the nodes: 25 units, or 6.
    let bucket = |cap: u32| rule(Kind::Bucket { window_ms: 1_000, burst: cap }, cap, 250, 250, 0);
    let per_call = operations("bucket", bucket(1_000), 1, 1, 700.0);
    assert!(per_call <= 0.1, "{per_call}");
    let per_call = operations("bucket", bucket(1_000), 4, 1, 700.0);
    assert!(per_call <= 0.25, "{per_call}");
    let per_call = operations("bucket", bucket(4_000), 4, 4, 2_800.0);
    assert!(per_call <= 0.06, "{per_call}");
    // Twice of what there is is wanted: a tenant's share of a slot is two and a half units on each node.
    let per_call = operations("bucket", bucket(1_000), 4, 10, 2_000.0);
    assert!(per_call <= 1.5, "{per_call}");
    operations("bucket", bucket(100), 1, 1, 70.0);
    operations("bucket", bucket(100), 4, 10, 200.0);
}
