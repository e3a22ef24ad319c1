//! Whose run is next.
//!
//! [`core`] decides, and does nothing else; [`Scheduler`] gives its slots away and drives what gets one, and [`Handle`] is
//! how everybody else hands runs in. What waits here is a copy of what the ledger says: losing it loses nothing, for
//! [`recovery`] finds open runs again.

pub mod core;
mod handle;
pub mod recovery;
mod service;
pub mod snapshot;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;

use domain::TenantId;

use crate::ids::RunId;
use crate::ledger::{BoxFuture, QueueClass};

pub use handle::Handle;
pub use recovery::{ActiveRun, OpenPage, OpenRuns, OpenRunsError, Reminders, Sources, StillWaiting};
pub use service::{Drained, Scheduler, Settings};
pub use snapshot::{Snapshot, Waits};

/// Takes a run as far as it goes: the engine, for the scheduler.
pub trait Drive: Send + Sync + fmt::Debug {
    /// Goes on with the run until it ends, parks or is taken away. Dropping the future is a crash of that worker, and is
    /// safe as one is.
    fn drive(&self, turn: Turn) -> BoxFuture<'_, Ended>;
}

/// One run's turn on a slot.
#[derive(Debug, Clone)]
pub struct Turn {
    pub tenant: TenantId,
    pub run: RunId,
    pub class: QueueClass,
    /// Changes when somebody appended something to the run that its worker did not write: a cancellation above all.
    pub nudged: tokio::sync::watch::Receiver<u64>,
    /// True once the process stops: what is under way is taken to its end and written, and nothing new is begun.
    pub stopping: tokio::sync::watch::Receiver<bool>,
}

/// Why a turn is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The run is terminal.
    Terminal,
    /// Nobody works on it until then; none: until somebody acts.
    Parked { until_unix_ms: Option<u64>, class: QueueClass },
    /// Another worker has it.
    Fenced,
    /// The ledger did not take or give its records; the run is as it was. Try again after so many milliseconds.
    Unavailable { retry_ms: u64 },
}

/// Where runs that can go on are handed in.
pub trait Queue: Send + Sync + fmt::Debug {
    /// The run can go on now. A run that is queued or under way is not queued twice: it is nudged.
    fn enqueue(&self, tenant: TenantId, run: RunId, class: QueueClass);

    /// The run can go on at a time.
    fn enqueue_at(&self, tenant: TenantId, run: RunId, class: QueueClass, at_unix_ms: u64);

    /// Somebody appended something to the run.
    fn nudge(&self, tenant: &TenantId, run: RunId);
}

/// Which tier a tenant is in, and how many slots it may hold; asked for each run that is handed in, so it must be quick.
pub trait Tiers: Send + Sync + fmt::Debug {
    fn member_of(&self, tenant: &TenantId) -> core::Member;
}

/// Everybody is in the first tier.
#[derive(Debug, Clone, Copy, Default)]
pub struct OneTier;

impl Tiers for OneTier {
    fn member_of(&self, _tenant: &TenantId) -> core::Member {
        core::Member::of(0)
    }
}
