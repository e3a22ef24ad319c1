//! What people do, and when it makes no sense.

use std::time::Duration;

use serde_json::json;

use super::super::REASON_BYTES_MAX;
use super::super::acts::{ActError, Duplicate};
use super::super::testing::{Graph, lock, step};
use super::{Bench, failed, response, tenant};
use crate::ids::EffectKey;
use crate::ledger::memory::Fault;
use crate::ledger::{Body, Choice, Dismissed, Lease, Quarantined, RunStatus, SendState, Writer};

async fn bench() -> Bench {
    let graph = Graph::default().call("a", &[], "unsafe").transform("t", &["a"], &json!(1)).call("b", &["t"], "unsafe");
    Bench::new(graph.build()).await
}

#[tokio::test(start_paused = true)]
async fn a_re_run_is_a_new_asking_with_a_key_of_its_own_and_leaves_what_is_done() {
    let bench = bench().await;
    bench.answers("b", [response(400, "no")]);
    bench.to_the_end().await;
    let rerun = |input| {
        let bench = &bench;
        async move { bench.acts.rerun(&tenant(), bench.run, &step("b"), input, Duplicate::Accepted, "ann").await }
    };
    let edited = json!({ "for": "b", "edited": true });
    rerun(Some(&edited)).await.unwrap();
    assert_eq!(lock(&bench.tables.queued).len(), 1, "somebody has to work on it");
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "b", "b"]);
    let keys: Vec<String> = (1..=2_u32)
        .map(|logical| EffectKey::new(bench.run, &step("b"), logical.try_into().unwrap()).to_string())
        .collect();
    assert_eq!([&bench.calls()[1].key, &bench.calls()[2].key], [&keys[0], &keys[1]]);
    assert_eq!(bench.calls()[2].body, edited.to_string());
    // Also of one that was done: its effect happens once more, which somebody has accepted.
    rerun(None).await.unwrap();
    bench.to_the_end().await;
    assert_eq!(bench.called(), ["a", "b", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_skipped_behind_a_step_is_looked_at_again_when_it_was_re_run() {
    let graph = Graph::default()
        .call("a", &[], "unsafe")
        .branch("which", &["a"], &[("yes", "steps.a.output == 'again'")])
        .with(|node| node.continues_on_failure = true)
        .call("b", &["a"], "unsafe")
        .with(|node| node.when = Some(super::super::testing::expression("steps.a.output == 'again'")))
        .call("c", &["b"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    bench.answers("a", [response(200, "done"), response(200, "again")]);
    bench.to_the_end().await;
    assert_eq!(bench.called(), ["a"]);
    bench.acts.rerun(&tenant(), bench.run, &step("a"), None, Duplicate::Accepted, "ann").await.unwrap();
    bench.to_the_end().await;
    assert_eq!(bench.called(), ["a", "a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_re_run_long_after_the_deadline_has_the_same_time_again() {
    let bench = bench().await;
    bench.answers("b", [response(400, "no")]);
    bench.to_the_end().await;
    tokio::time::sleep(Duration::from_hours(50)).await;
    bench.acts.rerun(&tenant(), bench.run, &step("b"), None, Duplicate::Accepted, "ann").await.unwrap();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused() {
    let bench = bench().await;
    let (tenant, run) = (tenant(), bench.run);
    let acts = &bench.acts;
    let rerun = |name: &'static str, duplicate| async move {
        acts.rerun(&super::tenant(), run, &step(name), None, duplicate, "ann").await
    };
    let resolve = |name: &'static str| async move {
        acts.resolve(&super::tenant(), run, &step(name), Choice::ContinueAcceptGap, "ann").await
    };
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    assert_eq!(resolve("a").await, Err(ActError::NoStep), "it has not come to it");
    bench.to_the_end().await;
    assert_eq!(rerun("a", Duplicate::NotAccepted).await, Err(ActError::DuplicateNotAccepted));
    assert_eq!(rerun("a", Duplicate::Accepted).await, Err(ActError::NotSettled));
    assert_eq!(rerun("t", Duplicate::Accepted).await, Err(ActError::NoCall));
    assert_eq!(rerun("b", Duplicate::Accepted).await, Err(ActError::NoStep));
    assert_eq!(rerun("x", Duplicate::Accepted).await, Err(ActError::NoStep));
    assert_eq!(acts.release(&tenant, run, "ann").await, Err(ActError::ChooseInstead));
    assert_eq!(resolve("b").await, Err(ActError::NoStep));
    resolve("a").await.unwrap();
    assert_eq!(resolve("a").await, Err(ActError::NothingToChoose), "somebody has chosen");
    assert_eq!(acts.release(&tenant, run, "ann").await, Err(ActError::NothingToRelease));
    acts.cancel(&tenant, run, "ann").await.unwrap();
    assert_eq!(acts.cancel(&tenant, run, "ann").await, Err(ActError::Cancelling));
    bench.to_the_end().await;
    assert_eq!(acts.cancel(&tenant, run, "ann").await, Err(ActError::Cancelling));
    assert_eq!(acts.release(&tenant, run, "ann").await, Err(ActError::NothingToRelease));
    assert_eq!(acts.cancel(&tenant, run, "").await, Err(ActError::By));
    let nobody = domain::TenantId::parse("other").unwrap();
    assert_eq!(acts.cancel(&nobody, run, "ann").await, Err(ActError::NotFound));
    let unheard_of = crate::ids::RunId::from_bytes([9; 16]);
    assert_eq!(acts.cancel(&tenant, unheard_of, "ann").await, Err(ActError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_works_on_is_cancelled_by_the_next_worker() {
    let bench = bench().await;
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    bench.to_the_end().await;
    bench.acts.cancel(&tenant(), bench.run, "ann").await.unwrap();
    bench.to_the_end().await;
    let terminal = bench.terminal();
    assert_eq!((terminal.status, terminal.failed_at), (RunStatus::Cancelled, Some(step("a"))));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_handed_in_although_nobody_knows_whether_the_act_was_written() {
    let bench = bench().await;
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    bench.to_the_end().await;
    bench.ledger.next(Fault::FailAfter);
    let cancelled = bench.acts.cancel(&tenant(), bench.run, "ann").await;
    assert!(matches!(cancelled, Err(ActError::Unavailable(_))));
    assert_eq!(lock(&bench.tables.queued).len(), 1);
    // Somebody died before handing it in: who asks once more does.
    assert_eq!(bench.acts.cancel(&tenant(), bench.run, "ann").await, Err(ActError::Cancelling));
    assert_eq!(lock(&bench.tables.queued).len(), 2);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_run_is_released_before_anything_is_chosen_and_may_be_re_run_once_it_is_over() {
    let bench = bench().await;
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    bench.to_the_end().await;
    let lease = bench.state().lease;
    let aside = Quarantined { crashes: 5, reason: "as a test has asked".into() };
    let taken = Lease { lease: lease + 1, owner: "node".into(), until_unix_ms: 0 };
    bench.append(Writer::Lease(lease + 1), vec![Body::Lease(taken), Body::Quarantined(aside)]).await;
    let chosen = bench.acts.resolve(&tenant(), bench.run, &step("a"), Choice::ContinueAcceptGap, "ann").await;
    assert_eq!(chosen, Err(ActError::Quarantined));
    bench.acts.cancel(&tenant(), bench.run, "ann").await.unwrap();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Cancelled);
    bench.acts.rerun(&tenant(), bench.run, &step("a"), None, Duplicate::Accepted, "ann").await.unwrap();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["a", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_put_away_by_somebody_who_says_why_and_is_one_again_after_a_re_run() {
    let graph = Graph::default().call("a", &[], "idempotent");
    let bench = Bench::new(graph.build()).await;
    let (tenant, run, acts) = (tenant(), bench.run, &bench.acts);
    bench.answers("a", std::iter::repeat_n(response(500, "oops"), 8));
    assert_eq!(acts.dismiss(&tenant, run, "ann", "seen").await, Err(ActError::NoDeadLetter), "it goes on");
    bench.to_the_end().await;
    for (by, reason) in [("", "seen"), ("ann", ""), ("ann", &*"a".repeat(REASON_BYTES_MAX + 1))] {
        assert!(acts.dismiss(&tenant, run, by, reason).await.is_err());
    }
    let before = bench.records().len();
    acts.dismiss(&tenant, run, "ann", "called them").await.unwrap();
    assert_eq!(bench.state().dismissed, Some(Dismissed { by: "ann".into(), reason: "called them".into() }));
    assert_eq!(acts.dismiss(&tenant, run, "bob", "too").await, Err(ActError::NoDeadLetter), "it is one no more");
    assert_eq!((bench.state().status(), bench.records().len()), (RunStatus::Failed, before + 1));
    // Nobody works on it for that.
    bench.to_the_end().await;
    assert_eq!((bench.records().len(), bench.called().len()), (before + 1, 4));
    acts.rerun(&tenant, run, &step("a"), None, Duplicate::Accepted, "ann").await.unwrap();
    assert_eq!(bench.state().dismissed, None);
    bench.to_the_end().await;
    assert_eq!(bench.state().status(), RunStatus::Failed);
    acts.dismiss(&tenant, run, "ann", "again").await.unwrap();
    let other = domain::TenantId::parse("other").unwrap();
    assert_eq!(acts.dismiss(&other, run, "ann", "seen").await, Err(ActError::NotFound));
    let nobodys = crate::ids::RunId::from_bytes([9; 16]);
    assert_eq!(acts.dismiss(&tenant, nobodys, "ann", "seen").await, Err(ActError::NotFound));
}
