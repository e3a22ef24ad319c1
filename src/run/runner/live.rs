//! The runner, open: everything that runs stand on, put together once the ledger is there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Appliance, Environment, RunnerStore};
use domain::{Clock, ConnectionId, TenantId};
use eventlog::EventLog;
use runner::admission::{self, Admission, Letters, Triggers};
use runner::automation::cache::Bounds;
use runner::automation::{CompiledAutomations, DefinitionStore};
use runner::call::egress::{EgressCaller, EgressSettings};
use runner::connector::{Connectors, FromConfig};
use runner::engine::{Acts, Automations, Engine, Events, Payloads, Ports};
use runner::index::{Following, IndexError, IndexSettings, RunIndex};
use runner::ledger::embedded::Ages;
use runner::ledger::payloads::{self, PayloadStore};
use runner::ledger::{BoxFuture, LedgerStore};
use runner::replay::{self, Replays};
use runner::schedule::core::{Limits, Tier};
use runner::schedule::{self, Scheduler, Sources};
use runner::view;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::calls::{Dialling, Signing, WayOut};
use super::config::{ConnectionsInForce, InForce};
use super::metered::Metered;
use super::metrics::RunnerMetrics;
use super::ports::{Compiled, History, Keeping, StillThere, Telling};
use super::stores::{Keeper, Stores};
use super::tiers::TiersInForce;

/// How often figures are taken that take a look at the disk.
const LOOK_EVERY: Duration = Duration::from_millis(LOOK_EVERY_MS);
const LOOK_EVERY_MS: u64 = 5_000;
/// How often what is over age is moved and dropped.
const RETAIN_EVERY: Duration = Duration::from_mins(10);

/// What a runner is opened with.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) appliance: Appliance,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) log: Option<Arc<dyn EventLog>>,
    pub(super) config: Arc<ArcSwap<InForce>>,
    pub(super) metrics: Arc<RunnerMetrics>,
    pub(super) drain: Duration,
}

/// All of it, open.
#[derive(Debug)]
pub(crate) struct Live {
    pub(super) ledger: Arc<dyn LedgerStore>,
    keeper: Keeper,
    pub(super) definitions: Arc<dyn DefinitionStore>,
    pub(super) automations: Arc<dyn Automations>,
    pub(super) connectors: Arc<dyn Connectors>,
    pub(super) connector_names: Arc<dyn view::Connectors>,
    pub(super) events: Arc<dyn Events>,
    pub(super) payloads: Arc<dyn Payloads>,
    pub(super) payload_store: Arc<dyn PayloadStore>,
    pub(super) index: Arc<RunIndex>,
    pub(super) scheduler: schedule::Handle,
    pub(super) triggers: Arc<Triggers>,
    /// None where this node has no log.
    pub(super) admission: Option<admission::Handle>,
    /// The same.
    pub(super) replays: Option<Replays>,
    pub(super) acts: Acts,
    seen: Figures,
    /// What was wrong with it when it was last looked at.
    faults: Mutex<Vec<String>>,
}

/// What was seen at the last look.
#[derive(Debug, Default)]
struct Figures {
    /// Nobody knows what is in the ledger's index, or that of runs takes nothing more: they have to be opened anew.
    is_lost: AtomicBool,
    index_lag_ms: AtomicU64,
    open_runs: AtomicU64,
    ledger_bytes: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) index_lag_ms: u64,
    pub(super) open_runs: u64,
    pub(super) ledger_bytes: u64,
}

/// What runs from here on, until it is told to stop.
pub(super) struct Tasks {
    scheduler: Scheduler,
    engine: Arc<Engine>,
    sources: Sources,
    admission: Option<Admission>,
}

impl Opening {
    /// Opens everything, in the order in which each stands on those before it. Nothing runs yet.
    pub(super) async fn open(&self) -> Result<(Arc<Live>, Tasks), String> {
        let file = &self.appliance.runner;
        let clock = &self.clock;
        let stores = Stores::open(self).await?;
        let counts = Arc::clone(&self.metrics.counts);
        let Stores { ledger: inner, definitions, payloads: payload_store, events, index: at, keeper } = stores;
        let ledger: Arc<dyn LedgerStore> = Arc::new(Metered { inner, counts, clock: Arc::clone(clock) });
        let automations = CompiledAutomations::new(Arc::clone(&definitions), Bounds::default());
        let automations: Arc<dyn Automations> = Arc::new(Compiled(automations));
        let settings = IndexSettings { metadata: file.retention.metadata, ..IndexSettings::default() };
        let index = RunIndex::open(&at, settings, Arc::clone(&ledger), Arc::clone(clock)).await;
        let index = index.map_err(|fault| format!("the index of runs: {fault}"))?;
        let configured = Arc::new(ConnectionsInForce(Arc::clone(&self.config)));
        let connectors: Arc<dyn Connectors> = Arc::new(FromConfig::new(configured));
        let bounds = payloads::Bounds {
            inline_bytes_max: file.payloads.inline_bytes_max as usize,
            stored_bytes_max: usize::try_from(file.payloads.bytes_max).unwrap_or(usize::MAX),
            ..payloads::Bounds::default()
        };
        let payloads: Arc<dyn Payloads> = Arc::new(Keeping { store: Arc::clone(&payload_store), bounds });
        let (scheduler, handle) = self.scheduler()?;
        let queue: Arc<dyn schedule::Queue> = Arc::new(handle.clone());
        let engine = self.engine(&ledger, &definitions, &automations, &events, &payloads, &connectors)?;
        let triggers =
            Triggers::new(Arc::clone(&definitions), Arc::clone(&automations), Arc::clone(&events), Arc::clone(clock));
        let letters = self.letters().await?;
        let admission = self.log.as_ref().map(|log| {
            let parts = admission::Parts {
                log: Arc::clone(log),
                ledger: Arc::clone(&ledger),
                triggers: Arc::clone(&triggers),
                queue: Arc::clone(&queue),
                clock: Arc::clone(clock),
                letters,
            };
            let settings = admission::Settings {
                entries_max: file.admission.events_max as usize,
                under_way_max: file.admission.under_way_max as usize,
                ..admission::Settings::default()
            };
            Admission::new(parts, settings)
        });
        let (admission, admission_handle) = admission.unzip();
        let replays = self.replays(&ledger, &definitions, &triggers, &index, &handle);
        let acts = Acts {
            clock: Arc::clone(clock),
            ledger: Arc::clone(&ledger),
            definitions: Arc::clone(&definitions),
            automations: Arc::clone(&automations),
            payloads: Arc::clone(&payloads),
            queue,
        };
        let sources = match &keeper {
            // All leases of processes before this one are void, and nobody else takes a run up.
            Keeper::Embedded(_) => Sources { open: Some(Arc::new(OpenRunsOf::new(Arc::clone(&index)))), ledger: None },
            // The ledger says what nobody works on; what others do is none of ours.
            Keeper::Fleet(_) => Sources { open: None, ledger: Some(Arc::clone(&ledger)) },
        };
        let live = Live {
            ledger,
            keeper,
            definitions,
            automations,
            connectors,
            connector_names: Arc::new(NamesInForce(Arc::clone(&self.config))),
            events,
            payloads,
            payload_store,
            index,
            scheduler: handle,
            triggers,
            admission: admission_handle,
            replays,
            acts,
            seen: Figures::default(),
            faults: Mutex::default(),
        };
        Ok((Arc::new(live), Tasks { scheduler, engine: Arc::new(engine), sources, admission }))
    }

    /// Events that could not be admitted.
    async fn letters(&self) -> Result<Letters, String> {
        let place = self.appliance.runner.directory.join("dead-letters");
        let opened = tokio::task::spawn_blocking(move || Letters::open(place)).await;
        let opened = opened.map_err(|_| "opening the dead letters ended in a fault of ours".to_owned())?;
        opened.map_err(|fault| format!("the dead letters: {fault}"))
    }

    fn replays(
        &self,
        ledger: &Arc<dyn LedgerStore>,
        definitions: &Arc<dyn DefinitionStore>,
        triggers: &Arc<Triggers>,
        index: &Arc<RunIndex>,
        handle: &schedule::Handle,
    ) -> Option<Replays> {
        let parts = replay::Parts {
            log: Arc::clone(self.log.as_ref()?),
            ledger: Arc::clone(ledger),
            definitions: Arc::clone(definitions),
            triggers: Arc::clone(triggers),
            history: Arc::new(History(Arc::clone(index))),
            queue: Arc::new(handle.clone()),
            pace: Arc::new(handle.clone()),
            clock: Arc::clone(&self.clock),
        };
        Some(Replays::new(parts, replay::Settings::default()))
    }

    fn scheduler(&self) -> Result<(Scheduler, schedule::Handle), String> {
        let file = &self.appliance.runner;
        let limits = Limits {
            tiers: self.config.load().tiers.tiers(),
            queued_max: file.admission.runs_max,
            parked_max: file.admission.runs_max,
            ..Limits::of_slots(file.slots)
        };
        let tiers = Arc::new(TiersInForce(Arc::clone(&self.config)));
        let reminders: Option<Arc<dyn schedule::Reminders>> = Some(Arc::new(Telling(Arc::clone(&self.metrics))));
        let settings = schedule::Settings { limits, tiers, drain: self.drain, reminders };
        Scheduler::new(settings, Arc::clone(&self.clock)).map_err(|fault| format!("the scheduler: {fault}"))
    }

    fn engine(
        &self,
        ledger: &Arc<dyn LedgerStore>,
        definitions: &Arc<dyn DefinitionStore>,
        automations: &Arc<dyn Automations>,
        events: &Arc<dyn Events>,
        payloads: &Arc<dyn Payloads>,
        connectors: &Arc<dyn Connectors>,
    ) -> Result<Engine, String> {
        let (file, clock) = (&self.appliance.runner, &self.clock);
        let way_out = WayOut::of(&self.appliance).ok_or("no way out is configured")?;
        let authority = way_out.authority();
        let dialling = Dialling::new(way_out, &self.appliance, &*self.environment)?;
        let signing = Signing { config: Arc::clone(&self.config), clock: Arc::clone(clock) };
        let settings = EgressSettings {
            connections_max: file.slots as usize,
            // All of them wait at a time: for what they have heard to be durable.
            idle_max: file.slots as usize,
            answer_bytes_max: usize::try_from(file.payloads.bytes_max).unwrap_or(usize::MAX),
            ..EgressSettings::new(&authority)
        };
        let caller = EgressCaller::new(settings, Arc::clone(clock), Arc::new(dialling), Arc::new(signing));
        let caller = caller.map_err(|fault| fault.to_string())?;
        let ports = Ports {
            clock: Arc::clone(clock),
            ledger: Arc::clone(ledger),
            definitions: Arc::clone(definitions),
            automations: Arc::clone(automations),
            events: Arc::clone(events),
            payloads: Arc::clone(payloads),
            connectors: Arc::clone(connectors),
            caller: Arc::new(caller),
            authority: Arc::new(StillThere(Arc::clone(&self.config))),
            notices: Arc::new(Telling(Arc::clone(&self.metrics))),
        };
        let settings = runner::engine::Settings {
            lease: file.lease,
            // Calls that leave by another machine may go on there for a while, when this one has lost its power.
            is_alone: file.store == RunnerStore::Embedded && file.egress.is_none(),
            workers_lost_max: file.crashes_max,
            authorise_after: file.reauthorise_after,
            ..runner::engine::Settings::new(&owner(self.appliance.node.id, clock.unix_ms())?)
        };
        Ok(Engine::new(ports, settings))
    }
}

/// A name of this process that no other one has, nor had: nodes of a fleet may all be the first process of a container, with
/// one and the same file.
fn owner(node: domain::NodeId, now_unix_ms: u64) -> Result<String, String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|fault| format!("the operating system gives no randomness: {fault}"))?;
    let random = data_encoding::HEXLOWER.encode(&random);
    Ok(format!("node {} pid {} at {now_unix_ms} {random}", node.0, std::process::id()))
}

impl Tasks {
    /// Performs runs until `stop` says true or an index has to be opened anew, and then until the turns under way have
    /// ended or their time is up.
    pub(super) async fn run(self, live: &Arc<Live>, ages: Ages, stop: watch::Receiver<bool>) {
        let mut beside = JoinSet::new();
        let (over, is_over) = watch::channel(false);
        beside.spawn(keep_watch(Arc::clone(live), stop, over));
        let stop = is_over;
        beside.spawn(keep_looking(Arc::clone(live)));
        let (keeper, scheduler) = (live.keeper.clone(), live.scheduler.clone());
        beside.spawn(async move { keeper.beside(scheduler).await });
        beside.spawn(keep_retaining(Arc::clone(live), ages));
        let admission = self.admission.map(|admission| tokio::spawn(admission.run(stop.clone())));
        if self.sources.open.is_some() {
            // What was durable when the process before ended is in the index before open runs are looked for in it; whoever is
            // told to stop meanwhile has nothing to look for.
            let mut stopped = stop.clone();
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => {}
                _ = live.index.caught_up(Duration::from_mins(5)) => {}
            }
        }
        let drained = self.scheduler.run(self.engine, self.sources, stop).await;
        if drained.dropped > 0 {
            tracing::warn!(dropped = drained.dropped, "workers were let go of in the middle of a turn");
        }
        if let Some(admission) = admission
            && admission.await.is_err()
        {
            tracing::error!("admission ended in a fault of ours");
        }
        beside.shutdown().await;
        live.close().await;
    }
}

impl Live {
    /// Files were put in force. What they cannot have was told where they were judged.
    pub(super) fn set_tiers(&self, tiers: Vec<Tier>) {
        if let Err(fault) = self.scheduler.set_tiers(tiers) {
            tracing::error!(%fault, "the tiers of the file are not in force");
        }
    }

    pub(super) fn seen(&self) -> Seen {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Seen {
            index_lag_ms: read(&self.seen.index_lag_ms),
            open_runs: read(&self.seen.open_runs),
            ledger_bytes: read(&self.seen.ledger_bytes),
        }
    }

    /// What is wrong with it, in sentences.
    pub(super) fn alarms(&self, lag_alarm: Duration, now_unix_ms: u64) -> Vec<String> {
        let mut alarms = self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
        alarms.extend(self.keeper.alarms().iter().cloned());
        if let Some(status) = self.admission.as_ref().map(admission::Handle::status) {
            if let Some(halt) = status.halt {
                alarms.push(format!("runner: admission is halted: {}", halt.reason));
            }
            let age_ms = status.oldest_unix_ms.map_or(0, |oldest| now_unix_ms.saturating_sub(oldest));
            if u128::from(age_ms) > lag_alarm.as_millis() {
                alarms.push(format!("runner: an event has waited {} s for its run", age_ms / 1_000));
            }
            if status.letters > 0 {
                alarms.push(format!("runner: {} events could not be admitted and are set aside", status.letters));
            }
        }
        match &*self.index.following().borrow() {
            Following::Failing(why) => alarms.push(format!("runner: the index of runs is behind: {why}")),
            Following::Halted(why) => alarms.push(format!("runner: the index of runs is halted: {why}")),
            Following::CatchingUp | Following::AtEnd => {}
        }
        alarms
    }

    pub(super) async fn ledger_stat(&self) -> Value {
        self.keeper.stat().await
    }

    async fn look(&self) {
        if let Some(look) = self.keeper.look().await {
            self.seen.open_runs.store(look.open_runs, Ordering::Relaxed);
            self.seen.ledger_bytes.store(look.ledger_bytes, Ordering::Relaxed);
            let is_poisoned = *self.index.following().borrow() == Following::Failing(IndexError::Poisoned);
            self.seen.is_lost.store(is_poisoned || look.is_lost, Ordering::Relaxed);
            *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = look.faults;
        }
        let freshness = self.index.caught_up(Duration::from_secs(1)).await;
        // What is not in within a second is behind by more than that, and by how much the next look says.
        let lag_ms = if freshness.is_stale { self.seen().index_lag_ms + LOOK_EVERY_MS } else { 0 };
        self.seen.index_lag_ms.store(lag_ms, Ordering::Relaxed);
    }

    async fn close(&self) {
        if let Some(replays) = &self.replays {
            replays.shutdown().await;
        }
        self.index.close().await;
        self.keeper.close().await;
    }
}

/// Says that it is over: somebody stops the runner, or it goes on only with what is opened anew.
async fn keep_watch(live: Arc<Live>, mut stop: watch::Receiver<bool>, over: watch::Sender<bool>) {
    let is_lost = async {
        while !live.seen.is_lost.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = is_lost => {}
    }
    over.send_replace(true);
}

async fn keep_looking(live: Arc<Live>) {
    loop {
        live.look().await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Moves and drops what is over age.
async fn keep_retaining(live: Arc<Live>, ages: Ages) {
    loop {
        tokio::time::sleep(RETAIN_EVERY).await;
        live.keeper.retain(ages).await;
        if let Err(fault) = live.index.sweep().await {
            tracing::error!(%fault, "the index of runs was not swept; it is tried again");
        }
    }
}

type OpenRunsPage = (Vec<schedule::ActiveRun>, Option<(TenantId, runner::ids::RunId)>);

/// Open runs, where the scheduler looks for them.
#[derive(Debug)]
struct OpenRunsOf {
    index: Arc<RunIndex>,
    /// Of the scan that is under way: when it began, something was durable that was not in the index.
    is_stale: Arc<AtomicBool>,
}

impl OpenRunsOf {
    fn new(index: Arc<RunIndex>) -> Self {
        Self { index, is_stale: Arc::default() }
    }
}

/// For the index to catch up before a scan. One that is behind by more is gone through all the same, and once more later.
const CATCH_UP: Duration = Duration::from_secs(10);

impl schedule::OpenRuns for OpenRunsOf {
    fn open_runs(
        &self,
        after: Option<(TenantId, runner::ids::RunId)>,
        max: usize,
    ) -> BoxFuture<'static, Result<OpenRunsPage, schedule::OpenRunsError>> {
        let (index, is_stale) = (Arc::clone(&self.index), Arc::clone(&self.is_stale));
        Box::pin(async move {
            if after.is_none() {
                is_stale.store(index.caught_up(CATCH_UP).await.is_stale, Ordering::Relaxed);
            }
            let (page, mut next) =
                index.open_runs(after, max).await.map_err(|fault| schedule::OpenRunsError(fault.to_string().into()))?;
            if next.is_none() && is_stale.load(Ordering::Relaxed) {
                // What there was is given out, and behind it that it was not all.
                let Some(last) = page.last() else {
                    tokio::time::sleep(CATCH_UP).await;
                    return Err(schedule::OpenRunsError("the index of runs is behind the ledger".into()));
                };
                next = Some((last.tenant.clone(), last.run));
            }
            let active = |run: runner::index::ActiveRun| schedule::ActiveRun {
                tenant: run.tenant,
                run: run.run,
                class: run.class,
                until_unix_ms: run.until_unix_ms,
                status: run.status,
                deadline_unix_ms: run.deadline_unix_ms,
            };
            Ok((page.into_iter().map(active).collect(), next))
        })
    }
}

/// Connectors of connections, for whoever looks at a run.
#[derive(Debug)]
struct NamesInForce(Arc<ArcSwap<InForce>>);

impl view::Connectors for NamesInForce {
    fn connector(&self, tenant: &TenantId, connection: &ConnectionId) -> Option<Box<str>> {
        let config = self.0.load();
        Some(config.connection(tenant, connection)?.connector.as_str().into())
    }
}

/// The directories that it makes, each for one part.
pub(super) fn make_directories(directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|fault| format!("{}: {fault}", directory.display()))
}
