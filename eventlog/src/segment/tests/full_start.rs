//! Starting on a full disk: what is there is read, and appends go on when there is room.

use std::sync::Arc;
use std::time::Duration;

use domain::ManualClock;

use super::rig::*;
use super::space::until;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use crate::segment::{AppendError, Journal, Options, Record, SegmentState};

/// A journal of 100 records on a disk that has room for nothing more.
fn filled(killed: bool) -> (MemoryStorage, Vec<Record>) {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    for n in 0..100_u8 {
        append(&journal, vec![n; 3000]);
    }
    let before = read_all(&journal);
    if killed {
        memory.kill();
    }
    drop(journal);
    for (path, _) in memory.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "free")) {
        memory.remove(path).unwrap();
    }
    fill_up(&memory);
    (memory, before)
}

/// Not a byte is free.
fn fill_up(memory: &MemoryStorage) {
    let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
    memory.set_capacity(Some(used as u64));
}

/// Recovery finds a prepared segment that was never used, and makes a free file of it: that is room.
fn without_idle_files(memory: &MemoryStorage) {
    drop(open(memory).0);
    for (path, _) in memory.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "free")) {
        memory.remove(path).unwrap();
    }
    fill_up(memory);
}

fn clocked(storage: Arc<dyn Storage>, clock: &Arc<ManualClock>) -> Journal {
    Journal::open(Options { clock: Arc::<ManualClock>::clone(clock), ..options(storage) }).unwrap().0
}

#[test]
fn a_full_disk_does_not_keep_a_process_from_starting() {
    for killed in [false, true] {
        let (memory, before) = filled(killed);
        without_idle_files(&memory);
        let clock = ManualClock::at_unix_ms(1);
        for _ in 0..2 {
            let journal = clocked(Arc::new(memory.clone()), &clock);
            assert_eq!(journal.damage(), []);
            assert_eq!(read_all(&journal), before, "all can be read");
            assert!(journal.stat().full);
            assert_eq!(journal.append(entry(1, 0, "x")).wait(), Err(AppendError::Full));
            assert!(journal.segments().iter().all(|info| info.state != SegmentState::Active));
            let at_the_end = read_from(&journal, journal.durable()).unwrap();
            assert_eq!(at_the_end, []);
            journal.close();
        }
        let journal = clocked(Arc::new(memory.clone()), &clock);
        let mut reader = journal.read(before[99].position.after()).unwrap();
        assert_eq!(reader.next_record().unwrap(), None);
        memory.set_capacity(None);
        clock.advance(Duration::from_secs(1));
        until("there is room again", || journal.append(entry(1, 0, "again")).wait().is_ok());
        assert!(!journal.stat().full);
        assert_eq!(&reader.next_record().unwrap().unwrap().payload[..], b"again");
        assert_eq!(read_all(&journal).len(), 101);
        assert_eq!(journal.stat().failures, 0, "a full disk is no failing disk");
        journal.close();
        assert!(Journal::verify_in(&memory, &directory()).unwrap().is_whole());
        assert_eq!(read_all(&open(&memory).0).len(), 101);
    }
}

#[test]
fn a_stat_alone_says_when_there_is_room() {
    let (memory, _) = filled(false);
    let clock = ManualClock::at_unix_ms(1);
    let journal = clocked(Arc::new(memory.clone()), &clock);
    assert!(journal.stat().full);
    memory.set_capacity(None);
    clock.advance(Duration::from_secs(1));
    until("the door is open", || !journal.stat().full);
    append(&journal, "at once");
}

#[test]
fn two_processes_of_an_upgrade_can_meet_on_a_full_disk() {
    let (memory, before) = filled(false);
    let clock = ManualClock::at_unix_ms(1);
    let elder = clocked(Arc::new(memory.clone()), &clock);
    let younger = clocked(Arc::new(memory.clone()), &clock);
    assert_eq!((read_all(&elder), read_all(&younger)), (before.clone(), before));
    memory.set_capacity(None);
    clock.advance(Duration::from_secs(1));
    until("the elder has room", || elder.append(entry(1, 0, "elder")).wait().is_ok());
    until("the younger has room", || younger.append(entry(1, 0, "younger")).wait().is_ok());
    elder.close();
    let last: Vec<_> = payloads(&read_all(&younger)).split_off(100);
    assert_eq!(last, [b"elder".to_vec(), b"younger".to_vec()]);
}

#[test]
fn a_disk_that_fails_when_there_is_room_heals() {
    let (memory, _) = filled(false);
    let storage = FaultyStorage::new(memory.clone(), 5, Faults::default());
    let clock = ManualClock::at_unix_ms(1);
    let journal = clocked(Arc::new(storage.clone()), &clock);
    storage.set_faults(Faults { create_fails: 1, ..Faults::default() });
    memory.set_capacity(None);
    clock.advance(Duration::from_secs(1));
    let failed = |error: &AppendError| matches!(error, AppendError::Unavailable { .. });
    until("the disk fails", || journal.append(entry(1, 0, "x")).wait().is_err_and(|error| failed(&error)));
    assert!(journal.stat().unavailable.is_some());
    storage.set_faults(Faults::default());
    until("it is proved", || journal.append(entry(1, 0, "again")).wait().is_ok());
    assert_eq!((journal.stat().failures, journal.stat().heals), (1, 1));
    assert_eq!(payloads(&read_all(&journal)).last().unwrap(), b"again");
}

#[test]
fn room_that_only_seems_to_be_there_is_tried_for_once_a_second() {
    // As with a quota: the file system says that it has room, and gives none.
    let memory = MemoryStorage::new();
    let storage = FaultyStorage::new(memory, 5, Faults { create_full: 1, ..Faults::default() });
    let clock = ManualClock::at_unix_ms(1);
    let journal = clocked(Arc::new(storage.clone()), &clock);
    for second in 1..=5_u64 {
        clock.advance(Duration::from_secs(1));
        for _ in 0..1000 {
            assert_eq!(journal.append(entry(1, 0, "x")).wait(), Err(AppendError::Full));
            std::thread::yield_now();
        }
        // Each try is two: what kept the first from succeeding may be past.
        assert!(storage.creations() <= 1 + 2 * second, "{} in {second} s", storage.creations());
    }
    storage.set_faults(Faults::default());
    clock.advance(Duration::from_secs(1));
    until("the quota is gone", || journal.append(entry(1, 0, "x")).wait().is_ok());
}

#[test]
fn a_directory_without_room_for_a_name_may_have_room_for_another() {
    let storage = FaultyStorage::new(MemoryStorage::new(), 9, Faults { lock_full: 1, ..Faults::default() });
    let refused = Journal::open(options(Arc::new(storage)));
    assert!(refused.is_err(), "it does not try for ever");
    let epochs: Vec<u64> = (0..8)
        .map(|seed| {
            let faults = Faults { lock_full: 2, ..Faults::default() };
            let storage = FaultyStorage::new(MemoryStorage::new(), seed, faults);
            let (journal, recovery) = Journal::open(options(Arc::new(storage))).unwrap();
            append(&journal, "x");
            recovery.epoch
        })
        .collect();
    assert!(epochs.iter().any(|epoch| *epoch > 1), "{epochs:?}");
}
