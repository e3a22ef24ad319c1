//! What an operator sees of the log.

use serde::Serialize;

/// The state of the whole log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stat {
    pub engine: &'static str,
    pub lanes: Vec<LaneStat>,
    /// How long the disk lasts at the rate of the time since the log was opened; `None` while that says nothing.
    pub days_left: Option<f64>,
}

/// One journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaneStat {
    pub class: String,
    pub generation: u32,
    pub shard: u16,
    /// New events go here; lanes of an older shard count are only read and trimmed.
    pub active: bool,
    pub retention_ms: u64,
    pub records: u64,
    /// Of records, as the tenants' limits count them.
    pub event_bytes: u64,
    pub segments: u64,
    /// On disk, with what segments set aside.
    pub disk_bytes: u64,
    /// How a commit reaches the disk.
    pub sync: String,
    pub oldest_unix_ms: Option<u64>,
    pub queued: u64,
    /// Why nothing can be committed, if that is so.
    pub unavailable: Option<String>,
    /// Places that cannot be read, by segment and offset.
    pub damage: Vec<String>,
}

/// What a trim dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Trimmed {
    pub segments: u64,
    pub records: u64,
    pub bytes: u64,
}

impl Trimmed {
    pub fn add(&mut self, other: Self) {
        self.segments += other.segments;
        self.records += other.records;
        self.bytes += other.bytes;
    }
}
