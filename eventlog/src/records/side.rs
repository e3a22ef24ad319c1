//! The index of a segment: which chunks have which keys, and the times of each. In memory while the segment grows, in a
//! side file once it takes no more. All integers are little-endian; `docs/eventlog-format.md` has the table.
//!
//! ```text
//! header       48 bytes: magic, version, epoch, segment, chunks, postings, first time, last time, CRC-32C, 0
//! zeros        up to the next multiple of 4,096
//! chunks       pages of: spot u32, first time u64, last time u64; in the order of the log
//! postings     pages of: key u64, chunk u32; sorted
//! ```
//!
//! It costs 12 bytes a key of a chunk, 16 in memory: with one key of its own per record, and a hundred records a chunk,
//! some 14 bytes a record.

use super::Query;
use super::chunk::{Chunk, KIND_CHUNK, u32_at, u64_at};
use crate::embedded::spot_of;
use crate::index::pages::{self, PAGE, Table, TableReader};
use crate::index::{SideFault, Source};
use crate::segment::{RecordView, SegmentId};

const MAGIC: [u8; 4] = *b"TGRI";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 48;
const CHUNK_BYTES: usize = 20;
const POSTING_BYTES: usize = 12;

/// What an index knows of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    spot: u32,
    first_unix_ms: u64,
    last_unix_ms: u64,
}

/// An index in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryIndex {
    rows: Vec<Row>,
    /// Key and number of a chunk, in the order of the chunks.
    postings: Vec<(u64, u32)>,
    /// What of the segment is not in the index, for people.
    pub(super) faults: Vec<String>,
}

/// More places are not named: somebody looks into these first.
const FAULTS_MAX: usize = 20;

impl MemoryIndex {
    /// Adds a record of the journal that lies behind all that were added before.
    pub(super) fn add(&mut self, record: &RecordView<'_>) {
        let chunk = if record.kind == KIND_CHUNK { Chunk::read(record.payload).ok() } else { None };
        let Some(chunk) = chunk else {
            self.fault(format!("the record at {} is not a chunk of records", record.position));
            return;
        };
        let nth = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(Row {
            spot: spot_of(record.position),
            first_unix_ms: chunk.first_unix_ms,
            last_unix_ms: chunk.last_unix_ms,
        });
        self.postings.extend(chunk.keys().map(|key| (key, nth)));
    }

    pub(super) fn fault(&mut self, text: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(text);
        }
    }

    /// Places of the chunks that may have what is wanted, in the order of the log.
    pub(super) fn select(&self, query: &Query) -> Vec<u32> {
        let of_time = |row: &&Row| query.meets(row.first_unix_ms, row.last_unix_ms);
        if query.keys.is_empty() {
            return self.rows.iter().filter(of_time).map(|row| row.spot).collect();
        }
        let mut spots = Vec::new();
        // Postings of one chunk stand together, each key once.
        for chunk in self.postings.chunk_by(|a, b| a.1 == b.1) {
            let has = |key: u64| chunk.iter().any(|posting| posting.0 == key);
            if query.keys.iter().all(|key| has(key.0)) {
                spots.extend(self.rows.get(chunk[0].1 as usize).filter(of_time).map(|row| row.spot));
            }
        }
        spots
    }

    fn times(&self) -> (u64, u64) {
        let first = self.rows.iter().map(|row| row.first_unix_ms).min();
        let last = self.rows.iter().map(|row| row.last_unix_ms).max();
        (first.unwrap_or(0), last.unwrap_or(0))
    }

    /// The bytes of the segment's side file.
    pub(super) fn encode(&self, segment: SegmentId) -> Vec<u8> {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (first, last) = self.times();
        let mut file = Vec::new();
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&[VERSION, 0, 0, 0]);
        file.extend_from_slice(&segment.epoch.to_le_bytes());
        file.extend_from_slice(&segment.sequence.to_le_bytes());
        file.extend_from_slice(&count(self.rows.len()).to_le_bytes());
        file.extend_from_slice(&count(self.postings.len()).to_le_bytes());
        file.extend_from_slice(&first.to_le_bytes());
        file.extend_from_slice(&last.to_le_bytes());
        let sum = crc32c::crc32c(&file);
        file.extend_from_slice(&sum.to_le_bytes());
        file.resize(PAGE, 0);
        let mut entries = Vec::with_capacity(self.rows.len() * CHUNK_BYTES);
        for row in &self.rows {
            entries.extend_from_slice(&row.spot.to_le_bytes());
            entries.extend_from_slice(&row.first_unix_ms.to_le_bytes());
            entries.extend_from_slice(&row.last_unix_ms.to_le_bytes());
        }
        pages::write(&mut file, CHUNK_BYTES, entries.chunks_exact(CHUNK_BYTES));
        let mut postings = self.postings.clone();
        postings.sort_unstable();
        let mut entries = Vec::with_capacity(postings.len() * POSTING_BYTES);
        for (key, nth) in postings {
            entries.extend_from_slice(&key.to_le_bytes());
            entries.extend_from_slice(&nth.to_le_bytes());
        }
        pages::write(&mut file, POSTING_BYTES, entries.chunks_exact(POSTING_BYTES));
        file
    }
}

/// An index in a side file: where its tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SideIndex {
    first_unix_ms: u64,
    last_unix_ms: u64,
    chunks: Table,
    postings: Table,
}

impl SideIndex {
    /// Reads and checks the header; the tables are checked page by page when they are used.
    pub(super) fn open(source: &dyn Source, segment: SegmentId) -> Result<Self, SideFault> {
        let mut header = [0; HEADER_BYTES];
        if source.len()? < PAGE as u64 {
            return Err(SideFault::Damaged("it is shorter than its header"));
        }
        source.read_exact_at(0, &mut header)?;
        if header[..8] != [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, 0, 0, 0] {
            return Err(SideFault::Damaged("it is no index of this version"));
        }
        if u32_at(&header, 44) != crc32c::crc32c(&header[..44]) {
            return Err(SideFault::Damaged("the header's checksum is wrong"));
        }
        if (u64_at(&header, 8), u32_at(&header, 16)) != (segment.epoch, segment.sequence) {
            return Err(SideFault::Damaged("it is another segment's"));
        }
        let chunks = Table { offset: PAGE as u64, entries: u32_at(&header, 20), entry_bytes: CHUNK_BYTES };
        let behind = |table: Table| table.offset + pages::pages(table.entries, table.entry_bytes) * PAGE as u64;
        let postings = Table { offset: behind(chunks), entries: u32_at(&header, 24), entry_bytes: POSTING_BYTES };
        if behind(postings) != source.len()? {
            return Err(SideFault::Damaged("it has another length than it says"));
        }
        Ok(Self { first_unix_ms: u64_at(&header, 28), last_unix_ms: u64_at(&header, 36), chunks, postings })
    }

    /// Has the segment nothing of the wanted time? Known without a read.
    pub(super) fn misses(&self, query: &Query) -> bool {
        self.chunks.entries == 0 || !query.meets(self.first_unix_ms, self.last_unix_ms)
    }

    /// Places of the chunks that may have what is wanted, in the order of the log.
    pub(super) fn select(&self, source: &dyn Source, query: &Query) -> Result<Vec<u32>, SideFault> {
        let mut chunks = TableReader::new(source, self.chunks);
        let mut spots = Vec::new();
        let mut take = |nth: u32| -> Result<(), SideFault> {
            let entry = chunks.entry(nth)?;
            if query.meets(u64_at(entry, 4), u64_at(entry, 12)) {
                spots.push(u32_at(entry, 0));
            }
            Ok(())
        };
        let mut keys = query.keys.iter();
        let Some(first) = keys.next() else {
            (0..self.chunks.entries).try_for_each(&mut take)?;
            return Ok(spots);
        };
        let mut postings = TableReader::new(source, self.postings);
        let mut found = of_key(&mut postings, first.0)?;
        for key in keys {
            // Both are sorted: a chunk has a key once.
            let others = of_key(&mut postings, key.0)?;
            found.retain(|nth| others.binary_search(nth).is_ok());
        }
        found.into_iter().try_for_each(&mut take)?;
        Ok(spots)
    }
}

/// Numbers of the chunks that have a key, ascending: at most as many as a segment has chunks.
fn of_key(postings: &mut TableReader<'_>, key: u64) -> Result<Vec<u32>, SideFault> {
    let mut nth = postings.lower_bound(|entry| u64_at(entry, 0).cmp(&key))?;
    let mut found = Vec::new();
    while nth < postings.entries() {
        let entry = postings.entry(nth)?;
        if u64_at(entry, 0) != key {
            break;
        }
        found.push(u32_at(entry, 8));
        nth += 1;
    }
    Ok(found)
}
