//! Metrics of the parts that do not count for themselves: the log, read at each scrape; listeners; the process.

use std::sync::Arc;

use domain::Refusal;
use eventlog::{EventLog, LaneStat};
use listen::{HandshakeFault, Observer, Phase};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

/// Counts what happens on a listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerMetrics {
    open: Gauge,
    opened: Counter,
    capped: Counter,
    panicked: Counter,
    timed_out: Family<PhaseLabel, Counter>,
    handshakes_failed: Family<CauseLabel, Counter>,
    flooded: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

impl ListenerMetrics {
    /// Of a listener that may speak TLS.
    pub(crate) fn register_with_tls(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self::register(registry);
        for fault in HandshakeFault::ALL {
            drop(metrics.handshakes_failed.get_or_create(&CauseLabel { cause: fault.label() }));
        }
        let listener = registry.sub_registry_with_prefix("listener");
        let help = "Handshakes of TLS that came to nothing, by why";
        listener.register("handshakes_failed", help, metrics.handshakes_failed.clone());
        let help = "Connections of HTTP/2 that were cut off, since they were busy with nothing";
        listener.register("http2_floods", help, metrics.flooded.clone());
        metrics
    }

    pub(crate) fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self::default();
        for phase in Phase::ALL {
            drop(metrics.timed_out.get_or_create(&PhaseLabel { phase: phase.label() }));
        }
        let listener = registry.sub_registry_with_prefix("listener");
        listener.register("connections_open", "Connections that are open", metrics.open.clone());
        listener.register("connections", "Connections that were taken", metrics.opened.clone());
        listener.register("connections_capped", "Connections turned away at the cap", metrics.capped.clone());
        listener.register("timeouts", "Peers that were too slow, by what for", metrics.timed_out.clone());
        listener.register("panics", "Requests that ended in a fault of ours", metrics.panicked.clone());
        Arc::new(metrics)
    }
}

impl Observer for ListenerMetrics {
    fn opened(&self) {
        self.open.inc();
        self.opened.inc();
    }

    fn closed(&self) {
        self.open.dec();
    }

    fn capped(&self) {
        self.capped.inc();
    }

    fn refused(&self, _refusal: Refusal) {
        // The handler makes the answer and counts it.
    }

    fn handshake_failed(&self, fault: HandshakeFault) {
        self.handshakes_failed.get_or_create(&CauseLabel { cause: fault.label() }).inc();
    }

    fn flooded(&self) {
        self.flooded.inc();
    }

    fn timed_out(&self, phase: Phase) {
        self.timed_out.get_or_create(&PhaseLabel { phase: phase.label() }).inc();
    }

    fn panicked(&self) {
        self.panicked.inc();
    }
}

/// Counts what the configuration is made of and how its reloads went.
#[derive(Debug, Default)]
pub(crate) struct ConfigMetrics {
    tenants: Gauge,
    endpoints: Gauge,
    faults: Gauge,
    reloads: Counter,
    loaded: Gauge,
}

impl ConfigMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let config = registry.sub_registry_with_prefix("config");
        config.register("tenants", "Tenants that are served", metrics.tenants.clone());
        config.register("endpoints", "Endpoints that can be posted to", metrics.endpoints.clone());
        config.register("faults", "Errors in the files as they are now", metrics.faults.clone());
        config.register("loads", "Times that the files were read", metrics.reloads.clone());
        let help = "When the files were last read, in seconds since the Unix epoch";
        config.register_with_unit("loaded_timestamp", help, Unit::Seconds, metrics.loaded.clone());
        metrics
    }

    pub(crate) fn loaded(&self, tenants: usize, endpoints: usize, faults: usize, unix_ms: u64) {
        let set = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.tenants, tenants);
        set(&self.endpoints, endpoints);
        set(&self.faults, faults);
        self.reloads.inc();
        self.loaded.set(i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX));
    }
}

/// Reads the log's state at each scrape.
#[derive(Debug)]
pub(crate) struct LogCollector(pub(crate) Arc<dyn EventLog>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    class: String,
    shard: u16,
}

type Read = fn(&LaneStat) -> u64;

const LANE_GAUGES: &[(&str, &str, Option<Unit>, Read)] = &[
    ("records", "Events in the log", None, |lane| lane.records),
    ("event", "Bytes of events in the log, as tenants' limits count them", Some(Unit::Bytes), |lane| lane.event_bytes),
    ("disk", "Bytes of the log on disk, with trimmed files that wait for reuse", Some(Unit::Bytes), |lane| {
        lane.disk_bytes
    }),
    ("segments", "Segment files", None, |lane| lane.segments),
    ("queued", "Events that wait for the writer", None, |lane| lane.queued),
    ("damaged", "Places in the log that cannot be read", None, |lane| lane.damage.len() as u64),
    ("available", "1 while the log can commit", None, |lane| u64::from(lane.cannot_commit().is_none())),
];

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stat = self.0.stat();
        for (name, help, unit, read) in LANE_GAUGES {
            let family = Family::<LaneLabel, Gauge>::default();
            // Two generations of shards may share a label: their figures add up.
            for lane in &stat.lanes {
                let label = LaneLabel { class: lane.class.clone(), shard: lane.shard };
                family.get_or_create(&label).inc_by(i64::try_from(read(lane)).unwrap_or(i64::MAX));
            }
            let name = format!("log_{name}");
            let metric = encoder.encode_descriptor(&name, help, unit.as_ref(), family.metric_type())?;
            family.encode(metric)?;
        }
        if let Some(days) = stat.days_left {
            let gauge = ConstGauge::new(days);
            let help = "Days until the disk is full at the present rate";
            let metric = encoder.encode_descriptor("log_days_left", help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

/// Plain gauges, each read by a function at each scrape.
pub(crate) struct Readings(pub(crate) Vec<Reading>);

pub(crate) type Reading = (&'static str, &'static str, Box<dyn Fn() -> u64 + Send + Sync>);

impl std::fmt::Debug for Readings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, ..)| name)).finish()
    }
}

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, read) in &self.0 {
            let gauge = ConstGauge::new(read());
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}
