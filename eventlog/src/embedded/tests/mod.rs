//! The embedded engine through the conformance suite, what only it can do wrong, and the rig for both.

use std::path::{Path, PathBuf};

use domain::ManualClock;

use super::*;
use crate::conformance::{DEFAULT_AGE, EPOCH_UNIX_MS, NODE, SHORT_AGE, Subject, event};
use crate::segment::SegmentState;

mod beside;
mod cost;
mod damage;
mod figures;
mod indexes;
mod model;
mod reopening;
mod retention;
mod upgrade;

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
        open_with(&self.settings(), clock)
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

    /// Segments of the class `default`.
    fn segments_of_default(&self) -> Vec<PathBuf> {
        let mut segments = self.files(".seg");
        segments.retain(|path| path.to_str().unwrap().contains("default"));
        segments
    }

    /// Without its index a segment tells only by its batches what it holds: an index would lead past what is damaged.
    fn lose_indexes(&self) {
        for index in self.files(".idx") {
            std::fs::remove_file(index).unwrap();
        }
    }
}

fn open_with(settings: &Settings, clock: &Arc<ManualClock>) -> EmbeddedLog {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    EmbeddedLog::open(settings, clock).unwrap().0
}

fn settings(directory: &Path, shards: u16, sync: segment::SyncMode) -> Settings {
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
    Filter::endpoint(EndpointId::parse(name).unwrap())
}

/// The three ways to the events: reading on, by tenant, by endpoint.
fn ways(endpoint: &str) -> [(Scope, Filter); 3] {
    [
        (Scope::Operator, Filter::default()),
        (Scope::Tenant(tenant("acme")), Filter::default()),
        (Scope::Operator, of_endpoint(endpoint)),
    ]
}

/// What one of these ways leads to.
fn wanted(events: &[NewEvent], scope: &Scope, filter: &Filter) -> Vec<EventId> {
    let of_scope = |e: &&NewEvent| *scope == Scope::Operator || *scope == Scope::Tenant(e.tenant.clone());
    let of_filter = |e: &&NewEvent| filter.endpoint.as_ref().is_none_or(|endpoint| *endpoint == e.endpoint);
    events.iter().filter(of_scope).filter(of_filter).map(|event| event.id).collect()
}

fn default_lane(log: &EmbeddedLog) -> &Lane {
    log.lanes.iter().find(|lane| &*lane.name().class == "default").unwrap()
}

/// Flips bits in the middle of a segment, over several batches.
fn damage_batches(segment: &Path) {
    let mut bytes = std::fs::read(segment).unwrap();
    for byte in &mut bytes[20_000..30_000] {
        *byte ^= 0x55;
    }
    std::fs::write(segment, bytes).unwrap();
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
    drain(&mut *log.reader(scope, Start::Earliest, filter).unwrap())
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

/// Ids from there on, and the place behind them.
fn drain(reader: &mut dyn EventReader) -> Vec<EventId> {
    read_past(reader, |_, fault| panic!("{fault}"))
}

/// Reads to the end. What halts the reader is handed over, to be passed.
fn read_past(reader: &mut dyn EventReader, mut pass: impl FnMut(&mut dyn EventReader, ReadError)) -> Vec<EventId> {
    let mut seen = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(event)) => seen.push(event.id),
            Ok(None) => return seen,
            Err(fault) => pass(reader, fault),
        }
    }
}

fn ids_of(events: &[NewEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}
