//! The pressure on ports, read at each scrape. Destinations are no labels: of each exit address the fullest route is told,
//! and which one it is stands in the log.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Ports;

/// Exit addresses that are told of, the fullest ones. A node has a handful; with prefixes of its own, as many as callers.
const EXITS_MAX: usize = 64;

/// To be registered once, under the product's own prefix.
#[derive(Debug)]
pub struct PortMetrics(pub Arc<Ports>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExitLabel {
    exit: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLabel {
    by: &'static str,
}

impl Collector for PortMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ports = &self.0;
        let gauge = |value: u32| ConstGauge::new(i64::from(value));

        let help = "Connections on the fullest way from an exit address to a destination";
        let mut used = encoder.encode_descriptor("egress_ports_used", help, None, gauge(0).metric_type())?;
        for worst in ports.worst(EXITS_MAX) {
            gauge(worst.open).encode(used.encode_family(&ExitLabel { exit: name(worst.exit) })?)?;
        }
        let help = "Connections that there may be from one exit address to one destination";
        let max = gauge(ports.open_max());
        max.encode(encoder.encode_descriptor("egress_ports_max", help, None, max.metric_type())?)?;

        let help = "Connections that were not made for want of a port, by whether our count or the kernel said so";
        let counter = |value: u64| ConstCounter::new(value);
        let mut refused = encoder.encode_descriptor("egress_ports_refused", help, None, counter(0).metric_type())?;
        let mut by = |by, value| encode(&mut refused, by, &counter(value));
        by("count", ports.refused())?;
        by("kernel", ports.refused_by_kernel())
    }
}

fn encode(family: &mut MetricEncoder<'_>, by: &'static str, value: &ConstCounter<u64>) -> fmt::Result {
    value.encode(family.encode_family(&ByLabel { by })?)
}

fn name(exit: Option<IpAddr>) -> String {
    exit.map_or_else(|| "unbound".to_owned(), |address| address.to_string())
}
