//! What trimming must not do: leave a crash half a trim, believe a wrong clock, need what it is there to make.

use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, ManualClock};

use super::rig::*;
use super::space::until;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use crate::segment::trim_mark::encode_mark;
use crate::segment::view::View;
use crate::segment::{Journal, Options, Position, ReadError, SegmentState, WhenFull};

const NOW: u64 = 1_790_000_000_000;
const DAY: u64 = 24 * 3600 * 1000;

fn clocked(memory: &MemoryStorage, clock: &Arc<ManualClock>) -> Journal {
    let clock = Arc::<ManualClock>::clone(clock);
    Journal::open(Options { clock, ..options(Arc::new(memory.clone())) }).unwrap().0
}

fn append_at(journal: &Journal, unix_ms: u64, records: u32) {
    for _ in 0..records {
        journal.append(entry(1, unix_ms, vec![1; 3000])).wait().unwrap();
    }
}

fn all_sealed(journal: &Journal) {
    until("all but the active one are sealed", || {
        journal.segments().iter().filter(|info| info.state != SegmentState::Sealed).count() == 1
    });
}

#[test]
fn a_crash_in_a_trim_over_two_epochs_leaves_neither_damage_nor_records() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    for n in 0..20_u8 {
        append(&journal, vec![n; 3000]);
    }
    journal.close();
    let (journal, _) = open(&memory);
    for n in 20..40_u8 {
        append(&journal, vec![n; 3000]);
    }
    let segments = journal.segments();
    assert_eq!(segments.iter().filter(|info| info.id.epoch == 1).count(), 2);
    all_sealed(&journal);
    // As it is when the mark is written and the first file is gone.
    let crashed = memory.copy();
    let first_left = segments.iter().find(|info| info.id.epoch == 2 && info.id.sequence == 1).unwrap().first();
    journal.trim_before(first_left).unwrap();
    let mark = memory.read(&directory().join("trim.mark"), 100).unwrap().unwrap();
    crashed.put(&directory().join("trim.mark"), &mark).unwrap();
    crashed.remove(&directory().join(format!("{}.seg", segments[0].id))).unwrap();
    let expected = read_all(&journal);

    let report = Journal::verify_in(&crashed, &directory()).unwrap();
    assert_eq!(report.damage, []);
    let view = View::open(Arc::new(crashed.clone()), &directory(), ManualClock::at_unix_ms(1)).unwrap();
    assert_eq!((view.damage(), view.segments()[0].first()), (vec![], first_left));
    let (journal, recovery) = open(&crashed);
    assert_eq!(recovery.damage, []);
    assert_eq!(read_all(&journal), expected, "what was trimmed does not come back");
    assert!(crashed.files().iter().all(|(path, _)| !path.ends_with(format!("{}.seg", segments[1].id))));
}

#[test]
fn a_clock_that_is_wrong_for_a_while_costs_nothing() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 100);
    clock.step_to_unix_ms(NOW + 30_000 * DAY);
    for _ in 0..3 {
        clock.advance(Duration::from_secs(30));
        assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
    }
    clock.step_to_unix_ms(NOW + 90_000);
    clock.advance(Duration::from_hours(8 * 24));
    assert!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments > 3);
}

#[test]
fn what_was_written_under_a_wrong_clock_does_not_vouch_for_it() {
    let memory = MemoryStorage::new();
    let journal = clocked(&memory, &ManualClock::at_unix_ms(NOW));
    append_at(&journal, NOW, 100);
    drop(journal);
    let wrong = ManualClock::at_unix_ms(NOW + 30_000 * DAY);
    for _ in 0..3 {
        let journal = clocked(&memory, &wrong);
        assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
        append_at(&journal, NOW + 30_000 * DAY, 1);
        wrong.advance(Duration::from_secs(90));
        assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
    }
    assert_eq!(read_all(&clocked(&memory, &wrong)).len(), 103);
    let right = ManualClock::at_unix_ms(NOW + 8 * DAY);
    assert_eq!(clocked(&memory, &right).trim_unix_ms(), NOW + 270_000, "what passed while it ran");
}

#[test]
fn a_quiet_journal_that_is_started_again_believes_the_clock_at_once() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 1);
    for _ in 0..60 {
        clock.advance(Duration::from_mins(1));
        journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap();
    }
    drop(journal);
    clock.advance(Duration::from_secs(200));
    assert_eq!(clocked(&memory, &clock).trim_unix_ms(), NOW + 3_800_000);
}

#[test]
fn records_from_a_time_to_come_do_not_hold_up_what_lies_behind_them() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 30);
    append_at(&journal, NOW + 30_000 * DAY, 1);
    append_at(&journal, NOW + DAY, 60);
    append_at(&journal, NOW + 9 * DAY, 60);
    all_sealed(&journal);
    clock.advance(Duration::from_hours(9 * 24));
    let before = journal.trim_unix_ms() - 7 * DAY;
    journal.trim(before).unwrap();
    let left = read_all(&journal);
    assert!(left[0].time_unix_ms < before || left.len() <= 60 + 15, "at most the rest of one segment: {}", left.len());
    assert_eq!(left.iter().filter(|record| record.time_unix_ms == NOW + 9 * DAY).count(), 60);
}

#[test]
fn a_clock_that_once_fell_back_makes_nothing_old() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 60);
    append_at(&journal, 1_000, 60);
    append_at(&journal, NOW, 60);
    assert_eq!(journal.trim(NOW - DAY).unwrap().segments, 0);
}

/// Looks every minute, for as long as a step must last to be believed, and says how many segments went.
fn trim_until_believed(journal: &Journal, clock: &ManualClock, age_ms: u64) -> u64 {
    let mut gone = 0;
    for _ in 0..=6 * 60 {
        clock.advance(Duration::from_mins(1));
        gone += journal.trim(journal.trim_unix_ms().saturating_sub(age_ms)).unwrap().segments;
    }
    assert_eq!(journal.trim_unix_ms(), clock.unix_ms(), "it is believed");
    gone
}

#[test]
fn what_came_while_the_clock_was_behind_is_kept_for_its_age() {
    for (starts, wrong) in [(0, NOW - 2_300 * DAY), (1, NOW - 2_300 * DAY), (2, 1_000)] {
        let memory = MemoryStorage::new();
        let clock = ManualClock::at_unix_ms(wrong);
        let mut journal = clocked(&memory, &clock);
        append_at(&journal, wrong, 100);
        if starts == 2 {
            // Before anybody had set it right.
            drop(journal);
            journal = clocked(&memory, &clock);
            append_at(&journal, wrong, 50);
        }
        clock.step_to_unix_ms(NOW);
        if starts == 1 {
            drop(journal);
            journal = clocked(&memory, &clock);
        }
        let there = read_all(&journal);
        append_at(&journal, NOW, 60);
        assert_eq!(trim_until_believed(&journal, &clock, 7 * DAY), 0, "{starts} starts");
        for _ in 0..3 {
            // The next start knows it too.
            drop(journal);
            journal = clocked(&memory, &clock);
            clock.advance(Duration::from_mins(1));
            assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
            journal.trim(0).unwrap();
        }
        assert!(read_all(&journal).starts_with(&there));
        clock.advance(Duration::from_hours(6 * 24));
        assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
        assert!(read_all(&journal).starts_with(&there));
        clock.advance(Duration::from_hours(2 * 24));
        assert!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments > 3, "and no longer");
    }
}

#[test]
fn a_clock_that_falls_back_at_a_start_keeps_nothing_longer() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 100);
    journal.trim(0).unwrap();
    drop(journal);
    // A machine without a clock of its own boots at the beginning of time.
    clock.step_to_unix_ms(1_000);
    let journal = clocked(&memory, &clock);
    append_at(&journal, 1_000, 50);
    clock.step_to_unix_ms(NOW + DAY / 24);
    append_at(&journal, clock.unix_ms(), 1);
    assert_eq!(trim_until_believed(&journal, &clock, 7 * DAY), 0);
    clock.advance(Duration::from_hours(7 * 24 - 7));
    assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
    assert_eq!(read_all(&journal).len(), 151);
    // It was off for an hour, which nobody can tell from a clock that was behind; and its last segment may have got
    // something after the clock had fallen, until that was right again.
    clock.advance(Duration::from_hours(8));
    assert!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments > 5);
    let left = read_all(&journal);
    assert!(left.len() < 40, "what came in the hours before the clock was believed: {}", left.len());
}

#[test]
fn the_time_is_written_down_by_the_younger_process() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let elder = clocked(&memory, &clock);
    append_at(&elder, NOW, 1);
    let younger = clocked(&memory, &clock);
    let written = || memory.read(&directory().join("trim.time"), 4096).unwrap().unwrap();
    clock.step_to_unix_ms(1_000);
    younger.trim(0).unwrap();
    let by_younger = written();
    clock.advance(Duration::from_mins(10));
    elder.trim(0).unwrap();
    assert_eq!(written(), by_younger);
    younger.close();
    elder.trim(0).unwrap();
    let by_elder = written();
    assert_ne!(by_elder, by_younger, "the younger one has ended");
    clock.advance(Duration::from_mins(10));
    elder.trim(0).unwrap();
    assert_ne!(written(), by_elder);
}

#[test]
fn what_a_younger_process_knew_counts_when_it_has_ended() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW - 2_300 * DAY);
    let elder = clocked(&memory, &clock);
    let younger = clocked(&memory, &clock);
    append_at(&younger, NOW - 2_300 * DAY, 100);
    clock.step_to_unix_ms(NOW);
    trim_until_believed(&younger, &clock, 7 * DAY);
    younger.close();
    drop(younger);
    // Which looked at the clock at other times.
    for _ in 0..=6 * 60 {
        clock.advance(Duration::from_mins(1));
        elder.trim(0).unwrap();
    }
    drop(elder);
    let journal = clocked(&memory, &clock);
    assert_eq!(trim_until_believed(&journal, &clock, 7 * DAY), 0);
    assert_eq!(read_all(&journal).len(), 100);
}

/// The clock falls to each of these and is right again before anybody looks.
const FALLEN: [u64; 3] = [1_000, NOW - 2_300 * DAY, NOW - 20 * DAY];

#[test]
fn a_clock_that_falls_between_two_looks_makes_nothing_old() {
    for wrong in FALLEN {
        let memory = MemoryStorage::new();
        let clock = ManualClock::at_unix_ms(NOW);
        let mut journal = clocked(&memory, &clock);
        clock.step_to_unix_ms(wrong);
        append_at(&journal, wrong, 100);
        clock.step_to_unix_ms(NOW + 30_000);
        append_at(&journal, NOW + 30_000, 60);
        for start in 0..3 {
            clock.advance(Duration::from_mins(1));
            assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0, "{start} starts");
            drop(journal);
            journal = clocked(&memory, &clock);
        }
        clock.advance(Duration::from_hours(6 * 24));
        assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
        clock.advance(Duration::from_hours(2 * 24));
        assert!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments > 3, "and no longer");
    }
}

#[test]
fn a_crash_while_the_clock_has_fallen_makes_nothing_old() {
    for wrong in FALLEN {
        for is_right_at_the_start in [false, true] {
            let memory = MemoryStorage::new();
            let clock = ManualClock::at_unix_ms(NOW);
            let journal = clocked(&memory, &clock);
            clock.step_to_unix_ms(wrong);
            append_at(&journal, wrong, 100);
            // Nobody has looked since it fell.
            let memory = memory.copy();
            if is_right_at_the_start {
                clock.step_to_unix_ms(NOW + 30_000);
            }
            let journal = clocked(&memory, &clock);
            append_at(&journal, clock.unix_ms(), 60);
            clock.step_to_unix_ms(NOW + 60_000);
            assert_eq!(trim_until_believed(&journal, &clock, 7 * DAY), 0);
            clock.advance(Duration::from_hours(6 * 24));
            assert_eq!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments, 0);
            assert_eq!(read_all(&journal).len(), 160);
        }
    }
}

#[test]
fn a_believed_time_without_eras_is_taken_over() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 100);
    clock.advance(Duration::from_hours(24));
    append_at(&journal, NOW + DAY, 1);
    journal.trim(0).unwrap();
    drop(journal);
    let path = directory().join("trim.time");
    let mut old = memory.read(&path, 4096).unwrap().unwrap();
    old[7] = 1;
    old.truncate(32);
    old.extend_from_slice(&crc32c::crc32c(&old).to_le_bytes());
    memory.put(&path, &old).unwrap();
    clock.advance(Duration::from_mins(2));
    let journal = clocked(&memory, &clock);
    assert_eq!(journal.trim_unix_ms(), NOW + DAY + 120_000, "it is believed at once");
    assert!(journal.trim(NOW + 1).unwrap().segments > 3, "and nothing counts as younger than it is");
    clock.advance(Duration::from_mins(1));
    journal.trim(0).unwrap();
    assert_eq!(memory.read(&path, 4096).unwrap().unwrap()[7], 2);
}

#[test]
fn without_the_time_that_was_believed_nothing_counts_as_old() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW - 2_300 * DAY);
    let journal = clocked(&memory, &clock);
    append_at(&journal, clock.unix_ms(), 100);
    clock.step_to_unix_ms(NOW);
    append_at(&journal, NOW, 60);
    drop(journal);
    memory.put(&directory().join("trim.time"), b"?").unwrap();
    let journal = clocked(&memory, &clock);
    assert_eq!(journal.trim_unix_ms(), NOW);
    assert_eq!(journal.trim(NOW - 7 * DAY).unwrap().segments, 0);
    clock.advance(Duration::from_hours(8 * 24));
    assert!(journal.trim(journal.trim_unix_ms() - 7 * DAY).unwrap().segments > 3);
}

#[test]
fn the_segment_that_is_written_counts_as_the_others_do() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    let times = || (journal.stat().oldest_unix_ms, journal.stat().newest_unix_ms);
    assert_eq!(times(), (None, None));
    append_at(&journal, NOW, 1);
    append_at(&journal, NOW + 5, 1);
    assert_eq!(times(), (Some(NOW), Some(NOW + 5)));
    append_at(&journal, NOW + 7, 60);
    assert_eq!(times(), (Some(NOW), Some(NOW + 7)));
    assert_eq!(journal.segments().iter().map(|info| info.records).sum::<u64>(), 62);
}

#[test]
fn a_disk_without_a_free_byte_can_be_trimmed() {
    // Nothing is left but what trimming itself can find: trimmed files, then the block of the last mark.
    for recycle_max in [4, 0] {
        let memory = MemoryStorage::new();
        let options = Options { recycle_max, ..options(Arc::new(memory.clone())) };
        let (journal, _) = Journal::open(options).unwrap();
        let positions: Vec<_> = (0..100).map(|_| append(&journal, vec![1; 3000]).position).collect();
        all_sealed(&journal);
        journal.trim_before(positions[40]).unwrap();
        assert_eq!(journal.stat().recyclable > 0, recycle_max > 0);
        let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
        memory.set_capacity(Some(used as u64));
        assert!(journal.trim_before(positions[90]).unwrap().segments > 0);
        memory.kill();
        memory.set_capacity(None);
        drop(journal);
        let (journal, recovery) = open(&memory);
        assert_eq!(recovery.damage, []);
        assert!(matches!(read_from(&journal, positions[60]), Err(ReadError::Trimmed { .. })));
    }
}

#[test]
fn the_first_trim_of_all_needs_no_free_byte() {
    for recycle_max in [4, 0] {
        let memory = MemoryStorage::new();
        let (journal, _) = Journal::open(Options { recycle_max, ..options(Arc::new(memory.clone())) }).unwrap();
        let positions: Vec<_> = (0..100).map(|_| append(&journal, vec![1; 3000]).position).collect();
        all_sealed(&journal);
        let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
        memory.set_capacity(Some(used as u64));
        assert!(journal.trim_before(positions[40]).unwrap().segments > 0);
        memory.kill();
        drop(journal);
        let (journal, recovery) = open(&memory);
        assert_eq!(recovery.damage, []);
        assert!(matches!(read_from(&journal, positions[20]), Err(ReadError::Trimmed { .. })));
    }
}

#[test]
fn files_that_hold_nothing_go_before_records() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let options = Options {
        when_full: WhenFull::Trim,
        reserve_bytes: 2 * SEGMENT_BYTES,
        clock: Arc::<ManualClock>::clone(&clock),
        ..options(Arc::new(memory.clone()))
    };
    let (journal, _) = Journal::open(options).unwrap();
    append_at(&journal, NOW, 130);
    all_sealed(&journal);
    let middle = journal.segments()[4].first();
    journal.trim_before(middle).unwrap();
    let before = read_all(&journal);
    assert_eq!(journal.stat().recyclable, 4);
    // Somebody else takes the space: one segment below the reserve.
    let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
    memory.set_capacity(Some(used as u64 + SEGMENT_BYTES));
    clock.advance(Duration::from_secs(2));
    // A look at the space is asked for by every stat.
    until("the reserve is free again", || {
        journal.stat();
        clock.advance(Duration::from_secs(2));
        memory.space(&directory()).unwrap().free >= 2 * SEGMENT_BYTES
    });
    assert_eq!(read_all(&journal), before, "no record went");
}

#[test]
fn trimmed_files_are_room() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let options = Options {
        reserve_bytes: 2 * SEGMENT_BYTES,
        clock: Arc::<ManualClock>::clone(&clock),
        ..options(Arc::new(memory.clone()))
    };
    let (journal, _) = Journal::open(options).unwrap();
    append_at(&journal, NOW, 130);
    all_sealed(&journal);
    journal.trim_before(journal.segments()[4].first()).unwrap();
    assert_eq!(journal.stat().recyclable, 4);
    let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
    memory.set_capacity(Some(used as u64 + SEGMENT_BYTES));
    for _ in 0..30 {
        clock.advance(Duration::from_secs(2));
        append_at(&journal, NOW, 1);
    }
    assert!(!journal.stat().full);
}

#[test]
fn what_kept_a_segment_from_being_prepared_may_be_long_past() {
    let memory = MemoryStorage::new();
    let storage = FaultyStorage::new(memory.clone(), 3, Faults::default());
    let (journal, _) = Journal::open(options(Arc::new(storage.clone()))).unwrap();
    let there = |n| directory().join(format!("{}.seg", crate::segment::SegmentId { epoch: 1, sequence: n }));
    until("the second one is prepared", || memory.files().iter().any(|(path, _)| *path == there(1)));
    storage.set_faults(Faults { create_fails: 1, ..Faults::default() });
    while journal.durable().segment().sequence == 0 {
        append(&journal, vec![1; 3000]);
    }
    until("the third one could not be prepared", || storage.failed() > 0);
    storage.set_faults(Faults::default());
    while journal.durable().segment().sequence < 3 {
        append(&journal, vec![1; 3000]);
    }
    assert_eq!(journal.stat().failures, 0);
    assert!(read_from(&journal, Position::START).is_ok());
}

#[test]
fn a_quiet_journal_lets_go_of_what_is_over_age() {
    let memory = MemoryStorage::new();
    let clock = ManualClock::at_unix_ms(NOW);
    let journal = clocked(&memory, &clock);
    append_at(&journal, NOW, 3);
    clock.advance(Duration::from_hours(48));
    append_at(&journal, NOW + 2 * DAY, 2);
    until("the segment is left, and stays for its younger records", || {
        assert_eq!(journal.trim(journal.trim_unix_ms() - DAY).unwrap().segments, 0);
        journal.segments().iter().any(|info| info.records == 5 && info.state != SegmentState::Active)
    });
    assert_eq!(read_all(&journal).len(), 5);
    clock.advance(Duration::from_hours(48));
    assert_eq!(journal.trim(journal.trim_unix_ms() - DAY).unwrap().records, 5);
    assert_eq!(read_all(&journal), []);
    append_at(&journal, NOW + 4 * DAY, 1);
    assert_eq!(journal.segments().iter().filter(|info| info.state == SegmentState::Active).count(), 1);
    assert_eq!(read_all(&journal).len(), 1);
}

#[test]
fn a_full_disk_that_may_be_trimmed_does_not_keep_a_process_from_starting() {
    let memory = MemoryStorage::new();
    let with = || Options { when_full: WhenFull::Trim, ..options(Arc::new(memory.clone())) };
    for killed in [false, true] {
        memory.set_capacity(None);
        let (journal, _) = Journal::open(with()).unwrap();
        for _ in 0..100 {
            append(&journal, vec![1; 3000]);
        }
        all_sealed(&journal);
        let before = read_all(&journal);
        if killed {
            memory.kill();
        }
        drop(journal);
        for (path, _) in memory.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "free")) {
            memory.remove(path).unwrap();
        }
        let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
        memory.set_capacity(Some(used as u64 + 64));
        let (journal, recovery) = Journal::open(with()).unwrap();
        assert_eq!(recovery.damage, []);
        append(&journal, "again");
        // Room for the next segment is made meanwhile: what is read may be trimmed under the reader.
        let after = loop {
            match read_from(&journal, Position::START) {
                Ok(after) => break after,
                Err(ReadError::Trimmed { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        let kept = &after[..after.len() - 1];
        assert!(kept.len() > 50 && before.ends_with(kept), "{} of {}", kept.len(), before.len());
    }
}

#[test]
fn a_log_that_is_started_over_beside_its_old_mark_loses_nothing() {
    let memory = MemoryStorage::new();
    for n in 0..20_u8 {
        let (journal, _) = open(&memory);
        append(&journal, vec![n; 3000]);
        journal.trim_before(journal.segments().last().unwrap().first()).unwrap();
        journal.close();
    }
    // Somebody removes the log and leaves the two files whose names say nothing of it.
    for (path, _) in memory.files() {
        if !["log.id", "trim.mark"].iter().any(|kept| path.ends_with(kept)) {
            memory.remove(&path).unwrap();
        }
    }
    let (journal, recovery) = open(&memory);
    assert!(recovery.epoch >= 20, "{recovery:?}");
    let written: Vec<_> = (0..60_u8).map(|n| append(&journal, vec![n; 3000]).position).collect();
    all_sealed(&journal);
    journal.trim_before(Position::START).unwrap();
    assert_eq!(read_all(&journal).iter().map(|record| record.position).collect::<Vec<_>>(), written);
    journal.close();
    assert_eq!(read_all(&open(&memory).0).len(), written.len());
}

#[test]
fn a_mark_ahead_of_the_epoch_that_is_written_trims_nothing_of_it() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    let written: Vec<_> = (0..60_u8).map(|n| append(&journal, vec![n; 3000]).position).collect();
    all_sealed(&journal);
    let id = memory.read(&directory().join("log.id"), 100).unwrap().unwrap();
    let mark = encode_mark(&id[..16].try_into().unwrap(), Position::new(7, 0));
    memory.put(&directory().join("trim.mark"), &mark).unwrap();
    journal.trim_before(Position::START).unwrap();
    assert_eq!(read_all(&journal).iter().map(|record| record.position).collect::<Vec<_>>(), written);
}

#[test]
fn a_mark_that_could_not_be_read_does_not_go_back() {
    let memory = MemoryStorage::new();
    let (first, _) = open(&memory);
    let positions: Vec<_> = (0..60_u8).map(|n| append(&first, vec![n; 3000]).position).collect();
    first.close();
    let storage = FaultyStorage::new(memory.clone(), 3, Faults::default());
    let (elder, _) = Journal::open(options(Arc::new(storage.clone()))).unwrap();
    let (younger, _) = open(&memory);
    assert!(younger.trim_before(positions[45]).unwrap().segments > 1);
    drop(younger);
    let mark = memory.read(&directory().join("trim.mark"), 100).unwrap();
    storage.set_faults(Faults { too_many_open: 1, ..Faults::default() });
    let refused = elder.trim_before(positions[30]).map(drop).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()), "{refused}");
    let error = elder.read(positions[0]).and_then(|mut reader| reader.next_record().map(drop)).unwrap_err();
    assert!(matches!(error, ReadError::Io { .. }), "{error}: nobody knows yet that it was trimmed");
    assert_eq!(elder.damage(), []);
    storage.set_faults(Faults::default());
    assert!(elder.trim_before(positions[30]).unwrap().segments > 1, "what the younger one trimmed is known");
    assert_eq!(memory.read(&directory().join("trim.mark"), 100).unwrap(), mark);
}
