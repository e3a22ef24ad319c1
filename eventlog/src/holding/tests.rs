//! The store: what it keeps, what it refuses, what outlives a restart.

use domain::{Clock, ManualClock, TenantId};

use super::*;
use crate::conformance::{EPOCH_UNIX_MS, NODE, event};
use crate::event::DeliveryId;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage};

const RECORDS_MAX: u32 = 20;

fn settings(directory: &std::path::Path) -> HoldingSettings {
    HoldingSettings {
        node: NODE,
        directory: directory.join("holding"),
        limits: HoldingLimits {
            records_per_endpoint_max: RECORDS_MAX,
            bytes_per_endpoint_max: 100_000,
            bytes_max: 150_000,
        },
        age: Duration::from_hours(7 * 24),
        segment_bytes: 64 << 10,
        sync: segment::SyncMode::Auto,
        reserve_bytes: 0,
        storage: Arc::new(RealStorage),
    }
}

fn open(directory: &std::path::Path, clock: &Arc<ManualClock>) -> HoldingStore {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    HoldingStore::open(&settings(directory), clock).unwrap().0
}

fn held(tenant: &str, endpoint: &str, number: u32) -> NewHeld {
    let mut delivery = event(tenant, endpoint, EPOCH_UNIX_MS + u64::from(number), number);
    delivery.secret = "".into();
    let status = if number.is_multiple_of(2) { Status::Quarantined } else { Status::Pending };
    NewHeld { delivery, status, reason: "mismatch" }
}

/// Everything held, once it is durable.
fn all(store: &HoldingStore, scope: &Scope, filter: &HoldingFilter) -> Vec<Held> {
    // A tombstone for nothing that is held waits for nothing; the journal's own order does.
    let held = store.stat();
    loop {
        let found: Vec<_> = store.iter(&Scope::Operator, &HoldingFilter::default()).collect();
        if found.len() as u64 == held.pending + held.quarantined {
            break;
        }
        std::thread::yield_now();
    }
    store.iter(scope, filter).map(Result::unwrap).collect()
}

fn everything(store: &HoldingStore) -> Vec<Held> {
    all(store, &Scope::Operator, &HoldingFilter::default())
}

#[test]
fn what_is_held_comes_back_whole_in_order_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    let new: Vec<_> = (0..30).map(|n| held(["acme", "globex"][n as usize % 2], &format!("wh_{}", n % 3), n)).collect();
    for held in &new {
        store.hold(held.clone()).unwrap();
    }
    let before = store.stat();
    assert_eq!((before.pending, before.quarantined, before.endpoints), (15, 15, 3));
    let check = |store: &HoldingStore| {
        let found = everything(store);
        assert_eq!(found.len(), 30);
        for (found, new) in found.iter().zip(&new) {
            assert_eq!(found.delivery.id, new.delivery.id);
            assert_eq!(found.delivery.body, new.delivery.body);
            assert_eq!(found.delivery.headers, new.delivery.headers);
            assert_eq!(found.delivery.received_unix_ms, new.delivery.received_unix_ms);
            assert_eq!((found.status, &*found.reason), (new.status, new.reason));
        }
        let acme = Scope::Tenant(TenantId::parse("acme").unwrap());
        let filter = HoldingFilter { status: Some(Status::Quarantined), ..HoldingFilter::default() };
        assert_eq!(all(store, &acme, &filter).len(), 15);
        let filter = HoldingFilter {
            from_unix_ms: Some(EPOCH_UNIX_MS + 5),
            until_unix_ms: Some(EPOCH_UNIX_MS + 9),
            ..HoldingFilter::default()
        };
        assert_eq!(all(store, &Scope::Operator, &filter).len(), 4);
        let filter = HoldingFilter { endpoint: Some(EndpointId::parse("wh_2").unwrap()), ..HoldingFilter::default() };
        assert_eq!(all(store, &Scope::Operator, &filter).len(), 10);
        let id = new[3].delivery.id;
        assert!(store.by_id(&Scope::Operator, id).unwrap().is_some());
        assert!(matches!(store.by_id(&acme, id), Err(ReadError::ScopeMismatch { .. })), "it is somebody else's");
    };
    check(&store);
    drop(store);
    let store = open(directory.path(), &clock);
    check(&store);
    assert_eq!(store.stat(), before);
}

#[test]
fn a_full_endpoint_keeps_the_old_refuses_the_new_and_harms_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    store.hold(held("acme", "wh_honest", 1)).unwrap();
    for n in 0..500 {
        let outcome = store.hold(held("acme", "wh_forged", 100 + n));
        assert_eq!(outcome.is_ok(), n < RECORDS_MAX, "{n}");
        assert!(outcome.is_ok() || outcome == Err(HoldingFull::Endpoint));
    }
    store.hold(held("acme", "wh_honest", 2)).unwrap();
    let found = everything(&store);
    let of = |name: &str| found.iter().filter(|held| held.delivery.endpoint.as_str() == name).collect::<Vec<_>>();
    assert_eq!(of("wh_honest").len(), 2);
    let kept: Vec<_> = of("wh_forged").iter().map(|held| held.delivery.id).collect();
    let first: Vec<_> = (0..RECORDS_MAX).map(|n| held("acme", "wh_forged", 100 + n).delivery.id).collect();
    assert_eq!(kept, first, "the old are kept");
    assert_eq!(store.stat().refused_endpoint, 480);
    // The budgets outlive a restart.
    drop(store);
    let store = open(directory.path(), &clock);
    assert_eq!(store.hold(held("acme", "wh_forged", 900)), Err(HoldingFull::Endpoint));
    store.hold(held("acme", "wh_honest", 3)).unwrap();
}

#[test]
fn the_node_has_a_budget_too() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    let refused = (0..1_000).find_map(|n| store.hold(held("acme", &format!("wh_{n}"), n)).err());
    assert_eq!(refused, Some(HoldingFull::Node));
    let stat = store.stat();
    assert!(stat.bytes <= stat.bytes_max && stat.bytes > stat.bytes_max - 5_000, "{stat:?}");
    assert_eq!(stat.refused_node, 1);
}

#[test]
fn what_was_dealt_with_is_gone_for_good_and_gives_its_budget_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    for n in 0..RECORDS_MAX {
        store.hold(held("acme", "wh_1", n)).unwrap();
    }
    assert!(store.hold(held("acme", "wh_1", 50)).is_err());
    let found = everything(&store);
    for held in &found[..5] {
        store.resolve(held.delivery.id, Outcome::Promoted).unwrap();
    }
    assert!(matches!(store.resolve(found[0].delivery.id, Outcome::Discarded), Err(ResolveError::NotHeld(_))));
    store.hold(held("acme", "wh_1", 51)).unwrap();
    let left: Vec<_> = everything(&store).iter().map(|held| held.delivery.id).collect();
    assert_eq!(left.len(), 16);
    drop(store);
    let store = open(directory.path(), &clock);
    assert_eq!(everything(&store).iter().map(|held| held.delivery.id).collect::<Vec<_>>(), left);
}

#[test]
fn age_lets_go_and_frees_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    for n in 0..100 {
        store.hold(held("acme", &format!("wh_{}", n % 10), n)).unwrap();
        // One batch each, so that they fill several segments.
        everything(&store);
    }
    assert_eq!(store.trim().unwrap(), 0);
    assert_eq!(everything(&store).len(), 100);
    clock.advance(Duration::from_hours(6 * 24));
    store.hold(held("acme", "wh_young", 200)).unwrap();
    everything(&store);
    clock.advance(Duration::from_hours(2 * 24));
    // As every minute: the time that passed is what the next start believes.
    store.journal.trim(0).unwrap();
    drop(store);
    // What is over age is not taken up again, and not counted.
    let store = open(directory.path(), &clock);
    let left = everything(&store);
    assert_eq!(left.iter().map(|h| h.delivery.endpoint.as_str()).collect::<Vec<_>>(), ["wh_young"]);
    let before = store.journal.segments().len();
    store.trim().unwrap();
    assert!(store.journal.segments().len() < before, "{before}");
    clock.advance(Duration::from_hours(8 * 24));
    assert_eq!(store.trim().unwrap(), 1);
    let stat = store.stat();
    assert_eq!((stat.pending + stat.quarantined, stat.bytes, stat.endpoints, stat.expired), (0, 0, 0, 1));
}

/// Many segments of held deliveries, one batch each.
fn fill(store: &HoldingStore) {
    for n in 0..100 {
        store.hold(held("acme", &format!("wh_{}", n % 10), n)).unwrap();
        everything(store);
    }
    assert!(store.journal.segments().len() > 2);
}

#[test]
fn a_start_under_a_wrong_clock_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    fill(&open(directory.path(), &clock));
    let wrong = ManualClock::at_unix_ms(EPOCH_UNIX_MS + 30 * 24 * 3_600_000);
    let store = open(directory.path(), &wrong);
    assert_eq!(store.trim().unwrap(), 0);
    assert_eq!(everything(&store).len(), 100);
    drop(store);
    assert_eq!(everything(&open(directory.path(), &clock)).len(), 100);
}

/// Until a step of the clock is believed; how many were let go of.
fn trim_until_believed(store: &HoldingStore, clock: &ManualClock) -> u64 {
    let trims = (0..=12).map(|_| {
        clock.advance(Duration::from_mins(30));
        store.trim().unwrap()
    });
    trims.sum()
}

#[test]
fn what_came_while_the_clock_was_behind_is_held_for_its_age() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS - 2_000 * 24 * 3_600_000);
    let store = open(directory.path(), &clock);
    fill(&store);
    clock.step_to_unix_ms(EPOCH_UNIX_MS);
    assert_eq!(trim_until_believed(&store, &clock), 0);
    assert_eq!(everything(&store).len(), 100);
    drop(store);
    let store = open(directory.path(), &clock);
    clock.advance(Duration::from_hours(6 * 24));
    assert_eq!(store.trim().unwrap(), 0);
    assert_eq!(everything(&store).len(), 100);
    clock.advance(Duration::from_hours(24));
    assert_eq!(store.trim().unwrap(), 100);
    assert_eq!((store.stat().bytes, store.journal.segments().len()), (0, 1));
}

#[test]
fn what_came_while_the_clock_fell_between_two_trims_is_held_for_its_age() {
    for is_stopped in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
        let mut store = open(directory.path(), &clock);
        clock.step_to_unix_ms(1_000);
        fill(&store);
        if is_stopped {
            drop(store);
            store = open(directory.path(), &clock);
            store.hold(held("acme", "wh_after", 500)).unwrap();
            everything(&store);
        }
        let count = 100 + usize::from(is_stopped);
        clock.step_to_unix_ms(EPOCH_UNIX_MS + 30_000);
        assert_eq!(trim_until_believed(&store, &clock), 0);
        assert_eq!(everything(&store).len(), count);
        drop(store);
        let store = open(directory.path(), &clock);
        clock.advance(Duration::from_hours(6 * 24));
        assert_eq!(store.trim().unwrap(), 0);
        assert_eq!(everything(&store).len(), count);
        clock.advance(Duration::from_hours(2 * 24));
        assert_eq!(store.trim().unwrap(), count as u64);
    }
}

#[test]
fn what_came_while_the_clock_was_ahead_gives_its_budget_back_with_its_segment() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    clock.step_to_unix_ms(EPOCH_UNIX_MS * 2);
    fill(&store);
    clock.step_to_unix_ms(EPOCH_UNIX_MS);
    for n in 0..60 {
        store.hold(held("acme", &format!("wh_young_{}", n % 20), 1_000 + n)).unwrap();
        let young = everything(&store).last().unwrap().delivery.id;
        store.resolve(young, Outcome::Discarded).unwrap();
    }
    assert_eq!(everything(&store).len(), 100);
    clock.advance(Duration::from_hours(8 * 24));
    store.trim().unwrap();
    let (left, stat) = (everything(&store), store.stat());
    assert!(left.len() < 40, "at most what is in a segment with what is young: {}", left.len());
    assert_eq!((stat.pending + stat.quarantined, stat.expired), (left.len() as u64, 100 - left.len() as u64));
    assert!(left.iter().all(|held| store.by_id(&Scope::Operator, held.delivery.id).unwrap().is_some()));
}

#[test]
fn what_could_not_be_read_at_the_start_is_not_taken_for_dealt_with() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let storage = FaultyStorage::new(MemoryStorage::new(), 1, Faults::default());
    let settings = HoldingSettings { storage: Arc::new(storage.clone()), ..settings(directory.path()) };
    let store = HoldingStore::open(&settings, clock).unwrap().0;
    fill(&store);
    assert!(store.front().is_some());
    storage.set_faults(Faults { read_fails: 1, ..Faults::default() });
    store.read_all();
    assert_eq!(store.front(), None, "there may be something in front of what is known");
}

#[test]
fn a_closed_store_refuses_and_counts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    store.close();
    assert!(matches!(store.hold(held("acme", "wh_1", 1)), Err(HoldingFull::Unavailable { .. })));
    let stat = store.stat();
    assert_eq!((stat.bytes, stat.pending, stat.refused_other), (0, 0, 1));
}

#[test]
fn what_is_promoted_keeps_its_id_time_and_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    let new = held("acme", "wh_1", 1);
    store.hold(new.clone()).unwrap();
    let found = everything(&store).remove(0);
    let proof = Proof {
        retention: "default".into(),
        scheme: "github".into(),
        secret: "next".into(),
        delivery_id: Some(DeliveryId { value: "d".into(), signed: true }),
        signed_at_unix_ms: None,
    };
    let promoted = found.promote(proof.clone());
    let expected =
        NewEvent { secret: proof.secret, delivery_id: proof.delivery_id, signed_at_unix_ms: None, ..new.delivery };
    assert_eq!(promoted, expected);
}

/// With nothing held, what was dealt with goes; what is held between that being found and the trim does not.
#[test]
fn a_trim_spares_what_is_held_while_it_looks() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let store = open(directory.path(), &clock);
    store.hold(held("acme", "wh_0", 0)).unwrap();
    let first = everything(&store).remove(0);
    store.resolve(first.delivery.id, Outcome::Discarded).unwrap();
    let front = store.front().unwrap();
    for n in 1..100 {
        // One batch each, so that they fill several segments.
        store.hold(held("acme", &format!("wh_{}", n % 10), n)).unwrap();
        everything(&store);
    }
    assert!(store.journal.segments().len() > 2);
    store.journal.trim_before(front).unwrap();
    assert_eq!(everything(&store).len(), 99);
    store.trim().unwrap();
    assert_eq!(everything(&store).len(), 99);
}

/// More than one slice is walked over and let go of, and nobody waits for all of it.
#[test]
fn many_are_walked_over_and_expire_in_slices() {
    const MANY: u32 = 1_300;
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
    let mut settings = settings(directory.path());
    settings.limits =
        HoldingLimits { records_per_endpoint_max: MANY, bytes_per_endpoint_max: 1 << 30, bytes_max: 1 << 30 };
    settings.segment_bytes = 1 << 20;
    let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let store = HoldingStore::open(&settings, shared).unwrap().0;
    for n in 0..MANY {
        store.hold(held("acme", "wh_1", n)).unwrap();
    }
    let found = everything(&store);
    assert_eq!(found.len(), MANY as usize);
    let ids: Vec<_> = found.iter().map(|held| held.delivery.id).collect();
    assert_eq!(ids, (0..MANY).map(|n| held("acme", "wh_1", n).delivery.id).collect::<Vec<_>>());
    let quarantined = HoldingFilter { status: Some(Status::Quarantined), ..HoldingFilter::default() };
    assert_eq!(all(&store, &Scope::Operator, &quarantined).len(), MANY as usize / 2);
    let mut walk = store.iter(&Scope::Operator, &HoldingFilter::default());
    walk.next().unwrap().unwrap();
    assert!(walk.places.len() < 600, "{} were looked at in one go", walk.places.len());
    drop(walk);
    clock.advance(Duration::from_hours(8 * 24));
    assert_eq!(store.trim().unwrap(), u64::from(MANY));
    let stat = store.stat();
    assert_eq!((stat.pending + stat.quarantined, stat.bytes, stat.expired), (0, 0, u64::from(MANY)));
}
