//! Finding events without reading the log: one index per segment, in memory while the segment grows, in a side
//! file once it is sealed.
//!
//! An index answers two questions about one segment: where is this id, and where are the records of this endpoint
//! (or tenant) received between these times. It is never the truth: what it leads to is decoded and compared, and
//! all of it can be built again from the segment. That is what opening does with an index that is missing or
//! damaged, and with no other: a sealed segment with an intact index costs one small read, whatever it holds.
//!
//! Which segments are asked at all is decided by the range of receive times in each one's summary, so a lookup by
//! id reads the few pages of the one or two segments whose range holds the id's own time. A delivery that was
//! held for days and then promoted widens the range of one segment, not of the log.

mod active;
pub(crate) mod pages;
mod side;

use domain::EventId;

pub(crate) use active::ActiveIndex;
pub(crate) use side::{SideFault, SideIndex, Source, encode};

/// What an index knows of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: EventId,
    pub(crate) endpoint: u64,
    pub(crate) received_unix_ms: u64,
    /// Place within the segment: the low half of the position's offset. Orders as the records do.
    pub(crate) spot: u32,
    /// Index into the totals.
    pub(crate) tenant: u32,
}

/// What a segment holds of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantTotal {
    pub(crate) tenant: Box<str>,
    pub(crate) records: u32,
    pub(crate) bytes: u64,
}

/// What a segment holds of everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    pub(crate) records: u32,
    pub(crate) bytes: u64,
    pub(crate) received_first_unix_ms: u64,
    pub(crate) received_last_unix_ms: u64,
}

/// Which records of a segment a read wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted<'a> {
    pub(crate) endpoint: Option<u64>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) from_unix_ms: Option<u64>,
    pub(crate) until_unix_ms: Option<u64>,
    /// Leaves out those of which an index does not know whether their time fits. Else they are in, and whoever reads them
    /// finds out.
    pub(crate) only_certain: bool,
}

impl Wanted<'_> {
    fn takes_time(&self, received_unix_ms: u64) -> bool {
        self.from_unix_ms.is_none_or(|from| received_unix_ms >= from)
            && self.until_unix_ms.is_none_or(|until| received_unix_ms < until)
    }

    /// Can a segment of these times have a record that is wanted? Whether it has the tenant is another question.
    pub(crate) fn meets(&self, summary: &Summary) -> bool {
        summary.records > 0
            && self.from_unix_ms.is_none_or(|from| summary.received_last_unix_ms >= from)
            && self.until_unix_ms.is_none_or(|until| summary.received_first_unix_ms < until)
    }
}

impl Summary {
    pub(crate) fn holds_time(&self, received_unix_ms: u64) -> bool {
        self.records > 0 && (self.received_first_unix_ms..=self.received_last_unix_ms).contains(&received_unix_ms)
    }

    fn count(&mut self, received_unix_ms: u64, bytes: u64) {
        if self.records == 0 {
            self.received_first_unix_ms = received_unix_ms;
            self.received_last_unix_ms = received_unix_ms;
        }
        self.received_first_unix_ms = self.received_first_unix_ms.min(received_unix_ms);
        self.received_last_unix_ms = self.received_last_unix_ms.max(received_unix_ms);
        self.records += 1;
        self.bytes += bytes;
    }
}

/// The key that stands for an endpoint in an index and for its dense sequence in a journal. Two endpoints can
/// share one by chance (never by intent: the hash is BLAKE3), so what a key finds is compared by name.
pub(crate) fn endpoint_key(endpoint: &str) -> u64 {
    let hash = blake3::hash(endpoint.as_bytes());
    let mut key = [0; 8];
    key.copy_from_slice(&hash.as_bytes()[..8]);
    // 0 means "no stream" to the journal.
    u64::from_le_bytes(key).max(1)
}

#[cfg(test)]
mod tests;
