//! What the journal tells: a batch is durable, or never will be.

use std::sync::Arc;

use eventlog::segment::{RecordView, SegmentId, SegmentInfo, SegmentObserver, SideFile};

use super::feed::Feed;
use super::recent::Recent;
use super::table::Table;

/// Between the journal's writer and all that follows from what it has written.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) table: Arc<Table>,
    pub(super) feed: Arc<Feed>,
    pub(super) recent: Arc<Recent>,
}

impl SegmentObserver for Watcher {
    fn committed(&self, _segment: SegmentId, records: &mut dyn Iterator<Item = RecordView<'_>>) {
        let mut positions = Vec::new();
        self.recent.put(records, |position| positions.push(position));
        let Some(last) = positions.last().copied() else { return };
        let (commits, pointers) = self.table.committed(&positions);
        if pointers.is_none() {
            tracing::error!("a batch of the ledger has other commits than were taken: the index reads it anew");
        }
        self.feed.push(commits, last, pointers);
    }

    /// The writer leaves a segment when it is full, before it takes anything for the next one, or when the disk has failed
    /// on it: then what was taken for the batch is what failed.
    fn sealed(&self, _segment: &SegmentInfo) -> Option<SideFile> {
        self.table.rolled_back();
        None
    }

    fn settled(&self, _epoch: u64) {}

    fn trimmed(&self, _segment: SegmentId) {}
}
