//! An engine without a disk: the model that other engines are compared with, and the ledger of tests of what stands on one.
//! It suffers what is asked for: [`Fault`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, TenantId};
use tokio::sync::watch;

use super::record::{Body, QueueClass, Record};
use super::rules::{self, Head, Lapse};
use super::store::{AppendError, BoxFuture, Claimable, Commit, Committed, LedgerStore, ReadError, Tail, TailPosition};
use crate::ids::RunId;

/// What would be on the disk. It outlives each [`MemoryLedger`] that was opened on it.
#[derive(Debug, Clone, Default)]
pub struct MemoryLedgerStore(Arc<Disk>);

#[derive(Debug, Default)]
struct Disk {
    stored: Mutex<Stored>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Stored {
    heads: HashMap<RunId, Head>,
    /// In the order in which they were appended.
    records: VecDeque<Record>,
    /// How many of them the tail does not show any more.
    trimmed: u64,
    /// Where each run's own are, counted from the first that ever was.
    places: HashMap<RunId, Vec<u64>>,
}

/// What the next append suffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is appended, and the writer is told what a lost connection tells: that it may have been.
    FailBefore,
    /// It is appended, and the writer is told that it may have been.
    FailAfter,
    /// It is appended, and the writer is told nothing, ever. Who is refused is told so.
    NoReply,
    /// It is appended so much later. Others may come between.
    Late(Duration),
    /// It is appended at once, and the writer is told so much later.
    LateReply(Duration),
    /// Refused with this.
    Refuse(AppendError),
}

/// The ledger in memory.
#[derive(Debug)]
pub struct MemoryLedger {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: MemoryLedgerStore,
    /// Whose leases lapse by it; none: a ledger of one process, where all leases before it are void.
    clock: Option<Arc<dyn Clock>>,
    switches: Mutex<Switches>,
}

#[derive(Debug, Default)]
struct Switches {
    faults: VecDeque<Fault>,
    unreadable: Option<ReadError>,
    unrenewable: Option<AppendError>,
    is_closed: bool,
}

impl MemoryLedger {
    /// As a ledger that many processes share: a lease is another's until it lapses by this clock.
    pub fn shared(store: &MemoryLedgerStore, clock: Arc<dyn Clock>) -> Self {
        Self::open(store, Some(clock))
    }

    /// As a ledger of one process: any higher lease may be taken at any time, and nothing is ever claimable.
    pub fn of_one_process(store: &MemoryLedgerStore) -> Self {
        Self::open(store, None)
    }

    fn open(store: &MemoryLedgerStore, clock: Option<Arc<dyn Clock>>) -> Self {
        Self { shared: Arc::new(Shared { store: store.clone(), clock, switches: Mutex::default() }) }
    }

    /// Appends suffer these in the order in which they were asked for, one each.
    pub fn next(&self, fault: Fault) {
        self.shared.switches().faults.push_back(fault);
    }

    /// Faults that nothing has suffered yet.
    pub fn faults_left(&self) -> usize {
        self.shared.switches().faults.len()
    }

    /// Every read fails by this; none: reads work again.
    pub fn unreadable(&self, fault: Option<ReadError>) {
        self.shared.switches().unreadable = fault;
    }

    /// No lease is renewed, and this is said; none: they are again.
    pub fn unrenewable(&self, fault: Option<AppendError>) {
        self.shared.switches().unrenewable = fault;
    }

    /// Nothing is appended through this one any more.
    pub fn close(&self) {
        self.shared.switches().is_closed = true;
    }

    /// Drops the oldest records from the tail, so many that this many are left. Runs are read whole all the same.
    pub fn trim(&self, left: usize) {
        let mut stored = self.shared.store.lock();
        stored.trimmed = stored.trimmed.max(stored.records.len().saturating_sub(left) as u64);
    }

    /// Every record, in the order of the tail.
    pub fn records(&self) -> Vec<Record> {
        self.shared.store.lock().records.iter().cloned().collect()
    }
}

impl LedgerStore for MemoryLedger {
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        let (fault, is_closed) = {
            let mut switches = self.shared.switches();
            (switches.faults.pop_front(), switches.is_closed)
        };
        if is_closed {
            return answer(Err(AppendError::Closed));
        }
        let unknown = || AppendError::Unavailable("as a test has asked".into());
        match fault {
            None => answer(self.shared.append(&commit)),
            Some(Fault::FailBefore) => answer(Err(unknown())),
            // What was refused is known to be refused.
            Some(Fault::FailAfter) => answer(self.shared.append(&commit).and_then(|_| Err(unknown()))),
            Some(Fault::NoReply) => match self.shared.append(&commit) {
                Ok(_) => Box::pin(std::future::pending()),
                Err(error) => answer(Err(error)),
            },
            Some(Fault::Late(by)) => {
                let shared = Arc::clone(&self.shared);
                let task = tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    shared.append(&commit)
                });
                Box::pin(async move { task.await.unwrap_or(Err(AppendError::Closed)) })
            }
            Some(Fault::LateReply(by)) => {
                let appended = self.shared.append(&commit);
                Box::pin(async move {
                    tokio::time::sleep(by).await;
                    appended
                })
            }
            Some(Fault::Refuse(error)) => answer(Err(error)),
        }
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>> {
        answer(self.shared.readable().and_then(|()| self.shared.store.lock().read(tenant, run)))
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>> {
        answer(self.shared.readable().and_then(|()| self.shared.store.lock().tail(&from, max)))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.store.0.changes.subscribe()
    }

    fn renew(&self, run: RunId, lease: u64, until_unix_ms: u64) -> BoxFuture<'static, Result<(), AppendError>> {
        if let Some(fault) = self.shared.switches().unrenewable.clone() {
            return answer(Err(fault));
        }
        let mut stored = self.shared.store.lock();
        let renewed = match stored.heads.get_mut(&run) {
            Some(head) => head.renew(lease, until_unix_ms),
            None => Err(AppendError::Conflict { seq: 0 }),
        };
        answer(renewed)
    }

    fn claimable(&self, now_unix_ms: u64, max: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>> {
        let Some(clock) = &self.shared.clock else { return answer(self.shared.readable().map(|()| Vec::new())) };
        let lease_clock = clock.unix_ms();
        let readable = self.shared.readable();
        answer(readable.map(|()| self.shared.store.lock().claimable(lease_clock, now_unix_ms, max)))
    }
}

fn answer<T: Send + 'static>(answer: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(answer))
}

impl Shared {
    fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readable(&self) -> Result<(), ReadError> {
        self.switches().unreadable.clone().map_or(Ok(()), Err)
    }

    fn append(&self, commit: &Commit) -> Result<Committed, AppendError> {
        rules::check(commit)?;
        let lapse = self.clock.as_ref().map_or(Lapse::Known, |clock| Lapse::At(clock.unix_ms()));
        let mut stored = self.store.lock();
        let head = Head::after(stored.heads.get(&commit.run), commit, lapse)?;
        let committed = head.committed();
        for record in rules::records(commit, head.lease) {
            let place = stored.end();
            stored.places.entry(commit.run).or_default().push(place);
            stored.records.push_back(record);
        }
        stored.heads.insert(commit.run, head);
        self.store.0.changes.send_replace(stored.end());
        Ok(committed)
    }
}

impl MemoryLedgerStore {
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    fn end(&self) -> u64 {
        self.records.len() as u64
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> Result<Vec<Record>, ReadError> {
        let places = self.places.get(&run).map(Vec::as_slice).unwrap_or_default();
        let records = places.iter().filter_map(|place| self.records.get(usize::try_from(*place).ok()?));
        records
            .map(|record| {
                if record.tenant != *tenant {
                    return Err(ReadError::Tenant { run, found: record.tenant.clone(), asked: tenant.clone() });
                }
                Ok(record.clone())
            })
            .collect()
    }

    fn tail(&self, from: &TailPosition, max: usize) -> Result<Tail, ReadError> {
        let from = if *from == TailPosition::start() {
            self.trimmed
        } else {
            let from = from.0.as_ref().try_into().map(u64::from_be_bytes);
            from.ok().filter(|from| *from <= self.end()).ok_or_else(|| ReadError::Damaged("no such place".into()))?
        };
        if from < self.trimmed {
            return Err(ReadError::Trimmed);
        }
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let records: Vec<Record> = self.records.iter().skip(skipped).take(max).cloned().collect();
        let next = from + records.len() as u64;
        Ok(Tail { records, next: TailPosition(Box::new(next.to_be_bytes())) })
    }

    fn claimable(&self, lease_clock_unix_ms: u64, now_unix_ms: u64, max: usize) -> Vec<Claimable> {
        let can_go_on = self.heads.iter().filter(|(_, head)| head.is_claimable(lease_clock_unix_ms, now_unix_ms));
        let class = |run: &RunId| {
            let first = self.places.get(run)?.first()?;
            let Body::Admitted(admitted) = &self.records.get(usize::try_from(*first).ok()?)?.body else { return None };
            Some(admitted.class)
        };
        let mut runs: Vec<_> = can_go_on
            .map(|(run, head)| Claimable {
                tenant: head.tenant.clone(),
                run: *run,
                seq: head.seq,
                lease: head.lease,
                class: class(run).unwrap_or(QueueClass::Interactive),
            })
            .collect();
        runs.sort_by_key(|claimable| claimable.run);
        runs.truncate(max);
        runs
    }
}

#[cfg(test)]
mod tests;
