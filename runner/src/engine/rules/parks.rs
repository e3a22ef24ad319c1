//! Waiting that is nobody's failure: throttles, quota, what is ours and not there, and connections to be made anew.

use std::time::Duration;

use super::super::ports::Notice;
use super::super::state::Standing;
use super::super::testing::{Graph, connection, lock};
use super::{Bench, refused, response, tenant};
use crate::call::ParkSource;
use crate::failure::FailureClass;
use crate::ledger::memory::Fault;
use crate::ledger::{Body, ParkReason, QueueClass, RunStatus};
use crate::schedule::Ended;

async fn bench() -> Bench {
    Bench::new(Graph::default().call("a", &[], "unsafe").call("b", &["a"], "unsafe").build()).await
}

#[tokio::test(start_paused = true)]
async fn a_park_spends_no_attempt_and_holds_no_worker() {
    let bench = bench().await;
    let began = bench.clock.started();
    // More of them than there may be tries.
    bench.answers("a", (1..=9).map(|at| bench.parked(at * 10_000, ParkSource::Provider)));
    let Ended::Parked { until_unix_ms, class } = bench.turn().await else { panic!() };
    assert_eq!((until_unix_ms, class), (Some(super::super::testing::NOW + 10_000), QueueClass::ParkedRelease));
    assert_eq!(bench.state().parked.unwrap().reason, ParkReason::Provider);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(began.elapsed().as_secs(), 90);
    let first: Vec<_> = bench.calls().iter().take(3).map(|made| (made.attempt, made.is_after_park)).collect();
    assert_eq!(first, [(1, false), (1, true), (1, true)]);
}

/// A provider that fails and says when to come again may have done it before it failed.
#[tokio::test(start_paused = true)]
async fn a_failure_with_a_time_to_come_again_is_no_throttle_of_what_is_unsafe() {
    let bench = bench().await;
    bench.answers("a", [bench.parked_by(1_000, ParkSource::Provider, 503)]);
    assert!(matches!(bench.turn().await, Ended::Parked { .. }));
    assert_eq!((bench.state().status(), bench.called().len()), (RunStatus::NeedsAttention, 1));
    let again = Bench::new(Graph::default().call("a", &[], "idempotent").build()).await;
    again.answers("a", [again.parked_by(1_000, ParkSource::Provider, 503)]);
    assert_eq!(again.to_the_end().await.status(), RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_park_that_is_over_at_once_again_and_again_waits_longer_each_time() {
    let bench = bench().await;
    bench.answers("a", (0..200).map(|_| bench.parked(0, ParkSource::Quota)));
    let began = bench.clock.started();
    bench.lost_after(30_000).await;
    for _ in 0..12 {
        bench.turn().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    assert!(bench.called().len() < 20, "{} calls in {:?}", bench.called().len(), began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_ours_and_has_no_room_is_no_try_and_a_no_is_a_no() {
    let later = bench().await;
    later.answers("a", (0..6).map(|_| refused("overloaded")));
    assert_eq!(later.to_the_end().await.status(), RunStatus::Succeeded);
    let no = bench().await;
    no.answers("a", [refused("destination-not-allowed")]);
    no.to_the_end().await;
    assert_eq!((no.terminal().class, no.called().len()), (Some(FailureClass::PolicyRefused), 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_parks_the_run_is_said_once_and_holds_up_later_runs_without_a_call() {
    let first = bench().await;
    first.answers("a", [response(401, "revoked")]);
    assert_eq!(first.to_the_end().await.status(), RunStatus::NeedsAttention);
    assert_eq!(first.step("a").standing, Standing::NeedsReconnect);
    assert_eq!(first.state().parked.unwrap().reason, ParkReason::NeedsReconnect);
    assert!(lock(&first.tables.dead).contains(&connection()));
    // Looked at again, it makes no call and tells nobody.
    first.turn().await;
    assert_eq!(first.called(), ["a"]);
    assert!(
        matches!(&lock(&first.tables.notices)[..], [Notice::NeedsReconnect { reason, .. }] if reason.contains("401"))
    );

    let later = bench().await;
    lock(&later.tables.dead).insert(connection());
    assert_eq!(later.to_the_end().await.status(), RunStatus::NeedsAttention);
    assert!(later.called().is_empty() && lock(&later.tables.notices).is_empty());
    assert!(!later.records().iter().any(|record| matches!(record.body, Body::Intent(_))));

    for bench in [first, later] {
        let released = bench.acts.reconnected(&tenant(), &connection(), &[bench.run], "ann").await;
        assert_eq!(released, Ok(1));
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_run_is_asked_again_whether_it_may() {
    let graph = || {
        let graph = Graph::default().call("a", &[], "unsafe").delay("wait", &["a"], Duration::from_hours(25));
        let mut automation = graph.call("b", &["wait"], "unsafe").build();
        automation.deadline = Duration::from_hours(100);
        automation
    };
    let may = Bench::new(graph()).await;
    may.to_the_end().await;
    assert_eq!((may.called(), lock(&may.tables.asked).len()), (vec!["a".into(), "b".into()], 1));
    let may_not = Bench::new(graph()).await;
    *lock(&may_not.tables.forbidden) = true;
    may_not.to_the_end().await;
    assert_eq!((may_not.called().len(), may_not.terminal().class), (1, Some(FailureClass::NoLongerAuthorised)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_made_anew_while_the_run_is_at_something_else_holds_nothing_up() {
    let graph = Graph::default().call("a", &[], "unsafe").call("b", &[], "unsafe");
    let bench = Bench::new(graph.with(|node| node.timeout = Duration::from_mins(2)).build()).await;
    bench.answers("a", [response(401, "revoked")]);
    bench.answers_after("b", Duration::from_mins(1), [response(200, "done")]);
    let reconnect = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(lock(&bench.tables.dead).remove(&connection()));
    };
    let (ended, ()) = tokio::join!(bench.turn(), reconnect);
    assert_eq!(ended, Ended::Terminal);
    assert_eq!(bench.called(), ["a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_made_anew_while_the_run_parks_for_it_is_looked_at_again() {
    let bench = bench().await;
    lock(&bench.tables.dead).insert(connection());
    bench.ledger.next(Fault::LateReply(Duration::from_secs(5)));
    let reconnect = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        lock(&bench.tables.dead).remove(&connection());
    };
    let (ended, ()) = tokio::join!(bench.turn(), reconnect);
    let Ended::Parked { until_unix_ms: Some(until), .. } = ended else { panic!("{ended:?}") };
    assert!(until <= domain::Clock::unix_ms(&*bench.clock));
    assert_eq!(bench.turn().await, Ended::Terminal);
    assert_eq!(bench.called(), ["a", "b"]);
}
