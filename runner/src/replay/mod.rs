//! Events of the log once more: counted first, then begun as bulk runs that give way to everything else.
//!
//! **Plan**: [`Replays::plan`] goes through the log and the history and does nothing. A [`Plan`] says how many events it is
//! about, how many runs they would be, and of how many of these an earlier run may have had an effect, which would happen
//! again: a replay has effect keys of its own, so that no provider takes it for a retry. Its digest names exactly these runs.
//!
//! **Execution**: [`Replays::execute`] is given the plan, an id, and how many duplicates are accepted. The plan is made
//! again, under the versions that it names: another digest, or more that may happen twice than was accepted, and nothing is
//! done.
//!
//! **Once**: a run's id is a hash of the replay's id and its event, so that executing twice adds nothing, and one that was
//! cut short by a restart goes on when the same plan is executed under the same id. Nothing else is kept of it. A plan has an
//! id of its own ([`PlanDigest::replay`]), so that carrying it out again is no second time unless somebody names it anew.
//!
//! **Giving way**: the runs are bulk, and no more are begun than the scheduler has room for ([`Pace`]).

mod effects;
mod execute;
mod plan;
mod select;

use std::fmt;

use domain::{EventId, TenantId};

use crate::failure::FailureClass;
use crate::ids::{AutomationId, RunId};
use crate::ledger::{BoxFuture, QueueClass, RunStatus};

pub use execute::{Order, Parts, Progress, ReplayState, Replays, Settings};
pub use plan::{ParseDigestError, Plan, PlanDigest, Refused, ReplayError};
pub use select::{Selection, Target, Why};

/// What came of an event before: a projection of the ledger.
pub trait History: Send + Sync + fmt::Debug {
    /// Every run that this event has had, of whatever automation and cause.
    fn runs_of(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'static, Result<Vec<PastRun>, HistoryError>>;
}

/// A run of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRun {
    pub tenant: TenantId,
    pub run: RunId,
    pub automation: AutomationId,
    pub status: RunStatus,
    /// What it failed with, if it did.
    pub failure: Option<FailureClass>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the history cannot be read: {0}")]
pub struct HistoryError(pub Box<str>);

/// Says when more may be begun.
pub trait Pace: Send + Sync + fmt::Debug {
    fn has_room(&self, tenant: &TenantId) -> bool;
}

/// Bulk runs of one tenant that wait for a slot, so that there is always one and never a heap of them.
const BULK_QUEUED_MAX: u32 = 256;

impl Pace for crate::schedule::Handle {
    fn has_room(&self, tenant: &TenantId) -> bool {
        self.queued_of(tenant, QueueClass::Bulk) < BULK_QUEUED_MAX
    }
}

#[cfg(test)]
mod tests;
