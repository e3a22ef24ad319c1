//! What quota says about itself, read at each scrape. Labels come from closed sets: no bucket, no tenant, no provider.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use ratelimit::breaker::fleet::FleetBreakers;
use ratelimit::quota::holder::{Holder, LATENCY_BOUNDS_MS, Reason, Snapshot};
use ratelimit::quota::{InProcess, Life};

use super::keeper::{Guards, Keeper};
use super::store::Store;

#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) holder: Holder,
    pub(super) store: Arc<Store>,
    pub(super) journal: InProcess,
    pub(super) keeper: Arc<Keeper>,
    pub(super) fleet: Arc<FleetBreakers>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct By {
    by: &'static str,
}

/// Two sources have a word in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Parked {
    source: &'static str,
    reason: &'static str,
}

const CLASSES: usize = LATENCY_BOUNDS_MS.len() + 1;

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counters = self.holder.counters();
        calls(&mut encoder, &counters)?;
        self.units(&mut encoder, &counters)?;
        self.guards(&mut encoder)?;
        self.fleet(&mut encoder)?;
        self.gauges(&mut encoder)?;
        let help = "Answers of the store of quota, by how long they took";
        histogram(&mut encoder, "store", help, &counters.latency, counters.latency_sum_ms)?;
        let help = "Leases, by how old they were when another one took their place";
        histogram(&mut encoder, "lease_age", help, &counters.age, counters.age_sum_ms)
    }
}

fn calls(encoder: &mut DescriptorEncoder<'_>, counters: &Snapshot) -> fmt::Result {
    let held = ConstCounter::new(0_u64);
    let help = "Calls that had units of every level: at once by what was held, after they waited, or by what is set aside while the store is gone";
    let mut family = encoder.encode_descriptor("egress_quota_held", help, None, held.metric_type())?;
    for (by, count) in [("local", counters.local), ("waited", counters.waited), ("reserve", counters.reserve)] {
        ConstCounter::new(count).encode(family.encode_family(&By { by })?)?;
    }
    let help = "Calls that were parked, by whose word it was and why";
    let mut family = encoder.encode_descriptor("egress_quota_parked", help, None, held.metric_type())?;
    for (reason, count) in Reason::ALL.into_iter().zip(counters.parked) {
        let label = Parked { source: reason.source().word(), reason: reason.word() };
        ConstCounter::new(count).encode(family.encode_family(&label)?)?;
    }
    Ok(())
}

impl Metrics {
    fn units(&self, encoder: &mut DescriptorEncoder<'_>, counters: &Snapshot) -> fmt::Result {
        let counts = &self.keeper.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("operations", "Operations that the store of quota was asked for, again ones too", counters.operations),
            ("operations_failed", "Operations that had no answer", counters.errors),
            (
                "operations_given_up",
                "Operations that were given up: what they asked for counts as spent",
                counters.given_up,
            ),
            ("protocol_faults", "Answers of the store that say that we broke the protocol", counters.malformed),
            ("granted_units", "Units that the store granted", counters.granted_units),
            ("returned_units", "Units that were given back", counters.returned_units),
            (
                "forfeited_units",
                "Units that nobody spent and that were lost, since their lease was another one by then",
                counters.forfeited_units,
            ),
            ("expired_units", "Units that were left when their lease was over", counters.expired_units),
            ("spoilt", "Calls whose lease was over when they were about to be written", counters.spoilt),
            ("throttled", "Answers of providers that say that it is too much", counters.throttled),
            ("overshoots", "Answers by which a provider has counted more than was granted", counters.overshoots),
            ("overshoot_units", "Units that providers counted beyond what was granted", counters.overshoot_units),
            ("untold", "Observations and settlements that could not be remembered to be told", counters.dropped),
            ("epochs", "Times that the store of an application had begun another life", counters.epochs),
            ("notes_restored", "Breakers and baselines that were taken up at the start", read(&counts.restored)),
            (
                "notes_damaged",
                "Notes of breakers and baselines that were not what was written, and were dropped",
                read(&counts.damaged),
            ),
            (
                "notes_unwritten",
                "Notes of breakers and baselines that the journal did not take",
                read(&counts.unwritten),
            ),
            (
                "breakers_untracked",
                "Faults of pairs for whose breaker there was no room",
                self.keeper.guards.breakers.untracked(),
            ),
            (
                "runaways_unwatched",
                "Attempts that were not watched, since there was no room",
                self.keeper.guards.runaways.unwatched(),
            ),
        ] {
            let counter = ConstCounter::new(value);
            let name = format!("egress_quota_{name}");
            counter.encode(encoder.encode_descriptor(&name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }

    fn guards(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = &self.keeper.counts;
        let Guards { breakers, runaways } = &self.keeper.guards;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("breakers", "Pairs of a tenant and what it calls that had a fault lately", breakers.tracked() as u64),
            ("breakers_open", "Breakers that are open, or ask whether to close", self.keeper.open_breakers() as u64),
            ("runaways_watched", "Connections and automations that are watched", runaways.tracked() as u64),
            ("runaways_throttled", "Of these, how many are throttled", read(&counts.throttled)),
            ("runaways_paused", "Of these, how many are paused until an operator resumes them", read(&counts.paused)),
        ] {
            gauge(encoder, name, help, value)?;
        }
        Ok(())
    }

    fn fleet(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.fleet.counters();
        gauge(
            encoder,
            "fleet_troubled",
            "Providers of which much failed lately for many tenants",
            self.fleet.troubled() as u64,
        )?;
        for (name, help, value) in [
            ("fleet_opened", "Breakers of providers that this node opened, for all tenants", counts.opened),
            ("fleet_closed", "Breakers of providers that this node closed", counts.closed),
            ("fleet_refused", "Calls that the breaker of a provider refused", counts.refused),
            ("fleet_exchanges", "Exchanges of breakers of providers with other nodes", counts.exchanges),
            ("fleet_exchanges_failed", "Of these, how many had no answer", counts.failures),
            ("fleet_untracked", "Providers with faults for whose breaker there was no room", counts.untracked),
        ] {
            let counter = ConstCounter::new(value);
            let name = format!("egress_quota_{name}");
            counter.encode(encoder.encode_descriptor(&name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }

    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (leases, waiting, under_way) = self.holder.sizes();
        let is_open = matches!(self.journal.life(), Life::Open | Life::Volatile);
        for (name, help, value) in [
            ("leases", "Leases that this node remembers", leases as u64),
            ("waiting", "Calls that wait for units", waiting as u64),
            ("under_way", "Operations that the store is asked for now", under_way as u64),
            ("store_available", "1 while the store of quota answers", u64::from(self.store.is_there())),
            ("journal_available", "1 while the journal of quota can be written", u64::from(is_open)),
        ] {
            gauge(encoder, name, help, value)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    let name = format!("egress_quota_{name}");
    gauge.encode(encoder.encode_descriptor(&name, help, None, gauge.metric_type())?)
}

/// Classes of milliseconds as a histogram of seconds.
fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    classes: &[u64; CLASSES],
    sum_ms: u64,
) -> fmt::Result {
    let bounds = LATENCY_BOUNDS_MS.iter().map(|bound| seconds(*bound)).chain([f64::MAX]);
    let buckets: Vec<_> = bounds.zip(classes.iter().copied()).collect();
    let name = format!("egress_quota_{name}");
    let unit = Some(&Unit::Seconds);
    let mut metric = encoder.encode_descriptor(&name, help, unit, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(seconds(sum_ms), classes.iter().sum(), &buckets, None)
}

#[expect(clippy::cast_precision_loss, reason = "a sum that is off by a thousandth after 285,000 years")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
