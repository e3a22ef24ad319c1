//! An engine without a disk, for the tests of what stands on the log. It keeps the contract within one process:
//! what was appended outlives the `MemoryLog` for as long as its [`MemoryStore`] lives.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, EndpointId, EventId, NodeId, TenantId};
use tokio::sync::{oneshot, watch};

use crate::changes::{Changes, Source};
use crate::codec;
use crate::error::{AppendError, CloseError, GroupError, ReadError, TrimError};
use crate::event::{NewEvent, StoredEvent};
use crate::groups::{GROUPS_MAX, check_name};
use crate::log::{Append, Appended, ConsumerGroups, EventLog, EventReader, Filter, Scope, Start};
use crate::position::{Cursor, Lane, Place, Position};
use crate::scope::{Placed, selects};
use crate::stat::{LaneStat, Stat, Trimmed};

/// What would be on the disk.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Stored>>);

/// The log in memory.
#[derive(Debug)]
pub struct MemoryLog {
    store: MemoryStore,
    node: NodeId,
    epoch: u64,
    clock: Arc<dyn Clock>,
    switches: Mutex<Switches>,
}

#[derive(Debug, Default)]
struct Stored {
    lanes: Vec<MemoryLane>,
    groups: BTreeMap<String, Cursor>,
    epoch: u64,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct MemoryLane {
    lane: Lane,
    age: Duration,
    /// Offset of the first record that is left.
    base: u64,
    records: VecDeque<Record>,
    sequences: HashMap<String, u64>,
}

#[derive(Debug, Clone)]
struct Record {
    bytes: Bytes,
    tenant: TenantId,
    id: EventId,
    epoch: u64,
    sequence: u64,
    appended_unix_ms: u64,
}

/// What a test makes the log do.
#[derive(Debug, Default)]
struct Switches {
    closed: bool,
    refuse: Option<AppendError>,
    /// Acknowledgements that wait for `release_acks`.
    held: Option<Vec<Unacknowledged>>,
}

#[derive(Debug)]
struct Unacknowledged {
    waiter: oneshot::Sender<Result<Appended, AppendError>>,
    appended: Appended,
}

impl MemoryLog {
    /// A log with one retention class, `default`, of 30 days.
    pub fn new(node: NodeId, clock: Arc<dyn Clock>) -> Self {
        const DEFAULT_AGE: Duration = Duration::from_hours(30 * 24);
        Self::open(&MemoryStore::default(), node, clock, &[("default", DEFAULT_AGE)])
    }

    /// Opens what a store holds, under a new writer epoch.
    pub fn open(store: &MemoryStore, node: NodeId, clock: Arc<dyn Clock>, classes: &[(&str, Duration)]) -> Self {
        let mut stored = store.lock();
        stored.epoch += 1;
        for (class, age) in classes {
            if let Some(lane) = stored.lanes.iter_mut().find(|lane| &*lane.lane.class == *class) {
                lane.age = *age;
                lane.sequences.clear();
            } else {
                stored.lanes.push(MemoryLane {
                    lane: Lane { class: (*class).into(), generation: 1, shard: 0 },
                    age: *age,
                    base: 0,
                    records: VecDeque::new(),
                    sequences: HashMap::new(),
                });
            }
        }
        let epoch = stored.epoch;
        drop(stored);
        Self { store: store.clone(), node, epoch, clock, switches: Mutex::default() }
    }

    /// From now on every append is refused with this, or none is.
    pub fn refuse_with(&self, fault: Option<AppendError>) {
        self.switches().refuse = fault;
    }

    /// From now on events are stored and not acknowledged, as on a disk that hangs.
    pub fn hold_acks(&self) {
        self.switches().held.get_or_insert_with(Vec::new);
    }

    /// Acknowledges what waits, and everything from now on.
    pub fn release_acks(&self) {
        for held in self.switches().held.take().unwrap_or_default() {
            // Whoever appended may have stopped waiting.
            held.waiter.send(Ok(held.appended)).ok();
        }
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In each lane the place with that many of what is selected behind it.
    fn newest(&self, scope: &Scope, filter: &Filter, count: usize) -> Cursor {
        let mut cursor = if count == 0 { self.durable() } else { Cursor::default() };
        for lane in &self.store.lock().lanes {
            let is_selected = |(record, offset): &(&Record, u64)| {
                let placed = lane.placed(*offset, record);
                placed.view().is_ok_and(|event| selects(scope, filter, record.tenant.as_str(), &event))
            };
            let mut newest = lane.records.iter().rev().zip((lane.base..lane.end()).rev()).filter(is_selected);
            if let Some((record, offset)) = count.checked_sub(1).and_then(|others| newest.nth(others)) {
                cursor.set(lane.lane.clone(), Place { epoch: record.epoch, offset });
            }
        }
        cursor
    }

    fn commit(&self, event: &NewEvent) -> Result<Appended, AppendError> {
        let mut bytes = codec::encode_head(event, self.node)
            .map_err(|e| AppendError::TooLarge { bytes: e.bytes as u64, bytes_max: e.bytes_max as u64 })?;
        bytes.extend_from_slice(&event.body);
        let mut stored = self.store.lock();
        let lane = stored
            .lanes
            .iter_mut()
            .find(|lane| lane.lane.class == event.retention)
            .ok_or_else(|| AppendError::UnknownRetention { class: event.retention.to_string() })?;
        let last = lane.sequences.entry(event.endpoint.to_string()).or_insert(0);
        *last += 1;
        let sequence = *last;
        let place = Place { epoch: self.epoch, offset: lane.end() };
        lane.records.push_back(Record {
            bytes: bytes.into(),
            tenant: event.tenant.clone(),
            id: event.id,
            epoch: self.epoch,
            sequence,
            appended_unix_ms: self.clock.unix_ms(),
        });
        let position = Position { lane: lane.lane.clone(), place };
        stored.changes.send_modify(|count| *count += 1);
        Ok(Appended { id: event.id, position, node: self.node, epoch: self.epoch, sequence })
    }
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLane {
    fn end(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    fn record(&self, offset: u64) -> Option<&Record> {
        self.records.get(usize::try_from(offset.checked_sub(self.base)?).ok()?)
    }

    fn placed(&self, offset: u64, record: &Record) -> Placed {
        Placed {
            bytes: record.bytes.clone(),
            position: Position { lane: self.lane.clone(), place: Place { epoch: record.epoch, offset } },
            appended_unix_ms: record.appended_unix_ms,
            sequence: record.sequence,
        }
    }
}

impl EventLog for MemoryLog {
    fn append(&self, event: NewEvent) -> Append {
        let mut switches = self.switches();
        if switches.closed {
            return Append::ready(Err(AppendError::Closed));
        }
        if let Some(fault) = &switches.refuse {
            return Append::ready(Err(fault.clone()));
        }
        match (self.commit(&event), &mut switches.held) {
            (Ok(appended), Some(held)) => {
                let (waiter, receiver) = oneshot::channel();
                held.push(Unacknowledged { waiter, appended });
                Append::waiting(receiver)
            }
            (outcome, _) => Append::ready(outcome),
        }
    }

    fn refuses(&self, _retention: &str, _endpoint: &EndpointId) -> Option<AppendError> {
        let switches = self.switches();
        if switches.closed { Some(AppendError::Closed) } else { switches.refuse.clone() }
    }

    fn durable(&self) -> Cursor {
        let mut cursor = Cursor::default();
        for lane in &self.store.lock().lanes {
            cursor.set(lane.lane.clone(), Place { epoch: self.epoch, offset: lane.end() });
        }
        cursor
    }

    fn changes(&self) -> Changes {
        Changes::of([Source::Count(self.store.lock().changes.subscribe())])
    }

    fn reader(&self, scope: Scope, start: Start, filter: Filter) -> Result<Box<dyn EventReader>, ReadError> {
        let cursor = match start {
            Start::Earliest => Cursor::default(),
            Start::Newest(count) => self.newest(&scope, &filter, count),
            Start::Latest => self.durable(),
            Start::At(cursor) => cursor,
        };
        for lane in &self.store.lock().lanes {
            let Some(place) = cursor.place(&lane.lane) else { continue };
            let position = |place| Position { lane: lane.lane.clone(), place };
            if place.offset > lane.end() {
                return Err(ReadError::NoSuchPlace { position: position(place) });
            }
            if place.offset < lane.base {
                let earliest = Place { epoch: lane.records.front().map_or(self.epoch, |r| r.epoch), offset: lane.base };
                return Err(ReadError::Trimmed { position: position(place), earliest: position(earliest) });
            }
        }
        Ok(Box::new(MemoryReader { store: self.store.clone(), scope, filter, cursor, halted: None }))
    }

    fn by_id(&self, scope: &Scope, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        let stored = self.store.lock();
        for lane in &stored.lanes {
            if let Some((record, offset)) = lane.records.iter().zip(lane.base..).find(|(record, _)| record.id == id) {
                return lane.placed(offset, record).open(scope).map(Some);
            }
        }
        Ok(None)
    }

    fn groups(&self) -> &dyn ConsumerGroups {
        &self.store
    }

    fn trim(&self) -> Result<Trimmed, TrimError> {
        let mut trimmed = Trimmed::default();
        let now = self.clock.unix_ms();
        for lane in &mut self.store.lock().lanes {
            let before = now.saturating_sub(u64::try_from(lane.age.as_millis()).unwrap_or(u64::MAX));
            while let Some(record) = lane.records.pop_front_if(|record| record.appended_unix_ms < before) {
                lane.base += 1;
                trimmed.add(Trimmed { segments: 1, records: 1, bytes: record.bytes.len() as u64 });
            }
        }
        Ok(trimmed)
    }

    fn stored_bytes(&self, tenant: &TenantId) -> u64 {
        let stored = self.store.lock();
        let records = stored.lanes.iter().flat_map(|lane| &lane.records);
        records.filter(|record| record.tenant == *tenant).map(|record| record.bytes.len() as u64).sum()
    }

    fn stat(&self) -> Stat {
        let stored = self.store.lock();
        let lanes = stored.lanes.iter().map(|lane| {
            let bytes = lane.records.iter().map(|record| record.bytes.len() as u64).sum();
            LaneStat {
                class: lane.lane.class.to_string(),
                generation: lane.lane.generation,
                shard: lane.lane.shard,
                active: true,
                configured: true,
                retention_ms: u64::try_from(lane.age.as_millis()).unwrap_or(u64::MAX),
                records: lane.records.len() as u64,
                event_bytes: bytes,
                segments: u64::from(!lane.records.is_empty()),
                sync: "memory".to_owned(),
                oldest_unix_ms: lane.records.front().map(|record| record.appended_unix_ms),
                ..LaneStat::default()
            }
        });
        Stat { engine: "memory", lanes: lanes.collect(), disk_free_bytes: 0, reserve_bytes: 0, days_left: None }
    }

    fn close(&self) -> Result<(), CloseError> {
        self.switches().closed = true;
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryReader {
    store: MemoryStore,
    scope: Scope,
    filter: Filter,
    cursor: Cursor,
    halted: Option<ReadError>,
}

impl MemoryReader {
    /// The next record of all lanes, by append time; passes over what is not selected.
    fn step(&mut self) -> Result<Option<StoredEvent>, ReadError> {
        let stored = self.store.lock();
        loop {
            let mut heads: Vec<_> = Vec::new();
            for lane in &stored.lanes {
                let offset = self.cursor.place(&lane.lane).map_or(lane.base, |place| place.offset);
                if let Some(record) = lane.record(offset) {
                    heads.push((record.appended_unix_ms, lane, offset, record));
                } else if offset < lane.base {
                    let position = |offset, epoch| Position { lane: lane.lane.clone(), place: Place { epoch, offset } };
                    let epoch = lane.records.front().map_or(0, |record| record.epoch);
                    return Err(ReadError::Trimmed {
                        position: position(offset, self.cursor.place(&lane.lane).map_or(0, |place| place.epoch)),
                        earliest: position(lane.base, epoch),
                    });
                }
            }
            let Some((_, lane, offset, record)) = heads.into_iter().min_by_key(|(time, ..)| *time) else {
                return Ok(None);
            };
            let placed = lane.placed(offset, record);
            let selected = selects(&self.scope, &self.filter, record.tenant.as_str(), &placed.view()?);
            let event = if selected { Some(placed.open(&self.scope)?) } else { None };
            self.cursor.advance(&lane.lane, Place { epoch: record.epoch, offset: offset + 1 });
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

impl EventReader for MemoryReader {
    fn next(&mut self) -> Result<Option<StoredEvent>, ReadError> {
        if let Some(fault) = &self.halted {
            return Err(fault.clone());
        }
        self.step().inspect_err(|fault| self.halted = Some(fault.clone()))
    }

    fn skip_trimmed(&mut self) -> bool {
        let Some(ReadError::Trimmed { earliest, .. }) = &self.halted else { return false };
        self.cursor.set(earliest.lane.clone(), earliest.place);
        self.halted = None;
        true
    }

    fn cursor(&self) -> Cursor {
        self.cursor.clone()
    }
}

impl ConsumerGroups for MemoryStore {
    fn commit(&self, group: &str, cursor: &Cursor) -> Result<(), GroupError> {
        check_name(group)?;
        let groups = &mut self.lock().groups;
        if groups.len() >= GROUPS_MAX && !groups.contains_key(group) {
            return Err(GroupError::TooMany { max: GROUPS_MAX });
        }
        groups.insert(group.to_owned(), cursor.clone());
        Ok(())
    }

    fn cursor(&self, group: &str) -> Result<Option<Cursor>, GroupError> {
        check_name(group)?;
        Ok(self.lock().groups.get(group).cloned())
    }

    fn list(&self) -> Result<Vec<String>, GroupError> {
        Ok(self.lock().groups.keys().cloned().collect())
    }

    fn remove(&self, group: &str) -> Result<bool, GroupError> {
        check_name(group)?;
        Ok(self.lock().groups.remove(group).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{DEFAULT_AGE, NODE, SHORT_AGE, Subject, event};
    use domain::ManualClock;

    impl Subject for MemoryStore {
        fn open(&mut self, clock: Arc<ManualClock>) -> Arc<dyn EventLog> {
            Arc::new(MemoryLog::open(self, NODE, clock, &[("default", DEFAULT_AGE), ("short", SHORT_AGE)]))
        }
    }

    crate::event_log_conformance!(MemoryStore::default());

    #[test]
    fn a_test_can_refuse_and_hold_acknowledgements() {
        let log = MemoryLog::new(NODE, ManualClock::at_unix_ms(1));
        log.refuse_with(Some(AppendError::Full));
        assert_eq!(log.append(event("acme", "wh_1", 1, 1)).wait(), Err(AppendError::Full));
        log.refuse_with(None);
        log.hold_acks();
        let mut held = std::pin::pin!(log.append(event("acme", "wh_1", 1, 2)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(held.as_mut().poll(&mut context).is_pending());
        log.release_acks();
        assert!(held.as_mut().poll(&mut context).is_ready());
    }
}
