//! A ledger with a long history: what a step costs when ten thousand, a hundred thousand and a million runs are in it, or as
//! many as are asked for. History is written as the engine would write it, the same records and payloads in the same
//! commits, by many writers and without an engine; what is measured then is the engine's.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::SystemClock;
use runner::ids::{RunId, Version};
use runner::index::{IndexSettings, RunIndex};
use runner::ledger::embedded::EmbeddedLedger;
use runner::ledger::{Body, Commit, LedgerStore, Writer};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::noop::{self, INPUT_BYTES, UNDER_WAY};
use super::world::{World, runtime};
use crate::server::fresh;
use crate::{Result, process};

pub const LENGTHS: [u64; 3] = [10_000, 100_000, 1_000_000];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Runs in the ledger, all over.
    pub history_runs: u64,
    pub history_bytes: u64,
    pub steps_per_second: f64,
    pub cpu_us_per_step: f64,
    pub between_p50_ms: f64,
    pub between_p99_ms: f64,
    pub resident_bytes: u64,
    /// Runs that were written, and how quickly, to come here.
    pub filled_per_second: f64,
    /// Of the longest: until lists of all runs are made anew from the ledger, and records a second of it.
    pub index_seconds: Option<f64>,
    pub index_records_per_second: Option<f64>,
}

pub fn measure(scratch: &Path, seconds: u64, lengths: &[u64]) -> Result<Vec<Row>> {
    let directory = fresh(scratch, "runner-history")?;
    let runtime = runtime()?;
    let rows = runtime.block_on(async {
        let world = Arc::new(World::open(&directory, &noop::setup(false)).await?);
        let (mut rows, mut there) = (Vec::new(), 0);
        // What comes with the first load is no matter of history.
        noop::closed(&world, Duration::from_secs(1), Duration::from_secs(1)).await?;
        for length in lengths {
            let began = Instant::now();
            let filled = length.saturating_sub(there);
            fill(&world, there, *length).await?;
            there = *length;
            let filled_per_second = filled as f64 / began.elapsed().as_secs_f64();
            let row = noop::closed(&world, Duration::from_secs(2), Duration::from_secs(seconds)).await?;
            let stat = world.embedded.stat();
            rows.push(Row {
                history_runs: *length,
                history_bytes: stat.journal.bytes_used + stat.history.bytes_used + stat.index_bytes,
                steps_per_second: row.steps_per_second,
                cpu_us_per_step: row.cpu_us_per_step,
                between_p50_ms: row.overheads.between.p50,
                between_p99_ms: row.overheads.between.p99,
                resident_bytes: process::memory(std::process::id())?.resident_bytes,
                filled_per_second,
                index_seconds: None,
                index_records_per_second: None,
            });
        }
        if let Some(last) = rows.last_mut() {
            let (seconds, records) = index_anew(&directory, &world).await?;
            (last.index_seconds, last.index_records_per_second) = (Some(seconds), Some(records as f64 / seconds));
        }
        Arc::into_inner(world).ok_or("a run goes on after its load")?.close().await?;
        Ok::<_, crate::Error>(rows)
    })?;
    std::fs::remove_dir_all(directory)?;
    Ok(rows)
}

/// Makes lists of all runs from the ledger: how long that takes, and of how many records.
async fn index_anew(directory: &Path, world: &World) -> Result<(f64, u64)> {
    let ledger: Arc<dyn LedgerStore> = Arc::<EmbeddedLedger>::clone(&world.embedded);
    let began = Instant::now();
    let index =
        RunIndex::open(&directory.join("index"), IndexSettings::default(), ledger, SystemClock::shared()).await?;
    if index.caught_up(INDEX_PATIENCE).await.is_stale {
        return Err(format!("the index is not at the end: {:?}", index.stat().await?).into());
    }
    let seconds = began.elapsed().as_secs_f64();
    let records = index.stat().await?.records;
    index.close().await;
    Ok((seconds, records))
}

/// Longest that lists of all runs may take: ten million runs at 50,000 records a second.
const INDEX_PATIENCE: Duration = Duration::from_mins(30);

/// Writes runs until there are so many.
async fn fill(world: &Arc<World>, from: u64, to: u64) -> Result<()> {
    let template = Arc::new(commits_of_a_run(world).await?);
    let mut writing = JoinSet::new();
    for number in from..to {
        while writing.len() >= UNDER_WAY {
            writing.join_next().await.ok_or("nothing is written")???;
        }
        writing.spawn(write(Arc::clone(world), Arc::clone(&template), number));
    }
    while let Some(ended) = writing.join_next().await {
        ended??;
    }
    // Those who come after are not to pay for what waits.
    while world.embedded.stat().unindexed > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// What the engine has written of a run, commit by commit: a round ends with an intent, or with the run.
async fn commits_of_a_run(world: &World) -> Result<Vec<Vec<Body>>> {
    let (tenant, run) = world.begin(Instant::now(), INPUT_BYTES).await?;
    noop::drained(world).await?;
    let mut commits = vec![Vec::new()];
    for record in world.embedded.read(&tenant, run).await? {
        let ends = matches!(record.body, Body::Admitted(_) | Body::Intent(_));
        commits.last_mut().ok_or("there is one")?.push(record.body);
        if ends {
            commits.push(Vec::new());
        }
    }
    Ok(commits)
}

async fn write(world: Arc<World>, template: Arc<Vec<Vec<Body>>>, number: u64) -> Result<()> {
    let (tenant, automation) = &world.automations[number as usize % world.automations.len()];
    let run = RunId::of_request(tenant, *automation, Version::MIN, format!("history {number}").as_bytes());
    let mut expected = 0;
    for bodies in &*template {
        let commit = Commit {
            tenant: tenant.clone(),
            run,
            expected,
            writer: if expected == 0 { Writer::Anyone } else { Writer::Lease(1) },
            at_unix_ms: world.now_unix_ms(),
            bodies: bodies.clone(),
        };
        expected = world.embedded.append(commit).await?.seq;
    }
    Ok(())
}

pub(super) fn print(rows: &[Row]) {
    println!("\nsteps on a ledger with history");
    println!(
        "{:>10} {:>10} {:>9} {:>8} {:>18} {:>9} {:>12}",
        "runs", "GiB", "steps/s", "CPU µs", "between p50, p99", "RSS MiB", "filled at"
    );
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    for row in rows {
        println!(
            "{:>10} {:>10.2} {:>9.0} {:>8.1} {:>18} {:>9.0} {:>10.0}/s",
            row.history_runs,
            gib(row.history_bytes),
            row.steps_per_second,
            row.cpu_us_per_step,
            format!("{:.2}, {:.1}", row.between_p50_ms, row.between_p99_ms),
            gib(row.resident_bytes) * 1_024.0,
            row.filled_per_second
        );
    }
    for row in rows {
        if let (Some(seconds), Some(records)) = (row.index_seconds, row.index_records_per_second) {
            println!("lists of {} runs are made anew in {seconds:.1} s, {records:.0} records/s", row.history_runs);
        }
    }
}
