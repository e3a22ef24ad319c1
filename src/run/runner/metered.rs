//! The ledger, counted: what is appended to it is all that the runner does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::{Clock, TenantId};
use runner::failure::FailureClass;
use runner::ids::RunId;
use runner::ledger::{
    AppendError, Body, BoxFuture, Claimable, Commit, Committed, LedgerStore, ParkReason, ReadError, Record, RunStatus,
    StepResult, Tail, TailPosition,
};
use tokio::sync::watch;

/// Upper bounds of append latencies, in milliseconds.
pub(super) const BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];

/// What was appended, by kind. Everything here counts from the start of the process.
#[derive(Debug)]
pub(crate) struct Counts {
    /// In the order of [`FailureClass::ALL`].
    pub(super) failed: Vec<AtomicU64>,
    pub(super) done: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) deferred: AtomicU64,
    pub(super) ambiguous: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) attempts: AtomicU64,
    pub(super) read_backs: AtomicU64,
    pub(super) admitted: AtomicU64,
    pub(super) quarantined: AtomicU64,
    pub(super) reruns: AtomicU64,
    pub(super) cancels: AtomicU64,
    pub(super) resolved: AtomicU64,
    /// In the order of [`PARKS`].
    pub(super) parked: Vec<AtomicU64>,
    /// In the order of [`ENDS`].
    pub(super) ended: Vec<AtomicU64>,
    pub(super) appends: Vec<AtomicU64>,
    pub(super) append_sum_us: AtomicU64,
    /// Commits that were not taken, since the run had gone on or was another's.
    pub(super) conflicts: AtomicU64,
    /// Commits of which nobody knows, or for which there was no room.
    pub(super) failures: AtomicU64,
}

pub(super) const PARKS: [(ParkReason, &str); 9] = [
    (ParkReason::Delay, "delay"),
    (ParkReason::Backoff, "backoff"),
    (ParkReason::Provider, "provider"),
    (ParkReason::Quota, "quota"),
    (ParkReason::Breaker, "breaker"),
    (ParkReason::NeedsReconnect, "needs-reconnect"),
    (ParkReason::Ambiguous, "ambiguous"),
    (ParkReason::Unavailable, "unavailable"),
    (ParkReason::Restart, "restart"),
];

pub(super) const ENDS: [(RunStatus, &str); 5] = [
    (RunStatus::Succeeded, "succeeded"),
    (RunStatus::Failed, "failed"),
    (RunStatus::Cancelled, "cancelled"),
    (RunStatus::TimedOut, "timed-out"),
    (RunStatus::EndedAmbiguous, "ended-ambiguous"),
];

impl Default for Counts {
    fn default() -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            failed: zeros(FailureClass::ALL.len()),
            done: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            ambiguous: AtomicU64::new(0),
            late: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            read_backs: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
            reruns: AtomicU64::new(0),
            cancels: AtomicU64::new(0),
            resolved: AtomicU64::new(0),
            parked: zeros(PARKS.len()),
            ended: zeros(ENDS.len()),
            appends: zeros(BOUNDS_MS.len() + 1),
            append_sum_us: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }
}

/// What a body counts as: read before it is handed over.
fn kind(body: &Body) -> Kind {
    match body {
        Body::Admitted(_) => Kind::Admitted,
        Body::Intent(intent) => Kind::Intent { is_read_back: intent.is_read_back },
        Body::Outcome(outcome) => match &outcome.result {
            StepResult::Done { .. } => Kind::Done,
            StepResult::Skipped => Kind::Skipped,
            StepResult::Failed { class, .. } => Kind::Failed(*class),
            StepResult::Deferred { .. } => Kind::Deferred,
            StepResult::Ambiguous(_) => Kind::Ambiguous,
        },
        Body::LateOutcome(_) => Kind::Late,
        Body::Parked(parked) => Kind::Parked(parked.reason),
        Body::Resolved(_) => Kind::Resolved,
        Body::Rerun(_) => Kind::Rerun,
        Body::CancelRequested(_) => Kind::Cancel,
        Body::Quarantined(_) => Kind::Quarantined,
        Body::Terminal(terminal) => Kind::Ended(terminal.status),
        Body::Lease(_) | Body::Released(_) | Body::Dismissed(_) => Kind::Other,
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Admitted,
    Intent { is_read_back: bool },
    Done,
    Skipped,
    Failed(FailureClass),
    Deferred,
    Ambiguous,
    Late,
    Parked(ParkReason),
    Resolved,
    Rerun,
    Cancel,
    Quarantined,
    Ended(RunStatus),
    Other,
}

impl Counts {
    fn add(&self, kind: Kind) {
        let at = |counters: &'_ [AtomicU64], place: Option<usize>| {
            if let Some(counter) = place.and_then(|place| counters.get(place)) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let one = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match kind {
            Kind::Admitted => one(&self.admitted),
            Kind::Intent { is_read_back: true } => one(&self.read_backs),
            Kind::Intent { is_read_back: false } => one(&self.attempts),
            Kind::Done => one(&self.done),
            Kind::Skipped => one(&self.skipped),
            Kind::Failed(class) => at(&self.failed, FailureClass::ALL.iter().position(|own| *own == class)),
            Kind::Deferred => one(&self.deferred),
            Kind::Ambiguous => one(&self.ambiguous),
            Kind::Late => one(&self.late),
            Kind::Parked(reason) => at(&self.parked, PARKS.iter().position(|(own, _)| *own == reason)),
            Kind::Resolved => one(&self.resolved),
            Kind::Rerun => one(&self.reruns),
            Kind::Cancel => one(&self.cancels),
            Kind::Quarantined => one(&self.quarantined),
            Kind::Ended(status) => at(&self.ended, ENDS.iter().position(|(own, _)| *own == status)),
            Kind::Other => {}
        }
    }

    fn took(&self, microseconds: u64) {
        let place = BOUNDS_MS.iter().position(|bound| microseconds <= bound * 1_000).unwrap_or(BOUNDS_MS.len());
        if let Some(bucket) = self.appends.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.append_sum_us.fetch_add(microseconds, Ordering::Relaxed);
    }
}

/// Counts what passes.
#[derive(Debug)]
pub(super) struct Metered {
    pub(super) inner: Arc<dyn LedgerStore>,
    pub(super) counts: Arc<Counts>,
    pub(super) clock: Arc<dyn Clock>,
}

impl LedgerStore for Metered {
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        let kinds: Vec<Kind> = commit.bodies.iter().map(kind).collect();
        let (counts, clock) = (Arc::clone(&self.counts), Arc::clone(&self.clock));
        let begun = clock.monotonic();
        let appended = self.inner.append(commit);
        Box::pin(async move {
            let outcome = appended.await;
            match &outcome {
                Ok(_) => {
                    for kind in kinds {
                        counts.add(kind);
                    }
                    let took = clock.monotonic().saturating_sub(begun);
                    counts.took(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                }
                Err(AppendError::Conflict { .. } | AppendError::Fenced { .. }) => {
                    counts.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    counts.failures.fetch_add(1, Ordering::Relaxed);
                }
            }
            outcome
        })
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>> {
        self.inner.read(tenant, run)
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>> {
        self.inner.tail(from, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn renew(&self, run: RunId, lease: u64, until_unix_ms: u64) -> BoxFuture<'static, Result<(), AppendError>> {
        self.inner.renew(run, lease, until_unix_ms)
    }

    fn claimable(&self, now_unix_ms: u64, max: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>> {
        self.inner.claimable(now_unix_ms, max)
    }
}
