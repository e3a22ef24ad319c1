//! Events that begin nothing although they should.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_runner::automation::embedded::Settings;
use tidegate_runner::automation::{DefinitionStore, Draft, EmbeddedDefinitions, Format};
use tidegate_runner::ids::{AutomationId, Version};
use tidegate_runner::ledger::memory::Fault;
use tidegate_runner::ledger::{AppendError, RunStatus};
use tidegate_runner::schedule::core::Limits;

use crate::process::{Fleet, Process, until};
use crate::world::{World, acme, call, document};

fn enabled(is_enabled: bool) -> Value {
    let mut document = document(&json!([call("a", "POST")]));
    document["enabled"] = json!(is_enabled);
    document
}

/// 25: it says `active`, and nothing listens.
#[tokio::test(start_paused = true)]
async fn an_automation_that_says_it_is_enabled_begins_runs_after_any_edit_and_restart() {
    let world = World::new();
    let mut begins = 0;
    for (round, is_enabled) in [true, false, true, true, false, true].into_iter().enumerate() {
        world.save("acme", &enabled(is_enabled)).await;
        let process = Process::start(&world, &format!("index-{round}"), Fleet::Alone).await;
        world.deliver("acme", &json!({ "round": round }));
        begins += usize::from(is_enabled);
        until("the event", || process.admission.status().events >= 1 && process.admission.status().waiting == 0).await;
        until("its run", || world.provider.count("/a") >= begins).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.provider.count("/a"), begins, "round {round}");
        process.stop().await;
    }
}

/// 25, too: what is stored and what is looked up are two things, and one of them was lost.
#[tokio::test]
async fn what_an_endpoint_begins_is_what_the_last_versions_say_also_of_an_index_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let clock = domain::SystemClock::shared();
    let settings = Settings { reserve_bytes: 0, ..Settings::new(directory.path()) };
    let id = AutomationId::from_bytes([1; 16]);
    let endpoint = domain::EndpointId::parse("wh_1").unwrap();
    for (version, is_enabled) in (1..).zip([true, false, true, false, true]) {
        let (store, _) = EmbeddedDefinitions::open(&settings, Arc::clone(&clock)).unwrap();
        let draft = Draft::read(&enabled(is_enabled).to_string(), Format::Json).unwrap();
        let version = Version::new(version).unwrap();
        store.put(draft.into_stored(acme(), id, version, 1, "ann")).await.unwrap();
        drop(store);
        if version.get().is_multiple_of(2) {
            std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        }
        let (store, opened) = EmbeddedDefinitions::open(&settings, Arc::clone(&clock)).unwrap();
        assert!(version.get() % 2 == 1 || opened.read >= u64::from(version.get()), "{opened:?}");
        let begins = store.triggered_by(&acme(), &endpoint).await.unwrap();
        let wanted = if is_enabled { vec![(id, version)] } else { Vec::new() };
        assert_eq!(begins, wanted, "version {version}");
    }
}

/// 26: a limit was reached, and what came then was dropped without a word.
#[tokio::test(start_paused = true)]
async fn an_event_that_finds_no_room_waits_and_none_is_dropped() {
    let world = World::new();
    world.save("acme", &document(&json!([call("a", "POST")]))).await;
    world.provider.takes(Duration::from_millis(20));
    for _ in 0..30 {
        world.memory.next(Fault::Refuse(AppendError::Full));
    }
    // Four runs may wait in memory.
    let limits = Limits { queued_max: 4, parked_max: 4, ..Limits::of_slots(2) };
    let process = Process::start_with(&world, "index", Fleet::Alone, limits).await;
    for n in 0..150 {
        world.deliver("acme", &json!({ "n": n }));
    }
    until("all runs", || world.provider.count("/a") >= 150).await;
    let calls = world.provider.calls();
    let process = &process;
    for made in &calls {
        process.once(&world, made.run, RunStatus::Succeeded).await;
    }
    let mut runs: Vec<_> = calls.iter().map(|made| made.run).collect();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!((runs.len(), calls.len()), (150, 150));
    let (status, counts) = (process.admission.status(), process.scheduler.snapshot().counts);
    assert!(status.failures > 0, "that the ledger was full is counted: {status:?}");
    assert!(counts.left_out > 0, "it was more than fits: {counts:?}");
    assert_eq!(status.begun.runs, 150);
}
