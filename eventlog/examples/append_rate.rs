//! How many records a second a journal takes, and what they cost:
//! `append_rate DIRECTORY [WAITING] [SECONDS] [BYTES] [direct|fdatasync]`.
//!
//! Closed loop: so many tasks append, each waits for its record to be durable and appends the next one.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement takes the real time and prints")]

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::SystemClock;
use tidegate_eventlog::segment::{Entry, Journal, Options, Payload, SyncMode};

/// Nanoseconds on a CPU, by thread name.
fn cpu() -> Vec<(String, u64)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?.trim().to_owned();
            let spent = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((name, spent.split(' ').next()?.parse().ok()?))
        })
        .collect()
}

fn spent(threads: &[(String, u64)], name: &str) -> u64 {
    threads.iter().filter(|(thread, _)| thread == name).map(|(_, spent)| spent).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let directory = arguments.get(1).ok_or("which directory?")?;
    let (waiting, seconds, bytes) = (number(2, 512)?, number(3, 3)?, number(4, 1500)?);
    let mut options = Options::new(directory, SystemClock::shared());
    options.sync = match arguments.get(5).map(String::as_str) {
        Some("direct") => SyncMode::Direct,
        Some("fdatasync") => SyncMode::Fdatasync,
        _ => SyncMode::Auto,
    };
    let (journal, _) = Journal::open(options)?;
    let journal = Arc::new(journal);
    let body = Bytes::from(vec![b'x'; usize::try_from(bytes)?.saturating_sub(100)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("appender").build()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (before, started) = (cpu(), Instant::now());
    let tasks: Vec<_> = (1..=waiting)
        .map(|stream| {
            let (journal, body, stop) = (Arc::clone(&journal), body.clone(), Arc::clone(&stop));
            runtime.spawn(async move {
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let payload = Payload { head: vec![0; 100], middle: Bytes::new(), tail: body.clone() };
                    let at = Instant::now();
                    let appended =
                        journal.append(Entry { stream, time_unix_ms: 1, kind: 1, payload, check: None }).await;
                    if appended.is_ok() {
                        latencies.push(at.elapsed());
                    }
                }
                latencies
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(seconds));
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.append(&mut runtime.block_on(task)?);
    }
    let (elapsed, after) = (started.elapsed(), cpu());
    latencies.sort_unstable();
    let records = latencies.len() as u64;
    let at =
        |part: u64| latencies.get(usize::try_from(records * part / 1000).unwrap_or(0)).copied().unwrap_or_default();
    let per = |name: &str| (spent(&after, name) - spent(&before, name)) / records.max(1);
    let stat = journal.stat();
    println!(
        "{:?} {waiting} waiting, {bytes} B: {} records/s, p50 {:?} p99 {:?} p99.9 {:?} max {:?}, {} records a batch",
        stat.sync,
        u128::from(records) * 1000 / elapsed.as_millis(),
        at(500),
        at(990),
        at(999),
        latencies.last().copied().unwrap_or_default(),
        records / stat.batches.max(1),
    );
    println!(
        "CPU a record: appenders {} ns, writer {} ns, helper {} ns",
        per("appender"),
        per("log-writer"),
        per("log-helper")
    );
    Ok(())
}
