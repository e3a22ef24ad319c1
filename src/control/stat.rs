//! The state of a node and of its log, in the stable form.

use serde::{Deserialize, Serialize};

use super::time::rfc3339;

/// The state of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogStat {
    pub(crate) engine: String,
    pub(crate) lanes: Vec<LaneStat>,
    /// Of the file system that the log is on, and how many of them are never used.
    #[serde(default)]
    pub(crate) disk_free_bytes: u64,
    #[serde(default)]
    pub(crate) reserve_bytes: u64,
    /// How long the disk lasts at the present rate, 0 while it is full; absent while that is unknown.
    pub(crate) days_left: Option<f64>,
}

/// A fault of the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiskFault {
    pub(crate) at: String,
    pub(crate) reason: String,
}

/// One journal of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaneStat {
    pub(crate) class: String,
    pub(crate) generation: u32,
    pub(crate) shard: u16,
    pub(crate) active: bool,
    /// Absent for a class that is not in the settings, or no settings were read: it is read and not trimmed.
    pub(crate) retention_ms: Option<u64>,
    pub(crate) records: u64,
    pub(crate) event_bytes: u64,
    pub(crate) segments: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) sync: String,
    pub(crate) oldest_at: Option<String>,
    pub(crate) queued: u64,
    /// Why nothing can be committed, whichever way: the disk fails, or it is full.
    pub(crate) unavailable: Option<String>,
    /// Is it that the disk is full?
    #[serde(default)]
    pub(crate) full: bool,
    /// Errors of the disk since the start, a full one not counted.
    #[serde(default)]
    pub(crate) failures: u64,
    /// Why deliveries were refused last since the start, and since when they were; it may be over.
    #[serde(default)]
    pub(crate) last_fault: Option<DiskFault>,
    pub(crate) damage: Vec<String>,
}

/// The state of a node and of its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stat {
    /// What the node says about itself.
    pub(crate) node: serde_json::Value,
    /// Absent where the node takes no deliveries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<LogStat>,
}

impl From<eventlog::Stat> for LogStat {
    fn from(stat: eventlog::Stat) -> Self {
        let lanes = stat.lanes.into_iter().map(|lane| LaneStat {
            unavailable: lane.cannot_commit().map(str::to_owned),
            full: lane.full,
            failures: lane.failures,
            last_fault: lane.last_fault.map(|fault| DiskFault { at: rfc3339(fault.unix_ms), reason: fault.reason }),
            class: lane.class,
            generation: lane.generation,
            shard: lane.shard,
            active: lane.active,
            retention_ms: lane.configured.then_some(lane.retention_ms),
            records: lane.records,
            event_bytes: lane.event_bytes,
            segments: lane.segments,
            disk_bytes: lane.disk_bytes,
            sync: lane.sync,
            oldest_at: lane.oldest_unix_ms.map(rfc3339),
            queued: lane.queued,
            damage: lane.damage,
        });
        Self {
            engine: stat.engine.to_owned(),
            lanes: lanes.collect(),
            disk_free_bytes: stat.disk_free_bytes,
            reserve_bytes: stat.reserve_bytes,
            days_left: stat.days_left,
        }
    }
}
