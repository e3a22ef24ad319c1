//! What the API can do, done: on the ledger, the automations and the index that are open.

mod automations;
mod errors;
mod executions;
mod inbox;
mod nodes;
mod operations;
mod replays;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use domain::{Clock, ConnectionId, EndpointId, EventId};
use runner::api::{
    Asker, Confirmed, Desk, Dismiss, Document, DocumentFault, ExecutionFilter, Inbox, No, Page, Payload, PlannedReplay,
    ReplayProgress, ReplayRuns, Replayed, Replays, Rerun, Resolve, Saved, Start, StartReplays,
};
use runner::automation::{ConnectionState, Listed, Stored};
use runner::ids::{AutomationId, RunId, StepId, Version};
use runner::view::Part;
use serde_json::Value;

use super::config::InForce;
use super::live::Live;

/// Whoever asks.
#[derive(Debug)]
pub(super) struct OpenDesk {
    /// None while the ledger is not open.
    pub(super) live: Arc<ArcSwapOption<Live>>,
    pub(super) config: Arc<ArcSwap<InForce>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl OpenDesk {
    fn live(&self) -> Result<Arc<Live>, No> {
        self.live.load_full().ok_or_else(|| No::Unavailable("the ledger is not open; see readyz".into()))
    }

    /// An automation may be there before its endpoint is. Most often it is a slip, and nothing else would ever tell.
    fn warnings(&self, asker: &Asker, endpoints: &[EndpointId]) -> Vec<DocumentFault> {
        let config = self.config.load();
        let missing = endpoints.iter().filter(|endpoint| !config.has_endpoint(&asker.tenant, endpoint));
        let message = |endpoint| format!("names {endpoint}, and there is no such endpoint: nothing begins a run there");
        missing.map(|endpoint| DocumentFault::new("trigger", message(endpoint))).collect()
    }

    fn warned(&self, asker: &Asker, mut saved: Saved) -> Saved {
        saved.warnings.extend(self.warnings(asker, &saved.stored.endpoints));
        saved
    }
}

#[async_trait]
impl Desk for OpenDesk {
    async fn create(&self, asker: &Asker, document: Document) -> Result<Saved, No> {
        let saved = automations::create(&self.live()?, asker, document, self.clock.unix_ms()).await?;
        Ok(self.warned(asker, saved))
    }

    async fn replace(
        &self,
        asker: &Asker,
        id: AutomationId,
        expected: Option<Version>,
        document: Document,
    ) -> Result<Saved, No> {
        let live = self.live()?;
        let saved = automations::replace(&live, asker, (id, expected), document, self.clock.unix_ms()).await?;
        Ok(self.warned(asker, saved))
    }

    async fn check(&self, asker: &Asker, document: Document) -> Result<Vec<DocumentFault>, No> {
        let draft = automations::draft(&self.live()?, asker, document).await?;
        Ok(self.warnings(asker, draft.endpoints()))
    }

    async fn workflows(&self, asker: &Asker, after: Option<AutomationId>, limit: usize) -> Result<Page<Listed>, No> {
        automations::list(&*self.live()?, asker, after, limit).await
    }

    async fn workflow(&self, asker: &Asker, id: AutomationId, version: Option<Version>) -> Result<Stored, No> {
        automations::get(&*self.live()?, asker, id, version).await
    }

    async fn named(&self, asker: &Asker, name: &str) -> Result<Option<Listed>, No> {
        automations::named(&*self.live()?, asker, name).await
    }

    async fn delete(&self, asker: &Asker, id: AutomationId) -> Result<(), No> {
        automations::delete(&*self.live()?, asker, id).await
    }

    async fn start(&self, asker: &Asker, id: AutomationId, start: Start) -> Result<(RunId, bool), No> {
        executions::start(&self.live()?, asker, id, start, self.clock.unix_ms()).await
    }

    async fn executions(&self, asker: &Asker, filter: ExecutionFilter) -> Result<Page<Value>, No> {
        executions::list(&*self.live()?, asker, filter).await
    }

    async fn execution(&self, asker: &Asker, run: RunId) -> Result<Value, No> {
        executions::show(&self.live()?, asker, run, self.clock.unix_ms()).await
    }

    async fn runs_of(&self, asker: &Asker, event: EventId) -> Result<Vec<RunId>, No> {
        executions::runs_of(&*self.live()?, asker, event).await
    }

    async fn execution_of_event(&self, asker: &Asker, event: EventId) -> Result<Value, No> {
        executions::of_event(&self.live()?, asker, event, self.clock.unix_ms()).await
    }

    async fn node(&self, asker: &Asker, run: RunId, node: StepId) -> Result<Value, No> {
        nodes::show(&self.live()?, asker, run, &node, self.clock.unix_ms()).await
    }

    async fn payload(&self, asker: &Asker, run: RunId, node: StepId, part: Part) -> Result<Payload, No> {
        nodes::payload(&*self.live()?, asker, run, &node, part).await
    }

    async fn inbox(&self, asker: &Asker, after: Option<Box<str>>, limit: usize) -> Result<Inbox, No> {
        inbox::show(&*self.live()?, asker, after, limit).await
    }

    async fn dismiss(&self, asker: &Asker, run: RunId, dismiss: Dismiss) -> Result<(), No> {
        inbox::dismiss(&*self.live()?, asker, run, &dismiss).await
    }

    async fn cancel(&self, asker: &Asker, run: RunId) -> Result<(), No> {
        self.live()?.acts.cancel(&asker.tenant, run, &asker.by).await.map_err(|error| errors::act(&error))
    }

    async fn resolve(&self, asker: &Asker, run: RunId, resolve: Resolve) -> Result<(), No> {
        let live = self.live()?;
        let done = live.acts.resolve(&asker.tenant, run, &resolve.node, resolve.choice, &asker.by).await;
        done.map_err(|error| errors::act(&error))
    }

    async fn replay(&self, asker: &Asker, run: RunId, confirmed: Confirmed) -> Result<Replayed, No> {
        replays::one(&self.live()?, asker, run, confirmed, self.clock.unix_ms()).await
    }

    async fn rerun(&self, asker: &Asker, run: RunId, step: StepId, rerun: Rerun) -> Result<u32, No> {
        executions::rerun(&*self.live()?, asker, run, step, rerun).await
    }

    async fn plan_replays(&self, asker: &Asker, replays: Replays) -> Result<PlannedReplay, No> {
        replays::plan(&*self.live()?, asker, replays).await
    }

    async fn start_replays(&self, asker: &Asker, start: StartReplays) -> Result<Replayed, No> {
        replays::start(&*self.live()?, asker, start).await
    }

    async fn replays(&self, asker: &Asker) -> Result<Vec<ReplayProgress>, No> {
        replays::list(&*self.live()?, asker).await
    }

    async fn replay_of_name(&self, asker: &Asker, name: &str) -> Result<(ReplayProgress, ReplayRuns, bool), No> {
        replays::show(&*self.live()?, asker, name).await
    }

    async fn stop_replay(&self, asker: &Asker, name: &str) -> Result<ReplayProgress, No> {
        replays::stop(&*self.live()?, asker, name).await
    }

    async fn connections(&self, asker: &Asker) -> Result<Vec<(ConnectionId, ConnectionState)>, No> {
        inbox::connections(&*self.live()?, &self.config.load(), asker).await
    }

    async fn reconnected(&self, asker: &Asker, connection: ConnectionId) -> Result<u64, No> {
        let live = self.live()?;
        if !inbox::has_connection(&live, &self.config.load(), asker, &connection).await? {
            return Err(No::NotFound);
        }
        executions::reconnected(&live, asker, &connection).await
    }
}
