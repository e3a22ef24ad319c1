//! The same loads on every proxy, one after the other, and then at half of what the appliance can do.

use serde::Serialize;

use super::proxies::{Kind, Proxy, haproxy, squid};
use super::report::{BULK, Row, Spent, median, print, verdicts};
use super::requests::{self, Calls};
use super::setups::{self, Opener, To};
use super::{Bench, Origin, Used, WARM_UP, tunnels};
use crate::load::{self, Pace};
use crate::report::{Latency, Verdict};
use crate::server::http;
use crate::{Result, process};

/// Connections of requests, and set-ups under way.
pub(super) const CONNECTIONS: usize = 64;
pub(super) const BULK_TUNNELS: [usize; 2] = [1, 64];

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// Requests in absolute-form to an origin without TLS
    Absolute,
    /// Governed calls to an origin with TLS
    Governed,
    /// Tunnels set up and ended
    Connect,
    /// Bytes through 1 and through 64 tunnels
    Bulk,
    /// Memory of idle tunnels
    Idle,
    /// Both kinds of requests at half of the appliance's peak, beside calls without a proxy
    Half,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub seconds: u64,
    pub rounds: usize,
    pub cores: usize,
    pub proxy_threads: usize,
    pub load_threads: usize,
    pub origin_threads: usize,
    pub peers: Vec<String>,
    pub rows: Vec<Row>,
    /// Loads that a proxy did not stand.
    pub failures: Vec<String>,
    pub verdicts: Vec<Verdict>,
}

pub fn run(bench: &Bench, kinds: &[Kind], loads: &[Load]) -> Result<Report> {
    let origin = Origin::start(&bench.this, &bench.scratch, bench.origin_threads)?;
    let mut all = Rows { rows: Vec::new(), failures: Vec::new() };
    for round in 0..bench.rounds {
        eprintln!("round {} of {}", round + 1, bench.rounds);
        for kind in kinds {
            all.measure(bench, *kind, &origin, loads)?;
        }
    }
    let mut rows = all.medians();
    if loads.contains(&Load::Half) {
        rows.extend(half(bench, kinds, &origin, &rows, &mut all.failures)?);
    }
    let report = Report {
        seconds: bench.seconds,
        rounds: bench.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        proxy_threads: bench.proxy_threads,
        load_threads: bench.load_threads,
        origin_threads: bench.origin_threads,
        peers: kinds.iter().map(|kind| version(bench, *kind)).collect::<Result<Vec<_>>>()?.concat(),
        verdicts: verdicts(&rows),
        rows,
        failures: all.failures,
    };
    tell(&report);
    Ok(report)
}

fn version(bench: &Bench, kind: Kind) -> Result<Vec<String>> {
    Ok(match kind {
        Kind::Direct | Kind::Tidegate => Vec::new(),
        Kind::Squid => vec![squid::version()],
        Kind::Haproxy => vec![haproxy::version()],
        Kind::Envoy => vec![super::proxies::envoy::version(&crate::peers::envoy(&bench.peers)?)],
    })
}

struct Rows {
    rows: Vec<Row>,
    failures: Vec<String>,
}

impl Rows {
    /// Every load on one proxy. Idle tunnels have a fresh one, whose memory nothing has stretched before.
    fn measure(&mut self, bench: &Bench, kind: Kind, origin: &Origin, loads: &[Load]) -> Result<()> {
        let mut proxy = bench.start(kind, &origin.places)?;
        let mut under = Under { bench, kind, origin, proxy: proxy.as_mut() };
        if loads.contains(&Load::Absolute) {
            self.take(kind, "absolute", under.requests(Calls::Absolute, "absolute", Pace::Closed));
        }
        if loads.contains(&Load::Governed) {
            self.take(kind, "governed", under.requests(Calls::Governed, "governed", Pace::Closed));
        }
        if loads.contains(&Load::Connect) {
            self.take(kind, "connect", under.setups());
        }
        if loads.contains(&Load::Bulk) {
            for tunnels in BULK_TUNNELS {
                self.take(kind, BULK, under.bulk(tunnels));
            }
        }
        drop(proxy);
        if loads.contains(&Load::Idle)
            && let Some(mut proxy) = bench.start(kind, &origin.places)?
        {
            let mut under = Under { bench, kind, origin, proxy: Some(&mut proxy) };
            self.take(kind, "idle", under.idle());
        }
        Ok(())
    }

    fn take(&mut self, kind: Kind, load: &str, row: Result<Row>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => {
                eprintln!("{}: {load}: {error}", kind.label());
                self.failures.push(format!("{}: {load}: {error}", kind.label()));
            }
        }
    }

    /// In the order of the loads, so that what is compared stands together.
    fn medians(&self) -> Vec<Row> {
        let mut seen: Vec<(&str, usize, Kind)> = Vec::new();
        for load in ["absolute", "governed", "connect", BULK, "idle"] {
            for row in self.rows.iter().filter(|row| row.load == load) {
                let key = (load, row.at_a_time, row.server);
                if !seen.contains(&key) {
                    seen.push(key);
                }
            }
        }
        seen.sort_by_key(|(load, at, _)| if *load == BULK { *at } else { 0 });
        seen.sort_by_key(|(load, ..)| {
            ["absolute", "governed", "connect", BULK, "idle"].iter().position(|of| of == load)
        });
        let same = |(load, at, kind): &(&str, usize, Kind)| {
            let same = self.rows.iter().filter(|row| row.load == *load && row.at_a_time == *at && row.server == *kind);
            median(same.cloned().collect())
        };
        seen.iter().filter_map(same).collect()
    }
}

/// The appliance at half of its own peak, requests due at fixed moments, and everybody else at the same rate who can.
fn half(bench: &Bench, kinds: &[Kind], origin: &Origin, peaks: &[Row], failures: &mut Vec<String>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for calls in [Calls::Absolute, Calls::Governed] {
        let peak = |kind| peaks.iter().find(|row| row.server == kind && row.load == calls.name());
        let Some(per_second) = peak(Kind::Tidegate).map(|peak| peak.per_second / 2.0) else { continue };
        for kind in kinds {
            if peak(*kind).is_none_or(|peak| peak.per_second < per_second * 1.2) {
                failures.push(format!("{}: {}, half: this rate is too near to its peak", kind.label(), calls.name()));
                continue;
            }
            let mut proxy = bench.start(*kind, &origin.places)?;
            let mut under = Under { bench, kind: *kind, origin, proxy: proxy.as_mut() };
            let load = format!("{}, half", calls.name());
            match under.requests(calls, &load, Pace::Open { per_second }) {
                Ok(row) => rows.push(row),
                Err(error) => failures.push(format!("{}: {load}: {error}", kind.label())),
            }
        }
    }
    Ok(rows)
}

/// One proxy, or none, under one load after the other.
struct Under<'a> {
    bench: &'a Bench,
    kind: Kind,
    origin: &'a Origin,
    proxy: Option<&'a mut Proxy>,
}

impl Under<'_> {
    fn requests(&mut self, calls: Calls, load: &str, pace: Pace) -> Result<Row> {
        let plan = requests::plan(self.bench, calls, self.proxy.as_deref(), &self.origin.places, pace)?;
        let records = self.records()?;
        let (outcome, spent) = self.spend(load, |edge| load::run(&plan, edge))?;
        outcome.check(self.kind.label())?;
        self.check_records(records, outcome.acknowledged)?;
        let seconds = outcome.elapsed.as_secs_f64();
        Ok(Row::new(self.kind, load, CONNECTIONS, outcome.acknowledged, seconds, &spent).with_outcome(&outcome))
    }

    fn setups(&mut self) -> Result<Row> {
        let opener = Opener::new(self.proxy.as_deref(), &self.origin.places, To::Greeting)?;
        let measured = self.bench.measured();
        let plan = setups::Plan { opener, threads: CONNECTIONS, pace: Pace::Closed, warm_up: WARM_UP, measured };
        let records = self.records()?;
        let (outcome, spent) = self.spend("connect", |edge| setups::run(&plan, edge))?;
        if outcome.made == 0 || outcome.failed * 1_000 > outcome.made {
            return Err(format!("{} made, {} failed: {:?}", outcome.made, outcome.failed, outcome.why).into());
        }
        self.check_records(records, outcome.made)?;
        let ms = |quantile| outcome.latency.value_at_quantile(quantile) as f64 / 1e6;
        let mut row = Row::new(self.kind, "connect", CONNECTIONS, outcome.made, outcome.elapsed.as_secs_f64(), &spent);
        row.ms = Some(Latency { p50: ms(0.5), p99: ms(0.99), p999: ms(0.999), max: ms(1.0) });
        row.broken = outcome.failed;
        Ok(row)
    }

    fn bulk(&mut self, count: usize) -> Result<Row> {
        let opener = Opener::new(self.proxy.as_deref(), &self.origin.places, To::Bulk)?;
        let measured = self.bench.measured();
        let (poured, spent) = self.spend(BULK, |edge| tunnels::pour(&opener, count, WARM_UP, measured, edge))?;
        Ok(Row::new(self.kind, BULK, count, poured.bytes, poured.elapsed.as_secs_f64(), &spent))
    }

    fn idle(&mut self) -> Result<Row> {
        let Some(proxy) = self.proxy.as_deref() else { return Err("without a proxy there are no tunnels".into()) };
        let opener = Opener::new(Some(proxy), &self.origin.places, To::Greeting)?;
        // Two files for each tunnel, and a thousand for everything else.
        let room = usize::try_from(super::files_max().saturating_sub(1_000) / 2)?;
        let count = self.bench.tunnels.min(room);
        eprintln!("{}: idle, {count} tunnels …", self.kind.label());
        let (began, before) = (std::time::Instant::now(), Used::now(Some(proxy), self.origin)?);
        let idle = tunnels::idle(&opener, proxy, count)?;
        let after = Used::now(Some(proxy), self.origin)?;
        let spent = Spent { before, after, resident_bytes: idle.bytes_after };
        let seconds = began.elapsed().as_secs_f64();
        let mut row = Row::new(self.kind, "idle", count, count as u64, seconds, &spent);
        row.bytes_each = Some(idle.bytes_each());
        self.check()?;
        Ok(row)
    }

    /// Runs a load, and reads what was used at both ends of its measured time.
    fn spend<T>(&mut self, load: &str, run: impl FnOnce(&mut dyn FnMut()) -> Result<T>) -> Result<(T, Spent)> {
        eprintln!("{}: {load}, {} s …", self.kind.label(), self.bench.seconds);
        let mut seen = Vec::with_capacity(2);
        let outcome = run(&mut || seen.push(Used::now(self.proxy.as_deref(), self.origin)))?;
        self.check()?;
        let mut seen = seen.into_iter();
        let mut next = || seen.next().ok_or("an edge was not read")?;
        let (before, after) = (next()?, next()?);
        let resident_bytes =
            self.proxy.as_deref().map_or(Ok(0), |proxy| process::family_resident_bytes(proxy.pid()))?;
        Ok((outcome, Spent { before, after, resident_bytes }))
    }

    fn check(&mut self) -> Result<()> {
        self.proxy.as_deref_mut().map_or(Ok(()), Proxy::check)
    }

    /// Decision records that were stored, and those that were lost, where they are counted.
    fn records(&self) -> Result<Option<(u64, u64)>> {
        let Some(metrics) = self.proxy.as_deref().and_then(|proxy| proxy.metrics) else { return Ok(None) };
        let (_, text) = http(metrics, "GET", "/metrics", "")?;
        let sum = |name: &str| -> u64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
        };
        Ok(Some((sum("tidegate_egress_records_written"), sum("tidegate_egress_records_dropped"))))
    }

    /// A call without its record was no call that anybody promised.
    fn check_records(&self, before: Option<(u64, u64)>, calls: u64) -> Result<()> {
        let Some((written_before, lost_before)) = before else { return Ok(()) };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let (written, lost) = self.records()?.unwrap_or_default();
            if lost > lost_before {
                return Err(format!("{} of {calls} records were dropped", lost - lost_before).into());
            }
            if written - written_before >= calls {
                return Ok(());
            }
            if std::time::Instant::now() > end {
                return Err(format!("{} records of {calls} calls", written - written_before).into());
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

fn tell(report: &Report) {
    println!(
        "{} cores, {} threads per proxy, {} for load, {} for the origin; {} s per load, median of {} round(s)",
        report.cores, report.proxy_threads, report.load_threads, report.origin_threads, report.seconds, report.rounds
    );
    for peer in &report.peers {
        println!("peer: {peer}");
    }
    print(&report.rows);
    for failure in &report.failures {
        println!("FAILED   {failure}");
    }
    for verdict in &report.verdicts {
        verdict.print();
    }
}
