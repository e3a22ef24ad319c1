//! A run is admitted once, however long it is over, and whoever asks at whatever moment.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_is_over_and_forgotten_is_not_admitted_again() {
    let mut rig = Rig::on_disk();
    rig.settings.recent_runs_max = 0;
    let ledger = Arc::new(rig.ledger());
    // Some admit, one of them ends the run at once, and all go on to ask while it is on its way out of memory.
    let mut admitted = 0;
    for round in 0..40 {
        let runs: Vec<RunId> = (0..5).map(|n| run(round * 5 + n)).collect();
        let asking: Vec<_> = (0..6)
            .map(|_| {
                let (ledger, runs) = (Arc::clone(&ledger), runs.clone());
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for run in runs.iter().cycle().take(runs.len() * 6) {
                        match ledger.append(admission(*run)).await {
                            Ok(_) => {
                                admitted += 1;
                                ledger.append(whole_life(*run)).await.unwrap();
                            }
                            Err(AppendError::Conflict { seq }) => assert!((1..=5).contains(&seq)),
                            Err(other) => panic!("{other}"),
                        }
                    }
                    admitted
                })
            })
            .collect();
        for asking in asking {
            admitted += asking.await.unwrap();
        }
        for run in runs {
            assert_eq!(read(&ledger, run).await.len(), 5);
        }
    }
    assert_eq!(admitted, 200, "each of them once");
    let (open, here) = ledger.core.table.counts();
    assert_eq!(open, 0);
    assert!(here <= 5, "{here} runs are remembered that are over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_forgotten_takes_what_it_may() {
    let mut rig = Rig::on_disk();
    rig.settings.recent_runs_max = 0;
    let ledger = rig.ledger();
    for number in 0..3 {
        live(&ledger, run(number)).await;
    }
    // Reading waits for the index, and what the index has is let go.
    read(&ledger, run(2)).await;
    while ledger.core.table.look(run(0)).is_some() {
        tokio::task::yield_now().await;
    }
    let late = |run, expected| commit("acme", run, expected, Writer::Anyone, vec![late_outcome("a", 1)]);
    assert_eq!(ledger.append(late(run(0), 4)).await, Err(AppendError::Conflict { seq: 5 }));
    assert_eq!(ledger.append(late(run(0), 5)).await, Ok(Committed { seq: 6, lease: 1 }));
    let again = commit("acme", run(0), 6, Writer::Anyone, vec![rerun("a", 2)]);
    assert_eq!(ledger.append(again).await, Ok(Committed { seq: 7, lease: 1 }));
    let stale = commit("acme", run(0), 7, Writer::Lease(1), vec![lease(1, "one", 1000)]);
    assert_eq!(ledger.append(stale).await, Err(AppendError::Fenced { lease: 1 }));
    assert_eq!(ledger.stat().open_runs, 1);
    let others = commit("acme2", run(1), 5, Writer::Anyone, vec![late_outcome("a", 1)]);
    assert_eq!(ledger.append(others).await, Err(AppendError::Tenant));
    assert_eq!(ledger.renew(run(1), 1, 0).await, Ok(()));
    assert_eq!(ledger.renew(run(9), 1, 0).await, Err(AppendError::Conflict { seq: 0 }));
    assert_eq!(read(&ledger, run(0)).await.len(), 7);
}
