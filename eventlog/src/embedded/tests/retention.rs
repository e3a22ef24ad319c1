//! Readers whose place is trimmed.

use super::*;

/// Readers that stand at every place of the first segments when those are trimmed: each may yield what it has in
/// memory, without a gap, and is then told; none goes on behind the hole.
#[test]
fn a_reader_is_told_wherever_it_stood_when_the_log_was_trimmed() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    let events: Vec<_> =
        (0..400).map(|n| NewEvent { retention: "short".into(), ..event("acme", "wh_1", EPOCH_UNIX_MS, n) }).collect();
    // One at a time, so that a batch in memory does not reach across the trim.
    for event in &events {
        log.append(event.clone()).wait().unwrap();
    }
    let mut readers: Vec<_> = (1..60)
        .map(|count| {
            let mut reader = log.reader(Scope::Tenant(tenant("acme")), Start::Earliest, Filter::default()).unwrap();
            for _ in 0..count {
                reader.next().unwrap().unwrap();
            }
            (count, reader)
        })
        .collect();
    clock.advance(SHORT_AGE * 2);
    assert!(log.trim().unwrap().records > 60);
    for (count, reader) in &mut readers {
        let mut last = *count;
        let fault = loop {
            match reader.next() {
                Ok(Some(event)) => {
                    assert_eq!(event.sequence, last + 1, "after {count}");
                    last = event.sequence;
                }
                Ok(None) => panic!("after {count} the reader came to an end at {last}"),
                Err(fault) => break fault,
            }
        };
        assert!(matches!(fault, ReadError::Trimmed { .. }), "{fault:?}");
    }
}

#[test]
fn a_reader_beside_goes_on_where_the_log_begins_when_the_writer_has_trimmed() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    let short = |n| NewEvent { retention: "short".into(), ..many(n, n + 1).remove(0) };
    let old: Vec<_> = (0..400).map(short).collect();
    append_all(&log, &old);
    for filter in [Filter::default(), of_endpoint("wh_1"), Filter { from_unix_ms: Some(1), ..Filter::default() }] {
        clock.advance(SHORT_AGE + std::time::Duration::from_secs(1));
        append_all(&log, &(1_000..1_400).map(short).collect::<Vec<_>>());
        let beside = on_disk.read_only();
        let mut reader = beside.reader(Scope::Operator, Start::Earliest, filter.clone()).unwrap();
        assert!(reader.next().unwrap().is_some());
        assert!(log.trim().unwrap().segments > 0);
        let mut halts = 0;
        let seen = read_past(&mut *reader, |reader, fault| {
            assert!(matches!(fault, ReadError::Trimmed { .. }), "{fault}");
            halts += 1;
            assert!(halts < 10 && reader.skip_trimmed());
        });
        let left = ids(&log, Scope::Operator, filter);
        assert!(halts > 0 && !left.is_empty() && seen.ends_with(&left), "{halts} {} {}", seen.len(), left.len());
    }
}
