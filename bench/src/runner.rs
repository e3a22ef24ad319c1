//! The runner: steps a second and what each adds, end to end and beside Restate, what waiting runs and dormant automations
//! weigh, what a neighbour does to others, and whether history costs anything.
//!
//! Each part stands in a file of its own, with its method at the top, and runs in a process of its own. Nothing but loopback
//! is used.

use std::path::PathBuf;

use serde::Serialize;

use crate::Result;
use crate::quota::{Noise, child};
use crate::report::Verdict;

pub mod dormant;
pub mod egress;
pub mod history;
pub mod marks;
pub mod neighbour;
pub mod noop;
pub mod parked;
mod ports;
mod verdicts;
pub mod workflows;
mod world;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Steps with a provider in the process that answers at once
    Noop,
    /// Deliveries, runs and calls through the real binary
    Egress,
    /// The same three steps on Restate
    Restate,
    /// Memory of runs that wait
    Parked,
    /// A million automations that nothing happens to
    Dormant,
    /// A burst of one tenant, and single runs of another
    Neighbour,
    /// Steps on a ledger with history
    History,
}

/// What a run is told.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Measured seconds of each load.
    pub seconds: u64,
    /// How often steps are measured; the median is told.
    pub rounds: usize,
    pub automations: u64,
    pub burst: u64,
    /// Runs in the ledger, each more than the one before.
    pub history: Vec<u64>,
    /// This program, which measures each part in a process of its own.
    pub this: PathBuf,
    pub out: PathBuf,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seconds: u64,
    pub rounds: usize,
    pub cores: usize,
    /// Processors that others than the benchmark took meanwhile, on average.
    pub others_cpus: f64,
    pub noop: Vec<noop::Row>,
    pub egress: Vec<egress::Row>,
    pub restate: Vec<workflows::Row>,
    pub parked: Option<parked::Row>,
    pub dormant: Option<dormant::Row>,
    pub neighbour: Vec<neighbour::Row>,
    pub history: Vec<history::Row>,
    pub verdicts: Vec<Verdict>,
}

/// Measures these parts, prints what came of them, and gives it back.
pub fn run(bench: &Bench, parts: &[Part]) -> Result<Report> {
    let mut report = Report {
        seconds: bench.seconds,
        rounds: bench.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        ..Report::default()
    };
    let noise = Noise::begin()?;
    let has = |part| parts.contains(&part);
    if has(Part::Noop) {
        report.noop = noop_rows(bench)?;
    }
    if has(Part::Egress) {
        report.egress = bench.part(&["egress"])?;
    }
    if has(Part::Restate) {
        eprintln!("the same on Restate …");
        report.restate = bench.part(&["restate"])?;
    }
    if has(Part::Parked) {
        eprintln!("{} parked runs …", parked::RUNS);
        report.parked = Some(bench.part(&["parked"])?);
    }
    if has(Part::Neighbour) {
        eprintln!("a neighbour's {} events …", bench.burst);
        report.neighbour = bench.part(&["neighbour", "--burst", &bench.burst.to_string()])?;
    }
    if has(Part::History) {
        let lengths = bench.history.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        eprintln!("steps with {lengths} runs of history …");
        report.history = bench.part(&["history", "--runs", &lengths])?;
    }
    if has(Part::Dormant) {
        eprintln!("{} automations …", bench.automations);
        report.dormant = Some(bench.part(&["dormant", "--automations", &bench.automations.to_string()])?);
    }
    report.others_cpus = noise.end()?;
    report.verdicts = verdicts::of(&report);
    print(&report);
    Ok(report)
}

impl Bench {
    fn part<T: serde::de::DeserializeOwned>(&self, arguments: &[&str]) -> Result<T> {
        let (seconds, out) = (self.seconds.to_string(), self.out.to_str().ok_or("a path in UTF-8")?);
        let all: Vec<&str> = arguments.iter().copied().chain(["--seconds", &seconds, "--out", out]).collect();
        child(&self.this, &all)
    }
}

/// Without and with the index, as often as there are rounds; of each row the one in the middle.
fn noop_rows(bench: &Bench) -> Result<Vec<noop::Row>> {
    let mut rounds: Vec<Vec<noop::Row>> = Vec::new();
    for round in 0..bench.rounds {
        eprintln!("steps with a provider that answers at once, round {} of {} …", round + 1, bench.rounds);
        let mut rows: Vec<noop::Row> = bench.part(&["noop"])?;
        rows.extend(bench.part::<Vec<noop::Row>>(&["noop", "--index"])?);
        rounds.push(rows);
    }
    let mut rows = Vec::new();
    for at in 0..rounds[0].len() {
        let mut same: Vec<noop::Row> = rounds.iter().map(|rows| rows[at].clone()).collect();
        same.sort_by(|a, b| a.cpu_us_per_step.total_cmp(&b.cpu_us_per_step));
        rows.push(same.swap_remove(same.len() / 2));
    }
    Ok(rows)
}

fn print(report: &Report) {
    println!(
        "{} cores; others took {:.2} of them; {} round(s), {} s per load",
        report.cores, report.others_cpus, report.rounds, report.seconds
    );
    if !report.noop.is_empty() {
        noop::print(&report.noop);
    }
    if !report.egress.is_empty() {
        egress::print(&report.egress);
    }
    if !report.restate.is_empty() {
        workflows::print(&report.restate);
    }
    if let Some(parked) = &report.parked {
        parked::print(parked);
    }
    if let Some(dormant) = &report.dormant {
        dormant::print(dormant);
    }
    if !report.neighbour.is_empty() {
        neighbour::print(&report.neighbour);
    }
    if !report.history.is_empty() {
        history::print(&report.history);
    }
    println!();
    for verdict in &report.verdicts {
        verdict.print();
    }
}
