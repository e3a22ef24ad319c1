//! Indexes that are missing, damaged, late, or lie.

use super::*;
use crate::index::{ActiveIndex, Row, encode};

#[test]
fn a_missing_or_damaged_index_is_built_again() {
    let on_disk = OnDisk::new(2);
    let clock = clock();
    let events = many(0, 1_000);
    append_all(&on_disk.open(&clock), &events);
    let indexes = on_disk.files(".idx");
    assert!(indexes.len() >= 4, "{indexes:?}");
    let contents: Vec<_> = indexes.iter().map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::remove_file(&indexes[0]).unwrap();
    // The summary of one, a table of another, the length of a third.
    let damage = |nth: usize, at: usize| {
        let mut bytes = contents[nth].clone();
        bytes[at] ^= 0xff;
        std::fs::write(&indexes[nth], bytes).unwrap();
    };
    damage(1, 84 + 40);
    damage(2, contents[2].len() - 4096);
    std::fs::write(&indexes[3], &contents[3][..contents[3].len() - 1]).unwrap();
    let log = on_disk.open(&clock);
    assert_indexes_agree(&log, &events);
    drop(log);
    let again: Vec<_> = indexes.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(again == contents, "what was built again is what was there");
    assert_indexes_agree(&on_disk.open(&clock), &events);
}

/// Nothing can be written beside segments that are only looked at: their indexes are built again whenever they are
/// asked for, and are not all in memory at once.
#[test]
fn a_log_without_indexes_that_is_only_read_keeps_few_in_memory() {
    let on_disk = OnDisk::new(1);
    let events = many(0, 1_000);
    append_all(&on_disk.open(&clock()), &events);
    let indexes = on_disk.files(".idx");
    assert!(indexes.len() > 2 * lane_index::IN_MEMORY_MAX, "{indexes:?}");
    on_disk.lose_indexes();
    let log = on_disk.read_only();
    assert!(log.lanes[0].index.in_memory() <= lane_index::IN_MEMORY_MAX, "{}", log.lanes[0].index.in_memory());
    assert_indexes_agree(&log, &events);
    assert!(log.lanes[0].index.in_memory() <= lane_index::IN_MEMORY_MAX, "{}", log.lanes[0].index.in_memory());
}

/// A damaged table is met while the log runs: it is built again under the reader's hands.
#[test]
fn an_index_that_breaks_while_the_log_runs_is_built_again() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let events = many(0, 1_000);
    append_all(&on_disk.open(&clock), &events);
    let log = on_disk.open(&clock);
    for path in on_disk.files(".idx") {
        let mut bytes = std::fs::read(&path).unwrap();
        for at in (84 + 4096..bytes.len()).step_by(512) {
            bytes[at] ^= 0xff;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert_indexes_agree(&log, &events);
}

/// An index that lies about whose a record is: the record itself is asked, the read halts, nothing leaks.
#[test]
fn an_index_that_lies_halts_the_reader() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    let theirs = event("globex", "wh_1", EPOCH_UNIX_MS, 1);
    let appended = log.append(theirs.clone()).wait().unwrap();
    log.close().unwrap();
    let lane = &log.lanes[0];
    let Segments::Journal(journal) = &lane.segments else { unreachable!("it was opened for writing") };
    let info = journal.segments().into_iter().find(|info| info.records == 1).unwrap();
    let mut lie = ActiveIndex::default();
    let tenant_index = lie.tenant("acme");
    let spot = u32::try_from(appended.position.place.offset & 0xffff_ffff).unwrap();
    let row = Row {
        id: theirs.id,
        endpoint: endpoint_key("wh_1"),
        received_unix_ms: theirs.received_unix_ms,
        spot,
        tenant: tenant_index,
    };
    lie.push(row, 10);
    journal.write_side_file(&info, &encode((info.id.epoch, info.id.sequence), &lie)).unwrap();
    drop(log);

    let log = on_disk.open(&clock);
    let mut reader = log.reader(Scope::Tenant(tenant("acme")), Start::Earliest, Filter::default()).unwrap();
    let expected = Err(ReadError::ScopeMismatch { position: appended.position, scope: tenant("acme") });
    assert_eq!(reader.next(), expected);
    assert_eq!(reader.next(), expected);
}

/// An index that was read while its segment was trimmed is no segment.
#[test]
fn an_index_that_comes_after_the_trim_is_let_go() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    append_all(&log, &many(0, 600));
    let lane = default_lane(&log);
    let first = lane.segments.segments()[0];
    assert_eq!(first.state, SegmentState::Sealed);
    let mut index = lane_index::Growing::new();
    let mut cursor = lane.segments.read(segment::Position::START).unwrap();
    while let Some(record) = cursor.next_record().unwrap().filter(|record| record.position < first.end_position()) {
        index.add(&lane::view(&record));
    }
    clock.advance(DEFAULT_AGE * 2);
    append_all(&log, &many(600, 601));
    log.trim().unwrap();
    let stored = log.stored_bytes(&tenant("acme"));
    lane.index.replace(&first, index.clone());
    assert_eq!((lane.index.knows(first.id), log.stored_bytes(&tenant("acme"))), (false, stored));
    lane.index.take_up_rebuilt(&first, index);
    lane.take_up_segments();
    assert_eq!((lane.index.knows(first.id), log.stored_bytes(&tenant("acme"))), (false, stored));
    let left = ids(&log, Scope::Operator, Filter::default());
    let acme = ids(&log, Scope::Tenant(tenant("acme")), Filter::default());
    assert!(acme.iter().all(|id| left.contains(id)));
}
