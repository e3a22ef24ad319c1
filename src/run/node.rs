//! The running appliance as the control socket sees it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;
use egress::{CorrelationId, Stage};
use eventlog::holding::{Held, HoldingFilter};
use eventlog::records::RecordStore;
use eventlog::{EventLog, HoldingStore, ReadError, Scope};
use gateway::Gateway;
use gateway::holding::Judgement;
use tokio::sync::mpsc;

use super::egress_log::EgressLog;
use super::health::Health;
use super::reload::Reloader;
use super::way_out::Open;
use crate::control::quota::Desk;
use crate::control::runner::RunnerDesk;
use crate::control::time::rfc3339;
use crate::control::top::{Closed, Top, TopQuery, top};
use crate::control::wire::{FaultLine, Judged, JudgedOutcome, Reloaded, Reverify, Whose};

#[derive(Debug)]
pub(crate) struct Node {
    /// These three are none where the node takes no deliveries.
    pub(crate) log: Option<Arc<dyn EventLog>>,
    pub(crate) holding: Option<Arc<HoldingStore>>,
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// None where no call goes out here.
    pub(crate) records: Option<Arc<EgressLog>>,
    pub(crate) way_out: Option<Open>,
    /// None where no runs are performed.
    pub(crate) runner: Option<RunnerDesk>,
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
    fn log(&self) -> Option<&Arc<dyn EventLog>> {
        self.log.as_ref()
    }

    fn holding(&self) -> Option<&Arc<HoldingStore>> {
        self.holding.as_ref()
    }

    fn egress_records(&self) -> Option<(&RecordStore, bool)> {
        self.records.as_ref().map(|records| records.settled())
    }

    fn egress_top(&self, query: &TopQuery) -> Option<Top> {
        let way_out = self.way_out.as_ref()?;
        Some(top(&way_out.egress.parts().calls, &way_out.ports, query, self.clock.unix_ms()))
    }

    fn egress_close(&self, id: CorrelationId) -> Option<Closed> {
        let closed = match self.way_out.as_ref()?.egress.close(id) {
            Some(Stage::Tunnel) => Closed::Tunnel,
            Some(Stage::Waiting | Stage::Answer) => Closed::Request,
            None => return Some(Closed::Nothing),
        };
        tracing::info!(correlation = %id, "a call was closed by an operator");
        Some(closed)
    }

    fn quota(&self) -> Option<&Desk> {
        Some(&self.way_out.as_ref()?.desk)
    }

    fn runner(&self) -> Option<RunnerDesk> {
        self.runner.clone()
    }

    async fn reverify(&self, ask: Reverify, report: mpsc::Sender<Judged>) -> Result<(), String> {
        let (Some(holding), Some(gateway)) = (self.holding.clone(), self.gateway.clone()) else {
            return Err("nothing is held here: [gateway] or [holding] is disabled".into());
        };
        let (sender, held) = mpsc::channel(READ_AHEAD);
        let dry_run = ask.dry_run;
        let reader = tokio::task::spawn_blocking(move || read_held(&holding, &ask, &sender));
        let judged = judge_all(held, |held| gateway.reverify(held, dry_run), &report).await;
        reader.await.map_err(|error| error.to_string()).and(judged)
    }

    async fn reload(&self) -> Reloaded {
        let Some(done) = self.reloader.reload_beside(&self.health).await else {
            let fault = config::Fault::error("", "", "the reload ended in a fault of ours");
            return Reloaded { changed: 0, restart_needed: Vec::new(), faults: vec![FaultLine::from(&fault)] };
        };
        Reloaded {
            changed: done.changed,
            faults: done.faults.iter().map(FaultLine::from).collect(),
            restart_needed: done.restart_needed,
        }
    }

    fn stat(&self) -> serde_json::Value {
        let (ready, state) = self.health.ready();
        let uptime = self.clock.monotonic().saturating_sub(self.started);
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "node": self.id.0,
            // By these a command finds out whether it asks whom it means to, and where what is switched off is kept.
            "config": std::path::absolute(&self.reloader.path).ok().as_deref().and_then(Path::to_str),
            "stateDirectory": self.reloader.started.tenants.state_directory.to_str(),
            "pid": std::process::id(),
            "uptimeSeconds": uptime.as_secs(),
            "ready": ready,
            "state": state.trim_end(),
            "holding": self.holding.as_ref().map(|holding| holding.stat()),
        })
    }
}

/// A held delivery as it was read, or which one could not be and why.
type Read = Result<Held, String>;

/// Damaged records named in one answer: as many as somebody looks into.
const UNREAD_NAMED: usize = 10;

/// Judges whatever can be read, and says at the end what could not: one damaged record keeps no other one held.
async fn judge_all<F: Future<Output = Judgement> + Send>(
    mut held: mpsc::Receiver<Read>,
    judge: impl Fn(Held) -> F + Send + Sync,
    report: &mpsc::Sender<Judged>,
) -> Result<(), String> {
    let (mut unread, mut named) = (0_usize, Vec::new());
    while let Some(next) = held.recv().await {
        let held = match next {
            Ok(held) => held,
            Err(fault) => {
                unread += 1;
                if named.len() < UNREAD_NAMED {
                    named.push(fault);
                }
                continue;
            }
        };
        let judged = Judged {
            id: held.delivery.id,
            tenant: held.delivery.tenant.clone(),
            endpoint: held.delivery.endpoint.clone(),
            received_at: rfc3339(held.delivery.received_unix_ms),
            outcome: JudgedOutcome::Refused,
            reason: None,
        };
        let judgement = judge(held).await;
        if report.send(tell(judged, judgement)).await.is_err() {
            // Whoever asked has gone away.
            return Ok(());
        }
    }
    match unread {
        0 => Ok(()),
        _ => Err(format!("{unread} held deliveries could not be read, all others were judged: {}", named.join("; "))),
    }
}

/// Reads what is asked for, one after the other, in the order of receipt, as fast as it is judged.
fn read_held(holding: &HoldingStore, ask: &Reverify, sender: &mpsc::Sender<Read>) {
    let scope = match &ask.whose {
        Whose::Tenant(tenant) => Scope::Tenant(tenant.clone()),
        Whose::AllTenants => Scope::Operator,
    };
    if ask.ids.is_empty() {
        let filter = HoldingFilter { endpoint: ask.endpoint.clone(), ..HoldingFilter::default() };
        for held in holding.iter(&scope, &filter) {
            if sender.blocking_send(held.map_err(|error| error.to_string())).is_err() {
                return;
            }
        }
        return;
    }
    // Ids begin with the time of receipt.
    let ids: BTreeSet<_> = ask.ids.iter().copied().collect();
    for id in ids {
        let held = match holding.by_id(&scope, id) {
            Ok(Some(held)) if ask.endpoint.as_ref().is_none_or(|endpoint| held.delivery.endpoint == *endpoint) => {
                Ok(held)
            }
            // Not held, or not for whom it was asked: whoever asked counts what is missing.
            Ok(_) | Err(ReadError::ScopeMismatch { .. }) => continue,
            Err(error) => Err(format!("{id}: {error}")),
        };
        if sender.blocking_send(held).is_err() {
            return;
        }
    }
}

fn tell(judged: Judged, judgement: Judgement) -> Judged {
    let (outcome, reason) = match judgement {
        Judgement::Promoted => (JudgedOutcome::Promoted, None),
        Judgement::AlreadyPromoted => (JudgedOutcome::AlreadyPromoted, None),
        Judgement::WouldPromote => (JudgedOutcome::WouldPromote, None),
        Judgement::Refused(fault) => (JudgedOutcome::Refused, Some(fault.to_string())),
        Judgement::Handshake => (
            JudgedOutcome::Refused,
            Some("it is a handshake: the provider asks again, and no event comes of it".to_owned()),
        ),
        Judgement::NoEndpoint => (JudgedOutcome::Refused, Some("the tenant has no such endpoint now".to_owned())),
        Judgement::NotCommitted(error) => (JudgedOutcome::Failed, Some(error.to_string())),
        Judgement::Unreadable(reason) => (JudgedOutcome::Failed, Some(reason)),
    };
    Judged { outcome, reason, ..judged }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bytes::Bytes;
    use domain::{EndpointId, EventId, ManualClock, NodeId, Slot, TenantId};
    use eventlog::holding::{HoldingSettings, NewHeld, Status};
    use eventlog::{Class, HeaderBlock, NewEvent};

    const NOW_MS: u64 = 1_764_424_000_000;

    pub(crate) fn new_held(nth: u8) -> NewHeld {
        let delivery = NewEvent {
            id: EventId::new(NOW_MS + u64::from(nth), Slot::of("wh_1"), NodeId(1), [nth; 6]),
            tenant: TenantId::parse("acme").unwrap(),
            endpoint: EndpointId::parse("wh_1").unwrap(),
            retention: "default".into(),
            received_unix_ms: NOW_MS + u64::from(nth),
            peer: "127.0.0.1:5555".parse().unwrap(),
            method: "POST".into(),
            target: Bytes::from_static(b"/hooks/wh_1"),
            headers: HeaderBlock::with_capacity(0).finish(),
            body: Bytes::from_static(b"{}"),
            scheme: "github".into(),
            secret: Arc::default(),
            delivery_id: None,
            class: Class::Normal,
            signed_at_unix_ms: None,
            public_url: "https://hooks.example.com".into(),
        };
        NewHeld { delivery, status: Status::Quarantined, reason: "mismatch" }
    }

    fn holding(directory: &Path) -> HoldingStore {
        let mut log = eventlog::embedded::Settings::new(&config::Log::default(), NodeId(1));
        log.directory = directory.to_owned();
        log.reserve_bytes = 0;
        let settings = HoldingSettings::new(&config::Holding::default(), &log, 1 << 20);
        let holding = HoldingStore::open(&settings, ManualClock::at_unix_ms(NOW_MS)).unwrap().0;
        for nth in 1..=3 {
            holding.hold(new_held(nth)).unwrap();
        }
        while holding.iter(&Scope::Operator, &HoldingFilter::default()).count() < 3 {
            std::thread::yield_now();
        }
        holding
    }

    fn ask(ids: Vec<EventId>) -> Reverify {
        Reverify { whose: Whose::AllTenants, endpoint: None, ids, dry_run: true }
    }

    fn read(holding: &HoldingStore, ids: Vec<EventId>) -> Vec<EventId> {
        let (sender, mut read) = mpsc::channel(8);
        read_held(holding, &ask(ids), &sender);
        drop(sender);
        std::iter::from_fn(|| read.blocking_recv()).map(|held| held.unwrap().delivery.id).collect()
    }

    #[test]
    fn named_deliveries_are_read_once_each_in_the_order_of_receipt() {
        let directory = tempfile::tempdir().unwrap();
        let holding = holding(directory.path());
        let all = read(&holding, Vec::new());
        assert_eq!(all.len(), 3);
        assert_eq!(read(&holding, vec![all[2], EventId::from_bytes([9; 16]), all[0], all[2]]), [all[0], all[2]]);
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_keeps_no_other_one_held() {
        let directory = tempfile::tempdir().unwrap();
        let holding = holding(directory.path());
        let (sender, held) = mpsc::channel(8);
        let mut all = holding.iter(&Scope::Operator, &HoldingFilter::default());
        sender.send(Ok(all.next().unwrap().unwrap())).await.unwrap();
        sender.send(Err("evt_x: the record is damaged".to_owned())).await.unwrap();
        sender.send(Ok(all.next().unwrap().unwrap())).await.unwrap();
        drop(sender);
        let (report, mut reports) = mpsc::channel(8);
        let ended = judge_all(held, |_| std::future::ready(Judgement::WouldPromote), &report).await;
        drop(report);
        let mut judged = Vec::new();
        while let Some(next) = reports.recv().await {
            judged.push(next.outcome);
        }
        assert_eq!(judged, [JudgedOutcome::WouldPromote; 2]);
        let fault = ended.unwrap_err();
        assert!(fault.contains("1 held deliveries could not be read") && fault.contains("evt_x"), "{fault}");
    }
}
