//! The composition root: everything that exists is built here, in order, and taken down in the opposite one.

mod admin;
mod beside;
mod delivery_log;
mod health;
mod logging;
mod metrics;
mod node;
mod reload;
mod sample;
mod sink;
mod upkeep;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Appliance, Environment, Fault, ProcessEnvironment, TenantFiles, has_errors};
use domain::{Clock, SystemClock};
use eventlog::holding::HoldingSettings;
use eventlog::{EmbeddedLog, EventLog, HoldingStore};
use gateway::metrics::Metrics;
use gateway::scheme::Presets;
use gateway::snapshot::Snapshot;
use gateway::{Gateway, Parts};
use prometheus_client::registry::Registry;
use ratelimit::{InFlight, LocalLimits, Unauthenticated};

use self::beside::Beside;
use self::delivery_log::DeliveryLog;
use self::health::Health;
use self::metrics::{ConfigMetrics, ListenerMetrics, LogCollector};
use self::node::Node;
use self::reload::{Reloader, State};
use self::sink::Sink;

/// Why the appliance did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// Told by the caller, fault by fault.
    #[error("the configuration is faulty; nothing was started")]
    Faults(Vec<Fault>),
    #[error("the role gateway is not enabled: the file has no [gateway] table")]
    NothingToRun,
    #[error("the presets that come with this binary are faulty: {0}")]
    Presets(String),
    #[error("cannot open the event log in {directory}: {reason}")]
    Log { directory: PathBuf, reason: String },
    #[error("loading the configuration ended in a fault of ours")]
    Load,
    #[error("cannot {what}")]
    Io { what: String, source: std::io::Error },
    #[error("the operating system gives no randomness: {0}")]
    Randomness(String),
    #[error("cannot open the control socket (admin.socket): {0}")]
    Socket(String),
    #[error("{0} requests were cut off when the drain's time was up")]
    Cut(usize),
}

impl RunError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
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
    if !appliance.gateway.enabled {
        return Err(RunError::NothingToRun);
    }

    let (sink, writer) = Sink::start(std::io::stderr()).map_err(RunError::io("start the log's writer"))?;
    logging::start(&appliance.logging, &sink, &clock);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "starting");
    let ended = serve(path, &environment, &appliance, &clock, &sink);
    match &ended {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => tracing::error!("stopped: {error}"),
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
    let connections_max = upkeep::room_for_connections(appliance.gateway.listener.connections_max);

    // First whether there is another one already: a start by mistake ends at an address that is taken, before it touches a
    // log that somebody writes. Nobody is listened to before there is somebody to answer: who connects is refused, and a
    // balancer that looks whether this node lets itself be connected to sends its deliveries elsewhere.
    let bound = listen::Bound::new(&appliance.gateway.listen)
        .map_err(RunError::io("listen for deliveries (gateway.listen)"))?;
    // Everything that is not the accept path runs on a runtime of its own.
    let beside = Beside::start(appliance)?;
    let log = open_log(appliance, clock)?;
    let holding = open_holding(appliance, clock)?;

    let mut registry = Registry::with_prefix("tidegate");
    let metrics = Arc::new(Metrics::new(&mut registry));
    let config_metrics = ConfigMetrics::register(&mut registry);
    let listener_metrics = ListenerMetrics::register(&mut registry);
    registry.register_collector(Box::new(LogCollector(Arc::clone(&log))));
    let limits = Arc::new(LocalLimits::new(Arc::clone(clock)));
    let unauthenticated = Arc::new(Unauthenticated::new(&unauthenticated(appliance), Arc::clone(clock)));
    let in_flight = Arc::new(InFlight::new(appliance.gateway.bytes_in_flight_max));
    upkeep::register(&mut registry, sink, &limits, &in_flight, holding.as_ref());
    let health = Arc::new(Health::new(registry, Arc::clone(&log)));

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
        state: Mutex::new(State { files: TenantFiles::new(appliance), appliance: appliance.clone() }),
        again: reload::Again::default(),
    });
    // What is faulty at a cold start is served in its last good version, or not at all, and said.
    reloader.load(&health).ok_or(RunError::Load)?;

    let gateway = Gateway::new(Parts {
        node: appliance.node.id,
        snapshot,
        log: Arc::clone(&log),
        holding: holding.clone(),
        limits: Arc::clone(&limits),
        unauthenticated: Arc::clone(&unauthenticated),
        in_flight,
        clock: Arc::clone(clock),
        metrics,
        recorder: Arc::new(DeliveryLog::new(sink.clone(), &appliance.logging, Arc::clone(clock))),
    });
    let gateway = Arc::new(gateway.map_err(|fault| RunError::Randomness(fault.to_string()))?);

    let handler: Arc<dyn listen::Handler> = Arc::<Gateway>::clone(&gateway);
    let settings = config::Listener { connections_max, ..appliance.gateway.listener.clone() };
    let opened = bound.listen().map_err(RunError::io("listen for deliveries (gateway.listen)"))?;
    let service = listen::Service::new("gateway", settings, opened, handler, listener_metrics)
        .with_threads(appliance.gateway.threads);
    let addresses = service.addresses();
    let mut server = listen::Server::new();
    server.add(service);

    beside.runtime.spawn(upkeep::sweep(limits, unauthenticated));
    beside.runtime.spawn(upkeep::trim(Arc::clone(&log), holding.clone()));
    upkeep::watch(&beside.runtime, watcher, &reloader, &health);
    upkeep::drain_with(&beside.runtime, server.handle(), Arc::clone(&health)).map_err(RunError::io("watch signals"))?;
    let started = clock.monotonic();
    let (id, clock) = (appliance.node.id, Arc::clone(clock));
    let held = holding.clone();
    let node =
        Node { log: Arc::clone(&log), holding, gateway, reloader, health: Arc::clone(&health), clock, id, started };
    let beside = beside.serve(node, &health)?;
    tracing::info!(?addresses, admin = %appliance.admin.listen, "ready");

    let drained = server.run();

    beside.stop();
    close(&*log, held.as_deref());
    if drained.cut > 0 { Err(RunError::Cut(drained.cut)) } else { Ok(()) }
}

/// Makes durable what waits and gives both streams up in order, so that the next start finds nothing to mend.
fn close(log: &dyn EventLog, holding: Option<&HoldingStore>) {
    if let Some(holding) = holding {
        holding.close();
    }
    if let Err(error) = log.close() {
        tracing::error!(%error, "the event log did not close cleanly; what was acknowledged is safe all the same");
    }
}

fn open_log(appliance: &Appliance, clock: &Arc<dyn Clock>) -> Result<Arc<dyn EventLog>, RunError> {
    let fault = |reason: String| RunError::Log { directory: appliance.log.directory.clone(), reason };
    let settings = eventlog::embedded::Settings::new(&appliance.log, appliance.node.id);
    let (log, recoveries) =
        EmbeddedLog::open(&settings, Arc::clone(clock)).map_err(|error| fault(error.to_string()))?;
    for (lane, recovery) in recoveries {
        tell_recovery(&lane.to_string(), &recovery);
    }
    Ok(Arc::new(log))
}

fn open_holding(appliance: &Appliance, clock: &Arc<dyn Clock>) -> Result<Option<Arc<HoldingStore>>, RunError> {
    if !appliance.holding.enabled {
        return Ok(None);
    }
    let log = eventlog::embedded::Settings::new(&appliance.log, appliance.node.id);
    let settings = HoldingSettings::new(&appliance.holding, &log, appliance.gateway.body_bytes_max);
    let (store, recovery) = HoldingStore::open(&settings, Arc::clone(clock))
        .map_err(|error| RunError::Log { directory: settings.directory.clone(), reason: error.to_string() })?;
    tell_recovery("holding", &recovery);
    Ok(Some(Arc::new(store)))
}

/// What was found in a log that was not closed, or that is damaged: said once, at the start, so that it is not
/// found out by a reader much later.
fn tell_recovery(lane: &str, recovery: &eventlog::segment::Recovery) {
    tracing::info!(
        lane,
        epoch = recovery.epoch,
        segments = recovery.segments,
        records = recovery.records,
        "log opened"
    );
    if !recovery.torn.is_empty() {
        tracing::info!(lane, batches = recovery.torn.len(), "cut what was being written and never acknowledged");
    }
    for damage in &recovery.damage {
        tracing::error!(lane, "the log is damaged: {damage}");
    }
    for disowned in &recovery.disowned {
        tracing::warn!(lane, ?disowned, "a batch that was given up after an error of the disk is not shown to readers");
    }
}

fn unauthenticated(appliance: &Appliance) -> ratelimit::unauthenticated::Settings {
    let settings = &appliance.limits.unauthenticated;
    let count = |n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    ratelimit::unauthenticated::Settings {
        failures_per_minute: count(settings.failures_per_minute),
        burst: count(settings.burst),
        sources_max: settings.sources_max as usize,
        known_failures_per_minute: count(settings.verified_failures_per_minute),
        known_burst: count(settings.verified_burst),
        known_for: settings.verified_for,
        ..ratelimit::unauthenticated::Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{ManualClock, NodeId};
    use eventlog::holding::HoldingFilter;
    use eventlog::{MemoryLog, Scope};

    #[test]
    fn a_stop_closes_the_holding_stream_beside_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(1_764_424_000_000);
        let mut settings = eventlog::embedded::Settings::new(&config::Log::default(), NodeId(1));
        settings.directory = directory.path().to_owned();
        settings.reserve_bytes = 0;
        let settings = HoldingSettings::new(&config::Holding::default(), &settings, 1 << 20);
        let (holding, _) = HoldingStore::open(&settings, Arc::clone(&clock)).unwrap();
        holding.hold(node::tests::new_held(1)).unwrap();
        close(&MemoryLog::new(NodeId(1), clock), Some(&holding));
        assert!(holding.hold(node::tests::new_held(2)).is_err(), "it was not given up");
        assert_eq!(holding.iter(&Scope::Operator, &HoldingFilter::default()).count(), 1, "what waited is durable");
    }
}
