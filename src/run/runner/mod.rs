//! The role that performs what tenants automate.
//!
//! ```text
//! event log ─▶ admission ─▶ ledger ◀─ engine ─ grant ─▶ way out (over the network, as every caller)
//!                              │ tail      ▲
//!  API ◀── desk ◀── index ◀────┘           └─ slots, tenants in turn
//! ```
//!
//! **It touches nobody else.** It has a runtime of its own. Where its ledger cannot be opened, or its directory cannot be
//! made, the node starts all the same: deliveries are taken, calls go out, `readyz` says what is missing, and it is tried
//! again every few seconds. That is another rule than the event log's, on purpose: a delivery that is not taken is lost, and
//! a run that waits is not. What is wrong with the file itself keeps the node from starting, as it does everywhere.
//!
//! **Order.** It begins last, when tenants' files are in force. At a drain it stops admitting at once and lets workers finish
//! what they are at; the way out, where it is this node's, takes their last answers in the meantime. What is not finished by
//! then is in the ledger as what it is: an intent without an outcome.

mod beginnings;
mod calls;
mod config;
mod database;
mod desk;
mod door;
mod embedded;
mod fleet;
mod live;
mod metered;
mod metrics;
mod ports;
mod stores;
mod tiers;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ::config::{Appliance, Environment, Fault, Tenant};
use arc_swap::{ArcSwap, ArcSwapOption};
use domain::Clock;
use eventlog::EventLog;
use listen::{ServerHandle, Tls, TlsBounds, TlsServer};
use prometheus_client::registry::Registry;
use ratelimit::Unauthenticated;
use runner::api::{Api, Desk, Operations};
use runner::ledger::embedded::Ages;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use self::config::{InForce, unvouched};
use self::desk::OpenDesk;
use self::door::Door;
use self::live::{Live, Opening};
use self::metrics::{RunnerMetrics, Scrape};
use super::health::Alarm;
use super::metrics::ListenerMetrics;
use super::{RunError, listener_tls};
use crate::control::runner::RunnerDesk;

const LISTEN: &str = "listen for the runner's API (runner.api.listen)";
const LISTEN_TLS: &str = "listen for the runner's API with TLS (runner.api.tls.listen)";

/// Between two tries to open it.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

/// For closing, beyond the time that turns have to end.
const CLOSING: Duration = Duration::from_secs(10);

/// The addresses of the API.
#[derive(Debug)]
pub(super) struct Bound {
    plain: listen::Bound,
    with_tls: listen::Bound,
}

/// Takes the addresses, and does not listen on them yet.
pub(super) fn bind(appliance: &Appliance) -> Result<Bound, RunError> {
    let file = &appliance.runner.api;
    let plain = listen::Bound::new(&file.listen).map_err(RunError::io(LISTEN))?;
    let with_tls = listen::Bound::new(&file.tls.listen).map_err(RunError::io(LISTEN_TLS))?;
    Ok(Bound { plain, with_tls })
}

/// What of the file is a matter of the runner's, judged.
#[derive(Debug)]
pub(crate) struct Judged {
    inner: config::Judged,
    /// None where no address has TLS.
    tls: Option<TlsServer>,
}

/// Judges it. With an error among the faults the file is faulty.
pub(crate) fn judge(
    appliance: &Appliance,
    path: &Path,
    environment: &dyn Environment,
    now_unix_ms: u64,
) -> (Option<Judged>, Vec<Fault>) {
    let (inner, mut faults) = config::judge(appliance, path, environment);
    let tls =
        listener_tls::judge(&listener_tls::Wanted::of_runner(appliance), path, environment, now_unix_ms, &mut faults);
    let sound = !::config::has_errors(&faults);
    (inner.filter(|_| sound).map(|inner| Judged { inner, tls }), faults)
}

/// Puts files in force, the first and every later time.
#[derive(Debug)]
pub(crate) struct Loader {
    path: PathBuf,
    environment: Arc<dyn Environment>,
    clock: Arc<dyn Clock>,
    config: Arc<ArcSwap<InForce>>,
    live: Arc<ArcSwapOption<Live>>,
    /// TLS of the API, from the first load on where there is any.
    listener: Arc<OnceLock<Tls>>,
}

impl Loader {
    pub(super) fn judge(&self, appliance: &Appliance) -> (Option<Judged>, Vec<Fault>) {
        judge(appliance, &self.path, &*self.environment, self.clock.unix_ms())
    }

    /// Puts in force what needs no tenant's file: the certificate of the API.
    pub(super) fn accept(&self, appliance: &Appliance, judged: Judged) -> Accepted {
        match (judged.tls, self.listener.get()) {
            (Some(server), Some(tls)) => {
                if tls.replace(server) {
                    tracing::info!("users of the API are shown another certificate from now on");
                }
            }
            (Some(server), None) => {
                let handshake_timeout = appliance.runner.api.tls.handshake_timeout;
                let tls = Tls::new(server, TlsBounds { handshake_timeout, http2_streams_max: 100 });
                // Loads come one after the other: nobody else was first.
                drop(self.listener.set(tls));
            }
            (None, _) => {}
        }
        Accepted(judged.inner)
    }

    /// Swaps what is in force.
    pub(super) fn put_in_force<'t>(
        &self,
        appliance: &Appliance,
        accepted: &Accepted,
        tenants: impl Iterator<Item = &'t Tenant> + Clone,
    ) -> Vec<Fault> {
        let (in_force, faults) = config::in_force(appliance, &accepted.0, tenants);
        let tiers = in_force.tiers.tiers();
        self.config.store(Arc::new(in_force));
        if let Some(live) = self.live.load_full() {
            live.set_tiers(tiers);
        }
        faults
    }
}

/// What was judged, and waits for tenants' files.
#[derive(Debug)]
pub(crate) struct Accepted(config::Judged);

/// The role, from the start to the end.
#[derive(Debug)]
pub(super) struct Runner {
    bound: Bound,
    opening: Opening,
    pub(super) loader: Arc<Loader>,
    live: Arc<ArcSwapOption<Live>>,
    /// Why it is not open.
    closed: Arc<Mutex<Option<String>>>,
    metrics: Arc<RunnerMetrics>,
    listener_metrics: Arc<ListenerMetrics>,
    unauthenticated: Arc<Unauthenticated>,
    runtime: Runtime,
}

/// It runs, or tries to.
#[derive(Debug)]
pub(super) struct Running {
    runtime: Runtime,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    drain: Duration,
    pub(super) desk: RunnerDesk,
}

impl Runner {
    /// Nothing of the disk is touched yet.
    pub(super) fn prepare(
        bound: Bound,
        (path, environment): (&Path, &Arc<dyn Environment>),
        appliance: &Appliance,
        clock: &Arc<dyn Clock>,
        log: Option<Arc<dyn EventLog>>,
        registry: &mut Registry,
    ) -> Result<Self, RunError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("runner")
            .enable_all()
            .build()
            .map_err(RunError::io("start the runner's runtime"))?;
        let config = Arc::new(ArcSwap::from_pointee(InForce::default()));
        let metrics = Arc::<RunnerMetrics>::default();
        let live = Arc::<ArcSwapOption<Live>>::default();
        let registry = registry.sub_registry_with_prefix("runner");
        let listener_metrics = ListenerMetrics::register_with_tls(registry);
        let scrape = Scrape { metrics: Arc::clone(&metrics), live: Arc::clone(&live), clock: Arc::clone(clock) };
        registry.register_collector(Box::new(scrape));
        let unauthenticated = super::ingress::unauthenticated(appliance);
        let loader = Loader {
            path: path.to_owned(),
            environment: Arc::clone(environment),
            clock: Arc::clone(clock),
            config: Arc::clone(&config),
            live: Arc::clone(&live),
            listener: Arc::default(),
        };
        let opening = Opening {
            appliance: appliance.clone(),
            environment: Arc::clone(environment),
            clock: Arc::clone(clock),
            log,
            config,
            metrics: Arc::clone(&metrics),
            drain: appliance.egress.listener.drain_timeout,
        };
        Ok(Self {
            bound,
            opening,
            loader: Arc::new(loader),
            live,
            closed: Arc::default(),
            metrics,
            listener_metrics,
            unauthenticated: Arc::new(Unauthenticated::new(&unauthenticated, Arc::clone(clock))),
            runtime,
        })
    }

    /// What can be wrong with it.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        let (live, closed, clock) = (Arc::clone(&self.live), Arc::clone(&self.closed), Arc::clone(&self.opening.clock));
        let lag_alarm = self.opening.appliance.runner.admission.lag_alarm;
        let expiry = listener_tls::Expiry {
            listener: Arc::clone(&self.loader.listener),
            clock: Arc::clone(&self.opening.clock),
        };
        vec![
            Box::new(move || {
                if let Some(live) = live.load_full() {
                    return live.alarms(lag_alarm, clock.unix_ms());
                }
                let why = closed.lock().unwrap_or_else(PoisonError::into_inner).clone();
                why.map(|why| format!("runner: no runs are performed: {why}")).into_iter().collect()
            }),
            Box::new(move || expiry.alarms().into_iter().map(|alarm| format!("runner.api: {alarm}")).collect()),
        ]
    }

    /// Everything is loaded: the services of the API, to be added to the server, and the role behind them.
    pub(super) fn serve(
        self,
        appliance: &Appliance,
        server: &ServerHandle,
    ) -> Result<(Running, Vec<listen::Service>), RunError> {
        let desk = Arc::new(OpenDesk {
            live: Arc::clone(&self.live),
            config: Arc::clone(&self.opening.config),
            clock: Arc::clone(&self.opening.clock),
        });
        let api = Api::new(Arc::<OpenDesk>::clone(&desk) as Arc<dyn Desk>);
        let door = Arc::new(Door {
            api: api.clone(),
            config: Arc::clone(&self.opening.config),
            unauthenticated: Arc::clone(&self.unauthenticated),
            clock: Arc::clone(&self.opening.clock),
            runtime: self.runtime.handle().clone(),
            bytes_max: appliance.runner.api.body_bytes_max,
            metrics: Arc::clone(&self.metrics.api),
        });
        let services = services(self.bound, appliance, door, &self.loader.listener, self.listener_metrics)?;
        let (stop, stopping) = watch::channel(false);
        let stop_at_drain = stop.clone();
        let server = server.clone();
        self.runtime.spawn(async move {
            server.draining().await;
            // An error says that it has ended already.
            stop_at_drain.send(true).unwrap_or_default();
        });
        let unauthenticated = self.unauthenticated;
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(30)).await;
                unauthenticated.sweep();
            }
        });
        let drain = self.opening.drain;
        let task = self.runtime.spawn(keep_open(self.opening, self.live, self.closed, stopping));
        let desk = RunnerDesk { api, operations: desk as Arc<dyn Operations> };
        Ok((Running { runtime: self.runtime, stop, task, drain, desk }, services))
    }
}

fn services(
    bound: Bound,
    appliance: &Appliance,
    door: Arc<Door>,
    tls: &OnceLock<Tls>,
    metrics: Arc<ListenerMetrics>,
) -> Result<Vec<listen::Service>, RunError> {
    let file = &appliance.runner.api;
    if file.listen.is_empty() && file.tls.listen.is_empty() {
        return Ok(Vec::new());
    }
    let opened = bound.plain.listen().map_err(RunError::io(LISTEN))?;
    let mut service =
        listen::Service::new("runner-api", bounds(file), opened, door, metrics).with_threads(file.threads);
    if !file.tls.listen.is_empty() {
        let tls = tls.get().ok_or_else(|| RunError::Runner("no certificate of the API was read".to_owned()))?;
        let opened = bound.with_tls.listen().map_err(RunError::io(LISTEN_TLS))?;
        service = service.with_tls(tls.clone(), opened);
    }
    Ok(vec![service])
}

/// Bounds of the API's listener: what tools and people send.
fn bounds(file: &::config::RunnerApi) -> ::config::Listener {
    ::config::Listener {
        connections_max: file.connections_max,
        header_bytes_max: 16 << 10,
        // An execution with all of its payloads, over a slow line.
        write_timeout: Duration::from_secs(30),
        ..::config::Listener::default()
    }
}

/// Opens it, and runs it until it is told to stop. Where it does not open it is tried again, and told of.
async fn keep_open(
    opening: Opening,
    live: Arc<ArcSwapOption<Live>>,
    closed: Arc<Mutex<Option<String>>>,
    mut stop: watch::Receiver<bool>,
) {
    let retention = &opening.appliance.runner.retention;
    let ages = Ages { detail: retention.detail, metadata: retention.metadata };
    let mut pause = *RETRY.start();
    loop {
        let opened = match live::make_directories(&opening.appliance.runner.directory) {
            Ok(()) => opening.open().await,
            Err(fault) => Err(fault),
        };
        match opened {
            Ok((open, tasks)) => {
                *closed.lock().unwrap_or_else(PoisonError::into_inner) = None;
                live.store(Some(Arc::clone(&open)));
                tracing::info!("runs are performed");
                tasks.run(&open, ages, stop.clone()).await;
                live.store(None);
                if *stop.borrow() {
                    return;
                }
                // A disk that was full is the usual reason, and what was not written is read again from the journal.
                let fault = "an index could not be written, and is opened anew";
                tracing::error!("no runs are performed: {fault}");
                *closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.to_owned());
            }
            Err(fault) => {
                let mut told = closed.lock().unwrap_or_else(PoisonError::into_inner);
                if told.as_ref() != Some(&fault) {
                    tracing::error!(%fault, "no runs are performed; it is tried again");
                    *told = Some(fault);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(*RETRY.end()),
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

impl Running {
    /// No request is left: waits for turns that are under way, as long as they may take, and for what is closing, and ends what
    /// hangs.
    pub(super) fn close(self) {
        let Self { runtime, stop, task, drain, desk } = self;
        drop(desk);
        stop.send(true).unwrap_or_default();
        let ended = runtime.block_on(async { tokio::time::timeout(drain + CLOSING, task).await });
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("the runner ended in a fault of ours"),
            Err(_) => tracing::error!("the runner was not closed in time: its next start is as after a crash"),
        }
        runtime.shutdown_background();
    }
}
