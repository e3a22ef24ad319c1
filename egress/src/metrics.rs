//! What the way out counts. Label values come from closed sets only: no tenant, no destination, nothing from outside.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::{HttpVersion, Refusal, Way};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WayLabel {
    way: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// From 50 µs, what a decision takes, to the minutes that a slow provider does.
const SECONDS: [f64; 15] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// The counters of the role.
#[derive(Debug)]
pub struct Metrics {
    /// By place in [`Way::ALL`] and [`Refusal::ALL`]: the path takes no lock and no hash.
    calls: Vec<Counter>,
    refused: Vec<Counter>,
    would_refuse: Counter,
    under_way: Vec<Gauge>,
    sent: Counter,
    received: Counter,
    pooled: Counter,
    dialled: Counter,
    /// By place in [`HttpVersion::ALL`].
    answers: Vec<Counter>,
    decide: Histogram,
    first_byte: Histogram,
}

impl Metrics {
    /// Registers everything under `egress_`.
    pub fn register(registry: &mut Registry) -> Self {
        let calls = Family::<WayLabel, Counter>::default();
        let refused = Family::<CodeLabel, Counter>::default();
        let under_way = Family::<WayLabel, Gauge>::default();
        let bytes = Family::<DirectionLabel, Counter>::default();
        let answers = Family::<VersionLabel, Counter>::default();
        let ways = || Way::ALL.iter().map(|way| WayLabel { way: way.as_str() });
        let metrics = Self {
            calls: ways().map(|label| calls.get_or_create_owned(&label)).collect(),
            refused: Refusal::ALL
                .iter()
                .map(|refusal| refused.get_or_create_owned(&CodeLabel { code: refusal.code() }))
                .collect(),
            would_refuse: Counter::default(),
            under_way: ways().map(|label| under_way.get_or_create_owned(&label)).collect(),
            sent: bytes.get_or_create_owned(&DirectionLabel { direction: "out" }),
            received: bytes.get_or_create_owned(&DirectionLabel { direction: "back" }),
            pooled: Counter::default(),
            dialled: Counter::default(),
            answers: HttpVersion::ALL
                .iter()
                .map(|version| answers.get_or_create_owned(&VersionLabel { version: version.as_str() }))
                .collect(),
            decide: Histogram::new(SECONDS),
            first_byte: Histogram::new(SECONDS),
        };
        let egress = registry.sub_registry_with_prefix("egress");
        egress.register("calls", "Calls that were let out, by the way they came in", calls);
        egress.register("refused", "Calls that were refused or failed, by code", refused);
        let help = "Calls that a rule in report mode would have refused";
        egress.register("would_refuse", help, metrics.would_refuse.clone());
        egress.register("under_way", "Calls under way, by the way they came in", under_way);
        egress.register_with_unit("relayed", "Bodies and tunnels, by direction", Unit::Bytes, bytes);
        egress.register("connections_pooled", "Hops on a connection that was there", metrics.pooled.clone());
        egress.register("answers", "Answers of destinations, by the version of HTTP that they speak", answers);
        egress.register("connections_dialled", "Hops on a connection of their own", metrics.dialled.clone());
        let help = "From a call's head to the decision on it, addresses included";
        egress.register_with_unit("decide", help, Unit::Seconds, metrics.decide.clone());
        let help = "From a hop's request to the head of its answer";
        egress.register_with_unit("first_byte", help, Unit::Seconds, metrics.first_byte.clone());
        metrics
    }

    /// A hop was decided on: let out.
    pub(crate) fn decided(&self, way: Way, took: Duration, would_refuse: bool) {
        self.calls[place(way)].inc();
        self.decide.observe(took.as_secs_f64());
        if would_refuse {
            self.would_refuse();
        }
    }

    /// A rule that only reports would have refused a call.
    pub(crate) fn would_refuse(&self) {
        self.would_refuse.inc();
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        let place = Refusal::ALL.iter().position(|other| *other == refusal);
        if let Some(counter) = place.and_then(|place| self.refused.get(place)) {
            counter.inc();
        }
    }

    pub(crate) fn connected(&self, pooled: bool) {
        if pooled {
            self.pooled.inc()
        } else {
            self.dialled.inc()
        };
    }

    pub(crate) fn answered(&self, version: HttpVersion, took: Duration) {
        let place = HttpVersion::ALL.iter().position(|other| *other == version);
        if let Some(counter) = place.and_then(|place| self.answers.get(place)) {
            counter.inc();
        }
        self.first_byte.observe(took.as_secs_f64());
    }

    pub(crate) fn relayed(&self, sent: u64, received: u64) {
        self.sent.inc_by(sent);
        self.received.inc_by(received);
    }

    /// One more under way until the guard is dropped.
    pub(crate) fn begin(&self, way: Way) -> UnderWay {
        let gauge = self.under_way[place(way)].clone();
        gauge.inc();
        UnderWay(gauge)
    }
}

/// A call that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn place(way: Way) -> usize {
    match way {
        Way::Connect => 0,
        Way::Absolute => 1,
        Way::Governed => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_there_before_it_happens() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.refused(Refusal::AddressNotAllowed);
        metrics.decided(Way::Governed, Duration::from_micros(7), true);
        metrics.answered(HttpVersion::Http2, Duration::from_millis(3));
        let under_way = metrics.begin(Way::Connect);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let before = text();
        for line in [
            "egress_refused_total{code=\"address-not-allowed\"} 1",
            "egress_refused_total{code=\"internal\"} 0",
            "egress_calls_total{way=\"governed\"} 1",
            "egress_under_way{way=\"connect\"} 1",
            "egress_would_refuse_total 1",
            "egress_answers_total{version=\"2\"} 1",
            "egress_answers_total{version=\"1.1\"} 0",
        ] {
            assert!(before.contains(line), "{line} is not in\n{before}");
        }
        drop(under_way);
        assert!(text().contains("egress_under_way{way=\"connect\"} 0"));
    }
}
