//! A neighbour: one tenant's hundred thousand events at once, and another one's single event each 100 ms, for as long as
//! the burst lasts. From an event's receipt to its run's first call, over the real log, admission, scheduler and ledger; with
//! a provider that answers at once, where processors are what there is too little of, and with one that takes 50 ms, where it
//! is slots.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use domain::{EndpointId, EventId, NodeId, Slot};
use eventlog::event::Class;
use eventlog::{EventLog, HeaderBlock, NewEvent};
use runner::ids::{RunId, Version};
use serde::{Deserialize, Serialize};

use super::marks::Times;
use super::world::{Setup, World, runtime, tenant, three_steps};
use crate::Result;
use crate::server::fresh;

pub const BURST: u64 = 100_000;
const EVERY: Duration = Duration::from_millis(100);
/// Longest time that a burst is looked at.
const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub provider_ms: u64,
    pub burst: u64,
    /// Until all of its runs were over.
    pub burst_seconds: f64,
    /// Runs of it that were not over when patience was; then it is not all of the burst's time that was measured.
    pub left: u64,
    /// From a single event's receipt to its first call, before there is a burst, and meanwhile.
    pub alone: Times,
    pub meanwhile: Times,
}

pub fn measure(scratch: &Path, burst: u64) -> Result<Vec<Row>> {
    [0, 50].into_iter().map(|provider_ms| row(scratch, burst, provider_ms)).collect()
}

fn row(scratch: &Path, burst: u64, provider_ms: u64) -> Result<Row> {
    let directory = fresh(scratch, "runner-neighbour")?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let endpoints = ["wh_hog", "wh_small"];
        let setup = Setup {
            under_way_max: 0,
            provider_takes: Duration::from_millis(provider_ms),
            answer_bytes: 200,
            has_index: true,
            has_log: true,
            documents: endpoints.map(|endpoint| three_steps(endpoint, "event.body", Some(endpoint))).into(),
        };
        let world = Arc::new(World::open(&directory, &setup).await?);
        let mut number = 0;
        for _ in 0..5 {
            single(&world, &mut number).await?;
            tokio::time::sleep(EVERY).await;
        }
        world.marks.begin();
        let mut ticks = tokio::time::interval(EVERY);
        for _ in 0..30 {
            ticks.tick().await;
            single(&world, &mut number).await?;
        }
        tokio::time::sleep(2 * EVERY).await;
        let alone = world.marks.end().first_call;

        let before = world.marks.ended.load(Ordering::Relaxed);
        world.marks.begin();
        let began = Instant::now();
        let bursting = tokio::task::spawn_blocking({
            let log = Arc::clone(world.log.as_ref().ok_or("there is no log")?);
            move || hundred_thousand(&*log, burst)
        });
        // The burst's own runs carry no marks: what is recorded is the other tenant's alone. Its few runs are counted too,
        // and what is left of the burst then is a few runs as well.
        let ended = || world.marks.ended.load(Ordering::Relaxed) - before;
        while ended() < burst && began.elapsed() < PATIENCE {
            ticks.tick().await;
            single(&world, &mut number).await?;
        }
        let left = burst.saturating_sub(ended());
        if left > 0 {
            let admission = world.admission.as_ref().map(runner::admission::Handle::status);
            eprintln!("the burst is not over: {:?}, {admission:?}", world.queue.snapshot());
        }
        let burst_seconds = began.elapsed().as_secs_f64();
        bursting.await??;
        let meanwhile = world.marks.end().first_call;
        if left == 0 {
            super::noop::drained(&world).await?;
        }
        Arc::into_inner(world).ok_or("a run goes on after its load")?.close().await?;
        Ok(Row { provider_ms, burst, burst_seconds, left, alone, meanwhile })
    })
}

/// One event of the small tenant; due when it is handed to the log.
async fn single(world: &World, number: &mut u64) -> Result<()> {
    *number += 1;
    let event = event(1, "wh_small", *number)?;
    let (tenant, automation) = &world.automations[1];
    world.marks.due(RunId::of_event(tenant, *automation, Version::MIN, event.id), Instant::now());
    world.log.as_ref().ok_or("there is no log")?.append(event).await?;
    Ok(())
}

/// As quickly as the log takes them.
fn hundred_thousand(log: &dyn EventLog, burst: u64) -> Result<()> {
    let mut waiting = std::collections::VecDeque::new();
    for number in 0..burst {
        if waiting.len() >= 1_024 {
            waiting.pop_front().map(eventlog::Append::wait).transpose()?;
        }
        waiting.push_back(log.append(event(0, "wh_hog", number)?));
    }
    for append in waiting {
        append.wait()?;
    }
    Ok(())
}

fn event(of: usize, endpoint: &str, number: u64) -> Result<NewEvent> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    let [_, _, random @ ..] = number.to_be_bytes();
    Ok(NewEvent {
        id: EventId::new(now, Slot::of(endpoint), NodeId(1), random),
        tenant: tenant(of)?,
        endpoint: EndpointId::parse(endpoint)?,
        retention: "default".into(),
        received_unix_ms: now,
        peer: ([127, 0, 0, 1], 443).into(),
        method: Cow::Borrowed("POST"),
        target: Bytes::from(format!("/hooks/{endpoint}")),
        headers: HeaderBlock::with_capacity(0).finish(),
        body: Bytes::from(format!("{{\"order\":{number},\"text\":\"{}\"}}", "e".repeat(200))),
        scheme: "github".into(),
        secret: "bench".into(),
        delivery_id: None,
        class: Class::Normal,
        signed_at_unix_ms: None,
        public_url: "http://127.0.0.1".into(),
    })
}

pub(super) fn print(rows: &[Row]) {
    println!("\none tenant's burst, and another one's single events each 100 ms: receipt to first call, ms");
    println!(
        "{:>8} {:>8} {:>8} {:>7} | {:>20} {:>28}",
        "provider", "burst", "took", "left", "alone p50, p99", "meanwhile p50, p99, max"
    );
    for row in rows {
        println!(
            "{:>5} ms {:>8} {:>6.1} s {:>7} | {:>20} {:>28}",
            row.provider_ms,
            row.burst,
            row.burst_seconds,
            row.left,
            format!("{:.1}, {:.1}", row.alone.p50, row.alone.p99),
            format!(
                "{:.1}, {:.1}, {:.1} ({})",
                row.meanwhile.p50, row.meanwhile.p99, row.meanwhile.max, row.meanwhile.count
            )
        );
    }
}
