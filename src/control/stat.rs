//! The state of a node and of its log, in the stable form.

use serde::{Deserialize, Serialize};

use super::time::rfc3339;

/// The state of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogStat {
    pub(crate) engine: String,
    pub(crate) lanes: Vec<LaneStat>,
    /// How long the disk lasts at the present rate; absent while that is unknown.
    pub(crate) days_left: Option<f64>,
}

/// One journal of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaneStat {
    pub(crate) class: String,
    pub(crate) generation: u32,
    pub(crate) shard: u16,
    pub(crate) active: bool,
    /// Absent for a class that is no longer configured: it is read and not trimmed.
    pub(crate) retention_ms: Option<u64>,
    pub(crate) records: u64,
    pub(crate) event_bytes: u64,
    pub(crate) segments: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) sync: String,
    pub(crate) oldest_at: Option<String>,
    pub(crate) queued: u64,
    pub(crate) unavailable: Option<String>,
    pub(crate) damage: Vec<String>,
}

/// The state of a node and of its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stat {
    /// What the node says about itself.
    pub(crate) node: serde_json::Value,
    pub(crate) log: LogStat,
}

impl From<eventlog::Stat> for LogStat {
    fn from(stat: eventlog::Stat) -> Self {
        let lanes = stat.lanes.into_iter().map(|lane| LaneStat {
            class: lane.class,
            generation: lane.generation,
            shard: lane.shard,
            active: lane.active,
            retention_ms: lane.retention_ms.into(),
            records: lane.records,
            event_bytes: lane.event_bytes,
            segments: lane.segments,
            disk_bytes: lane.disk_bytes,
            sync: lane.sync,
            oldest_at: lane.oldest_unix_ms.map(rfc3339),
            queued: lane.queued,
            unavailable: lane.unavailable,
            damage: lane.damage,
        });
        Self { engine: stat.engine.to_owned(), lanes: lanes.collect(), days_left: stat.days_left }
    }
}
