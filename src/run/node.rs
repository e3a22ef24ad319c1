//! The running appliance as the control socket sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;
use eventlog::holding::{Held, HoldingFilter};
use eventlog::{EventLog, HoldingStore, Scope};
use gateway::Gateway;
use gateway::holding::Judgement;
use tokio::sync::mpsc;

use super::health::Health;
use super::reload::Reloader;
use crate::control::time::rfc3339;
use crate::control::wire::{FaultLine, Judged, JudgedOutcome, Reloaded, Reverify, Whose};

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) holding: Option<Arc<HoldingStore>>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) health: Arc<Health>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id: domain::NodeId,
    pub(crate) started: Duration,
}

/// Held deliveries read at a time: their bodies are in memory until they are judged.
const READ_AHEAD: usize = 4;

#[async_trait]
impl crate::control::node::Node for Node {
    fn log(&self) -> &Arc<dyn EventLog> {
        &self.log
    }

    fn holding(&self) -> Option<&Arc<HoldingStore>> {
        self.holding.as_ref()
    }

    async fn reverify(&self, ask: Reverify, report: mpsc::Sender<Judged>) -> Result<(), String> {
        let Some(holding) = self.holding.clone() else {
            return Err("nothing is held here: [holding] is disabled".into());
        };
        let (sender, mut held) = mpsc::channel(READ_AHEAD);
        let dry_run = ask.dry_run;
        let reader = tokio::task::spawn_blocking(move || read_held(&holding, &ask, &sender));
        while let Some(next) = held.recv().await {
            let held = next?;
            let judged = Judged {
                id: held.delivery.id,
                tenant: held.delivery.tenant.clone(),
                endpoint: held.delivery.endpoint.clone(),
                received_at: rfc3339(held.delivery.received_unix_ms),
                outcome: JudgedOutcome::Refused,
                reason: None,
            };
            let judgement = self.gateway.reverify(held, dry_run).await;
            if report.send(tell(judged, judgement)).await.is_err() {
                break;
            }
        }
        drop(held);
        reader.await.map_err(|error| error.to_string())
    }

    async fn reload(&self) -> Reloaded {
        let (reloader, health) = (Arc::clone(&self.reloader), Arc::clone(&self.health));
        match tokio::task::spawn_blocking(move || reloader.reload(&health)).await {
            Ok(done) => Reloaded {
                changed: done.changed,
                faults: done.faults.iter().map(FaultLine::from).collect(),
                restart_needed: done.restart_needed,
            },
            Err(error) => {
                let fault = config::Fault::error("", "", format!("the reload ended in a fault of ours: {error}"));
                Reloaded { changed: 0, restart_needed: Vec::new(), faults: vec![FaultLine::from(&fault)] }
            }
        }
    }

    fn stat(&self) -> serde_json::Value {
        let (ready, state) = self.health.ready();
        let uptime = self.clock.monotonic().saturating_sub(self.started);
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "node": self.id.0,
            "pid": std::process::id(),
            "uptimeSeconds": uptime.as_secs(),
            "ready": ready,
            "state": state.trim_end(),
            "holding": self.holding.as_ref().map(|holding| holding.stat()),
        })
    }
}

/// Reads what is asked for, one after the other, as fast as it is judged.
fn read_held(holding: &HoldingStore, ask: &Reverify, sender: &mpsc::Sender<Result<Held, String>>) {
    let scope = match &ask.whose {
        Whose::Tenant(tenant) => Scope::Tenant(tenant.clone()),
        Whose::AllTenants => Scope::Operator,
    };
    let filter = HoldingFilter { endpoint: ask.endpoint.clone(), ..HoldingFilter::default() };
    let all = holding.iter(&scope, &filter);
    for held in all {
        let wanted = held.as_ref().map_or(true, |held| ask.ids.is_empty() || ask.ids.contains(&held.delivery.id));
        if wanted && sender.blocking_send(held.map_err(|error| error.to_string())).is_err() {
            return;
        }
    }
}

fn tell(judged: Judged, judgement: Judgement) -> Judged {
    let (outcome, reason) = match judgement {
        Judgement::Promoted => (JudgedOutcome::Promoted, None),
        Judgement::WouldPromote => (JudgedOutcome::WouldPromote, None),
        Judgement::Refused(fault) => (JudgedOutcome::Refused, Some(fault.to_string())),
        Judgement::NoEndpoint => (JudgedOutcome::Refused, Some("the tenant has no such endpoint now".to_owned())),
        Judgement::NotCommitted(error) => (JudgedOutcome::Failed, Some(error.to_string())),
        Judgement::Unreadable(reason) => (JudgedOutcome::Failed, Some(reason)),
    };
    Judged { outcome, reason, ..judged }
}
