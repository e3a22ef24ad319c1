//! Figures of egress, as a table for people and as JSON for everything else.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Used;
use super::proxies::Kind;
use crate::load;
use crate::report::{Latency, Verdict};

/// One proxy under one load.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub server: Kind,
    pub load: String,
    /// Connections, threads or tunnels at a time.
    pub at_a_time: usize,
    pub seconds: f64,
    /// Requests, tunnels set up, or bytes.
    pub count: u64,
    pub per_second: f64,
    /// By the CPU time of the proxy and its family; none without a proxy.
    pub per_proxy_cpu_second: Option<f64>,
    /// CPU of proxy, load and origin during the load, in CPUs, and what others took meanwhile: a run in which that is
    /// much measures somebody else, too.
    pub cpus: Cpus,
    pub ms: Option<Latency>,
    /// How late the generator was, p99: what of the latencies is its own.
    pub generator_late_p99_ms: Option<f64>,
    /// Resident memory of the proxy and its family afterwards.
    pub resident_bytes: u64,
    /// Of one idle tunnel.
    pub bytes_each: Option<f64>,
    pub refused: BTreeMap<u16, u64>,
    pub broken: u64,
    pub unanswered: u64,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cpus {
    pub proxy: f64,
    pub load: f64,
    pub origin: f64,
    pub others: f64,
}

/// What was used between two moments.
pub(super) struct Spent {
    pub(super) before: Used,
    pub(super) after: Used,
    pub(super) resident_bytes: u64,
}

impl Row {
    pub(super) fn new(server: Kind, load: &str, at_a_time: usize, count: u64, seconds: f64, spent: &Spent) -> Self {
        let Spent { before, after, resident_bytes } = *spent;
        let proxy_cpu_seconds = after.proxy - before.proxy;
        let (load_cpu_seconds, origin_cpu_seconds) = (after.load - before.load, after.origin - before.origin);
        let ours = proxy_cpu_seconds + load_cpu_seconds + origin_cpu_seconds;
        Self {
            server,
            load: load.into(),
            at_a_time,
            seconds,
            count,
            per_second: count as f64 / seconds,
            per_proxy_cpu_second: (proxy_cpu_seconds > 0.0).then(|| count as f64 / proxy_cpu_seconds),
            cpus: Cpus {
                proxy: proxy_cpu_seconds / seconds,
                load: load_cpu_seconds / seconds,
                origin: origin_cpu_seconds / seconds,
                // Ticks are counted in hundredths: a little less than nothing is nothing.
                others: ((after.machine - before.machine - ours) / seconds).max(0.0),
            },
            ms: None,
            generator_late_p99_ms: None,
            resident_bytes,
            bytes_each: None,
            refused: BTreeMap::new(),
            broken: 0,
            unanswered: 0,
        }
    }

    pub(super) fn with_outcome(mut self, outcome: &load::Outcome) -> Self {
        self.ms = Some(Latency::of(outcome));
        self.generator_late_p99_ms = Some(outcome.lateness.value_at_quantile(0.99) as f64 / 1e6);
        self.refused.clone_from(&outcome.refused);
        (self.broken, self.unanswered) = (outcome.broken, outcome.unanswered);
        self
    }
}

/// The row in the middle of several runs of the same: by what CPU time yields, or else by what the clock does.
pub(super) fn median(mut rows: Vec<Row>) -> Option<Row> {
    let key = |row: &Row| row.bytes_each.or(row.per_proxy_cpu_second).unwrap_or(row.per_second);
    rows.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let middle = rows.len() / 2;
    (middle < rows.len()).then(|| rows.swap_remove(middle))
}

pub(super) fn print(rows: &[Row]) {
    println!(
        "{:<10} {:<14} {:>5} {:>12} {:>12} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}",
        "server",
        "load",
        "at 1x",
        "per second",
        "per CPU-s*",
        "proxy",
        "load",
        "origin",
        "others",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "KiB each",
        "RSS MiB",
        "failed"
    );
    for row in rows {
        let is_bulk = row.load == BULK;
        let rate = |per_second: f64| {
            if is_bulk { format!("{:.2} GB", per_second / 1e9) } else { format!("{per_second:.0}") }
        };
        let optional = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.0}"));
        println!(
            "{:<10} {:<14} {:>5} {:>12} {:>12} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>8} {:>8} {:>8} {:>8} {:>8.1} {:>7}",
            row.server.label(),
            row.load,
            row.at_a_time,
            rate(row.per_second),
            row.per_proxy_cpu_second.map_or_else(|| "-".into(), rate),
            row.cpus.proxy,
            row.cpus.load,
            row.cpus.origin,
            row.cpus.others,
            optional(row.ms.map(|ms| ms.p50 * 1e3)),
            optional(row.ms.map(|ms| ms.p99 * 1e3)),
            optional(row.ms.map(|ms| ms.p999 * 1e3)),
            row.bytes_each.map_or_else(|| "-".into(), |bytes| format!("{:.1}", bytes / 1_024.0)),
            row.resident_bytes as f64 / f64::from(1 << 20),
            row.refused.values().sum::<u64>() + row.broken + row.unanswered,
        );
    }
    println!("* of the proxy's own CPU time; the columns behind it are CPUs in use, by whom");
    println!("* haproxy is no forward proxy: one fixed origin, nothing decided, nothing written down");
}

pub(super) const BULK: &str = "bulk";

/// What was promised, and what came of it.
pub(super) fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let row = |server: Kind, load: &str, at: usize| {
        rows.iter().find(|row| row.server == server && row.load == load && (at == 0 || row.at_a_time == at))
    };
    let mut verdicts = Vec::new();
    let mut beside = |load: &str, at: usize, peer: Kind, bound: f64| {
        let Some((ours, theirs)) = row(Kind::Tidegate, load, at).zip(row(peer, load, at)) else { return };
        let times = ours.per_second / theirs.per_second;
        verdicts.push(Verdict::at_least(format!("{load}, {at}: per second, of {}'s", peer.label()), times, bound, "×"));
        if let Some((ours, theirs)) = ours.per_proxy_cpu_second.zip(theirs.per_proxy_cpu_second) {
            let what = format!("{load}, {at}: per CPU-second of the proxy, of {}'s", peer.label());
            verdicts.push(Verdict::at_least(what, ours / theirs, bound, "×"));
        }
    };
    for load in ["absolute", "governed"] {
        beside(load, super::compare::CONNECTIONS, Kind::Squid, 1.2);
        beside(load, super::compare::CONNECTIONS, Kind::Envoy, 1.2);
    }
    beside("connect", super::compare::CONNECTIONS, Kind::Squid, 2.0);
    for tunnels in super::compare::BULK_TUNNELS {
        let peers = [Kind::Squid, Kind::Envoy].into_iter().filter_map(|kind| row(kind, BULK, tunnels));
        if let Some(best) = peers.max_by(|a, b| a.per_second.total_cmp(&b.per_second)) {
            beside(BULK, tunnels, best.server, 0.9);
        }
    }
    for load in ["absolute", "governed"].map(|load| format!("{load}, half")) {
        let Some((ours, direct)) = row(Kind::Tidegate, &load, 0).zip(row(Kind::Direct, &load, 0)) else { continue };
        if let Some((ours, direct)) = ours.ms.zip(direct.ms) {
            let added = |ours: f64, direct: f64| (ours - direct) * 1e3;
            verdicts.push(Verdict::at_most(format!("{load}: added p50"), added(ours.p50, direct.p50), 150.0, "µs"));
            verdicts.push(Verdict::at_most(format!("{load}: added p99"), added(ours.p99, direct.p99), 1_000.0, "µs"));
        }
    }
    if let Some(bytes) = row(Kind::Tidegate, "idle", 0).and_then(|row| row.bytes_each) {
        verdicts.push(Verdict::at_most("an idle tunnel", bytes / 1_024.0, 32.0, "KiB"));
    }
    verdicts
}
