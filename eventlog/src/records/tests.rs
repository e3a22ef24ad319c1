//! The store against a plain list, and what must hold when processes die, disks fill and files go bad.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::ManualClock;
use proptest::prelude::*;

use super::*;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage};

const NOW: u64 = 1_790_000_000_000;
const DAY: Duration = Duration::from_hours(24);
const SEGMENT_BYTES: u64 = 32 << 10;

/// A record of a test: a number that names it, a time, what it can be asked by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    nth: u64,
    at: u64,
    keys: Vec<u8>,
    bytes: usize,
}

fn noise(state: &mut u64) -> u8 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 56).try_into().unwrap()
}

impl Sample {
    fn payload(&self) -> Vec<u8> {
        let mut payload = self.nth.to_le_bytes().to_vec();
        payload.push(u8::try_from(self.keys.len()).unwrap());
        payload.extend_from_slice(&self.keys);
        // What does not pack, so that sizes are what they say.
        let mut state = self.nth;
        payload.extend(std::iter::repeat_with(|| noise(&mut state)).take(self.bytes));
        payload
    }

    fn new_record(&self) -> NewRecord {
        let keys = self.keys.iter().map(|key| Key::new("k", &[*key])).collect();
        NewRecord { time_unix_ms: self.at, keys, bytes: self.payload() }
    }
}

/// Number and keys of a record that was read.
fn told(record: &Record) -> (u64, Vec<u8>) {
    let (nth, rest) = record.bytes.split_first_chunk().unwrap();
    (u64::from_le_bytes(*nth), rest[1..][..usize::from(rest[0])].to_vec())
}

struct Rig {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    settings: Settings,
}

impl Rig {
    fn new() -> Self {
        let storage = MemoryStorage::new();
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES,
            reserve_bytes: 0,
            storage: Arc::new(storage.clone()),
            ..Settings::new("/records", 30 * DAY, 1 << 30)
        };
        Self { storage, clock: ManualClock::at_unix_ms(NOW), settings }
    }

    fn open(&self) -> RecordStore {
        // A copy of the handle for each process: it dies with it.
        let settings = Settings { storage: Arc::new(self.storage.clone()), ..self.settings.clone() };
        RecordStore::open(&settings, Arc::<ManualClock>::clone(&self.clock)).unwrap().0
    }

    fn look(&self) -> RecordStore {
        let clock = Arc::<ManualClock>::clone(&self.clock);
        RecordStore::open_read_only(Path::new("/records"), Arc::new(self.storage.clone()), clock).unwrap()
    }

    /// As many records as fill so many segments: each is a block, and five blocks are between head and foot.
    fn fill(&self, store: &RecordStore, segments: u64) {
        for nth in 0..5 * segments {
            let sample = Sample { nth, at: self.clock.unix_ms(), keys: vec![1], bytes: 3500 };
            assert_eq!(store.append(vec![sample.new_record()]).wait().fault, None);
        }
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let files = self.storage.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
    }
}

use domain::Clock as _;

fn query(keys: &[u8]) -> Query {
    Query { keys: keys.iter().map(|key| Key::new("k", &[*key])).collect(), ..Query::default() }
}

/// Numbers of what matches, as whoever can read the records tells.
fn found(store: &RecordStore, query: &Query, keys: &[u8]) -> Vec<u64> {
    let all: Vec<_> = store.walk(query.clone()).map(|record| told(&record.unwrap())).collect();
    all.into_iter().filter(|(_, has)| keys.iter().all(|key| has.contains(key))).map(|(nth, _)| nth).collect()
}

fn naive(samples: &[Sample], query: &Query, keys: &[u8]) -> Vec<u64> {
    let matching = samples.iter().filter(|s| query.takes_time(s.at) && keys.iter().all(|key| s.keys.contains(key)));
    let mut found: Vec<u64> = matching.map(|sample| sample.nth).collect();
    if query.order == Order::NewestFirst {
        found.reverse();
    }
    found
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<(u16, Vec<u8>, usize)>),
    /// The process ends, in whichever way.
    Kill,
    Close,
    LoseIndexes,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let record = (0_u16..2000, prop::collection::vec(0_u8..6, 0..3), 0_usize..900);
    let step = prop_oneof![
        6 => prop::collection::vec(record, 1..20).prop_map(Step::Append),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
        1 => Just(Step::LoseIndexes),
    ];
    prop::collection::vec(step, 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_query_finds_what_a_plain_list_does(
        steps in steps(),
        asks in prop::collection::vec((prop::collection::vec(0_u8..6, 0..3), 0_u64..2000, 0_u64..2000, any::<bool>()), 8),
    ) {
        let rig = Rig::new();
        let mut store = rig.open();
        let mut samples: Vec<Sample> = Vec::new();
        for step in steps {
            match step {
                Step::Append(records) => {
                    let first = samples.len();
                    samples.extend((first as u64..).zip(records).map(|(nth, (behind, keys, bytes))| {
                        Sample { nth, at: NOW + u64::from(behind), keys, bytes }
                    }));
                    let records: Vec<_> = samples[first..].iter().map(Sample::new_record).collect();
                    let stored = store.append(records).wait();
                    prop_assert_eq!((stored.lost, stored.records), (0, (samples.len() - first) as u64));
                }
                Step::Kill => {
                    rig.storage.kill();
                    store = rig.open();
                }
                Step::Close => {
                    store.close();
                    drop(store);
                    store = rig.open();
                }
                Step::LoseIndexes => {
                    for path in rig.files("idx") {
                        rig.storage.remove(&path).unwrap();
                    }
                }
            }
        }
        let look = rig.look();
        for (keys, from, length, newest) in asks {
            let order = if newest { Order::NewestFirst } else { Order::OldestFirst };
            let between = Query {
                from_unix_ms: Some(NOW + from),
                until_unix_ms: Some(NOW + from + length),
                order,
                ..query(&keys)
            };
            for asked in [between, Query { order, ..query(&keys) }] {
                let expected = naive(&samples, &asked, &keys);
                prop_assert_eq!(found(&store, &asked, &keys), &expected[..]);
                prop_assert_eq!(found(&look, &asked, &keys), &expected[..], "without a process");
            }
        }
        prop_assert!(store.indexes().in_memory() <= 5, "indexes of the newest segments only");
    }

    #[test]
    fn a_power_cut_loses_nothing_that_was_waited_for(seed: u64, sizes in prop::collection::vec(0_usize..9000, 1..40)) {
        let rig = Rig::new();
        let store = rig.open();
        let mut samples = Vec::new();
        for (nth, bytes) in (0..).zip(sizes) {
            let sample = Sample { nth, at: NOW, keys: vec![1], bytes };
            prop_assert_eq!(store.append(vec![sample.new_record()]).wait().lost, 0);
            samples.push(sample);
        }
        rig.storage.power_cut(seed);
        let again = rig.open();
        prop_assert_eq!(found(&again, &query(&[1]), &[1]), naive(&samples, &query(&[1]), &[1]));
        prop_assert_eq!(again.stat().kept, Duration::ZERO);
        prop_assert!(!again.stat().short);
    }
}

#[test]
fn what_goes_by_age_breaks_no_promise() {
    let rig = Rig::new();
    let store = rig.open();
    rig.fill(&store, 3);
    for _ in 0..30 {
        rig.clock.advance(DAY);
        assert_eq!(store.trim().unwrap(), Trimmed::default());
    }
    rig.fill(&store, 1);
    assert_eq!(store.stat().kept, 30 * DAY);
    rig.clock.advance(DAY);
    let trimmed = store.trim().unwrap();
    assert!(trimmed.segments >= 2 && trimmed.for_bytes == 0, "{trimmed:?}");
    let stat = store.stat();
    assert!(!stat.short && stat.kept >= 30 * DAY, "{stat:?}");
    assert!(found(&store, &query(&[1]), &[1]).len() >= 5, "the young ones are there");
    // Also where nothing came for weeks before what is left.
    store.close();
    drop(store);
    let stat = rig.open().stat();
    assert!(!stat.short && stat.kept >= 30 * DAY, "{stat:?}");
}

#[test]
fn what_goes_for_bytes_is_told_until_it_would_have_gone_by_age() {
    let mut rig = Rig::new();
    rig.settings.bytes_max = 8 * SEGMENT_BYTES;
    let store = rig.open();
    rig.fill(&store, 3);
    rig.clock.advance(DAY);
    assert_eq!(store.trim().unwrap(), Trimmed::default());
    rig.fill(&store, 9);
    let trimmed = store.trim().unwrap();
    assert!(trimmed.for_bytes >= 4 && trimmed.for_bytes == trimmed.segments, "{trimmed:?}");
    let stat = store.stat();
    assert!(stat.short && stat.kept == Duration::ZERO && stat.bytes <= rig.settings.bytes_max, "{stat:?}");
    rig.clock.advance(DAY);
    assert_eq!(store.trim().unwrap(), Trimmed::default(), "it is within its bytes");
    assert_eq!(store.stat().kept, DAY);
    // A start in between knows it too, also where the process was killed.
    rig.storage.kill();
    let store = rig.open();
    assert_eq!((store.stat().short, store.stat().kept), (true, DAY));
    rig.clock.advance(29 * DAY);
    assert_eq!((store.stat().short, store.stat().kept), (false, 30 * DAY));
}

#[test]
fn a_segment_that_somebody_took_is_missed() {
    let rig = Rig::new();
    let store = rig.open();
    rig.fill(&store, 2);
    rig.clock.advance(DAY);
    rig.fill(&store, 2);
    store.close();
    drop(store);
    // As a process that was killed between dropping and writing down leaves it.
    let directory = Path::new("/records");
    let stored = Kept::read(&rig.storage, directory).unwrap();
    let before = rig.open();
    before.segments().trim_before(before.segments().sealed()[1].end_position()).unwrap();
    rig.storage.kill();
    drop(before);
    let kept::Stored::Whole(kept) = stored else { panic!("{stored:?}") };
    kept.write(&rig.storage, directory).unwrap();
    let stat = rig.open().stat();
    assert!(stat.short, "{stat:?}");
    // And where the file itself is gone.
    rig.storage.remove(&directory.join("kept.time")).unwrap();
    rig.storage.kill();
    assert!(rig.open().stat().short);
}

use super::kept::Kept;
use crate::segment::Journal;

impl RecordStore {
    fn segments(&self) -> &Journal {
        match &self.segments {
            crate::embedded::Segments::Journal(journal) => journal,
            crate::embedded::Segments::View(_) => panic!("a look"),
        }
    }
}

#[test]
fn a_full_disk_takes_the_new_and_tells_of_the_old() {
    let mut rig = Rig::new();
    rig.storage.set_capacity(Some(10 * SEGMENT_BYTES));
    rig.settings.reserve_bytes = 2 * SEGMENT_BYTES;
    let store = rig.open();
    rig.fill(&store, 20);
    let stat = store.stat();
    assert!(stat.short && stat.unavailable.is_none(), "{stat:?}");
    assert!(rig.storage.space(Path::new("/records")).unwrap().free >= SEGMENT_BYTES);
    let all = found(&store, &query(&[1]), &[1]);
    assert!(all.len() > 10 && all[0] == 99, "the newest are there: {all:?}");
    store.trim().unwrap();
    rig.storage.kill();
    assert!(rig.open().stat().short, "a start later too");
}

#[test]
fn a_disk_that_fails_loses_what_it_says_it_loses() {
    let rig = Rig::new();
    let faulty = FaultyStorage::new(rig.storage.clone(), 7, Faults::default());
    let settings = Settings { storage: Arc::new(faulty.clone()), ..rig.settings.clone() };
    let store = RecordStore::open(&settings, Arc::<ManualClock>::clone(&rig.clock)).unwrap().0;
    rig.fill(&store, 1);
    faulty.set_faults(Faults { write_fails: 1, ..Faults::default() });
    let sample = Sample { nth: 99, at: NOW, keys: vec![1], bytes: 10 };
    let stored = store.append(vec![sample.new_record(); 3]).wait();
    assert_eq!((stored.records, stored.lost), (0, 3));
    assert!(stored.fault.is_some() && store.stat().unavailable.is_some());
    faulty.set_faults(Faults::default());
    assert_eq!(found(&store, &query(&[1]), &[1]).len(), 5, "what is there is read meanwhile");
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_found() {
    let rig = Rig::new();
    let store = rig.open();
    rig.fill(&store, 3);
    store.close();
    drop(store);
    let segment = rig.files("seg").remove(0);
    // In the middle of the second chunk's records.
    assert!(rig.storage.tamper(&segment, |bytes| bytes[4096 + 4096 + 2000] ^= 1));
    for lose_index in [false, true] {
        if lose_index {
            rig.files("idx").iter().for_each(|path| rig.storage.remove(path).unwrap());
        }
        let look = rig.look();
        let (good, bad): (Vec<_>, Vec<_>) = look.walk(query(&[1])).partition(Result::is_ok);
        assert_eq!((good.len(), bad.len()), (14, 1), "index lost: {lose_index}");
        let fault = bad[0].as_ref().unwrap_err().to_string();
        assert!(fault.contains(segment.file_stem().unwrap().to_str().unwrap()), "{fault}");
        let before = Query { until_unix_ms: Some(NOW), ..query(&[1]) };
        assert_eq!(look.walk(before).flatten().count(), 0);
    }
    rig.storage.remove(&rig.files("seg")[1]).unwrap();
    let look = rig.look();
    assert!(look.walk(query(&[9])).any(|found| found.is_err()), "a segment that is missing could have had it");
}

#[test]
fn two_processes_of_an_upgrade_see_what_is_sure_of_each_other() {
    let rig = Rig::new();
    let elder = rig.open();
    rig.fill(&elder, 2);
    let younger = rig.open();
    // The last batch but one is sure.
    assert_eq!(found(&younger, &query(&[1]), &[1]).len(), 9);
    rig.fill(&younger, 1);
    rig.fill(&elder, 1);
    assert_eq!(found(&younger, &query(&[1]), &[1]).len(), 9 + 5);
    elder.trim().unwrap();
    assert_eq!(found(&elder, &query(&[1]), &[1]).len(), 15, "its own alone");
    elder.close();
    younger.trim().unwrap();
    assert_eq!(found(&younger, &query(&[1]), &[1]).len(), 20);
    assert!(!younger.stat().short);
}

#[test]
fn an_index_that_is_broken_is_made_again_and_written() {
    let rig = Rig::new();
    let store = rig.open();
    rig.fill(&store, 3);
    store.close();
    drop(store);
    let sides = rig.files("idx");
    for (nth, path) in sides.iter().enumerate() {
        // The header, a chunk's page, a posting's page.
        let at = [80 + 10, 80 + 4096 + 100, 80 + 2 * 4096 + 100][nth % 3];
        assert!(rig.storage.tamper(path, |bytes| bytes[at] ^= 1));
    }
    let before: Vec<_> = rig.storage.files();
    let store = rig.open();
    assert_eq!(found(&store, &query(&[1]), &[1]).len(), 15);
    assert_eq!(store.indexes().in_memory(), 0);
    let file = |files: &[(PathBuf, Vec<u8>)], path: &Path| files.iter().find(|(p, _)| p == path).unwrap().1.clone();
    let after = rig.storage.files();
    assert!(sides.iter().all(|path| file(&before, path) != file(&after, path)));
}
