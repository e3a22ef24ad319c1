//! The bytes on disk: segment header, batch, record, footer, index. `docs/eventlog-format.md` has them one by one.
//!
//! All numbers are little-endian. Whatever is read from a disk is checked before it is believed, lengths first.

use crc32c::{crc32c, crc32c_append};

use super::position::{BLOCK, Position, SegmentId, batch_offset};

pub(crate) const VERSION: u32 = 1;

/// Size of the block that a segment begins with.
pub(crate) const HEADER_BLOCK: u64 = BLOCK;
/// Size of the block that holds a footer.
pub(crate) const FOOTER_BLOCK: u64 = BLOCK;

const SEGMENT_MAGIC: [u8; 8] = *b"TGsegmt\x01";
const BATCH_MAGIC: [u8; 8] = *b"TGbatch\x01";
const FOOTER_MAGIC: [u8; 8] = *b"TGfootr\x01";

const SEGMENT_HEADER_BYTES: usize = 128;
const FOOTER_BYTES: usize = 160;
pub(crate) const BATCH_HEADER_BYTES: usize = 96;
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
pub(crate) const INDEX_ENTRY_BYTES: usize = 24;

/// One less than the indexes that a position has room for, so that the place behind the last record has one too.
pub(crate) const BATCH_RECORDS_MAX: usize = 4095;

/// One index entry for about this many bytes of a segment.
pub(crate) const INDEX_STRIDE: u64 = 256 << 10;

pub(crate) type Hash = [u8; 32];
pub(crate) type LogId = [u8; 16];

/// Bytes up to the next block.
pub(crate) fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK) * BLOCK
}

/// What every batch of a segment must say about itself; the bytes that a recycled file had before say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) log: LogId,
    pub(crate) segment: SegmentId,
}

impl Identity {
    /// What record checksums of the batch at this offset begin with: a stale record at the same place of a recycled
    /// file, whole and with the very same layout, does not pass for one of this batch.
    fn salt(&self, file_offset: u64) -> u32 {
        let mut crc = crc32c(&self.log);
        crc = crc32c_append(crc, &self.segment.epoch.to_le_bytes());
        crc32c_append(crc, &batch_offset(self.segment.sequence, file_offset).to_le_bytes())
    }

    /// What the first batch of an epoch names as its predecessor.
    pub(crate) fn seed(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"tidegate epoch");
        hasher.update(&self.log);
        hasher.update(&self.segment.epoch.to_le_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// Why bytes are not what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// No magic, or another identity: stale bytes, zeros, anything.
    Absent,
    /// It says that it is what was asked for, but a length or a checksum does not hold.
    Broken,
    /// Written by a later version of Tidegate.
    Version,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|slice| slice.try_into().ok()).unwrap_or([0; N])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Puts the checksum of everything before it into the last four bytes.
fn seal_crc(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c(&bytes[..at]);
    put(bytes, at, &crc.to_le_bytes());
}

fn crc_holds(bytes: &[u8]) -> bool {
    let at = bytes.len() - 4;
    crc32c(&bytes[..at]) == u32_at(bytes, at)
}

/// The first block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: Identity,
    pub(crate) created_unix_ms: u64,
    /// Size of the file when it was made.
    pub(crate) segment_bytes: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let bytes = &mut block[..SEGMENT_HEADER_BYTES];
        put(bytes, 0, &SEGMENT_MAGIC);
        put(bytes, 8, &VERSION.to_le_bytes());
        put(bytes, 12, &128_u32.to_le_bytes());
        put(bytes, 16, &self.identity.log);
        put(bytes, 32, &self.identity.segment.epoch.to_le_bytes());
        put(bytes, 40, &u64::from(self.identity.segment.sequence).to_le_bytes());
        put(bytes, 48, &self.created_unix_ms.to_le_bytes());
        put(bytes, 56, &self.segment_bytes.to_le_bytes());
        // 64..80: key id, zero until segments are sealed. 80..124: reserved.
        seal_crc(bytes);
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, Invalid> {
        let bytes = block.get(..SEGMENT_HEADER_BYTES).ok_or(Invalid::Absent)?;
        if array(bytes, 0) != SEGMENT_MAGIC {
            return Err(Invalid::Absent);
        }
        if !crc_holds(bytes) {
            return Err(Invalid::Broken);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(Invalid::Version);
        }
        let sequence = u32::try_from(u64_at(bytes, 40)).map_err(|_| Invalid::Broken)?;
        Ok(Self {
            identity: Identity { log: array(bytes, 16), segment: SegmentId { epoch: u64_at(bytes, 32), sequence } },
            created_unix_ms: u64_at(bytes, 48),
            segment_bytes: u64_at(bytes, 56),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Header and records, without the padding.
    pub(crate) bytes: u32,
    pub(crate) records: u32,
    pub(crate) previous: Hash,
}

impl BatchHeader {
    pub(crate) fn encode(&self, identity: &Identity, file_offset: u64, bytes: &mut [u8]) {
        let bytes = &mut bytes[..BATCH_HEADER_BYTES];
        put(bytes, 0, &BATCH_MAGIC);
        put(bytes, 8, &identity.segment.epoch.to_le_bytes());
        put(bytes, 16, &batch_offset(identity.segment.sequence, file_offset).to_le_bytes());
        put(bytes, 24, &self.bytes.to_le_bytes());
        put(bytes, 28, &self.records.to_le_bytes());
        put(bytes, 32, &self.previous);
        put(bytes, 64, &identity.log);
        put(bytes, 80, &[0; 12]);
        seal_crc(bytes);
    }

    /// Reads the header of the batch that would begin at `file_offset`; `room` is what the segment has from there.
    pub(crate) fn decode(identity: &Identity, file_offset: u64, room: u64, bytes: &[u8]) -> Result<Self, Invalid> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES).ok_or(Invalid::Absent)?;
        let own = array(bytes, 0) == BATCH_MAGIC
            && u64_at(bytes, 8) == identity.segment.epoch
            && u64_at(bytes, 16) == batch_offset(identity.segment.sequence, file_offset)
            && array(bytes, 64) == identity.log;
        if !own {
            return Err(Invalid::Absent);
        }
        if !crc_holds(bytes) {
            return Err(Invalid::Broken);
        }
        let header = Self { bytes: u32_at(bytes, 24), records: u32_at(bytes, 28), previous: array(bytes, 32) };
        let least = BATCH_HEADER_BYTES as u64 + u64::from(header.records) * RECORD_HEADER_BYTES as u64;
        let count_fits = (1..=BATCH_RECORDS_MAX).contains(&(header.records as usize));
        if !count_fits || u64::from(header.bytes) < least || u64::from(header.bytes) > room {
            return Err(Invalid::Broken);
        }
        Ok(header)
    }

    pub(crate) fn padded(&self) -> u64 {
        padded(u64::from(self.bytes))
    }
}

/// Fields of a record before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordFields {
    pub(crate) stream: u64,
    pub(crate) sequence: u64,
    pub(crate) time_unix_ms: u64,
    pub(crate) kind: u8,
}

/// Writes a record at the start of `bytes` and returns its length. The payload's parts fit; the caller has looked.
pub(crate) fn encode_record(salt: u32, fields: &RecordFields, parts: [&[u8]; 3], bytes: &mut [u8]) -> usize {
    let mut at = RECORD_HEADER_BYTES;
    for part in parts {
        put(bytes, at, part);
        at += part.len();
    }
    let payload = u32::try_from(at - RECORD_HEADER_BYTES).unwrap_or(u32::MAX);
    put(bytes, 4, &payload.to_le_bytes());
    put(bytes, 8, &fields.stream.to_le_bytes());
    put(bytes, 16, &fields.sequence.to_le_bytes());
    put(bytes, 24, &fields.time_unix_ms.to_le_bytes());
    put(bytes, 32, &[fields.kind, 0, 0, 0, 0, 0, 0, 0]);
    let crc = crc32c_append(salt, &bytes[4..at]);
    put(bytes, 0, &crc.to_le_bytes());
    at
}

/// Walks the records of a batch. Ends after the last one, or with the first that is broken.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    salt: u32,
    base: Position,
    bytes: &'a [u8],
    at: usize,
    index: u32,
    count: u32,
}

/// A record as it lies in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    pub position: Position,
    pub stream: u64,
    pub sequence: u64,
    pub time_unix_ms: u64,
    pub kind: u8,
    pub payload: &'a [u8],
}

/// A record and where its payload lies in the batch's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Located<'a> {
    pub(crate) view: RecordView<'a>,
    pub(crate) payload: std::ops::Range<usize>,
}

impl<'a> Records<'a> {
    /// `bytes` are exactly those of the batch, header and all.
    pub(crate) fn new(identity: &Identity, file_offset: u64, header: &BatchHeader, bytes: &'a [u8]) -> Self {
        Self {
            salt: identity.salt(file_offset),
            base: Position::at(identity.segment, file_offset, 0),
            bytes,
            at: BATCH_HEADER_BYTES,
            index: 0,
            count: header.records,
        }
    }

    /// The same walk, from a record on that begins `at` bytes into the batch.
    #[must_use]
    pub(crate) fn resume(self, at: usize, index: u32) -> Self {
        Self { at, index, ..self }
    }

    /// Where the record at hand ends if its length is to be believed; nothing of it is checked.
    pub(crate) fn length(&self) -> Option<usize> {
        let header = self.bytes.get(self.at..self.at.checked_add(RECORD_HEADER_BYTES)?)?;
        let end = (self.at + RECORD_HEADER_BYTES).checked_add(u32_at(header, 4) as usize)?;
        (end <= self.bytes.len()).then_some(end)
    }

    fn read(&mut self) -> Result<Located<'a>, Invalid> {
        let rest = self.bytes.get(self.at..).ok_or(Invalid::Broken)?;
        let header = rest.get(..RECORD_HEADER_BYTES).ok_or(Invalid::Broken)?;
        let length = u32_at(header, 4) as usize;
        let record = rest.get(..RECORD_HEADER_BYTES + length).ok_or(Invalid::Broken)?;
        if crc32c_append(self.salt, &record[4..]) != u32_at(record, 0) {
            return Err(Invalid::Broken);
        }
        let start = self.at + RECORD_HEADER_BYTES;
        let position = Position::at(self.base.segment(), self.base.file_offset(), self.index);
        let view = RecordView {
            position,
            stream: u64_at(header, 8),
            sequence: u64_at(header, 16),
            time_unix_ms: u64_at(header, 24),
            kind: header[32],
            payload: &record[RECORD_HEADER_BYTES..],
        };
        self.at = start + length;
        self.index += 1;
        // The last record ends where the batch ends: nothing is left over, and nothing is short.
        if self.index == self.count && self.at != self.bytes.len() {
            return Err(Invalid::Broken);
        }
        Ok(Located { view, payload: start..start + length })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Located<'a>, Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.index = self.count;
        }
        Some(record)
    }
}

/// Puts records behind each other into a buffer, and a header before them.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    identity: Identity,
    file_offset: u64,
    salt: u32,
    bytes: &'a mut [u8],
    at: usize,
    records: u32,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(identity: Identity, file_offset: u64, bytes: &'a mut [u8]) -> Self {
        Self { identity, file_offset, salt: identity.salt(file_offset), bytes, at: BATCH_HEADER_BYTES, records: 0 }
    }

    /// Is there room for a payload of this size?
    pub(crate) fn fits(&self, payload: usize) -> bool {
        (self.records as usize) < BATCH_RECORDS_MAX && self.at + RECORD_HEADER_BYTES + payload <= self.bytes.len()
    }

    pub(crate) fn push(&mut self, fields: &RecordFields, parts: [&[u8]; 3]) -> Position {
        let position = Position::at(self.identity.segment, self.file_offset, self.records);
        self.at += encode_record(self.salt, fields, parts, &mut self.bytes[self.at..]);
        self.records += 1;
        position
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Writes the header, zeroes the padding, and returns the header.
    pub(crate) fn finish(self, previous: Hash) -> BatchHeader {
        let header = BatchHeader { bytes: u32::try_from(self.at).unwrap_or(u32::MAX), records: self.records, previous };
        header.encode(&self.identity, self.file_offset, self.bytes);
        let end = usize::try_from(header.padded()).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes[self.at..end].fill(0);
        header
    }
}

/// What a sealed segment says about itself, in its last block; the same for a recovered one, in a file beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) identity: Identity,
    /// The writer closed: no segment of this epoch follows.
    pub(crate) last: bool,
    /// Where the batches end.
    pub(crate) end: u64,
    pub(crate) index_offset: u64,
    pub(crate) index_bytes: u32,
    pub(crate) index_crc: u32,
    pub(crate) records: u64,
    pub(crate) batches: u64,
    pub(crate) min_unix_ms: u64,
    pub(crate) max_unix_ms: u64,
    /// Hash of the last batch, and through it of all before.
    pub(crate) root: Hash,
    pub(crate) sealed_unix_ms: u64,
}

impl Footer {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let bytes = &mut block[..FOOTER_BYTES];
        put(bytes, 0, &FOOTER_MAGIC);
        put(bytes, 8, &VERSION.to_le_bytes());
        put(bytes, 12, &u32::from(self.last).to_le_bytes());
        put(bytes, 16, &self.identity.log);
        put(bytes, 32, &self.identity.segment.epoch.to_le_bytes());
        put(bytes, 40, &u64::from(self.identity.segment.sequence).to_le_bytes());
        put(bytes, 48, &self.end.to_le_bytes());
        put(bytes, 56, &self.index_offset.to_le_bytes());
        put(bytes, 64, &self.index_bytes.to_le_bytes());
        put(bytes, 68, &self.index_crc.to_le_bytes());
        put(bytes, 72, &self.records.to_le_bytes());
        put(bytes, 80, &self.batches.to_le_bytes());
        put(bytes, 88, &self.min_unix_ms.to_le_bytes());
        put(bytes, 96, &self.max_unix_ms.to_le_bytes());
        put(bytes, 104, &self.root);
        put(bytes, 136, &self.sealed_unix_ms.to_le_bytes());
        seal_crc(bytes);
    }

    /// `Absent` also for the footer that a recycled file had in its life before.
    pub(crate) fn decode(identity: &Identity, block: &[u8]) -> Result<Self, Invalid> {
        let bytes = block.get(..FOOTER_BYTES).ok_or(Invalid::Absent)?;
        if array(bytes, 0) != FOOTER_MAGIC {
            return Err(Invalid::Absent);
        }
        let named = array(bytes, 16) == identity.log
            && u64_at(bytes, 32) == identity.segment.epoch
            && u64_at(bytes, 40) == u64::from(identity.segment.sequence);
        if !named {
            return Err(Invalid::Absent);
        }
        if !crc_holds(bytes) {
            return Err(Invalid::Broken);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(Invalid::Version);
        }
        Ok(Self {
            identity: *identity,
            last: u32_at(bytes, 12) & 1 != 0,
            end: u64_at(bytes, 48),
            index_offset: u64_at(bytes, 56),
            index_bytes: u32_at(bytes, 64),
            index_crc: u32_at(bytes, 68),
            records: u64_at(bytes, 72),
            batches: u64_at(bytes, 80),
            min_unix_ms: u64_at(bytes, 88),
            max_unix_ms: u64_at(bytes, 96),
            root: array(bytes, 104),
            sealed_unix_ms: u64_at(bytes, 136),
        })
    }
}

/// A place in a segment to begin looking for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) file_offset: u64,
    pub(crate) records_before: u64,
    /// The latest time of any record of the segment before this place.
    pub(crate) max_unix_ms_before: u64,
}

/// Adds an entry for a batch at `offset` if the last one is far enough away.
pub(crate) fn note_index(index: &mut Vec<IndexEntry>, offset: u64, records_before: u64, max_unix_ms_before: u64) {
    if index.last().is_none_or(|last| offset - last.file_offset >= INDEX_STRIDE) {
        index.push(IndexEntry { file_offset: offset, records_before, max_unix_ms_before });
    }
}

pub(crate) fn encode_index(entries: &[IndexEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * INDEX_ENTRY_BYTES);
    for entry in entries {
        bytes.extend_from_slice(&entry.file_offset.to_le_bytes());
        bytes.extend_from_slice(&entry.records_before.to_le_bytes());
        bytes.extend_from_slice(&entry.max_unix_ms_before.to_le_bytes());
    }
    bytes
}

pub(crate) fn decode_index(bytes: &[u8]) -> Vec<IndexEntry> {
    bytes
        .chunks_exact(INDEX_ENTRY_BYTES)
        .map(|chunk| IndexEntry {
            file_offset: u64_at(chunk, 0),
            records_before: u64_at(chunk, 8),
            max_unix_ms_before: u64_at(chunk, 16),
        })
        .collect()
}

/// Bytes at the end of a segment's file that are kept for index and footer.
pub(crate) fn tail_reserve(segment_bytes: u64) -> u64 {
    let entries = segment_bytes / INDEX_STRIDE + 1;
    padded(entries * INDEX_ENTRY_BYTES as u64) + FOOTER_BLOCK
}

/// The largest payload that a segment of this size can hold.
pub(crate) fn payload_bytes_max(segment_bytes: u64) -> u64 {
    segment_bytes - HEADER_BLOCK - tail_reserve(segment_bytes) - (BATCH_HEADER_BYTES + RECORD_HEADER_BYTES) as u64
}
