//! The stores of a fleet: one PostgreSQL that nodes share.
//!
//! **What is shared** is what is true: the ledger, automations and states of connections, stored payloads, and the event that
//! a run began with, which is kept there before the run is admitted, since whoever goes on with it may have another log. What
//! is each node's own is its log and how far it has admitted of it, its scheduler, and its index, which is made from the one
//! ledger.
//!
//! **Who does what.** A run is worked on by whoever holds its lease. The node that admitted it is the first to hear of it, and
//! each looks for runs that could go on and that nobody works on: those of a node that is gone, when their leases have lapsed,
//! and those whose time has come. Several may come to the same one; the ledger gives it to one of them.
//!
//! **What is said on one node is heard on all**: each follows what was appended by those who do not work on a run. So a
//! cancellation reaches a call that is under way elsewhere, and whoever has the run parked looks at it again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{EventId, TenantId};
use runner::automation::EventFacts;
use runner::automation::postgres::PostgresDefinitions;
use runner::engine::{Events, PortError};
use runner::ids::RunId;
use runner::ledger::embedded::Ages;
use runner::ledger::payloads::PostgresPayloads;
use runner::ledger::postgres::{Acts, PostgresLedger};
use runner::ledger::{
    AppendError, Body, BoxFuture, Cause, Claimable, Commit, Committed, LedgerStore, ReadError, Record, Tail,
    TailPosition,
};
use runner::postgres::{Database, KeepError, LedgerId, PostgresEvents};
use runner::schedule;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::database;
use super::live::Opening;
use super::ports::EventsOfLog;
use super::stores::{Keeper, Look, Stores};

/// Between two looks at what was said: what comes closely one after the other costs less together.
const LINGER: Duration = Duration::from_millis(50);
/// Before the next try, where the database does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Looked after by all nodes, each for itself.
#[derive(Debug)]
pub(super) struct Fleet {
    id: LedgerId,
    ledger: Arc<PostgresLedger>,
    /// Taken by who follows: from where the ledger was before any run was taken up here.
    acts: Mutex<Option<Acts>>,
}

pub(super) async fn open(opening: &Opening) -> Result<Stores, String> {
    let settings = database::settings(&opening.appliance, &*opening.environment);
    let settings = settings.map_err(|fault| format!("the database: {fault}"))?;
    let database = Database::open(settings).await.map_err(|fault| format!("the database: {fault}"))?;
    let ledger = PostgresLedger::on(&database, Arc::clone(&opening.clock)).await;
    let ledger = Arc::new(ledger.map_err(|fault| format!("the database: {fault}"))?);
    let acts = ledger.acts().await.map_err(|fault| format!("the database: {fault}"))?;
    let events =
        Arc::new(SharedEvents { log: opening.log.clone().map(EventsOfLog), kept: PostgresEvents::on(&database) });
    let directory = format!("index-of-{}", database.id());
    tracing::info!(ledger = %database.id(), "the ledger of the fleet is open");
    Ok(Stores {
        ledger: Arc::new(WithEvents { inner: Arc::clone(&ledger), events: Arc::clone(&events) }),
        definitions: Arc::new(PostgresDefinitions::on(&database)),
        payloads: Arc::new(PostgresPayloads::on(&database)),
        events,
        index: opening.appliance.runner.directory.join(directory),
        keeper: Keeper::Fleet(Arc::new(Fleet { id: database.id(), ledger, acts: Mutex::new(Some(acts)) })),
    })
}

impl Fleet {
    pub(super) async fn look(&self) -> Look {
        let fault = self.ledger.fault().map(|why| format!("runner: the database does not answer: {why}"));
        // Who does not answer is not asked more.
        let open_runs = if fault.is_none() { self.ledger.open_runs().await.unwrap_or(0) } else { 0 };
        Look { open_runs, faults: fault.into_iter().collect(), ..Look::default() }
    }

    pub(super) async fn stat(&self) -> Value {
        json!({
            "store": "postgres",
            "id": self.id.to_string(),
            "openRuns": self.ledger.open_runs().await.ok(),
            "unavailable": self.ledger.fault(),
        })
    }

    pub(super) async fn retain(&self, ages: Ages) {
        match self.ledger.retain(&ages).await {
            Ok(retained) if retained.stripped + retained.dropped + retained.blobs + retained.damaged > 0 => {
                tracing::info!(
                    stripped = retained.stripped,
                    dropped = retained.dropped,
                    blobs = retained.blobs,
                    damaged = retained.damaged,
                    "old runs of the ledger were seen to"
                );
            }
            Ok(_) => {}
            Err(fault) => tracing::error!(%fault, "what is over age in the ledger was not seen to; it is tried again"),
        }
    }

    /// Lets the scheduler hear what is said of runs, on whichever node.
    pub(super) async fn follow(&self, scheduler: schedule::Handle) {
        let taken = self.acts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut acts) = taken else { return std::future::pending().await };
        let mut changes = self.ledger.changes();
        loop {
            changes.mark_unchanged();
            match acts.next().await {
                Ok(said) if said.is_empty() => {
                    if changes.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                    tokio::time::sleep(LINGER).await;
                }
                Ok(said) => said.iter().for_each(|(tenant, run)| scheduler.heard(tenant, *run)),
                // That the database does not answer is told where it is asked all the time.
                Err(fault) => {
                    tracing::debug!(%fault, "what was said of runs is not heard for the moment");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    pub(super) async fn close(&self) {
        self.ledger.close().await;
    }
}

/// Events of this node's log, and those that runs of the fleet began with.
#[derive(Debug)]
struct SharedEvents {
    /// None where this node has no log.
    log: Option<EventsOfLog>,
    kept: PostgresEvents,
}

impl Events for SharedEvents {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            if let Some(log) = &self.log {
                match log.read(&tenant, event).await {
                    // It came to another node, or has left this log.
                    Err(PortError::Gone(_)) => {}
                    known => return known,
                }
            }
            self.kept.read(&tenant, event).await
        })
    }
}

impl SharedEvents {
    /// Keeps the event for all nodes, if it is not kept.
    async fn share(&self, tenant: &TenantId, event: EventId) -> Result<(), AppendError> {
        let unavailable = |why: String| AppendError::Unavailable(why.into());
        match self.kept.keep_longer(tenant, event).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(fault) => return Err(unavailable(fault.to_string())),
        }
        let Some(log) = &self.log else { return Ok(()) };
        let facts = match log.read(tenant, event).await {
            Ok(facts) => facts,
            // Whoever needs it is told so.
            Err(PortError::Gone(_)) => return Ok(()),
            Err(PortError::Tenant) => return Err(AppendError::Tenant),
            Err(fault @ PortError::Unavailable(_)) => return Err(unavailable(fault.to_string())),
        };
        match self.kept.keep(tenant, &facts).await {
            Ok(()) => Ok(()),
            Err(fault @ KeepError::TooLarge { .. }) => {
                tracing::error!(%tenant, %event, %fault, "a run that begins with an event can go on only on this node");
                Ok(())
            }
            Err(fault @ KeepError::Database(_)) => Err(unavailable(fault.to_string())),
        }
    }
}

/// The ledger, which has the event of a run before it has the run.
#[derive(Debug)]
struct WithEvents {
    inner: Arc<PostgresLedger>,
    events: Arc<SharedEvents>,
}

fn event_of(commit: &Commit) -> Option<EventId> {
    let Some(Body::Admitted(admitted)) = commit.bodies.first() else { return None };
    match &admitted.cause {
        Cause::Event { event, .. } | Cause::Replay { event, .. } => Some(*event),
        Cause::Again { .. } | Cause::Manual { .. } => None,
    }
}

impl LedgerStore for WithEvents {
    /// Of an admission that is dropped before its event is kept nothing is there; whoever admits asks again.
    fn append(&self, commit: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        let Some(event) = event_of(&commit) else { return self.inner.append(commit) };
        let (inner, events) = (Arc::clone(&self.inner), Arc::clone(&self.events));
        Box::pin(async move {
            events.share(&commit.tenant, event).await?;
            inner.append(commit).await
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
