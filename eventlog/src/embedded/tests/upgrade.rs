//! Two processes of one upgrade: the elder still appends, the younger already does.

use super::*;

/// Two processes of one upgrade: the younger reads what the elder leaves, in order, once it has ended.
#[test]
fn two_processes_of_an_upgrade_lose_nothing() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let elder = on_disk.open(&clock);
    append_all(&elder, &many(0, 300));
    let younger = on_disk.open(&clock);
    append_all(&younger, &many(300, 400));
    append_all(&elder, &many(400, 700));
    let mut readers = ways("wh_3").map(|(scope, filter)| younger.reader(scope, Start::Earliest, filter).unwrap());
    let mut seen = [Vec::new(), Vec::new(), Vec::new()];
    let mut read = |seen: &mut [Vec<EventId>; 3]| {
        for (reader, seen) in readers.iter_mut().zip(seen) {
            seen.extend(drain(&mut **reader));
        }
    };
    read(&mut seen);
    drop(elder);
    read(&mut seen);
    append_all(&younger, &many(700, 750));
    read(&mut seen);
    let order: Vec<_> = [many(0, 300), many(400, 700), many(300, 400), many(700, 750)].concat();
    assert_eq!(seen[0], ids_of(&order));
    assert_eq!(seen[1].len(), 375);
    assert_eq!(seen[2], wanted(&order, &Scope::Operator, &of_endpoint("wh_3")));
    assert_indexes_agree(&younger, &order);
}

/// A consumer that stands exactly where the elder's visible end is waits there, and does not go on to what the younger
/// process has written.
#[test]
fn a_consumer_waits_at_the_end_of_a_process_that_lives() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let elder = on_disk.open(&clock);
    append_all(&elder, &many(0, 300));
    let younger = on_disk.open(&clock);
    append_all(&younger, &many(300, 400));
    for (scope, filter) in ways("wh_2") {
        let mut reader = younger.reader(scope.clone(), Start::Earliest, filter.clone()).unwrap();
        let mut seen = drain(&mut *reader);
        // Committed there, and opened again: at the very end of what can be seen of the elder.
        for _ in 0..2 {
            reader = younger.reader(scope.clone(), Start::At(reader.cursor()), filter.clone()).unwrap();
            seen.extend(drain(&mut *reader));
        }
        let elders = wanted(&many(0, 300), &scope, &filter);
        assert_eq!(seen, elders[..seen.len()], "nothing that may not be next was given out");
    }
    append_all(&elder, &many(400, 700));
    let mut reader = younger.reader(Scope::Tenant(tenant("acme")), Start::Earliest, Filter::default()).unwrap();
    let mut seen = drain(&mut *reader);
    let mut reader =
        younger.reader(Scope::Tenant(tenant("acme")), Start::At(reader.cursor()), Filter::default()).unwrap();
    seen.extend(drain(&mut *reader));
    drop(elder);
    seen.extend(drain(&mut *reader));
    let order = [many(0, 300), many(400, 700), many(300, 400)].concat();
    assert_eq!(seen, wanted(&order, &Scope::Tenant(tenant("acme")), &Filter::default()));
}

/// The journal knows what the elder left before the index does: a reader in between goes by the journal.
#[test]
fn what_was_not_taken_up_yet_is_not_passed_over() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let elder = on_disk.open(&clock);
    append_all(&elder, &many(0, 50));
    let younger = on_disk.open(&clock);
    append_all(&younger, &many(50, 60));
    append_all(&elder, &many(60, 700));
    drop(elder);
    let lane = default_lane(&younger);
    // Settles the elder's epoch, and then the index believes that it has taken up what there was.
    drain(&mut *younger.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap());
    lane.index.set_taken_up(1);
    assert!(lane.index.unsettled().is_none());
    let order = [many(0, 50), many(60, 700), many(50, 60)].concat();
    let acme = Scope::Tenant(tenant("acme"));
    let expected = wanted(&order, &acme, &Filter::default());
    assert_eq!(ids(&younger, acme, Filter::default()), expected);
}

/// Another number of shards in an upgrade: what the elder still appends to the old generation comes before what the
/// younger one has appended to the new.
#[test]
fn an_upgrade_that_changes_the_shards_keeps_the_order() {
    let mut on_disk = OnDisk::new(1);
    let clock = clock();
    let elder = on_disk.open(&clock);
    append_all(&elder, &many(0, 100));
    on_disk.shards = 2;
    let younger = on_disk.open(&clock);
    append_all(&younger, &many(100, 200));
    let mut readers = [Filter::default(), of_endpoint("wh_3")]
        .map(|filter| younger.reader(Scope::Operator, Start::Earliest, filter).unwrap());
    let mut latest = younger.reader(Scope::Operator, Start::Latest, of_endpoint("wh_3")).unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    for (reader, seen) in readers.iter_mut().zip(&mut seen) {
        seen.extend(drain(&mut **reader));
        assert!(seen.iter().all(|id| ids_of(&many(0, 100)).contains(id)), "the new generation waits");
    }
    append_all(&elder, &many(200, 300));
    append_all(&younger, &many(300, 310));
    assert_eq!(drain(&mut *latest), ids_of(&many(307, 308)), "who wants nothing of the elder waits for nothing");
    drop(elder);
    for (reader, seen) in readers.iter_mut().zip(&mut seen) {
        seen.extend(drain(&mut **reader));
    }
    let order = [many(0, 100), many(200, 300), many(100, 200), many(300, 310)].concat();
    assert_eq!(seen[0].len(), order.len());
    assert_eq!(seen[1], wanted(&order, &Scope::Operator, &of_endpoint("wh_3")));
}
