//! The log opened again: under other settings, with other shards.

use super::*;

#[test]
fn a_change_of_shards_keeps_every_event_and_its_order() {
    let mut on_disk = OnDisk::new(1);
    let clock = clock();
    let mut events = Vec::new();
    for (round, shards) in [1_u16, 3, 2, 3].into_iter().enumerate() {
        on_disk.shards = shards;
        let log = on_disk.open(&clock);
        let round = u32::try_from(round).unwrap();
        let new = many(round * 200, round * 200 + 200);
        append_all(&log, &new);
        events.extend(new);
        // A clock that stepped back between starts must not turn the order around.
        clock.step_to_unix_ms(EPOCH_UNIX_MS - u64::from(round) * 1000);
        assert_indexes_agree(&log, &events);
    }
    let log = on_disk.open(&clock);
    assert_indexes_agree(&log, &events);
    for class in ["default", "short"] {
        let lanes = log.stat().lanes;
        let of_class = || lanes.iter().filter(|lane| lane.class == class);
        let newest = of_class().map(|lane| lane.generation).max().unwrap();
        assert_eq!(newest, 4);
        assert!(of_class().all(|lane| lane.active == (lane.generation == newest)));
    }
}

/// A place taken in the middle of one generation holds when another has begun.
#[test]
fn a_cursor_survives_a_change_of_shards() {
    let mut on_disk = OnDisk::new(2);
    let clock = clock();
    let log = on_disk.open(&clock);
    append_all(&log, &many(0, 100));
    let mut reader = log.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap();
    let mut seen: Vec<_> = (0..40).map(|_| reader.next().unwrap().unwrap().id).collect();
    let cursor: Cursor = reader.cursor().to_string().parse().unwrap();
    drop((reader, log));
    on_disk.shards = 3;
    let log = on_disk.open(&clock);
    append_all(&log, &many(100, 150));
    let mut reader = log.reader(Scope::Operator, Start::At(cursor), Filter::default()).unwrap();
    seen.extend(drain(&mut *reader));
    assert_eq!(seen.len(), 150);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 150);
}

#[test]
fn a_class_that_is_gone_from_the_settings_is_read_and_takes_nothing() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let mut short = many(0, 50);
    for event in &mut short {
        event.retention = "short".into();
    }
    append_all(&on_disk.open(&clock), &short);
    let mut settings = on_disk.settings();
    settings.retention.pop();
    let log = open_with(&settings, &clock);
    assert_eq!(ids(&log, Scope::Operator, Filter::default()).len(), 50);
    let refused = log.append(short[0].clone()).wait();
    assert!(matches!(refused, Err(AppendError::UnknownRetention { .. })), "{refused:?}");
    clock.advance(DEFAULT_AGE * 2);
    assert_eq!(log.trim().unwrap().records, 0, "nobody has said how long these are kept");
    assert!(!log.stat().lanes.iter().find(|lane| lane.class == "short").unwrap().configured);
}
