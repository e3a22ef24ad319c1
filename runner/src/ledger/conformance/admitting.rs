//! Admission: a run begins once.

use std::sync::Arc;

use super::made::{admission, admitted, cancel_requested, commit, lease, terminal};
use super::{Subject, anyone, begun, new_run, read, refused, take, under};
use crate::ledger::record::RunStatus;
use crate::ledger::store::{AppendError, Committed, LedgerStore, Writer};

pub async fn a_run_is_admitted_once(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = new_run(subject);
    assert_eq!(refused(&*ledger, anyone(run, 1, vec![cancel_requested()])).await, AppendError::Conflict { seq: 0 });
    assert_eq!(take(&*ledger, admission(run)).await, Committed { seq: 1, lease: 0 });
    assert_eq!(refused(&*ledger, admission(run)).await, AppendError::Conflict { seq: 1 });
    let foreign = commit("other", run, 0, Writer::Anyone, vec![admitted()]);
    assert_eq!(refused(&*ledger, foreign).await, AppendError::Tenant);
    take(&*ledger, under(1, run, 1, vec![lease(1, "one", 1000)])).await;
    assert_eq!(refused(&*ledger, admission(run)).await, AppendError::Conflict { seq: 2 });
    assert_eq!(read(&*ledger, run).await.len(), 2);
}

pub async fn racing_admissions_admit_once(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let runs: Vec<_> = (0..20).map(|_| new_run(subject)).collect();
    let race = |ledger: Arc<dyn LedgerStore>| {
        let runs = runs.clone();
        tokio::spawn(async move {
            let mut won = 0;
            for run in runs {
                match ledger.append(admission(run)).await {
                    Ok(_) => won += 1,
                    Err(error) => assert_eq!(error, AppendError::Conflict { seq: 1 }),
                }
            }
            won
        })
    };
    let racers: Vec<_> = (0..8).map(|_| race(Arc::clone(&ledger))).collect();
    let mut won = 0;
    for racer in racers {
        won += racer.await.expect("no racer fails");
    }
    assert_eq!(won, runs.len());
    for run in runs {
        assert_eq!(read(&*ledger, run).await.len(), 1);
    }
}

pub async fn an_admission_stays_after_the_end_and_after_reopening(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    take(&*ledger, under(1, run, 2, vec![terminal(RunStatus::Succeeded)])).await;
    for _ in 0..2 {
        assert_eq!(refused(&*ledger, admission(run)).await, AppendError::Conflict { seq: 3 });
        drop(ledger);
        ledger = subject.open().await;
    }
    ledger = subject.crash(ledger).await;
    assert_eq!(refused(&*ledger, admission(run)).await, AppendError::Conflict { seq: 3 });
    assert_eq!(read(&*ledger, run).await.len(), 3);
}
