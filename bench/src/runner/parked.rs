//! Runs that wait, each for an hour, after the real engine has parked them: what they cost in memory, and that nobody
//! works on them. What has a bound (the newest commits, tables that are being filled, caches) is no cost of a run, and is
//! told apart by looking at several numbers of runs: what each costs is what memory grows by behind the last but one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::noop::UNDER_WAY;
use super::world::{Setup, World, runtime};
use crate::server::fresh;
use crate::{Result, process};

pub const RUNS: u64 = 200_000;
/// Parked runs at which memory is looked at; the last is [`RUNS`].
const LEVELS: [u64; 4] = [20_000, 50_000, 100_000, RUNS];

/// Memory at a number of parked runs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Level {
    pub runs: u64,
    pub resident_bytes: u64,
    /// Of these, what the scheduler says that it has allocated.
    pub scheduler_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub runs: u64,
    pub levels: Vec<Level>,
    /// Between the last two levels.
    pub resident_bytes_each: f64,
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
    let runtime = runtime()?;
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
        let (mut levels, mut there, mut parking) = (Vec::new(), 0, Duration::ZERO);
        for runs in LEVELS {
            let began = Instant::now();
            park(&world, runs - there, runs).await?;
            (there, parking) = (runs, parking + began.elapsed());
            // What is freed goes back a moment later.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let scheduler_bytes = world.queue.snapshot().memory_bytes as u64;
            levels.push(Level { runs, resident_bytes: resident()?, scheduler_bytes });
        }
        let parked_per_second = RUNS as f64 / parking.as_secs_f64();
        let [.., before, last] = levels.as_slice() else { return Err("there are levels".into()) };
        let each =
            |of: fn(&Level) -> u64| of(last).saturating_sub(of(before)) as f64 / (last.runs - before.runs) as f64;
        let (resident_bytes_each, scheduler_bytes_each) =
            (each(|level| level.resident_bytes), each(|level| level.scheduler_bytes));
        let cpu = process::usage(std::process::id())?.cpu_seconds;
        let at = Instant::now();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let idle_cpus = (process::usage(std::process::id())?.cpu_seconds - cpu) / at.elapsed().as_secs_f64();
        let snapshot = world.queue.snapshot();
        let row = Row {
            runs: RUNS,
            levels,
            resident_bytes_each,
            scheduler_bytes_each,
            parked_per_second,
            running: snapshot.counts.running,
            parked: snapshot.counts.parked,
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
        "\n{} parked runs: {:.0} bytes resident for each more, {:.0} of them the scheduler's; {:.0}/s parked; {} worked on, \
         {} parked; {:.3} CPUs while nothing is due",
        row.runs,
        row.resident_bytes_each,
        row.scheduler_bytes_each,
        row.parked_per_second,
        row.running,
        row.parked,
        row.idle_cpus
    );
    for level in &row.levels {
        println!("{:>10} runs {:>8.1} MiB resident", level.runs, level.resident_bytes as f64 / f64::from(1 << 20));
    }
}
