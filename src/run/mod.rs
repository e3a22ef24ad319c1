//! The composition root: everything that exists is built here, in order, and taken down in the opposite one.

mod admin;
mod beside;
mod delivery_log;
pub(crate) mod egress_log;
mod health;
mod ingress;
mod listener_tls;
mod logging;
mod metrics;
mod node;
mod own_tls;
mod quota;
mod reload;
mod runner;
mod sample;
mod secret_keeper;
mod sink;
mod upkeep;
mod way_out;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Appliance, Environment, Fault, ProcessEnvironment, TenantFiles, has_errors};
use domain::{Clock, SystemClock};
use egress::compile::Compiled;
use eventlog::{EventLog, HoldingStore};
use gateway::Gateway;
use gateway::scheme::Presets;
use gateway::snapshot::Snapshot;
use prometheus_client::registry::Registry;
use tokio::runtime::Runtime;

use self::beside::Beside;
use self::egress_log::EgressLog;
use self::health::Health;
use self::ingress::Ingress;
use self::metrics::ConfigMetrics;
use self::node::Node;
use self::quota::Quota;
use self::reload::{Reloader, State};
use self::runner::Runner;
pub(crate) use self::runner::{judge as judge_runs, unvouched};
use self::sink::Sink;
pub(crate) use self::way_out::{JudgedBy, Machine, judge as judge_calls};
use self::way_out::{Loader, WayOut};

/// Why the appliance did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// Told by the caller, fault by fault.
    #[error("the configuration is faulty; nothing was started")]
    Faults(Vec<Fault>),
    #[error("no role is enabled: the file has neither a [gateway], an [egress] nor a [runner] table")]
    NothingToRun,
    #[error("the presets that come with this binary are faulty: {0}")]
    Presets(String),
    #[error("cannot open the event log in {directory}: {reason}")]
    Log { directory: PathBuf, reason: String },
    #[error("no call can be let out: {0}")]
    WayOut(String),
    #[error("quota cannot be counted: {0}")]
    Quota(String),
    #[error("no run can be performed: {0}")]
    Runner(String),
    #[error("loading the configuration ended in a fault of ours")]
    Load,
    #[error("cannot {what}")]
    Io { what: String, source: std::io::Error },
    #[error("the operating system gives no randomness: {0}")]
    Randomness(String),
    #[error("cannot open the control socket (admin.socket): {0}")]
    Socket(String),
    #[error("requests that were cut off when the drain's time was up: {0}")]
    Cut(usize),
}

impl RunError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// An error and what led to it, in one line: which address, and what the system said.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// How long the last lines may take to be read. A reader that is alive takes milliseconds.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Runs the roles that the file enables, until a signal ends them.
#[expect(clippy::exit, reason = "where nobody reads our output, returning would end in a write that waits for ever")]
pub(crate) fn run(path: &Path) -> Result<(), RunError> {
    let clock = SystemClock::shared();
    let environment: Arc<dyn Environment> = Arc::new(ProcessEnvironment);
    let (appliance, faults) = config::load_appliance(path);
    let Some(appliance) = appliance.filter(|_| !has_errors(&faults)) else { return Err(RunError::Faults(faults)) };
    if !appliance.gateway.enabled && !appliance.egress.enabled && !appliance.runner.enabled {
        return Err(RunError::NothingToRun);
    }

    let (sink, writer) = Sink::start(std::io::stderr()).map_err(RunError::io("start the log's writer"))?;
    logging::start(&appliance.logging, &sink, &clock);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "starting");
    let ended = serve(path, &environment, &appliance, &clock, &sink);
    match &ended {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => tracing::error!("stopped: {}", with_causes(error)),
    }
    sink.close();
    if !writer.ends_within(LAST_LINES) {
        // Nobody reads our output any more: whatever else would be said there could wait for ever too.
        std::process::exit(if ended.is_ok() { 0 } else { 3 });
    }
    ended
}

fn serve(
    path: &Path,
    environment: &Arc<dyn Environment>,
    appliance: &Appliance,
    clock: &Arc<dyn Clock>,
    sink: &Sink,
) -> Result<(), RunError> {
    // Addresses first: a start by mistake ends at one that is taken, before it touches a log that somebody writes.
    let deliveries = appliance.gateway.enabled.then(|| ingress::bind(appliance)).transpose()?;
    let calls = appliance.egress.enabled.then(|| way_out::bind(appliance)).transpose()?;
    let runs = appliance.runner.enabled.then(|| runner::bind(appliance)).transpose()?;
    let room = upkeep::room(appliance);
    // Everything that is not the path of a request runs on a runtime of its own.
    let beside = Beside::start(appliance)?;
    let mut registry = Registry::with_prefix("tidegate");
    let config_metrics = ConfigMetrics::register(&mut registry);
    upkeep::register_process(&mut registry, sink);
    let ingress =
        deliveries.map(|bound| Ingress::open(bound, room.deliveries, appliance, clock, &mut registry)).transpose()?;
    let log = ingress.as_ref().map(|ingress| Arc::clone(&ingress.log));
    let holding = ingress.as_ref().and_then(|ingress| ingress.holding.clone());
    let files = (path, environment);
    let quota = calls.is_some().then(|| Quota::open(files, appliance, &mut registry)).transpose()?;
    let open = |(bound, quota): (_, &Quota)| {
        WayOut::open((bound, room.calls), files, appliance, clock, sink, quota.opened(), &mut registry)
    };
    let way_out = calls.zip(quota.as_ref()).map(open).transpose()?;
    let records = way_out.as_ref().map(|way_out| Arc::clone(&way_out.log));
    let loader = way_out.as_ref().map(|way_out| Arc::clone(&way_out.loader));
    let prepare = |bound| Runner::prepare(bound, files, appliance, clock, log.clone(), &mut registry);
    let runner = runs.map(prepare).transpose()?;
    let runs = runner.as_ref().map(|runner| Arc::clone(&runner.loader));
    let mut alarms = way_out.as_ref().map(WayOut::alarms).unwrap_or_default();
    alarms.extend(quota.iter().flat_map(Quota::alarms));
    alarms.extend(runner.iter().flat_map(Runner::alarms));
    let health = Arc::new(Health::new(registry, log.clone()).with_alarms(alarms));
    let compiled = compile(loader.as_deref(), appliance)?;
    let accepted = accept(runs.as_deref(), appliance)?;

    // Watched before it is read: what changes in between is noticed.
    let watcher = config::Watcher::start(path, appliance);
    let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
    let reloader = Arc::new(Reloader {
        path: path.to_owned(),
        environment: Arc::clone(environment),
        started: appliance.clone(),
        presets: Presets::load().map_err(|fault| RunError::Presets(fault.to_string()))?,
        clock: Arc::clone(clock),
        metrics: config_metrics,
        snapshot: Arc::clone(&snapshot),
        way_out: loader,
        runner: runs,
        state: Mutex::new(State {
            files: TenantFiles::new(appliance),
            appliance: appliance.clone(),
            compiled,
            accepted,
        }),
        again: reload::Again::default(),
        retiring: reload::Retiring::default(),
    });
    // What is faulty at a cold start is served in its last good version, or not at all, and said.
    reloader.load(&health).ok_or(RunError::Load)?;

    let mut server = listen::Server::new();
    let handle = server.handle();
    let roles = Roles { ingress, way_out, runner };
    let serving = roles.serve(appliance, clock, sink, snapshot, &beside.runtime, &mut server)?;

    upkeep::watch(&beside.runtime, watcher, &reloader, &health);
    upkeep::drain_with(&beside.runtime, handle, Arc::clone(&health)).map_err(RunError::io("watch signals"))?;
    let node = Node {
        log: log.clone(),
        holding: holding.clone(),
        gateway: serving.gateway,
        records: records.clone(),
        way_out: serving.way_out,
        runner: serving.runner.as_ref().map(|runner| runner.desk.clone()),
        reloader,
        health: Arc::clone(&health),
        clock: Arc::clone(clock),
        id: appliance.node.id,
        started: clock.monotonic(),
    };
    let beside = beside.serve(node, &health)?;
    tracing::info!(addresses = ?serving.addresses, admin = %appliance.admin.listen, "ready");

    let drained = server.run();

    beside.stop();
    // First of all: it reads the log and calls out.
    if let Some(runner) = serving.runner {
        runner.close();
    }
    close(quota, records.as_deref(), log.as_deref(), holding.as_deref());
    if drained.cut > 0 { Err(RunError::Cut(drained.cut)) } else { Ok(()) }
}

/// Roles that are open, and serve nobody yet.
struct Roles {
    ingress: Option<Ingress>,
    way_out: Option<WayOut>,
    runner: Option<Runner>,
}

/// What they are once they serve.
#[derive(Default)]
struct Serving {
    gateway: Option<Arc<Gateway>>,
    way_out: Option<way_out::Open>,
    runner: Option<runner::Running>,
    addresses: Vec<SocketAddr>,
}

impl Roles {
    fn serve(
        self,
        appliance: &Appliance,
        clock: &Arc<dyn Clock>,
        sink: &Sink,
        snapshot: Arc<ArcSwap<Snapshot>>,
        runtime: &Runtime,
        server: &mut listen::Server,
    ) -> Result<Serving, RunError> {
        let handle = server.handle();
        let mut serving = Serving::default();
        let mut services = Vec::new();
        if let Some(ingress) = self.ingress {
            let (gateway, service) = ingress.serve(appliance, clock, sink, snapshot, runtime)?;
            services.push(service);
            serving.gateway = Some(gateway);
        }
        if let Some(way_out) = self.way_out {
            let (open, of_calls) = way_out.serve(appliance, clock, runtime, &handle)?;
            services.extend(of_calls);
            serving.way_out = Some(open);
        }
        // Last: what it calls and what it reads is there.
        if let Some(runner) = self.runner {
            let (running, of_runs) = runner.serve(appliance, &handle)?;
            services.extend(of_runs);
            serving.runner = Some(running);
        }
        for service in services {
            serving.addresses.extend(service.addresses());
            server.add(service);
        }
        Ok(serving)
    }
}

/// No request is left: what was promised is written down, and what others may take up is let go of.
fn close(
    quota: Option<Quota>,
    records: Option<&EgressLog>,
    log: Option<&dyn EventLog>,
    holding: Option<&HoldingStore>,
) {
    if let Some(quota) = quota {
        quota.close();
    }
    if let Some(records) = records {
        records.close();
    }
    if let Some(log) = log {
        ingress::close(log, holding);
    }
}

/// What of the appliance's file is judged for calls. At a start a fault in it is told as every other one is.
fn compile(loader: Option<&Loader>, appliance: &Appliance) -> Result<Option<Compiled>, RunError> {
    let Some(loader) = loader else { return Ok(None) };
    match loader.judge(appliance) {
        (Some(judged), _) => Ok(Some(loader.accept(appliance, judged))),
        (None, faults) => Err(RunError::Faults(faults)),
    }
}

/// The same for runs.
fn accept(loader: Option<&runner::Loader>, appliance: &Appliance) -> Result<Option<runner::Accepted>, RunError> {
    let Some(loader) = loader else { return Ok(None) };
    match loader.judge(appliance) {
        (Some(judged), _) => Ok(Some(loader.accept(appliance, judged))),
        (None, faults) => Err(RunError::Faults(faults)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kept_it_from_starting_is_told_with_its_cause() {
        let taken = std::io::Error::new(std::io::ErrorKind::AddrInUse, "cannot listen on 127.0.0.1:80: in use");
        let error = RunError::io("listen for deliveries (gateway.listen)")(taken);
        let told = "cannot listen for deliveries (gateway.listen): cannot listen on 127.0.0.1:80: in use";
        assert_eq!(with_causes(&error), told);
        assert_eq!(with_causes(&RunError::Cut(2)), RunError::Cut(2).to_string());
    }
}
