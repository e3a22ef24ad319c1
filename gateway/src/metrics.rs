//! What the accept path counts. Label values come from closed sets only, so that nobody outside can grow a table.

use std::time::Duration;

use config::scheme::HandshakeKind;
use domain::Refusal;
use eventlog::holding::HoldingFull;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::handshake;
use crate::scheme::VerifyFault;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabel {
    kind: &'static str,
    outcome: &'static str,
}

impl HandshakeLabel {
    fn of(kind: HandshakeKind, is_answered: bool) -> Self {
        Self { kind: kind.as_str(), outcome: if is_answered { "answered" } else { "refused" } }
    }
}

/// The bounds in seconds: fine around what a durable write takes, and with the lines that providers draw on it
/// (Sentry hangs up after 1 s, Wix after 1.25, Slack and Zoom after 3, Shopify after 5, GitHub after 10).
const ACK_SECONDS: [f64; 16] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.9, 1.25, 3.0, 5.0, 10.0];

#[derive(Debug)]
pub struct Metrics {
    accepted: Counter,
    accepted_bulk: Counter,
    accepted_bytes: Counter,
    refused: Family<CodeLabel, Counter>,
    /// The same counters by place in `Refusal::ALL`, so that a refusal takes no lock and no hash.
    refused_by_place: Vec<Counter>,
    unverified: Family<ReasonLabel, Counter>,
    held: Counter,
    held_dropped: Family<ReasonLabel, Counter>,
    promoted: Counter,
    handshakes: Family<HandshakeLabel, Counter>,
    repeated: Counter,
    ack: Histogram,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let refused = Family::<CodeLabel, Counter>::default();
        let refused_by_place =
            Refusal::ALL.iter().map(|r| refused.get_or_create_owned(&CodeLabel { code: r.code() })).collect();
        let metrics = Self {
            accepted: Counter::default(),
            accepted_bulk: Counter::default(),
            accepted_bytes: Counter::default(),
            refused,
            refused_by_place,
            unverified: Family::default(),
            held: Counter::default(),
            held_dropped: Family::default(),
            promoted: Counter::default(),
            handshakes: Family::default(),
            repeated: Counter::default(),
            ack: Histogram::new(ACK_SECONDS),
        };
        // From the start at zero: a series that appears with its first failure is one that no alert has watched.
        for reason in HoldingFull::LABELS {
            drop(metrics.held_dropped.get_or_create(&ReasonLabel { reason }));
        }
        for reason in VerifyFault::LABELS {
            drop(metrics.unverified.get_or_create(&ReasonLabel { reason }));
        }
        for (kind, is_answered) in handshake::labels() {
            drop(metrics.handshakes.get_or_create(&HandshakeLabel::of(kind, is_answered)));
        }
        let gateway = registry.sub_registry_with_prefix("gateway");
        gateway.register("accepted", "Deliveries committed and answered", metrics.accepted.clone());
        gateway.register(
            "accepted_bulk",
            "Of these, over the limit and committed in the bulk class, since the provider does not redeliver",
            metrics.accepted_bulk.clone(),
        );
        gateway.register_with_unit(
            "accepted",
            "Bytes of the bodies of committed deliveries",
            Unit::Bytes,
            metrics.accepted_bytes.clone(),
        );
        gateway.register("refused", "Refusals, by code", metrics.refused.clone());
        gateway.register("unverified", "Failed verifications, by reason", metrics.unverified.clone());
        gateway.register("held", "Unverified deliveries kept in the holding stream", metrics.held.clone());
        gateway.register(
            "held_dropped",
            "Unverified deliveries that the holding stream could not take, by reason",
            metrics.held_dropped.clone(),
        );
        gateway.register("promoted", "Held deliveries that verified later and became events", metrics.promoted.clone());
        gateway.register(
            "repeated",
            "Deliveries that were committed before, and are answered as they were then",
            metrics.repeated.clone(),
        );
        gateway.register(
            "handshakes",
            "Requests by which providers ask whether an endpoint is one, by kind and outcome",
            metrics.handshakes.clone(),
        );
        gateway.register_with_unit(
            "ack",
            "Time from the end of the body to the answer of a committed delivery",
            Unit::Seconds,
            metrics.ack.clone(),
        );
        metrics
    }

    pub fn accepted(&self, body_bytes: u64, bulk: bool, took: Duration) {
        self.accepted.inc();
        if bulk {
            self.accepted_bulk.inc();
        }
        self.accepted_bytes.inc_by(body_bytes);
        self.ack.observe(took.as_secs_f64());
    }

    pub fn refused(&self, refusal: Refusal) {
        let place = Refusal::ALL.iter().position(|&r| r == refusal);
        if let Some(counter) = place.and_then(|p| self.refused_by_place.get(p)) {
            counter.inc();
        }
    }

    /// `reason` is a label of `VerifyFault`: one of a closed set.
    pub fn unverified(&self, reason: &'static str) {
        self.unverified.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub fn held(&self) {
        self.held.inc();
    }

    /// `reason` is a label of `HoldingFull`: one of a closed set.
    pub fn held_dropped(&self, reason: &'static str) {
        self.held_dropped.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub fn repeated(&self) {
        self.repeated.inc();
    }

    pub fn handshake(&self, kind: HandshakeKind, is_answered: bool) {
        self.handshakes.get_or_create(&HandshakeLabel::of(kind, is_answered)).inc();
    }

    pub fn promoted(&self) {
        self.promoted.inc();
    }
}
