//! The embedded engine through the conformance suite, and what only it can do wrong.

use std::path::{Path, PathBuf};

use domain::ManualClock;

use super::*;
use crate::conformance::{DEFAULT_AGE, EPOCH_UNIX_MS, NODE, SHORT_AGE, Subject, event};
use crate::index::{ActiveIndex, Row, encode};
use crate::segment::SegmentState;

/// A log in a directory of its own, with segments so small that a scenario fills several.
struct OnDisk {
    directory: tempfile::TempDir,
    shards: u16,
    sync: segment::SyncMode,
}

impl OnDisk {
    fn new(shards: u16) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), shards, sync: segment::SyncMode::Auto }
    }

    fn settings(&self) -> Settings {
        settings(self.directory.path(), self.shards, self.sync)
    }

    fn open(&self, clock: &Arc<ManualClock>) -> EmbeddedLog {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
        EmbeddedLog::open(&self.settings(), clock).unwrap().0
    }

    fn read_only(&self) -> EmbeddedLog {
        let clock = ManualClock::at_unix_ms(EPOCH_UNIX_MS);
        EmbeddedLog::open_read_only(self.directory.path(), NODE, clock).unwrap()
    }

    /// Files of all lanes that end like this.
    fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![self.directory.path().join("events")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.to_str().unwrap().ends_with(suffix) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

pub(crate) fn settings(directory: &Path, shards: u16, sync: segment::SyncMode) -> Settings {
    Settings {
        node: NODE,
        directory: directory.to_owned(),
        shards,
        retention: vec![("default".to_owned(), DEFAULT_AGE), ("short".to_owned(), SHORT_AGE)],
        segment_bytes: 64 << 10,
        sync,
        when_full: segment::WhenFull::Refuse,
        reserve_bytes: 0,
        queue_records: 16_384,
        queue_bytes: 64 << 20,
        batch_bytes_max: 32 << 10,
        storage: Arc::new(RealStorage),
    }
}

impl Subject for OnDisk {
    fn open(&mut self, clock: Arc<ManualClock>) -> Arc<dyn EventLog> {
        Arc::new(Self::open(self, &clock))
    }
}

mod one_shard {
    use super::OnDisk;
    crate::event_log_conformance!(OnDisk::new(1));
}

mod three_shards {
    use super::OnDisk;
    crate::event_log_conformance!(OnDisk::new(3));
}

mod fdatasync {
    use super::{OnDisk, segment};
    crate::event_log_conformance!(OnDisk { sync: segment::SyncMode::Fdatasync, ..OnDisk::new(2) });
}

fn clock() -> Arc<ManualClock> {
    ManualClock::at_unix_ms(EPOCH_UNIX_MS)
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn of_endpoint(name: &str) -> Filter {
    Filter::endpoint(domain::EndpointId::parse(name).unwrap())
}

fn append_all(log: &EmbeddedLog, events: &[NewEvent]) {
    // Fewer at a time than the queue takes.
    for events in events.chunks(5_000) {
        let appends: Vec<_> = events.iter().map(|event| log.append(event.clone())).collect();
        for append in appends {
            append.wait().unwrap();
        }
    }
}

fn many(from: u32, to: u32) -> Vec<NewEvent> {
    (from..to)
        .map(|n| {
            let tenant = if n % 2 == 0 { "acme" } else { "globex" };
            event(tenant, &format!("wh_{}", n % 8), EPOCH_UNIX_MS + u64::from(n), n)
        })
        .collect()
}

fn ids(log: &dyn EventLog, scope: Scope, filter: Filter) -> Vec<EventId> {
    let mut reader = log.reader(scope, Start::Earliest, filter).unwrap();
    let mut ids = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        ids.push(event.id);
    }
    ids
}

/// Everything that a tenant, an endpoint and an id lead to is what reading on leads to.
fn assert_indexes_agree(log: &EmbeddedLog, events: &[NewEvent]) {
    let mut all = ids(log, Scope::Operator, Filter::default());
    all.sort_unstable();
    let mut expected: Vec<_> = events.iter().map(|event| event.id).collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
    for which in 0..8 {
        let name = format!("wh_{which}");
        let expected: Vec<_> = events.iter().filter(|e| e.endpoint.as_str() == name).map(|e| e.id).collect();
        assert_eq!(ids(log, Scope::Operator, of_endpoint(&name)), expected);
    }
    for name in ["acme", "globex"] {
        let theirs = events.iter().filter(|e| e.tenant.as_str() == name);
        assert_eq!(ids(log, Scope::Tenant(tenant(name)), Filter::default()).len(), theirs.clone().count());
        let bytes: u64 = theirs.map(|e| (codec::encode_head(e, NODE).unwrap().len() + e.body.len()) as u64).sum();
        assert_eq!(log.stored_bytes(&tenant(name)), bytes);
    }
    for event in events.iter().step_by(17) {
        assert_eq!(log.by_id(&Scope::Operator, event.id).unwrap().map(|found| found.id), Some(event.id));
    }
}

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
    while let Some(event) = reader.next().unwrap() {
        seen.push(event.id);
    }
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
    let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let (log, _) = EmbeddedLog::open(&settings, shared).unwrap();
    assert_eq!(ids(&log, Scope::Operator, Filter::default()).len(), 50);
    let refused = log.append(short[0].clone()).wait();
    assert!(matches!(refused, Err(AppendError::UnknownRetention { .. })), "{refused:?}");
    clock.advance(DEFAULT_AGE * 2);
    assert_eq!(log.trim().unwrap().records, 0, "nobody has said how long these are kept");
    assert!(!log.stat().lanes.iter().find(|lane| lane.class == "short").unwrap().configured);
}

/// Storage that counts bytes that are read from segments.
mod counting {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::segment::storage::{FileInfo, Lock, Space, StorageFile, WriteMode};
    use crate::segment::{RealStorage, Storage};

    #[derive(Debug, Default)]
    pub(super) struct Counting {
        pub(super) segment_bytes: Arc<AtomicU64>,
        pub(super) index_bytes: Arc<AtomicU64>,
    }

    #[derive(Debug)]
    struct CountingFile(Arc<dyn StorageFile>, Arc<AtomicU64>);

    impl StorageFile for CountingFile {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read_at(offset, into)?;
            self.1.fetch_add(read as u64, Ordering::SeqCst);
            Ok(read)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
        fn set_len(&self, bytes: u64) -> io::Result<()> {
            self.0.set_len(bytes)
        }
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
    }

    impl Storage for Counting {
        fn create_directory(&self, directory: &Path) -> io::Result<()> {
            RealStorage.create_directory(directory)
        }
        fn list(&self, directory: &Path) -> io::Result<Vec<FileInfo>> {
            RealStorage.list(directory)
        }
        fn create_zeroed(&self, path: &Path, bytes: u64) -> io::Result<()> {
            RealStorage.create_zeroed(path, bytes)
        }
        fn open_write(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
            RealStorage.open_write(path, mode)
        }
        fn open_read(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
            let counter =
                if path.extension().is_some_and(|e| e == "idx") { &self.index_bytes } else { &self.segment_bytes };
            Ok(Arc::new(CountingFile(RealStorage.open_read(path, mode)?, Arc::clone(counter))))
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealStorage.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealStorage.remove(path)
        }
        fn sync_directory(&self, directory: &Path) -> io::Result<()> {
            RealStorage.sync_directory(directory)
        }
        fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
            RealStorage.read(path, bytes_max)
        }
        fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            RealStorage.put(path, bytes)
        }
        fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
            RealStorage.put_new(path, bytes)
        }
        fn lock_new(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
            RealStorage.lock_new(path)
        }
        fn is_locked(&self, path: &Path) -> io::Result<bool> {
            RealStorage.is_locked(path)
        }
        fn space(&self, directory: &Path) -> io::Result<Space> {
            RealStorage.space(directory)
        }
    }
}

/// Opening reads a summary per sealed segment and no records; finding one event reads a few pages, however much the
/// log holds.
#[test]
fn opening_and_seeking_read_little_whatever_the_log_holds() {
    use std::sync::atomic::Ordering;
    const SEGMENT: u64 = 1 << 20;
    let cost = |events: u32| {
        let on_disk = OnDisk::new(1);
        let clock = clock();
        let mut settings = on_disk.settings();
        settings.segment_bytes = SEGMENT;
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let events = many(0, events);
        {
            let (log, _) = EmbeddedLog::open(&settings, Arc::clone(&shared)).unwrap();
            append_all(&log, &events);
        }
        let counting = Arc::new(counting::Counting::default());
        settings.storage = Arc::<counting::Counting>::clone(&counting);
        let (log, _) = EmbeddedLog::open(&settings, shared).unwrap();
        let segments = log.stat().lanes.iter().map(|lane| lane.segments).sum::<u64>();
        let read = |what: &std::sync::atomic::AtomicU64| what.swap(0, Ordering::SeqCst);
        let open = read(&counting.segment_bytes) + read(&counting.index_bytes);
        let wanted = &events[events.len() / 2];
        assert!(log.by_id(&Scope::Operator, wanted.id).unwrap().is_some());
        let seek = read(&counting.segment_bytes) + read(&counting.index_bytes);
        let filter = Filter {
            from_unix_ms: Some(wanted.received_unix_ms),
            until_unix_ms: Some(wanted.received_unix_ms + 20),
            ..of_endpoint(wanted.endpoint.as_str())
        };
        assert_eq!(ids(&log, Scope::Tenant(wanted.tenant.clone()), filter).len(), 3);
        let range = read(&counting.segment_bytes) + read(&counting.index_bytes);
        (segments, open, seek, range)
    };
    let (few, open_few, seek_few, range_few) = cost(3_000);
    let (many, open_many, seek_many, range_many) = cost(30_000);
    assert!(many >= few + 10, "{few} {many}");
    let per_segment = (open_many - open_few) / (many - few);
    assert!(per_segment < SEGMENT / 16, "opening reads {per_segment} bytes a segment");
    assert!(seek_many < 2 * seek_few.max(64 << 10), "{seek_few} {seek_many}");
    assert!(range_many < 2 * range_few.max(128 << 10), "{range_few} {range_many}");
}

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
    for path in &indexes {
        std::fs::remove_file(path).unwrap();
    }
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

#[test]
fn damage_halts_every_way_of_reading_until_it_is_skipped() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let events = many(0, 1_000);
    append_all(&on_disk.open(&clock), &events);
    let segments: Vec<_> =
        on_disk.files(".seg").into_iter().filter(|p| p.to_str().unwrap().contains("default")).collect();
    let victim = &segments[2];
    let mut bytes = std::fs::read(victim).unwrap();
    for byte in &mut bytes[20_000..30_000] {
        *byte ^= 0x55;
    }
    std::fs::write(victim, bytes).unwrap();
    // The index of the segment goes too, or it would lead past the damage for what does not lie in it.
    for index in on_disk.files(".idx") {
        std::fs::remove_file(index).unwrap();
    }
    let log = on_disk.open(&clock);
    let ways = [
        (Scope::Operator, Filter::default()),
        (Scope::Tenant(tenant("acme")), Filter::default()),
        (Scope::Operator, of_endpoint("wh_1")),
    ];
    for (scope, filter) in ways {
        let mut reader = log.reader(scope.clone(), Start::Earliest, filter.clone()).unwrap();
        let (mut seen, mut halts) = (Vec::new(), 0);
        loop {
            match reader.next() {
                Ok(Some(event)) => seen.push(event.id),
                Ok(None) => break,
                Err(fault @ ReadError::Damaged { .. }) => {
                    assert_eq!(reader.next(), Err(fault), "a halted reader stays halted");
                    halts += 1;
                    assert!(reader.skip_damage());
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(halts > 0, "{scope:?} {filter:?}: damage was passed over in silence");
        let wanted = |event: &&NewEvent| {
            filter.endpoint.as_ref().is_none_or(|endpoint| *endpoint == event.endpoint)
                && (scope == Scope::Operator || scope == Scope::Tenant(event.tenant.clone()))
        };
        let all: Vec<_> = events.iter().filter(wanted).map(|event| event.id).collect();
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

/// Segments that are not there at all: in front of everything, in the middle.
#[test]
fn a_missing_segment_halts_every_way_of_reading() {
    for victim in [0, 2] {
        let on_disk = OnDisk::new(1);
        let clock = clock();
        append_all(&on_disk.open(&clock), &many(0, 1_000));
        let of_default = |path: &PathBuf| path.to_str().unwrap().contains("default");
        let segments: Vec<_> = on_disk.files(".seg").into_iter().filter(of_default).collect();
        std::fs::remove_file(&segments[victim]).unwrap();
        let log = on_disk.open(&clock);
        for (scope, filter) in [
            (Scope::Operator, Filter::default()),
            (Scope::Tenant(tenant("acme")), Filter::default()),
            (Scope::Operator, of_endpoint("wh_1")),
        ] {
            let mut reader = log.reader(scope.clone(), Start::Earliest, filter).unwrap();
            let (mut seen, mut halts) = (0, 0);
            loop {
                match reader.next() {
                    Ok(Some(_)) => seen += 1,
                    Ok(None) => break,
                    Err(ReadError::Damaged { .. }) => {
                        halts += 1;
                        assert!(reader.skip_damage());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(halts > 0 && seen > 0, "{victim} {scope:?}: {halts} halts, {seen} seen");
        }
    }
}

#[test]
fn a_reader_beside_a_running_process_sees_what_is_durable_and_changes_nothing() {
    let on_disk = OnDisk::new(2);
    let clock = clock();
    let log = on_disk.open(&clock);
    let events = many(0, 600);
    append_all(&log, &events);
    let view = on_disk.read_only();
    let seen = ids(&view, Scope::Operator, Filter::default());
    let all: Vec<_> = events.iter().map(|event| event.id).collect();
    // At most the last batch of each lane may be missing.
    assert!(seen.len() > all.len() / 2 && seen.iter().all(|id| all.contains(id)), "{}", seen.len());
    let one = view.by_id(&Scope::Tenant(tenant("acme")), events[0].id).unwrap();
    assert_eq!(one.map(|event| event.id), Some(events[0].id));
    assert!(matches!(view.append(events[0].clone()).wait(), Err(AppendError::UnknownRetention { .. })));
    assert_eq!(view.trim(), Err(TrimError::ReadOnly));
    assert!(view.groups().commit("x", &Cursor::default()).is_err());
    // The process goes on as if nothing had been.
    append_all(&log, &many(600, 700));
    drop((view, log));

    let before = snapshot(on_disk.directory.path());
    let view = on_disk.read_only();
    assert_eq!(ids(&view, Scope::Operator, Filter::default()).len(), 700);
    assert_indexes_agree(&view, &many(0, 700));
    // Places are the same ones that the process gives.
    let cursor = {
        let mut reader = view.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap();
        for _ in 0..350 {
            reader.next().unwrap();
        }
        reader.cursor()
    };
    assert!(snapshot(on_disk.directory.path()) == before, "reading changed something");
    let log = on_disk.open(&clock);
    let mut reader = log.reader(Scope::Operator, Start::At(cursor), Filter::default()).unwrap();
    let mut rest = 0;
    while reader.next().unwrap().is_some() {
        rest += 1;
    }
    assert_eq!(rest, 350);
}

/// Names and contents of everything below.
fn snapshot(directory: &Path) -> Vec<(PathBuf, blake3::Hash)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(snapshot(&path));
        } else {
            found.push((path.clone(), blake3::hash(&std::fs::read(&path).unwrap())));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn a_directory_that_is_not_there_is_no_empty_log() {
    let on_disk = OnDisk::new(1);
    let missing = on_disk.directory.path().join("nowhere");
    assert!(EmbeddedLog::open_read_only(&missing, NODE, clock()).is_err());
    assert!(ids(&on_disk.read_only(), Scope::Operator, Filter::default()).is_empty());
}

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
    let mut readers = [
        younger.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap(),
        younger.reader(Scope::Tenant(tenant("acme")), Start::Earliest, Filter::default()).unwrap(),
        younger.reader(Scope::Operator, Start::Earliest, of_endpoint("wh_3")).unwrap(),
    ];
    let mut seen = [Vec::new(), Vec::new(), Vec::new()];
    let mut read = |seen: &mut [Vec<EventId>; 3]| {
        for (reader, seen) in readers.iter_mut().zip(seen) {
            while let Some(event) = reader.next().unwrap() {
                seen.push(event.id);
            }
        }
    };
    read(&mut seen);
    drop(elder);
    read(&mut seen);
    append_all(&younger, &many(700, 750));
    read(&mut seen);
    let order: Vec<_> = [many(0, 300), many(400, 700), many(300, 400), many(700, 750)].concat();
    assert_eq!(seen[0], order.iter().map(|event| event.id).collect::<Vec<_>>());
    assert_eq!(seen[1].len(), 375);
    assert_eq!(seen[2], order.iter().filter(|e| e.endpoint.as_str() == "wh_3").map(|e| e.id).collect::<Vec<_>>());
    assert_indexes_agree(&younger, &order);
}

/// Ids from there on, and the place behind them.
fn drain(reader: &mut dyn EventReader) -> Vec<EventId> {
    std::iter::from_fn(|| reader.next().unwrap()).map(|event| event.id).collect()
}

fn ids_of(events: &[NewEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
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
    for (scope, filter) in [
        (Scope::Operator, Filter::default()),
        (Scope::Tenant(tenant("acme")), Filter::default()),
        (Scope::Operator, of_endpoint("wh_2")),
    ] {
        let wanted = |events: &[NewEvent]| {
            let of_scope = |e: &&NewEvent| scope == Scope::Operator || scope == Scope::Tenant(e.tenant.clone());
            let of_filter = |e: &&NewEvent| filter.endpoint.as_ref().is_none_or(|endpoint| *endpoint == e.endpoint);
            events.iter().filter(of_scope).filter(of_filter).map(|event| event.id).collect::<Vec<_>>()
        };
        let mut reader = younger.reader(scope.clone(), Start::Earliest, filter.clone()).unwrap();
        let mut seen = drain(&mut *reader);
        // Committed there, and opened again: at the very end of what can be seen of the elder.
        for _ in 0..2 {
            reader = younger.reader(scope.clone(), Start::At(reader.cursor()), filter.clone()).unwrap();
            seen.extend(drain(&mut *reader));
        }
        let elders = wanted(&many(0, 300));
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
    let acme: Vec<_> = order.iter().filter(|event| event.tenant.as_str() == "acme").map(|event| event.id).collect();
    assert_eq!(seen, acme);
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
    let lane = younger.lanes.iter().find(|lane| &*lane.name().class == "default").unwrap();
    // Settles the elder's epoch, and then the index believes that it has taken up what there was.
    drain(&mut *younger.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap());
    lane.index.set_taken_up(1);
    assert!(lane.index.unsettled().is_none());
    let order = [many(0, 50), many(60, 700), many(50, 60)].concat();
    let acme: Vec<_> = order.iter().filter(|event| event.tenant.as_str() == "acme").map(|event| event.id).collect();
    assert_eq!(ids(&younger, Scope::Tenant(tenant("acme")), Filter::default()), acme);
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
    assert_eq!(seen[1], ids_of(&order.into_iter().filter(|e| e.endpoint.as_str() == "wh_3").collect::<Vec<_>>()));
}

/// An index that was read while its segment was trimmed is no segment.
#[test]
fn an_index_that_comes_after_the_trim_is_let_go() {
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let log = on_disk.open(&clock);
    append_all(&log, &many(0, 600));
    let lane = log.lanes.iter().find(|lane| &*lane.name().class == "default").unwrap();
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
    let segments: Vec<_> =
        on_disk.files(".seg").into_iter().filter(|p| p.to_str().unwrap().contains("default")).collect();
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    for byte in &mut bytes[20_000..30_000] {
        *byte ^= 0x55;
    }
    std::fs::write(&segments[0], bytes).unwrap();
    for index in on_disk.files(".idx") {
        std::fs::remove_file(index).unwrap();
    }
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
    let lane = log.lanes.iter().find(|lane| &*lane.name().class == "default").unwrap();
    let Segments::Journal(journal) = &lane.segments else { unreachable!("it was opened for writing") };
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
        let (mut seen, mut passed) = (Vec::new(), 0);
        loop {
            match reader.next() {
                Ok(Some(event)) => seen.push(event.id),
                Ok(None) => break,
                Err(fault @ ReadError::NotAnEvent { .. }) => {
                    assert_eq!(reader.next(), Err(fault), "a halted reader stays halted");
                    assert!(reader.skip_damage());
                    assert!(!reader.skip_damage(), "one and no more");
                    passed += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        let of_scope = |e: &&NewEvent| scope == Scope::Operator || e.tenant.as_str() == "acme";
        assert_eq!(seen, events.iter().filter(of_scope).map(|e| e.id).collect::<Vec<_>>());
        assert_eq!(passed, 3);
    }
}

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

mod model;

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
        let mut seen = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(event)) => seen.push(event.id),
                Ok(None) => break,
                Err(ReadError::Trimmed { .. }) => {
                    halts += 1;
                    assert!(halts < 10 && reader.skip_trimmed());
                }
                Err(other) => panic!("{other}"),
            }
        }
        let left: Vec<_> = {
            let mut reader = log.reader(Scope::Operator, Start::Earliest, filter).unwrap();
            std::iter::from_fn(|| reader.next().unwrap()).map(|event| event.id).collect()
        };
        assert!(halts > 0 && !left.is_empty() && seen.ends_with(&left), "{halts} {} {}", seen.len(), left.len());
    }
}

#[test]
fn a_log_that_starts_on_a_full_disk_says_so_in_every_figure() {
    let on_disk = OnDisk::new(1);
    // More than any file system has: its reserve is reached from the first moment on.
    let settings = Settings { reserve_bytes: 1 << 60, ..on_disk.settings() };
    let (log, _) = EmbeddedLog::open(&settings, clock()).unwrap();
    assert!(matches!(log.append(many(0, 1).remove(0)).wait(), Err(AppendError::Full)));
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
