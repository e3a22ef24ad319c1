//! What the log says of itself.

use super::*;

#[test]
fn stat_says_what_there_is() {
    let on_disk = OnDisk::new(2);
    let clock = clock();
    let log = on_disk.open(&clock);
    append_all(&log, &many(0, 500));
    let stat = log.stat();
    assert_eq!(stat.engine, "embedded");
    assert_eq!(stat.lanes.len(), 4);
    assert_eq!(stat.lanes.iter().map(|lane| lane.records).sum::<u64>(), 500);
    let stored = log.stored_bytes(&tenant("acme")) + log.stored_bytes(&tenant("globex"));
    assert_eq!(stat.lanes.iter().map(|lane| lane.event_bytes).sum::<u64>(), stored);
    assert!(stat.lanes.iter().all(|lane| lane.disk_bytes > 0 && !lane.sync.is_empty() && lane.active));
    assert!(stat.days_left.is_some_and(|days| days > 0.0), "{stat:?}");
    let sealed = |lane: &Arc<Lane>| match &lane.segments {
        Segments::Journal(journal) => journal.segments().iter().filter(|i| i.state == SegmentState::Sealed).count(),
        Segments::View(_) => 0,
    };
    assert!(log.lanes.iter().map(sealed).sum::<usize>() > 0);
}

#[test]
fn the_oldest_event_counts_from_the_moment_it_is_there() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    let oldest = || log.stat().lanes[0].oldest_unix_ms;
    assert_eq!(oldest(), None);
    append_all(&log, &many(0, 1));
    clock.advance(SHORT_AGE);
    append_all(&log, &many(1, 5));
    assert_eq!(oldest(), Some(EPOCH_UNIX_MS));
    append_all(&log, &many(5, 500));
    assert_eq!(oldest(), Some(EPOCH_UNIX_MS));
}

#[test]
fn files_that_wait_for_reuse_are_on_the_disk_too() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    let short: Vec<_> =
        many(0, 2_000).into_iter().map(|event| NewEvent { retention: "short".into(), ..event }).collect();
    append_all(&log, &short);
    clock.advance(SHORT_AGE * 2);
    let trimmed = log.trim().unwrap().segments;
    let lane = log.lanes.iter().find(|lane| &*lane.name().class == "short").unwrap();
    let there: u64 = lane.segments.segments().iter().map(|info| info.file_bytes).sum();
    assert!(lane.stat().disk_bytes > there && trimmed > 4, "{} {there} {trimmed}", lane.stat().disk_bytes);
}

#[test]
fn a_log_that_starts_on_a_full_disk_says_so_in_every_figure() {
    let on_disk = OnDisk::new(1);
    // More than any file system has: its reserve is reached from the first moment on.
    let settings = Settings { reserve_bytes: 1 << 60, ..on_disk.settings() };
    let (log, _) = EmbeddedLog::open(&settings, clock()).unwrap();
    let event = many(0, 1).remove(0);
    assert_eq!(log.refuses(&event.retention, &event.endpoint), Some(AppendError::Full), "before anybody appends");
    assert!(matches!(log.append(event).wait(), Err(AppendError::Full)));
    let stat = log.stat();
    assert_eq!((stat.days_left, stat.reserve_bytes), (Some(0.0), 1 << 60));
    assert!(stat.disk_free_bytes > 0);
    let lane = &stat.lanes[0];
    assert_eq!(lane.cannot_commit(), Some("the disk is full"));
    let fault = lane.last_fault.as_ref().unwrap();
    assert_eq!((fault.unix_ms, fault.reason.as_str()), (EPOCH_UNIX_MS, "the disk is full"));
    drop(log);
    let stat = on_disk.read_only().stat();
    assert!(stat.disk_free_bytes > 0 && stat.days_left.is_none(), "{stat:?}");
}
