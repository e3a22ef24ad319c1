//! A runner in this process: the real ledger, definitions, payloads, connectors, scheduler, engine and, if asked for,
//! index, event log and admission, as `src/run/runner/live.rs` puts them together; the provider alone is ours.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::{Clock, NodeId, SystemClock, TenantId};
use eventlog::{EmbeddedLog, EventLog};
use runner::admission::{self, Admission, Letters, Triggers};
use runner::automation::cache::Bounds;
use runner::automation::{
    CompiledAutomations, DefinitionStore, Draft, EmbeddedDefinitions, Format, embedded as definitions,
};
use runner::connector::{Connectors, FromConfig};
use runner::engine::{Automations, Engine, Events, Ports};
use runner::ids::{AutomationId, RunId, Version};
use runner::index::{IndexSettings, RunIndex};
use runner::ledger::embedded::{self, EmbeddedLedger};
use runner::ledger::payloads::PayloadDirectory;
use runner::ledger::{Admitted, Body, Cause, Commit, Kept, LedgerStore, Payload, QueueClass, Writer};
use runner::schedule::core::Limits;
use runner::schedule::{self, Queue, Scheduler, Sources};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::marks::Marks;
use super::ports::{Compiled, EventsOf, Keeping, Lenient, Provider, Shipped, Watched};
use crate::Result;

/// Slots of a runner that nobody has told how many: `runner.slots`.
pub(super) const SLOTS: u32 = 512;

/// What is opened.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// Runs that a closed loop has under way.
    pub(super) under_way_max: usize,
    pub(super) provider_takes: Duration,
    /// Bytes of the answer of every call.
    pub(super) answer_bytes: usize,
    pub(super) has_index: bool,
    /// A log, and admission from it.
    pub(super) has_log: bool,
    /// Automations, each of a tenant of its own.
    pub(super) documents: Vec<String>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) marks: Arc<Marks>,
    pub(super) embedded: Arc<EmbeddedLedger>,
    ledger: Arc<dyn LedgerStore>,
    pub(super) queue: schedule::Handle,
    pub(super) log: Option<Arc<dyn EventLog>>,
    pub(super) index: Option<Arc<RunIndex>>,
    pub(super) admission: Option<admission::Handle>,
    pub(super) automations: Vec<(TenantId, AutomationId)>,
    clock: Arc<dyn Clock>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    runs: AtomicU64,
}

/// As the runner's own is.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().max_blocking_threads(32).enable_all().build()?)
}

/// Where the log is.
fn log_settings(directory: &Path) -> eventlog::embedded::Settings {
    eventlog::embedded::Settings {
        node: NodeId(1),
        directory: directory.to_owned(),
        shards: 1,
        retention: vec![("default".into(), Duration::from_hours(24))],
        segment_bytes: 64 << 20,
        sync: eventlog::segment::SyncMode::Auto,
        when_full: eventlog::segment::WhenFull::Refuse,
        reserve_bytes: 1 << 30,
        queue_records: 65_536,
        queue_bytes: 256 << 20,
        batch_bytes_max: 1 << 20,
        storage: Arc::new(eventlog::segment::RealStorage),
    }
}

impl World {
    pub(super) async fn open(directory: &Path, setup: &Setup) -> Result<Self> {
        let clock: Arc<dyn Clock> = SystemClock::shared();
        let marks = Arc::new(Marks::new(setup.under_way_max));
        let (embedded, _) =
            EmbeddedLedger::open(&embedded::Settings::new(directory.join("ledger")), Arc::clone(&clock))?;
        let embedded = Arc::new(embedded);
        let inner: Arc<dyn LedgerStore> = Arc::<EmbeddedLedger>::clone(&embedded);
        let ledger: Arc<dyn LedgerStore> = Arc::new(Watched { inner, marks: Arc::clone(&marks) });
        let payloads = PayloadDirectory::open(directory.join("payloads"), Arc::clone(&clock))?;
        let settings = definitions::Settings::new(directory.join("definitions"));
        let (store, _) = EmbeddedDefinitions::open(&settings, Arc::clone(&clock))?;
        let definitions: Arc<dyn DefinitionStore> = Arc::new(store);
        let automations = put(&definitions, &setup.documents, clock.unix_ms()).await?;
        let compiled: Arc<dyn Automations> =
            Arc::new(Compiled(CompiledAutomations::new(Arc::clone(&definitions), Bounds::default())));
        let index = if setup.has_index {
            let at = directory.join("index");
            let opened = RunIndex::open(&at, IndexSettings::default(), Arc::clone(&ledger), Arc::clone(&clock));
            Some(opened.await?)
        } else {
            None
        };
        let log: Option<Arc<dyn EventLog>> = if setup.has_log {
            Some(Arc::new(EmbeddedLog::open(&log_settings(&directory.join("log")), Arc::clone(&clock))?.0))
        } else {
            None
        };
        let events: Arc<dyn Events> = Arc::new(EventsOf(log.clone()));
        let connectors: Arc<dyn Connectors> = Arc::new(FromConfig::new(Arc::new(Shipped::http()?)));
        let settings = schedule::Settings { limits: Limits::of_slots(SLOTS), ..schedule::Settings::default() };
        let (scheduler, queue) = Scheduler::new(settings, Arc::clone(&clock))?;
        let provider = Provider {
            marks: Arc::clone(&marks),
            takes: setup.provider_takes,
            body: Bytes::from(format!("{{\"id\":\"{}\"}}", "o".repeat(setup.answer_bytes.saturating_sub(9)))),
        };
        let ports = Ports {
            clock: Arc::clone(&clock),
            ledger: Arc::clone(&ledger),
            definitions: Arc::clone(&definitions),
            automations: Arc::clone(&compiled),
            events: Arc::clone(&events),
            payloads: Arc::new(Keeping(payloads)),
            connectors,
            caller: Arc::new(provider),
            authority: Arc::new(Lenient),
            notices: Arc::new(Lenient),
        };
        let engine = Engine::new(ports, runner::engine::Settings::new("bench"));
        let (stop, stopped) = watch::channel(false);
        let scheduled = scheduler.run(Arc::new(engine), Sources::default(), stopped.clone());
        let mut tasks = vec![tokio::spawn(async move {
            scheduled.await;
        })];
        let admission = log.as_ref().map(|log| {
            let parts = admission::Parts {
                log: Arc::clone(log),
                ledger: Arc::clone(&ledger),
                triggers: Triggers::new(definitions, compiled, events, Arc::clone(&clock)),
                queue: Arc::new(queue.clone()),
                clock: Arc::clone(&clock),
                letters: Letters::in_memory(),
            };
            let (admission, handle) = Admission::new(parts, admission::Settings::default());
            tasks.push(tokio::spawn(admission.run(stopped)));
            handle
        });
        let runs = AtomicU64::new(0);
        Ok(Self { marks, embedded, ledger, queue, log, index, admission, automations, clock, stop, tasks, runs })
    }

    /// Admits a run by hand, as the API does, and hands it in. Each has an input of this many bytes of text.
    pub(super) async fn begin(&self, due: Instant, input_bytes: usize) -> Result<(TenantId, RunId)> {
        let (commit, class) = self.admission(input_bytes);
        self.marks.due(commit.run, due);
        self.admit(commit, class).await
    }

    /// The same, of a run that is not watched.
    pub(super) async fn begin_unwatched(&self, input_bytes: usize) -> Result<(TenantId, RunId)> {
        let (commit, class) = self.admission(input_bytes);
        self.admit(commit, class).await
    }

    async fn admit(&self, commit: Commit, class: QueueClass) -> Result<(TenantId, RunId)> {
        let (tenant, run) = (commit.tenant.clone(), commit.run);
        self.ledger.append(commit).await?;
        self.queue.enqueue(tenant.clone(), run, class);
        Ok((tenant, run))
    }

    fn admission(&self, input_bytes: usize) -> (Commit, QueueClass) {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let (tenant, automation) = &self.automations[number as usize % self.automations.len()];
        let now = self.now_unix_ms();
        let admitted = Admitted {
            automation: *automation,
            version: Version::MIN,
            cause: Cause::Manual { by: "bench".into() },
            class: QueueClass::Interactive,
            deadline_unix_ms: now + 24 * 3_600_000,
            input: Some(inline(format!("{{\"order\":{number},\"text\":\"{}\"}}", "i".repeat(input_bytes)))),
        };
        let commit = Commit {
            tenant: tenant.clone(),
            run: RunId::of_request(tenant, *automation, Version::MIN, &number.to_be_bytes()),
            expected: 0,
            writer: Writer::Anyone,
            at_unix_ms: now,
            bodies: vec![Body::Admitted(admitted)],
        };
        (commit, QueueClass::Interactive)
    }

    pub(super) fn now_unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    pub(super) async fn close(self) -> Result<()> {
        self.stop.send(true)?;
        for task in self.tasks {
            task.await?;
        }
        if let Some(index) = self.index {
            index.close().await;
        }
        self.embedded.close();
        Ok(())
    }
}

fn inline(text: String) -> Payload {
    let (bytes, digest) = (text.len() as u64, *blake3::hash(text.as_bytes()).as_bytes());
    Payload { bytes, digest, kept: Kept::Inline(text.into()) }
}

pub(super) fn tenant(n: usize) -> Result<TenantId> {
    Ok(TenantId::parse(&format!("tenant-{n}"))?)
}

async fn put(
    store: &Arc<dyn DefinitionStore>,
    documents: &[String],
    now: u64,
) -> Result<Vec<(TenantId, AutomationId)>> {
    let mut all = Vec::new();
    for (n, document) in documents.iter().enumerate() {
        let draft = Draft::read(document, Format::Json).map_err(|faults| format!("{faults}: {document}"))?;
        let (tenant, id) = (tenant(n)?, AutomationId::from_bytes([n as u8 + 1; 16]));
        // An automation begins with the events that come after it was made.
        let stored = draft.into_stored(tenant.clone(), id, Version::MIN, now - 1_000, "bench");
        if store.get(&tenant, id, None).await?.is_none() {
            store.put(stored).await?;
        }
        all.push((tenant, id));
    }
    Ok(all)
}

/// Three calls, one after the other, the later ones with something of the one before.
pub(super) fn three_steps(name: &str, source: &str, trigger: Option<&str>) -> String {
    let trigger = trigger.map_or_else(String::new, |endpoint| format!("\"trigger\":{{\"endpoint\":\"{endpoint}\"}},"));
    let call = |id: &str, body: &str| {
        format!(
            "{{\"id\":\"{id}\",\"type\":\"http.request\",\"credential\":\"conn_bench\",\"method\":\"PUT\",\
             \"path\":\"/{id}\",\"body\":{body}}}"
        )
    };
    let first = call("reserve", &format!("{{\"order\":\"${{{source}.order}}\",\"text\":\"${{{source}.text}}\"}}"));
    let of = |step: &str| format!("{{\"before\":\"${{steps.{step}.output.status}}\",\"text\":\"${{{source}.text}}\"}}");
    let (second, third) = (call("charge", &of("reserve")), call("notify", &of("charge")));
    format!("{{\"name\":\"{name}\",{trigger}\"nodes\":[{first},{second},{third}]}}")
}
