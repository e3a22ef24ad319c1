//! Figures, as a table for people and as JSON for everything else.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::load::Outcome;
use crate::process::{Memory, Usage};
use crate::server::Kind;
use crate::syncs::Syncs;

/// One server under one load.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub server: Kind,
    pub load: String,
    pub connections: usize,
    pub seconds: f64,
    pub acknowledged: u64,
    pub events_per_second: f64,
    pub events_per_cpu_second: f64,
    pub cpu_us_per_event: f64,
    pub ack_ms: Latency,
    /// How late the generator was, p99: what of the latencies is its own.
    pub generator_late_p99_ms: f64,
    pub memory: Memory,
    pub written_bytes_per_event: f64,
    pub kept_bytes_per_event: f64,
    /// Under strace, in a run of its own: the ratio holds, the rate is lower than untraced.
    pub syncs_per_second_traced: Option<f64>,
    pub events_per_sync_traced: Option<f64>,
    pub refused: BTreeMap<u16, u64>,
    pub broken: u64,
    pub unanswered: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    pub fn of(outcome: &Outcome) -> Self {
        let ms = |quantile| outcome.latency_ms(quantile);
        Self { p50: ms(0.5), p99: ms(0.99), p999: ms(0.999), max: ms(1.0) }
    }
}

/// What was read at the two edges of the measured time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Edges {
    pub before: Usage,
    pub after: Usage,
    pub disk_before: u64,
    pub disk_after: u64,
    pub memory: Memory,
}

impl Row {
    pub fn new(server: Kind, load: &str, connections: usize, outcome: &Outcome, edges: &Edges) -> Self {
        let events = outcome.acknowledged as f64;
        let cpu = edges.after.cpu_seconds - edges.before.cpu_seconds;
        let per_event = |bytes: u64| bytes as f64 / events;
        Self {
            server,
            load: load.into(),
            connections,
            seconds: outcome.elapsed.as_secs_f64(),
            acknowledged: outcome.acknowledged,
            events_per_second: outcome.per_second(),
            events_per_cpu_second: events / cpu,
            cpu_us_per_event: cpu * 1e6 / events,
            ack_ms: Latency::of(outcome),
            generator_late_p99_ms: outcome.lateness.value_at_quantile(0.99) as f64 / 1e6,
            memory: edges.memory,
            written_bytes_per_event: per_event(edges.after.written_bytes - edges.before.written_bytes),
            kept_bytes_per_event: per_event(edges.disk_after.saturating_sub(edges.disk_before)),
            syncs_per_second_traced: None,
            events_per_sync_traced: None,
            refused: outcome.refused.clone(),
            broken: outcome.broken,
            unanswered: outcome.unanswered,
        }
    }

    pub fn add_syncs(&mut self, syncs: Syncs, events_per_second: f64) {
        let per_second = syncs.total() as f64 / syncs.seconds;
        self.syncs_per_second_traced = Some(per_second);
        self.events_per_sync_traced = (per_second > 0.0).then(|| events_per_second / per_second);
    }
}

/// The row in the middle of several runs of the same, by events per CPU second.
pub fn median(mut rows: Vec<Row>) -> Option<Row> {
    rows.sort_by(|a, b| a.events_per_cpu_second.total_cmp(&b.events_per_cpu_second));
    let middle = rows.len() / 2;
    (middle < rows.len()).then(|| rows.swap_remove(middle))
}

pub fn print(rows: &[Row]) {
    println!(
        "{:<13} {:<12} {:>5} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8}",
        "server",
        "load",
        "conns",
        "events/s",
        "ev/CPU-s",
        "CPU µs",
        "p50 ms",
        "p99 ms",
        "p99.9",
        "max",
        "RSS MiB",
        "B/event",
        "syncs/s*",
        "ev/sync*",
        "refused"
    );
    for row in rows {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.0}"));
        println!(
            "{:<13} {:<12} {:>5} {:>9.0} {:>10.0} {:>8.1} {:>8.2} {:>8.2} {:>8.2} {:>8.1} {:>8.1} {:>7.0} {:>8} {:>8} {:>8}",
            row.server.label(),
            row.load,
            row.connections,
            row.events_per_second,
            row.events_per_cpu_second,
            row.cpu_us_per_event,
            row.ack_ms.p50,
            row.ack_ms.p99,
            row.ack_ms.p999,
            row.ack_ms.max,
            row.memory.resident_bytes as f64 / f64::from(1 << 20),
            row.written_bytes_per_event,
            optional(row.syncs_per_second_traced),
            optional(row.events_per_sync_traced),
            row.refused.values().sum::<u64>() + row.broken + row.unanswered,
        );
    }
    println!("* counted under strace in a run of its own, which is slower; B/event: written to the device per event");
}

/// A bound that was promised, and what was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub what: String,
    pub measured: f64,
    pub bound: f64,
    pub unit: &'static str,
    pub met: bool,
}

impl Verdict {
    pub fn at_least(what: impl Into<String>, measured: f64, bound: f64, unit: &'static str) -> Self {
        Self { what: what.into(), measured, bound, unit, met: measured >= bound }
    }

    pub fn at_most(what: impl Into<String>, measured: f64, bound: f64, unit: &'static str) -> Self {
        Self { what: what.into(), measured, bound, unit, met: measured <= bound }
    }

    pub fn print(&self) {
        let (mark, what, unit) = (if self.met { "met    " } else { "NOT MET" }, &self.what, self.unit);
        println!("{mark}  {what}: {:.2} {unit} (bound {:.2} {unit})", self.measured, self.bound);
    }
}

pub fn write(path: &Path, report: &impl Serialize) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(report)? + "\n")?;
    println!("wrote {}", path.display());
    Ok(())
}
