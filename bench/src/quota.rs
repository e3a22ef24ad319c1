//! Quota: what a call within a held block costs, what a bucket weighs, what Redis has to do, and what a fleet makes of a
//! provider's limit.
//!
//! Each part stands in a file of its own, with its method at the top. Nothing but loopback is used; the fleet's time is
//! virtual.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::report::Verdict;
use crate::{Result, process};

pub mod acquire;
mod counted;
pub mod fleet;
pub mod held;
pub mod memory;
mod plenty;
mod redis_memory;
mod redis_server;
pub mod steady;
mod things;
mod verdicts;

use redis_server::Server;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Calls within held blocks
    Held,
    /// Bytes of a bucket: on the node, in the process, in Redis
    Memory,
    /// Processor time of Redis for each operation
    Acquire,
    /// Operations and processor time of Redis for each call
    Steady,
    /// A fleet in virtual time
    Fleet,
}

/// What a run is told.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Measured seconds of each load in steady state.
    pub seconds: u64,
    /// How often calls within blocks and operations are measured; the median is told.
    pub rounds: usize,
    pub seeds: u64,
    /// Simulated seconds of each seed: whole windows of a minute.
    pub simulated_seconds: u64,
    /// This program, which measures memory in processes of its own.
    pub this: PathBuf,
    pub scratch: PathBuf,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seconds: u64,
    pub rounds: usize,
    pub seeds: u64,
    pub simulated_seconds: u64,
    pub cores: usize,
    pub redis: String,
    /// Processors that others than the benchmark took meanwhile, on average.
    pub others_cpus: f64,
    pub held: Vec<held::Row>,
    pub memory_node: Option<memory::Row>,
    pub memory_in_process: Option<memory::Row>,
    pub memory_redis: Option<redis_memory::Row>,
    pub acquire: Vec<acquire::Row>,
    pub steady: Vec<steady::Row>,
    pub fleet: Vec<fleet::Row>,
    pub verdicts: Vec<Verdict>,
}

/// Measures these parts, prints what came of them, and gives it back.
pub fn run(bench: &Bench, parts: &[Part]) -> Result<Report> {
    let mut report = Report {
        seconds: bench.seconds,
        rounds: bench.rounds,
        seeds: bench.seeds,
        simulated_seconds: bench.simulated_seconds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        redis: Server::version(),
        ..Report::default()
    };
    let noise = Noise::begin()?;
    let has = |part| parts.contains(&part);
    if has(Part::Held) {
        report.held = held_rows(bench)?;
    }
    if has(Part::Memory) {
        eprintln!("memory, {} buckets …", memory::BUCKETS);
        report.memory_node = Some(child(&bench.this, &["memory", "--of", "node"])?);
        report.memory_in_process = Some(child(&bench.this, &["memory", "--of", "in-process"])?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(on_redis(bench, &mut report, parts))?;
    if has(Part::Fleet) {
        report.fleet = fleet::measure(bench.seeds, bench.simulated_seconds)?;
    }
    report.others_cpus = noise.end()?;
    report.verdicts = verdicts::of(&report);
    print(&report);
    Ok(report)
}

/// Everything that needs a Redis: a fresh one for each part.
async fn on_redis(bench: &Bench, report: &mut Report, parts: &[Part]) -> Result<()> {
    if parts.contains(&Part::Memory) {
        eprintln!("memory of Redis, {} buckets …", memory::BUCKETS);
        report.memory_redis = Some(redis_memory::measure(&Server::start(&bench.scratch)?, memory::BUCKETS).await?);
    }
    if parts.contains(&Part::Acquire) {
        eprintln!("operations of Redis, {} round(s) …", bench.rounds);
        report.acquire = acquire::measure(&Server::start(&bench.scratch)?, bench.rounds, acquire::ASKS).await?;
    }
    if parts.contains(&Part::Steady) {
        report.steady = steady::measure(&Server::start(&bench.scratch)?, bench.seconds).await?;
    }
    Ok(())
}

/// Each count of buckets in a process of its own, as often as there are rounds; of each row the one in the middle.
fn held_rows(bench: &Bench) -> Result<Vec<held::Row>> {
    let mut rows = Vec::new();
    for buckets in held::BUCKETS {
        let mut rounds: Vec<Vec<held::Row>> = Vec::new();
        for round in 0..bench.rounds {
            eprintln!("held blocks, {buckets} bucket(s), round {} of {} …", round + 1, bench.rounds);
            rounds.push(child(&bench.this, &["held", "--buckets", &buckets.to_string()])?);
        }
        for at in 0..rounds[0].len() {
            let mut same: Vec<held::Row> = rounds.iter().map(|rows| rows[at]).collect();
            same.sort_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns));
            rows.push(same[same.len() / 2]);
        }
    }
    Ok(rows)
}

/// Runs this program with these arguments and reads what it prints.
pub(crate) fn child<T: DeserializeOwned>(this: &Path, arguments: &[&str]) -> Result<T> {
    let output = Command::new(this).args(arguments).stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{arguments:?}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What others take of the machine while something is measured.
pub(crate) struct Noise {
    began: Instant,
    machine: f64,
    ours: f64,
}

impl Noise {
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self { began: Instant::now(), machine: process::machine_cpu_seconds()?, ours: ours()? })
    }

    /// In processors, on average.
    pub(crate) fn end(&self) -> Result<f64> {
        let machine = process::machine_cpu_seconds()? - self.machine;
        Ok(((machine - (ours()? - self.ours)) / self.began.elapsed().as_secs_f64()).max(0.0))
    }
}

/// Processor seconds of this process and of those that it has started and that have ended.
fn ours() -> Result<f64> {
    let own = rustix::process::getpid();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", own.as_raw_nonzero()))?;
    let fields: Vec<_> = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?.1.split_ascii_whitespace().collect();
    // utime, stime, cutime and cstime: the 14th to the 17th.
    let ticks: u64 = fields.get(11..15).ok_or("a short /proc/PID/stat")?.iter().flat_map(|n| n.parse::<u64>()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn print(report: &Report) {
    println!(
        "{} cores, {}; others took {:.2} of them; {} round(s), {} s per load in steady state, {} seed(s) of {} s",
        report.cores,
        report.redis,
        report.others_cpus,
        report.rounds,
        report.seconds,
        report.seeds,
        report.simulated_seconds
    );
    if !report.held.is_empty() {
        held::print(&report.held);
    }
    if report.memory_node.is_some() || report.memory_redis.is_some() {
        memory::print(report.memory_node.as_ref(), report.memory_in_process.as_ref(), report.memory_redis.as_ref());
    }
    if !report.acquire.is_empty() {
        acquire::print(&report.acquire);
    }
    if !report.steady.is_empty() {
        steady::print(&report.steady);
    }
    if !report.fleet.is_empty() {
        fleet::print(&report.fleet);
    }
    println!();
    for verdict in &report.verdicts {
        verdict.print();
    }
}
