//! A chunk: records that were appended together, as one record of the journal. All integers are little-endian;
//! `docs/eventlog-format.md` has the table.
//!
//! ```text
//! head      version u8, zero u8, records u16, keys u32, first time u64, last time u64, length of the records u32
//! keys      u64 each, of all records, ascending, each once
//! records   per record: time u64, length u32, bytes; in the order in which they were appended. All of it as one LZ4
//!           block: records of one kind say the same things over and over
//! ```
//!
//! The keys stand in front and as they are, so that an index is made without looking at the records.

use bytes::Bytes;

use super::{KEYS_MAX, NewRecord, RECORD_BYTES_MAX, Record};

/// Kind of a chunk's record in a journal.
pub(super) const KIND_CHUNK: u8 = 1;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 28;
const KEY_BYTES: usize = 8;
const RECORD_HEAD_BYTES: usize = 12;

/// A chunk is full when it has so many bytes: some hundred records share a block's padding, and what a lookup reads for
/// one of them is nothing to a disk.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
const CHUNK_RECORDS: usize = 1024;
/// No chunk's records have more: the last one may be as long as any.
const BODY_BYTES_MAX: usize = CHUNK_BYTES + RECORD_HEAD_BYTES + RECORD_BYTES_MAX;

/// Does not read as a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a chunk of records: {0}")]
pub(super) struct NoChunk(&'static str);

/// Puts records into chunks. Those that are too large are left out: their number comes back.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) full: Vec<Encoded>,
    pub(super) too_large: u64,
}

/// The bytes of one chunk, and how many records it has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u64,
}

#[derive(Debug, Default)]
struct Open {
    records: u16,
    keys: Vec<u64>,
    times: Option<(u64, u64)>,
    body: Vec<u8>,
}

impl Chunks {
    /// Chunks of about so many bytes.
    pub(super) fn of(records: Vec<NewRecord>, chunk_bytes: usize) -> Self {
        let mut chunks = Self::default();
        let mut open = Open::default();
        for record in records {
            if record.bytes.len() > RECORD_BYTES_MAX {
                chunks.too_large += 1;
                continue;
            }
            open.push(&record);
            if open.body.len() >= chunk_bytes || usize::from(open.records) == CHUNK_RECORDS {
                chunks.full.extend(std::mem::take(&mut open).close());
            }
        }
        chunks.full.extend(open.close());
        chunks
    }
}

impl Open {
    fn push(&mut self, record: &NewRecord) {
        let at = record.time_unix_ms;
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        self.keys.extend(record.keys.iter().take(KEYS_MAX).map(|key| key.0));
        self.body.extend_from_slice(&at.to_le_bytes());
        let length = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
        self.body.extend_from_slice(&length.to_le_bytes());
        self.body.extend_from_slice(&record.bytes);
        self.records += 1;
    }

    fn close(mut self) -> Option<Encoded> {
        let (first, last) = self.times?;
        self.keys.sort_unstable();
        self.keys.dedup();
        let body = lz4_flex::block::compress(&self.body);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.keys.len() * KEY_BYTES + body.len());
        bytes.extend_from_slice(&[VERSION, 0]);
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(self.keys.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(self.body.len()).unwrap_or(u32::MAX).to_le_bytes());
        for key in &self.keys {
            bytes.extend_from_slice(&key.to_le_bytes());
        }
        bytes.extend_from_slice(&body);
        Some(Encoded { bytes, records: u64::from(self.records) })
    }
}

/// A chunk that was read as far as an index needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk<'a> {
    records: u16,
    pub(super) first_unix_ms: u64,
    pub(super) last_unix_ms: u64,
    keys: &'a [u8],
    body: &'a [u8],
    body_bytes: usize,
}

impl<'a> Chunk<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Result<Self, NoChunk> {
        let (head, rest) = payload.split_at_checked(HEAD_BYTES).ok_or(NoChunk("it is shorter than a head"))?;
        if head[..2] != [VERSION, 0] {
            return Err(NoChunk("it is of another version"));
        }
        let keys_bytes = usize::try_from(u32_at(head, 4)).unwrap_or(usize::MAX).saturating_mul(KEY_BYTES);
        let split = rest.split_at_checked(keys_bytes);
        let (keys, body) = split.ok_or(NoChunk("it has fewer keys than it says"))?;
        Ok(Self {
            records: u16::from_le_bytes([head[2], head[3]]),
            first_unix_ms: u64_at(head, 8),
            last_unix_ms: u64_at(head, 16),
            keys,
            body,
            body_bytes: usize::try_from(u32_at(head, 24)).unwrap_or(usize::MAX),
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = u64> + 'a {
        self.keys.chunks_exact(KEY_BYTES).map(|key| u64_at(key, 0))
    }

    fn body(&self) -> Result<Bytes, NoChunk> {
        if self.body_bytes > BODY_BYTES_MAX {
            return Err(NoChunk("it has more bytes of records than any"));
        }
        let body = lz4_flex::block::decompress(self.body, self.body_bytes);
        let body = body.map_err(|_| NoChunk("its records do not unpack"))?;
        Ok(body.into())
    }
}

/// The records of a chunk, in the order in which they were appended. They share memory.
pub(super) fn records(payload: &[u8]) -> Result<Vec<Record>, NoChunk> {
    let chunk = Chunk::read(payload)?;
    let body = chunk.body()?;
    let mut at = 0_usize;
    let mut records = Vec::with_capacity(usize::from(chunk.records));
    for _ in 0..chunk.records {
        let head = body.get(at..at + RECORD_HEAD_BYTES).ok_or(NoChunk("it has fewer records than it says"))?;
        at += RECORD_HEAD_BYTES;
        let end = usize::try_from(u32_at(head, 8)).ok().and_then(|length| at.checked_add(length));
        let end = end.filter(|end| *end <= body.len()).ok_or(NoChunk("a record is longer than it"))?;
        records.push(Record { time_unix_ms: u64_at(head, 0), bytes: body.slice(at..end) });
        at = end;
    }
    if at == body.len() { Ok(records) } else { Err(NoChunk("something is behind its records")) }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Key;
    use super::*;

    fn record(time_unix_ms: u64, keys: &[u64], bytes: &[u8]) -> NewRecord {
        NewRecord { time_unix_ms, keys: keys.iter().copied().map(Key).collect(), bytes: bytes.to_vec() }
    }

    fn chunks(records: Vec<NewRecord>) -> Chunks {
        Chunks::of(records, CHUNK_BYTES)
    }

    #[test]
    fn records_come_back_and_keys_stand_in_front_once_each() {
        let chunks = chunks(vec![record(7, &[3, 1], b"a"), record(5, &[], b""), record(6, &[1], b"c")]);
        let [chunk] = &chunks.full[..] else { panic!("{chunks:?}") };
        assert_eq!((chunk.records, chunks.too_large), (3, 0));
        let head = Chunk::read(&chunk.bytes).unwrap();
        assert_eq!((head.first_unix_ms, head.last_unix_ms), (5, 7));
        assert_eq!(head.keys().collect::<Vec<_>>(), [1, 3]);
        let read = records(&chunk.bytes).unwrap();
        let read: Vec<_> = read.iter().map(|record| (record.time_unix_ms, &record.bytes[..])).collect();
        assert_eq!(read, [(7, &b"a"[..]), (5, b""), (6, b"c")]);
    }

    #[test]
    fn chunks_are_bounded_and_so_are_records() {
        assert!(chunks(Vec::new()).full.is_empty());
        let many = chunks(vec![record(1, &[], b"x"); 3 * CHUNK_RECORDS]);
        assert_eq!(many.full.iter().map(|chunk| chunk.records).collect::<Vec<_>>(), [CHUNK_RECORDS as u64; 3]);
        let large = chunks(vec![record(1, &[9; 99], &[b'x'; RECORD_BYTES_MAX]), record(1, &[], &[0; 70_000])]);
        assert_eq!((large.full.len(), large.too_large), (1, 1));
        let keys = Chunk::read(&large.full[0].bytes).unwrap().keys().count();
        assert_eq!(keys, 1);
    }

    proptest! {
        #[test]
        fn no_bytes_are_more_than_refused(bytes: Vec<u8>, at: prop::sample::Index, flip: u8) {
            drop(records(&bytes));
            let mut chunk = chunks(vec![record(1, &[1, 2], b"abc"), record(2, &[3], b"d")]).full.remove(0).bytes;
            let at = at.index(chunk.len());
            chunk[at] ^= flip;
            drop(records(&chunk));
        }
    }
}
