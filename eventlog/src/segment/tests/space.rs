//! Full disks, trimming, recycling.

use std::sync::Arc;
use std::time::Duration;

use domain::ManualClock;

use super::rig::*;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use crate::segment::{AppendError, Backoff, Journal, Options, Position, ReadError, SegmentState, WhenFull};

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000_000 {
        if holds() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never: {what}");
}

fn fill(journal: &Journal, bytes: usize) -> AppendError {
    for n in 0..10_000_u32 {
        let mut payload = n.to_le_bytes().to_vec();
        payload.resize(bytes, 1);
        if let Err(error) = journal.append(entry(1, u64::from(n), payload)).wait() {
            return error;
        }
    }
    panic!("it never got full");
}

#[test]
fn a_full_disk_refuses_and_takes_again_when_there_is_room() {
    let memory = MemoryStorage::new();
    memory.set_capacity(Some(10 * SEGMENT_BYTES));
    let clock = ManualClock::at_unix_ms(1);
    let options = Options {
        reserve_bytes: 2 * SEGMENT_BYTES,
        clock: Arc::<ManualClock>::clone(&clock),
        ..options(Arc::new(memory.clone()))
    };
    let (journal, _) = Journal::open(options).unwrap();
    assert_eq!(fill(&journal, 3000), AppendError::Full);
    assert!(journal.stat().full);
    assert_eq!(journal.append(entry(1, 0, "x")).wait(), Err(AppendError::Full));
    let before = read_all(&journal).len();
    assert!(before > 60, "what was taken is there: {before}");
    assert!(memory.space(&directory()).unwrap().free >= 2 * SEGMENT_BYTES, "the reserve is untouched");
    // Room appears: within a second of the injected clock the next append has it looked at.
    memory.set_capacity(Some(20 * SEGMENT_BYTES));
    clock.advance(Duration::from_secs(1));
    until("there is room again", || journal.append(entry(1, 0, "again")).wait().is_ok());
    assert!(read_all(&journal).len() > before);
    assert_eq!(journal.stat().failures, 0, "a full disk is no failing disk");
    let fault = journal.stat().last_fault.expect("it is remembered");
    assert_eq!((fault.unix_ms, &*fault.reason), (1, "the disk is full"));
    journal.close();
    assert!(Journal::verify_in(&memory, &directory()).unwrap().is_whole());
}

#[test]
fn a_full_disk_trims_if_told_to() {
    let memory = MemoryStorage::new();
    memory.set_capacity(Some(8 * SEGMENT_BYTES));
    let options =
        Options { reserve_bytes: 2 * SEGMENT_BYTES, when_full: WhenFull::Trim, ..options(Arc::new(memory.clone())) };
    let (journal, _) = Journal::open(options).unwrap();
    let mut last = journal.durable();
    for n in 0..2_000_u32 {
        let mut payload = n.to_le_bytes().to_vec();
        payload.resize(3000, 1);
        last = journal.append(entry(1, 0, payload)).wait().unwrap().position;
    }
    let records = read_all(&journal);
    assert!(records.len() < 300, "old ones went");
    assert_eq!(records.last().unwrap().position, last);
    assert!(
        matches!(read_from(&journal, Position::at(records[0].position.segment(), 4096, 0)), Ok(all) if all == records)
    );
    journal.close();
    let report = Journal::verify_in(&memory, &directory()).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn a_trimmed_place_is_said_to_be_trimmed() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    let positions: Vec<_> = (0..100_u32).map(|n| append(&journal, vec![1; 3000 + n as usize]).position).collect();
    let mut reader = journal.read(positions[3]).unwrap();
    reader.next_record().unwrap();
    journal.trim_before(positions[80]).unwrap();
    let oldest = read_all(&journal)[0].position;
    assert!(positions[40] < oldest && oldest <= positions[80]);
    for trimmed in [positions[0], positions[3], positions[40]] {
        let error = read_from(&journal, trimmed).unwrap_err();
        assert!(matches!(error, ReadError::Trimmed { oldest: at } if at == oldest), "{error}");
    }
    // A reader that was in the middle of it is told too; it never reads what the file is reused for.
    let error = loop {
        match reader.next_record() {
            Ok(Some(record)) => assert!(positions.contains(&record.position)),
            Ok(None) => panic!("it read on as if nothing was"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Trimmed { .. }), "{error}");
    journal.close();
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage, [], "trimmed is not missing");
    assert!(matches!(read_from(&journal, positions[0]), Err(ReadError::Trimmed { .. })));
}

#[test]
fn recycled_files_never_show_what_they_held() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    // Records of one size: stale ones lie exactly where new ones would.
    for n in 0..60_u32 {
        append(&journal, [n.to_le_bytes().as_slice(), &[0xaa; 2996]].concat());
    }
    until("all but the active one are sealed", || {
        journal.segments().iter().filter(|info| info.state != SegmentState::Sealed).count() == 1
    });
    journal.trim_before(journal.durable()).unwrap();
    assert!(journal.stat().recyclable > 0);
    for n in 1000..1030_u32 {
        append(&journal, [n.to_le_bytes().as_slice(), &[0xbb; 2996]].concat());
    }
    let alive = |records: &[crate::segment::Record]| records.iter().filter(|r| r.payload[4] == 0xbb).count();
    let before = read_all(&journal);
    assert_eq!(alive(&before), 30);
    let active = journal.durable().segment();
    memory.kill();
    drop(journal);
    // The stale bytes are really there, behind the end.
    let bytes = memory.read(&directory().join(format!("{active}.seg")), 1 << 30).unwrap().unwrap();
    assert!(bytes.windows(16).any(|window| window == [0xaa; 16]), "the file was recycled");
    let (journal, recovery) = open(&memory);
    assert_eq!((recovery.damage.as_slice(), recovery.torn.as_slice()), ([].as_slice(), [].as_slice()));
    assert_eq!(read_all(&journal), before);
    assert!(Journal::verify_in(&memory, &directory()).unwrap().is_whole());
}

#[test]
fn a_stale_record_in_a_torn_batch_does_not_pass() {
    // A batch of which only the first block reached the disk, over a stale batch of exactly the same layout.
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    // Records that end where blocks end.
    let whole = |fill: u8| [4096 - 96 - 40, 4096 - 40, 4096 - 40].map(|bytes| vec![fill; bytes]);
    append_together(&journal, whole(0xbb));
    memory.kill();
    drop(journal);
    let path = directory().join("0000000000000001-00000000.seg");
    let other = MemoryStorage::new();
    let (stale, _) = open(&other);
    append_together(&stale, whole(0xaa));
    other.kill();
    drop(stale);
    let stale = other.read(&path, 1 << 30).unwrap().unwrap();
    memory.tamper(&path, |bytes| bytes[8192..16_384].copy_from_slice(&stale[8192..16_384]));
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.torn.len(), 1);
    assert_eq!(read_all(&journal), []);
}

#[test]
fn trimming_by_age_drops_whole_segments_only() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    for n in 0..100_u64 {
        journal.append(entry(1, n * 10, vec![1; 3000])).wait().unwrap();
    }
    let trimmed = journal.trim(500).unwrap();
    assert!(trimmed.segments > 0);
    let left = read_all(&journal);
    assert!(left[0].time_unix_ms < 500 && left.iter().any(|r| r.time_unix_ms == 500), "no younger one went");
    assert_eq!(journal.trim(500).unwrap().segments, 0);
    // Times are found by index.
    for time in [0, 400, 505, 990, 2000] {
        let at = journal.seek_time(time).unwrap();
        let found = read_from(&journal, at).unwrap();
        let expected = left.iter().filter(|r| r.time_unix_ms >= time).count();
        assert!(found.iter().filter(|r| r.time_unix_ms >= time).count() == expected, "time {time}");
    }
}

#[test]
fn a_process_that_is_killed_often_does_not_fill_the_disk() {
    let memory = MemoryStorage::new();
    for n in 0..30_u32 {
        let (journal, recovery) = open(&memory);
        assert_eq!(recovery.records, u64::from(n));
        append(&journal, n.to_le_bytes());
        memory.kill();
        drop(journal);
    }
    let (journal, _) = open(&memory);
    assert!(journal.stat().bytes_used < 30 * 8192 + 8 * SEGMENT_BYTES, "{}", journal.stat().bytes_used);
    assert_eq!(read_all(&journal).len(), 30);
}

#[test]
fn a_disk_that_fails_while_it_is_full_heals_in_the_room_of_what_is_idle() {
    for recycle_max in [4, 0] {
        let memory = MemoryStorage::new();
        let storage = FaultyStorage::new(memory.clone(), 11, Faults::default());
        let (journal, _) = Journal::open(Options { recycle_max, ..options(Arc::new(storage.clone())) }).unwrap();
        let positions: Vec<_> = (0..100).map(|_| append(&journal, vec![1; 3000]).position).collect();
        let segments = |memory: &MemoryStorage| {
            memory.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "seg")).count()
        };
        until("all are sealed, and the next one is prepared", || {
            let known = journal.segments();
            known.iter().filter(|info| info.state != SegmentState::Sealed).count() == 1
                && segments(&memory) == known.len() + 1
        });
        journal.trim_before(positions[90]).unwrap();
        assert_eq!(journal.stat().recyclable > 0, recycle_max > 0);
        // Others take all the space that is left, and the disk fails once.
        let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
        memory.set_capacity(Some(used as u64));
        storage.set_faults(Faults { write_fails: 1, ..Faults::default() });
        assert!(journal.append(entry(1, 0, "x")).wait().is_err());
        storage.set_faults(Faults::default());
        until("it is proved", || journal.append(entry(1, 0, "again")).wait().is_ok());
        assert_eq!((journal.stat().failures, journal.stat().heals), (1, 1));
        journal.close();
        assert!(Journal::verify_in(&memory, &directory()).unwrap().is_whole());
        assert_eq!(payloads(&read_all(&open(&memory).0)).last().unwrap(), b"again");
    }
}

#[test]
fn a_directory_that_stays_full_is_tried_with_pauses_and_can_be_closed() {
    let storage = FaultyStorage::new(MemoryStorage::new(), 11, Faults::default());
    let heal = Backoff { first: Duration::from_millis(1), max: Duration::from_hours(1) };
    let (journal, _) = Journal::open(Options { heal, ..options(Arc::new(storage.clone())) }).unwrap();
    append(&journal, "kept");
    storage.set_faults(Faults { write_fails: 1, directory_full: 1, ..Faults::default() });
    assert!(journal.append(entry(1, 0, "x")).wait().is_err());
    storage.set_faults(Faults { directory_full: 1, ..Faults::default() });
    let before = storage.creations();
    until("it has been tried again", || storage.creations() > before + 2);
    let (done, closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        journal.close();
        done.send(()).ok();
    });
    closed.recv_timeout(Duration::from_secs(20)).expect("it does not look whether it was closed");
}

#[test]
fn a_small_tmpfs_fills_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(directory.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        return skip::skipped("a tmpfs cannot be mounted here");
    }
    let outcome = std::panic::catch_unwind(|| {
        let (journal, _) = Journal::open(on_disk(directory.path())).unwrap();
        assert_eq!(fill(&journal, 3000), AppendError::Full);
        assert!(read_all(&journal).len() > 150);
        assert_eq!(journal.stat().failures, 0);
        journal.close();
        assert!(Journal::verify(directory.path()).unwrap().is_whole());
    });
    let unmounted = std::process::Command::new("umount").arg(directory.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    outcome.unwrap();
}
