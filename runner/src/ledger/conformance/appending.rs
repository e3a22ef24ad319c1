//! Appends: what an acknowledgement means.

use std::sync::Arc;

use super::made::{
    WRITTEN_UNIX_MS, admission, admitted, cancel_requested, intent, late_outcome, lease, one_of_each, outcome,
    outcome_of, tenant,
};
use super::{PATIENCE, Subject, anyone, begun, bodies, drain, new_run, of_runs, read, refused, take, under};
use crate::ids::RunId;
use crate::ledger::record::Body;
use crate::ledger::rules::BODIES_MAX;
use crate::ledger::store::{AppendError, Committed, TailPosition, Writer};

pub async fn what_is_appended_is_read_back_in_every_field(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let run = new_run(subject);
    let all = one_of_each();
    let (mut seq, mut held) = (0, 0);
    for body in &all {
        let writer = if super::super::rules::is_for_anyone(body) { Writer::Anyone } else { Writer::Lease(1) };
        let mut commit = super::by(writer, run, seq, vec![body.clone()]);
        commit.at_unix_ms += seq;
        seq += 1;
        held = if matches!(body, Body::Lease(_)) { 1 } else { held };
        assert_eq!(take(&*ledger, commit).await, Committed { seq, lease: held });
    }
    for _ in 0..2 {
        let records = read(&*ledger, run).await;
        assert_eq!(records.len(), all.len());
        for (record, (body, at)) in records.iter().zip(all.iter().zip(0..)) {
            assert_eq!(record.body, *body);
            assert_eq!(record.tenant, tenant("acme"));
            assert_eq!(record.at_unix_ms, WRITTEN_UNIX_MS + at);
            assert_eq!(record.lease, u64::from(at > 0), "the lease in force");
        }
        let (tail, _) = drain(&*ledger, TailPosition::start(), 100).await;
        assert_eq!(of_runs(tail, &[run]), records, "the tail has the same");
        ledger = subject.crash(ledger).await;
    }
}

pub async fn a_writer_that_is_behind_is_refused(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    take(&*ledger, anyone(run, 2, vec![cancel_requested()])).await;
    for expected in [1, 2, 4, 1_000_000] {
        let behind = under(1, run, expected, vec![intent("a", 1)]);
        assert_eq!(refused(&*ledger, behind).await, AppendError::Conflict { seq: 3 });
    }
    assert_eq!(take(&*ledger, under(1, run, 3, vec![intent("a", 1)])).await, Committed { seq: 4, lease: 1 });
}

pub async fn of_writers_that_race_one_goes_on(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    for seq in 2..22 {
        let race = |racer: u32| {
            let append = ledger.append(under(1, run, seq, vec![intent("a", racer)]));
            tokio::spawn(async move { append.await.map(|_| racer) })
        };
        let racers: Vec<_> = (1..=6).map(race).collect();
        let mut won = Vec::new();
        for racer in racers {
            match racer.await.expect("no racer fails") {
                Ok(racer) => won.push(racer),
                Err(error) => assert_eq!(error, AppendError::Conflict { seq: seq + 1 }),
            }
        }
        assert_eq!(won.len(), 1);
        assert_eq!(bodies(&*ledger, run).await.last(), Some(&intent("a", won[0])));
    }
}

pub async fn a_commit_is_there_as_a_whole_or_not_at_all(subject: &mut dyn Subject) {
    const EACH: u64 = 5;
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    let writer = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            for nth in 0..40 {
                let bodies = (1..=EACH).map(|_| outcome("a", 1)).collect();
                take(&*ledger, under(1, run, 2 + nth * EACH, bodies)).await;
            }
        })
    };
    while !writer.is_finished() {
        let records = read(&*ledger, run).await.len() as u64;
        assert_eq!((records - 2) % EACH, 0, "a part of a commit was read");
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer has written");
    assert_eq!(read(&*ledger, run).await.len() as u64, 2 + 40 * EACH);
}

pub async fn commits_are_bounded(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    let many = |count: usize| under(1, run, 2, (0..count).map(|_| outcome_of("a", 1, vec![7; 2048])).collect());
    assert_eq!(refused(&*ledger, many(0)).await, AppendError::Invalid("it has no body"));
    assert!(matches!(refused(&*ledger, many(BODIES_MAX + 1)).await, AppendError::Invalid(_)));
    let large = under(1, run, 2, vec![outcome_of("a", 1, vec![7; 16 << 20])]);
    match refused(&*ledger, large).await {
        AppendError::TooLarge { bytes, bytes_max } => assert!(bytes > 16 << 20 && bytes_max < bytes),
        other => super::unexpected(&format!("{other:?}")),
    }
    let seq = 2 + BODIES_MAX as u64;
    assert_eq!(take(&*ledger, many(BODIES_MAX)).await, Committed { seq, lease: 1 });
    let megabyte = outcome_of("b", 1, (0..1 << 20).map(|at: u32| at.to_be_bytes()[3]).collect());
    take(&*ledger, under(1, run, seq, vec![megabyte.clone()])).await;
    let ledger = subject.crash(ledger).await;
    let found = bodies(&*ledger, run).await;
    assert_eq!(found.len() as u64, seq + 1);
    assert_eq!(found.last(), Some(&megabyte));
}

pub async fn what_is_refused_leaves_nothing(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    let before = read(&*ledger, run).await;
    let two = || vec![intent("a", 1), outcome("a", 1)];
    let mut foreign = under(1, run, 2, two());
    foreign.tenant = tenant("other");
    let refusals = [
        (foreign, AppendError::Tenant),
        (under(1, run, 1, two()), AppendError::Conflict { seq: 2 }),
        (under(2, run, 2, two()), AppendError::Invalid("nobody has taken this lease")),
        (under(1, run, 2, vec![lease(1, "one", 1000), intent("a", 1)]), AppendError::Fenced { lease: 1 }),
        (under(1, new_run(subject), 2, two()), AppendError::Conflict { seq: 0 }),
    ];
    for (commit, error) in refusals {
        assert_eq!(refused(&*ledger, commit).await, error);
    }
    for commit in [anyone(run, 2, two()), anyone(run, 2, vec![cancel_requested(), admitted()])] {
        assert!(matches!(refused(&*ledger, commit).await, AppendError::Invalid(_)));
    }
    let ledger = subject.crash(ledger).await;
    assert_eq!(read(&*ledger, run).await, before);
    let (tail, _) = drain(&*ledger, TailPosition::start(), 1000).await;
    assert_eq!(of_runs(tail, &[run]), before);
}

pub async fn appends_of_many_tasks_are_all_there_once(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let runs: Vec<RunId> = (0..60).map(|_| new_run(subject)).collect();
    let work = |run: RunId| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            take(&*ledger, admission(run)).await;
            take(&*ledger, under(1, run, 1, vec![lease(1, "one", 3_600_000), intent("s", 1)])).await;
            for nth in 0..8_u32 {
                let bodies = vec![outcome("s", nth + 1), intent("s", nth + 2)];
                take(&*ledger, under(1, run, 3 + 2 * u64::from(nth), bodies)).await;
            }
        })
    };
    let tasks: Vec<_> = runs.iter().map(|run| work(*run)).collect();
    for task in tasks {
        task.await.expect("no writer fails");
    }
    let ledger = subject.crash(ledger).await;
    for run in runs {
        let found = bodies(&*ledger, run).await;
        let mut expected = vec![admitted(), lease(1, "one", 3_600_000), intent("s", 1)];
        expected.extend((1..=8).flat_map(|nth| [outcome("s", nth), intent("s", nth + 1)]));
        assert_eq!(found, expected);
    }
}

pub async fn dropping_the_future_withdraws_nothing(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let runs: Vec<RunId> = (0..20).map(|_| new_run(subject)).collect();
    for run in &runs {
        drop(ledger.append(admission(*run)));
    }
    let all = async {
        for run in &runs {
            while read(&*ledger, *run).await.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("what was asked for is done");
    // And what is there is known to whoever asks again.
    assert_eq!(refused(&*ledger, admission(runs[0])).await, AppendError::Conflict { seq: 1 });
}

pub async fn everything_acknowledged_is_there_after_crashes(subject: &mut dyn Subject) {
    let mut ledger = subject.open().await;
    let runs: Vec<RunId> = (0..12).map(|_| new_run(subject)).collect();
    let mut acknowledged = vec![0_u64; runs.len()];
    for round in 0..4_u32 {
        for (run, seq) in runs.iter().zip(&mut acknowledged) {
            let commit = match *seq {
                0 => admission(*run),
                seq => anyone(*run, seq, vec![late_outcome("a", round), late_outcome("b", round)]),
            };
            *seq = take(&*ledger, commit).await.seq;
        }
        ledger = subject.crash(ledger).await;
        for (run, seq) in runs.iter().zip(&acknowledged) {
            assert_eq!(read(&*ledger, *run).await.len() as u64, *seq, "round {round}");
        }
    }
}
