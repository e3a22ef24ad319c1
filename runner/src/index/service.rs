//! The index as others hold it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::{Clock, EventId, TenantId};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::IndexError;
use super::follow::{COMMANDS_MAX, Command, Counters, Follower, Following, Settled, Slot, UNSETTLED_MAX, blocking};
use super::generation;
use super::kept::DeadLetters;
use super::key;
use super::query::{self, Cursor, Page, RunFilter, Tally};
use super::repair::{self, RepairInbox};
use super::retention::Swept;
use super::row::{RunRow, is_over};
use super::settings::IndexSettings;
use super::store::{Faults, Shared, Store, read_period};
use crate::ids::RunId;
use crate::ledger::{LedgerStore, QueueClass, RunStatus, TailPosition};

/// The index, followed by a task of its own for as long as anybody holds it.
#[derive(Debug)]
pub struct RunIndex {
    directory: PathBuf,
    settings: IndexSettings,
    ledger: Arc<dyn LedgerStore>,
    clock: Arc<dyn Clock>,
    slot: Slot,
    kept: Arc<DeadLetters>,
    counters: Arc<Counters>,
    commands: mpsc::Sender<Command>,
    following: watch::Receiver<Following>,
    faults: Faults,
    /// The follower, until it is closed.
    task: Mutex<Option<JoinHandle<()>>>,
    /// One rebuild at a time.
    rebuilding: Mutex<()>,
}

/// Whether an answer has all that was durable when it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    pub is_stale: bool,
}

/// A run that is not over, for whoever goes on with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    pub tenant: TenantId,
    pub run: RunId,
    /// The queue that it began in.
    pub class: QueueClass,
    pub status: RunStatus,
    /// When it goes on by itself. None of a parked one: when somebody acts. 0: at once, since somebody has cancelled it and
    /// no worker has seen to that, whatever it waits for.
    pub until_unix_ms: Option<u64>,
    pub deadline_unix_ms: u64,
}

/// What came of putting a dead letter away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dismissal {
    Dismissed,
    /// There is no such run.
    Unknown,
    /// It is no dead letter; or it is one that somebody still has to decide about, since it is set aside and not over.
    NoDeadLetter,
}

/// What a rebuild did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    pub records: u64,
    pub orphans: u64,
    pub duration: Duration,
}

/// How the index is, for metrics and operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStat {
    pub following: Following,
    /// Since this process began.
    pub records: u64,
    pub batches: u64,
    pub healed: u64,
    pub orphans: u64,
    pub tenant_faults: u64,
    /// Wall clock of the writer of the newest record that is in; 0: none since this process began.
    pub newest_unix_ms: u64,
    pub periods: u64,
    pub disk_bytes: u64,
}

impl RunIndex {
    /// Opens the index and begins to follow. One that is missing, damaged or of another form is made anew from the ledger,
    /// behind this call: until it is at the end, [`caught_up`](Self::caught_up) says that it is stale.
    ///
    /// # Errors
    /// `Locked`: another process has it. `Unavailable`: the directory cannot be read or written. `Kept`: the store of
    /// dead letters beyond retention is damaged, which no rebuild can make anew; move `kept/` away to go on without them.
    pub async fn open(
        directory: &Path,
        settings: IndexSettings,
        ledger: Arc<dyn LedgerStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, IndexError> {
        let (at, with) = (directory.to_owned(), settings.clone());
        let faults = Faults::default();
        let counted = Arc::clone(&faults);
        let Stores { kept, store, place, is_new } = blocking(move || open_stores(&at, &with, &counted)).await?;
        let (kept, slot) = (Arc::new(kept), Arc::new(RwLock::new(Arc::clone(&store))));
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (state, following) = watch::channel(Following::default());
        let counters = Arc::new(Counters::default());
        let index = Arc::new(Self {
            directory: directory.to_owned(),
            settings: settings.clone(),
            ledger: Arc::clone(&ledger),
            clock: Arc::clone(&clock),
            slot: Arc::clone(&slot),
            kept: Arc::clone(&kept),
            counters: Arc::clone(&counters),
            commands: sender,
            following,
            faults,
            task: Mutex::new(None),
            rebuilding: Mutex::new(()),
        });
        // And the batch that was over the bound. In one that was made just now nothing was taken in before.
        let unsure = if is_new { 0 } else { UNSETTLED_MAX + settings.batch_records };
        let follower = Follower {
            ledger,
            store,
            slot,
            kept,
            settings,
            clock,
            counters,
            state,
            commands,
            place,
            settled: Settled::default(),
            unsure,
            waiters: Vec::new(),
        };
        *index.task.lock().await = Some(tokio::spawn(follower.run()));
        Ok(index)
    }

    fn store(&self) -> Shared {
        Arc::clone(&self.slot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until all is in that was durable when this was called, and no longer than `within`.
    pub async fn caught_up(&self, within: Duration) -> Freshness {
        let (waiter, done) = oneshot::channel();
        let is_asked = self.commands.try_send(Command::CatchUp(waiter)).is_ok();
        let is_done = is_asked && matches!(timeout(within, done).await, Ok(Ok(())));
        Freshness { is_stale: !is_done }
    }

    /// One run, also a dead letter beyond retention. None: it is not there, or another tenant's.
    pub async fn get(&self, tenant: &TenantId, run: RunId) -> Result<Option<RunRow>, IndexError> {
        let (store, kept, tenant) = (self.store(), Arc::clone(&self.kept), tenant.clone());
        blocking(move || find(&store, &kept, &tenant, run)).await
    }

    /// Runs that fit, newest first, behind a place.
    pub async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page, IndexError> {
        let (store, kept, tenant, filter) = (self.store(), Arc::clone(&self.kept), tenant.clone(), filter.clone());
        blocking(move || query::list(&store, &kept, &tenant, &filter, after, max)).await
    }

    /// The runs that an event's `executionId` names, newest first; replays of the event are among them.
    pub async fn runs_of(&self, tenant: &TenantId, event: EventId, max: usize) -> Result<Page, IndexError> {
        self.list(tenant, &RunFilter { event: Some(event), ..RunFilter::default() }, None, max).await
    }

    /// Names of a tenant's replays, at most `max` of them, those of the newest runs first.
    pub async fn replays(&self, tenant: &TenantId, max: usize) -> Result<Vec<Box<str>>, IndexError> {
        let (store, tenant) = (self.store(), tenant.clone());
        blocking(move || query::replays(&store, &tenant, max)).await
    }

    /// How many of the runs that fit are in each state.
    pub async fn tally(&self, tenant: &TenantId, filter: &RunFilter) -> Result<Tally, IndexError> {
        let (store, kept, tenant, filter) = (self.store(), Arc::clone(&self.kept), tenant.clone(), filter.clone());
        blocking(move || query::tally(&store, &kept, &tenant, &filter)).await
    }

    /// What waits for somebody.
    pub async fn repair_inbox(&self, tenant: &TenantId) -> Result<RepairInbox, IndexError> {
        let (store, tenant) = (self.store(), tenant.clone());
        blocking(move || repair::inbox(&store, &tenant)).await
    }

    /// Runs of all tenants that are not over, by tenant and run, behind one of them: how a scheduler finds at its start
    /// what to go on with. An empty page is the end. Ask [`caught_up`](Self::caught_up) first.
    pub async fn open_runs(
        &self,
        after: Option<(TenantId, RunId)>,
        max: usize,
    ) -> Result<(Vec<ActiveRun>, Option<(TenantId, RunId)>), IndexError> {
        let store = self.store();
        blocking(move || open_runs(&store, after, max)).await
    }

    /// Puts a dead letter away: it is listed as one no more, and not kept beyond retention.
    pub async fn dismiss(&self, tenant: &TenantId, run: RunId, by: &str) -> Result<Dismissal, IndexError> {
        let (store, kept, tenant, by) = (self.store(), Arc::clone(&self.kept), tenant.clone(), Box::<str>::from(by));
        let now = self.clock.unix_ms();
        blocking(move || {
            let Some(row) = find(&store, &kept, &tenant, run)? else { return Ok(Dismissal::Unknown) };
            if !is_over(row.status) || !row.is_dead_letter() {
                return Ok(Dismissal::NoDeadLetter);
            }
            kept.dismiss(&row, now, &by)?;
            Ok(Dismissal::Dismissed)
        })
        .await
    }

    /// Drops what is past the metadata tier. To be called now and then; twice is once.
    pub async fn sweep(&self) -> Result<Swept, IndexError> {
        let (done, swept) = oneshot::channel();
        let sweep = Command::Sweep { now_unix_ms: self.clock.unix_ms(), done };
        self.commands.send(sweep).await.map_err(|_| IndexError::Closed)?;
        swept.await.map_err(|_| IndexError::Closed)?
    }

    /// Makes the index anew from the ledger, beside the one that serves, and then serves that.
    pub async fn rebuild(&self) -> Result<Rebuilt, IndexError> {
        let _one = self.rebuilding.lock().await;
        let began = self.clock.monotonic();
        let (directory, settings, faults) = (self.directory.clone(), self.settings.clone(), Arc::clone(&self.faults));
        let (store, next) = blocking(move || {
            let next = generation::next(&directory)?;
            Ok((Arc::new(Store::open(&generation::path(&directory, next), &settings, &faults)?), next))
        })
        .await?;
        let (counters, place) = self.fill(Arc::clone(&store)).await?;
        let old = self.store();
        let (done, swapped) = oneshot::channel();
        self.commands.send(Command::Swap { store, place, done }).await.map_err(|_| IndexError::Closed)?;
        swapped.await.map_err(|_| IndexError::Closed)??;
        // Should the process end before this, the former one is still there, and is followed from where it was.
        let directory = self.directory.clone();
        blocking(move || generation::set(&directory, next)).await?;
        self.remove_old(old, next).await;
        let records = counters.records.load(Ordering::Relaxed);
        let orphans = counters.orphans.load(Ordering::Relaxed);
        let duration = self.clock.monotonic().saturating_sub(began);
        tracing::info!(records, orphans, ?duration, "the run index was made anew from the ledger");
        Ok(Rebuilt { records, orphans, duration })
    }

    /// Takes all that the ledger has into an empty store.
    async fn fill(&self, store: Shared) -> Result<(Arc<Counters>, TailPosition), IndexError> {
        let (state, _) = watch::channel(Following::default());
        let (_, commands) = mpsc::channel(1);
        let mut follower = Follower {
            ledger: Arc::clone(&self.ledger),
            slot: Arc::new(RwLock::new(Arc::clone(&store))),
            store,
            kept: Arc::clone(&self.kept),
            settings: self.settings.clone(),
            clock: Arc::clone(&self.clock),
            counters: Arc::default(),
            state,
            commands,
            place: TailPosition::start(),
            settled: Settled::default(),
            unsure: 0,
            waiters: Vec::new(),
        };
        follower.pass().await?;
        follower.settle(true).await?;
        Ok((follower.counters, follower.place))
    }

    /// Goes on with a store that has nothing yet, as a rebuild does with one that has nearly all.
    #[cfg(test)]
    pub(super) async fn swap_to_empty(&self, directory: &Path) -> Result<(), IndexError> {
        let store = Arc::new(Store::open(directory, &self.settings, &self.faults)?);
        let (done, swapped) = oneshot::channel();
        let swap = Command::Swap { store, place: TailPosition::start(), done };
        self.commands.send(swap).await.map_err(|_| IndexError::Closed)?;
        swapped.await.map_err(|_| IndexError::Closed)?
    }

    /// Deletes the generation that served, once nobody reads it; if somebody reads for long, the next start does it.
    async fn remove_old(&self, mut old: Shared, current: u64) {
        const PATIENCE: Duration = Duration::from_millis(20);
        for _ in 0..250 {
            match Arc::try_unwrap(old) {
                Ok(store) => {
                    let directory = self.directory.clone();
                    let removed = blocking(move || {
                        drop(store);
                        generation::remove_others(&directory, current)
                    });
                    if let Err(fault) = removed.await {
                        tracing::warn!(%fault, "the former run index cannot be deleted yet");
                    }
                    return;
                }
                Err(held) => old = held,
            }
            tokio::time::sleep(PATIENCE).await;
        }
    }

    /// How the follower is, as it changes.
    pub fn following(&self) -> watch::Receiver<Following> {
        self.following.clone()
    }

    pub async fn stat(&self) -> Result<IndexStat, IndexError> {
        let store = self.store();
        // Nobody says any more how it is, when it is gone.
        let is_gone = self.following.has_changed().is_err();
        let following = if is_gone { Following::Halted(IndexError::Closed) } else { self.following.borrow().clone() };
        let (counters, tenant_faults) = (Arc::clone(&self.counters), self.faults.load(Ordering::Relaxed));
        blocking(move || {
            Ok(IndexStat {
                following,
                records: counters.records.load(Ordering::Relaxed),
                batches: counters.batches.load(Ordering::Relaxed),
                healed: counters.healed.load(Ordering::Relaxed),
                orphans: counters.orphans.load(Ordering::Relaxed),
                tenant_faults,
                newest_unix_ms: counters.newest_unix_ms.load(Ordering::Relaxed),
                periods: store.periods().len() as u64,
                disk_bytes: store.database.disk_space()?,
            })
        })
        .await
    }

    /// Ends following, and puts the place on the disk. What is there can still be read.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(Command::Close(done)).await.is_ok() {
            // An error says that it is closed already.
            closed.await.unwrap_or_default();
        }
        // What it held is free when it is gone: whoever opens it next finds no lock.
        if let Some(task) = self.task.lock().await.take()
            && let Err(fault) = task.await
        {
            tracing::error!(%fault, "the follower of the run index ended badly");
        }
    }
}

/// Deletes the index, so that the next start makes it anew; dead letters beyond retention stay.
///
/// # Errors
/// `Locked`: a process has it open.
pub fn delete(directory: &Path) -> Result<(), IndexError> {
    let kept = DeadLetters::open(directory)?;
    // Nothing is called this generation: all go.
    generation::remove_others(directory, 0)?;
    drop(kept);
    Ok(())
}

/// What is open of a directory.
struct Stores {
    kept: DeadLetters,
    store: Shared,
    place: TailPosition,
    /// It was made just now.
    is_new: bool,
}

fn open_stores(directory: &Path, settings: &IndexSettings, faults: &Faults) -> Result<Stores, IndexError> {
    std::fs::create_dir_all(directory)?;
    // First, since its lock is the directory's.
    let kept = DeadLetters::open(directory)?;
    if let Some(current) = generation::current(directory)? {
        let path = generation::path(directory, current);
        let opened = if path.is_dir() {
            Store::open(&path, settings, faults).and_then(|store| Ok((store.place()?, store)))
        } else {
            Err(IndexError::Damaged("it is not there".into()))
        };
        match opened {
            Ok((place, store)) => {
                generation::remove_others(directory, current)?;
                return Ok(Stores { kept, store: Arc::new(store), place, is_new: false });
            }
            Err(IndexError::Damaged(fault)) => {
                tracing::warn!(%fault, "the run index cannot be used; it is made anew from the ledger");
            }
            Err(fault) => return Err(fault),
        }
    }
    let next = generation::next(directory)?;
    let store = Store::open(&generation::path(directory, next), settings, faults)?;
    generation::set(directory, next)?;
    generation::remove_others(directory, next)?;
    Ok(Stores { kept, store: Arc::new(store), place: TailPosition::start(), is_new: true })
}

fn find(store: &Store, kept: &DeadLetters, tenant: &TenantId, run: RunId) -> Result<Option<RunRow>, IndexError> {
    if let Some((_, row)) = store.row(tenant, run)? {
        return Ok(Some(row));
    }
    let bytes = kept.rows.get(key::row(tenant, run))?;
    bytes.map(|bytes| store.checked(&bytes, tenant, run)).transpose()
}

type OpenPage = (Vec<ActiveRun>, Option<(TenantId, RunId)>);

fn open_runs(store: &Store, after: Option<(TenantId, RunId)>, max: usize) -> Result<OpenPage, IndexError> {
    let mut from = after.map(|(tenant, run)| key::row(&tenant, run)).unwrap_or_default();
    // Behind that one: the next key that there can be.
    from.extend((!from.is_empty()).then_some(0));
    let mut runs = Vec::new();
    for guard in store.open.range(from..) {
        let (at, period) = guard.into_inner()?;
        let (tenant, run) = key::read_run(&at).ok_or_else(|| IndexError::Damaged("an open run's key".into()))?;
        let Some(pair) = store.pair(read_period(&period)?) else { continue };
        let Some(row) = store.row_in(&pair, &tenant, run)?.filter(|row| !is_over(row.status)) else { continue };
        runs.push(ActiveRun {
            tenant,
            run,
            class: row.class,
            status: row.status,
            until_unix_ms: if row.is_cancel_requested { Some(0) } else { row.park.and_then(|park| park.until_unix_ms) },
            deadline_unix_ms: row.deadline_unix_ms,
        });
        if runs.len() >= max.max(1) {
            let next = runs.last().map(|last| (last.tenant.clone(), last.run));
            return Ok((runs, next));
        }
    }
    Ok((runs, None))
}
