//! Runs that wait, each for an hour, after the real engine has parked them: what they cost in memory, and that nobody
//! works on them. Some are parked before anything is measured, so that what every runner has is there already.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::noop::UNDER_WAY;
use super::world::{Setup, World};
use crate::server::fresh;
use crate::{Result, process};

pub const RUNS: u64 = 100_000;
const BEFORE: u64 = 20_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub runs: u64,
    pub resident_bytes_each: f64,
    /// Of these, what scheduler says that it has allocated.
    pub scheduler_bytes_each: f64,
    pub parked_per_second: f64,
    /// Runs that somebody works on, when all are parked.
    pub running: u64,
    pub parked: u64,
    /// Processor time of a second in which nothing is due.
    pub idle_cpus: f64,
}

pub fn measure(scratch: &Path) -> Result<Row> {
    let directory = fresh(scratch, "runner-parked")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let document = "{\"name\":\"wait\",\"nodes\":[{\"id\":\"wait\",\"type\":\"delay\",\"for\":\"1h\"},\
                        {\"id\":\"say\",\"type\":\"transform\",\"value\":\"done\"}]}";
        let setup = Setup {
            under_way_max: UNDER_WAY,
            provider_takes: Duration::ZERO,
            answer_bytes: 0,
            has_index: false,
            has_log: false,
            documents: (0..100)
                .map(|n| document.replace("\"wait\",\"nodes", &format!("\"wait {n}\",\"nodes")))
                .collect(),
        };
        let world = Arc::new(World::open(&directory, &setup).await?);
        park(&world, BEFORE, BEFORE).await?;
        let (before, scheduler) = (resident()?, world.queue.snapshot().memory_bytes);
        let began = Instant::now();
        park(&world, RUNS, BEFORE + RUNS).await?;
        let parked_per_second = RUNS as f64 / began.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let grown = resident()?.saturating_sub(before);
        let cpu = process::usage(std::process::id())?.cpu_seconds;
        let at = Instant::now();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let idle_cpus = (process::usage(std::process::id())?.cpu_seconds - cpu) / at.elapsed().as_secs_f64();
        let snapshot = world.queue.snapshot();
        let row = Row {
            runs: RUNS,
            resident_bytes_each: grown as f64 / RUNS as f64,
            scheduler_bytes_each: snapshot.memory_bytes.saturating_sub(scheduler) as f64 / RUNS as f64,
            parked_per_second,
            running: snapshot.counts.running,
            parked: snapshot.counts.parked.saturating_sub(BEFORE),
            idle_cpus,
        };
        Arc::into_inner(world).ok_or("a run goes on after its load")?.close().await?;
        Ok(row)
    })
}

/// Begins so many, and waits until as many are parked in all.
async fn park(world: &Arc<World>, runs: u64, in_all: u64) -> Result<()> {
    let mut begun = tokio::task::JoinSet::new();
    for _ in 0..runs {
        if begun.len() >= UNDER_WAY {
            begun.join_next().await.ok_or("nothing was begun")???;
        }
        let world = Arc::clone(world);
        begun.spawn(async move { world.begin_unwatched(100).await });
    }
    while let Some(ended) = begun.join_next().await {
        ended??;
    }
    for _ in 0..12_000 {
        if world.queue.snapshot().counts.parked >= in_all {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(format!("after a minute not all runs are parked: {:?}", world.queue.snapshot().counts).into())
}

fn resident() -> Result<u64> {
    Ok(process::memory(std::process::id())?.resident_bytes)
}

pub(super) fn print(row: &Row) {
    println!(
        "\n{} parked runs: {:.0} bytes resident each, {:.0} of them the scheduler's; {:.0}/s parked; {} worked on, {} parked; \
         {:.3} CPUs while nothing is due",
        row.runs,
        row.resident_bytes_each,
        row.scheduler_bytes_each,
        row.parked_per_second,
        row.running,
        row.parked,
        row.idle_cpus
    );
}
