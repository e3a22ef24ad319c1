//! Opening: by one process, for the price of what is new.

use super::*;

#[tokio::test]
async fn a_second_one_is_told_that_there_is_a_first() {
    let rig = Rig::on_disk();
    let ledger = rig.ledger();
    assert!(matches!(rig.try_open(), Err(OpenError::Locked(_))));
    drop(ledger);
    drop(rig.ledger());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_reads_what_the_index_does_not_have_and_no_more() {
    let memory = MemoryStorage::new();
    let rig = Rig::small(Arc::new(memory.clone()));
    {
        let ledger = rig.ledger();
        for number in 0..100 {
            live(&ledger, run(number)).await;
        }
        ledger.append(admission(run(100))).await.unwrap();
    }
    {
        let (ledger, opened) = rig.try_open().unwrap();
        assert_eq!((opened.read, opened.open_runs), (0, 1));
        assert_eq!(ledger.core.table.counts(), (1, 1), "what is over is not read at all");
        assert_eq!(ledger.append(admission(run(5))).await, Err(AppendError::Conflict { seq: 5 }));
        let lease = commit("acme", run(100), 1, Writer::Lease(1), vec![lease(1, "one", 1)]);
        ledger.append(lease).await.unwrap();
    }
    rig.lose_index();
    let (ledger, opened) = rig.try_open().unwrap();
    assert_eq!((opened.read, opened.open_runs), (202, 1));
    assert_eq!(ledger.append(admission(run(5))).await, Err(AppendError::Conflict { seq: 5 }));
    assert_eq!(ledger.core.table.look(run(100)).map(|known| (known.seq, known.lease)), Some((2, 1)));
    assert_eq!(read(&ledger, run(5)).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_another_journal_is_made_anew() {
    let memory = MemoryStorage::new();
    let mut rig = Rig::small(Arc::new(memory.clone()));
    {
        let ledger = rig.ledger();
        for number in 0..50 {
            live(&ledger, run(number)).await;
        }
    }
    // The journal is gone, and the index is not.
    rig.settings.storage = Arc::new(MemoryStorage::new());
    let ledger = rig.ledger();
    assert!(read(&ledger, run(5)).await.is_empty());
    let again = ledger.append(admission(run(5))).await;
    assert_eq!(again, Err(AppendError::Conflict { seq: 1 }), "it was, all the same");
    live(&ledger, run(1000)).await;
    assert_eq!(read(&ledger, run(1000)).await.len(), 5);
}

/// The index's queue has room for two: it falls behind, and reads the journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_index_that_is_behind_catches_up() {
    let mut rig = Rig::small(Arc::new(MemoryStorage::new()));
    rig.settings.index_queue_max = 2;
    rig.settings.recent_runs_max = 0;
    let ledger = Arc::new(rig.ledger());
    let writing: Vec<_> = (0..8)
        .map(|of| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                for number in 0..50 {
                    let run = run(of * 50 + number);
                    live(&ledger, run).await;
                    assert_eq!(read(&ledger, run).await.len(), 5);
                    assert_eq!(ledger.append(admission(run)).await, Err(AppendError::Conflict { seq: 5 }));
                }
            })
        })
        .collect();
    for writing in writing {
        writing.await.unwrap();
    }
    let records = all(&ledger).await;
    assert_eq!(records.len(), 400 * 5);
    assert_dense(&records);
    assert_eq!(ledger.stat().unindexed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenant_s_record_is_told_loudly() {
    let rig = Rig::small(Arc::new(MemoryStorage::new()));
    let ledger = rig.ledger();
    live(&ledger, run(1)).await;
    let (found, asked) = (tenant("acme"), tenant("acme2"));
    let told = ledger.read(&asked, run(1)).await;
    assert_eq!(told, Err(ReadError::Tenant { run: run(1), found, asked }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_named_and_the_rest_is_read() {
    let memory = MemoryStorage::new();
    let rig = Rig::small(Arc::new(memory.clone()));
    {
        let ledger = rig.ledger();
        for number in 0..200 {
            live(&ledger, run(number)).await;
        }
    }
    let journal = rig.directory.path().join("journal");
    let mut segments: Vec<_> = memory.files().into_iter().map(|(path, _)| path).collect();
    segments.retain(|path| path.starts_with(&journal) && path.extension().is_some_and(|e| e == "seg"));
    segments.sort();
    assert!(segments.len() > 2);
    assert!(memory.tamper(&segments[0], |bytes| bytes[4096 + 200] ^= 1));
    let ledger = rig.ledger();
    let damaged = ledger.read(&tenant("acme"), run(0)).await;
    assert!(matches!(&damaged, Err(ReadError::Damaged(where_)) if where_.contains("offset")), "{damaged:?}");
    assert_eq!(read(&ledger, run(150)).await.len(), 5);
    assert!(matches!(ledger.tail(TailPosition::start(), 10).await, Err(ReadError::Damaged(_))));
    drop(ledger);
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&rig.clock);
    let report = verify(&rig.settings.storage, rig.directory.path(), &clock).unwrap();
    assert!(!report.is_whole());
    assert!(report.commits >= 300 && report.commits < 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_sees_what_there_is() {
    let rig = Rig::small(Arc::new(MemoryStorage::new()));
    let ledger = rig.ledger();
    for number in 0..20 {
        live(&ledger, run(number)).await;
    }
    ledger.append(admission(run(20))).await.unwrap();
    read(&ledger, run(20)).await;
    let stat = ledger.stat();
    assert_eq!((stat.open_runs, stat.tombstones, stat.unindexed), (1, 21, 0));
    // It is counted a moment after it is answered.
    assert!(stat.journal.records >= 40);
    assert!(stat.runs_in_memory >= 1 && stat.runs_in_memory <= 21 && stat.index_failed.is_none());
    drop(ledger);
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&rig.clock);
    let report = verify(&rig.settings.storage, rig.directory.path(), &clock).unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.commits, report.records), (41, 101));
}
