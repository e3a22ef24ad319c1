//! From the path to a question weeks later, over storage in memory.

use std::path::Path;

use domain::ManualClock;
use eventlog::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use prometheus_client::encoding::text::encode;

use super::sample::{NOW, record};
use super::*;
use crate::control::egress::{EgressQuery, Found, records};
use crate::control::wire::Whose;

const DAY: Duration = Duration::from_hours(24);

struct Rig {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    settings: Settings,
}

impl Rig {
    fn new() -> Self {
        let storage = MemoryStorage::new();
        let settings = Settings {
            segment_bytes: 32 << 10,
            reserve_bytes: 0,
            storage: Arc::new(storage.clone()),
            ..Settings::new("/egress", 30 * DAY, 1 << 30)
        };
        Self { storage, clock: ManualClock::at_unix_ms(NOW), settings }
    }

    fn open(&self) -> EgressLog {
        self.open_on(Arc::new(self.storage.clone()))
    }

    /// On a handle of its own: it dies with its process.
    fn open_on(&self, storage: Arc<dyn Storage>) -> EgressLog {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        let settings = Settings { storage, ..self.settings.clone() };
        EgressLog::open(&settings, &Logging::default(), Sink::default(), &clock).unwrap()
    }
}

/// What is found of everybody's, and whether that is all.
fn found(log: &EgressLog) -> (Vec<Record>, bool) {
    let query = EgressQuery {
        whose: Whose::AllTenants,
        correlation: None,
        since: None,
        until: None,
        outcome: None,
        destination: None,
        limit: 10_000,
    };
    let (store, is_whole) = log.settled();
    let mut found = Vec::new();
    let mut take = |what| match what {
        Found::Record(record) => {
            found.push(*record);
            Ok::<(), ()>(())
        }
        Found::Aside(_) | Found::NothingYet => panic!("{what:?}"),
    };
    records(store, &query, &mut take).unwrap();
    (found, is_whole)
}

fn metrics(log: &EgressLog) -> String {
    let (mut registry, mut text) = (Registry::with_prefix("tidegate"), String::new());
    log.register(&mut registry);
    encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn what_was_recorded_is_found_at_once_and_after_a_kill() {
    let rig = Rig::new();
    let log = rig.open();
    assert_eq!(found(&log), (Vec::new(), true));
    let all: Vec<_> = (0..300).map(record).collect();
    all.iter().cloned().for_each(|record| log.record(record));
    let newest_first: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(found(&log), (newest_first.clone(), true));
    assert!(log.alarms().is_empty());
    let text = metrics(&log);
    for line in [
        "tidegate_egress_records_written_total 300",
        "tidegate_egress_records_dropped_total{cause=\"queue\"} 0",
        "tidegate_egress_records_dropped_total{cause=\"disk\"} 0",
        "tidegate_egress_records_kept_seconds 0",
        "tidegate_egress_records_short 0",
        "tidegate_egress_records_available 1",
    ] {
        assert!(text.lines().any(|have| have == line), "{line}\n{text}");
    }
    rig.storage.kill();
    let again = rig.open();
    assert_eq!(found(&again), (newest_first, true));
    again.record(record(1000));
    again.close();
    again.record(record(1001));
    assert_eq!(found(&again).0.len(), 301, "what waited is stored, what came later is not");
    let alarms = again.alarms();
    assert!(alarms.iter().any(|alarm| alarm.contains("1 were dropped")), "{alarms:?}");
}

#[test]
fn a_flood_of_nobody_s_calls_pushes_nothing_out_of_the_store() {
    let rig = Rig::new();
    let log = rig.open();
    let nobody_s = |nth| Record { tenant: None, outcome: "request-malformed".into(), ..record(nth) };
    (0..5_000).for_each(|nth| log.record(nobody_s(nth)));
    log.record(record(5_000));
    assert_eq!(found(&log).0.len(), 601);
    rig.clock.advance(Duration::from_secs(2));
    (0..5).for_each(|nth| log.record(nobody_s(6_000 + nth)));
    let (there, is_whole) = found(&log);
    assert_eq!((there.len(), is_whole), (603, true));
    assert!(there.iter().any(|record| record.tenant.is_some()));
    assert!(metrics(&log).contains("tidegate_egress_records_left_out_total 4403"), "{}", metrics(&log));
    assert!(log.alarms().is_empty(), "nothing is missing that anybody asks for");
}

#[test]
fn a_disk_that_fails_drops_records_and_says_so() {
    let rig = Rig::new();
    let faulty = FaultyStorage::new(rig.storage.clone(), 3, Faults::default());
    let log = rig.open_on(Arc::new(faulty.clone()));
    log.record(record(1));
    assert!(found(&log).1);
    faulty.set_faults(Faults { write_fails: 1, ..Faults::default() });
    log.record(record(2));
    log.record(record(3));
    let (there, is_whole) = found(&log);
    assert_eq!((there.len(), is_whole), (1, true), "they were dealt with");
    assert!(metrics(&log).contains("tidegate_egress_records_dropped_total{cause=\"disk\"} 2"));
    let alarms = log.alarms();
    assert!(alarms.iter().any(|alarm| alarm.contains("2 were dropped")), "{alarms:?}");
    assert!(alarms.iter().any(|alarm| alarm.contains("cannot be stored")), "{alarms:?}");
    faulty.set_faults(Faults::default());
    rig.clock.advance(DAY);
    assert!(!log.alarms().iter().any(|alarm| alarm.contains("dropped")), "a day later that is old");
}

#[test]
fn a_store_that_is_too_small_is_an_alarm() {
    let mut rig = Rig::new();
    rig.settings.bytes_max = 6 * (32 << 10);
    let log = rig.open();
    for nth in 0..2000 {
        log.record(record(nth));
        if nth % 100 == 99 {
            assert!(found(&log).1);
        }
    }
    rig.clock.advance(DAY);
    // The writer trims when a minute has passed, with what it writes next.
    log.record(record(2000));
    assert!(found(&log).1);
    log.record(record(2001));
    assert!(found(&log).1);
    let alarms = log.alarms();
    assert!(alarms[0].starts_with("egress records reach back 1 days and 0 hours only"), "{alarms:?}");
    let text = metrics(&log);
    assert!(text.contains("tidegate_egress_records_short 1") && text.contains("kept_seconds 86400"), "{text}");
    rig.clock.advance(30 * DAY);
    assert!(log.alarms().is_empty(), "{:?}", log.alarms());
}

/// Of calls as they are: no two have the same id, path, grant, sizes or times.
#[test]
fn a_record_costs_what_the_documents_say() {
    let mut rig = Rig::new();
    rig.settings.segment_bytes = 1 << 20;
    let log = rig.open();
    let mut state = 1_u64;
    let mut dice = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    let records = 20_000;
    for nth in 0..records {
        log.record(Record {
            correlation: egress::CorrelationId::new(NOW + nth * 50, domain::NodeId(1), dice().to_be_bytes()),
            ended_unix_ms: NOW + nth * 50 + dice() % 200,
            tenant: Some(domain::TenantId::parse(&format!("tenant-{}", dice() % 40)).unwrap()),
            identity: Some(format!("grant:platform/{:x}", dice()).into()),
            run: Some(format!("run_{:x}", dice()).into()),
            destination: format!("api{}.example.com:443", dice() % 30).into(),
            path: Some(format!("/v1/things/{}", dice()).into()),
            address: Some(([192, 0, 2, (dice() % 250).try_into().unwrap()], 443).into()),
            sent_bytes: dice() % 5_000,
            received_bytes: dice() % 50_000,
            times: egress::Times { total_us: dice() % 500_000, first_byte_us: dice() % 300_000, ..record(0).times },
            ..record(nth)
        });
        if nth % 128 == 127 {
            assert!(log.shared.waiting.settle(SETTLE));
        }
    }
    let (_, is_whole) = log.settled();
    let bytes = log.shared.store.stat().bytes;
    let each = bytes / records;
    println!("{each} bytes a record");
    assert!(is_whole && (100..300).contains(&each), "{each} bytes a record");
}

#[test]
fn the_store_is_where_the_file_says() {
    let mut appliance = Appliance::default();
    appliance.egress.records.directory = "/elsewhere".into();
    appliance.egress.records.bytes_max = 1 << 28;
    appliance.log.reserve_bytes = 7;
    let settings = settings(&appliance);
    assert_eq!(settings.directory, Path::new("/elsewhere"));
    assert_eq!((settings.age, settings.bytes_max, settings.segment_bytes), (30 * DAY, 1 << 28, 16 << 20));
    assert_eq!(settings.reserve_bytes, 7);
}

#[test]
fn a_directory_that_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("egress");
    std::fs::write(&file, "no directory").unwrap();
    let settings = Settings::new(&file, DAY, 1 << 30);
    let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(NOW);
    let error = EgressLog::open(&settings, &Logging::default(), Sink::default(), &clock).unwrap_err();
    assert!(error.to_string().contains(&*Path::new(&file).to_string_lossy()), "{error}");
}
