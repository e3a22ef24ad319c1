//! The ledger of one machine: a journal of commits, and an index of where each run's are.
//!
//! ```text
//! append ─▶ look, pin ─▶ journal's queue ─▶ check (compare and append) ─▶ durable ─▶ answer
//!              │  ▲                              │                           │
//!              ▼  │ not here                     ▼                           ▼ feed
//!            index (positions, open, tombstones) ◀──────────────────── index's thread
//! ```
//!
//! **What it guarantees** is what [`LedgerStore`] says. A commit is one record of the journal, so that its records are there
//! together or not at all. The journal is the truth; the index is made again from it, and is behind it by what its thread has
//! not come to: [`read`](LedgerStore::read) waits for that, and so sees all that was durable when it was asked.
//!
//! **One process.** A second one that opens the directory is told so. So all leases of earlier processes are void, nothing is
//! ever claimable, and a higher lease may be taken at any time.
//!
//! **Two tiers.** What is over the age of details goes, segment by segment, from the journal to the history, without its
//! payloads: [`retention`].

mod append;
mod catch_up;
mod feed;
mod index;
mod indexer;
mod pack;
mod reading;
mod recent;
pub mod retention;
mod settings;
mod stat;
mod table;
mod tail;
mod watcher;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use domain::{Clock, TenantId};
use eventlog::segment::{self, Journal, Near, Torn};
use tokio::sync::watch;

pub use catch_up::CatchUpError;
pub use index::IndexError;
pub use retention::{Ages, RetainError, Retained};
pub use settings::Settings;
pub use stat::{Report, Stat, VerifyError, verify};

use self::catch_up::catch_up;
use self::feed::Feed;
use self::index::{Index, Tier};
use self::indexer::{Indexer, Progress};
use self::recent::Recent;
use self::table::Table;
use self::watcher::Watcher;
use super::record::Record;
use super::store::{AppendError, BoxFuture, Claimable, Commit, Committed, LedgerStore, ReadError, Tail, TailPosition};
use crate::ids::RunId;

/// Why the ledger does not open. Nothing was changed but what an earlier process left half done.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process has the ledger in {0} open")]
    Locked(Box<str>),
    #[error("the ledger's directory: {0}")]
    Directory(#[source] io::Error),
    #[error("the ledger's journal: {0}")]
    Journal(#[from] segment::OpenError),
    #[error(transparent)]
    CatchUp(#[from] CatchUpError),
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// What opening has found and done.
#[derive(Debug, Default)]
pub struct Opened {
    /// Tails that an earlier process had not finished; they were cut.
    pub torn: Vec<Torn>,
    /// Known damage of the journals. A run that has records in it cannot be read.
    pub damage: Vec<segment::Damage>,
    /// Commits that had to be read, since the index did not have them.
    pub read: u64,
    /// Runs that are not over.
    pub open_runs: usize,
}

/// The ledger in a directory, open for one process. Dropping it is closing it.
#[derive(Debug)]
pub struct EmbeddedLedger {
    core: Arc<Core>,
    indexing: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Core {
    journal: Arc<Journal>,
    history: Journal,
    index: Arc<Index>,
    table: Arc<Table>,
    feed: Arc<Feed>,
    recent: Arc<Recent>,
    /// Of what is not there any more, by journal.
    near: Nearby,
    clock: Arc<dyn Clock>,
    progress: watch::Receiver<Progress>,
    changes: watch::Receiver<u64>,
    pack_bytes: usize,
    /// Held while something is moved to the history.
    moved: Mutex<retention::Moved>,
    /// Whoever has it has the directory. Last, so that it goes last.
    _lock: File,
}

/// Batches that runs were read from last.
#[derive(Debug, Default)]
struct Nearby {
    journal: Near,
    history: Near,
}

impl EmbeddedLedger {
    /// Opens the directory, and makes it if need be. Blocks for as long as it takes to read what the index does not have,
    /// and where each run stands that is not over; not for what was before.
    pub fn open(settings: &Settings, clock: Arc<dyn Clock>) -> Result<(Self, Opened), OpenError> {
        std::fs::create_dir_all(&settings.directory).map_err(OpenError::Directory)?;
        let lock = lock(&settings.directory)?;
        let index = Arc::new(Index::open(&settings.directory.join("index"), settings.index_cache_bytes)?);
        if settings.rebuilds_index {
            index.clear()?;
        }
        let table = Arc::new(Table::new(settings.recent_runs_max));
        let feed = Arc::new(Feed::new(settings.index_queue_max));
        let recent = Arc::new(Recent::new(settings.recent_bytes_max));
        let watcher =
            Arc::new(Watcher { table: Arc::clone(&table), feed: Arc::clone(&feed), recent: Arc::clone(&recent) });

        let options = settings.journal("history", settings.history_segment_bytes, &clock);
        let (history, of_history) = Journal::open(options)?;
        let options = settings.journal("journal", settings.segment_bytes, &clock);
        let (journal, of_journal) = Journal::open(segment::Options { observer: Some(watcher), ..options })?;
        let journal = Arc::new(journal);
        recent.begin(journal.durable());

        let up = index_all(&index, &journal, &history)?;
        index.open_runs(|run, known| table.restore(run, known))?;
        let progress = watch::Sender::new(Progress { commits: 0, failed: None });
        let changes = watch::Sender::new(0);
        let core = Arc::new(Core {
            journal: Arc::clone(&journal),
            history,
            index: Arc::clone(&index),
            table: Arc::clone(&table),
            feed: Arc::clone(&feed),
            recent,
            near: Nearby::default(),
            clock: Arc::clone(&clock),
            progress: progress.subscribe(),
            changes: changes.subscribe(),
            pack_bytes: settings.pack_bytes,
            moved: Mutex::new(retention::Moved::new(up.source)),
            _lock: lock,
        });
        let indexer = Indexer { index, journal, table, feed, clock, progress, changes, end: up.end, marked: up.end };
        let thread = std::thread::Builder::new().name("ledger-index".to_owned()).spawn(move || indexer.run());
        let ledger = Self { indexing: Mutex::new(Some(thread.map_err(OpenError::Directory)?)), core };
        let opened = Opened {
            torn: [of_history.torn, of_journal.torn].concat(),
            damage: [of_history.damage, of_journal.damage].concat(),
            read: up.commits,
            open_runs: ledger.core.table.counts().0,
        };
        Ok((ledger, opened))
    }

    /// Its journals, by name, the ones that are the truth: for whoever watches that they are still those that were.
    pub fn journals(&self) -> [(&'static str, &Journal); 2] {
        [("ledger", &*self.core.journal), ("history", &self.core.history)]
    }

    /// Makes durable what waits, then takes nothing more. Reading goes on.
    pub fn close(&self) {
        self.core.journal.close();
        self.core.history.close();
        self.core.feed.close();
        let thread = self.indexing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread of the ledger's index died");
        }
    }
}

impl Drop for EmbeddedLedger {
    fn drop(&mut self) {
        self.close();
    }
}

impl LedgerStore for EmbeddedLedger {
    /// Only where a runtime of tokio is, as all of these.
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        // A task of its own: it goes on, and asks again where it must, also if nobody waits any more.
        let appending = tokio::spawn(append::append(Arc::clone(&self.core), commit));
        Box::pin(
            async move { appending.await.unwrap_or_else(|_| Err(AppendError::Unavailable("its task ended".into()))) },
        )
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>> {
        Box::pin(reading::read(Arc::clone(&self.core), tenant.clone(), run))
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let walked = tokio::task::spawn_blocking(move || tail::tail(&core, &from, max)).await;
            walked.unwrap_or_else(|_| Err(ReadError::Unavailable("its thread ended".into())))
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.core.changes.clone()
    }

    /// There is one process, which knows who holds what: a lease lasts until a higher one is taken.
    fn renew(&self, run: RunId, lease: u64, _until_unix_ms: u64) -> BoxFuture<'static, Result<(), AppendError>> {
        Box::pin(append::renew(Arc::clone(&self.core), run, lease))
    }

    fn claimable(&self, _now_unix_ms: u64, _max: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// Locks the directory until the process ends, in whichever way.
fn lock(directory: &Path) -> Result<File, OpenError> {
    use rustix::fs::{FlockOperation, flock};
    let path = directory.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(OpenError::Directory)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Locked(directory.display().to_string().into())),
        Err(error) => Err(OpenError::Directory(error.into())),
    }
}

/// Enters what the index does not have. The history first, which is older; of the journal, what is not in the history.
fn index_all(index: &Index, journal: &Journal, history: &Journal) -> Result<catch_up::CaughtUp, OpenError> {
    match index_from_marks(index, journal, history) {
        Err(CatchUpError::Segment(segment::ReadError::NoSuchPosition(position))) => {
            tracing::warn!(%position, "the ledger's index is of other journals: it is made anew");
            index.clear()?;
            Ok(index_from_marks(index, journal, history)?)
        }
        other => Ok(other?),
    }
}

fn index_from_marks(index: &Index, journal: &Journal, history: &Journal) -> Result<catch_up::CaughtUp, CatchUpError> {
    let mark = index.mark(Tier::Journal)?;
    // What was moved was in the index before, and durably: then it is at another place now, and nothing else. In an index
    // that is made anew it is what comes first.
    let of_history = catch_up(history, index.mark(Tier::History)?, |pointers| match mark {
        Some(_) => index.moved(pointers),
        None => index.enter(Tier::History, pointers),
    })?;
    if let Some(end) = of_history.end {
        index.set_mark(Tier::History, end)?;
    }
    let source = match of_history.source {
        Some(source) => Some(source),
        None => retention::last_moved(history)?,
    };
    let from = mark.max(source.map(|source| source.after()));
    let of_journal = catch_up(journal, from, |pointers| index.enter(Tier::Journal, pointers))?;
    if let Some(end) = of_journal.end {
        index.set_mark(Tier::Journal, end)?;
    }
    let commits = of_history.commits + of_journal.commits;
    Ok(catch_up::CaughtUp { end: of_journal.end, source, commits })
}

#[cfg(test)]
mod tests;
