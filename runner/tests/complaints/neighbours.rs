//! Tenants that take what is others'.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_runner::schedule::core::{Limits, Tier};

use crate::process::{Fleet, Process, until};
use crate::world::{World, call, document, tenant};

async fn world_of(tenants: &[&str]) -> World {
    let world = World::new();
    for of in tenants {
        world.save(of, &document(&json!([call("a", "POST")]))).await;
    }
    world
}

/// 27: one workspace floods the pool that all share.
#[tokio::test(start_paused = true)]
async fn a_flood_of_one_tenant_delays_a_run_of_another_by_less_than_a_second() {
    let world = world_of(&["hog", "small"]).await;
    world.provider.takes(Duration::from_millis(400));
    let process = Process::start_with(&world, "index", Fleet::Alone, Limits::of_slots(8)).await;
    for n in 0..1_000 {
        world.deliver("hog", &json!({ "n": n }));
    }
    until("the flood", || world.provider.calls().len() > 40).await;
    let mut waits = Vec::new();
    for n in 1..=5 {
        let came = tokio::time::Instant::now();
        world.deliver("small", &json!({ "n": n }));
        let of_small = || world.provider.calls().into_iter().filter(|made| &*made.tenant == "small").count();
        until("the small one's call", || of_small() == n).await;
        waits.push(came.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(1)), "{waits:?}");
    let counts = process.scheduler.snapshot().counts;
    assert!(counts.queued[0] > 500, "the flood was still there: {counts:?}");
}

/// 28: nothing bounds anybody unless somebody has set it.
#[tokio::test(start_paused = true)]
async fn tenants_share_the_slots_evenly_without_anybody_having_set_anything() {
    let tenants = ["one", "two", "three", "four"];
    let world = world_of(&tenants).await;
    world.provider.takes(Duration::from_millis(200));
    let process = Process::start_with(&world, "index", Fleet::Alone, Limits::of_slots(8)).await;
    // The first of them is there long before the others, and has ten times as much.
    for n in 0..1_200 {
        world.deliver("one", &json!({ "n": n }));
    }
    until("the first's", || world.provider.calls().len() > 80).await;
    for of in &tenants[1..] {
        for n in 0..120 {
            world.deliver(of, &json!({ "n": n }));
        }
    }
    let from = tokio::time::Instant::now() + Duration::from_secs(1);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let mut shares: BTreeMap<Box<str>, usize> = BTreeMap::new();
    for made in world.provider.calls().into_iter().filter(|made| made.at >= from) {
        *shares.entry(made.tenant).or_default() += 1;
    }
    let all: usize = shares.values().sum();
    // One of the eight is for whoever has none.
    assert!(all > 270, "no other slot stands empty: {shares:?}");
    for of in &tenants[1..] {
        assert!(shares[*of] * 100 >= all * 22, "{shares:?}");
    }
    drop(process);
}

/// 29: the bound on what runs at once is raced by many workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bound_on_a_tenants_slots_holds_on_many_threads() {
    let world = world_of(&["acme", "other"]).await;
    world.provider.takes(Duration::from_millis(4));
    let tiers = vec![Tier { slots_max: 3, reserve: 0 }];
    let limits = Limits { tiers, ..Limits::of_slots(16) };
    let process = Process::start_with(&world, "index", Fleet::Alone, limits).await;
    for n in 0..150 {
        world.deliver(if n % 2 == 0 { "acme" } else { "other" }, &json!({ "n": n }));
    }
    until("all of them", || world.provider.calls().len() == 150).await;
    assert_eq!((world.provider.most_of("acme"), world.provider.most_of("other")), (3, 3));
    process.stop().await;
}

/// 30: one that is stopped blocks the triggers of all.
#[tokio::test(start_paused = true)]
async fn a_tenant_whose_automations_cannot_be_read_stops_nobody_else() {
    let world = world_of(&["broken", "acme"]).await;
    world.automations.away_for.lock().unwrap().insert(tenant("broken"));
    let process = Process::start(&world, "index", Fleet::Alone).await;
    for n in 0..100 {
        world.deliver(if n % 2 == 0 { "broken" } else { "acme" }, &json!({ "n": n }));
    }
    let of = |name: &str| world.provider.calls().into_iter().filter(|made| &*made.tenant == name).count();
    until("those of the other", || of("acme") == 50).await;
    let status = process.admission.status();
    assert_eq!((status.waiting, status.delayed_tenants, of("broken")), (50, 1, 0));
    world.automations.away_for.lock().unwrap().clear();
    until("the rest", || of("broken") == 50).await;
}
