//! What the engine asks of the rest of the appliance, as `src/run/runner` answers it, and a provider in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use config::connector::{Catalogue, Manifest};
use domain::{ConnectionId, ConnectorId, EventId, TenantId};
use eventlog::{EventLog, Scope};
use runner::automation::{Automation, CompiledAutomations, EventFacts};
use runner::call::{Answer, Call, Caller, Reply};
use runner::connector::Configured;
use runner::engine::{Asked, Authority, Automations, Events, Notice, Notices, Payloads, Permission, PortError};
use runner::ids::{AutomationId, RunId, Version};
use runner::ledger::payloads::{Bounds, Fetched, PayloadDirectory, PayloadError, PayloadStore};
use runner::ledger::{
    AppendError, Body, BoxFuture, Claimable, Commit, Committed, LedgerStore, Payload, ReadError, Record, SendState,
    StepResult, Tail, TailPosition,
};
use tokio::sync::watch;

use super::marks::Marks;
use crate::Result;

/// Answers at once, or after a time.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) marks: Arc<Marks>,
    pub(super) takes: Duration,
    pub(super) body: Bytes,
}

impl Caller for Provider {
    fn call(&self, call: Call) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.marks.called(call.run);
            if !self.takes.is_zero() {
                tokio::time::sleep(self.takes).await;
            }
            let mut headers = http::HeaderMap::with_capacity(1);
            headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            self.marks.answered(call.run);
            Answer {
                send_state: SendState::Response,
                correlation: None,
                reply: Reply::Response { status: 200, headers: Arc::new(headers), body: self.body.clone(), cut: None },
            }
        })
    }
}

/// Tells the marks what has become durable.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) inner: Arc<dyn LedgerStore>,
    pub(super) marks: Arc<Marks>,
}

impl LedgerStore for Watched {
    fn append(&self, commit: Commit) -> BoxFuture<'static, std::result::Result<Committed, AppendError>> {
        let (run, marks) = (commit.run, Arc::clone(&self.marks));
        let (mut outcomes, mut payload_bytes, mut is_over) = (0, 0, false);
        for body in &commit.bodies {
            match body {
                Body::Intent(intent) => payload_bytes += intent.input.bytes,
                Body::Outcome(outcome) => {
                    outcomes += 1;
                    if let StepResult::Done { output } = &outcome.result {
                        payload_bytes += output.bytes;
                    }
                }
                Body::Terminal(_) => is_over = true,
                _ => {}
            }
        }
        let appended = self.inner.append(commit);
        Box::pin(async move {
            let committed = appended.await?;
            marks.outcomes.fetch_add(outcomes, Ordering::Relaxed);
            marks.payload_bytes.fetch_add(payload_bytes, Ordering::Relaxed);
            if is_over {
                marks.over(run);
            }
            Ok(committed)
        })
    }

    fn read(&self, tenant: &TenantId, run: RunId) -> BoxFuture<'static, std::result::Result<Vec<Record>, ReadError>> {
        self.inner.read(tenant, run)
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, std::result::Result<Tail, ReadError>> {
        self.inner.tail(from, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn renew(&self, run: RunId, lease: u64, until: u64) -> BoxFuture<'static, std::result::Result<(), AppendError>> {
        self.inner.renew(run, lease, until)
    }

    fn claimable(&self, now: u64, max: usize) -> BoxFuture<'static, std::result::Result<Vec<Claimable>, ReadError>> {
        self.inner.claimable(now, max)
    }
}

/// Every tenant has every connection, each of the generic HTTP connector as it is shipped.
#[derive(Debug)]
pub(super) struct Shipped(Arc<Manifest>);

impl Shipped {
    pub(super) fn http() -> Result<Self> {
        let catalogue = Catalogue::shipped().map_err(|faults| format!("{faults:?}"))?;
        let connector = ConnectorId::parse("http")?;
        Ok(Self(Arc::clone(catalogue.get(&connector).ok_or("no connector http is shipped")?)))
    }
}

impl Configured for Shipped {
    fn manifest(&self, _: &TenantId, _: &ConnectionId) -> Option<Arc<Manifest>> {
        Some(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
pub(super) struct Compiled(pub(super) CompiledAutomations);

impl Automations for Compiled {
    fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> BoxFuture<'_, std::result::Result<Arc<Automation>, PortError>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            let loaded = self.0.load(&tenant, id, version).await;
            loaded.map_err(|error| PortError::Unavailable(error.to_string().into()))
        })
    }
}

/// Events of a log; without one, none.
pub(super) struct EventsOf(pub(super) Option<Arc<dyn EventLog>>);

impl Events for EventsOf {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, std::result::Result<EventFacts, PortError>> {
        let (log, tenant) = (self.0.clone(), tenant.clone());
        Box::pin(async move {
            let log = log.ok_or_else(|| PortError::Gone("there is no log".into()))?;
            let read = tokio::task::spawn_blocking(move || log.by_id(&Scope::Tenant(tenant), event)).await;
            match read {
                Ok(Ok(Some(event))) => Ok(EventFacts::from(&event)),
                other => Err(PortError::Unavailable(format!("{other:?}").into())),
            }
        })
    }
}

impl fmt::Debug for EventsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventsOf")
    }
}

#[derive(Debug)]
pub(super) struct Keeping(pub(super) PayloadDirectory);

impl Payloads for Keeping {
    fn keep(&self, tenant: &TenantId, bytes: Bytes) -> BoxFuture<'_, std::result::Result<Payload, PortError>> {
        let kept = self.0.keep(tenant.clone(), bytes, Bounds::default());
        Box::pin(async move { kept.await.map_err(|fault| not_now(&fault)) })
    }

    fn fetch(&self, tenant: &TenantId, payload: &Payload) -> BoxFuture<'_, std::result::Result<Bytes, PortError>> {
        let fetched = self.0.fetch(tenant.clone(), payload);
        Box::pin(async move {
            match fetched.await.map_err(|fault| not_now(&fault))? {
                Fetched::Whole(bytes) => Ok(bytes),
                Fetched::Truncated(_) | Fetched::Expired => Err(PortError::Gone("it is not whole".into())),
            }
        })
    }
}

fn not_now(fault: &PayloadError) -> PortError {
    PortError::Unavailable(fault.to_string().into())
}

/// Everything is allowed, and nobody is told anything.
#[derive(Debug)]
pub(super) struct Lenient;

impl Authority for Lenient {
    fn may_call(&self, _: Asked) -> BoxFuture<'_, std::result::Result<Permission, PortError>> {
        Box::pin(std::future::ready(Ok(Permission::Yes)))
    }
}

impl Notices for Lenient {
    fn tell(&self, notice: Notice) {
        eprintln!("a notice, which spoils what is measured: {notice:?}");
    }
}
