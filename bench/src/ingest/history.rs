//! An empty log against a long one: the cost of an event must not depend on how many there are already.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Bench, free_bytes};
use crate::Result;
use crate::load::{self, Pace, Plan};
use crate::report::{self, Row, Verdict};
use crate::server::tidegate::Shape;

/// What an event of 1 KiB takes in the log, with room to spare, and what the log leaves free of its own accord.
const EVENT_BYTES: u64 = 2_048;
const RESERVE_BYTES: u64 = 2 << 30;

#[derive(Debug, Serialize)]
pub struct Report {
    pub events: u64,
    pub empty: Row,
    pub long: Row,
    /// From the start of a process on the long log until it was ready.
    pub reopened_after_s: f64,
    pub reopened: Row,
    pub verdicts: Vec<Verdict>,
}

pub fn run(bench: &Bench, events: u64) -> Result<Report> {
    let (need, free) = (events * EVENT_BYTES + RESERVE_BYTES, free_bytes(&bench.scratch)?);
    if free < need {
        return Err(format!("{events} events need {} GiB, {} GiB are free", need >> 30, free >> 30).into());
    }
    let appliance = bench.appliance(Shape::ONE);
    let mut server = appliance.start(&bench.scratch)?;
    let plan = bench.plan(&server, 512, Pace::Closed);
    let (empty, _) = bench.measure(&mut server, "empty log", &plan)?;

    let mut stored = empty.acknowledged;
    let began = Instant::now();
    while stored < events {
        let slice = Plan { warm_up: Duration::ZERO, measured: Duration::from_secs(30), ..plan.clone() };
        let outcome = load::run(&slice, || {})?;
        server.check()?;
        outcome.check("filling")?;
        stored += outcome.acknowledged;
        eprintln!("{stored} events after {} s", began.elapsed().as_secs());
    }
    let (long, _) = bench.measure(&mut server, "long log", &plan)?;
    let data = server.data.clone();
    drop(server);

    let mut server = appliance.start_on(&data)?;
    let reopened_after_s = server.ready_after.as_secs_f64();
    let plan = bench.plan(&server, 512, Pace::Closed);
    let (reopened, _) = bench.measure(&mut server, "reopened", &plan)?;
    let cost = |row: &Row| 100.0 * row.cpu_us_per_event / empty.cpu_us_per_event;
    let verdicts = vec![
        Verdict::at_most(format!("CPU per event after {stored}, of an empty log's"), cost(&long), 115.0, "%"),
        Verdict::at_most("CPU per event after a restart, of an empty log's", cost(&reopened), 115.0, "%"),
    ];
    let report = Report { events: stored, empty, long, reopened_after_s, reopened, verdicts };
    report::print(&[report.empty.clone(), report.long.clone(), report.reopened.clone()]);
    println!("ready after a restart on {} events: {:.2} s", report.events, report.reopened_after_s);
    for verdict in &report.verdicts {
        verdict.print();
    }
    Ok(report)
}
