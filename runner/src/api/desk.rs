//! Everything that the API can do, as one port.

use std::fmt;

use async_trait::async_trait;
use domain::{ConnectionId, EventId};
use serde_json::Value;

use super::asker::Asker;
use super::body::{Confirmed, Document, Replays, Rerun, Resolve, Start, StartReplays};
use super::no::{DocumentFault, No};
use super::query::ExecutionFilter;
use crate::automation::{ConnectionState, Listed, Stored};
use crate::ids::{AutomationId, RunId, StepId, Version};

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

    /// No run begins any more; its history stays.
    async fn delete(&self, asker: &Asker, id: AutomationId) -> Result<(), No>;

    /// A run by hand. Says whether it is a new one.
    async fn start(&self, asker: &Asker, id: AutomationId, start: Start) -> Result<(RunId, bool), No>;

    async fn executions(&self, asker: &Asker, filter: ExecutionFilter) -> Result<Page<Value>, No>;

    /// One run as people look at it.
    async fn execution(&self, asker: &Asker, run: RunId) -> Result<Value, No>;

    /// The runs of an event, as it is asked for by the `executionId` of its 202.
    async fn runs_of(&self, asker: &Asker, event: EventId) -> Result<Vec<RunId>, No>;

    /// What is said of an event that began these runs.
    async fn execution_of_event(&self, asker: &Asker, event: EventId) -> Result<Value, No>;

    async fn cancel(&self, asker: &Asker, run: RunId) -> Result<(), No>;

    async fn resolve(&self, asker: &Asker, run: RunId, resolve: Resolve) -> Result<(), No>;

    /// One run again, as a new one.
    async fn replay(&self, asker: &Asker, run: RunId, confirmed: Confirmed) -> Result<Replayed, No>;

    /// One node again, in its own run. Says which asking of it this is.
    async fn rerun(&self, asker: &Asker, run: RunId, step: StepId, rerun: Rerun) -> Result<u32, No>;

    async fn plan_replays(&self, asker: &Asker, replays: Replays) -> Result<PlannedReplay, No>;

    async fn start_replays(&self, asker: &Asker, start: StartReplays) -> Result<Replayed, No>;

    /// All of the tenant's, and how they are.
    async fn connections(&self, asker: &Asker) -> Result<Vec<(ConnectionId, ConnectionState)>, No>;

    /// It was connected anew: what waits for it goes on. Says how many runs that are.
    async fn reconnected(&self, asker: &Asker, connection: ConnectionId) -> Result<u64, No>;
}
