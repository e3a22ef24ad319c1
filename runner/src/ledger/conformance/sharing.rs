//! What engines do that many processes share: leases lapse by the store's clock, and whoever is idle finds work.

use std::sync::Arc;

use super::made::{
    WRITTEN_UNIX_MS, admission, intent, late_outcome, lease, parked, quarantined, released, rerun, terminal,
};
use super::{PATIENCE, Subject, anyone, bodies, new_run, refused, take, under};
use crate::ids::RunId;
use crate::ledger::record::{QueueClass, RunStatus};
use crate::ledger::store::{AppendError, Claimable, Committed, LedgerStore};

/// Longer than a slow machine takes for a scenario's steps, and short enough to wait for.
const LEASE_MS: u64 = 3000;

async fn claimable(ledger: &dyn LedgerStore, now_unix_ms: u64, run: RunId) -> Option<Claimable> {
    let all = ledger.claimable(now_unix_ms, 100_000).await.expect("a healthy ledger reads");
    let mut of_run = all.into_iter().filter(|claimable| claimable.run == run);
    let found = of_run.next();
    assert_eq!(of_run.next(), None, "a run is named once");
    found
}

async fn leased(subject: &mut dyn Subject, ledger: &dyn LedgerStore) -> RunId {
    let run = new_run(subject);
    take(ledger, admission(run)).await;
    take(ledger, under(1, run, 1, vec![lease(1, "one", LEASE_MS)])).await;
    run
}

pub async fn a_lease_is_another_s_until_it_lapses(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = leased(subject, &*ledger).await;
    let taking = |number, owner| under(number, run, 2, vec![lease(number, owner, LEASE_MS)]);
    assert_eq!(refused(&*ledger, taking(2, "two")).await, AppendError::Fenced { lease: 1 });
    assert_eq!(claimable(&*ledger, u64::MAX / 4, run).await, None);
    subject.pass(LEASE_MS + 100).await;
    let found = claimable(&*ledger, WRITTEN_UNIX_MS, run).await.expect("nobody works on it");
    assert_eq!((found.seq, found.lease, found.tenant.as_str()), (2, 1, "acme"));
    take(&*ledger, under(1, run, 2, vec![intent("a", 1)])).await;
    let taken = under(2, run, 3, vec![lease(2, "two", LEASE_MS)]);
    assert_eq!(take(&*ledger, taken).await, Committed { seq: 4, lease: 2 }, "a lapsed one holds until it is taken");
    assert_eq!(refused(&*ledger, under(1, run, 4, vec![intent("b", 1)])).await, AppendError::Fenced { lease: 2 });
    let again = under(3, run, 4, vec![lease(3, "two", LEASE_MS)]);
    assert_eq!(take(&*ledger, again).await, Committed { seq: 5, lease: 3 }, "its owner may take it anew");
}

pub async fn a_renewed_lease_holds_on(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = leased(subject, &*ledger).await;
    // By the writer's clock, which the store was told by: scenarios write at one and the same time.
    ledger.renew(run, 1, WRITTEN_UNIX_MS + 3_600_000).await.expect("its holder renews");
    subject.pass(LEASE_MS + 100).await;
    assert_eq!(claimable(&*ledger, u64::MAX / 4, run).await, None);
    let taking = under(2, run, 2, vec![lease(2, "two", LEASE_MS)]);
    assert_eq!(refused(&*ledger, taking).await, AppendError::Fenced { lease: 1 });
}

pub async fn whoever_let_go_is_claimable(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = leased(subject, &*ledger).await;
    ledger.renew(run, 1, 0).await.expect("its holder lets go");
    assert!(claimable(&*ledger, WRITTEN_UNIX_MS, run).await.is_some());
    take(&*ledger, under(2, run, 2, vec![lease(2, "two", LEASE_MS)])).await;
    assert_eq!(claimable(&*ledger, WRITTEN_UNIX_MS, run).await, None);
}

pub async fn what_waits_is_claimable_when_its_time_has_come(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = new_run(subject);
    take(&*ledger, admission(run)).await;
    let found = claimable(&*ledger, WRITTEN_UNIX_MS, run).await.expect("nobody has begun");
    assert_eq!((found.seq, found.lease), (1, 0));
    let until = WRITTEN_UNIX_MS + 60_000;
    let waits = vec![lease(1, "one", 3_600_000), parked(Some("a"), Some(until)), parked(None, Some(until))];
    take(&*ledger, under(1, run, 1, waits)).await;
    assert_eq!(claimable(&*ledger, until - 1, run).await, None);
    assert!(claimable(&*ledger, until, run).await.is_some(), "its lease is nobody's while it waits");
    take(&*ledger, anyone(run, 4, vec![released()])).await;
    assert!(claimable(&*ledger, WRITTEN_UNIX_MS, run).await.is_some());
    let step_waits = vec![lease(2, "one", 3_600_000), parked(Some("a"), Some(until))];
    take(&*ledger, under(2, run, 5, step_waits)).await;
    assert_eq!(claimable(&*ledger, u64::MAX / 4, run).await, None, "a step waits, and its worker goes on");
    take(&*ledger, under(2, run, 7, vec![parked(None, None)])).await;
    assert_eq!(claimable(&*ledger, u64::MAX / 4, run).await, None, "it waits for somebody");
    take(&*ledger, anyone(run, 8, vec![late_outcome("a", 1)])).await;
    assert!(claimable(&*ledger, WRITTEN_UNIX_MS, run).await.is_some(), "it may be what was waited for");
}

pub async fn what_is_over_or_quarantined_is_never_claimable(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    for last in [terminal(RunStatus::Succeeded), quarantined()] {
        let run = new_run(subject);
        take(&*ledger, admission(run)).await;
        take(&*ledger, under(1, run, 1, vec![lease(1, "one", 0), last])).await;
        take(&*ledger, anyone(run, 3, vec![late_outcome("a", 1)])).await;
        assert_eq!(claimable(&*ledger, u64::MAX / 4, run).await, None);
        take(&*ledger, anyone(run, 4, vec![rerun("a", 2)])).await;
        assert!(claimable(&*ledger, WRITTEN_UNIX_MS, run).await.is_some());
    }
}

pub async fn claimable_runs_come_in_portions(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    for _ in 0..10 {
        take(&*ledger, admission(new_run(subject))).await;
    }
    let some = ledger.claimable(WRITTEN_UNIX_MS, 4).await.expect("a healthy ledger reads");
    assert_eq!(some.len(), 4);
    assert!(some.iter().all(|claimable| claimable.class == QueueClass::Interactive), "as they began");
}

pub async fn two_processes_have_one_ledger(subject: &mut dyn Subject) {
    let (one, other) = (subject.open().await, subject.open().await);
    let mut changes = other.changes();
    changes.mark_unchanged();
    let run = leased(subject, &*one).await;
    assert_eq!(bodies(&*other, run).await.len(), 2);
    tokio::time::timeout(PATIENCE, changes.changed()).await.expect("it is told").expect("the ledger is there");
    one.renew(run, 1, 0).await.expect("its holder lets go");
    take(&*other, under(2, run, 2, vec![lease(2, "two", LEASE_MS)])).await;
    assert_eq!(refused(&*one, under(1, run, 3, vec![intent("a", 1)])).await, AppendError::Fenced { lease: 2 });
    assert_eq!(one.renew(run, 1, u64::MAX / 4).await, Err(AppendError::Fenced { lease: 2 }));
}

pub async fn two_processes_admit_once(subject: &mut dyn Subject) {
    let ledgers = [subject.open().await, subject.open().await];
    let runs: Vec<RunId> = (0..40).map(|_| new_run(subject)).collect();
    let race = |ledger: &Arc<dyn LedgerStore>| {
        let appends: Vec<_> = runs.iter().map(|run| ledger.append(admission(*run))).collect();
        tokio::spawn(async move {
            let mut won = 0;
            for append in appends {
                match append.await {
                    Ok(_) => won += 1,
                    Err(error) => assert_eq!(error, AppendError::Conflict { seq: 1 }),
                }
            }
            won
        })
    };
    let racers = ledgers.each_ref().map(race);
    let mut won = 0;
    for racer in racers {
        won += tokio::time::timeout(PATIENCE, racer).await.expect("in time").expect("no racer fails");
    }
    assert_eq!(won, runs.len());
    for run in runs {
        assert_eq!(bodies(&*ledgers[0], run).await.len(), 1);
    }
}
