//! The index's thread: enters what became durable, and tells those who wait.

use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use eventlog::segment::{Journal, Position};
use tokio::sync::watch;

use super::catch_up::{CatchUpError, catch_up};
use super::feed::{Feed, Work};
use super::index::{Index, Tier};
use super::table::Table;

/// After so many commits, or so long, what was entered is made durable: that much is read again after a crash.
const MARK_COMMITS: u64 = 65_536;
const MARK_AGE: Duration = Duration::from_secs(5);

/// How far the index is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// Commits since the ledger was opened.
    pub(super) commits: u64,
    /// Why it goes no further, if so.
    pub(super) failed: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Indexer {
    pub(super) index: Arc<Index>,
    pub(super) journal: Arc<Journal>,
    pub(super) table: Arc<Table>,
    pub(super) feed: Arc<Feed>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) changes: watch::Sender<u64>,
    /// Behind the last commit that is in the index.
    pub(super) end: Option<Position>,
    pub(super) marked: Option<Position>,
}

impl Indexer {
    pub(super) fn run(mut self) {
        let mut unmarked = 0;
        let mut marked_at = self.clock.monotonic();
        while let Some(work) = self.feed.take() {
            self.until_published(&work);
            self.changes.send_replace(work.commits);
            if self.progress.borrow().failed.is_some() {
                continue;
            }
            unmarked += work.pointers.len() as u64;
            if let Err(error) = self.enter(&work) {
                self.fail(&error);
                continue;
            }
            self.progress.send_modify(|progress| progress.commits = work.commits);
            self.table.evict(work.commits);
            let now = self.clock.monotonic();
            if unmarked >= MARK_COMMITS || now.saturating_sub(marked_at) >= MARK_AGE {
                self.mark();
                (unmarked, marked_at) = (0, now);
            }
        }
        self.mark();
    }

    /// The journal tells what is durable a moment before a reader may go there.
    fn until_published(&self, work: &Work) {
        let Some(last) = work.last else { return };
        while self.journal.durable() <= last {
            std::thread::yield_now();
        }
    }

    fn enter(&mut self, work: &Work) -> Result<(), CatchUpError> {
        self.index.enter(Tier::Journal, &work.pointers)?;
        if let Some(last) = work.pointers.last() {
            self.end = Some(last.position.after());
        }
        if work.missed {
            let caught_up = catch_up(&self.journal, self.end, |pointers| self.index.enter(Tier::Journal, pointers))?;
            self.end = caught_up.end.or(self.end);
            tracing::warn!(commits = caught_up.commits, "the ledger's index was behind, and has read them");
        }
        Ok(())
    }

    fn mark(&mut self) {
        let Some(end) = self.end.filter(|end| Some(*end) != self.marked) else { return };
        match self.index.set_mark(Tier::Journal, end) {
            Ok(()) => self.marked = Some(end),
            Err(error) => self.fail(&error.into()),
        }
    }

    /// From here on no run is read and none is admitted, until it is opened anew: what is in the index cannot be known.
    fn fail(&self, error: &CatchUpError) {
        tracing::error!(%error, "the ledger's index failed: runs are neither read nor admitted");
        self.progress.send_modify(|progress| progress.failed = Some(error.to_string().into()));
    }
}
