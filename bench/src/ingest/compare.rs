//! The same load on every server: 64 and 512 connections as fast as they go, then the appliance at half of its peak.

use std::time::Duration;

use serde::Serialize;

use super::Bench;
use crate::disk::{self, Durable};
use crate::load::Pace;
use crate::report::{self, Row, Verdict, median};
use crate::server::tidegate::Shape;
use crate::server::{Kind, Server, bare, qhook, restate};
use crate::{Result, peers};

const CONNECTIONS: [usize; 2] = [64, 512];

const DISK: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
pub struct Report {
    pub seconds: u64,
    pub rounds: usize,
    pub cores: usize,
    pub server_threads: usize,
    pub load_threads: usize,
    pub peers: Vec<String>,
    pub disk_before: Durable,
    pub disk_after: Durable,
    pub rows: Vec<Row>,
    pub verdicts: Vec<Verdict>,
}

pub fn run(bench: &Bench, kinds: &[Kind]) -> Result<Report> {
    let mut versions = Vec::new();
    if kinds.contains(&Kind::Restate) {
        versions.push(restate::version(&peers::restate(&bench.peers)?));
    }
    if kinds.contains(&Kind::Qhook) {
        peers::qhook(&bench.peers)?;
        versions.push(peers::qhook_version(&bench.peers));
    }
    let disk_before = disk::probe(&bench.scratch, DISK)?;

    let mut all: Vec<Row> = Vec::new();
    for round in 0..bench.rounds {
        eprintln!("round {} of {}", round + 1, bench.rounds);
        for kind in kinds {
            all.extend(one(bench, *kind, round == 0)?);
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for kind in kinds {
        for connections in CONNECTIONS {
            let same = all.iter().filter(|row| row.server == *kind && row.connections == connections);
            let traced = same.clone().find_map(|row| row.syncs_per_second_traced.zip(row.events_per_sync_traced));
            let mut row = median(same.cloned().collect()).ok_or("a load that was never run")?;
            (row.syncs_per_second_traced, row.events_per_sync_traced) = traced.unzip();
            rows.push(row);
        }
    }
    rows.extend(half_of_peak(bench, kinds, &rows)?);
    let disk_after = disk::probe(&bench.scratch, DISK)?;
    let verdicts = verdicts(&rows, disk_before.p99_ms.min(disk_after.p99_ms));
    let report = Report {
        seconds: bench.seconds,
        rounds: bench.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        server_threads: bench.server_threads,
        load_threads: bench.load_threads,
        peers: versions,
        disk_before,
        disk_after,
        rows,
        verdicts,
    };
    print(&report);
    Ok(report)
}

fn start(bench: &Bench, kind: Kind) -> Result<Server> {
    match kind {
        Kind::Bare => bare(&bench.responder, &bench.scratch, bench.server_threads),
        Kind::Tidegate => bench.appliance(Shape::ONE).start(&bench.scratch),
        Kind::Restate => restate::start(&peers::restate(&bench.peers)?, &bench.scratch),
        Kind::Qhook => qhook::start(&peers::qhook(&bench.peers)?, &bench.scratch),
    }
}

/// One server, fresh, under both loads.
fn one(bench: &Bench, kind: Kind, traced: bool) -> Result<Vec<Row>> {
    let mut server = start(bench, kind)?;
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let plan = bench.plan(&server, connections, Pace::Closed);
        let (mut row, _) = bench.measure(&mut server, "full", &plan)?;
        if traced && kind != Kind::Bare {
            bench.trace(&server, &plan, &mut row)?;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The appliance at half of its own peak, requests due at fixed moments; the bare responder at the same rate shows how
/// much of it is the machine's and the generator's.
fn half_of_peak(bench: &Bench, kinds: &[Kind], rows: &[Row]) -> Result<Vec<Row>> {
    let Some(peak) = row(rows, Kind::Tidegate, "full", 512).or_else(|| row(rows, Kind::Bare, "full", 512)) else {
        return Ok(Vec::new());
    };
    let pace = Pace::Open { per_second: peak.events_per_second / 2.0 };
    let mut measured = Vec::new();
    for kind in [Kind::Bare, Kind::Tidegate].into_iter().filter(|kind| kinds.contains(kind)) {
        let mut server = start(bench, kind)?;
        let plan = bench.plan(&server, 512, pace);
        measured.push(bench.measure(&mut server, HALF, &plan)?.0);
    }
    Ok(measured)
}

const HALF: &str = "half of peak";

fn row<'r>(rows: &'r [Row], kind: Kind, load: &str, connections: usize) -> Option<&'r Row> {
    rows.iter().find(|row| row.server == kind && row.load == load && row.connections == connections)
}

fn verdicts(rows: &[Row], disk_p99_ms: f64) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let Some(ours) = row(rows, Kind::Tidegate, "full", 512) else { return verdicts };
    if let Some(bare) = row(rows, Kind::Bare, "full", 512) {
        let percent = |ours: f64, bare: f64| 100.0 * ours / bare;
        verdicts.push(Verdict::at_least(
            "durable events per CPU second, of bare Pingora's requests, 512 connections",
            percent(ours.events_per_cpu_second, bare.events_per_cpu_second),
            70.0,
            "%",
        ));
        verdicts.push(Verdict::at_least(
            "durable events per second, of bare Pingora's requests, 512 connections",
            percent(ours.events_per_second, bare.events_per_second),
            60.0,
            "%",
        ));
    }
    for peer in [Kind::Restate, Kind::Qhook] {
        for connections in CONNECTIONS {
            let both = row(rows, Kind::Tidegate, "full", connections).zip(row(rows, peer, "full", connections));
            let Some((ours, theirs)) = both else { continue };
            verdicts.push(Verdict::at_least(
                format!("events per second, of {}'s, {connections} connections", peer.label()),
                ours.events_per_second / theirs.events_per_second,
                10.0,
                "times",
            ));
        }
    }
    if let Some(half) = row(rows, Kind::Tidegate, HALF, 512) {
        let bound = 2.0 * disk_p99_ms + 5.0;
        verdicts.push(Verdict::at_most(
            "ack p99 at half of peak (2 × the disk's + 5 ms)",
            half.ack_ms.p99,
            bound,
            "ms",
        ));
        verdicts.push(Verdict::at_most("ack p99.9 at half of peak", half.ack_ms.p999, 250.0, "ms"));
        verdicts.push(Verdict::at_most("ack max at half of peak", half.ack_ms.max, 900.0, "ms"));
    }
    verdicts
}

fn print(report: &Report) {
    println!(
        "{} cores, {} threads per server, {} for load; {} s per load, median of {} round(s)",
        report.cores, report.server_threads, report.load_threads, report.seconds, report.rounds
    );
    for peer in &report.peers {
        println!("peer: {peer}");
    }
    for (when, disk) in [("before", report.disk_before), ("after", report.disk_after)] {
        println!(
            "disk {when}: durable 4 KiB writes{} p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {:.1} ms",
            if disk.buffered { " (buffered: no O_DIRECT here)" } else { "" },
            disk.p50_ms,
            disk.p99_ms,
            disk.p999_ms,
            disk.max_ms
        );
    }
    report::print(&report.rows);
    for verdict in &report.verdicts {
        verdict.print();
    }
}
