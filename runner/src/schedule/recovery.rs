//! Finding open runs: at start, when some were left out for want of room, and where another process has let go of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::TenantId;
use tokio::time::Instant;

use super::core::Taken;
use super::handle::Handle;
use crate::ids::RunId;
use crate::ledger::{BoxFuture, Claimable, LedgerStore, QueueClass, RunStatus};

/// Open runs in a projection of the ledger.
pub trait OpenRuns: Send + Sync + fmt::Debug {
    /// Runs that are not over, by tenant and run, behind one of them; at most `max`. With them, what to go on behind;
    /// none: that was the end.
    fn open_runs(
        &self,
        after: Option<(TenantId, RunId)>,
        max: usize,
    ) -> BoxFuture<'static, Result<OpenPage, OpenRunsError>>;
}

/// Some open runs, and behind which to go on.
pub type OpenPage = (Vec<ActiveRun>, Option<(TenantId, RunId)>);

/// A run that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    pub tenant: TenantId,
    pub run: RunId,
    /// The queue that it waits in when it goes on.
    pub class: QueueClass,
    /// Parked until then, in milliseconds since the Unix epoch, or 0 where it was cancelled; none: it is not parked, or waits
    /// for somebody.
    pub until_unix_ms: Option<u64>,
    pub deadline_unix_ms: u64,
    pub status: RunStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("open runs cannot be read: {0}")]
pub struct OpenRunsError(pub Box<str>);

/// Runs of one tenant that wait for somebody, found when a process starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StillWaiting {
    pub tenant: TenantId,
    /// That wait for somebody to choose, or for a connection to be made anew.
    pub attention: u64,
    pub quarantined: u64,
    /// One of them.
    pub first: RunId,
}

/// Who is told of them once more. A process that ends between a commit and its notice has told nobody; the ledger knows, and
/// so each start tells again, tenant by tenant, what waits. It neither waits nor fails.
pub trait Reminders: Send + Sync + fmt::Debug {
    fn remind(&self, waiting: StillWaiting);

    /// Those of so many tenants more were not told one by one.
    fn remind_of_more(&self, tenants: u64);
}

/// Tenants that are told of one by one at a start.
const TENANTS_TOLD_MAX: u64 = 1_000;

/// Counts what waits, tenant after tenant.
#[derive(Debug, Default)]
struct Reminding {
    /// None: nobody is told.
    who: Option<Arc<dyn Reminders>>,
    now: Option<StillWaiting>,
    tenants: u64,
}

impl Reminding {
    fn see(&mut self, run: &ActiveRun) {
        let (attention, quarantined) = match run.status {
            RunStatus::NeedsAttention => (1, 0),
            RunStatus::Quarantined => (0, 1),
            RunStatus::Queued
            | RunStatus::Running
            | RunStatus::Parked
            | RunStatus::Succeeded
            | RunStatus::Failed
            | RunStatus::Cancelled
            | RunStatus::TimedOut
            | RunStatus::EndedAmbiguous => return,
        };
        if self.now.as_ref().is_some_and(|now| now.tenant != run.tenant) {
            self.tell();
        }
        let first = || StillWaiting { tenant: run.tenant.clone(), attention: 0, quarantined: 0, first: run.run };
        let now = self.now.get_or_insert_with(first);
        now.attention += attention;
        now.quarantined += quarantined;
    }

    fn tell(&mut self) {
        let (Some(who), Some(now)) = (&self.who, self.now.take()) else { return };
        self.tenants += 1;
        if self.tenants <= TENANTS_TOLD_MAX {
            who.remind(now);
        }
    }

    fn end(&mut self) {
        self.tell();
        let more = self.tenants.saturating_sub(TENANTS_TOLD_MAX);
        if let Some(who) = self.who.take().filter(|_| more > 0) {
            who.remind_of_more(more);
        }
    }
}

/// Where open runs are found.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Gone through at the start and whenever runs were left out.
    pub open: Option<Arc<dyn OpenRuns>>,
    /// Asked each second for runs that another process has let go of.
    pub ledger: Option<Arc<dyn LedgerStore>>,
}

/// Rows that are asked for at a time.
const PAGE: usize = 1024;

/// Portions of claimable runs in one look: a node that is gone may have left a hundred thousand of them.
const PORTIONS_MAX: usize = 128;

/// Between two looks, and at most where they take long.
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(10);

/// Goes on for ever; dropping it ends it.
pub(super) async fn keep(handle: Handle, sources: Sources, mut reminders: Option<Arc<dyn Reminders>>) {
    let mut wants_all = true;
    // A scan of many runs is not to be most of what is done.
    let mut not_before = Instant::now();
    let mut is_told = false;
    loop {
        if let Some(open) = &sources.open {
            let now_unix_ms = handle.0.clock.unix_ms();
            wants_all |= Instant::now() >= not_before && handle.0.lock().core.wants_scan(now_unix_ms);
            if wants_all && Instant::now() >= not_before {
                let begun = Instant::now();
                // Whoever was told of a part is told again of all of it, and then no more.
                let mut reminding = Reminding { who: reminders.clone(), ..Reminding::default() };
                wants_all = !scan(&handle, &**open, &mut reminding).await;
                if !wants_all {
                    reminders = None;
                }
                not_before = Instant::now() + 4 * begun.elapsed();
            }
        }
        let begun = Instant::now();
        if let Some(ledger) = &sources.ledger {
            claim(&handle, &**ledger, &mut is_told).await;
        }
        // And neither is this.
        tokio::time::sleep(PERIOD.max(4 * begun.elapsed()).min(PERIOD_MAX)).await;
    }
}

/// Offers every open run that can go on by itself; says whether all were seen.
async fn scan(handle: &Handle, open: &dyn OpenRuns, reminding: &mut Reminding) -> bool {
    let (mut after, mut seen, mut taken) = (None, 0_u64, 0_u64);
    loop {
        let (page, next) = match open.open_runs(after, PAGE).await {
            Ok(page) => page,
            Err(fault) => {
                handle.0.lock().scan_failures += 1;
                tracing::error!(%fault, seen, "open runs were not all found; they are looked for again");
                return false;
            }
        };
        for run in &page {
            seen += 1;
            reminding.see(run);
            if let Some(at_unix_ms) = goes_on_at(run) {
                taken += u64::from(matches!(
                    handle.offer(&run.tenant, run.run, run.class, at_unix_ms),
                    Taken::Queued | Taken::Parked
                ));
            }
        }
        after = next;
        if after.is_none() {
            reminding.end();
            handle.0.lock().scans += 1;
            tracing::info!(seen, taken, "went through the open runs");
            return true;
        }
    }
}

/// When a run goes on by itself: 0 is at once, none is when somebody acts.
fn goes_on_at(run: &ActiveRun) -> Option<u64> {
    match run.status {
        RunStatus::Queued | RunStatus::Running => Some(0),
        // Whoever nobody acts on is ended by its deadline.
        RunStatus::Parked | RunStatus::NeedsAttention => Some(run.until_unix_ms.unwrap_or(run.deadline_unix_ms)),
        // Who cancels it ends it, and nothing else does by itself.
        RunStatus::Quarantined => run.until_unix_ms,
        RunStatus::Succeeded
        | RunStatus::Failed
        | RunStatus::Cancelled
        | RunStatus::TimedOut
        | RunStatus::EndedAmbiguous => None,
    }
}

/// Looks for runs that nobody works on, portion by portion for as long as a portion is full and brings something new; what
/// is left is come to in the next look. Whoever is quicker has the lease; the others are fenced and let go. An error is told
/// once, until it is over.
async fn claim(handle: &Handle, ledger: &dyn LedgerStore, told: &mut bool) {
    for _ in 0..PORTIONS_MAX {
        let now_unix_ms = handle.0.clock.unix_ms();
        let found = match ledger.claimable(now_unix_ms, PAGE).await {
            Ok(found) => found,
            Err(fault) => {
                handle.0.lock().scan_failures += 1;
                if !std::mem::replace(told, true) {
                    tracing::warn!(%fault, "runs that others let go of cannot be found for the moment");
                }
                return;
            }
        };
        *told = false;
        let is_full = found.len() >= PAGE;
        let mut is_news = false;
        for run in found {
            let class = class_of(&run);
            is_news |= handle.claim(&run.tenant, run.run, class) == Taken::Queued;
        }
        if !is_full || !is_news {
            return;
        }
    }
}

/// One that nobody has begun with waits as it would have. Another was interrupted, or its time has come; bulk stays behind
/// everybody else's.
fn class_of(run: &Claimable) -> QueueClass {
    match run.class {
        class if run.seq == 1 => class,
        QueueClass::Bulk => QueueClass::Bulk,
        QueueClass::Interactive | QueueClass::Retry | QueueClass::ParkedRelease => QueueClass::Retry,
    }
}
