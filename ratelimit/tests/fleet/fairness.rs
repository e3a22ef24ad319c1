//! One hog among twenty.

use tidegate_ratelimit::quota::{Class, Kind};

use crate::rule;
use tidegate_ratelimit::quota::sim::{Fleet, Load, Scene, percentile};

#[test]
fn small_tenants_get_all_they_ask_beside_a_hog() {
    let rule = rule(Kind::Bucket { window_ms: 1_000, burst: 100 }, 100, 250, 300, 0);
    let nodes = 3;
    let mut loads = vec![Load { wait_ms: 1_000, ..Load::of(4.0 / 3.0) }; 20];
    loads.push(Load { wait_ms: 1_000, ..Load::of(1_000.0 / 3.0) });
    let mut fleet = Fleet::new(Scene::new(11, rule, nodes, loads));
    fleet.run(60_000);
    let small = &fleet.tallies[..20];
    let (wanted, sent) = small.iter().fold((0, 0), |(wanted, sent), tally| (wanted + tally.wanted, sent + tally.sent));
    let waits: Vec<u64> = small.iter().flat_map(|tally| tally.waits_ms.iter().copied()).collect();
    let (p50, p99) = (percentile(&waits, 50), percentile(&waits, 99));
    println!("small: {sent} of {wanted}, wait p50 {p50} ms, p99 {p99} ms; hog {}", fleet.tallies[20].sent);
    assert!(sent * 100 >= wanted * 98, "{sent} of {wanted}");
    assert!(p99 <= 1_000, "{p99} ms");
    assert!(fleet.tallies[20].sent > 600, "what is left is the hog's: {}", fleet.tallies[20].sent);
    assert_eq!(fleet.provider.refused, 0);
}

#[test]
fn interactive_calls_go_before_bulk_ones_of_the_same_tenant() {
    let rule = rule(Kind::Bucket { window_ms: 1_000, burst: 20 }, 20, 250, 300, 0);
    let bulk = Load { wait_ms: 2_000, ..Load::of(60.0) };
    let interactive = Load { class: Class::Interactive, ..bulk };
    // Two tenants with the same load, of which one's is interactive on half of its calls.
    let mut scene = Scene::new(3, rule, 1, vec![bulk, interactive]);
    scene.backlog = 50;
    let mut fleet = Fleet::new(scene);
    fleet.run(30_000);
    let sent: Vec<u64> = fleet.tallies.iter().map(|tally| tally.sent).collect();
    println!("{sent:?}");
    assert!(sent[0] > 150 && sent[1] > 150, "between tenants the class makes no difference: {sent:?}");
}
