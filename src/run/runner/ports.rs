//! What the engine asks of the rest of the appliance.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use domain::{EventId, TenantId};
use eventlog::{EventLog, Scope};
use runner::automation::{Automation, CompiledAutomations, EventFacts, LoadError, StoreError};
use runner::engine::{Asked, Authority, Automations, Events, Notice, Notices, Payloads, Permission, PortError};
use runner::ids::{AutomationId, Version};
use runner::index::{RunIndex, RunRow};
use runner::ledger::payloads::{Bounds, Fetched, PayloadError, PayloadStore};
use runner::ledger::{BoxFuture, Payload};
use runner::replay::{self, HistoryError, PastRun};
use runner::schedule::{Reminders, StillWaiting};

use super::config::InForce;
use super::metrics::RunnerMetrics;

/// Events of this node's log, under their tenant's scope.
pub(super) struct EventsOfLog(pub(super) Arc<dyn EventLog>);

impl Events for EventsOfLog {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        let (log, tenant) = (Arc::clone(&self.0), tenant.clone());
        Box::pin(async move {
            let read = move || log.by_id(&Scope::Tenant(tenant), event);
            let read = tokio::task::spawn_blocking(read).await;
            match read.map_err(|_| PortError::Unavailable("reading the event crashed".into()))? {
                Ok(Some(event)) => Ok(EventFacts::from(&event)),
                Ok(None) => Err(PortError::Gone(format!("the event {event} is no longer kept").into())),
                Err(eventlog::ReadError::ScopeMismatch { .. }) => Err(PortError::Tenant),
                Err(fault) => Err(PortError::Unavailable(fault.to_string().into())),
            }
        })
    }
}

impl fmt::Debug for EventsOfLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventsOfLog")
    }
}

/// There is no log on this node: no run begins by an event here.
#[derive(Debug)]
pub(super) struct NoEvents;

impl Events for NoEvents {
    fn read(&self, _: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        let gone = PortError::Gone(format!("the event {event} is in no log of this node").into());
        Box::pin(std::future::ready(Err(gone)))
    }
}

/// Versions, compiled.
#[derive(Debug)]
pub(super) struct Compiled(pub(super) CompiledAutomations);

impl Automations for Compiled {
    fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> BoxFuture<'_, Result<Arc<Automation>, PortError>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            self.0.load(&tenant, id, version).await.map_err(|error| match error {
                LoadError::NotThere => PortError::Gone(error.to_string().into()),
                LoadError::Store(StoreError::Tenant) => PortError::Tenant,
                LoadError::Store(_) => PortError::Unavailable(error.to_string().into()),
                LoadError::Faults(_) => {
                    tracing::error!(%tenant, automation = %id, version = version.get(), %error, "an automation is damaged");
                    PortError::Gone(error.to_string().into())
                }
            })
        })
    }
}

/// What came of events before, by the index.
#[derive(Debug)]
pub(super) struct History(pub(super) Arc<RunIndex>);

/// Runs of one event that are looked at.
const PAST_MAX: usize = 500;

impl replay::History for History {
    fn runs_of(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'static, Result<Vec<PastRun>, HistoryError>> {
        let (index, tenant) = (Arc::clone(&self.0), tenant.clone());
        Box::pin(async move {
            let page = index.runs_of(&tenant, event, PAST_MAX).await;
            let page = page.map_err(|fault| HistoryError(fault.to_string().into()))?;
            let past = |row: RunRow| PastRun {
                tenant: row.tenant,
                run: row.run,
                automation: row.automation,
                status: row.status,
                failure: row.failure,
            };
            Ok(page.runs.into_iter().map(past).collect())
        })
    }
}

/// Inputs and outputs, within the bounds of the file.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) store: Arc<dyn PayloadStore>,
    pub(super) bounds: Bounds,
}

impl Payloads for Keeping {
    fn keep(&self, tenant: &TenantId, bytes: Bytes) -> BoxFuture<'_, Result<Payload, PortError>> {
        let kept = self.store.keep(tenant.clone(), bytes, self.bounds);
        Box::pin(async move { kept.await.map_err(|fault| not_now(&fault)) })
    }

    fn fetch(&self, tenant: &TenantId, payload: &Payload) -> BoxFuture<'_, Result<Bytes, PortError>> {
        let fetched = self.store.fetch(tenant.clone(), payload);
        let bytes = payload.bytes;
        Box::pin(async move {
            match fetched.await.map_err(|fault| not_now(&fault))? {
                Fetched::Whole(bytes) => Ok(bytes),
                Fetched::Truncated(_) => {
                    Err(PortError::Gone(format!("only the beginning of its {bytes} bytes was kept").into()))
                }
                Fetched::Expired => Err(PortError::Gone("it is no longer kept".into())),
            }
        })
    }
}

fn not_now(fault: &PayloadError) -> PortError {
    match fault {
        // Reading it again does not mend it.
        PayloadError::Damaged(_) => PortError::Gone(fault.to_string().into()),
        PayloadError::Full | PayloadError::Unavailable(_) => PortError::Unavailable(fault.to_string().into()),
    }
}

/// Whether tenant and connection are there, in the files that are in force now. What a connection may reach the way out
/// decides at every call.
#[derive(Debug)]
pub(super) struct StillThere(pub(super) Arc<ArcSwap<InForce>>);

impl Authority for StillThere {
    fn may_call(&self, asked: Asked) -> BoxFuture<'_, Result<Permission, PortError>> {
        let config = self.0.load();
        let permission = if !config.has_tenant(&asked.tenant) {
            Permission::No("the tenant is not configured any more".into())
        } else if config.connection(&asked.tenant, &asked.connection).is_none() {
            Permission::No(format!("the tenant has no connection {} any more", asked.connection).into())
        } else {
            Permission::Yes
        };
        Box::pin(std::future::ready(Ok(permission)))
    }
}

/// Lines of the log and a metric; what is to be done is listed by `tidegate runs` and the API.
#[derive(Debug)]
pub(super) struct Telling(pub(super) Arc<RunnerMetrics>);

impl Notices for Telling {
    fn tell(&self, notice: Notice) {
        self.0.noticed(&notice);
        match notice {
            Notice::NeedsReconnect { tenant, connection, run, reason } => tracing::warn!(
                %tenant, %connection, %run, reason = %shown(&reason),
                "a connection's authentication is dead: its runs wait until it is connected anew"
            ),
            Notice::Ambiguous { tenant, run, step } => tracing::warn!(
                %tenant, %run, %step,
                "nobody knows whether an effect has happened: somebody has to choose (`tidegate runs resolve`)"
            ),
            Notice::Quarantined { tenant, run, reason } => tracing::error!(
                %tenant, %run, reason = %shown(&reason),
                "a run costs its workers and is quarantined (`tidegate runs quarantined`)"
            ),
        }
    }
}

impl Reminders for Telling {
    fn remind(&self, waiting: StillWaiting) {
        let StillWaiting { tenant, attention, quarantined, first } = waiting;
        tracing::warn!(
            %tenant, attention, quarantined, %first,
            "runs wait for somebody since before the start (`tidegate runs list --status needs-attention,quarantined`)"
        );
    }

    fn remind_of_more(&self, tenants: u64) {
        tracing::warn!(tenants, "runs of more tenants wait for somebody since before the start");
    }
}

/// A provider's words, safe for a line of the log.
fn shown(text: &str) -> String {
    domain::text::Untrusted::with_limit(text.as_bytes(), 512).to_string()
}
