//! The role that takes deliveries: its log, its limits and its service.

use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::Appliance;
use domain::Clock;
use eventlog::holding::HoldingSettings;
use eventlog::{EmbeddedLog, EventLog, HoldingStore};
use gateway::metrics::Metrics;
use gateway::repeats::Repeats;
use gateway::snapshot::Snapshot;
use gateway::{Gateway, Parts};
use prometheus_client::registry::Registry;
use ratelimit::{InFlight, LocalLimits, Unauthenticated};
use tokio::runtime::Runtime;

use super::delivery_log::DeliveryLog;
use super::metrics::{ListenerMetrics, LogCollector};
use super::secret_keeper::TenantSecretFiles;
use super::sink::Sink;
use super::{RunError, upkeep};

/// What the role stands on: open, and not yet serving.
#[derive(Debug)]
pub(super) struct Ingress {
    bound: listen::Bound,
    connections_max: u32,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) holding: Option<Arc<HoldingStore>>,
    limits: Arc<LocalLimits>,
    unauthenticated: Arc<Unauthenticated>,
    in_flight: Arc<InFlight>,
    metrics: Arc<Metrics>,
    listener_metrics: Arc<ListenerMetrics>,
}

const LISTEN: &str = "listen for deliveries (gateway.listen)";

/// Takes the addresses, and does not listen on them yet.
///
/// First whether there is another one already: a start by mistake ends at an address that is taken, before it touches a
/// log that somebody writes. Nobody is listened to before there is somebody to answer: who connects is refused, and a
/// balancer that looks whether this node lets itself be connected to sends its deliveries elsewhere.
pub(super) fn bind(appliance: &Appliance) -> Result<listen::Bound, RunError> {
    listen::Bound::new(&appliance.gateway.listen).map_err(RunError::io(LISTEN))
}

impl Ingress {
    pub(super) fn open(
        bound: listen::Bound,
        connections_max: u32,
        appliance: &Appliance,
        clock: &Arc<dyn Clock>,
        registry: &mut Registry,
    ) -> Result<Self, RunError> {
        let log = open_log(appliance, clock)?;
        let holding = open_holding(appliance, clock)?;
        let metrics = Arc::new(Metrics::new(registry));
        let listener_metrics = ListenerMetrics::register(registry);
        registry.register_collector(Box::new(LogCollector(Arc::clone(&log))));
        let limits = Arc::new(LocalLimits::new(Arc::clone(clock)));
        let unauthenticated = Arc::new(Unauthenticated::new(&unauthenticated(appliance), Arc::clone(clock)));
        let in_flight = Arc::new(InFlight::new(appliance.gateway.bytes_in_flight_max));
        upkeep::register(registry, &limits, &in_flight, holding.as_ref());
        Ok(Self { bound, connections_max, log, holding, limits, unauthenticated, in_flight, metrics, listener_metrics })
    }

    /// Everything is loaded: the service, to be added to the server, and the gateway behind it.
    pub(super) fn serve(
        self,
        appliance: &Appliance,
        clock: &Arc<dyn Clock>,
        sink: &Sink,
        snapshot: Arc<ArcSwap<Snapshot>>,
        runtime: &Runtime,
    ) -> Result<(Arc<Gateway>, listen::Service), RunError> {
        let gateway = Gateway::new(Parts {
            node: appliance.node.id,
            snapshot,
            log: Arc::clone(&self.log),
            holding: self.holding.clone(),
            limits: Arc::clone(&self.limits),
            unauthenticated: Arc::clone(&self.unauthenticated),
            in_flight: self.in_flight,
            clock: Arc::clone(clock),
            keeper: Some(Arc::new(TenantSecretFiles::new(&appliance.tenants.directory))),
            repeats: Arc::new(Repeats::new(appliance.gateway.repeats_max)),
            metrics: self.metrics,
            recorder: Arc::new(DeliveryLog::new(sink.clone(), &appliance.logging, Arc::clone(clock))),
        });
        let gateway = Arc::new(gateway.map_err(|fault| RunError::Randomness(fault.to_string()))?);
        let handler: Arc<dyn listen::Handler> = Arc::<Gateway>::clone(&gateway);
        let settings = config::Listener { connections_max: self.connections_max, ..appliance.gateway.listener.clone() };
        let opened = self.bound.listen().map_err(RunError::io(LISTEN))?;
        let service = listen::Service::new("gateway", settings, opened, handler, self.listener_metrics)
            .with_threads(appliance.gateway.threads);
        upkeep::recall(runtime, &gateway);
        runtime.spawn(upkeep::sweep(self.limits, self.unauthenticated));
        runtime.spawn(upkeep::trim(self.log, self.holding));
        Ok((gateway, service))
    }
}

/// Makes durable what waits and gives both streams up in order, so that the next start finds nothing to mend.
pub(super) fn close(log: &dyn EventLog, holding: Option<&HoldingStore>) {
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
pub(super) fn tell_recovery(lane: &str, recovery: &eventlog::segment::Recovery) {
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

pub(super) fn unauthenticated(appliance: &Appliance) -> ratelimit::unauthenticated::Settings {
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
    use super::super::node;
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
