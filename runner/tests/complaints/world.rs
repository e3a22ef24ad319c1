//! Everything that runs stand on, put together as the appliance does it: on the runtime's own clock, which most tests pause.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use config::connector::{Catalogue, Manifest};
use domain::{Clock, ConnectionId, EndpointId, EventId, NodeId, TenantId};
use eventlog::conformance::event;
use eventlog::{EventLog, MemoryLog, NewEvent, Scope};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_runner::admission::Triggers;
use tidegate_runner::automation::cache::Bounds as CacheBounds;
use tidegate_runner::automation::memory::MemoryDefinitions;
use tidegate_runner::automation::{
    Automation, CompiledAutomations, DefinitionStore, Draft, EventFacts, Faults, Format, LoadError, StoreError,
};
use tidegate_runner::connector::{Configured, FromConfig};
use tidegate_runner::engine::{
    Acts, Asked, Authority, Automations, Engine, Events, Notice, Notices, Payloads, Permission, PortError, Ports,
    RunState, Settings,
};
use tidegate_runner::ids::{AutomationId, RunId, StepId, Version};
use tidegate_runner::ledger::embedded::{self, EmbeddedLedger};
use tidegate_runner::ledger::memory::{MemoryLedger, MemoryLedgerStore};
use tidegate_runner::ledger::payloads::{Bounds, Fetched, PayloadDirectory, PayloadError, PayloadStore};
use tidegate_runner::ledger::{
    Admitted, AppendError, Body, BoxFuture, Cause, Commit, LedgerStore, Payload, QueueClass, Record, RunStatus,
    Terminal, Writer,
};
use tidegate_runner::schedule::{Drive, Ended, Queue, Turn};
use tidegate_runner::view::{self, ExecutionView, Known, Plan};
use tokio::sync::watch;

use crate::provider::{Door, Provider};

pub(crate) const NOW: u64 = 1_800_000_000_000;

/// Wall and monotonic time by the runtime's own timers.
#[derive(Debug)]
pub(crate) struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn unix_ms(&self) -> u64 {
        NOW + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub(crate) fn acme() -> TenantId {
    tenant("acme")
}

pub(crate) fn step(name: &str) -> StepId {
    StepId::parse(name).unwrap()
}

pub(crate) fn connection(name: &str) -> ConnectionId {
    ConnectionId::parse(name).unwrap()
}

pub(crate) const API: &str = "conn_api";
/// Stripe: its key makes a POST idempotent.
pub(crate) const PAY: &str = "conn_pay";
/// Twilio: what it sends, it sends again.
pub(crate) const SMS: &str = "conn_sms";

/// A request to the path of its own name; a POST through this connection is unsafe, a PUT is idempotent.
pub(crate) fn call(id: &str, method: &str) -> Value {
    json!({ "id": id, "type": "http.request", "credential": API, "method": method, "path": format!("/{id}") })
}

pub(crate) fn with(mut node: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more}") };
    node.as_object_mut().unwrap().extend(more);
    node
}

/// An automation of these nodes, one after the other unless they say otherwise.
pub(crate) fn document(nodes: &Value) -> Value {
    json!({ "name": "a", "trigger": { "endpoint": "wh_1" }, "nodes": nodes })
}

/// Connections of every tenant, each of a connector that is shipped.
#[derive(Debug)]
struct Connections(Catalogue);

impl Configured for Connections {
    fn manifest(&self, _: &TenantId, connection: &ConnectionId) -> Option<Arc<Manifest>> {
        let connector = match connection.as_str() {
            API => "http",
            PAY => "stripe",
            SMS => "twilio",
            _ => return None,
        };
        self.0.manifests().find(|manifest| manifest.connector.as_str() == connector).cloned()
    }
}

/// Versions, compiled; those of some tenants cannot be had.
#[derive(Debug)]
pub(crate) struct Compiled {
    automations: CompiledAutomations,
    pub(crate) away_for: Mutex<BTreeSet<TenantId>>,
}

impl Automations for Compiled {
    fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> BoxFuture<'_, Result<Arc<Automation>, PortError>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            if self.away_for.lock().unwrap().contains(&tenant) {
                return Err(PortError::Unavailable("as a test has asked".into()));
            }
            self.automations.load(&tenant, id, version).await.map_err(|error| match error {
                LoadError::NotThere | LoadError::Faults(_) => PortError::Gone(error.to_string().into()),
                LoadError::Store(StoreError::Tenant) => PortError::Tenant,
                LoadError::Store(_) => PortError::Unavailable(error.to_string().into()),
            })
        })
    }
}

#[derive(Debug)]
struct FromLog(Arc<MemoryLog>);

impl Events for FromLog {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        let found = self.0.by_id(&Scope::Tenant(tenant.clone()), event);
        Box::pin(async move {
            let found = found.map_err(|fault| PortError::Unavailable(fault.to_string().into()))?;
            found.as_ref().map(EventFacts::from).ok_or_else(|| PortError::Gone("it was trimmed".into()))
        })
    }
}

/// Inputs and outputs, in files where they are large.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) store: PayloadDirectory,
    pub(crate) is_full: AtomicBool,
}

impl Payloads for Keeping {
    fn keep(&self, tenant: &TenantId, bytes: Bytes) -> BoxFuture<'_, Result<Payload, PortError>> {
        let kept = self.store.keep(tenant.clone(), bytes, Bounds::default());
        Box::pin(async move {
            if self.is_full.load(Ordering::SeqCst) {
                return Err(PortError::Unavailable("as a test has asked".into()));
            }
            kept.await.map_err(|fault: PayloadError| PortError::Unavailable(fault.to_string().into()))
        })
    }

    fn fetch(&self, tenant: &TenantId, payload: &Payload) -> BoxFuture<'_, Result<Bytes, PortError>> {
        let fetched = self.store.fetch(tenant.clone(), payload);
        Box::pin(async move {
            match fetched.await.map_err(|fault| PortError::Unavailable(fault.to_string().into()))? {
                Fetched::Whole(bytes) => Ok(bytes),
                Fetched::Truncated(_) | Fetched::Expired => Err(PortError::Gone("it is not kept whole".into())),
            }
        })
    }
}

/// Whoever is told, and whatever is allowed.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Vec<Notice>>);

impl Notices for Told {
    fn tell(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
    }
}

impl Authority for Told {
    fn may_call(&self, _: Asked) -> BoxFuture<'_, Result<Permission, PortError>> {
        Box::pin(std::future::ready(Ok(Permission::Yes)))
    }
}

/// Nobody waits for a slot here.
#[derive(Debug)]
struct NoQueue;

impl Queue for NoQueue {
    fn enqueue(&self, _: TenantId, _: RunId, _: QueueClass) {}

    fn enqueue_at(&self, _: TenantId, _: RunId, _: QueueClass, _: u64) {}

    fn nudge(&self, _: &TenantId, _: RunId) {}
}

/// What outlives a process, and what is outside of it.
pub(crate) struct World {
    pub(crate) clock: Arc<dyn Clock>,
    /// The ledger in memory, for its faults; what runs use is `ledger`.
    pub(crate) memory: Arc<MemoryLedger>,
    pub(crate) ledger: Arc<dyn LedgerStore>,
    pub(crate) definitions: MemoryDefinitions,
    pub(crate) automations: Arc<Compiled>,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) payloads: Arc<Keeping>,
    pub(crate) connectors: Arc<FromConfig>,
    pub(crate) provider: Arc<Provider>,
    pub(crate) told: Arc<Told>,
    pub(crate) directory: TempDir,
    pub(crate) nudges: watch::Sender<u64>,
    events: Arc<FromLog>,
    numbers: AtomicU32,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// With the ledger of one process, in memory.
    pub(crate) fn new() -> Self {
        Self::over(|disk, _| MemoryLedger::of_one_process(disk))
    }

    /// With a ledger that many processes share: a lease is another's until it lapses.
    pub(crate) fn shared() -> Self {
        Self::over(MemoryLedger::shared)
    }

    fn over(open: impl FnOnce(&MemoryLedgerStore, Arc<dyn Clock>) -> MemoryLedger) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        let disk = MemoryLedgerStore::default();
        let memory = Arc::new(open(&disk, Arc::clone(&clock)));
        let definitions = MemoryDefinitions::default();
        let automations = CompiledAutomations::new(Arc::new(definitions.clone()), CacheBounds::default());
        let automations = Arc::new(Compiled { automations, away_for: Mutex::default() });
        let log = Arc::new(MemoryLog::new(NodeId(7), Arc::clone(&clock)));
        let events = Arc::new(FromLog(Arc::clone(&log)));
        let triggers = Triggers::new(
            Arc::new(definitions.clone()),
            Arc::<Compiled>::clone(&automations),
            Arc::<FromLog>::clone(&events),
            Arc::clone(&clock),
        );
        let directory = tempfile::tempdir().unwrap();
        let store = PayloadDirectory::open(directory.path().join("payloads"), Arc::clone(&clock)).unwrap();
        Self {
            ledger: Arc::<MemoryLedger>::clone(&memory),
            memory,
            definitions,
            automations,
            log,
            triggers,
            payloads: Arc::new(Keeping { store, is_full: AtomicBool::new(false) }),
            connectors: Arc::new(FromConfig::new(Arc::new(Connections(Catalogue::shipped().unwrap())))),
            provider: Arc::default(),
            told: Arc::default(),
            directory,
            nudges: watch::Sender::new(0),
            events,
            numbers: AtomicU32::new(0),
            clock,
        }
    }

    /// The ledger on the disk from here on, opened as by a process that begins. Not for paused clocks: it has threads.
    pub(crate) fn on_disk(&mut self) {
        let mut settings = embedded::Settings::new(self.directory.path().join("ledger"));
        settings.reserve_bytes = 0;
        // Whoever had it open lets go of it first.
        self.ledger = Arc::<MemoryLedger>::clone(&self.memory);
        for _ in 0..2_000 {
            match EmbeddedLedger::open(&settings, Arc::clone(&self.clock)) {
                Ok((ledger, _)) => {
                    self.ledger = Arc::new(ledger);
                    return;
                }
                Err(embedded::OpenError::Locked(_)) => std::thread::park_timeout(Duration::from_millis(5)),
                Err(fault) => panic!("{fault}"),
            }
        }
        panic!("the ledger stays open");
    }

    pub(crate) fn index_directory(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports {
            clock: Arc::clone(&self.clock),
            ledger: Arc::clone(&self.ledger),
            definitions: Arc::new(self.definitions.clone()),
            automations: Arc::<Compiled>::clone(&self.automations),
            events: Arc::<FromLog>::clone(&self.events),
            payloads: Arc::<Keeping>::clone(&self.payloads),
            connectors: Arc::<FromConfig>::clone(&self.connectors),
            caller: Arc::new(Door(Arc::clone(&self.provider))),
            authority: Arc::<Told>::clone(&self.told),
            notices: Arc::<Told>::clone(&self.told),
        }
    }

    /// A process's engine, over the ledger as it is open now.
    pub(crate) fn engine(&self, owner: &str) -> Arc<Engine> {
        Arc::new(Engine::new(self.ports(), Settings::new(owner)))
    }

    pub(crate) fn acts(&self) -> Acts {
        self.acts_with(Arc::new(NoQueue))
    }

    pub(crate) fn acts_with(&self, queue: Arc<dyn Queue>) -> Acts {
        Acts {
            clock: Arc::clone(&self.clock),
            ledger: Arc::clone(&self.ledger),
            definitions: Arc::new(self.definitions.clone()),
            automations: Arc::<Compiled>::clone(&self.automations),
            payloads: Arc::<Keeping>::clone(&self.payloads),
            queue,
        }
    }

    /// Saves a document as whoever asks the API does: read, held against the connectors, and put as the next version.
    pub(crate) async fn try_save(&self, of: &str, document: &Value) -> Result<(AutomationId, Version), Faults> {
        let tenant = tenant(of);
        let draft = Draft::read(&document.to_string(), Format::Json)?;
        draft.check(&tenant, &*self.connectors)?;
        let known = self.definitions.by_name(&tenant, draft.name()).await.unwrap();
        let (id, version) = if let Some(id) = known {
            let last = self.definitions.get(&tenant, id, None).await.unwrap().unwrap();
            (id, last.version.checked_add(1).unwrap())
        } else {
            let hash = blake3::hash(format!("{of}/{}", draft.name()).as_bytes());
            (AutomationId::from_bytes(hash.as_bytes()[..16].try_into().unwrap()), Version::MIN)
        };
        let stored = draft.into_stored(tenant.clone(), id, version, self.clock.unix_ms(), "ann");
        self.definitions.put(stored).await.unwrap();
        self.triggers.changed(&tenant);
        Ok((id, version))
    }

    pub(crate) async fn save(&self, of: &str, document: &Value) -> (AutomationId, Version) {
        self.try_save(of, document).await.unwrap()
    }

    /// A delivery of the gateway's, durable.
    pub(crate) fn deliver(&self, of: &str, body: &Value) -> EventId {
        // Every fifth of them would be bulk.
        let number = self.numbers.fetch_add(1, Ordering::SeqCst) * 5 + 1;
        let new = NewEvent { body: body.to_string().into(), ..event(of, "wh_1", self.clock.unix_ms(), number) };
        self.log.append(new).wait().unwrap().id
    }

    /// Saves an automation of these nodes, and admits a run of an event that has just come.
    pub(crate) async fn run(&self, nodes: &Value) -> RunId {
        self.run_of("acme", &document(nodes), &json!({ "amount": 7 })).await
    }

    pub(crate) async fn run_of(&self, of: &str, document: &Value, body: &Value) -> RunId {
        let (id, version) = self.save(of, document).await;
        let event = self.deliver(of, body);
        self.admit(of, id, version, event).await
    }

    /// Admits a run, and hands it in nowhere.
    pub(crate) async fn admit(&self, of: &str, id: AutomationId, version: Version, event: EventId) -> RunId {
        let automation = self.automations.load(&tenant(of), id, version).await.unwrap();
        let run = RunId::of_event(&tenant(of), id, version, event);
        let now = self.clock.unix_ms();
        let admitted = Admitted {
            automation: id,
            version,
            cause: Cause::Event { event, endpoint: EndpointId::parse("wh_1").unwrap() },
            class: QueueClass::Interactive,
            deadline_unix_ms: now + u64::try_from(automation.deadline.as_millis()).unwrap(),
            input: None,
        };
        let commit = Commit {
            tenant: tenant(of),
            run,
            expected: 0,
            writer: Writer::Anyone,
            at_unix_ms: now,
            bodies: vec![Body::Admitted(admitted)],
        };
        match self.ledger.append(commit).await {
            // A process that reads the log was quicker.
            Ok(_) | Err(AppendError::Conflict { .. }) => run,
            Err(fault) => panic!("{fault}"),
        }
    }

    pub(crate) fn a_turn(&self, run: RunId) -> Turn {
        let stopping = watch::Sender::new(false).subscribe();
        Turn { tenant: acme(), run, class: QueueClass::Interactive, nudged: self.nudges.subscribe(), stopping }
    }

    pub(crate) async fn turn(&self, engine: &Engine, run: RunId) -> Ended {
        engine.drive(self.a_turn(run)).await
    }

    /// A worker that is lost so much later; what it gave, if it has ended before.
    pub(crate) async fn lost_after(&self, engine: &Engine, run: RunId, ms: u64) -> Option<Ended> {
        tokio::time::timeout(Duration::from_millis(ms), self.turn(engine, run)).await.ok()
    }

    /// A worker that is lost as soon as the provider has been called so often at a path.
    pub(crate) async fn lost_at(&self, engine: &Engine, run: RunId, path: &str, count: usize) {
        tokio::select! {
            ended = self.turn(engine, run) => panic!("it has ended: {ended:?}"),
            () = crate::process::until("the call", || self.provider.count(path) >= count) => {}
        }
    }

    /// Turn after turn, until it is over or waits for somebody.
    pub(crate) async fn to_the_end(&self, engine: &Engine, run: RunId) -> RunState {
        for _ in 0..200 {
            match self.turn(engine, run).await {
                Ended::Parked { until_unix_ms: Some(until), .. } if self.status(run).await == RunStatus::Parked => {
                    let wait = until.saturating_sub(self.clock.unix_ms());
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
                Ended::Terminal | Ended::Parked { .. } => return self.state(run).await,
                Ended::Fenced => tokio::time::sleep(Duration::from_secs(1)).await,
                Ended::Unavailable { retry_ms } => tokio::time::sleep(Duration::from_millis(retry_ms)).await,
            }
        }
        panic!("it does not end: {:?}", self.state(run).await);
    }

    pub(crate) async fn records(&self, run: RunId) -> Vec<Record> {
        self.ledger.read(&acme(), run).await.unwrap()
    }

    pub(crate) async fn state(&self, run: RunId) -> RunState {
        RunState::fold(&self.records(run).await).unwrap()
    }

    pub(crate) async fn status(&self, run: RunId) -> RunStatus {
        self.state(run).await.status()
    }

    pub(crate) async fn terminal(&self, run: RunId) -> Terminal {
        self.state(run).await.terminal.unwrap()
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.told.0.lock().unwrap().clone()
    }

    /// The run as people see it.
    pub(crate) async fn view(&self, run: RunId) -> ExecutionView {
        let state = self.state(run).await;
        let loaded = self.automations.load(&acme(), state.admitted.automation, state.admitted.version).await;
        let plan = loaded.ok().map(|automation| Plan::of(&automation));
        let known = Known {
            plan: plan.as_ref(),
            payloads: Some(&self.payloads.store),
            now_unix_ms: self.clock.unix_ms(),
            ..Known::default()
        };
        view::execution(&self.records(run).await, &known).await.unwrap()
    }
}
