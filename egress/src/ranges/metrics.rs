//! What the book says about itself, read at each scrape.

use std::fmt;
use std::sync::Arc;

use domain::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use super::change::At;
use super::published::Shelf;
use super::range::State;

/// Gauges of the book of exit ranges.
#[derive(Debug)]
pub struct RangesMetrics {
    /// What is published.
    pub shelf: Arc<Shelf>,
    /// By whose days.
    pub clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

impl Collector for RangesMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut plain = |name: &str, help: &str, value: i64| -> Result<(), fmt::Error> {
            let gauge = ConstGauge::new(value);
            let name = format!("egress_ranges_{name}");
            gauge.encode(encoder.encode_descriptor(&name, help, None, gauge.metric_type())?)
        };
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        plain(
            "current",
            "1 while the book of exit ranges can be taken as it is",
            i64::from(self.shelf.fault().is_none()),
        )?;
        let help = "Configured exit addresses that are not published, and that no call leaves from";
        plain("unpublished", help, count(self.shelf.unpublished()))?;
        let Some(published) = self.shelf.current() else { return Ok(()) };
        let (book, now) = (published.book(), At::of_unix_ms(self.clock.unix_ms()));
        plain("serial", "Version of the published document", i64::try_from(book.serial()).unwrap_or(i64::MAX))?;
        if let Some(until) = book.valid_until() {
            plain("days_valid", "Days until the published document is too old", until.days_from(now))?;
        }
        let due =
            book.live().filter(|range| range.state == State::Draining).filter_map(|range| range.retire_from).min();
        if let Some(due) = due {
            plain("days_to_retire", "Days until a draining range may be retired, of the first", due.days_from(now))?;
        }
        let due = book.live().filter(|range| range.state == State::Announced).map(|range| range.active_from).min();
        if let Some(due) = due {
            plain(
                "days_to_activate",
                "Days until an announced range may be activated, of the first",
                due.days_from(now),
            )?;
        }
        let zero = ConstGauge::new(0_i64);
        let help = "Exit ranges, by how far they have come";
        let mut family = encoder.encode_descriptor("egress_ranges_prefixes", help, None, zero.metric_type())?;
        for state in State::ALL {
            let gauge = ConstGauge::new(count(book.ranges().filter(|range| range.state == state).count()));
            gauge.encode(family.encode_family(&StateLabel { state: state.as_str() })?)?;
        }
        Ok(())
    }
}
