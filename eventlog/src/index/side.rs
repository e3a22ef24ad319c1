//! The side file of a sealed segment. All integers are little-endian; `docs/eventlog-format.md` has the table.
//!
//! ```text
//! header       64 bytes
//! tenants      per tenant: length u8, name, records u32, bytes u64
//! checksum     CRC-32C of header and tenants
//! zeros        up to the next multiple of 4,096
//! endpoints    pages of: key u64, tenant u32, first posting u32, postings u32; sorted by key, tenant
//! postings     pages of: spot u32, receive time u32 (ms behind the first, capped); per endpoint in order of spot
//! ids          pages of: id 16 bytes, spot u32; sorted
//! ```

use std::fmt;
use std::io;

use domain::EventId;

use super::pages::{self, PAGE, Table, TableReader};
use super::{ActiveIndex, Row, Summary, TenantTotal, Wanted};

const MAGIC: [u8; 4] = *b"TGEI";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 64;
const ENDPOINT_BYTES: usize = 20;
const POSTING_BYTES: usize = 8;
const ID_BYTES: usize = 20;
/// A name has at least one byte, so a tenant's total takes at least this much.
const TOTAL_BYTES_MIN: u64 = 1 + 1 + 4 + 8;

/// Reads a side file wherever it is.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
}

/// Why an index cannot be used. It is built again from its segment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SideFault {
    #[error("the index is damaged: {0}")]
    Damaged(&'static str),
    #[error("the index cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The segment that an index is of.
pub(crate) type Segment = (u64, u32);

/// A side file that was opened: where its tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SideIndex {
    summary: Summary,
    endpoints: Table,
    postings: Table,
    ids: Table,
}

/// The bytes of a segment's side file.
pub(crate) fn encode(segment: Segment, index: &ActiveIndex) -> Vec<u8> {
    let (summary, totals) = (index.summary(), index.totals());
    let mut rows: Vec<Row> = index.rows().copied().collect();
    rows.sort_by_key(|row| (row.endpoint, row.tenant, row.spot));
    let streams: Vec<&[Row]> = rows.chunk_by(|a, b| (a.endpoint, a.tenant) == (b.endpoint, b.tenant)).collect();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);

    let mut file = Vec::new();
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&[VERSION, 0, 0, 0]);
    file.extend_from_slice(&segment.0.to_le_bytes());
    file.extend_from_slice(&segment.1.to_le_bytes());
    file.extend_from_slice(&summary.records.to_le_bytes());
    file.extend_from_slice(&count(streams.len()).to_le_bytes());
    file.extend_from_slice(&count(totals.len()).to_le_bytes());
    file.extend_from_slice(&summary.received_first_unix_ms.to_le_bytes());
    file.extend_from_slice(&summary.received_last_unix_ms.to_le_bytes());
    file.extend_from_slice(&summary.bytes.to_le_bytes());
    let names: usize = totals.iter().map(|total| 1 + total.tenant.len() + 12).sum();
    file.extend_from_slice(&(names as u64).to_le_bytes());
    debug_assert_eq!(file.len(), HEADER_BYTES, "the header has the size that reading expects");
    for total in totals {
        file.push(u8::try_from(total.tenant.len()).unwrap_or(u8::MAX));
        file.extend_from_slice(total.tenant.as_bytes());
        file.extend_from_slice(&total.records.to_le_bytes());
        file.extend_from_slice(&total.bytes.to_le_bytes());
    }
    let sum = crc32c::crc32c(&file);
    file.extend_from_slice(&sum.to_le_bytes());
    file.resize(file.len().next_multiple_of(PAGE), 0);

    let mut entries = Vec::with_capacity(streams.len() * ENDPOINT_BYTES);
    let mut first = 0_u32;
    for stream in &streams {
        entries.extend_from_slice(&stream[0].endpoint.to_le_bytes());
        entries.extend_from_slice(&stream[0].tenant.to_le_bytes());
        entries.extend_from_slice(&first.to_le_bytes());
        entries.extend_from_slice(&count(stream.len()).to_le_bytes());
        first += count(stream.len());
    }
    pages::write(&mut file, ENDPOINT_BYTES, entries.chunks_exact(ENDPOINT_BYTES));

    let mut entries = Vec::with_capacity(rows.len() * ID_BYTES);
    for row in &rows {
        entries.extend_from_slice(&row.spot.to_le_bytes());
        entries.extend_from_slice(&behind(summary, row.received_unix_ms).to_le_bytes());
    }
    pages::write(&mut file, POSTING_BYTES, entries.chunks_exact(POSTING_BYTES));

    rows.sort_unstable_by_key(|row| (row.id, row.spot));
    entries.clear();
    for row in &rows {
        entries.extend_from_slice(row.id.as_bytes());
        entries.extend_from_slice(&row.spot.to_le_bytes());
    }
    pages::write(&mut file, ID_BYTES, entries.chunks_exact(ID_BYTES));
    file
}

/// Milliseconds behind the segment's first receive time, capped: 49 days and more are all one.
fn behind(summary: &Summary, received_unix_ms: u64) -> u32 {
    u32::try_from(received_unix_ms.saturating_sub(summary.received_first_unix_ms)).unwrap_or(u32::MAX)
}

impl SideIndex {
    /// Reads and checks the summary and the tenants' totals; the tables are checked page by page when they are used.
    pub(crate) fn open(source: &dyn Source, segment: Segment) -> Result<(Self, Vec<TenantTotal>), SideFault> {
        let file_bytes = source.len()?;
        let mut header = [0; HEADER_BYTES];
        if file_bytes < HEADER_BYTES as u64 {
            return Err(SideFault::Damaged("it is shorter than its header"));
        }
        source.read_exact_at(0, &mut header)?;
        let mut fields = Fields(&header);
        if fields.take::<4>() != MAGIC || fields.take::<4>() != [VERSION, 0, 0, 0] {
            return Err(SideFault::Damaged("it is no index of this version"));
        }
        if (fields.u64(), fields.u32()) != segment {
            return Err(SideFault::Damaged("it is another segment's"));
        }
        let (records, endpoints, tenants) = (fields.u32(), fields.u32(), fields.u32());
        let (first, last, bytes, names_bytes) = (fields.u64(), fields.u64(), fields.u64(), fields.u64());

        // Nothing is allocated before the file has shown that it is large enough for it.
        let endpoints_at = (HEADER_BYTES as u64 + 4)
            .checked_add(names_bytes)
            .map(|end| end.next_multiple_of(PAGE as u64))
            .filter(|at| *at <= file_bytes && u64::from(tenants) * TOTAL_BYTES_MIN <= names_bytes)
            .ok_or(SideFault::Damaged("it is shorter than it says"))?;
        let endpoints = Table { offset: endpoints_at, entries: endpoints, entry_bytes: ENDPOINT_BYTES };
        let postings = after(endpoints, records, POSTING_BYTES);
        let ids = after(postings, records, ID_BYTES);
        if after(ids, 0, 1).offset != file_bytes {
            return Err(SideFault::Damaged("it has another length than it says"));
        }

        let names_bytes = usize::try_from(names_bytes).unwrap_or(usize::MAX);
        let mut names = vec![0; names_bytes + 4];
        source.read_exact_at(HEADER_BYTES as u64, &mut names)?;
        let (names, sum) = names.split_at(names_bytes);
        if crc32c::crc32c_append(crc32c::crc32c(&header), names).to_le_bytes() != sum {
            return Err(SideFault::Damaged("the summary's checksum is wrong"));
        }
        let totals = totals(names, tenants)?;
        let summary = Summary { records, bytes, received_first_unix_ms: first, received_last_unix_ms: last };
        Ok((Self { summary, endpoints, postings, ids }, totals))
    }

    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Where the id is. More than one record can have it (a promotion that was interrupted and done again): the
    /// first counts.
    pub(crate) fn find(&self, source: &dyn Source, id: EventId) -> Result<Option<u32>, SideFault> {
        let mut ids = TableReader::new(source, self.ids);
        let nth = ids.lower_bound(|entry| entry[..16].cmp(id.as_bytes()))?;
        if nth == ids.entries() {
            return Ok(None);
        }
        let entry = ids.entry(nth)?;
        Ok((entry[..16] == *id.as_bytes()).then(|| u32_at(entry, 16)))
    }

    /// Places of what is wanted, in order. `tenant` is the wanted tenant's index in the totals.
    pub(crate) fn select(
        &self,
        source: &dyn Source,
        wanted: &Wanted<'_>,
        tenant: Option<u32>,
    ) -> Result<Vec<u32>, SideFault> {
        let mut endpoints = TableReader::new(source, self.endpoints);
        let mut postings = TableReader::new(source, self.postings);
        let mut spots = Vec::new();
        let mut nth = match wanted.endpoint {
            Some(key) => endpoints.lower_bound(|entry| u64_at(entry, 0).cmp(&key))?,
            None => 0,
        };
        while nth < endpoints.entries() {
            let entry = endpoints.entry(nth)?;
            nth += 1;
            if wanted.endpoint.is_some_and(|key| u64_at(entry, 0) != key) {
                break;
            }
            if tenant.is_some_and(|tenant| u32_at(entry, 8) != tenant) {
                continue;
            }
            let first = u32_at(entry, 12);
            let end = first.checked_add(u32_at(entry, 16)).ok_or(SideFault::Damaged("a count is too large"))?;
            for posting in first..end {
                let posting = postings.entry(posting)?;
                if self.may_take(wanted, u32_at(posting, 4)) {
                    spots.push(u32_at(posting, 0));
                }
            }
        }
        spots.sort_unstable();
        Ok(spots)
    }

    /// Can a record that far behind the first be in the wanted range?
    fn may_take(&self, wanted: &Wanted<'_>, behind: u32) -> bool {
        // A capped time may be any later one: the record itself decides.
        let received = self.summary.received_first_unix_ms.saturating_add(u64::from(behind));
        let capped = behind == u32::MAX;
        if capped && wanted.only_certain {
            return wanted.from_unix_ms.is_none() && wanted.until_unix_ms.is_none();
        }
        wanted.from_unix_ms.is_none_or(|from| capped || received >= from)
            && wanted.until_unix_ms.is_none_or(|until| received < until)
    }
}

/// A table behind another.
fn after(table: Table, entries: u32, entry_bytes: usize) -> Table {
    let pages = pages::pages(table.entries, table.entry_bytes);
    Table { offset: table.offset + pages * PAGE as u64, entries, entry_bytes }
}

fn totals(mut names: &[u8], tenants: u32) -> Result<Vec<TenantTotal>, SideFault> {
    let broken = || SideFault::Damaged("the tenants do not read");
    let mut totals = Vec::with_capacity(tenants as usize);
    for _ in 0..tenants {
        let (length, rest) = names.split_first().ok_or_else(broken)?;
        let (name, rest) = rest.split_at_checked(usize::from(*length)).ok_or_else(broken)?;
        let (numbers, rest) = rest.split_at_checked(12).ok_or_else(broken)?;
        let tenant = std::str::from_utf8(name).map_err(|_| broken())?.into();
        totals.push(TenantTotal { tenant, records: u32_at(numbers, 0), bytes: u64_at(numbers, 4) });
        names = rest;
    }
    if names.is_empty() { Ok(totals) } else { Err(broken()) }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// The header's fields, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk::<N>().map_or(([0; N], &[][..]), |(taken, rest)| (*taken, rest));
        self.0 = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
