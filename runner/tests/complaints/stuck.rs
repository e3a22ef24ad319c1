//! Runs that stand still and cannot be ended.

use std::sync::Arc;
use std::time::Duration;

use eventlog::EventLog;
use serde_json::{Value, json};
use tidegate_runner::engine::{Duplicate, Engine};
use tidegate_runner::index::RepairWhy;
use tidegate_runner::ledger::{Body, Kept, ParkReason, RunStatus};
use tidegate_runner::schedule::core::Limits;
use tidegate_runner::schedule::{Ended, Queue};

use crate::process::{Fleet, Process, until};
use crate::provider::{not_before, response, silence};
use crate::world::{World, acme, call, document, step, with};

fn paced(world: &World) -> u64 {
    world.clock.unix_ms() + 60_000
}

/// 15: it is `running` for ever, and no node is executed.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_admitted_and_never_handed_in_is_found_and_done() {
    let world = World::new();
    let run = world.run(&json!([call("a", "POST")])).await;
    // Whoever admitted it was lost before it came to more, and its event is not read again.
    world.log.groups().commit("runner", &world.log.durable()).unwrap();
    let process = Process::start(&world, "index", Fleet::Alone).await;
    process.once(&world, run, RunStatus::Succeeded).await;
    assert_eq!((world.provider.count("/a"), process.admission.status().events), (1, 0));
}

/// 16: it is still `running` when its time is long over.
#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_run_whatever_its_provider_does() {
    for (method, ends) in [("GET", RunStatus::TimedOut), ("POST", RunStatus::EndedAmbiguous)] {
        let world = World::new();
        let mut document = document(&json!([with(call("a", method), json!({ "timeoutMs": 600_000 }))]));
        document["deadlineMs"] = json!(60_000);
        let run = world.run_of("acme", &document, &json!({})).await;
        world.provider.answers_after("/a", Duration::from_hours(1), [response(200, "{}")]);
        let began = tokio::time::Instant::now();
        let state = world.to_the_end(&world.engine("one"), run).await;
        assert_eq!(state.status(), ends, "{method}");
        assert!(began.elapsed() <= Duration::from_secs(61), "{method}: {:?}", began.elapsed());
    }
}

/// 17: it cannot be cancelled.
#[tokio::test(start_paused = true)]
async fn a_cancellation_ends_a_run_however_it_stands() {
    type Prepare = fn(&World);
    let delay = || json!([{ "id": "a", "type": "delay", "for": "3d" }]);
    let standing: [(&str, Value, Prepare, RunStatus); 6] = [
        ("queued", json!([call("a", "POST")]), |_| {}, RunStatus::Queued),
        ("in a delay", delay(), |_| {}, RunStatus::Parked),
        (
            "before a retry",
            json!([call("a", "PUT")]),
            |it| it.provider.answers("/a", [response(500, "")]),
            RunStatus::Parked,
        ),
        (
            "put off",
            json!([call("a", "POST")]),
            |it| it.provider.answers("/a", [not_before(paced(it))]),
            RunStatus::Parked,
        ),
        (
            "in doubt",
            json!([call("a", "POST")]),
            |it| it.provider.answers("/a", [silence()]),
            RunStatus::NeedsAttention,
        ),
        (
            "of a dead connection",
            json!([call("a", "POST")]),
            |it| it.provider.answers("/a", [response(401, "{}")]),
            RunStatus::NeedsAttention,
        ),
    ];
    for (name, nodes, prepare, status) in standing {
        let world = World::new();
        prepare(&world);
        let run = world.run(&nodes).await;
        let engine = world.engine("one");
        if status != RunStatus::Queued {
            world.turn(&engine, run).await;
        }
        assert_eq!(world.status(run).await, status, "{name}");
        let calls = world.provider.calls().len();
        world.acts().cancel(&acme(), run, "ann").await.unwrap();
        assert_eq!(world.turn(&engine, run).await, Ended::Terminal, "{name}");
        assert_eq!(world.terminal(run).await.status, RunStatus::Cancelled, "{name}");
        assert_eq!(world.provider.calls().len(), calls, "{name}");
    }
}

/// 17, too: not while it waits for an answer, nor when it was set aside.
#[tokio::test(start_paused = true)]
async fn a_cancellation_reaches_a_call_under_way_and_a_run_in_quarantine() {
    let world = World::new();
    let run = world.run(&json!([with(call("a", "POST"), json!({ "timeoutMs": 600_000 }))])).await;
    world.provider.answers_after("/a", Duration::from_mins(9), [response(200, "{}")]);
    let (engine, began) = (world.engine("one"), tokio::time::Instant::now());
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.acts().cancel(&acme(), run, "ann").await.unwrap();
        world.nudges.send_modify(|nudge| *nudge += 1);
    };
    let (ended, ()) = tokio::join!(world.turn(&engine, run), cancel);
    assert_eq!((ended, world.terminal(run).await.status), (Ended::Terminal, RunStatus::Cancelled));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());

    let poison = World::new();
    let run = poison.run(&json!([call("a", "PUT")])).await;
    poison.provider.takes(Duration::from_secs(5));
    for _ in 0..5 {
        assert_eq!(poison.lost_after(&engine_of(&poison), run, 1_000).await, None);
    }
    poison.turn(&engine_of(&poison), run).await;
    assert_eq!(poison.status(run).await, RunStatus::Quarantined);
    poison.acts().cancel(&acme(), run, "ann").await.unwrap();
    poison.turn(&engine_of(&poison), run).await;
    assert_eq!(poison.terminal(run).await.status, RunStatus::Cancelled);
}

fn engine_of(world: &World) -> Arc<Engine> {
    world.engine("one")
}

/// 18: it is `running` for two days.
#[tokio::test(start_paused = true)]
async fn a_provider_that_never_answers_holds_a_worker_no_longer_than_the_nodes_timeout() {
    let world = World::new();
    let run = world.run(&json!([call("a", "POST")])).await;
    world.provider.answers_after("/a", Duration::from_hours(48), [response(200, "{}")]);
    let began = tokio::time::Instant::now();
    world.turn(&world.engine("one"), run).await;
    // 30 s, and the grace in which whatever is between should have ended it.
    assert!(began.elapsed() <= Duration::from_secs(36), "{:?}", began.elapsed());
    assert_eq!(world.status(run).await, RunStatus::NeedsAttention);
}

/// 19: "kill stuck flows": nobody can find and end what stands still.
#[tokio::test(start_paused = true)]
async fn what_stands_still_is_listed_with_its_reason_and_can_be_ended_from_the_list() {
    let world = World::new();
    world.provider.answers("/a", std::iter::repeat_n(silence(), 3));
    world.save("acme", &document(&json!([call("a", "POST")]))).await;
    let process = Process::start(&world, "index", Fleet::Alone).await;
    for n in 0..3 {
        world.deliver("acme", &json!({ "n": n }));
    }
    until("three calls", || world.provider.count("/a") == 3).await;
    for made in world.provider.calls() {
        process.once(&world, made.run, RunStatus::NeedsAttention).await;
    }
    process.index.caught_up(Duration::from_secs(10)).await;
    let inbox = process.index.repair_inbox(&acme()).await.unwrap();
    let [group] = &inbox.groups[..] else { panic!("{inbox:?}") };
    assert_eq!((group.why, group.count, &group.step), (RepairWhy::Parked(ParkReason::Ambiguous), 3, &Some(step("a"))));
    for run in group.oldest.clone() {
        process.acts.cancel(&acme(), run, "ann").await.unwrap();
        process.once(&world, run, RunStatus::Cancelled).await;
    }
    process.index.caught_up(Duration::from_secs(10)).await;
    assert!(process.index.repair_inbox(&acme()).await.unwrap().groups.is_empty());
}

/// 20: what is tried again from the failed step stays `queued`.
#[tokio::test(start_paused = true)]
async fn a_failed_node_that_is_asked_for_again_is_done_at_once() {
    let world = World::new();
    world.provider.answers("/b", [response(422, "{}")]);
    let process = Process::start(&world, "index", Fleet::Alone).await;
    world.save("acme", &document(&json!([call("a", "POST"), call("b", "POST"), call("c", "POST")]))).await;
    world.deliver("acme", &json!({}));
    until("the failure", || world.provider.count("/b") == 1).await;
    let run = world.provider.calls()[0].run;
    process.once(&world, run, RunStatus::Failed).await;
    let began = tokio::time::Instant::now();
    process.acts.rerun(&acme(), run, &step("b"), None, Duplicate::Accepted, "ann").await.unwrap();
    process.once(&world, run, RunStatus::Succeeded).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(world.provider.called(), ["/a", "/b", "/b", "/c"]);
}

/// 22: all runs are stuck behind workers that are gone.
#[tokio::test(start_paused = true)]
async fn a_worker_that_crashes_gives_its_slot_back_and_its_run_is_gone_on_with() {
    let world = World::new();
    world.provider.panics("/a", 2);
    let process = Process::start_with(&world, "index", Fleet::Alone, Limits::of_slots(1)).await;
    let crashing = world.run(&json!([call("a", "PUT")])).await;
    process.scheduler.enqueue(acme(), crashing, tidegate_runner::ledger::QueueClass::Interactive);
    until("the crash", || process.scheduler.snapshot().turns.crashed > 0).await;
    let mut other = document(&json!([call("b", "POST")]));
    other["name"] = json!("other");
    let other = world.run_of("acme", &other, &json!({})).await;
    process.scheduler.enqueue(acme(), other, tidegate_runner::ledger::QueueClass::Interactive);
    process.once(&world, other, RunStatus::Succeeded).await;
    process.once(&world, crashing, RunStatus::Succeeded).await;
    assert_eq!((world.provider.count("/a"), world.provider.count("/b")), (3, 1));
}

/// 23: a run cannot be ended, for its history has become too large for one transaction.
#[tokio::test(start_paused = true)]
async fn a_run_with_megabytes_of_history_is_cancelled_like_any_other() {
    let world = World::new();
    let large = "x".repeat(3_900);
    let retry = json!({ "maxAttempts": 100, "backoffMs": 100, "maxBackoffMs": 100 });
    let node = |n: usize| {
        let more = json!({ "after": [], "body": { "n": n, "text": large }, "retryPolicy": retry });
        with(call(&format!("n{n}"), "PUT"), more)
    };
    let nodes: Vec<Value> = (0..15).map(node).collect();
    for n in 0..15 {
        world.provider.answers(&format!("/n{n}"), std::iter::repeat_n(response(500, "{}"), 200));
    }
    let run = world.run(&json!(nodes)).await;
    let engine = world.engine("one");
    while world.provider.calls().len() < 1_200 {
        world.turn(&engine, run).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let bytes: usize = world.records(run).await.iter().map(|record| sent(&record.body)).sum();
    assert!(bytes > 4 << 20, "{bytes}");
    world.acts().cancel(&acme(), run, "ann").await.unwrap();
    assert_eq!(world.turn(&engine, run).await, Ended::Terminal);
    assert_eq!(world.terminal(run).await.status, RunStatus::Cancelled);
    let view = serde_json::to_vec(&world.view(run).await).unwrap();
    assert!(view.len() < 2 << 20, "{}", view.len());
}

fn sent(body: &Body) -> usize {
    match body {
        Body::Intent(intent) => match &intent.input.kept {
            Kept::Inline(bytes) => bytes.len(),
            Kept::Stored | Kept::Truncated(_) | Kept::Beginning(_) | Kept::Expired => 0,
        },
        Body::Admitted(_)
        | Body::Lease(_)
        | Body::Outcome(_)
        | Body::LateOutcome(_)
        | Body::Parked(_)
        | Body::Released(_)
        | Body::Resolved(_)
        | Body::Rerun(_)
        | Body::CancelRequested(_)
        | Body::Quarantined(_)
        | Body::Terminal(_)
        | Body::Dismissed(_) => 0,
    }
}

/// 24: what is lost between two steps is reaped, and has to be recovered by hand.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_lost_between_two_steps_costs_nobody_anything() {
    let (mut between, mut within) = (0, 0);
    for ms in (0..90).step_by(3) {
        let world = World::new();
        world.provider.takes(Duration::from_millis(10));
        let made = json!({ "id": "t", "type": "transform", "value": "${steps.a.status}" });
        let wait = json!({ "id": "wait", "type": "delay", "for": "1s" });
        let run = world.run(&json!([call("a", "POST"), made, wait, call("b", "POST")])).await;
        let engine = world.engine("lost");
        let ended = world.lost_after(&engine, run, ms).await;
        if matches!(ended, Some(Ended::Parked { .. })) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            world.lost_after(&engine, run, ms % 20).await;
        }
        let is_within = world.provider.is_busy();
        let state = world.to_the_end(&world.engine("next"), run).await;
        // Only where nobody can know whether it has happened is somebody asked.
        let wanted = if is_within { RunStatus::NeedsAttention } else { RunStatus::Succeeded };
        assert_eq!(state.status(), wanted, "lost after {ms} ms");
        assert!(world.provider.count("/a") == 1 && world.provider.count("/b") <= 1, "lost after {ms} ms");
        if is_within { within += 1 } else { between += 1 }
    }
    assert!(between > 5 && within > 2, "{between} between, {within} within a call");
}
