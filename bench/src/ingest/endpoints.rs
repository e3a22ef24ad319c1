//! One endpoint against 100,000: how long they take to load, what they cost at rest and per event, and what a reload of
//! all of them does to the deliveries that are under way.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;

use super::Bench;
use crate::Result;
use crate::load::{Pace, Plan};
use crate::process;
use crate::report::{self, Row, Verdict};
use crate::server::Server;
use crate::server::tidegate::{Shape, write_tenants};

/// Both ways to have 100,000 endpoints.
const SHAPES: [Shape; 2] =
    [Shape { tenants: 10_000, endpoints_each: 10 }, Shape { tenants: 100_000, endpoints_each: 1 }];

/// Idle time before memory is read: what loading needed is given back, or is not.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
pub struct Report {
    pub one: Measured,
    pub many: Vec<Measured>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Debug, Serialize)]
pub struct Measured {
    pub tenants: usize,
    pub endpoints: usize,
    /// From the start of the process until it was ready.
    pub ready_after_s: f64,
    /// At rest, before any delivery.
    pub resident_bytes: u64,
    pub full: Row,
    /// What was due in the two runs that follow: half of what was acknowledged at full load.
    pub due_per_second: f64,
    /// Without and with a reload of everything in the middle.
    pub steady: Row,
    pub reloading: Row,
    /// How long each reload of everything took, by the appliance's own log: begun and done under the load.
    pub reloads_ms: Vec<u64>,
}

pub fn run(bench: &Bench) -> Result<Report> {
    let one = measure(bench, Shape::ONE)?;
    let mut many = Vec::new();
    let mut verdicts = Vec::new();
    for shape in SHAPES {
        let measured = measure(bench, shape)?;
        let name = format!("{} tenants × {}", shape.tenants, shape.endpoints_each);
        let each = measured.resident_bytes.saturating_sub(one.resident_bytes) as f64 / shape.endpoints() as f64;
        let cost = 100.0 * measured.full.cpu_us_per_event / one.full.cpu_us_per_event;
        // A server that does not keep up with the rate has latencies that say nothing about a reload.
        let kept_up = measured.steady.events_per_second > 0.97 * measured.due_per_second;
        // Nor does a reload that was not done when the load ended.
        let raised = if kept_up && !measured.reloads_ms.is_empty() {
            measured.reloading.ack_ms.p999 - measured.steady.ack_ms.p999
        } else {
            f64::INFINITY
        };
        verdicts.push(Verdict::at_most(format!("{name}: ready after"), measured.ready_after_s, 3.0, "s"));
        verdicts.push(Verdict::at_most(format!("{name}: resident per endpoint"), each, 400.0, "bytes"));
        verdicts.push(Verdict::at_most(format!("{name}: a reload raises ack p99.9 by"), raised, 10.0, "ms"));
        verdicts.push(Verdict::at_most(format!("{name}: CPU per event, of one endpoint's"), cost, 115.0, "%"));
        many.push(measured);
    }
    let report = Report { one, many, verdicts };
    print(&report);
    Ok(report)
}

fn measure(bench: &Bench, shape: Shape) -> Result<Measured> {
    let mut server = bench.appliance(shape).start(&bench.scratch)?;
    let ready_after_s = server.ready_after.as_secs_f64();
    std::thread::sleep(SETTLE);
    let resident_bytes = process::memory(server.pid())?.resident_bytes;
    let plan = bench.plan(&server, 512, Pace::Closed);
    let (full, outcome) = bench.measure(&mut server, "full", &plan)?;
    let due_per_second = outcome.per_second() / 2.0;

    let plan = bench.plan(&server, 512, Pace::Open { per_second: due_per_second });
    let (steady, _) = bench.measure(&mut server, "steady", &plan)?;
    let (reloading, reloads_ms) = reload_under(bench, &mut server, shape, &plan)?;
    Ok(Measured {
        tenants: shape.tenants,
        endpoints: shape.endpoints(),
        ready_after_s,
        resident_bytes,
        full,
        due_per_second,
        steady,
        reloading,
        reloads_ms,
    })
}

/// Every tenant's file is another one when the signal comes: a push of everything, put in place in one rename.
fn reload_under(bench: &Bench, server: &mut Server, shape: Shape, plan: &Plan) -> Result<(Row, Vec<u64>)> {
    let (tenants, new, old) =
        (server.data.join("tenants"), server.data.join("tenants.new"), server.data.join("tenants.old"));
    write_tenants(&new, shape, 1)?;
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed()).ok_or("no process id")?;
    let wait = plan.warm_up + plan.measured / 3;
    let pusher = std::thread::spawn(move || -> Result<()> {
        std::thread::sleep(wait);
        fs::rename(&tenants, &old)?;
        fs::rename(&new, &tenants)?;
        rustix::process::kill_process(pid, Signal::HUP)?;
        Ok(())
    });
    let measured = bench.measure(server, "reloading", plan);
    let reloads = reloads_ms(&fs::read_to_string(server.data.join("output.log"))?, shape.tenants);
    pusher.join().map_err(|_| "the pusher panicked")??;
    Ok((measured?.0, reloads))
}

/// What the log says of loads of everything, the first one left out.
fn reloads_ms(log: &str, tenants: usize) -> Vec<u64> {
    let line = |line: &str| -> Option<u64> {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let everything = line["message"] == "configuration loaded" && line["changed"] == tenants;
        everything.then(|| line["ms"].as_u64()).flatten()
    };
    // One line for each accepted delivery is there, too.
    log.lines().filter(|line| line.contains("configuration loaded")).filter_map(line).skip(1).collect()
}

fn print(report: &Report) {
    for measured in std::iter::once(&report.one).chain(&report.many) {
        println!(
            "{} tenants, {} endpoints: ready after {:.2} s, {:.1} MiB at rest",
            measured.tenants,
            measured.endpoints,
            measured.ready_after_s,
            measured.resident_bytes as f64 / f64::from(1 << 20)
        );
        report::print(&[measured.full.clone(), measured.steady.clone(), measured.reloading.clone()]);
        println!("reloads of everything under load took {:?} ms", measured.reloads_ms);
    }
    for verdict in &report.verdicts {
        verdict.print();
    }
}
