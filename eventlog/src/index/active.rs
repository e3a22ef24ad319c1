//! The index of a segment that still grows, in memory.
//!
//! It costs 40 bytes a record and a few per tenant. A record takes at least 120 bytes of its segment, so the
//! index of an active segment stays below a third of the segment's size: 22 MiB for 64 MiB of the smallest
//! events there are, 2 MiB for events of 1.5 KB.
//!
//! The writer's thread adds rows; readers copy references to full chunks and look through them without keeping
//! the writer waiting.

use std::collections::HashMap;
use std::sync::Arc;

use domain::EventId;

use super::{Row, Summary, TenantTotal, Wanted};

/// Rows of a full chunk: small enough that looking through the open one holds the lock for a microsecond or two.
const CHUNK_ROWS: usize = 1024;

/// Rows that are complete, and between which ids theirs are: ids begin with a time, so that nearly all chunks can be passed
/// over when one is looked for.
#[derive(Debug)]
struct Chunk {
    rows: Vec<Row>,
    least: EventId,
    greatest: EventId,
}

impl Chunk {
    /// None of no rows.
    fn of(rows: Vec<Row>) -> Option<Self> {
        let (least, greatest) = (rows.iter().map(|row| row.id).min()?, rows.iter().map(|row| row.id).max()?);
        Some(Self { rows, least, greatest })
    }

    fn may_hold(&self, id: EventId) -> bool {
        self.least <= id && id <= self.greatest
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveIndex {
    full: Vec<Arc<Chunk>>,
    open: Vec<Row>,
    summary: Summary,
    totals: Vec<TenantTotal>,
    tenants: HashMap<Box<str>, u32>,
}

impl ActiveIndex {
    /// The index of a tenant in the totals.
    pub(crate) fn tenant(&mut self, tenant: &str) -> u32 {
        if let Some(known) = self.tenants.get(tenant) {
            return *known;
        }
        let new = u32::try_from(self.totals.len()).unwrap_or(u32::MAX);
        self.tenants.insert(tenant.into(), new);
        self.totals.push(TenantTotal { tenant: tenant.into(), records: 0, bytes: 0 });
        new
    }

    /// Adds a record that lies behind all that were added before.
    pub(crate) fn push(&mut self, row: Row, bytes: u64) {
        self.summary.count(row.received_unix_ms, bytes);
        if let Some(total) = self.totals.get_mut(row.tenant as usize) {
            total.records += 1;
            total.bytes += bytes;
        }
        self.open.push(row);
        if self.open.len() == CHUNK_ROWS {
            self.full.extend(Chunk::of(std::mem::take(&mut self.open)).map(Arc::new));
        }
    }

    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What there is of each tenant, in the order in which they came.
    pub(crate) fn totals(&self) -> &[TenantTotal] {
        &self.totals
    }

    /// All rows in the order of their records.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.full.iter().flat_map(|chunk| &chunk.rows).chain(&self.open)
    }

    /// What a reader looks through without the lock: full chunks by reference, the open one copied.
    pub(crate) fn snapshot(&self) -> Rows {
        let mut chunks = self.full.clone();
        chunks.extend(Chunk::of(self.open.clone()).map(Arc::new));
        Rows { chunks }
    }

    /// The same, of what may have this id alone.
    pub(crate) fn snapshot_near(&self, id: EventId) -> Rows {
        let mut chunks: Vec<_> = self.full.iter().filter(|chunk| chunk.may_hold(id)).map(Arc::clone).collect();
        let of_open = self.open.iter().filter(|row| row.id == id).copied().collect();
        chunks.extend(Chunk::of(of_open).map(Arc::new));
        Rows { chunks }
    }

    /// The index of a tenant that has records here.
    pub(crate) fn known_tenant(&self, tenant: &str) -> Option<u32> {
        self.tenants.get(tenant).copied()
    }
}

/// Rows of an active segment at one moment.
#[derive(Debug)]
pub(crate) struct Rows {
    chunks: Vec<Arc<Chunk>>,
}

impl Rows {
    fn iter(&self) -> impl Iterator<Item = &Row> {
        self.chunks.iter().flat_map(|chunk| &chunk.rows)
    }

    /// Where the id is.
    pub(crate) fn find(&self, id: EventId) -> Option<u32> {
        let may = self.chunks.iter().filter(|chunk| chunk.may_hold(id));
        may.flat_map(|chunk| &chunk.rows).find(|row| row.id == id).map(|row| row.spot)
    }

    /// Places of what is wanted, in order. `tenant` is the wanted tenant's index.
    pub(crate) fn select(&self, wanted: &Wanted<'_>, tenant: Option<u32>) -> Vec<u32> {
        self.iter()
            .filter(|row| wanted.endpoint.is_none_or(|key| row.endpoint == key))
            .filter(|row| tenant.is_none_or(|tenant| row.tenant == tenant))
            .filter(|row| wanted.takes_time(row.received_unix_ms))
            .map(|row| row.spot)
            .collect()
    }
}
