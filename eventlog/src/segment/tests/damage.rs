//! Bytes that change behind the log's back: detected and named, or harmless and named, never silent.

use std::path::PathBuf;
use std::sync::Arc;

use super::rig::*;
use super::space::until;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use crate::segment::{Damage, DamageKind, Journal, Position, ReadError, Record, SegmentId, SegmentState};

/// Three epochs: a sealed one of several segments, a killed one, a closed one.
fn history() -> (MemoryStorage, Vec<Record>) {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    for n in 0..40_u32 {
        append(&journal, vec![u8::try_from(n).unwrap(); 4000]);
    }
    journal.close();
    let (journal, _) = open(&memory);
    for n in 40..44_u32 {
        append(&journal, vec![u8::try_from(n).unwrap(); 700]);
    }
    memory.kill();
    drop(journal);
    let (journal, _) = open(&memory);
    for n in 44..50_u32 {
        append(&journal, vec![u8::try_from(n).unwrap(); 20]);
    }
    let records = read_all(&journal);
    assert_eq!(records.len(), 50);
    journal.close();
    (memory, records)
}

/// Everything that can be had, and the damage that was skipped on the way.
fn salvage(journal: &Journal) -> (Vec<Record>, Vec<Damage>) {
    let mut cursor = journal.read(Position::START).unwrap();
    let (mut records, mut damage) = (Vec::new(), Vec::new());
    loop {
        match cursor.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, damage),
            Err(ReadError::Damaged(found)) => {
                let again = cursor.next_record().unwrap_err();
                assert!(matches!(again, ReadError::Damaged(same) if same == found), "never skipped silently");
                assert!(cursor.skip_damage());
                damage.push(found);
                assert!(damage.len() < 1000, "skipping gets somewhere");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn segment_files(memory: &MemoryStorage) -> Vec<(PathBuf, Vec<u8>)> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    memory.files().into_iter().filter(|(path, _)| is_segment(path)).collect()
}

#[test]
fn a_flipped_bit_anywhere_is_detected_or_harmless_and_always_named_if_it_matters() {
    let (memory, records) = history();
    let mut detected = 0;
    for (path, bytes) in segment_files(&memory) {
        for at in (0..bytes.len()).step_by(61).chain([0, 8, 4096, 4100, 4120, bytes.len() - 4096, bytes.len() - 3990]) {
            let copy = memory.copy();
            copy.tamper(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            let report = Journal::verify_in(&copy, &directory()).unwrap();
            let (journal, _) = open(&copy);
            let (there, skipped) = salvage(&journal);
            // Whatever is given out is what was written.
            assert!(there.iter().all(|record| records.contains(record)), "{}: byte {at}", path.display());
            if there.len() < records.len() {
                detected += 1;
                assert!(!skipped.is_empty() && !journal.damage().is_empty(), "{}: byte {at}", path.display());
                assert!(report.damage.iter().any(|d| d.kind.loses_records()), "{}: byte {at}", path.display());
                assert!(records.len() - there.len() <= 1, "one record a batch here, so one is lost");
            }
        }
    }
    assert!(detected > 1000, "{detected}");
}

#[test]
fn verify_names_every_flipped_bit_that_is_not_in_unused_space() {
    let (memory, _) = history();
    let report = Journal::verify_in(&memory, &directory()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    for segment in &report.segments {
        let path = directory().join(format!("{}.seg", segment.id));
        let end = usize::try_from(segment.end).unwrap();
        // The header, its checksum included, and all batches with their padding.
        for at in (0..128).step_by(3).chain((4096..end).step_by(211)) {
            let copy = memory.copy();
            copy.tamper(&path, |bytes| bytes[at] ^= 0x40);
            let report = Journal::verify_in(&copy, &directory()).unwrap();
            let named = report.damage.iter().any(|damage| {
                damage.segment == segment.id && damage.offset <= at as u64 && damage.offset + 4096 + 8192 > at as u64
            });
            assert!(named, "segment {} byte {at}: {:?}", segment.id, report.damage);
        }
    }
}

#[test]
fn a_damaged_record_costs_itself_and_not_its_batch() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    append_together(&journal, (0..100_u8).map(|n| vec![n; 50]));
    append(&journal, "behind it");
    let records = read_all(&journal);
    let victim = 57;
    memory.kill();
    drop(journal);
    let path = directory().join("0000000000000001-00000000.seg");
    let payload = [u8::try_from(victim).unwrap(); 50];
    memory.tamper(&path, |bytes| {
        let at = bytes.windows(50).position(|window| window == payload).unwrap();
        bytes[at + 20] ^= 1;
    });
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage[0].kind, DamageKind::Batch);
    let (there, skipped) = salvage(&journal);
    assert_eq!(skipped.len(), 1);
    let expected: Vec<_> = records.iter().enumerate().filter(|(n, _)| *n != victim).map(|(_, r)| r.clone()).collect();
    assert_eq!(there, expected);
}

#[test]
fn damage_in_the_middle_is_kept_named_and_never_cut() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    let appended: Vec<_> = (0..6_u8).map(|n| append(&journal, [n; 100])).collect();
    memory.kill();
    drop(journal);
    let path = directory().join("0000000000000001-00000000.seg");
    let offset = appended[2].position.file_offset();
    for flip in [0, 30, 95, 96, 100, 140, 235] {
        let copy = memory.copy();
        copy.tamper(&path, |bytes| bytes[usize::try_from(offset).unwrap() + flip] ^= 0x80);
        for reopened in 0..3 {
            let (journal, recovery) = open(&copy);
            let expected = Damage {
                segment: SegmentId { epoch: 1, sequence: 0 },
                offset,
                end: appended[3].position.file_offset(),
                kind: DamageKind::Batch,
            };
            assert_eq!(recovery.damage, [expected], "flip {flip}, open {reopened}");
            assert_eq!(recovery.torn, []);
            let error = read_from(&journal, Position::START).unwrap_err();
            let ReadError::Damaged(named) = &error else { panic!("{error}") };
            assert!(named.segment == expected.segment && (offset..expected.end).contains(&named.offset), "{named}");
            assert!(error.to_string().contains(&format!("segment {} offset {}", named.segment, named.offset)));
            let (there, _) = salvage(&journal);
            assert_eq!(payloads(&there), [0, 1, 3, 4, 5].map(|n| vec![n; 100]));
            assert_eq!(journal.stat().damaged, 1);
        }
    }
}

#[test]
fn a_lost_tail_shows_in_the_next_segment() {
    let (memory, records) = history();
    // The second segment of the first epoch: its last batch and all behind it are gone, footer and all.
    let path = directory().join("0000000000000001-00000001.seg");
    let last = records.iter().rfind(|r| r.position.segment().to_string().ends_with("1-00000001")).unwrap();
    let offset = usize::try_from(last.position.file_offset()).unwrap();
    memory.tamper(&path, |bytes| bytes[offset..].fill(0));
    let (journal, recovery) = open(&memory);
    let kinds: Vec<_> = recovery.damage.iter().map(|d| (d.segment.sequence, d.kind)).collect();
    assert_eq!(kinds, [(1, DamageKind::Tail)]);
    let (there, skipped) = salvage(&journal);
    assert_eq!(there.len(), records.len() - 1);
    assert_eq!(skipped, recovery.damage);
    journal.close();
    // It is written down: the next open says it again.
    let (_journal, again) = open(&memory);
    assert_eq!(again.damage, recovery.damage);
}

#[test]
fn a_missing_segment_is_named() {
    let (memory, records) = history();
    memory.remove(&directory().join("0000000000000001-00000001.seg")).unwrap();
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage.len(), 1);
    assert_eq!(recovery.damage[0].kind, DamageKind::Missing);
    assert_eq!(recovery.damage[0].segment, SegmentId { epoch: 1, sequence: 1 });
    let (there, skipped) = salvage(&journal);
    assert_eq!(skipped, recovery.damage);
    assert!(there.len() < records.len() && there.iter().all(|record| records.contains(record)));
    let inside = records.iter().find(|r| r.position.segment().sequence == 1).unwrap();
    let error = read_from(&journal, inside.position).unwrap_err();
    assert!(matches!(error, ReadError::Damaged(damage) if damage == recovery.damage[0]), "{error}");
    // The very first one is missed too: nobody trimmed it.
    memory.remove(&directory().join("0000000000000001-00000000.seg")).unwrap();
    drop(journal);
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage[0].segment, SegmentId { epoch: 1, sequence: 0 });
    assert!(!salvage(&journal).1.is_empty());
}

#[test]
fn two_things_that_are_wrong_at_one_place_are_met_once_each() {
    let (memory, records) = history();
    // The first segment was cut short, and the one behind it is not there.
    memory.tamper(&directory().join("0000000000000001-00000000.seg"), |bytes| bytes.truncate(20_480));
    memory.remove(&directory().join("0000000000000001-00000001.seg")).unwrap();
    let (journal, recovery) = open(&memory);
    let kinds: Vec<_> = recovery.damage.iter().map(|damage| damage.kind).collect();
    assert_eq!(kinds, [DamageKind::Truncated, DamageKind::Missing]);
    let (there, skipped) = salvage(&journal);
    assert_eq!(skipped, recovery.damage);
    assert_eq!(there.last(), records.last());
}

#[test]
fn a_segment_that_was_trimmed_under_a_reader_is_not_damaged() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    append_together(&journal, (0..3_u8).map(|n| vec![n; 50]));
    while journal.durable().segment().sequence == 0 {
        append(&journal, [9; 4000]);
    }
    let path = directory().join("0000000000000001-00000000.seg");
    memory.tamper(&path, |bytes| {
        let at = bytes.windows(50).position(|window| window == [1; 50]).unwrap();
        bytes[at] ^= 1;
    });
    let mut cursor = journal.read(Position::START).unwrap();
    assert!(cursor.next_record().unwrap().is_some());
    // What it reads from here on is what the next segment has written into the same file.
    until("it is sealed", || journal.segments()[0].state == SegmentState::Sealed);
    assert_eq!(journal.trim_before(journal.durable()).unwrap().segments, 1);
    let error = cursor.next_record().unwrap_err();
    assert!(matches!(error, ReadError::Trimmed { .. }), "{error}");
    assert_eq!(journal.damage(), []);
}

#[test]
fn a_segment_under_another_name_is_no_segment_of_that_name() {
    let (memory, records) = history();
    let [one, two] = ["1", "2"].map(|n| directory().join(format!("0000000000000001-0000000{n}.seg")));
    let (a, b) = (memory.read(&one, 1 << 20).unwrap().unwrap(), memory.read(&two, 1 << 20).unwrap().unwrap());
    memory.tamper(&one, |bytes| *bytes = b);
    memory.tamper(&two, |bytes| *bytes = a);
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage.iter().filter(|d| d.kind == DamageKind::Identity).count(), 2, "{recovery:?}");
    let (there, skipped) = salvage(&journal);
    assert!(skipped.len() >= 2 && there.iter().all(|record| records.contains(record)));
}

#[test]
fn a_shortened_segment_is_named() {
    let (memory, records) = history();
    memory.tamper(&directory().join("0000000000000001-00000000.seg"), |bytes| bytes.truncate(20_000));
    let (journal, recovery) = open(&memory);
    assert!(recovery.damage.iter().any(|d| d.kind == DamageKind::Truncated), "{recovery:?}");
    let (there, skipped) = salvage(&journal);
    assert!(!skipped.is_empty() && there.len() < records.len());
}

/// Zeroes the segment from every block on: what is gone of so many records is named.
fn assert_loss_is_told(memory: &MemoryStorage, last: SegmentId, records: usize, what: &str) {
    let path = directory().join(format!("{last}.seg"));
    let length = memory.read(&path, 1 << 30).unwrap().unwrap().len();
    for from in (4096..length).step_by(4096) {
        let copy = memory.copy();
        copy.tamper(&path, |bytes| bytes[from..].fill(0));
        let report = Journal::verify_in(&copy, &directory()).unwrap();
        let (journal, recovery) = open(&copy);
        let (there, skipped) = salvage(&journal);
        let told = !recovery.damage.is_empty() || !skipped.is_empty();
        assert!(told || there.len() == records, "{what}: {} of {records} left", there.len());
        assert!(!report.is_whole() || there.len() == records, "{what}: {} of {records} left", there.len());
    }
}

#[test]
fn a_tail_that_goes_with_its_footer_is_named() {
    // Up to some that just fill a segment. How did the epoch end, and was the log opened since?
    for records in 1..=28 {
        for (killed, opened) in [(false, false), (false, true), (true, true)] {
            let memory = MemoryStorage::new();
            let (journal, _) = open(&memory);
            for _ in 0..records {
                append(&journal, "x");
            }
            let last = journal.durable().segment();
            if killed {
                memory.kill();
            }
            drop(journal);
            if opened {
                drop(open(&memory));
            }
            assert_loss_is_told(&memory, last, records, &format!("killed {killed}, opened {opened}"));
        }
    }
}

#[test]
fn a_segment_that_recovery_knew_longer_is_not_taken_for_one_that_was_never_written() {
    let (memory, records) = history();
    let end = memory.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "end")).unwrap().0;
    let segment = end.with_extension("seg");
    let length = memory.read(&segment, 1 << 30).unwrap().unwrap().len();
    for to in (0..length).step_by(4096) {
        for (zeroed, end_is_broken) in [(false, false), (false, true), (true, false), (true, true)] {
            let copy = memory.copy();
            copy.tamper(&segment, |bytes| if zeroed { bytes[to..].fill(0) } else { bytes.truncate(to) });
            if end_is_broken {
                copy.tamper(&end, |bytes| bytes[200] ^= 1);
            }
            let report = Journal::verify_in(&copy, &directory()).unwrap();
            let (journal, recovery) = open(&copy);
            let (there, skipped) = salvage(&journal);
            let what = format!("to {to}, zeroed {zeroed}, end broken {end_is_broken}: {} left", there.len());
            assert!(there.len() < records.len() && !report.is_whole(), "{what}");
            assert!(!recovery.damage.is_empty() || !skipped.is_empty(), "{what}");
        }
    }
}

#[test]
fn a_full_segment_whose_successor_was_never_written_has_a_witness() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    let mut records = 0;
    while journal.durable().segment().sequence == 0 {
        append(&journal, "x");
        records += 1;
    }
    until("the first one is sealed", || journal.segments()[0].state == SegmentState::Sealed);
    let [first, next] = [0, 1].map(|n| journal.segments()[n].id);
    memory.kill();
    drop(journal);
    // Its first write never got to the disk.
    memory.tamper(&directory().join(format!("{next}.seg")), |bytes| bytes[4096..].fill(0));
    drop(open(&memory));
    assert_loss_is_told(&memory, first, records - 1, "rolled and killed");
}

#[test]
fn header_and_footer_are_named_and_cost_no_record() {
    let (memory, records) = history();
    let path = directory().join("0000000000000001-00000000.seg");
    for (at, kind) in [(60_usize, DamageKind::Header), (61_440 + 72, DamageKind::Footer)] {
        let copy = memory.copy();
        copy.tamper(&path, |bytes| bytes[at] ^= 1);
        let (journal, recovery) = open(&copy);
        assert_eq!(recovery.damage.iter().map(|d| d.kind).collect::<Vec<_>>(), [kind]);
        assert_eq!(read_all(&journal), records);
    }
}

#[test]
fn an_unreadable_sector_is_an_error_and_not_the_end() {
    let (memory, records) = history();
    let storage = FaultyStorage::new(memory, 5, Faults::default());
    let (journal, _) = Journal::open(options(Arc::new(storage.clone()))).unwrap();
    storage.set_faults(Faults { read_fails: 1, ..Faults::default() });
    let error = read_from(&journal, Position::START).unwrap_err();
    assert!(matches!(error, ReadError::Damaged(damage) if damage.kind == DamageKind::Unreadable), "{error}");
    storage.set_faults(Faults::default());
    assert_eq!(read_all(&journal).len(), records.len(), "and it is asked again, not remembered as lost");
}

#[test]
fn forged_batches_in_a_payload_are_never_taken_for_ours() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    append(&journal, "first");
    // A body that is a whole segment of another log, placed so that its batches lie on blocks.
    let (other, _) = history();
    let strange = segment_files(&other).remove(0).1;
    let mut body = vec![0; 4096 - 96 - 40];
    body.extend_from_slice(&strange[4096..40_960]);
    append(&journal, body.clone());
    append(&journal, "torn");
    let torn = journal.durable().file_offset() - 4096;
    memory.kill();
    drop(journal);
    let path = directory().join("0000000000000001-00000000.seg");
    // The batch with the body loses its header: what is in it must not pass for batches behind it.
    memory.tamper(&path, |bytes| {
        bytes[8192..8192 + 96].fill(0);
        let torn = usize::try_from(torn).unwrap();
        bytes[torn..torn + 4096].fill(0);
    });
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage, []);
    assert_eq!(payloads(&read_all(&journal)), [b"first".to_vec()]);
}

#[test]
fn a_file_beside_the_segments_that_does_not_read_costs_no_record() {
    let (memory, records) = history();
    let end = memory.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "end")).unwrap().0;
    memory.put(&directory().join("trim.mark"), b"something").unwrap();
    for file in [end, directory().join("log.id"), directory().join("trim.mark")] {
        let copy = memory.copy();
        let storage = FaultyStorage::new(copy.clone(), 1, Faults::default());
        storage.set_unreadable(&file);
        let (journal, recovery) = Journal::open(options(Arc::new(storage.clone()))).unwrap();
        assert!(recovery.damage.iter().all(|damage| damage.kind == DamageKind::Footer), "{recovery:?}");
        assert_eq!(recovery.damage.len(), usize::from(file.extension().is_some_and(|e| e == "end")));
        assert_eq!(read_all(&journal), records, "{}", file.display());
        journal.close();
        assert!(Journal::verify_in(&storage, &directory()).is_ok());
    }
    for file in ["log.id", "trim.mark"] {
        let copy = memory.copy();
        copy.tamper(&directory().join(file), |bytes| bytes.resize(5_000, 1));
        assert!(Journal::verify_in(&copy, &directory()).is_ok());
        assert_eq!(read_all(&open(&copy).0), records, "{file}");
    }
}

#[test]
fn what_a_power_cut_left_behind_the_last_records_is_no_damage() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    let appended = [append(&journal, "first"), append(&journal, "last")];
    memory.kill();
    drop(journal);
    let path = directory().join(format!("{}.seg", appended[1].position.segment()));
    let dirty_padding = |of: usize| {
        let last_sector = usize::try_from(appended[of].position.file_offset()).unwrap() + 4096 - 512;
        memory.tamper(&path, |bytes| bytes[last_sector..last_sector + 512].fill(0xaa));
    };
    // The last sector of the last batch was not written: there is what the file held when it was another segment's.
    dirty_padding(1);
    assert_eq!(Journal::verify_in(&memory, &directory()).unwrap().damage, []);
    for _ in 0..2 {
        let (journal, recovery) = open(&memory);
        assert_eq!(
            (recovery.damage, payloads(&read_all(&journal))),
            (vec![], vec![b"first".to_vec(), b"last".to_vec()])
        );
        drop(journal);
        assert_eq!(Journal::verify_in(&memory, &directory()).unwrap().damage, [], "it is cleared away");
    }
    // Where something was written behind it, and when all was judged, it is a changed bit as any other.
    for of in [0, 1] {
        dirty_padding(of);
        assert_eq!(Journal::verify_in(&memory, &directory()).unwrap().damage.len(), 1 + of);
    }
}
