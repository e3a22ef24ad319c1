//! Segments that are damaged or gone, and records that are no events.

use super::*;

#[test]
fn damage_halts_every_way_of_reading_until_it_is_skipped() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let events = many(0, 1_000);
    append_all(&on_disk.open(&clock), &events);
    damage_batches(&on_disk.segments_of_default()[2]);
    on_disk.lose_indexes();
    let log = on_disk.open(&clock);
    for (scope, filter) in ways("wh_1") {
        let mut reader = log.reader(scope.clone(), Start::Earliest, filter.clone()).unwrap();
        let mut halts = 0;
        let seen = read_past(&mut *reader, |reader, fault| {
            assert!(matches!(fault, ReadError::Damaged { .. }), "{fault}");
            assert_eq!(reader.next(), Err(fault), "a halted reader stays halted");
            halts += 1;
            assert!(reader.skip_damage());
        });
        assert!(halts > 0, "{scope:?} {filter:?}: damage was passed over in silence");
        let all = wanted(&events, &scope, &filter);
        assert!(seen.len() < all.len() && seen.len() > all.len() / 2, "{} of {}", seen.len(), all.len());
        assert!(seen.iter().all(|id| all.contains(id)));
    }
    let (mut there, mut damaged) = (0, 0);
    for event in &events {
        match log.by_id(&Scope::Operator, event.id) {
            Ok(Some(found)) => {
                assert_eq!(found.id, event.id);
                there += 1;
            }
            Err(ReadError::Damaged { .. }) => damaged += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(there > 900 && damaged > 0, "{there} {damaged}");
    assert!(log.stat().lanes.iter().any(|lane| !lane.damage.is_empty()));
}

/// Segments that are not there at all: in front of everything, in the middle.
#[test]
fn a_missing_segment_halts_every_way_of_reading() {
    for victim in [0, 2] {
        let on_disk = OnDisk::new(1);
        let clock = clock();
        append_all(&on_disk.open(&clock), &many(0, 1_000));
        std::fs::remove_file(&on_disk.segments_of_default()[victim]).unwrap();
        let log = on_disk.open(&clock);
        for (scope, filter) in ways("wh_1") {
            let mut reader = log.reader(scope.clone(), Start::Earliest, filter).unwrap();
            let mut halts = 0;
            let seen = read_past(&mut *reader, |reader, fault| {
                assert!(matches!(fault, ReadError::Damaged { .. }), "{fault}");
                halts += 1;
                assert!(reader.skip_damage());
            });
            assert!(halts > 0 && !seen.is_empty(), "{victim} {scope:?}: {halts} halts, {} seen", seen.len());
        }
    }
}

/// What is damaged cannot hold what was received after the last append to it: a promotion of that is not held up.
#[test]
fn damage_blocks_only_ids_that_can_lie_in_it() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    {
        let log = on_disk.open(&clock);
        for round in 0..4 {
            clock.step_to_unix_ms(EPOCH_UNIX_MS + round * 1_000_000 + 9_000);
            let events: Vec<_> = (0..300)
                .map(|n| {
                    let number = u32::try_from(round).unwrap() * 300 + n;
                    event("acme", "wh_1", EPOCH_UNIX_MS + round * 1_000_000 + u64::from(n), number)
                })
                .collect();
            append_all(&log, &events);
        }
    }
    damage_batches(&on_disk.segments_of_default()[0]);
    on_disk.lose_indexes();
    let log = on_disk.open(&clock);
    assert!(log.stat().lanes.iter().any(|lane| !lane.damage.is_empty()));
    let absent = |received| event("acme", "wh_1", received, 7_777).id;
    assert!(matches!(log.by_id(&Scope::Operator, absent(EPOCH_UNIX_MS + 5)), Err(ReadError::Damaged { .. })));
    assert_eq!(log.by_id(&Scope::Operator, absent(EPOCH_UNIX_MS + 2_500_000)), Ok(None));
    // It came after everything, and while nothing new has been appended.
    assert_eq!(log.by_id(&Scope::Operator, absent(EPOCH_UNIX_MS + 9_000_000)), Ok(None));
}

/// A record of a later version, of an unknown kind, sealed with a key: exactly one is passed, when told to.
#[test]
fn a_record_that_is_no_event_is_passed_alone() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    let Segments::Journal(journal) = &default_lane(&log).segments else { unreachable!("it was opened for writing") };
    let sample = event("acme", "wh_1", EPOCH_UNIX_MS, 9);
    let mut whole = codec::encode_head(&sample, NODE).unwrap();
    whole.extend_from_slice(&sample.body);
    let (mut later, mut sealed) = (whole.clone(), whole.clone());
    later[0] = 2;
    sealed[2] = 7;
    let events = many(0, 40);
    append_all(&log, &events[..20]);
    for (kind, payload) in [(KIND_EVENT, later), (9, whole), (KIND_EVENT, sealed)] {
        let payload = Payload { middle: payload.into(), ..Payload::default() };
        let entry = Entry { stream: 5, time_unix_ms: EPOCH_UNIX_MS, kind, payload, check: None };
        journal.append(entry).wait().unwrap();
    }
    append_all(&log, &events[20..]);
    for scope in [Scope::Operator, Scope::Tenant(tenant("acme"))] {
        let mut reader = log.reader(scope.clone(), Start::Earliest, Filter::default()).unwrap();
        let mut passed = 0;
        let seen = read_past(&mut *reader, |reader, fault| {
            assert!(matches!(fault, ReadError::NotAnEvent { .. }), "{fault}");
            assert_eq!(reader.next(), Err(fault), "a halted reader stays halted");
            assert!(reader.skip_damage());
            assert!(!reader.skip_damage(), "one and no more");
            passed += 1;
        });
        assert_eq!(seen, wanted(&events, &scope, &Filter::default()));
        assert_eq!(passed, 3);
    }
}
