//! Append, read, roll, trim, reopen.

use std::sync::Arc;

use bytes::Bytes;
use domain::ManualClock;

use super::rig::*;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use crate::segment::view::View;
use crate::segment::{
    AppendError, Entry, Journal, OpenError, Payload, Position, ReadError, RecordView, Rejected, SegmentId, SegmentInfo,
    SegmentObserver, SideFile, SyncMode,
};

#[test]
fn what_is_appended_is_read_in_order_and_after_a_reopen() {
    let storage = MemoryStorage::new();
    let (journal, recovery) = open(&storage);
    assert_eq!((recovery.epoch, recovery.records), (1, 0));
    let appends = (0..500_u32).map(|n| journal.append(entry(u64::from(n % 3), 0, n.to_le_bytes()))).collect();
    let appended: Vec<_> = wait_all(appends).into_iter().map(Result::unwrap).collect();
    let records = read_all(&journal);
    assert_eq!(records.len(), 500);
    for (n, (record, appended)) in records.iter().zip(&appended).enumerate() {
        assert_eq!(record.payload[..], u32::try_from(n).unwrap().to_le_bytes());
        assert_eq!((record.position, record.sequence), (appended.position, appended.sequence));
        assert_eq!(record.kind, 7);
        let expected = if n % 3 == 0 { 0 } else { n as u64 / 3 + 1 };
        assert_eq!(record.sequence, expected, "dense in its stream, and none without one");
    }
    for at in [0, 1, 250, 499] {
        assert_eq!(read_from(&journal, records[at].position).unwrap(), records[at..]);
        assert_eq!(read_from(&journal, records[at].position.after()).unwrap(), records[at + 1..]);
    }
    journal.close();

    let (journal, recovery) = open(&storage);
    assert_eq!((recovery.epoch, recovery.records, recovery.scanned), (2, 500, 0));
    assert_eq!(recovery.damage, []);
    assert_eq!(read_all(&journal), records);
    assert_eq!(append(&journal, "more").epoch, 2);
    assert_eq!(read_all(&journal).len(), 501);
    assert!(Journal::verify_in(&storage, &directory()).unwrap().is_whole());
}

#[test]
fn the_same_on_the_machines_own_files() {
    for sync in [SyncMode::Auto, SyncMode::Fdatasync] {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let mut options = on_disk(directory.path());
            options.sync = sync;
            Journal::open(options).unwrap()
        };
        let (journal, _) = open();
        if sync == SyncMode::Fdatasync {
            assert_eq!(journal.stat().sync, SyncMode::Fdatasync);
        }
        let appends = (0..2_000_u32).map(|n| journal.append(entry(5, 0, vec![n.to_le_bytes()[0]; 300]))).collect();
        assert!(wait_all(appends).iter().all(Result::is_ok));
        let records = read_all(&journal);
        assert_eq!(records.len(), 2_000);
        assert!(journal.segments().len() > 8, "it rolled");
        journal.close();
        assert!(Journal::verify(directory.path()).unwrap().is_whole());
        let (journal, recovery) = open();
        assert_eq!(recovery.records, 2_000);
        assert_eq!(read_all(&journal), records);
        let trimmed = journal.trim_before(records[1_000].position).unwrap();
        assert!(trimmed.segments > 3 && trimmed.records <= 1_000);
        let left = read_all(&journal);
        assert_eq!(left, records[records.len() - left.len()..]);
        for n in 0..1_000_u32 {
            append(&journal, n.to_le_bytes());
        }
        journal.close();
        let report = Journal::verify(directory.path()).unwrap();
        assert!(report.is_whole(), "{report:?}");
    }
}

#[test]
fn a_payload_in_parts_is_one_run_of_bytes() {
    let storage = MemoryStorage::new();
    let (journal, _) = open(&storage);
    let payload = Payload { head: b"he".to_vec(), middle: Bytes::from_static(b"ll"), tail: Bytes::from_static(b"o") };
    journal.append(Entry { stream: 0, time_unix_ms: 0, kind: 0, payload, check: None }).wait().unwrap();
    journal.append(entry(0, 0, [])).wait().unwrap();
    assert_eq!(payloads(&read_all(&journal)), [b"hello".to_vec(), vec![]]);
}

#[test]
fn a_check_sees_the_sequence_and_can_say_no() {
    let storage = MemoryStorage::new();
    let (journal, _) = open(&storage);
    let checked = |expected: u64| {
        let mut entry = entry(9, 0, "x");
        entry.check =
            Some(Box::new(
                move |context| {
                    if context.last_sequence == expected { Ok(()) } else { Err(Rejected("stale".into())) }
                },
            ));
        journal.append(entry)
    };
    // Handed over together, so that most of them are in one batch.
    let answers = wait_all(vec![checked(0), checked(0), checked(1), checked(1), checked(2)]);
    let sequences: Vec<_> = answers.iter().map(|answer| answer.as_ref().map(|appended| appended.sequence)).collect();
    let stale = AppendError::Rejected(Rejected("stale".into()));
    assert_eq!(sequences, [Ok(1), Err(&stale), Ok(2), Err(&stale), Ok(3)]);
    assert_eq!(read_all(&journal).len(), 3);
}

#[test]
fn bounds_are_answered_at_once() {
    let storage = MemoryStorage::new();
    let (journal, _) = open(&storage);
    let max = journal.payload_bytes_max();
    let largest = vec![1; usize::try_from(max).unwrap()];
    let error = journal.append(entry(0, 0, vec![0; largest.len() + 1])).wait();
    assert_eq!(error, Err(AppendError::TooLarge { bytes: max + 1, bytes_max: max }));
    append(&journal, "small");
    append(&journal, largest.clone());
    append(&journal, "small");
    assert_eq!(payloads(&read_all(&journal)), [b"small".to_vec(), largest, b"small".to_vec()]);
}

#[test]
fn positions_that_never_were_are_told_from_damage() {
    let storage = MemoryStorage::new();
    let (journal, _) = open(&storage);
    let first = append(&journal, vec![0; 9_000]).position;
    append(&journal, "b");
    let inside = Position::at(first.segment(), first.file_offset() + 4096, 0);
    let beyond = Position::at(journal.durable().segment(), journal.durable().file_offset() + 4096, 0);
    for bad in [inside, beyond, Position::from_bytes([0xff; 16])] {
        let error = read_from(&journal, bad).unwrap_err();
        assert!(matches!(error, ReadError::NoSuchPosition(_)), "{bad}: {error}");
    }
    assert_eq!(journal.damage(), []);
    assert_eq!(read_from(&journal, journal.durable()).unwrap(), []);
}

#[test]
fn two_processes_of_one_upgrade_live_side_by_side() {
    let storage = MemoryStorage::new();
    let (elder, _) = open(&storage);
    for n in 0..10_u8 {
        append(&elder, [n]);
    }
    let (younger, recovery) = open(&storage);
    assert_eq!((recovery.epoch, recovery.live_epochs.as_slice()), (2, [1].as_slice()));
    append(&younger, "y0");
    append(&elder, [10]);
    // The last batch of the elder is not surely durable to us; nothing behind its epoch is shown before it ends.
    let mut cursor = younger.read(Position::START).unwrap();
    let mut seen = Vec::new();
    while let Some(record) = cursor.next_record().unwrap() {
        seen.push(record.payload.to_vec());
    }
    assert_eq!(seen, (0..9_u8).map(|n| vec![n]).collect::<Vec<_>>());
    assert!(younger.trim(u64::MAX).unwrap().segments == 0, "what another process writes is not ours to drop");
    append(&elder, [11]);
    elder.close();
    while let Some(record) = cursor.next_record().unwrap() {
        seen.push(record.payload.to_vec());
    }
    let mut expected: Vec<_> = (0..12_u8).map(|n| vec![n]).collect();
    expected.push(b"y0".to_vec());
    assert_eq!(seen, expected);
    assert_eq!(payloads(&read_all(&younger)), expected);
    let report = Journal::verify_in(&storage, &directory()).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn what_the_younger_process_trims_is_trimmed_to_the_elder_too() {
    let memory = MemoryStorage::new();
    let (first, _) = open(&memory);
    let positions: Vec<_> = (0..60_u8).map(|n| append(&first, vec![n; 3000]).position).collect();
    first.close();
    let (elder, _) = open(&memory);
    let mut reader = elder.read(positions[0]).unwrap();
    reader.next_record().unwrap();
    let (younger, _) = open(&memory);
    assert_eq!(elder.trim(u64::MAX).unwrap().segments, 0, "the younger one trims");
    assert!(younger.trim(u64::MAX).unwrap().segments > 2);
    for n in 0..60_u8 {
        append(&younger, vec![n; 2900]);
    }
    let error = loop {
        match reader.next_record() {
            Ok(Some(record)) => assert!(positions.contains(&record.position)),
            Ok(None) => panic!("it read on as if nothing was"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Trimmed { .. }), "{error}");
    assert_eq!(elder.damage(), []);
}

#[test]
fn the_elder_trims_again_when_the_younger_process_has_ended() {
    for closed in [true, false] {
        let memory = MemoryStorage::new();
        let (first, _) = open(&memory);
        let positions: Vec<_> = (0..60_u8).map(|n| append(&first, vec![n; 3000]).position).collect();
        first.close();
        let (elder, _) = open(&memory);
        for n in 0..60_u8 {
            append(&elder, vec![n; 3000]);
        }
        // A second start by mistake: it trims a little, and ends.
        let (younger, _) = open(&memory);
        assert_eq!(elder.trim(u64::MAX).unwrap().segments, 0, "the younger one trims");
        let by_the_younger = younger.trim_before(positions[30]).unwrap().segments;
        assert!(by_the_younger > 1);
        let mark = memory.read(&directory().join("trim.mark"), 100).unwrap();
        if !closed {
            append(&younger, "what it took stays");
        }
        drop(younger);

        assert_eq!(elder.trim_before(positions[15]).unwrap().segments, by_the_younger, "what it trimmed is known");
        assert_eq!(memory.read(&directory().join("trim.mark"), 100).unwrap(), mark, "and no mark goes back");
        assert!(elder.trim(u64::MAX).unwrap().segments > 2, "the elder trims again");
        append(&elder, "and goes on");
        elder.close();
        let (last, recovery) = open(&memory);
        assert_eq!(recovery.damage, []);
        let left = payloads(&read_all(&last));
        assert!(left.contains(&b"and goes on".to_vec()) && left.len() < 40, "{}", left.len());
        assert_eq!(left.contains(&b"what it took stays".to_vec()), !closed);
    }
}

#[test]
fn a_side_file_is_made_when_a_segment_is_sealed_and_goes_with_it() {
    #[derive(Debug, Default)]
    struct Counter(std::sync::Mutex<Vec<String>>);
    impl SegmentObserver for Counter {
        fn committed(&self, segment: SegmentId, records: &mut dyn Iterator<Item = RecordView<'_>>) {
            let text = format!("committed {} {}", segment.sequence, records.count());
            self.0.lock().unwrap().push(text);
        }
        fn sealed(&self, segment: &SegmentInfo) -> Option<SideFile> {
            let records = segment.records;
            Some(Box::new(move || records.to_le_bytes().to_vec()))
        }
        fn settled(&self, _epoch: u64) {}
        fn trimmed(&self, segment: SegmentId) {
            self.0.lock().unwrap().push(format!("trimmed {}", segment.sequence));
        }
    }
    let memory = MemoryStorage::new();
    let counter = Arc::new(Counter::default());
    let mut with = options(Arc::new(memory.clone()));
    with.observer = Some(Arc::<Counter>::clone(&counter));
    let (journal, _) = Journal::open(with).unwrap();
    for n in 0..20_u8 {
        append(&journal, [n; 4000]);
    }
    journal.close();
    let committed = counter.0.lock().unwrap().iter().filter(|line| line.starts_with("committed")).count();
    assert_eq!(committed, 20, "told before the answer, each of them");
    let (journal, _) = open(&memory);
    let sealed = journal.sealed();
    assert_eq!(sealed.len(), 4, "six records of two blocks each fit one");
    for info in &sealed {
        assert_eq!(journal.side_file(info).unwrap(), Some(info.records.to_le_bytes().to_vec()));
    }
    journal.write_side_file(&sealed[1], b"another").unwrap();
    assert_eq!(journal.side_file(&sealed[1]).unwrap(), Some(b"another".to_vec()));
    journal.trim_before(sealed[1].first()).unwrap();
    assert_eq!(journal.side_file(&sealed[0]).unwrap(), None);
}

#[test]
fn appends_resolve_on_an_async_runtime() {
    let storage = MemoryStorage::new();
    let (journal, _) = open(&storage);
    let journal = Arc::new(journal);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..200_u32)
        .map(|n| {
            let journal = Arc::clone(&journal);
            runtime.spawn(async move { journal.append(entry(1, 0, n.to_le_bytes())).await })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap().unwrap();
    }
    assert_eq!(read_all(&journal).len(), 200);
}

fn seen(memory: &MemoryStorage) -> usize {
    let view = View::open(Arc::new(memory.clone()), &directory(), ManualClock::at_unix_ms(1)).unwrap();
    let mut cursor = view.read(Position::START).unwrap();
    std::iter::from_fn(|| cursor.next_record().unwrap()).count()
}

#[test]
fn whoever_only_looks_sees_the_newest_batch() {
    for memory in [MemoryStorage::new(), MemoryStorage::without_direct()] {
        let (journal, _) = open(&memory);
        for n in 1..=20 {
            append(&journal, [1; 3000]);
            assert_eq!(seen(&memory), n);
        }
    }
}

#[test]
fn what_was_shown_to_whoever_only_looks_is_durable() {
    let mut shown = Vec::new();
    for seed in 0..20 {
        let memory = MemoryStorage::without_direct();
        let storage = FaultyStorage::new(memory.clone(), seed, Faults::default());
        let (journal, _) = Journal::open(options(Arc::new(storage.clone()))).unwrap();
        append(&journal, "first");
        storage.set_faults(Faults { sync_fails: 1, ..Faults::default() });
        assert!(journal.append(entry(1, 0, "its sync failed")).wait().is_err());
        let seen = seen(&memory);
        memory.power_cut(seed);
        drop(journal);
        assert!(read_all(&open(&memory).0).len() >= seen, "seed {seed}");
        shown.push(seen);
    }
    assert!(shown.contains(&2), "{shown:?}");
}

#[test]
fn no_file_makes_the_epochs_begin_again() {
    for name in [
        "ffffffffffffffff.lock",
        "fffffffffffffffe.lock",
        "7fffffffffffffff.lock",
        "ffffffffffffffff-00000000.seg",
        "ffffffffffffffff-ffffffff.new",
    ] {
        let memory = MemoryStorage::new();
        let (journal, _) = open(&memory);
        append(&journal, "kept");
        journal.close();
        memory.put(&directory().join(name), b"").unwrap();
        let before = memory.files();
        let refused = Journal::open(options(Arc::new(memory.clone()))).map(drop).unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, OpenError::NoEpochLeft { .. }) && said.contains(name), "{name}: {said}");
        assert_eq!(memory.files(), before, "{name}: something was changed");
        memory.remove(&directory().join(name)).unwrap();
        let (journal, recovery) = open(&memory);
        assert_eq!((recovery.epoch, payloads(&read_all(&journal))), (2, vec![b"kept".to_vec()]));
    }
}
