//! A store of records that somebody asks for weeks later: appended without waiting, found by key and by time.
//!
//! It stands on the segment layer and knows nothing of what it keeps. A record is bytes, a time, and a few [`Key`]s: hashes
//! of what it can be asked by. Records that are appended together are one chunk, which is one record of the journal: a
//! write is at least a block of the disk, so that records of one by one would cost ten times their size.
//!
//! **What it guarantees.** A chunk whose append was waited for survives power loss, whole. Whoever does not wait loses
//! what was under way when the process was killed, and nothing before it. Retention drops segments, oldest first, when all
//! in them is over age, or when the directory is over its bytes. The newest time of anything that was dropped is written
//! down first: `Stat` says how far back everything is there, also after a restart, and says so where that is less than
//! the age that was promised.
//!
//! **Finding.** Each segment has an index in a side file: the keys of each chunk, and the times of its records. A key is
//! looked up in every segment's index, so that what is found depends on no clock: some ten small reads a segment, a
//! thousand or two for a store of 8 GiB. An index leads to chunks; which of a chunk's records is meant says whoever can
//! read them. A segment whose index is missing or broken is read whole, once, and indexed again.

mod chunk;
mod index;
mod kept;
mod side;
mod store;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::segment::{self, RealStorage, Storage};

pub use store::{Appending, RecordStore, Stored};
pub use walk::{Fault, Walk};

/// Most bytes that one record may have.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// Most keys that one record may have.
pub const KEYS_MAX: usize = 16;

/// What a record can be asked by: a hash of a kind ("tenant") and a value ("acme"). Two can collide by chance, and never
/// by intent: what a key finds is compared by whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    pub fn new(kind: &str, value: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(kind.as_bytes());
        // No kind has a zero in it, so that no two pairs are one text.
        hasher.update(&[0]);
        hasher.update(value);
        let mut key = [0; 8];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(u64::from_le_bytes(key))
    }
}

/// A record to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// What it is asked by as its time, in milliseconds since the Unix epoch. Retention goes by when it was appended.
    pub time_unix_ms: u64,
    /// At most [`KEYS_MAX`]; what is beyond is left out.
    pub keys: Vec<Key>,
    /// At most [`RECORD_BYTES_MAX`]; a longer one is refused.
    pub bytes: Vec<u8>,
}

/// A record that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub time_unix_ms: u64,
    pub bytes: Bytes,
}

/// In which order records come: that in which they were appended, or the opposite one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// What to look for. It gives out all records that match and, of the chunks that they are in, some that do not have the
/// keys: those only whoever can read them can tell. The times are exact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// A record that matches has all of them.
    pub keys: Vec<Key>,
    pub from_unix_ms: Option<u64>,
    pub until_unix_ms: Option<u64>,
    pub order: Order,
}

impl Query {
    fn takes_time(&self, unix_ms: u64) -> bool {
        self.from_unix_ms.is_none_or(|from| unix_ms >= from) && self.until_unix_ms.is_none_or(|until| unix_ms < until)
    }

    /// Can there be a wanted time between these two?
    fn meets(&self, first_unix_ms: u64, last_unix_ms: u64) -> bool {
        self.from_unix_ms.is_none_or(|from| last_unix_ms >= from)
            && self.until_unix_ms.is_none_or(|until| first_unix_ms < until)
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub directory: PathBuf,
    /// How long a record is kept; segments go whole, so that some stay a little longer.
    pub age: Duration,
    /// Most bytes of the directory. What is over it goes, however young; `Stat::short` then says so.
    pub bytes_max: u64,
    /// Bytes of a segment; see `segment::Options`.
    pub segment_bytes: u64,
    pub sync: segment::SyncMode,
    /// Free bytes of the file system that are never used: below it the oldest segments go.
    pub reserve_bytes: u64,
    pub storage: Arc<dyn Storage>,
}

/// Largest segment: what is dropped at a time, and what is read where an index is missing (a tenth of a second).
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// A store has room for so many segments at least, so that dropping one is dropping little.
const SEGMENTS_MIN: u64 = 16;

impl Settings {
    /// The defaults for a store of that age and size.
    pub fn new(directory: impl Into<PathBuf>, age: Duration, bytes_max: u64) -> Self {
        let segment_bytes = (bytes_max / SEGMENTS_MIN).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        Self {
            directory: directory.into(),
            age,
            bytes_max,
            segment_bytes: segment_bytes / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN,
            sync: segment::SyncMode::Auto,
            reserve_bytes: 1 << 30,
            storage: Arc::new(RealStorage),
        }
    }
}

/// What a store says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stat {
    /// Bytes of the directory, with what is set aside.
    pub bytes: u64,
    pub bytes_max: u64,
    pub segments: u64,
    /// The oldest chunk that is there was appended then.
    pub oldest_unix_ms: Option<u64>,
    /// How far back everything that was appended is still there.
    pub kept: Duration,
    /// Something was dropped that is younger than the age that was promised.
    pub short: bool,
    /// Why nothing can be appended for the moment, if so.
    pub unavailable: Option<Arc<str>>,
    /// Places that cannot be read.
    pub damage: Vec<String>,
}

/// What a trim dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    pub segments: u64,
    pub bytes: u64,
    /// Of the segments, those that went for want of bytes and not by age.
    pub for_bytes: u64,
}

#[cfg(test)]
mod tests;
