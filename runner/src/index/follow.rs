//! The follower: one task that tails the ledger and keeps the index behind it.

use std::mem;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::Clock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::batch::Batch;
use super::error::IndexError;
use super::kept::DeadLetters;
use super::retention::{self, Swept};
use super::settings::IndexSettings;
use super::store::Shared;
use crate::ledger::{Admitted, Body, Kept, LedgerStore, Payload, ReadError, Record, Rerun, StepResult, TailPosition};

/// What the follower has done since it was begun.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) records: AtomicU64,
    pub(super) batches: AtomicU64,
    /// Runs that were read whole, since records before those that came are not known here.
    pub(super) healed: AtomicU64,
    /// Runs whose admission is nowhere any more: they are in no list.
    pub(super) orphans: AtomicU64,
    /// Wall clock of the writer of the newest record that is in, in milliseconds since the Unix epoch.
    pub(super) newest_unix_ms: AtomicU64,
}

/// How the follower is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Following {
    /// It has not been at the ledger's end since it was begun.
    #[default]
    CatchingUp,
    AtEnd,
    /// It tries again by itself.
    Failing(IndexError),
    /// A tenant's mark is wrong, or the ledger or the index is damaged: it goes no further until somebody has looked.
    Halted(IndexError),
}

/// What the follower is asked.
#[derive(Debug)]
pub(super) enum Command {
    /// To say when all is in that was durable when this was sent.
    CatchUp(oneshot::Sender<()>),
    /// To drop what is past its time. It writes alone, and so nobody writes meanwhile.
    Sweep {
        now_unix_ms: u64,
        done: oneshot::Sender<Result<Swept, IndexError>>,
    },
    /// To go on with another store.
    Swap {
        store: Shared,
        place: TailPosition,
        done: oneshot::Sender<Result<(), IndexError>>,
    },
    Close(oneshot::Sender<()>),
}

/// Commands that wait: beyond that, whoever asks is answered at once that what there is may be stale.
pub(super) const COMMANDS_MAX: usize = 1_024;

/// The store that is read, for everybody.
pub(super) type Slot = Arc<RwLock<Shared>>;

pub(super) struct Follower {
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) store: Shared,
    pub(super) slot: Slot,
    pub(super) kept: Arc<DeadLetters>,
    pub(super) settings: IndexSettings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counters: Arc<Counters>,
    pub(super) state: watch::Sender<Following>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) place: TailPosition,
    pub(super) settled: Settled,
    /// Records that it reads from its start on that may have been taken in before, in part. None of those is that came
    /// to the ledger since: it is 0 once all is in that was there at the start.
    pub(super) unsure: usize,
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}

/// When the place was last put on the disk, and whether anything is in since.
#[derive(Debug, Default)]
pub(super) struct Settled {
    at: Duration,
    is_dirty: bool,
    /// Records since.
    behind: usize,
}

/// Records that are taken in before the place is put on the disk again, but for a batch: so many have to be doubted when a
/// place is come back to.
pub(super) const UNSETTLED_MAX: usize = 65_536;

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Whether to go on.
type Goes = ControlFlow<()>;

impl Follower {
    /// Until it is closed, or nobody holds the index any more.
    pub(super) async fn run(mut self) {
        let mut changes = self.ledger.changes();
        let mut retry = RETRY_FIRST;
        loop {
            // Whoever asked before this pass begins is answered when it is at the end.
            changes.mark_unchanged();
            while let Ok(command) = self.commands.try_recv() {
                if self.obey(command).await.is_break() {
                    return;
                }
            }
            let goes = match self.pass().await {
                Ok(()) => {
                    retry = RETRY_FIRST;
                    self.unsure = 0;
                    self.set(Following::AtEnd);
                    for waiter in self.waiters.drain(..) {
                        // Whoever is gone wants no answer.
                        let _gone = waiter.send(());
                    }
                    self.wait(&mut changes).await
                }
                Err(fault) if is_for_good(&fault) => {
                    tracing::error!(%fault, "the run index has halted");
                    self.set(Following::Halted(fault));
                    self.halted().await
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the run index cannot follow the ledger");
                    self.set(Following::Failing(fault));
                    sleep(retry).await;
                    retry = (retry * 2).min(RETRY_MAX);
                    Goes::Continue(())
                }
            };
            if goes.is_break() {
                return;
            }
        }
    }

    fn set(&self, following: Following) {
        self.state.send_if_modified(|state| {
            let is_new = *state != following;
            *state = following;
            is_new
        });
    }

    /// Until there is something to do.
    async fn wait(&mut self, changes: &mut watch::Receiver<u64>) -> Goes {
        loop {
            tokio::select! {
                command = self.commands.recv() => return self.obey_next(command).await,
                changed = changes.changed() => {
                    if changed.is_err() {
                        // The ledger is closed: nothing more will come, and what is there can still be read.
                        return self.halted().await;
                    }
                    // Others may follow closely, and together they cost less.
                    return match timeout(self.settings.linger, self.commands.recv()).await {
                        Ok(command) => self.obey_next(command).await,
                        Err(_) => Goes::Continue(()),
                    };
                },
                () = sleep(self.settings.settle_every), if self.settled.is_dirty => self.settle_or_tell().await,
            }
        }
    }

    /// Until there is another store to go on with.
    async fn halted(&mut self) -> Goes {
        self.waiters.clear();
        while let Some(command) = self.commands.recv().await {
            let was = Arc::clone(&self.store);
            if let Command::CatchUp(_) = command {
                continue;
            }
            if self.obey(command).await.is_break() {
                return Goes::Break(());
            }
            if !Arc::ptr_eq(&was, &self.store) {
                return Goes::Continue(());
            }
        }
        Goes::Break(())
    }

    async fn obey_next(&mut self, command: Option<Command>) -> Goes {
        let Some(command) = command else {
            self.settle_or_tell().await;
            return Goes::Break(());
        };
        self.obey(command).await
    }

    async fn obey(&mut self, command: Command) -> Goes {
        match command {
            Command::CatchUp(waiter) => self.waiters.push(waiter),
            Command::Sweep { now_unix_ms, done } => {
                let (store, kept, settings) = (Arc::clone(&self.store), Arc::clone(&self.kept), self.settings.clone());
                let swept = blocking(move || retention::sweep(&store, &kept, &settings, now_unix_ms)).await;
                let _gone = done.send(swept);
            }
            Command::Swap { store, place, done } => {
                let swapped = self.swap(store, place).await;
                let _gone = done.send(swapped);
            }
            Command::Close(done) => {
                self.settle_or_tell().await;
                let _gone = done.send(());
                return Goes::Break(());
            }
        }
        Goes::Continue(())
    }

    /// Goes on with another store, once that has all that the one before has: nobody sees a run go back.
    async fn swap(&mut self, store: Shared, place: TailPosition) -> Result<(), IndexError> {
        let before = (mem::replace(&mut self.store, store), mem::replace(&mut self.place, place));
        if let Err(fault) = self.pass().await {
            (self.store, self.place) = before;
            return Err(fault);
        }
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.store);
        Ok(())
    }

    async fn settle_or_tell(&mut self) {
        if let Err(fault) = self.settle(true).await {
            tracing::warn!(%fault, "the run index cannot say how far it is, and would read a little again");
        }
    }

    /// Takes in all that was durable when this began, and what comes meanwhile as far as it is little.
    pub(super) async fn pass(&mut self) -> Result<(), IndexError> {
        // An empty tail is the end. With writers that never rest there is always something: then two tails in a row that
        // no bound has cut, for an engine that cut the first would have gone on in the second.
        let mut uncut = 0;
        while uncut < 2 {
            let max = self.settings.batch_records;
            let tail = match self.ledger.tail(self.place.clone(), max).await {
                Err(ReadError::Trimmed) => {
                    tracing::warn!(
                        "the ledger has dropped records that the run index has not seen: it begins at its start"
                    );
                    self.place = TailPosition::start();
                    self.ledger.tail(self.place.clone(), max).await?
                }
                answer => answer?,
            };
            let count = tail.records.len();
            let is_cut = count >= max || tail.records.iter().map(weight).sum::<usize>() >= TAIL_BYTES;
            uncut = if is_cut { 0 } else { uncut + 1 };
            if count > 0 {
                self.take(tail.records).await?;
                self.settled.is_dirty = true;
            }
            self.place = tail.next;
            self.settle(false).await?;
            if count == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn take(&mut self, records: Vec<Record>) -> Result<(), IndexError> {
        let (count, newest) = (records.len(), records.iter().map(|record| record.at_unix_ms).max());
        let store = Arc::clone(&self.store);
        let mut batch = blocking(move || Batch::fold(&store, &records)).await?;
        for (tenant, run) in batch.gaps() {
            let is_healed = batch.heal(run, &self.ledger.read(&tenant, run).await?);
            let counter = if is_healed { &self.counters.healed } else { &self.counters.orphans };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if self.unsure > 0 {
            for (tenant, run) in batch.runs() {
                batch.clean(run, &self.ledger.read(&tenant, run).await?);
            }
        }
        self.unsure = self.unsure.saturating_sub(count);
        self.settled.behind += count;
        let store = Arc::clone(&self.store);
        blocking(move || batch.write(&store)).await?;
        self.counters.records.fetch_add(count as u64, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.newest_unix_ms.fetch_max(newest.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn settle(&mut self, is_due: bool) -> Result<(), IndexError> {
        let now = self.clock.monotonic();
        let is_due = is_due
            || self.settled.behind >= UNSETTLED_MAX
            || now.saturating_sub(self.settled.at) >= self.settings.settle_every;
        if !self.settled.is_dirty || !is_due {
            return Ok(());
        }
        let (store, place) = (Arc::clone(&self.store), self.place.clone());
        blocking(move || store.settle(&place)).await?;
        self.settled = Settled { at: now, is_dirty: false, behind: 0 };
        Ok(())
    }
}

/// A tail with fewer bytes of payload than this is cut by no engine: they bound an answer at several times as much.
const TAIL_BYTES: usize = 1 << 20;

/// Bytes of a record that can be many.
fn weight(record: &Record) -> usize {
    let kept = |payload: &Payload| match &payload.kept {
        Kept::Inline(bytes) | Kept::Truncated(bytes) | Kept::Beginning(bytes) => bytes.len(),
        Kept::Stored | Kept::Expired => 0,
    };
    match &record.body {
        Body::Admitted(Admitted { input: Some(input), .. }) | Body::Rerun(Rerun { input: Some(input), .. }) => {
            kept(input)
        }
        Body::Intent(intent) => kept(&intent.input),
        Body::Outcome(outcome) | Body::LateOutcome(outcome) => match &outcome.result {
            StepResult::Done { output } => kept(output),
            StepResult::Failed { detail, .. } => detail.len(),
            StepResult::Skipped | StepResult::Deferred { .. } | StepResult::Ambiguous(_) => 0,
        },
        Body::Admitted(_)
        | Body::Rerun(_)
        | Body::Lease(_)
        | Body::Parked(_)
        | Body::Released(_)
        | Body::Resolved(_)
        | Body::CancelRequested(_)
        | Body::Quarantined(_)
        | Body::Terminal(_) => 0,
        Body::Dismissed(dismissed) => dismissed.reason.len(),
    }
}

/// Time does not make it better.
fn is_for_good(fault: &IndexError) -> bool {
    match fault {
        IndexError::Tenant { .. }
        | IndexError::Damaged(_)
        | IndexError::Kept { .. }
        | IndexError::Ledger(ReadError::Tenant { .. } | ReadError::Damaged(_)) => true,
        IndexError::Unavailable(_)
        | IndexError::Poisoned
        | IndexError::Ledger(ReadError::Unavailable(_) | ReadError::Trimmed)
        | IndexError::Cursor
        | IndexError::Locked
        | IndexError::Closed => false,
    }
}

/// Off the reactor: the engine underneath waits for its disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IndexError> + Send + 'static,
) -> Result<T, IndexError> {
    match spawn_blocking(work).await {
        Ok(answer) => answer,
        // The engine underneath asserts what it takes for granted of its files.
        Err(fault) if fault.is_panic() => Err(IndexError::Damaged("the engine underneath gave up".into())),
        Err(_) => Err(IndexError::Closed),
    }
}
