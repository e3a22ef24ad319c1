//! Runs and steps that happen twice, after crashes, on slow machines, by races.

use std::sync::Arc;
use std::time::Duration;

use eventlog::{Cursor, EventLog};
use serde_json::json;
use tidegate_runner::engine::{RunState, Settled};
use tidegate_runner::failure::FailureClass;
use tidegate_runner::ids::RunId;
use tidegate_runner::ledger::memory::Fault;
use tidegate_runner::ledger::{Body, RunStatus, StepResult};
use tidegate_runner::schedule::{Ended, Queue};

use crate::process::{Fleet, Process, until};
use crate::provider::{response, silence};
use crate::world::{World, acme, call, document, step};

/// 1: a worker that restarts marks runs as crashed that had succeeded.
#[tokio::test]
async fn a_restart_leaves_a_run_that_succeeded_as_it_is() {
    let mut world = World::new();
    world.on_disk();
    let process = Process::start(&world, "index", Fleet::Alone).await;
    world.save("acme", &document(&json!([call("a", "POST")]))).await;
    world.deliver("acme", &json!({}));
    until("a call", || world.provider.count("/a") == 1).await;
    let run = world.provider.calls()[0].run;
    process.once(&world, run, RunStatus::Succeeded).await;
    process.kill().await;
    let before = world.records(run).await;

    world.on_disk();
    let process = Process::start(&world, "index", Fleet::Alone).await;
    until("a look at what is open", || process.scheduler.snapshot().scans > 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.records(run).await, before);
    assert_eq!((world.status(run).await, world.provider.count("/a")), (RunStatus::Succeeded, 1));
    process.stop().await;
}

/// 2: one webhook becomes two executions, some milliseconds apart.
#[tokio::test(start_paused = true)]
async fn an_event_that_two_processes_admit_begins_one_run() {
    let world = World::shared();
    let (id, version) = world.save("acme", &document(&json!([call("a", "POST")]))).await;
    let one = Process::start(&world, "one", Fleet::Shared).await;
    let other = Process::start(&world, "other", Fleet::Shared).await;
    let runs: Vec<RunId> =
        (0..20).map(|n| RunId::of_event(&acme(), id, version, world.deliver("acme", &json!({ "n": n })))).collect();
    for run in &runs {
        one.once(&world, *run, RunStatus::Succeeded).await;
    }
    until("both have read all", || [&one, &other].iter().all(|it| it.admission.status().waiting == 0)).await;
    let begun = [&one, &other].map(|it| it.admission.status().begun);
    assert_eq!(begun[0].runs + begun[1].runs, 20, "{begun:?}");
    assert_eq!(world.provider.count("/a"), 20);
    let admitted = world.memory.records().iter().filter(|it| matches!(it.body, Body::Admitted(_))).count();
    assert_eq!(admitted, 20);
}

/// 3: a trigger fires two or three times, and each time costs money.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_read_again_from_its_beginning_pays_for_nothing_twice() {
    let world = World::new();
    world.save("acme", &document(&json!([call("a", "POST")]))).await;
    for n in 0..10 {
        world.deliver("acme", &json!({ "n": n }));
    }
    for round in 0..3 {
        world.log.groups().commit("runner", &Cursor::default()).unwrap();
        let process = Process::start(&world, &format!("index-{round}"), Fleet::Alone).await;
        until("all of it", || process.admission.status().events == 10 && process.admission.status().waiting == 0).await;
        until("calls", || world.provider.count("/a") == 10).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        process.stop().await;
    }
    assert_eq!(world.provider.count("/a"), 10);
}

/// 4: the queue and the recovery both act on one crash.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_found_by_two_recoveries_is_gone_on_with_once() {
    let world = World::shared();
    let run = world.run(&json!([call("a", "PUT"), call("b", "POST")])).await;
    world.provider.answers_after("/a", Duration::from_secs(5), [response(200, "{}"), response(200, "{}")]);
    assert_eq!(world.lost_after(&world.engine("lost"), run, 1_000).await, None);
    let one = Process::start(&world, "one", Fleet::Shared).await;
    let other = Process::start(&world, "other", Fleet::Shared).await;
    // And somebody hands it in besides, as often as they like.
    for _ in 0..50 {
        for process in [&one, &other] {
            process.scheduler.enqueue(acme(), run, tidegate_runner::ledger::QueueClass::Retry);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    one.once(&world, run, RunStatus::Succeeded).await;
    assert_eq!(world.provider.called(), ["/a", "/a", "/b"], "once for the lost worker, and once more");
    assert_eq!(world.provider.most_at("/a"), 1);
}

/// 5: what resumes after a wait begins again from the start.
#[tokio::test(start_paused = true)]
async fn a_delay_that_is_over_repeats_nothing_before_it() {
    let world = World::new();
    let wait = json!({ "id": "wait", "type": "delay", "for": "3d" });
    let run = world.run(&json!([call("a", "POST"), wait, call("b", "POST")])).await;
    let first = world.engine("first");
    assert!(matches!(world.turn(&first, run).await, Ended::Parked { .. }));
    drop(first);
    // Other processes look at it before its time.
    for hour in 0..5 {
        tokio::time::sleep(Duration::from_hours(1)).await;
        world.turn(&world.engine(&format!("early-{hour}")), run).await;
    }
    assert_eq!(world.provider.called(), ["/a"]);
    let state = world.to_the_end(&world.engine("last"), run).await;
    assert_eq!(state.status(), RunStatus::Succeeded);
    assert_eq!(world.provider.called(), ["/a", "/b"]);
}

/// 6: the same step is executed twice when the engine was restarted.
#[tokio::test]
async fn a_step_that_is_done_is_not_done_again_by_the_next_process() {
    let mut world = World::new();
    world.on_disk();
    let run = world.run(&json!([call("a", "POST"), call("b", "PUT"), call("c", "POST")])).await;
    // Three processes go down in the middle of `b`.
    world.provider.answers_after("/b", Duration::from_mins(1), std::iter::repeat_n(response(200, "{}"), 3));
    for life in 0..3 {
        world.lost_at(&world.engine(&format!("life {life}")), run, "/b", life + 1).await;
        world.on_disk();
    }
    let state = world.to_the_end(&world.engine("last"), run).await;
    assert_eq!(state.status(), RunStatus::Succeeded);
    assert_eq!(world.provider.called(), ["/a", "/b", "/b", "/b", "/b", "/c"]);
}

/// 7: a step that timed out is executed a second time, beside the first.
#[tokio::test(start_paused = true)]
async fn a_step_that_timed_out_is_repeated_only_where_that_does_it_once() {
    for (method, calls, ends) in [("POST", 1, RunStatus::NeedsAttention), ("PUT", 2, RunStatus::Succeeded)] {
        let world = World::new();
        let run = world.run(&json!([call("a", method)])).await;
        world.provider.answers_after("/a", Duration::from_secs(31), [silence()]);
        let state = world.to_the_end(&world.engine("one"), run).await;
        assert_eq!((state.status(), world.provider.count("/a")), (ends, calls), "{method}");
        assert_eq!(world.provider.most_at("/a"), 1, "{method}");
    }
}

/// 8: a task stays assigned to a worker that is gone.
#[tokio::test(start_paused = true)]
async fn a_run_whose_worker_is_gone_is_taken_by_another_process_when_its_lease_lapses() {
    let world = World::shared();
    let run = world.run(&json!([call("a", "PUT"), call("b", "POST")])).await;
    world.provider.answers_after("/a", Duration::from_hours(1), [response(200, "{}")]);
    let other = Process::start(&world, "other", Fleet::Shared).await;
    let began = tokio::time::Instant::now();
    assert_eq!(world.lost_after(&world.engine("lost"), run, 1_000).await, None);
    other.once(&world, run, RunStatus::Succeeded).await;
    // The lease is 30 s, and whoever looks for such runs does so each second; then comes the backoff of one retry.
    assert!(began.elapsed() < Duration::from_secs(36), "{:?}", began.elapsed());
    assert_eq!(world.provider.called(), ["/a", "/a", "/b"]);
}

/// 9: a worker is slow and not dead: the step runs again, and its success is recorded as a failure.
#[tokio::test(start_paused = true)]
async fn the_success_of_a_slow_worker_is_kept_and_counts() {
    let world = Arc::new(World::new());
    let run = world.run(&json!([call("a", "POST"), call("b", "POST")])).await;
    world.provider.answers_after("/a", Duration::from_secs(20), [response(200, "{\"paid\":true}")]);
    let slow = {
        let (world, engine) = (Arc::clone(&world), world.engine("slow"));
        tokio::spawn(async move { world.turn(&engine, run).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quick = world.engine("quick");
    assert_eq!(world.to_the_end(&quick, run).await.status(), RunStatus::NeedsAttention, "it cannot know");
    assert_eq!(slow.await.unwrap(), Ended::Fenced);
    let late = |body: &Body| matches!(body, Body::LateOutcome(late) if matches!(late.result, StepResult::Done { .. }));
    assert!(world.records(run).await.iter().any(|record| late(&record.body)));
    assert_eq!(world.to_the_end(&quick, run).await.status(), RunStatus::Succeeded);
    assert_eq!(world.provider.called(), ["/a", "/b"]);
}

/// 10: what recovers at a launch executes a run again that somebody is working on.
#[tokio::test(start_paused = true)]
async fn recovery_at_a_start_leaves_alone_what_another_process_works_on() {
    let world = World::shared();
    world.save("acme", &document(&json!([call("a", "POST"), call("b", "POST")]))).await;
    world.provider.answers_after("/a", Duration::from_secs(25), [response(200, "{}")]);
    let one = Process::start(&world, "one", Fleet::Shared).await;
    world.deliver("acme", &json!({}));
    until("a call", || world.provider.count("/a") == 1).await;
    let run = world.provider.calls()[0].run;
    for launch in 0..3 {
        let other = Process::start(&world, &format!("launch-{launch}"), Fleet::Shared).await;
        other.scheduler.enqueue(acme(), run, tidegate_runner::ledger::QueueClass::Retry);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(world.status(run).await, RunStatus::Running);
        other.kill().await;
    }
    one.once(&world, run, RunStatus::Succeeded).await;
    assert_eq!(world.provider.called(), ["/a", "/b"]);
    let leases = world.records(run).await.iter().filter(|it| matches!(it.body, Body::Lease(_))).count();
    assert_eq!(leases, 1, "nobody has taken it from whom it was");
}

/// 11: the loser of a race keeps running, or puts its own error in place of what happened.
#[tokio::test(start_paused = true)]
async fn the_loser_of_a_race_does_nothing_more_and_hides_nothing() {
    let world = World::shared();
    let run = world.run(&json!([call("a", "POST"), call("b", "POST")])).await;
    world.provider.answers("/b", [response(422, "{\"message\":\"no such account\"}")]);
    let (one, other) = (world.engine("one"), world.engine("other"));
    let (first, second) = tokio::join!(world.turn(&one, run), world.turn(&other, run));
    let lost = [&first, &second].iter().filter(|ended| ***ended == Ended::Fenced).count();
    assert_eq!(lost, 1, "{first:?} and {second:?}");
    assert_eq!(world.provider.called(), ["/a", "/b"]);
    let terminal = world.terminal(run).await;
    assert_eq!((terminal.status, terminal.class), (RunStatus::Failed, Some(FailureClass::InvalidRequest)));
    let view = world.view(run).await;
    assert!(view.summary.contains("no such account"), "{}", view.summary);
}

/// 12: steps side by side are executed several times.
#[tokio::test(start_paused = true)]
async fn steps_side_by_side_are_each_done_once_however_often_the_worker_is_woken() {
    let world = World::new();
    let ids: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
    let mut nodes: Vec<_> = ids.iter().map(|id| crate::world::with(call(id, "POST"), json!({ "after": [] }))).collect();
    nodes.push(crate::world::with(call("join", "POST"), json!({ "after": ids })));
    let run = world.run(&json!(nodes)).await;
    for (n, id) in (0..).zip(&ids) {
        world.provider.answers_after(&format!("/{id}"), Duration::from_millis(100 + 37 * n), [response(200, "{}")]);
    }
    let engine = world.engine("one");
    let wake = async {
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            world.nudges.send_modify(|nudge| *nudge += 1);
        }
    };
    let (state, ()) = tokio::join!(world.to_the_end(&engine, run), wake);
    assert_eq!(state.status(), RunStatus::Succeeded);
    let mut called = world.provider.called();
    assert_eq!(called.pop().as_deref(), Some("/join"));
    called.sort();
    called.dedup();
    assert_eq!((called.len(), world.provider.calls().len()), (12, 13));
}

/// 13: one attempt is delivered twice to one worker, which sends heartbeats for hours.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_handed_in_again_and_again_has_one_worker_and_leaves_no_trail() {
    let world = World::new();
    let process = Process::start(&world, "one", Fleet::Alone).await;
    world.provider.answers_after("/a", Duration::from_secs(20), [response(200, "{}")]);
    let run = world.run(&json!([call("a", "POST")])).await;
    for _ in 0..1_000 {
        process.scheduler.enqueue(acme(), run, tidegate_runner::ledger::QueueClass::Interactive);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.once(&world, run, RunStatus::Succeeded).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((world.provider.count("/a"), world.provider.most_at("/a")), (1, 1));
    assert_eq!(world.records(run).await.len(), 5, "admission, lease, intent, outcome, end");
    let turns = process.scheduler.snapshot().turns;
    assert!(turns.terminal <= 2 && turns.fenced == 0, "{turns:?}");
}

/// 14: a machine under load plays dead, and two do the same.
#[tokio::test(start_paused = true)]
async fn a_worker_that_stood_still_for_longer_than_its_lease_begins_no_call() {
    let world = Arc::new(World::shared());
    let run = world.run(&json!([call("a", "POST"), call("b", "POST")])).await;
    // It hears that its intent is durable when its lease has long lapsed.
    world.memory.next(Fault::LateReply(Duration::from_secs(9)));
    let engine = {
        let mut settings = tidegate_runner::engine::Settings::new("slow");
        settings.lease = Duration::from_secs(3);
        Arc::new(tidegate_runner::engine::Engine::new(world.ports(), settings))
    };
    let slow = {
        let (world, engine) = (Arc::clone(&world), Arc::clone(&engine));
        tokio::spawn(async move { world.turn(&engine, run).await })
    };
    tokio::time::sleep(Duration::from_secs(4)).await;
    let quick = world.engine("quick");
    assert_eq!(world.to_the_end(&quick, run).await.status(), RunStatus::NeedsAttention);
    assert_eq!(slow.await.unwrap(), Ended::Fenced);
    // What it says of itself, that it has sent nothing, is what lets the run go on.
    let state: RunState = world.to_the_end(&quick, run).await;
    assert_eq!(state.status(), RunStatus::Succeeded);
    assert!(matches!(state.steps[&step("a")].settled(), Some(Settled::Done { .. })));
    assert_eq!(world.provider.called(), ["/a", "/b"]);
}
