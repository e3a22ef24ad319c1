//! What an operator sees of the log.

use serde::Serialize;

/// The state of the whole log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stat {
    pub engine: &'static str,
    pub lanes: Vec<LaneStat>,
    /// Of the file system that the log is on, and how many of them are never used.
    pub disk_free_bytes: u64,
    pub reserve_bytes: u64,
    /// How long the disk's free space above the reserve lasts at the pace of the last hour; 0 while the disk is full,
    /// `None` while nothing is appended.
    pub days_left: Option<f64>,
}

/// A fault of the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskFault {
    pub unix_ms: u64,
    pub reason: String,
}

/// One journal.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LaneStat {
    pub class: String,
    pub generation: u32,
    pub shard: u16,
    /// New events go here; lanes of an older shard count are only read and trimmed.
    pub active: bool,
    /// Is the class in the settings? One that is not (any more) is read and not trimmed, and its retention here is 0.
    pub configured: bool,
    pub retention_ms: u64,
    pub records: u64,
    /// Of records, as the tenants' limits count them.
    pub event_bytes: u64,
    pub segments: u64,
    /// On disk, with trimmed files that wait for reuse; a log that is only looked at does not count those.
    pub disk_bytes: u64,
    /// How a commit reaches the disk.
    pub sync: String,
    /// When the oldest record that is left was appended, as it says itself.
    pub oldest_unix_ms: Option<u64>,
    pub queued: u64,
    /// Durable writes since the log was opened.
    pub batches: u64,
    /// Errors of the disk since the log was opened.
    pub failures: u64,
    pub append_bytes_per_second: f64,
    /// Of the file system that the lane is on.
    pub disk_free_bytes: u64,
    /// The disk's reserve is reached, and appends fail.
    pub full: bool,
    /// Why nothing can be committed, if the disk fails.
    pub unavailable: Option<String>,
    /// Why appends were refused last, since the log was opened: the disk failed, or it was full.
    pub last_fault: Option<DiskFault>,
    /// Places that cannot be read, by segment and offset.
    pub damage: Vec<String>,
}

impl LaneStat {
    /// Why nothing can be committed for the moment: a disk that fails, or one that is full.
    pub fn cannot_commit(&self) -> Option<&str> {
        self.unavailable.as_deref().or_else(|| self.full.then_some("the disk is full"))
    }
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

impl Stat {
    /// How many days `free_bytes` last at a pace.
    pub(crate) fn days_left(free_bytes: u64, bytes_per_second: f64) -> Option<f64> {
        const SECONDS_A_DAY: f64 = 86_400.0;
        #[expect(clippy::cast_precision_loss, reason = "an estimate; 53 bits are more than it is worth")]
        let seconds = free_bytes as f64 / bytes_per_second;
        (bytes_per_second > 0.0).then_some(seconds / SECONDS_A_DAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_commits_as_little_as_a_broken_one() {
        let broken = LaneStat { unavailable: Some("EIO".into()), full: true, ..LaneStat::default() };
        let full = LaneStat { full: true, ..LaneStat::default() };
        assert_eq!(broken.cannot_commit(), Some("EIO"));
        assert_eq!(full.cannot_commit(), Some("the disk is full"));
        assert_eq!(LaneStat::default().cannot_commit(), None);
    }

    #[test]
    fn days_left_follow_the_pace() {
        assert_eq!(Stat::days_left(1, 0.0), None);
        let days = Stat::days_left(864_000, 1.0).unwrap();
        assert!((days - 10.0).abs() < 1e-9, "{days}");
    }
}
