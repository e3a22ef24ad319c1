//! Walking over what matches, segment by segment and chunk by chunk. What cannot be read is given out as a fault, and the
//! walk goes on behind it: who asks three weeks later is better served by the rest.

use std::collections::VecDeque;

use super::chunk;
use super::store::RecordStore;
use super::{Order, Query, Record};
use crate::embedded::position_at;
use crate::segment::{self, DamageKind, Position, SegmentInfo};

/// Something that was asked for may be where it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub(super) String);

/// What a query finds. Blocks on the disk.
#[derive(Debug)]
pub struct Walk<'a> {
    store: &'a RecordStore,
    query: Query,
    segments: VecDeque<SegmentInfo>,
    chunks: VecDeque<Position>,
    records: VecDeque<Record>,
    faults: VecDeque<Fault>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(store: &'a RecordStore, query: Query) -> Self {
        let mut segments: VecDeque<SegmentInfo> = store.segments.segments().into();
        if query.order == Order::NewestFirst {
            segments.make_contiguous().reverse();
        }
        // A segment that is not there has no index that says whether it would have something.
        let missing = store.segments.damage().into_iter().filter(|damage| damage.kind == DamageKind::Missing);
        let faults = missing.map(|damage| Fault(damage.to_string())).collect();
        Self { store, query, segments, chunks: VecDeque::new(), records: VecDeque::new(), faults }
    }

    fn enter(&mut self, info: &SegmentInfo) {
        let selected = self.store.select(info, &self.query);
        self.faults.extend(selected.faults.into_iter().map(Fault));
        self.chunks.extend(selected.spots.into_iter().map(|spot| position_at(info.id, spot)));
        if self.query.order == Order::NewestFirst {
            self.chunks.make_contiguous().reverse();
        }
    }

    fn open(&mut self, at: Position) {
        match self.read(at) {
            Ok(mut records) => {
                records.retain(|record| self.query.takes_time(record.time_unix_ms));
                if self.query.order == Order::NewestFirst {
                    records.reverse();
                }
                self.records = records.into();
            }
            // Retention was faster: what it took is beyond what was promised.
            Err(_) if !self.store.has(at.segment()) => self.chunks.clear(),
            Err(fault) => self.faults.push_back(Fault(fault)),
        }
    }

    fn read(&self, at: Position) -> Result<Vec<Record>, String> {
        let fault = |fault: segment::ReadError| fault.to_string();
        let record = self.store.segments.read(at).map_err(fault)?.next_record().map_err(fault)?;
        let record = record.filter(|record| record.position == at && record.kind == chunk::KIND_CHUNK);
        let record = record.ok_or_else(|| format!("the index leads to {at}, and no chunk of records is there"))?;
        chunk::records(&record.payload).map_err(|fault| format!("{at} {fault}"))
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Record, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(fault) = self.faults.pop_front() {
                return Some(Err(fault));
            }
            if let Some(record) = self.records.pop_front() {
                return Some(Ok(record));
            }
            if let Some(at) = self.chunks.pop_front() {
                self.open(at);
            } else {
                let info = self.segments.pop_front()?;
                self.enter(&info);
            }
        }
    }
}
