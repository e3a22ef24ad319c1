//! What the embedded ledger is opened with.

use std::path::PathBuf;
use std::sync::Arc;

use domain::Clock;
use eventlog::segment::{self, Backoff, RealStorage, Storage, SyncMode};

#[derive(Debug, Clone)]
pub struct Settings {
    /// Everything of the ledger is in it: `journal/`, `history/`, `index/`, and the lock of the process that has it open.
    pub directory: PathBuf,
    /// Size of a segment of the journal: the grain of retention. One that is smaller than the largest commit, 4 MiB, refuses
    /// those that do not fit.
    pub segment_bytes: u64,
    /// The same of the history, which is a fraction of the journal.
    pub history_segment_bytes: u64,
    /// Bytes of one record of the history, but for a commit that is larger: commits without payloads are packed together.
    /// Default 64 KiB: what reading one of them may have to look through.
    pub pack_bytes: usize,
    pub sync: SyncMode,
    /// Free bytes of the file system that are never used: below it commits are refused as [`Full`](crate::ledger::AppendError).
    pub reserve_bytes: u64,
    /// Most bytes of one durable write, and so what reading one record may have to read. Default 512 KiB: some three hundred
    /// commits of a step, and a write of that size takes half a millisecond.
    pub batch_bytes_max: u32,
    /// Runs that are over and are remembered in memory all the same, since late records and second admissions come soon
    /// or not at all. Default 65,536, some 80 bytes each.
    pub recent_runs_max: usize,
    /// Bytes of the newest commits that are kept in memory, for those who read what was just written. Default 32 MiB: a
    /// second of the most that a machine is asked for.
    pub recent_bytes_max: usize,
    /// Most commits that the index may be behind before it reads them from the journal instead. Default 65,536, 64 bytes
    /// each.
    pub index_queue_max: usize,
    /// Forgets the index when it opens, and makes it anew from the journals; the ids of runs past all retention stay. By
    /// removing the index's directory, those would go too.
    pub rebuilds_index: bool,
    /// Memory for what was read of the index, in bytes. Default 32 MiB.
    pub index_cache_bytes: u64,
    /// Pauses between attempts to go on after an error of the disk.
    pub heal: Backoff,
    /// Where the journals are; the index is always of the machine's own files.
    pub storage: Arc<dyn Storage>,
}

impl Settings {
    /// The defaults on the machine's own files.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes: 64 << 20,
            history_segment_bytes: 16 << 20,
            pack_bytes: 64 << 10,
            sync: SyncMode::Auto,
            reserve_bytes: 1 << 30,
            batch_bytes_max: 512 << 10,
            recent_runs_max: 65_536,
            recent_bytes_max: 32 << 20,
            index_queue_max: 65_536,
            rebuilds_index: false,
            index_cache_bytes: 32 << 20,
            heal: Backoff::default(),
            storage: Arc::new(RealStorage),
        }
    }

    pub(super) fn journal(&self, name: &str, segment_bytes: u64, clock: &Arc<dyn Clock>) -> segment::Options {
        let options = segment::Options::new(self.directory.join(name), Arc::clone(clock));
        segment::Options {
            segment_bytes,
            sync: self.sync,
            reserve_bytes: self.reserve_bytes,
            batch_bytes_max: self.batch_bytes_max,
            heal: self.heal,
            storage: Arc::clone(&self.storage),
            ..options
        }
    }
}
