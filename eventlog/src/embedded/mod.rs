//! The embedded engine: events in journals of segments on the machine's own disk.
//!
//! One journal per retention class and shard, a lane. An event goes to the lane of its class and of its endpoint's
//! slot, so an endpoint's events are in one lane and in order. What is known of a lane's segments, so that reads by
//! id, endpoint and time seek and never scan, is in [`lane_index`]; how lanes are read together, in `reader`.

mod lane;
mod lane_index;
mod lane_reader;
mod layout;
mod newest;
mod pending;
mod place;
mod reader;
mod settings;
mod stored;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use domain::{Clock, EndpointId, EventId, NodeId, Slot, TenantId};

use crate::changes::{Changes, Source};
use crate::codec;
use crate::error::{AppendError, CloseError, ReadError, TrimError};
use crate::event::{NewEvent, StoredEvent};
use crate::groups::FileGroups;
use crate::index::endpoint_key;
use crate::log::{Append, ConsumerGroups, EventLog, EventReader, Filter, Scope, Start};
use crate::position::{Cursor, Lane as LaneName};
use crate::segment::{self, Entry, Journal, Near, Payload, RealStorage, Recovery, SegmentObserver, View};
use crate::stat::{DiskFault, LaneStat, Stat, Trimmed};

use lane::Lane;
use lane_index::{KIND_EVENT, LaneIndex};
use layout::{LanePlace, shard_of};
use reader::EmbeddedReader;
use stored::StoredBytes;

pub(crate) use lane::Segments;
pub(crate) use pending::Pending;
pub(crate) use place::{place_of, position_at, spot_of};
pub use settings::Settings;

/// The log on this machine's disk.
#[derive(Debug)]
pub struct EmbeddedLog {
    node: NodeId,
    clock: Arc<dyn Clock>,
    /// In the order of class, generation, shard.
    lanes: Vec<Arc<Lane>>,
    /// Where new events of a class go, by shard.
    classes: Vec<Class>,
    stored: Arc<StoredBytes>,
    groups: FileGroups,
    reserve_bytes: u64,
    read_only: bool,
}

#[derive(Debug)]
struct Class {
    name: Arc<str>,
    shards: Vec<Arc<Lane>>,
}

/// Why the log did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use the log's directory {directory}: {source}")]
    Directory { directory: String, source: io::Error },
    #[error("cannot open lane {lane} of the log: {source}")]
    Lane { lane: LaneName, source: segment::OpenError },
}

/// What was found in each lane.
pub type Recoveries = Vec<(LaneName, Recovery)>;

impl EmbeddedLog {
    /// Opens the log for appending and reading. Blocks while tails that were not sealed are read.
    pub fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<(Self, Recoveries), OpenError> {
        let directory_fault =
            |source| OpenError::Directory { directory: settings.directory.display().to_string(), source };
        let names: Vec<&str> = settings.retention.iter().map(|(name, _)| name.as_str()).collect();
        settings.storage.create_directory(&settings.directory).map_err(directory_fault)?;
        let places = layout::lanes(&settings.directory, &names, settings.shards).map_err(directory_fault)?;
        let groups = FileGroups::open(Arc::clone(&settings.storage), &settings.directory.join("groups"))
            .map_err(directory_fault)?;
        // Before the lanes are looked at: whoever writes one of these lives there.
        let interrupted = groups.temporary().map_err(directory_fault)?;
        let stored = Arc::new(StoredBytes::default());
        let mut recoveries: Recoveries = Vec::new();
        let mut lanes = Vec::new();
        for place in places {
            let name = place.lane.clone();
            let index = LaneIndex::new(Arc::clone(&settings.storage), place.directory.clone(), Arc::clone(&stored));
            let mut options = settings.journal(place.directory.clone(), place.active, Arc::clone(&clock));
            let observer: Arc<dyn SegmentObserver> = Arc::<LaneIndex>::clone(&index);
            options.observer = Some(observer);
            let (journal, recovery) =
                Journal::open(options).map_err(|source| OpenError::Lane { lane: name.clone(), source })?;
            recoveries.push((name, recovery));
            lanes.push(Lane::open(place, Segments::Journal(journal), index, &settings.retention));
        }
        if recoveries.iter().all(|(_, recovery)| recovery.live_epochs.is_empty()) {
            groups.clean(&interrupted).map_err(directory_fault)?;
        }
        let log = Self::assemble(settings, clock, lanes, stored, groups);
        Ok((log, recoveries))
    }

    /// Opens what is there for reading: beside a running process, or when none runs. Takes no lock, repairs nothing,
    /// writes nothing. What a running process has appended by now is seen to its end; its last batch may be one whose
    /// senders have no answer yet, or are told that it failed.
    pub fn open_read_only(directory: &Path, node: NodeId, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let fault = |source| OpenError::Directory { directory: directory.display().to_string(), source };
        // That it can be listed at all: an empty answer for a path that is mistyped would mislead.
        std::fs::read_dir(directory).map_err(fault)?;
        let places = layout::lanes(directory, &[], 1).map_err(fault)?;
        let storage: Arc<dyn segment::Storage> = Arc::new(RealStorage);
        let stored = Arc::new(StoredBytes::default());
        let mut lanes = Vec::new();
        for place in places {
            let name = place.lane.clone();
            let index = LaneIndex::new(Arc::clone(&storage), place.directory.clone(), Arc::clone(&stored));
            let view = View::open(Arc::clone(&storage), &place.directory, Arc::clone(&clock))
                .map_err(|source| OpenError::Lane { lane: name, source })?;
            lanes.push(Lane::open(place, Segments::View(view), index, &[]));
        }
        Ok(Self {
            node,
            clock,
            lanes,
            classes: Vec::new(),
            stored,
            groups: FileGroups::open_read_only(&directory.join("groups")),
            reserve_bytes: 0,
            read_only: true,
        })
    }

    fn assemble(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        lanes: Vec<Arc<Lane>>,
        stored: Arc<StoredBytes>,
        groups: FileGroups,
    ) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        for lane in lanes.iter().filter(|lane| lane.place.active) {
            let name = &lane.name().class;
            match classes.last_mut().filter(|class| class.name == *name) {
                Some(class) => class.shards.push(Arc::clone(lane)),
                None => classes.push(Class { name: Arc::clone(name), shards: vec![Arc::clone(lane)] }),
            }
        }
        let (node, reserve_bytes) = (settings.node, settings.reserve_bytes);
        Self { node, clock, lanes, classes, stored, groups, reserve_bytes, read_only: false }
    }

    /// Where a new event of a class goes.
    fn journal(&self, retention: &str, endpoint: &EndpointId) -> Result<(&Arc<Lane>, &Journal), AppendError> {
        let class = self
            .classes
            .iter()
            .find(|class| *class.name == *retention)
            .ok_or_else(|| AppendError::UnknownRetention { class: retention.to_owned() })?;
        let slot = Slot::of(endpoint.as_str());
        let shard = shard_of(slot, u16::try_from(class.shards.len()).unwrap_or(u16::MAX));
        let lane = &class.shards[usize::from(shard)];
        let Segments::Journal(journal) = &lane.segments else { return Err(AppendError::Closed) };
        Ok((lane, journal))
    }

    fn try_append(&self, event: NewEvent) -> Result<Append, AppendError> {
        let (lane, journal) = self.journal(&event.retention, &event.endpoint)?;
        let head = codec::encode_head(&event, self.node)
            .map_err(|fault| AppendError::TooLarge { bytes: fault.bytes as u64, bytes_max: fault.bytes_max as u64 })?;
        let append = journal.append(Entry {
            stream: endpoint_key(event.endpoint.as_str()),
            time_unix_ms: self.clock.unix_ms(),
            kind: KIND_EVENT,
            payload: Payload { head, middle: event.body, ..Payload::default() },
            check: None,
        });
        Ok(Append::journal(Pending { append, id: event.id, node: self.node, lane: Arc::clone(lane) }))
    }

    /// Looks through one lane. What is damaged is said only if the event is nowhere else.
    fn find(lane: &Lane, scope: &Scope, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        lane.refresh();
        let mut damage = None;
        for segment in lane.index.candidates(id.received_unix_ms()) {
            match lane.find_in(segment, id) {
                Ok(None) => {}
                Ok(Some(placed)) => return placed.open(scope).map(Some),
                Err(fault @ ReadError::Damaged { .. }) => damage = Some(fault),
                Err(fault) => return Err(fault),
            }
        }
        damage.map_or(Ok(None), Err)
    }
}

impl Lane {
    fn open(
        place: LanePlace,
        segments: Segments,
        index: Arc<LaneIndex>,
        retention: &[(String, std::time::Duration)],
    ) -> Arc<Self> {
        let age = retention.iter().find(|(name, _)| **name == *place.lane.class).map(|(_, age)| *age);
        let (front_is_missing, taking_up, near) = (false.into(), Mutex::default(), Near::default());
        let lane = Self { place, age, index, segments, front_is_missing, taking_up, near };
        lane.take_up_segments();
        Arc::new(lane)
    }

    fn stat(&self) -> LaneStat {
        let (records, event_bytes) = self.index.totals();
        let mut stat = LaneStat {
            class: self.name().class.to_string(),
            generation: self.name().generation,
            shard: self.name().shard,
            active: self.place.active,
            configured: self.age.is_some(),
            retention_ms: self.age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            records,
            event_bytes,
            damage: self.segments.damage().iter().map(ToString::to_string).collect(),
            ..LaneStat::default()
        };
        let infos = self.segments.segments();
        match &self.segments {
            Segments::View(view) => {
                "read-only".clone_into(&mut stat.sync);
                stat.disk_free_bytes = view.bytes_free();
                stat.disk_bytes = infos.iter().map(|info| info.file_bytes).sum();
            }
            Segments::Journal(journal) => {
                let of = journal.stat();
                stat.sync = match of.sync {
                    segment::SyncMode::Direct => "O_DIRECT|O_DSYNC".to_owned(),
                    segment::SyncMode::Fdatasync => "fdatasync".to_owned(),
                    segment::SyncMode::Auto => "auto".to_owned(),
                };
                stat.queued = of.queued_records as u64;
                stat.batches = of.batches;
                stat.failures = of.failures;
                stat.full = of.full;
                stat.unavailable = of.unavailable.map(|reason| reason.to_string());
                stat.last_fault =
                    of.last_fault.map(|fault| DiskFault { unix_ms: fault.unix_ms, reason: fault.reason.to_string() });
                stat.append_bytes_per_second = of.append_bytes_per_second;
                stat.disk_free_bytes = of.bytes_free;
                stat.disk_bytes = of.bytes_used;
            }
        }
        stat.segments = infos.len() as u64;
        stat.oldest_unix_ms = infos.iter().filter(|info| info.records > 0).map(|info| info.min_unix_ms).min();
        stat
    }
}

impl EventLog for EmbeddedLog {
    fn append(&self, event: NewEvent) -> Append {
        self.try_append(event).unwrap_or_else(|refused| Append::ready(Err(refused)))
    }

    fn refuses(&self, retention: &str, endpoint: &EndpointId) -> Option<AppendError> {
        match self.journal(retention, endpoint) {
            Ok((_, journal)) => journal.refuses().map(AppendError::from),
            Err(refused) => Some(refused),
        }
    }

    fn durable(&self) -> Cursor {
        let mut cursor = Cursor::default();
        for lane in &self.lanes {
            cursor.set(lane.name().clone(), lane.durable());
        }
        cursor
    }

    fn changes(&self) -> Changes {
        let journals = self.lanes.iter().filter_map(|lane| match &lane.segments {
            Segments::Journal(journal) => Some(Source::Journal(journal.changes())),
            Segments::View(_) => None,
        });
        Changes::of(journals)
    }

    fn reader(&self, scope: Scope, start: Start, filter: Filter) -> Result<Box<dyn EventReader>, ReadError> {
        Ok(Box::new(EmbeddedReader::new(&self.lanes, scope, &start, filter)?))
    }

    fn by_id(&self, scope: &Scope, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        let mut damage = None;
        for lane in &self.lanes {
            if shard_of(id.slot(), lane.place.shards) != lane.name().shard {
                continue;
            }
            match Self::find(lane, scope, id) {
                Ok(None) => {}
                Err(fault @ ReadError::Damaged { .. }) => damage = Some(fault),
                decided => return decided,
            }
        }
        damage.map_or(Ok(None), Err)
    }

    fn groups(&self) -> &dyn ConsumerGroups {
        &self.groups
    }

    fn trim(&self) -> Result<Trimmed, TrimError> {
        if self.read_only {
            return Err(TrimError::ReadOnly);
        }
        let mut trimmed = Trimmed::default();
        for lane in &self.lanes {
            let (Segments::Journal(journal), Some(age)) = (&lane.segments, lane.age) else { continue };
            lane.refresh();
            let before = journal.trim_unix_ms().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            journal
                .trim(before)
                .map_err(|fault| TrimError::Lane { lane: lane.name().clone(), reason: fault.to_string() })?;
            trimmed.add(lane.index.take_trimmed());
        }
        Ok(trimmed)
    }

    fn stored_bytes(&self, tenant: &TenantId) -> u64 {
        self.stored.of(tenant.as_str())
    }

    fn stat(&self) -> Stat {
        let lanes: Vec<LaneStat> = self.lanes.iter().map(|lane| lane.stat()).collect();
        let rate: f64 = lanes.iter().map(|lane| lane.append_bytes_per_second).sum();
        let disk_free_bytes = lanes.iter().map(|lane| lane.disk_free_bytes).max().unwrap_or(0);
        let reserve_bytes = self.reserve_bytes;
        let days_left = if lanes.iter().any(|lane| lane.active && lane.full) {
            Some(0.0)
        } else {
            Stat::days_left(disk_free_bytes.saturating_sub(reserve_bytes), rate)
        };
        Stat { engine: "embedded", lanes, disk_free_bytes, reserve_bytes, days_left }
    }

    fn close(&self) -> Result<(), CloseError> {
        for lane in &self.lanes {
            if let Segments::Journal(journal) = &lane.segments {
                journal.close();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
