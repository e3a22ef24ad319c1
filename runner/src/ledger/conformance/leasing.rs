//! Leases: one worker goes on, and whoever was before it is stopped.

use std::sync::Arc;

use super::made::{
    admission, cancel_requested, intent, late_outcome, lease, one_of_each, outcome, released, rerun, resolved, terminal,
};
use super::{Subject, anyone, begun, bodies, new_run, read, refused, take, under};
use crate::ledger::record::{Body, RunStatus};
use crate::ledger::rules::is_for_anyone;
use crate::ledger::store::{AppendError, Committed};

pub async fn a_higher_lease_fences_the_lower(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    take(&*ledger, under(1, run, 2, vec![intent("a", 1)])).await;
    ledger.renew(run, 1, 0).await.expect("its holder lets go");
    let taken = under(7, run, 3, vec![lease(7, "two", 3_600_000), intent("a", 2)]);
    assert_eq!(take(&*ledger, taken).await, Committed { seq: 5, lease: 7 });
    for _ in 0..2 {
        let fenced = AppendError::Fenced { lease: 7 };
        for expected in [3, 5] {
            assert_eq!(refused(&*ledger, under(1, run, expected, vec![outcome("a", 1)])).await, fenced);
        }
        for stale in [1, 6, 7] {
            assert_eq!(refused(&*ledger, under(stale, run, 5, vec![lease(stale, "two", 9)])).await, fenced);
        }
        assert_eq!(ledger.renew(run, 1, u64::MAX / 4).await, Err(fenced));
        ledger = subject.crash(ledger).await;
    }
    let late = anyone(run, 5, vec![late_outcome("a", 1)]);
    assert_eq!(take(&*ledger, late).await, Committed { seq: 6, lease: 7 }, "what it learnt is kept");
    take(&*ledger, under(7, run, 6, vec![outcome("a", 2)])).await;
    assert_eq!(read(&*ledger, run).await.iter().map(|record| record.lease).collect::<Vec<_>>(), [0, 1, 1, 7, 7, 7, 7]);
}

pub async fn of_workers_that_race_one_has_the_lease(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    for _ in 0..10 {
        let run = new_run(subject);
        take(&*ledger, admission(run)).await;
        let race = |racer: u64| {
            let ledger = Arc::clone(&ledger);
            let bodies = vec![lease(racer, &format!("worker {racer}"), 3_600_000), intent("a", 1)];
            tokio::spawn(
                async move { ledger.append(under(racer, run, 1, bodies)).await.map(|committed| committed.lease) },
            )
        };
        let racers: Vec<_> = (1..=6).map(race).collect();
        let mut won = Vec::new();
        for racer in racers {
            match racer.await.expect("no racer fails") {
                Ok(lease) => won.push(lease),
                Err(AppendError::Conflict { seq: 3 } | AppendError::Fenced { .. }) => {}
                Err(other) => super::unexpected(&format!("{other:?}")),
            }
        }
        assert_eq!(won.len(), 1);
        let records = read(&*ledger, run).await;
        assert_eq!((records.len(), records[2].lease), (3, won[0]));
    }
}

pub async fn anyone_appends_only_what_anyone_may(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    let mut seq = 2;
    for body in one_of_each() {
        let commit = anyone(run, seq, vec![body.clone()]);
        if is_for_anyone(&body) && !matches!(body, Body::Admitted(_)) {
            seq += 1;
            assert_eq!(take(&*ledger, commit).await, Committed { seq, lease: 1 }, "{body:?}");
        } else {
            assert!(matches!(refused(&*ledger, commit).await, AppendError::Invalid(_)), "{body:?}");
        }
    }
    assert_eq!(read(&*ledger, run).await.len() as u64, seq);
}

pub async fn nothing_follows_the_end_but_evidence_and_a_re_run(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    take(&*ledger, under(1, run, 2, vec![intent("a", 1), outcome("a", 1), terminal(RunStatus::Failed)])).await;
    let is_over = AppendError::Invalid("the run is over");
    for _ in 0..2 {
        for body in [released(), resolved("a", 1), cancel_requested()] {
            assert_eq!(refused(&*ledger, anyone(run, 5, vec![body])).await, is_over);
        }
        for bodies in [vec![intent("b", 1)], vec![terminal(RunStatus::Failed)]] {
            assert_eq!(refused(&*ledger, under(1, run, 5, bodies)).await, is_over);
        }
        assert_eq!(refused(&*ledger, under(2, run, 5, vec![lease(2, "two", 9)])).await, is_over);
        ledger = subject.crash(ledger).await;
    }
    take(&*ledger, anyone(run, 5, vec![late_outcome("a", 1)])).await;
    assert_eq!(refused(&*ledger, anyone(run, 6, vec![cancel_requested()])).await, is_over, "evidence opens nothing");
    take(&*ledger, anyone(run, 6, vec![rerun("a", 2)])).await;
    let again = vec![lease(2, "two", 3_600_000), intent("a", 1), outcome("a", 1), terminal(RunStatus::Succeeded)];
    assert_eq!(take(&*ledger, under(2, run, 7, again)).await, Committed { seq: 11, lease: 2 });
    assert_eq!(refused(&*ledger, anyone(run, 11, vec![cancel_requested()])).await, is_over);
    assert_eq!(bodies(&*ledger, run).await.len(), 11);
}

pub async fn a_lease_is_renewed_by_its_holder_alone(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    let untaken = AppendError::Invalid("nobody has taken this lease");
    let until = super::made::WRITTEN_UNIX_MS + 3_600_000;
    assert_eq!(ledger.renew(run, 1, until).await, Ok(()));
    assert_eq!(ledger.renew(run, 2, until).await, Err(untaken));
    assert_eq!(ledger.renew(new_run(subject), 1, until).await, Err(AppendError::Conflict { seq: 0 }));
    assert_eq!(read(&*ledger, run).await.len(), 2, "it is no record");
}
