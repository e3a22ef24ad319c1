//! Workers that are lost, that are two, or that the ledger lets down.

use std::sync::Arc;
use std::time::Duration;

use super::super::ports::Notice;
use super::super::state::Settled;
use super::super::testing::{Graph, lock, step};
use super::{Bench, failed, response, tenant};
use crate::engine::worker::Settings;
use crate::failure::FailureClass;
use crate::ledger::memory::Fault;
use crate::ledger::{AppendError, Body, RunStatus, SendState, StepResult};
use crate::ledger::{Commit, Lease, LedgerStore, Writer};
use crate::schedule::Ended;

async fn bench(class: &str) -> Bench {
    Bench::new(Graph::default().call("a", &[], class).call("b", &["a"], "unsafe").build()).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_lost_in_a_call_leaves_a_doubt() {
    for (class, called, status) in
        [("idempotent", vec!["a", "a", "b"], RunStatus::Succeeded), ("unsafe", vec!["a"], RunStatus::NeedsAttention)]
    {
        let bench = bench(class).await;
        bench.answers_after("a", Duration::from_secs(5), [response(200, "done")]);
        assert_eq!(bench.lost_after(1_000).await, None);
        assert_eq!(bench.to_the_end().await.status(), status);
        assert_eq!(bench.called(), called);
        // What our worker did is no try of the author's.
        assert_eq!(bench.calls().last().unwrap().attempt, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_of_a_call_late_is_evidence_and_clears_the_doubt_without_anybody() {
    let bench = Arc::new(bench("unsafe").await);
    bench.answers_after("a", Duration::from_secs(8), [response(200, "done")]);
    let slow = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.turn().await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A second worker takes the run: it cannot know, and asks.
    bench.to_the_end().await;
    assert_eq!(bench.state().status(), RunStatus::NeedsAttention);
    assert_eq!(slow.await.unwrap(), Ended::Fenced);
    assert!(bench.records().iter().any(|record| matches!(&record.body, Body::LateOutcome(late)
        if matches!(late.result, StepResult::Done { .. }))));
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn late_evidence_that_nothing_was_sent_lets_even_an_unsafe_step_go_on() {
    let bench = Arc::new(bench("unsafe").await);
    bench.answers_after("a", Duration::from_secs(8), [failed(SendState::NotSent, "connect-timeout")]);
    let slow = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.turn().await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.to_the_end().await;
    assert_eq!(slow.await.unwrap(), Ended::Fenced);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_loses_its_workers_is_quarantined_until_an_operator_lets_it_go_on() {
    let bench = bench("idempotent").await;
    bench.answers_after("a", Duration::from_secs(5), std::iter::repeat_n(response(200, "done"), 5));
    for _ in 0..5 {
        assert_eq!(bench.lost_after(1_000).await, None);
    }
    assert_eq!(
        bench.turn().await,
        Ended::Parked { until_unix_ms: None, class: crate::ledger::QueueClass::Interactive }
    );
    assert_eq!(bench.state().status(), RunStatus::Quarantined);
    let told = lock(&bench.tables.notices).iter().filter(|it| matches!(it, Notice::Quarantined { .. })).count();
    assert_eq!((told, bench.called().len()), (1, 5));
    // It stays so, also beyond its deadline.
    tokio::time::sleep(Duration::from_hours(3)).await;
    bench.turn().await;
    assert_eq!((bench.state().status(), bench.called().len()), (RunStatus::Quarantined, 5));
    bench.acts.release(&tenant(), bench.run, "ops").await.unwrap();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_only_after_its_intent_is_durable() {
    let bench = bench("unsafe").await;
    bench.ledger.next(Fault::LateReply(Duration::from_secs(3)));
    let (_, ()) = tokio::join!(bench.turn(), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(bench.called().is_empty(), "durable, and not known to be");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.called(), ["a", "b"]);
    });
    let refused = self::bench("unsafe").await;
    for _ in 0..8 {
        refused.ledger.next(Fault::FailBefore);
    }
    assert!(matches!(refused.turn().await, Ended::Unavailable { .. }));
    assert!(refused.called().is_empty() && refused.records().len() == 1);
    assert_eq!(refused.to_the_end().await.status(), RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_which_nobody_knows_is_found_or_written_again_and_nothing_is_lost() {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::NoReply, Fault::Late(Duration::from_secs(20))] {
        let bench = bench("unsafe").await;
        bench.answers_after("a", Duration::from_secs(1), [response(200, "done")]);
        let spoil = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            bench.ledger.next(fault.clone());
        };
        let (_, ()) = tokio::join!(bench.turn(), spoil);
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded, "{fault:?}");
        assert_eq!(bench.called(), ["a", "b"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_not_lost_when_somebody_appends_in_the_same_moment() {
    let bench = bench("unsafe").await;
    bench.answers_after("a", Duration::from_secs(1), [response(200, "done")]);
    let cancel = async {
        // In the moment in which the answer comes, before its outcome is written, and without a nudge.
        tokio::time::sleep(Duration::from_millis(990)).await;
        bench.acts.cancel(&tenant(), bench.run, "ann").await.unwrap();
    };
    let (ended, ()) = tokio::join!(bench.turn(), cancel);
    assert_eq!(ended, Ended::Terminal);
    assert!(matches!(bench.step("a").settled(), Some(Settled::Done { .. })));
    let terminal = bench.terminal();
    assert_eq!((terminal.status, terminal.class), (RunStatus::Cancelled, None));
    assert_eq!(bench.called(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_reaches_a_worker_in_the_middle_of_a_call_and_the_end_says_what_nobody_knows() {
    for (class, named) in [("unsafe", Some(FailureClass::Ambiguous)), ("idempotent", Some(FailureClass::Ambiguous))] {
        let bench = bench(class).await;
        bench.answers_after("a", Duration::from_secs(9), [response(200, "done")]);
        let began = bench.clock.started();
        let cancel = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bench.acts.cancel(&tenant(), bench.run, "ann").await.unwrap();
            bench.nudges.send_modify(|nudge| *nudge += 1);
        };
        let (ended, ()) = tokio::join!(bench.turn(), cancel);
        assert_eq!((ended, began.elapsed().as_secs()), (Ended::Terminal, 1));
        let terminal = bench.terminal();
        assert_eq!((terminal.status, terminal.class), (RunStatus::Cancelled, named));
        assert_eq!(terminal.failed_at, Some(step("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_automation_is_gone_ends_and_says_so() {
    let bench = bench("unsafe").await;
    *lock(&bench.tables.automation) = None;
    assert_eq!(bench.turn().await, Ended::Terminal);
    let terminal = bench.terminal();
    assert_eq!((terminal.status, terminal.class), (RunStatus::Failed, Some(FailureClass::ConfigurationMissing)));

    let lost = self::bench("unsafe").await;
    lost.answers_after("a", Duration::from_secs(5), [response(200, "done")]);
    lost.lost_after(1_000).await;
    *lock(&lost.tables.automation) = None;
    assert_eq!(lost.turn().await, Ended::Terminal);
    assert_eq!((lost.terminal().status, lost.terminal().failed_at), (RunStatus::EndedAmbiguous, Some(step("a"))));
}

#[tokio::test(start_paused = true)]
async fn a_run_of_which_the_ledger_takes_nothing_is_set_aside() {
    for refusal in [AppendError::Invalid("of a rule"), AppendError::TooLarge { bytes: 9, bytes_max: 8 }] {
        let bench = bench("unsafe").await;
        bench.ledger.next(Fault::Refuse(refusal));
        assert!(matches!(bench.turn().await, Ended::Parked { until_unix_ms: None, .. }));
        assert_eq!(bench.state().status(), RunStatus::Quarantined);
        bench.acts.release(&tenant(), bench.run, "ops").await.unwrap();
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_is_given_up_and_is_in_doubt() {
    let bench = bench("unsafe").await;
    bench.answers_after("a", Duration::from_hours(1), [response(200, "done")]);
    let began = bench.clock.started();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::NeedsAttention);
    assert_eq!(began.elapsed().as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_held_on_to_through_a_long_call() {
    let bench = Bench::new(
        Graph::default().call("a", &[], "unsafe").with(|node| node.timeout = Duration::from_mins(10)).build(),
    );
    let bench = bench.await;
    bench.answers_after("a", Duration::from_mins(5), [response(200, "done")]);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    let leases = bench.records().iter().filter(|record| matches!(record.body, Body::Lease(_))).count();
    assert_eq!(leases, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_learn_whether_the_run_is_still_its_own_begins_no_call() {
    let bench = bench("unsafe").await;
    // Held up for so long that its lease may have lapsed when the commit is durable at last.
    for _ in 0..2 {
        bench.ledger.next(Fault::Late(Duration::from_hours(1)));
    }
    bench.ledger.unrenewable(Some(AppendError::Unavailable("as a test has asked".into())));
    assert_eq!(bench.turn().await, Ended::Fenced);
    assert!(bench.called().is_empty(), "another worker may have done it");
    bench.ledger.unrenewable(None);
    // It has left that nothing was sent.
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_workers_call_may_go_on_and_is_read_back_when_it_cannot_any_more() {
    let bench = bench("checkable").await;
    bench.answers_after("a", Duration::from_secs(9), [response(200, "done")]);
    bench.answers("read-back", [response(200, "yes")]);
    assert_eq!(bench.lost_after(1_000).await, None);
    let began = bench.clock.started();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "read-back", "b"]);
    assert!(began.elapsed() > Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_was_woken_and_waits_on_is_parked_anew() {
    let bench = Arc::new(bench("unsafe").await);
    bench.answers_after("a", Duration::from_secs(8), [failed(SendState::SentNoResponse, "response-timeout")]);
    let slow = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.turn().await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.to_the_end().await;
    assert_eq!(slow.await.unwrap(), Ended::Fenced);
    let is_parked = || matches!(bench.records().last().map(|record| record.body.clone()), Some(Body::Parked(_)));
    assert!(!is_parked(), "what came late is the last record, and says nothing new");
    bench.turn().await;
    assert!(is_parked());
    let records = bench.records().len();
    bench.turn().await;
    assert_eq!(bench.records().len(), records, "and once more is no news");
}

/// Its own append, which nobody had answered, is in the way: the lease is its own.
#[tokio::test(start_paused = true)]
async fn an_append_that_was_not_answered_is_no_other_worker() {
    let bench = bench("unsafe").await;
    // The first is durable when the second is judged, and was not when it was looked for.
    bench.ledger.next(Fault::Late(Duration::from_millis(10_080)));
    bench.ledger.next(Fault::Late(Duration::from_millis(100)));
    assert_eq!(bench.turn().await, Ended::Terminal);
    assert_eq!((bench.called(), bench.state().status()), (vec!["a".to_owned(), "b".to_owned()], RunStatus::Succeeded));
    let leases = bench.records().iter().filter(|record| matches!(record.body, Body::Lease(_))).count();
    assert_eq!(leases, 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_never_made_are_made_when_the_ledger_answers_again() {
    let bench = bench("unsafe").await;
    bench.ledger.next(Fault::NoReply);
    let turn = bench.turn();
    let spoil = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.ledger.unreadable(Some(crate::ledger::ReadError::Unavailable("as a test has asked".into())));
    };
    let (ended, ()) = tokio::join!(turn, spoil);
    assert!(matches!(ended, Ended::Unavailable { .. }), "{ended:?}");
    bench.ledger.unreadable(None);
    assert!(bench.called().is_empty(), "the intent is durable, and nobody has made the call");
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded, "and nobody is asked about it");
    assert_eq!((bench.called(), bench.state().workers_lost), (vec!["a".to_owned(), "b".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn what_came_of_a_call_is_not_forgotten_while_the_ledger_takes_nothing() {
    let bench = bench("unsafe").await;
    bench.answers_after("a", Duration::from_secs(1), [response(200, "done")]);
    let spoil = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..8 {
            bench.ledger.next(Fault::FailBefore);
        }
    };
    let (ended, ()) = tokio::join!(bench.turn(), spoil);
    assert!(matches!(ended, Ended::Unavailable { .. }), "{ended:?}");
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded, "nobody is asked about it");
    assert_eq!(bench.called(), ["a", "b"]);
}

/// Another process has taken the run in the meantime: what is known is evidence.
#[tokio::test(start_paused = true)]
async fn what_was_not_written_is_evidence_for_whoever_has_the_run_by_then() {
    let bench = bench("unsafe").await;
    bench.answers_after("a", Duration::from_secs(1), [response(200, "done")]);
    let spoil = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..8 {
            bench.ledger.next(Fault::FailBefore);
        }
    };
    let _ended = tokio::join!(bench.turn(), spoil);
    let lease = Lease { lease: 2, owner: "another".into(), until_unix_ms: u64::MAX };
    let attempt = crate::ledger::Attempt { logical: crate::ids::LogicalAttempt::MIN, physical: 1 };
    let result = StepResult::Ambiguous(crate::ledger::Ambiguity::WorkerLost);
    let lost = crate::ledger::Outcome { step: step("a"), attempt, result, provider: None };
    bench.append(Writer::Lease(2), vec![Body::Lease(lease), Body::Outcome(lost)]).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "b"]);
    assert!(bench.records().iter().any(|record| matches!(record.body, Body::LateOutcome(_))));
    assert_eq!(bench.state().lease, 3, "nobody works under another's lease");
}

/// A stop waits for what is under way, begins nothing, and leaves the run to whoever comes next, who counts no lost worker.
#[tokio::test(start_paused = true)]
async fn a_stop_takes_what_is_under_way_to_its_commit_and_leaves_the_run() {
    let graph = Graph::default().call("a", &[], "unsafe").call("b", &["a"], "unsafe").call("c", &["b"], "unsafe");
    let bench = Bench::with(graph.build(), Settings { workers_lost_max: 1, ..Settings::new("node") }).await;
    for (step, called) in [("a", 1), ("b", 2)] {
        bench.answers_after(step, Duration::from_secs(5), [response(200, "done")]);
        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bench.stopping.send_replace(true);
        };
        let began = tokio::time::Instant::now();
        let (ended, ()) = tokio::join!(bench.turn(), stop);
        assert_eq!(began.elapsed().as_secs(), 5);
        let Ended::Parked { until_unix_ms: Some(until), .. } = ended else { panic!("{ended:?}") };
        assert!(until <= bench.clock_now(), "it goes on at once");
        let state = bench.state();
        assert!(!state.is_worked_on && state.steps[&super::super::testing::step(step)].is_settled());
        assert_eq!((bench.called().len(), state.parked.unwrap().reason), (called, crate::ledger::ParkReason::Restart));
        // Whoever is given the run before the process is gone leaves it as it is.
        let records = bench.records().len();
        bench.turn().await;
        assert_eq!(bench.records().len(), records);
        bench.stopping.send_replace(false);
    }
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!((bench.called(), bench.state().workers_lost), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 0));
}

/// In a shared ledger, too, the next one need not wait for the lease.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_left_is_claimable_at_once() {
    let clock = super::VirtualClock::new();
    let shared =
        crate::ledger::memory::MemoryLedger::shared(&crate::ledger::memory::MemoryLedgerStore::default(), clock);
    let bench = bench("unsafe").await;
    bench.stopping.send_replace(true);
    bench.turn().await;
    assert_eq!(bench.records().len(), 1, "a run that was not begun is left as it is");
    bench.stopping.send_replace(false);
    bench.answers_after("a", Duration::from_secs(2), [response(200, "done")]);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.stopping.send_replace(true);
    };
    let _ended = tokio::join!(bench.turn(), stop);
    // The same records, in a ledger whose leases lapse.
    for record in bench.records() {
        let writer = if record.lease == 0 { Writer::Anyone } else { Writer::Lease(record.lease) };
        let commit = Commit {
            tenant: record.tenant,
            run: record.run,
            expected: record.seq - 1,
            writer,
            at_unix_ms: record.at_unix_ms,
            bodies: vec![record.body],
        };
        shared.append(commit).await.unwrap();
    }
    let claimable = shared.claimable(bench.clock_now(), 9).await.unwrap();
    assert_eq!(claimable.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_ours_that_never_answers_holds_nobody_up() {
    let bench = bench("unsafe").await;
    *lock(&bench.tables.hangs) = true;
    let began = tokio::time::Instant::now();
    let ended = bench.turn().await;
    assert!(matches!(ended, Ended::Parked { until_unix_ms: Some(_), .. }), "{ended:?}");
    assert_eq!((began.elapsed().as_secs(), bench.called().len()), (10, 0));
    assert_eq!(bench.state().parked.unwrap().reason, crate::ledger::ParkReason::Unavailable);
    *lock(&bench.tables.hangs) = false;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
}

/// What is in doubt waits for the part that is not there, and not for somebody.
#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_a_doubt_that_a_part_of_ours_will_tell_about_later() {
    let bench = bench("idempotent").await;
    bench.answers_after("a", Duration::from_secs(5), [response(200, "done")]);
    assert_eq!(bench.lost_after(1_000).await, None);
    *lock(&bench.tables.hangs) = true;
    bench.turn().await;
    assert_eq!(bench.state().status(), RunStatus::Parked);
    *lock(&bench.tables.hangs) = false;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert!(lock(&bench.tables.notices).is_empty());
}

/// Where no other process can have it, a lost worker's call is over when its run is taken up again.
#[tokio::test(start_paused = true)]
async fn alone_a_lost_call_is_read_back_at_once() {
    for (is_alone, seconds) in [(true, 2), (false, 10)] {
        let graph = Graph::default().call("a", &[], "checkable").call("b", &["a"], "unsafe");
        let bench = Bench::with(graph.build(), Settings { is_alone, ..Settings::new("node") }).await;
        bench.answers_after("a", Duration::from_secs(9), [response(200, "done")]);
        bench.answers("read-back", [response(200, "yes")]);
        assert_eq!(bench.lost_after(1_000).await, None);
        let began = tokio::time::Instant::now();
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
        assert_eq!(
            (bench.called(), began.elapsed().as_secs()),
            (vec!["a".into(), "read-back".into(), "b".to_owned()], seconds)
        );
    }
}

/// What could be begun while a call is under way is not, and the call is waited for all the same.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_last_call_that_is_under_way() {
    let graph = Graph::default().call("a", &[], "unsafe").call("b", &[], "unsafe").call("c", &["b"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    bench.answers_after("a", Duration::from_secs(5), [response(200, "done")]);
    bench.answers_after("b", Duration::from_secs(1), [response(200, "done")]);
    bench.stopping.send_replace(false);
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        bench.stopping.send_replace(true);
    };
    let began = tokio::time::Instant::now();
    let _ended = tokio::join!(bench.turn(), stop);
    assert_eq!((began.elapsed().as_secs(), bench.called()), (5, vec!["a".to_owned(), "b".to_owned()]));
    assert!(["a", "b"].iter().all(|name| bench.step(name).is_settled()));
    bench.stopping.send_replace(false);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "b", "c"]);
}
