//! The store itself: a journal, what is known of its segments, and what retention has dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::Clock;

use super::chunk::{CHUNK_BYTES, Chunks, KIND_CHUNK};
use super::index::{Indexes, Selected};
use super::kept::{self, Kept};
use super::side::MemoryIndex;
use super::walk::Walk;
use super::{NewRecord, Query, Settings, Stat, Trimmed};
use crate::embedded::Segments;
use crate::segment::{
    Append, AppendError, Entry, Journal, Name, OpenError, Options, Payload, RecordView, Recovery, SegmentId,
    SegmentInfo, SegmentState, Storage, View, WhenFull, parse_name,
};

/// Most bytes of one durable write: what a lookup may have to read for one record.
const BATCH_BYTES_MAX: u32 = 256 << 10;
/// Chunks that wait for the writer. Whoever appends waits for them sooner or later; this is no queue to live in.
const QUEUE_CHUNKS: usize = 256;
const QUEUE_BYTES: u64 = 32 << 20;
/// Trimmed files that are kept for the next segment.
const RECYCLE_MAX: usize = 1;

/// A directory of records, open for appending and reading, or for reading alone.
#[derive(Debug)]
pub struct RecordStore {
    pub(super) segments: Segments,
    indexes: Arc<Indexes>,
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    age: Duration,
    bytes_max: u64,
    segment_bytes: u64,
    chunk_bytes: usize,
    /// Held while something is dropped, so that there is one at a time.
    kept: Mutex<Kept>,
}

/// Appends that are under way.
#[derive(Debug)]
#[must_use = "what could not be stored is told by waiting"]
pub struct Appending {
    chunks: Vec<(u64, Append)>,
    too_large: u64,
}

/// What became of records that were appended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    pub records: u64,
    /// Not stored, as far as is known; and why the last one was not.
    pub lost: u64,
    pub fault: Option<AppendError>,
}

impl Appending {
    /// Waits until all of it is durable, or is known not to be.
    pub fn wait(self) -> Stored {
        let mut stored = Stored { lost: self.too_large, ..Stored::default() };
        for (records, append) in self.chunks {
            match append.wait() {
                Ok(_) => stored.records += records,
                Err(fault) => {
                    stored.lost += records;
                    stored.fault = Some(fault);
                }
            }
        }
        stored
    }
}

impl RecordStore {
    /// Opens the directory, and makes it if need be. What an earlier process left half written is cut.
    pub fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<(Self, Recovery), OpenError> {
        let storage = Arc::clone(&settings.storage);
        let indexes = Indexes::new(Arc::clone(&storage), settings.directory.clone(), Arc::clone(&clock));
        let observer = Arc::<Indexes>::clone(&indexes);
        let options = Options::new(settings.directory.clone(), Arc::clone(&clock));
        let (journal, recovery) = Journal::open(Options {
            segment_bytes: settings.segment_bytes,
            sync: settings.sync,
            // The newest is worth more than the oldest; that something went is told.
            when_full: WhenFull::Trim,
            reserve_bytes: settings.reserve_bytes,
            queue_records: QUEUE_CHUNKS,
            queue_bytes: QUEUE_BYTES,
            batch_bytes_max: BATCH_BYTES_MAX,
            recycle_max: RECYCLE_MAX,
            storage: Arc::clone(&storage),
            observer: Some(observer),
            ..options
        })?;
        let stored =
            Kept::read(&*storage, &settings.directory).map_err(OpenError::io("how far back records are kept"))?;
        let segments = journal.segments();
        // Two of them fit a segment, whatever its size.
        let fit = usize::try_from(journal.payload_bytes_max() / 2).unwrap_or(usize::MAX);
        indexes.learn(&segments);
        let store = Self {
            segments: Segments::Journal(journal),
            indexes,
            storage,
            directory: settings.directory.clone(),
            clock,
            age: settings.age,
            bytes_max: settings.bytes_max,
            segment_bytes: settings.segment_bytes,
            chunk_bytes: CHUNK_BYTES.min(fit),
            kept: Mutex::new(found(stored, &segments)),
        };
        let mut kept = store.kept();
        // A disk that is full takes it later.
        store.write_down(&mut kept).unwrap_or_else(|error| tracing::warn!(%error, "{NOT_WRITTEN}"));
        drop(kept);
        Ok((store, recovery))
    }

    /// Looks at a directory without changing anything in it; a process that appends at the same time is no harm.
    pub fn open_read_only(
        directory: &Path,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let view = View::open(Arc::clone(&storage), directory, Arc::clone(&clock))?;
        let indexes = Indexes::new(Arc::clone(&storage), directory.to_owned(), Arc::clone(&clock));
        Ok(Self {
            segments: Segments::View(view),
            indexes,
            storage,
            directory: directory.to_owned(),
            clock,
            age: Duration::ZERO,
            bytes_max: 0,
            segment_bytes: 0,
            chunk_bytes: CHUNK_BYTES,
            kept: Mutex::new(Kept::NOTHING),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands records to the journal's writer, in this order. Never blocks.
    pub fn append(&self, records: Vec<NewRecord>) -> Appending {
        let Chunks { full, too_large } = Chunks::of(records, self.chunk_bytes);
        let now = self.clock.unix_ms();
        let append = |bytes: Vec<u8>| match &self.segments {
            Segments::Journal(journal) => journal.append(Entry {
                stream: 0,
                time_unix_ms: now,
                kind: KIND_CHUNK,
                payload: Payload::from(bytes),
                check: None,
            }),
            Segments::View(_) => Append::refused(AppendError::Closed),
        };
        let chunks = full.into_iter().map(|chunk| (chunk.records, append(chunk.bytes)));
        Appending { chunks: chunks.collect(), too_large }
    }

    /// What matches.
    pub fn walk(&self, query: Query) -> Walk<'_> {
        Walk::new(self, query)
    }

    /// Chunks of a segment that may have what is wanted; reads the segment where it has no index.
    pub(super) fn select(&self, info: &SegmentInfo, query: &Query) -> Selected {
        if let Some(selected) = self.indexes.select(info, query) {
            return selected;
        }
        let index = Arc::new(self.read_index(info));
        let selected = Selected { spots: index.select(query), faults: index.faults.clone() };
        let is_complete = matches!(info.state, SegmentState::Sealed | SegmentState::Closed);
        if is_complete {
            self.indexes.keep(*info, Arc::clone(&index));
        }
        if let Segments::Journal(journal) = &self.segments
            && is_complete
            && index.faults.is_empty()
        {
            match journal.write_side_file(info, &index.encode(info.id)) {
                Ok(()) => self.indexes.is_beside(info.id),
                Err(error) => {
                    tracing::warn!(segment = %info.id, %error, "an index was not written and stays in memory");
                }
            }
        }
        selected
    }

    fn read_index(&self, info: &SegmentInfo) -> MemoryIndex {
        let mut index = MemoryIndex::default();
        let mut cursor = self.segments.read_segment(info.id);
        loop {
            match cursor.next_record() {
                Ok(Some(record)) => index.add(&RecordView {
                    position: record.position,
                    stream: record.stream,
                    sequence: record.sequence,
                    time_unix_ms: record.time_unix_ms,
                    kind: record.kind,
                    payload: &record.payload,
                }),
                Ok(None) => return index,
                // Dropped meanwhile.
                Err(_) if !self.has(info.id) => return index,
                Err(fault) => {
                    index.fault(fault.to_string());
                    if !cursor.skip_damage() {
                        return index;
                    }
                }
            }
        }
    }

    pub(super) fn has(&self, segment: SegmentId) -> bool {
        self.segments.segments().iter().any(|info| info.id == segment)
    }

    /// Drops segments that are over age, and the oldest ones as long as the directory is over its bytes.
    pub fn trim(&self) -> io::Result<Trimmed> {
        let Segments::Journal(journal) = &self.segments else { return Ok(Trimmed::default()) };
        let mut kept = self.kept();
        self.indexes.learn(&journal.segments());
        let age_ms = u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX);
        let by_age = journal.trim(journal.trim_unix_ms().saturating_sub(age_ms))?;
        let mut trimmed = Trimmed { segments: by_age.segments, bytes: by_age.bytes, for_bytes: 0 };
        // A trimmed file that waits for the next segment is part of what the store may take.
        let room = self.bytes_max.saturating_sub(RECYCLE_MAX as u64 * self.segment_bytes);
        let mut over = self.bytes(|name| parse_name(name) != Some(Name::Free))?.saturating_sub(room);
        let mut end = None;
        for info in journal.segments() {
            if over == 0 || !matches!(info.state, SegmentState::Sealed | SegmentState::Closed) {
                break;
            }
            over = over.saturating_sub(info.file_bytes);
            kept.lost_unix_ms = kept.lost_unix_ms.max(info.max_unix_ms.min(self.clock.unix_ms()));
            end = Some(info.end_position());
        }
        if let Some(end) = end {
            // First what will be lost: a process that ends in between must not leave more promised than kept.
            self.write_down(&mut kept).unwrap_or_else(|error| tracing::warn!(%error, "{NOT_WRITTEN}"));
            let for_bytes = journal.trim_before(end)?;
            trimmed.segments += for_bytes.segments;
            trimmed.bytes += for_bytes.bytes;
            trimmed.for_bytes = for_bytes.segments;
        }
        // The journal drops segments by itself where the disk is full.
        kept.lost_unix_ms = kept.lost_unix_ms.max(self.indexes.take_lost());
        self.write_down(&mut kept)?;
        Ok(trimmed)
    }

    /// Bytes of the files of these names.
    fn bytes(&self, counts: impl Fn(&str) -> bool) -> io::Result<u64> {
        let files = self.storage.list(&self.directory)?;
        Ok(files.iter().filter(|file| counts(&file.name)).map(|file| file.bytes).sum())
    }

    /// Writes down what was lost, if that is not what is written there. Another process may have lost more.
    fn write_down(&self, kept: &mut Kept) -> io::Result<()> {
        let stored = Kept::read(&*self.storage, &self.directory)?;
        if let kept::Stored::Whole(stored) = stored {
            kept.lost_unix_ms = kept.lost_unix_ms.max(stored.lost_unix_ms);
        }
        kept.oldest = self.segments.segments().first().map_or(kept.oldest, |info| info.id);
        if stored == kept::Stored::Whole(*kept) { Ok(()) } else { kept.write(&*self.storage, &self.directory) }
    }

    pub fn stat(&self) -> Stat {
        let segments = self.segments.segments();
        let oldest = segments.iter().filter(|info| info.records > 0).map(|info| info.min_unix_ms).min();
        let (now, unavailable) = match &self.segments {
            Segments::Journal(journal) => {
                let stat = journal.stat();
                let full = stat.full.then(|| Arc::from("the disk is full"));
                (journal.trim_unix_ms(), stat.unavailable.or(full))
            }
            Segments::View(_) => (self.clock.unix_ms(), None),
        };
        let lost = self.lost_unix_ms();
        let since = if lost > 0 { lost } else { oldest.unwrap_or(now) };
        let kept = Duration::from_millis(now.saturating_sub(since));
        Stat {
            bytes: self.bytes(|_| true).unwrap_or(0),
            bytes_max: self.bytes_max,
            segments: segments.len() as u64,
            oldest_unix_ms: oldest,
            kept,
            short: lost > 0 && kept < self.age,
            unavailable,
            damage: self.segments.damage().iter().filter(|d| d.kind.loses_records()).map(ToString::to_string).collect(),
        }
    }

    /// The newest time of anything that was dropped; 0 before anything was.
    fn lost_unix_ms(&self) -> u64 {
        let mut kept = self.kept();
        kept.lost_unix_ms = kept.lost_unix_ms.max(self.indexes.take_lost());
        kept.lost_unix_ms
    }

    /// Makes durable what waits, then takes nothing more. Reading goes on.
    pub fn close(&self) {
        if let Segments::Journal(journal) = &self.segments {
            journal.close();
            let mut kept = self.kept();
            kept.lost_unix_ms = kept.lost_unix_ms.max(self.indexes.take_lost());
            self.write_down(&mut kept).unwrap_or_else(|error| tracing::warn!(%error, "{NOT_WRITTEN}"));
        }
    }

    #[cfg(test)]
    pub(super) fn indexes(&self) -> &Indexes {
        &self.indexes
    }
}

const NOT_WRITTEN: &str = "how far back records are kept could not be written down";

/// What was lost before this process: as it was written down, and where something is missing since, as much as that can
/// have been.
fn found(stored: kept::Stored, segments: &[SegmentInfo]) -> Kept {
    let oldest = segments.first();
    let id = oldest.map_or(Kept::NOTHING.oldest, |info| info.id);
    // Everything that is gone was appended before what is left.
    let before = segments.iter().find(|info| info.records > 0).map_or(0, |info| info.min_unix_ms);
    match stored {
        kept::Stored::Whole(kept) if id <= kept.oldest => kept,
        kept::Stored::Whole(kept) => Kept { lost_unix_ms: kept.lost_unix_ms.max(before), oldest: id },
        kept::Stored::Nothing => Kept { lost_unix_ms: before, oldest: id },
    }
}
