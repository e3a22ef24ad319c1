//! Credentials that die. Refreshing them is not the runner's; what it does when one is dead is.

use std::time::Duration;

use serde_json::json;
use tidegate_runner::automation::{ConnectionState, DefinitionStore};
use tidegate_runner::engine::Notice;
use tidegate_runner::ids::RunId;
use tidegate_runner::ledger::memory::Fault;
use tidegate_runner::ledger::{Body, RunStatus};
use tidegate_runner::schedule::Ended;

use crate::process::{Fleet, Process, until};
use crate::provider::response;
use crate::world::{API, World, acme, call, connection, document, with};

const REVOKED: &str = "{\"message\":\"token revoked\"}";

async fn world_with(events: u32) -> (World, Process) {
    let world = World::new();
    world.save("acme", &document(&json!([call("a", "POST")]))).await;
    let process = Process::start(&world, "index", Fleet::Alone).await;
    for n in 0..events {
        world.deliver("acme", &json!({ "n": n }));
    }
    (world, process)
}

/// 35: parallel runs burn a credential between them.
#[tokio::test(start_paused = true)]
async fn a_dead_credential_is_found_out_by_one_run_and_tried_by_no_later_one() {
    let (world, process) = world_with(1).await;
    world.provider.answers("/a", [response(401, REVOKED)]);
    until("the call", || world.provider.count("/a") == 1).await;
    process.once(&world, world.provider.calls()[0].run, RunStatus::NeedsAttention).await;
    for n in 0..30 {
        world.deliver("acme", &json!({ "n": n }));
    }
    until("parked", || process.scheduler.snapshot().turns.parked >= 31).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.provider.count("/a"), 1);
    let intents = world.memory.records().iter().filter(|record| matches!(record.body, Body::Intent(_))).count();
    assert_eq!(intents, 1, "no call, and none that was meant to be");
}

/// 36: it was dead for a day, and nobody was told why.
#[tokio::test(start_paused = true)]
async fn of_a_dead_connection_somebody_is_told_once_and_every_run_says_why_it_waits() {
    let (world, process) = world_with(10).await;
    // All of them at once: each is told no.
    world.provider.answers_after("/a", Duration::from_secs(1), std::iter::repeat_n(response(401, REVOKED), 10));
    until("ten calls", || world.provider.count("/a") == 10).await;
    for made in world.provider.calls() {
        process.once(&world, made.run, RunStatus::NeedsAttention).await;
        let view = world.view(made.run).await;
        assert!(view.summary.contains("conn_api"), "{}", view.summary);
        assert_eq!((&*view.next[0].act, view.next[0].connection.as_deref()), ("reconnect", Some(API)));
        assert_eq!(view.nodes[0].provider_message.as_deref(), Some("token revoked"));
    }
    let notices = world.notices();
    let [Notice::NeedsReconnect { connection: of, reason, .. }] = &notices[..] else { panic!("{notices:?}") };
    assert!(of.as_str() == API && reason.contains("token revoked"), "{reason}");
    let dead = world.definitions.needing_reconnect(&acme()).await.unwrap();
    assert_eq!(dead.len(), 1);
}

/// 37: a connection is marked as invalid, and never taken off that list.
#[tokio::test(start_paused = true)]
async fn a_connection_that_works_again_is_no_longer_marked_and_its_runs_go_on() {
    let (world, process) = world_with(10).await;
    world.provider.answers_after("/a", Duration::from_secs(1), std::iter::repeat_n(response(401, REVOKED), 10));
    until("ten calls", || world.provider.count("/a") == 10).await;
    let runs: Vec<RunId> = world.provider.calls().iter().map(|made| made.run).collect();
    for run in &runs {
        process.once(&world, *run, RunStatus::NeedsAttention).await;
    }
    assert_eq!(process.acts.reconnected(&acme(), &connection(API), &runs, "ann").await, Ok(10));
    for run in &runs {
        process.once(&world, *run, RunStatus::Succeeded).await;
    }
    let state = world.definitions.connection_state(&acme(), &connection(API)).await.unwrap();
    assert_eq!((state, world.provider.count("/a")), (ConnectionState::Connected, 20));
    // Dead once more, it is told once more.
    world.provider.answers("/a", [response(401, REVOKED)]);
    world.deliver("acme", &json!({}));
    until("a second notice", || world.notices().len() == 2).await;
}

/// 37, too: whoever comes to wait in the moment in which it was connected anew waits for nothing.
#[tokio::test(start_paused = true)]
async fn a_run_that_comes_to_wait_while_its_connection_is_made_anew_does_not_wait_for_ever() {
    let world = World::new();
    let dead = ConnectionState::NeedsReconnect { since_unix_ms: 1, reason: "revoked".into() };
    world.definitions.set_connection_state(&acme(), &connection(API), dead).await.unwrap();
    let run = world.run(&json!([call("a", "POST")])).await;
    // It has asked, and what it says is on its way to the ledger.
    world.memory.next(Fault::Late(Duration::from_secs(2)));
    let engine = world.engine("one");
    let anew = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // No list has it among those that wait.
        assert_eq!(world.acts().reconnected(&acme(), &connection(API), &[], "ann").await, Ok(0));
    };
    let (ended, ()) = tokio::join!(world.turn(&engine, run), anew);
    let Ended::Parked { until_unix_ms: Some(until), .. } = ended else { panic!("{ended:?}") };
    assert!(until <= world.clock.unix_ms() + 60_000, "it waits until {until}, its deadline");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.to_the_end(&engine, run).await.status(), RunStatus::Succeeded);
}

/// 38: a stale token is used for ever, and connecting anew does not help.
#[tokio::test(start_paused = true)]
async fn a_run_has_no_credential_that_could_grow_stale() {
    let world = World::new();
    let run = world.run(&json!([call("a", "POST"), call("b", "POST")])).await;
    world.provider.answers("/b", [response(401, REVOKED)]);
    let engine = world.engine("one");
    assert_eq!(world.to_the_end(&engine, run).await.status(), RunStatus::NeedsAttention);
    world.acts().reconnected(&acme(), &connection(API), &[run], "ann").await.unwrap();
    assert_eq!(world.to_the_end(&engine, run).await.status(), RunStatus::Succeeded);
    assert_eq!(world.provider.called(), ["/a", "/b", "/b"], "what was done is not done again for it");
    let secret = ["authorization", "cookie", "proxy-authorization", "x-api-key"];
    for made in world.provider.calls() {
        assert!(!made.headers.iter().any(|name| secret.contains(&name.as_str())), "{:?}", made.headers);
    }
    // Nor can its author keep one in it.
    for name in ["Authorization", "cookie"] {
        let own = with(call("a", "POST"), json!({ "headers": { name: "Bearer mine" } }));
        let refused = world.try_save("acme", &document(&json!([own]))).await.unwrap_err();
        assert!(refused.to_string().contains("credential"), "{refused}");
    }
}
