//! What an edit changes, what a run may come to, and who is told.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_runner::engine::{ActError, Duplicate, Notice};
use tidegate_runner::failure::FailureClass;
use tidegate_runner::ledger::RunStatus;

use crate::process::{Fleet, Process, until};
use crate::provider::{response, silence};
use crate::world::{World, acme, call, document, step, with};

/// 43: the old definition goes on being executed after an edit.
#[tokio::test(start_paused = true)]
async fn an_edit_holds_for_the_next_event_and_a_run_ends_as_it_began() {
    let world = World::new();
    let of = |word: &str| {
        let wait = json!({ "id": "wait", "type": "delay", "for": "1h" });
        let end = with(call("b", "POST"), json!({ "body": { "word": word } }));
        document(&json!([call("a", "POST"), wait, end]))
    };
    world.save("acme", &of("old")).await;
    let process = Process::start(&world, "index", Fleet::Alone).await;
    world.deliver("acme", &json!({}));
    until("the first run", || world.provider.count("/a") == 1).await;
    world.save("acme", &of("new")).await;
    world.deliver("acme", &json!({}));
    until("the second run", || world.provider.count("/a") == 2).await;
    tokio::time::sleep(Duration::from_hours(2)).await;
    let calls = world.provider.calls();
    let words = |at: usize| calls.iter().find(|made| made.path == "/b" && made.run == calls[at].run).map(|it| &it.body);
    assert_eq!((words(0), words(1)), (Some(&json!({ "word": "old" })), Some(&json!({ "word": "new" }))));
    assert_eq!((world.view(calls[0].run).await.version, world.view(calls[1].run).await.version), (1, 2));
    drop(process);
}

/// 43: whatever ran out of its tries is reported as a success.
#[tokio::test(start_paused = true)]
async fn a_run_that_ran_out_of_tries_has_failed_and_says_of_what() {
    let world = World::new();
    let run = world.run(&json!([call("a", "PUT"), call("b", "POST")])).await;
    world.provider.answers("/a", std::iter::repeat_n(response(503, "{\"message\":\"no capacity\"}"), 9));
    world.to_the_end(&world.engine("one"), run).await;
    let terminal = world.terminal(run).await;
    assert_eq!((terminal.status, terminal.class), (RunStatus::Failed, Some(FailureClass::AttemptsExhausted)));
    assert_eq!((terminal.failed_at, world.provider.count("/b")), (Some(step("a")), 0));
    let view = world.view(run).await;
    assert!(view.summary.contains("no capacity") && view.status == "failed", "{}", view.summary);
    assert_eq!(view.nodes[1].status, "not-reached");
}

/// 43: some two thousand paid calls of one run, and no ceiling.
#[tokio::test(start_paused = true)]
async fn a_run_makes_no_more_calls_than_its_document_has_and_its_tries_allow() {
    let world = World::new();
    let many: Vec<Value> = (0..201).map(|n| call(&format!("n{n}"), "POST")).collect();
    world.try_save("acme", &document(&json!(many))).await.unwrap_err();
    let run = world.run(&json!([with(call("a", "PUT"), json!({ "retryPolicy": { "maxAttempts": 3 } }))])).await;
    world.provider.answers("/a", std::iter::repeat_n(response(500, "{}"), 5_000));
    let engine = world.engine("one");
    world.to_the_end(&engine, run).await;
    assert_eq!(world.provider.count("/a"), 3);
    // Asking for it again has an end, too.
    let mut askings = 1;
    let refused = loop {
        match world.acts().rerun(&acme(), run, &step("a"), None, Duplicate::Accepted, "ann").await {
            Ok(()) => askings += 1,
            Err(why) => break why,
        }
        world.to_the_end(&engine, run).await;
    };
    assert_eq!((refused, askings, world.provider.count("/a")), (ActError::TooOften, 100, 300));
}

/// 43: it was paused, and nobody was told.
#[tokio::test(start_paused = true)]
async fn whatever_waits_for_somebody_tells_somebody_and_tells_it_once() {
    let world = World::new();
    let (id, version) = world.save("acme", &document(&json!([call("a", "POST"), call("b", "PUT")]))).await;
    let admit = || async { world.admit("acme", id, version, world.deliver("acme", &json!({}))).await };
    let engine = world.engine("one");

    let in_doubt = admit().await;
    world.provider.answers("/a", [silence()]);
    for _ in 0..5 {
        world.turn(&engine, in_doubt).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    let told = world.notices();
    assert!(matches!(&told[..], [Notice::Ambiguous { run, .. }] if *run == in_doubt), "{told:?}");

    let poison = admit().await;
    world.provider.answers_after("/b", Duration::from_secs(9), std::iter::repeat_n(response(200, "{}"), 5));
    for _ in 0..5 {
        assert_eq!(world.lost_after(&engine, poison, 1_000).await, None);
    }
    for _ in 0..5 {
        world.turn(&engine, poison).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    let told = &world.notices()[1..];
    assert!(matches!(told, [Notice::Quarantined { run, .. }] if *run == poison), "{told:?}");

    let dead = admit().await;
    world.provider.answers("/a", [response(401, "{}")]);
    for _ in 0..5 {
        world.turn(&engine, dead).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    let told = &world.notices()[2..];
    assert!(matches!(told, [Notice::NeedsReconnect { run, .. }] if *run == dead), "{told:?}");
    // Each says what to do, wherever it is looked at.
    for (run, act) in [(in_doubt, "resolve"), (poison, "release"), (dead, "reconnect")] {
        assert_eq!(world.view(run).await.next[0].act, act);
    }
}
