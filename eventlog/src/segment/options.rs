//! What a journal is opened with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::Clock;

use super::observer::SegmentObserver;
use super::position::BLOCK;
use super::storage::{RealStorage, Storage};

/// How a batch is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// `O_DIRECT | O_DSYNC` where the file system takes it, else `fdatasync`; `Stat` says which.
    #[default]
    Auto,
    /// `O_DIRECT | O_DSYNC`, or the journal does not open.
    Direct,
    /// A buffered write, then `fdatasync`.
    Fdatasync,
}

/// What happens when the file system has less than `reserve_bytes` left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Appends fail with `Full` until there is room again.
    #[default]
    Refuse,
    /// The oldest sealed segments are dropped; appends fail only when none is left.
    Trim,
}

/// Pauses between attempts to get a fresh segment after an error of the disk: doubled from first to max.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        // A controller reset takes about a second, an operator longer: try soon, then not more than six times a
        // minute, since each attempt writes a whole segment.
        Self { first: Duration::from_millis(100), max: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub struct Options {
    pub directory: PathBuf,
    /// Size of a segment's file: a multiple of 4 KiB, from 32 KiB to 2 GiB. Retention drops whole segments, so it
    /// is also the grain of retention.
    pub segment_bytes: u64,
    pub sync: SyncMode,
    pub when_full: WhenFull,
    /// Free bytes of the file system that are never used.
    pub reserve_bytes: u64,
    /// Most records that wait for the writer. Default 16,384: at 400,000 records/s that is 40 ms of work; whoever
    /// waits longer is better told to come back.
    pub queue_records: usize,
    /// Most payload bytes that wait for the writer. Default 128 MiB: what the queue may cost in memory, five bodies
    /// of the largest size that GitHub sends.
    pub queue_bytes: u64,
    /// Most bytes of one batch, unless one record alone is larger. Default 4 MiB: a write of that size takes about
    /// 2 ms and gains nothing per byte from being larger.
    pub batch_bytes_max: u32,
    /// Most trimmed files that are kept for reuse. Default 4: one is prepared at a time, and what is trimmed in a
    /// burst should return its space to the file system.
    pub recycle_max: usize,
    pub heal: Backoff,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    pub observer: Option<Arc<dyn SegmentObserver>>,
}

/// Why options are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    #[error("segment size {0} is not a multiple of 4096 from 32768 to 2147483648")]
    SegmentBytes(u64),
    #[error("the queue must hold at least one record and one byte")]
    Queue,
    #[error("a batch must hold at least 4096 bytes")]
    Batch,
}

impl Options {
    /// The defaults on the machine's own files.
    pub fn new(directory: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes: 64 << 20,
            sync: SyncMode::Auto,
            when_full: WhenFull::Refuse,
            reserve_bytes: 1 << 30,
            queue_records: 16_384,
            queue_bytes: 128 << 20,
            batch_bytes_max: 4 << 20,
            recycle_max: 4,
            heal: Backoff::default(),
            storage: Arc::new(RealStorage),
            clock,
            observer: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), InvalidOptions> {
        if !self.segment_bytes.is_multiple_of(BLOCK) || !(32 << 10..=2 << 30).contains(&self.segment_bytes) {
            return Err(InvalidOptions::SegmentBytes(self.segment_bytes));
        }
        if self.queue_records == 0 || self.queue_bytes == 0 {
            return Err(InvalidOptions::Queue);
        }
        if u64::from(self.batch_bytes_max) < BLOCK {
            return Err(InvalidOptions::Batch);
        }
        Ok(())
    }
}
