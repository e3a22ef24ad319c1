//! Everything that the API can do, as one port.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use domain::{ConnectionId, EventId};
use serde_json::Value;

use super::asker::Asker;
use super::body::{Confirmed, Dismiss, Document, Replays, Rerun, Resolve, Start, StartReplays};
use super::no::{DocumentFault, No};
use super::query::ExecutionFilter;
use crate::automation::{ConnectionState, Listed, Stored};
use crate::ids::{AutomationId, RunId, StepId, Version};
use crate::replay::ReplayState;
use crate::view::Part;

/// A page, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Opaque; none at the end.
    pub next: Option<Box<str>>,
    /// What was asked of had not caught up with the ledger in time.
    pub is_stale: bool,
}

impl<T> Page<T> {
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, is_stale: false }
    }
}

/// A version that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub stored: Stored,
    /// It is what was there already: no version was made.
    pub is_unchanged: bool,
    /// What its author should know, and what is no fault.
    pub warnings: Vec<DocumentFault>,
}

/// What a replay would be.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedReplay {
    /// All of it, for whoever begins it.
    pub plan: Value,
    /// Its own name: under it, it is carried out once.
    pub replay: Box<str>,
    pub events: u64,
    pub runs: u64,
    /// Runs whose event had one before that may have had an effect.
    pub may_duplicate: u64,
    /// Events whose trigger's condition fails: they are not among the runs.
    pub conditions_failed: u64,
}

/// What a replay is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    pub replay: Box<str>,
    pub runs: u64,
    /// Those that are known at once; a long replay goes on by itself.
    pub run_ids: Vec<RunId>,
    /// False of one that was begun under this name before: what is missing of it is begun, and nothing twice.
    pub is_new: bool,
}

/// How far a replay of events is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayProgress {
    pub replay: Box<str>,
    /// None of one that this process did not begin: whether all of it was begun nobody knows. Carrying the plan out again
    /// begins what is missing.
    pub state: Option<ReplayState>,
    /// Runs that it comes to, by its plan.
    pub planned: Option<u64>,
    /// Runs of it that there are; none where they were not counted.
    pub admitted: Option<u64>,
    /// Runs that were not to be: the ledger refused them.
    pub refused: u64,
}

/// What came of a replay's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayRuns {
    /// A worker has had it.
    pub begun: u64,
    /// It is over, in whatever way.
    pub over: u64,
    pub succeeded: u64,
    /// Failed, timed out, or ended ambiguous.
    pub failed: u64,
    /// It waits for somebody, or is quarantined.
    pub needs_attention: u64,
    /// There are more than were counted.
    pub is_partial: bool,
}

/// A payload as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// All of it, or its first bytes.
    pub shown: Bytes,
    /// Of the original.
    pub bytes: u64,
    /// BLAKE3 of the original.
    pub digest: [u8; 32],
    /// It was too large to be kept whole.
    pub is_truncated: bool,
}

/// What waits for somebody, of one tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbox {
    /// Runs that are not over, put together by why and where; those that have waited longest first.
    pub groups: Vec<Value>,
    /// There are more than were counted.
    pub is_partial: bool,
    /// Connections that have to be made anew.
    pub connections: Vec<(ConnectionId, ConnectionState)>,
    /// Runs that are over and that nobody has put away, newest first.
    pub dead_letters: Page<Value>,
}

/// What the API stands on. Every call carries who asks: whatever it returns is that tenant's, asserted where it is loaded,
/// and what is somebody else's is [`No::NotFound`] as what is not there is.
#[async_trait]
pub trait Desk: Send + Sync + fmt::Debug {
    /// Stores a new automation.
    async fn create(&self, asker: &Asker, document: Document) -> Result<Saved, No>;

    /// Stores the next version. `expected`: only if that is the last one.
    async fn replace(
        &self,
        asker: &Asker,
        id: AutomationId,
        expected: Option<Version>,
        document: Document,
    ) -> Result<Saved, No>;

    /// Says what would be wrong with it, and stores nothing.
    async fn check(&self, asker: &Asker, document: Document) -> Result<Vec<DocumentFault>, No>;

    async fn workflows(&self, asker: &Asker, after: Option<AutomationId>, limit: usize) -> Result<Page<Listed>, No>;

    /// One version, also of a deleted automation; the last, where none is named.
    async fn workflow(&self, asker: &Asker, id: AutomationId, version: Option<Version>) -> Result<Stored, No>;

    /// The automation of this name that is not deleted.
    async fn named(&self, asker: &Asker, name: &str) -> Result<Option<Listed>, No>;

    /// No run begins any more; its history stays.
    async fn delete(&self, asker: &Asker, id: AutomationId) -> Result<(), No>;

    /// A run by hand. Says whether it is a new one; one of the same key with another input is [`No::KeyReused`].
    async fn start(&self, asker: &Asker, id: AutomationId, start: Start) -> Result<(RunId, bool), No>;

    async fn executions(&self, asker: &Asker, filter: ExecutionFilter) -> Result<Page<Value>, No>;

    /// One run as people look at it.
    async fn execution(&self, asker: &Asker, run: RunId) -> Result<Value, No>;

    /// The runs of an event, as it is asked for by the `executionId` of its 202.
    async fn runs_of(&self, asker: &Asker, event: EventId) -> Result<Vec<RunId>, No>;

    /// What is said of an event that began these runs.
    async fn execution_of_event(&self, asker: &Asker, event: EventId) -> Result<Value, No>;

    /// One node of a run, with all that there is of it. [`No::Expired`] where retention has taken the run's details.
    async fn node(&self, asker: &Asker, run: RunId, node: StepId) -> Result<Value, No>;

    /// What a node was given last, or what came of it; [`No::Expired`] where that is no longer kept.
    async fn payload(&self, asker: &Asker, run: RunId, node: StepId, part: Part) -> Result<Payload, No>;

    /// What waits for somebody; of the dead letters a page.
    async fn inbox(&self, asker: &Asker, after: Option<Box<str>>, limit: usize) -> Result<Inbox, No>;

    /// Puts a dead letter away: the run stays, and who did it and why is in its history.
    async fn dismiss(&self, asker: &Asker, run: RunId, dismiss: Dismiss) -> Result<(), No>;

    async fn cancel(&self, asker: &Asker, run: RunId) -> Result<(), No>;

    async fn resolve(&self, asker: &Asker, run: RunId, resolve: Resolve) -> Result<(), No>;

    /// One run again, as a new one.
    async fn replay(&self, asker: &Asker, run: RunId, confirmed: Confirmed) -> Result<Replayed, No>;

    /// One node again, in its own run. Says which asking of it this is.
    async fn rerun(&self, asker: &Asker, run: RunId, step: StepId, rerun: Rerun) -> Result<u32, No>;

    async fn plan_replays(&self, asker: &Asker, replays: Replays) -> Result<PlannedReplay, No>;

    async fn start_replays(&self, asker: &Asker, start: StartReplays) -> Result<Replayed, No>;

    /// The tenant's: those that this process has begun and remembers, by name, and then others that there are runs of.
    async fn replays(&self, asker: &Asker) -> Result<Vec<ReplayProgress>, No>;

    /// One of them, or one of which there are runs, and what came of those. Says whether they may be older than the ledger.
    async fn replay_of_name(&self, asker: &Asker, name: &str) -> Result<(ReplayProgress, ReplayRuns, bool), No>;

    /// Begins no more of its runs; those that are begun go on.
    async fn stop_replay(&self, asker: &Asker, name: &str) -> Result<ReplayProgress, No>;

    /// All of the tenant's, and how they are.
    async fn connections(&self, asker: &Asker) -> Result<Vec<(ConnectionId, ConnectionState)>, No>;

    /// It was connected anew: what waits for it goes on. Says how many runs that are.
    async fn reconnected(&self, asker: &Asker, connection: ConnectionId) -> Result<u64, No>;
}
