//! Steps with a provider in this process that answers at once: three calls for each run, an intent and an outcome of each
//! durable, and the next call begun when both the outcome before and its own intent are. First as fast as it goes, a
//! closed loop of runs; then runs that are due at fixed moments, at half of that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::marks::Overheads;
use super::world::{Setup, World, runtime, three_steps};
use crate::server::fresh;
use crate::{Result, process};

/// Tenants whose runs take turns.
const TENANTS: usize = 10;
/// Runs under way of the closed loop: twice the slots.
pub(super) const UNDER_WAY: usize = 1_024;
pub(super) const STEPS: u64 = 3;
/// Bytes of text in each input, and of each answer.
pub(super) const INPUT_BYTES: usize = 200;
pub(super) const ANSWER_BYTES: usize = 200;
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub load: String,
    /// Rows of people's lists are made meanwhile.
    pub has_index: bool,
    pub seconds: f64,
    pub steps: u64,
    pub steps_per_second: f64,
    pub runs_per_second: f64,
    pub cpu_us_per_step: f64,
    pub cpus: f64,
    /// Of a run in milliseconds; see [`Overheads`].
    pub overheads: Overheads,
    pub records_per_batch: f64,
    /// Bytes of inputs and outputs of a step, and of the ledger for it: admission, lease and end are in it.
    pub payload_bytes_per_step: f64,
    pub ledger_bytes_per_step: f64,
    /// Runs that are not over when the time is up.
    pub under_way: usize,
    /// How far the index is behind the ledger then, and how long it takes until it has all that was durable.
    pub index_behind_ms: Option<f64>,
    pub index_catches_up_ms: Option<f64>,
}

pub(super) fn setup(has_index: bool) -> Setup {
    Setup {
        under_way_max: UNDER_WAY,
        provider_takes: Duration::ZERO,
        answer_bytes: ANSWER_BYTES,
        has_index,
        has_log: false,
        documents: (0..TENANTS).map(|n| three_steps(&format!("order {n}"), "input", None)).collect(),
    }
}

/// Both loads.
pub fn measure(scratch: &Path, seconds: u64, has_index: bool) -> Result<Vec<Row>> {
    let directory = fresh(scratch, "runner-noop")?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let world = Arc::new(World::open(&directory, &setup(has_index)).await?);
        let measured = Duration::from_secs(seconds);
        let peak = closed(&world, WARM_UP, measured).await?;
        let half = open(&world, peak.runs_per_second / 2.0, WARM_UP, measured).await?;
        let mut rows = vec![peak, half];
        for (row, load) in rows.iter_mut().zip(["full", "half"]) {
            (row.load, row.has_index) = (load.into(), has_index);
        }
        Arc::into_inner(world).ok_or("a run goes on after its load")?.close().await?;
        Ok(rows)
    })
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    cpu: f64,
    outcomes: u64,
    runs: u64,
    payload_bytes: u64,
    record_bytes: u64,
    records: u64,
    batches: u64,
}

impl Seen {
    fn now(world: &World) -> Result<Self> {
        let (marks, journal) = (&world.marks, world.embedded.stat().journal);
        Ok(Self {
            at: Instant::now(),
            cpu: process::usage(std::process::id())?.cpu_seconds,
            outcomes: marks.outcomes.load(Ordering::Relaxed),
            runs: marks.ended.load(Ordering::Relaxed),
            payload_bytes: marks.payload_bytes.load(Ordering::Relaxed),
            record_bytes: journal.record_bytes,
            records: journal.records,
            batches: journal.batches,
        })
    }

    fn row(self, world: &World) -> Result<Row> {
        let overheads = world.marks.end();
        let now = Self::now(world)?;
        let seconds = (now.at - self.at).as_secs_f64();
        let steps = now.outcomes - self.outcomes;
        if steps == 0 {
            return Err("no step was done".into());
        }
        let each = |bytes: u64| bytes as f64 / steps as f64;
        Ok(Row {
            load: String::new(),
            has_index: false,
            seconds,
            steps,
            steps_per_second: steps as f64 / seconds,
            runs_per_second: (now.runs - self.runs) as f64 / seconds,
            cpu_us_per_step: (now.cpu - self.cpu) * 1e6 / steps as f64,
            cpus: (now.cpu - self.cpu) / seconds,
            overheads,
            records_per_batch: (now.records - self.records) as f64 / (now.batches - self.batches).max(1) as f64,
            payload_bytes_per_step: each(now.payload_bytes - self.payload_bytes),
            ledger_bytes_per_step: each(now.record_bytes - self.record_bytes),
            under_way: world.marks.under_way(),
            index_behind_ms: None,
            index_catches_up_ms: None,
        })
    }
}

/// How far the index is behind, in milliseconds: by the newest record that is in it, and until all is in that is durable now.
/// The load goes on for a moment more, or is over; what comes after is not waited for.
async fn behind(world: &World) -> Result<(Option<f64>, Option<f64>)> {
    let Some(index) = &world.index else { return Ok((None, None)) };
    let newest = index.stat().await?.newest_unix_ms;
    let lag = world.now_unix_ms().saturating_sub(newest) as f64;
    let asked = Instant::now();
    if index.caught_up(Duration::from_mins(1)).await.is_stale {
        return Err(format!("the index is more than a minute behind: {:?}", index.stat().await?).into());
    }
    Ok((Some(lag), Some(asked.elapsed().as_secs_f64() * 1e3)))
}

/// As many runs under way as there is room for.
pub(super) async fn closed(world: &Arc<World>, warm_up: Duration, measured: Duration) -> Result<Row> {
    let feeding = tokio::spawn({
        let world = Arc::clone(world);
        let until = Instant::now() + warm_up + measured;
        async move {
            while Instant::now() < until {
                world.marks.room.acquire().await?.forget();
                begin(&world, Instant::now());
            }
            Ok::<_, tokio::sync::AcquireError>(())
        }
    });
    tokio::time::sleep(warm_up).await;
    let before = Seen::now(world)?;
    world.marks.begin();
    tokio::time::sleep(measured).await;
    let mut row = before.row(world)?;
    (row.index_behind_ms, row.index_catches_up_ms) = behind(world).await?;
    feeding.await??;
    drained(world).await?;
    Ok(row)
}

/// Runs that are due at fixed moments.
async fn open(world: &Arc<World>, per_second: f64, warm_up: Duration, measured: Duration) -> Result<Row> {
    let began = Instant::now();
    let feeding = tokio::spawn({
        let world = Arc::clone(world);
        async move {
            let mut begun = 0_u64;
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            while began.elapsed() < warm_up + measured {
                ticks.tick().await;
                while (begun as f64) / per_second <= began.elapsed().as_secs_f64() {
                    begin(&world, began + Duration::from_secs_f64(begun as f64 / per_second));
                    begun += 1;
                }
            }
        }
    });
    tokio::time::sleep(warm_up).await;
    let before = Seen::now(world)?;
    world.marks.begin();
    tokio::time::sleep(measured).await;
    let mut row = before.row(world)?;
    (row.index_behind_ms, row.index_catches_up_ms) = behind(world).await?;
    feeding.await?;
    drained(world).await?;
    Ok(row)
}

fn begin(world: &Arc<World>, due: Instant) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        if let Err(error) = world.begin(due, INPUT_BYTES).await {
            eprintln!("a run is not admitted, which spoils what is measured: {error}");
        }
    });
}

/// Waits until every run is over.
pub(super) async fn drained(world: &World) -> Result<()> {
    for _ in 0..12_000 {
        if world.marks.under_way() == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(format!("{} runs are not over after a minute", world.marks.under_way()).into())
}

pub(super) fn print(rows: &[Row]) {
    println!("\nsteps with a provider that answers at once, {STEPS} of each run, two durable records of each");
    println!(
        "{:<6} {:>5} {:>9} {:>8} {:>8} {:>5} | {:>15} {:>15} {:>15} {:>15} | {:>8} {:>8} {:>7} {:>9} {:>16}",
        "load",
        "index",
        "steps/s",
        "runs/s",
        "CPU µs",
        "CPUs",
        "first call",
        "between",
        "end",
        "run",
        "payload",
        "ledger",
        "batch",
        "under way",
        "index behind ms"
    );
    for row in rows {
        let of = |times: super::marks::Times| format!("{:.2}, {:.1}", times.p50, times.p99);
        let seen = &row.overheads;
        println!(
            "{:<6} {:>5} {:>9.0} {:>8.0} {:>8.1} {:>5.2} | {:>15} {:>15} {:>15} {:>15} | {:>8.0} {:>8.0} {:>7.1} {:>9} {:>16}",
            row.load,
            if row.has_index { "yes" } else { "no" },
            row.steps_per_second,
            row.runs_per_second,
            row.cpu_us_per_step,
            row.cpus,
            of(seen.first_call),
            of(seen.between),
            of(seen.end),
            of(seen.run),
            row.payload_bytes_per_step,
            row.ledger_bytes_per_step,
            row.records_per_batch,
            row.under_way,
            match (row.index_behind_ms, row.index_catches_up_ms) {
                (Some(behind), Some(takes)) => format!("{behind:.0}, {takes:.0}"),
                _ => String::new(),
            }
        );
    }
}
