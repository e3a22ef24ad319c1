//! What the embedded engine is opened with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, NodeId};

use crate::segment::{self, RealStorage, Storage};

/// Smallest size of a segment: for lanes that are read and trimmed and take nothing new.
const IDLE_SEGMENT_BYTES: u64 = 32 << 10;

#[derive(Debug, Clone)]
pub struct Settings {
    pub node: NodeId,
    pub directory: PathBuf,
    pub shards: u16,
    /// Name and age of each retention class.
    pub retention: Vec<(String, Duration)>,
    pub segment_bytes: u64,
    pub sync: segment::SyncMode,
    pub when_full: segment::WhenFull,
    pub reserve_bytes: u64,
    pub queue_records: usize,
    pub queue_bytes: u64,
    pub batch_bytes_max: u32,
    pub storage: Arc<dyn Storage>,
}

impl Settings {
    /// The section `[log]` of the appliance's file.
    pub fn new(log: &config::Log, node: NodeId) -> Self {
        Self {
            node,
            directory: log.directory.clone(),
            shards: log.shards,
            retention: log.retention.iter().map(|class| (class.name.clone(), class.age)).collect(),
            segment_bytes: log.segment_bytes,
            sync: match log.sync {
                config::SyncMode::Auto => segment::SyncMode::Auto,
                config::SyncMode::Direct => segment::SyncMode::Direct,
                config::SyncMode::Fdatasync => segment::SyncMode::Fdatasync,
            },
            when_full: match log.when_full {
                config::WhenFull::Refuse => segment::WhenFull::Refuse,
                config::WhenFull::Trim => segment::WhenFull::Trim,
            },
            reserve_bytes: log.reserve_bytes,
            queue_records: usize::try_from(log.queue_records).unwrap_or(usize::MAX),
            queue_bytes: log.queue_bytes,
            batch_bytes_max: log.batch_bytes_max,
            storage: Arc::new(RealStorage),
        }
    }

    /// A journal's options; one that takes nothing new costs next to nothing.
    pub(crate) fn journal(&self, directory: PathBuf, active: bool, clock: Arc<dyn Clock>) -> segment::Options {
        let options = segment::Options::new(directory, clock);
        segment::Options {
            segment_bytes: if active { self.segment_bytes } else { IDLE_SEGMENT_BYTES },
            sync: self.sync,
            when_full: self.when_full,
            reserve_bytes: self.reserve_bytes,
            queue_records: self.queue_records,
            queue_bytes: self.queue_bytes,
            batch_bytes_max: if active { self.batch_bytes_max } else { 4096 },
            storage: Arc::clone(&self.storage),
            ..options
        }
    }
}
