//! The tail: what projections are made of.

use std::collections::HashMap;
use std::sync::Arc;

use super::made::{admission, lease, outcome};
use super::{PATIENCE, Subject, begun, drain, new_run, of_runs, read, take, under};
use crate::ids::RunId;
use crate::ledger::record::Record;
use crate::ledger::store::{LedgerStore, TailPosition};

/// Runs of differing lengths, written in turn.
async fn written(subject: &mut dyn Subject, ledger: &dyn LedgerStore) -> Vec<RunId> {
    let mut runs = Vec::new();
    for _ in 0..9 {
        runs.push(begun(subject, ledger).await);
    }
    for nth in 0..5_u64 {
        for run in runs.iter().skip(usize::try_from(nth).expect("a small number")) {
            take(ledger, under(1, *run, 2 + 3 * nth, (1..=3).map(|nth| outcome("a", nth)).collect())).await;
        }
    }
    runs
}

async fn assert_whole(ledger: &dyn LedgerStore, runs: &[RunId], tail: Vec<Record>) {
    let mut by_run: HashMap<RunId, Vec<Record>> = HashMap::new();
    for record in tail {
        by_run.entry(record.run).or_default().push(record);
    }
    for run in runs {
        assert_eq!(by_run.remove(run).unwrap_or_default(), read(ledger, *run).await);
    }
}

pub async fn the_tail_has_every_record_in_each_run_s_order(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let runs = written(subject, &*ledger).await;
    for max in [1, 2, 7, 1000] {
        let (tail, _) = drain(&*ledger, TailPosition::start(), max).await;
        assert_whole(&*ledger, &runs, of_runs(tail, &runs)).await;
    }
    ledger = subject.crash(ledger).await;
    let (tail, _) = drain(&*ledger, TailPosition::start(), 11).await;
    assert_whole(&*ledger, &runs, of_runs(tail, &runs)).await;
}

pub async fn a_tail_goes_on_where_it_was_left(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let (_, before) = drain(&*ledger, TailPosition::start(), 1000).await;
    let first = written(subject, &*ledger).await;
    let half = ledger.tail(before.clone(), 31).await.expect("a healthy ledger reads");
    assert!(!half.records.is_empty());
    ledger = subject.crash(ledger).await;
    let second = written(subject, &*ledger).await;
    let (rest, end) = drain(&*ledger, half.next.clone(), 10).await;
    let runs: Vec<RunId> = first.iter().chain(&second).copied().collect();
    assert_whole(&*ledger, &runs, of_runs(half.records.into_iter().chain(rest).collect(), &runs)).await;
    assert_eq!(of_runs(drain(&*ledger, end, 10).await.0, &runs), [], "there is nothing behind the end");
    // A place may be gone to more than once.
    let (again, _) = drain(&*ledger, before, 1000).await;
    assert_whole(&*ledger, &runs, of_runs(again, &runs)).await;
}

pub async fn a_tail_that_follows_writers_misses_nothing(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let (_, mut from) = drain(&*ledger, TailPosition::start(), 1000).await;
    let runs: Vec<RunId> = (0..40).map(|_| new_run(subject)).collect();
    let write = |run: RunId| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            take(&*ledger, admission(run)).await;
            take(&*ledger, under(1, run, 1, vec![lease(1, "one", 3_600_000)])).await;
            for nth in 0..10 {
                take(&*ledger, under(1, run, 2 + nth, vec![outcome("a", 1)])).await;
            }
        })
    };
    let writers: Vec<_> = runs.iter().map(|run| write(*run)).collect();
    let mut seen = Vec::new();
    let follow = async {
        while seen.len() < runs.len() * 12 {
            let tail = ledger.tail(from, 64).await.expect("a healthy ledger reads");
            from = tail.next;
            seen.extend(of_runs(tail.records, &runs));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, follow).await.expect("everything comes, once");
    for writer in writers {
        writer.await.expect("no writer fails");
    }
    assert_whole(&*ledger, &runs, seen).await;
}

pub async fn whoever_waits_for_changes_hears_of_them(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    let mut changes = ledger.changes();
    for nth in 0..5 {
        changes.mark_unchanged();
        take(&*ledger, under(1, run, 2 + nth, vec![outcome("a", 1)])).await;
        let heard = tokio::time::timeout(PATIENCE, changes.changed()).await;
        heard.expect("it is told in time").expect("the ledger is there");
    }
}

pub async fn a_place_that_never_was_is_refused(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    begun(subject, &*ledger).await;
    for bytes in [&[0_u8][..], &[0xff; 7], &[0xff; 8], &[0xff; 300]] {
        let odd = ledger.tail(TailPosition(bytes.into()), 10).await;
        assert!(odd.is_err(), "{bytes:?} is no place: {odd:?}");
    }
}
