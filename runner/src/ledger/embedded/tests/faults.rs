//! A disk that fails: nobody is told what is not so.

use eventlog::segment::storage::{Faults, FaultyStorage};

use super::*;

/// What was told of a run: whoever got an answer that says it is there was right.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    /// The highest sequence that was acknowledged, or that somebody was refused for.
    seq: u64,
}

async fn race(ledger: &Arc<EmbeddedLedger>, commits: Vec<Commit>) -> Vec<Result<Committed, AppendError>> {
    let racing: Vec<_> = commits.into_iter().map(|commit| tokio::spawn(ledger.append(commit))).collect();
    let mut answers = Vec::new();
    for answer in racing {
        answers.push(answer.await.unwrap());
    }
    answers
}

impl Told {
    fn hear(&mut self, answers: &[Result<Committed, AppendError>]) {
        let committed = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!(committed <= 1, "of those who expect the same one goes on: {answers:?}");
        for answer in answers {
            match answer {
                Ok(Committed { seq, .. }) | Err(AppendError::Conflict { seq }) => self.seq = self.seq.max(*seq),
                Err(AppendError::Unavailable(_) | AppendError::Full) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_was_told_that_a_run_is_there_was_right() {
    let mut failed = 0;
    for seed in 0..8 {
        let memory = MemoryStorage::new();
        let storage = FaultyStorage::new(memory.clone(), seed, Faults::default());
        let mut rig = Rig::small(Arc::new(storage.clone()));
        let ledger = Arc::new(rig.ledger());
        storage.set_faults(Faults { write_fails: 5, sync_fails: 6, create_fails: 7, ..Faults::default() });
        let mut told = vec![Told::default(); 30];
        for (number, told) in (0..).zip(&mut told) {
            for step in 0..6 {
                let next = match told.seq {
                    0 => admission(run(number)),
                    seq => commit("acme", run(number), seq, Writer::Anyone, vec![late_outcome("a", step); 2]),
                };
                told.hear(&race(&ledger, vec![next; 3]).await);
                let there = read(&ledger, run(number)).await;
                assert!(there.len() as u64 >= told.seq, "seed {seed}, run {number}: {told:?} of {}", there.len());
                assert_dense(&there);
            }
        }
        failed += storage.failed();
        storage.set_faults(Faults::default());
        if seed % 2 == 0 {
            memory.power_cut(seed);
        }
        drop(ledger);
        rig.settings.storage = Arc::new(memory.clone());
        if seed % 3 == 0 {
            rig.lose_index();
        }
        let (ledger, opened) = rig.try_open().unwrap();
        assert_eq!(opened.damage, []);
        for (number, told) in (0..).zip(&told) {
            let there = read(&ledger, run(number)).await;
            assert!(there.len() as u64 >= told.seq, "seed {seed}, run {number}: {told:?} of {}", there.len());
            assert!(there.is_empty() || there.len() % 2 == 1, "commits are whole");
            assert_dense(&there);
        }
        assert_dense(&all(&ledger).await);
    }
    assert!(failed > 100, "the disk did fail: {failed}");
}

/// The writer is held up while three commits gather, so that they are in one batch, and that one fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_batch_that_fails_is_undone_as_a_whole() {
    let memory = MemoryStorage::new();
    let storage = FaultyStorage::new(memory.clone(), 1, Faults::default());
    let rig = Rig::small(Arc::new(storage.clone()));
    let ledger = Arc::new(rig.ledger());
    ledger.append(admission(run(1))).await.unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let plug = segment::Entry {
        stream: 0,
        time_unix_ms: 0,
        kind: 0,
        payload: Vec::new().into(),
        check: Some(Box::new(move |_| {
            hold.send(()).ok();
            wait.recv().ok();
            Err(segment::Rejected("held the writer up".into()))
        })),
    };
    let plug = ledger.core.journal.append(plug);
    held.recv().unwrap();
    let bodies = || vec![lease(1, "one", 1000)];
    let first = tokio::spawn(ledger.append(commit("acme", run(1), 1, Writer::Lease(1), bodies())));
    let queued = |records: usize| {
        let ledger = Arc::clone(&ledger);
        async move {
            while ledger.stat().journal.queued_records < records {
                tokio::task::yield_now().await;
            }
        }
    };
    queued(2).await;
    // Fenced by the first, and by nothing durable.
    let second = tokio::spawn(ledger.append(commit("acme", run(1), 1, Writer::Lease(1), bodies())));
    let admitted = tokio::spawn(ledger.append(admission(run(2))));
    queued(4).await;
    storage.set_faults(Faults { write_fails: 1, sync_fails: 1, ..Faults::default() });
    go.send(()).unwrap();
    assert!(matches!(first.await.unwrap(), Err(AppendError::Unavailable(_))));
    assert!(matches!(admitted.await.unwrap(), Err(AppendError::Unavailable(_))));
    assert!(matches!(second.await.unwrap(), Err(AppendError::Unavailable(_))), "and not fenced");
    storage.set_faults(Faults::default());
    while ledger.stat().journal.unavailable.is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(plug.await.map(|_| ()).map_err(|error| error.to_string()), Err("rejected: held the writer up".into()));
    let (open, _) = ledger.core.table.counts();
    assert_eq!(open, 1);
    // Lease 1 was never taken.
    let taken = ledger.append(commit("acme", run(1), 1, Writer::Lease(1), bodies())).await;
    assert_eq!(taken, Ok(Committed { seq: 2, lease: 1 }));
    assert_eq!(ledger.append(admission(run(2))).await, Ok(Committed { seq: 1, lease: 0 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_as_that() {
    let memory = MemoryStorage::new();
    let rig = Rig::small(Arc::new(memory.clone()));
    let ledger = rig.ledger();
    live(&ledger, run(1)).await;
    memory.set_capacity(Some(1));
    let mut seen = Ok(());
    for number in 2..2000 {
        seen = ledger.append(admission(run(number))).await.map(|_| ());
        if seen.is_err() {
            break;
        }
    }
    assert_eq!(seen, Err(AppendError::Full));
    assert_eq!(read(&ledger, run(1)).await.len(), 5);
}
