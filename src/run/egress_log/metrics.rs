//! What the store of egress records says about itself, read at each scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::Shared;

#[derive(Debug)]
pub(super) struct Collector(pub(super) Arc<Shared>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shared = &self.0;
        let stat = shared.store.stat();
        let written = ConstCounter::new(shared.written.load(Ordering::Relaxed));
        let help = "Decision records that are stored";
        written.encode(encoder.encode_descriptor("egress_records_written", help, None, written.metric_type())?)?;

        let help = "Decision records that were not stored, since nobody is known for the call and there were too many of these";
        let left_out = ConstCounter::new(shared.nobody.left_out());
        left_out.encode(encoder.encode_descriptor("egress_records_left_out", help, None, left_out.metric_type())?)?;

        let help = "Decision records that were not stored, by why: the queue was full, or the disk did not take them";
        let dropped = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor("egress_records_dropped", help, None, dropped.metric_type())?;
        for (cause, count) in [("queue", &shared.dropped_queue), ("disk", &shared.dropped_disk)] {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(family.encode_family(&Cause { cause })?)?;
        }
        for (name, help, unit, value) in [
            ("queued", "Decision records that wait for the disk", None, shared.waiting.len() as u64),
            ("disk", "Bytes of the store of decision records, with what is set aside", Some(Unit::Bytes), stat.bytes),
            ("kept", "How far back every stored decision record is there", Some(Unit::Seconds), stat.kept.as_secs()),
            ("short", "1 while decision records reach back less far than they should", None, u64::from(stat.short)),
            ("available", "1 while decision records can be stored", None, u64::from(stat.unavailable.is_none())),
            ("damaged", "Places in the store that cannot be read", None, stat.damage.len() as u64),
        ] {
            let gauge = ConstGauge::new(value);
            let name = format!("egress_records_{name}");
            gauge.encode(encoder.encode_descriptor(&name, help, unit.as_ref(), gauge.metric_type())?)?;
        }
        Ok(())
    }
}
