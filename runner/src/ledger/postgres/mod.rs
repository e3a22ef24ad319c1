//! The ledger as rows of PostgreSQL, which many processes share.
//!
//! ```text
//! append ──▶ queue of the run's shard ──▶ batch ──one flight──▶ BEGIN
//!                                                               the shard's row: places for all of the batch
//!                                                               heads: inserted, or moved on where (run, seq, lease) fit
//!                                                               commits: of the heads that carry the batch's tokens
//!                                                               heads as they are: who was taken, and why who was not
//!                                                               COMMIT
//! ```
//!
//! The shard's row is held from the first statement to the commit, so that places of the tail are in the order in which
//! they become visible: a reader that has seen a place has seen all before it, and nothing that commits late is skipped.
//! Leases lapse by the database's clock. What is not known after a lost connection is [`AppendError::Unavailable`].
//!
//! [`AppendError::Unavailable`]: super::AppendError::Unavailable

mod acts;
mod batch;
mod blobs;
mod position;
mod reading;
mod renewing;
mod retention;
mod sql;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Clock, TenantId};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::record::Record;
use super::rules;
use super::store::{AppendError, BoxFuture, Claimable, Commit, Committed, LedgerStore, ReadError, Tail, TailPosition};
use crate::ids::RunId;
use crate::postgres::{Database, MigrateError, Pool, PostgresSettings, SHARDS};
use writer::{Asked, QUEUE_BYTES_MAX, Writing};

pub use acts::Acts;
pub use retention::{RetainError, Retained};

/// The ledger in PostgreSQL. When it is dropped, what was asked for is still written.
#[derive(Debug)]
pub struct PostgresLedger {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    /// One per shard; none when it is closed.
    queues: Mutex<Vec<mpsc::UnboundedSender<Asked>>>,
    /// Bytes of all that waits: what bounds the queues.
    room: Arc<Semaphore>,
    changes: watch::Sender<u64>,
    /// Looks for what others append.
    looking: JoinHandle<()>,
    /// Heard by each task that writes, until it has ended.
    writing: watch::Sender<()>,
    /// Behind which run the next look for claimable ones goes on: its time, its id.
    claimed: Arc<Mutex<(i64, Vec<u8>)>>,
    /// Why the database did not answer when it was last asked.
    fault: watch::Receiver<Option<Box<str>>>,
}

impl PostgresLedger {
    /// Opens it, and makes its tables what they are to be. The clock is that of this process's writers: leases are renewed
    /// until a time of theirs.
    ///
    /// # Errors
    /// The database cannot be reached, or its tables are newer.
    pub async fn open(settings: PostgresSettings, clock: Arc<dyn Clock>) -> Result<Self, MigrateError> {
        Self::on(&Database::open(settings).await?, clock).await
    }

    /// The same on a database that is open, whose connections others use too.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn on(database: &Database, clock: Arc<dyn Clock>) -> Result<Self, MigrateError> {
        let pool = Arc::clone(&database.pool);
        // Before anybody is told that it is open: what others append from here on is told.
        let seen = reading::progress(&pool).await.map_err(MigrateError::Database)?;
        let (changes, writing) = (watch::Sender::new(0), watch::Sender::new(()));
        let queue = |shard| {
            let (queue, waiting) = mpsc::unbounded_channel();
            let writer = Writing::new(shard, Arc::clone(&pool), changes.clone());
            let heard = writing.subscribe();
            tokio::spawn(async move {
                writer.run(waiting).await;
                drop(heard);
            });
            queue
        };
        let (told, fault) = watch::channel(None);
        let looking = reading::Looking { pool: Arc::clone(&pool), changes: changes.clone(), told };
        Ok(Self {
            queues: Mutex::new((0..SHARDS).map(queue).collect()),
            room: Arc::new(Semaphore::new(QUEUE_BYTES_MAX)),
            looking: tokio::spawn(looking.run(seen)),
            pool,
            clock,
            changes,
            writing,
            claimed: Arc::default(),
            fault,
        })
    }

    /// Why the database did not answer when it was last asked, which is several times a second.
    pub fn fault(&self) -> Option<Box<str>> {
        self.fault.borrow().clone()
    }

    /// Runs that are not over, of all nodes.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn open_runs(&self) -> Result<u64, ReadError> {
        reading::open_runs(&self.pool).await
    }

    /// Takes nothing more, and waits until everybody who asked is answered.
    pub async fn close(&self) {
        self.queues().clear();
        self.writing.closed().await;
    }

    fn queues(&self) -> MutexGuard<'_, Vec<mpsc::UnboundedSender<Asked>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts it where its shard's task finds it.
    fn ask(&self, commit: Commit) -> Result<oneshot::Receiver<Result<Committed, AppendError>>, AppendError> {
        rules::check(&commit)?;
        let bytes = u32::try_from(rules::commit_bytes(&commit)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let room = room.map_err(|_| AppendError::Unavailable("too much waits to be written".into()))?;
        let (answer, answered) = oneshot::channel();
        let until = Instant::now() + self.pool.settings.answer_within;
        let shard = usize::from(commit.run.as_bytes()[0] % SHARDS);
        let queues = self.queues();
        let queue = queues.get(shard).ok_or(AppendError::Closed)?;
        queue.send(Asked { commit, answer, until, _room: room }).map_err(|_| AppendError::Closed)?;
        Ok(answered)
    }
}

impl Drop for PostgresLedger {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

impl LedgerStore for PostgresLedger {
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        let (asked, within) = (self.ask(commit), self.pool.settings.answer_within);
        Box::pin(async move {
            let unavailable = |why: &str| AppendError::Unavailable(why.into());
            match timeout(within, asked?).await {
                Ok(Ok(answer)) => answer,
                // It was not begun, or its task was ended with the runtime.
                Ok(Err(_)) => Err(unavailable("it was given up")),
                Err(_) => Err(unavailable("no answer in time")),
            }
        })
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>> {
        let (pool, tenant) = (Arc::clone(&self.pool), tenant.clone());
        Box::pin(async move { reading::read(&pool, &tenant, run).await })
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move { reading::tail(&pool, &from, max).await })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn renew(&self, run: RunId, lease: u64, until_unix_ms: u64) -> BoxFuture<'static, Result<(), AppendError>> {
        let pool = Arc::clone(&self.pool);
        // The database's clock may show another time: what is asked for is a span.
        let span = until_unix_ms.saturating_sub(self.clock.unix_ms());
        Box::pin(async move { renewing::renew(&pool, run, lease, span).await })
    }

    fn claimable(&self, now_unix_ms: u64, max: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>> {
        let (pool, after) = (Arc::clone(&self.pool), Arc::clone(&self.claimed));
        Box::pin(async move { reading::claimable(&pool, &after, now_unix_ms, max).await })
    }
}
