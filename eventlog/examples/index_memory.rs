//! What an open log costs in memory: `index_memory DIRECTORY write EVENTS TENANTS SEGMENT_KIB`, then
//! `index_memory DIRECTORY open`.
//!
//! Writes small events of so many tenants in turn, so that every segment has as many tenants as it can; then opens the
//! log in a fresh process and tells what that took.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement takes the real time and prints")]

use std::borrow::Cow;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use domain::{EndpointId, EventId, NodeId, Slot, SystemClock, TenantId};
use tidegate_eventlog::embedded::Settings;
use tidegate_eventlog::{Class, EmbeddedLog, EventLog, HeaderBlock, NewEvent};

const NODE: NodeId = NodeId(1);
/// Enough for large batches, and below what the queue holds.
const TOGETHER: u64 = 4096;

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn event(nth: u64, tenants: u64) -> Result<NewEvent, Box<dyn Error>> {
    let tenant = nth % tenants;
    let endpoint = EndpointId::parse(&format!("wh_{tenant:08}"))?;
    let received_unix_ms = 1_764_000_000_000 + nth;
    let mut random = [0; 6];
    random.copy_from_slice(&nth.to_be_bytes()[2..]);
    Ok(NewEvent {
        id: EventId::new(received_unix_ms, Slot::of(endpoint.as_str()), NODE, random),
        tenant: TenantId::parse(&format!("tenant-{tenant:08}"))?,
        endpoint,
        retention: Arc::from("default"),
        received_unix_ms,
        peer: ([203, 0, 113, 1], 443).into(),
        method: Cow::Borrowed("POST"),
        target: "/hooks/x".into(),
        headers: HeaderBlock::default(),
        body: vec![b'x'; 64].into(),
        scheme: Arc::from("github"),
        secret: Arc::from("primary"),
        delivery_id: None,
        class: Class::Normal,
        signed_at_unix_ms: None,
        public_url: "https://hooks.example.com".into(),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).ok_or("a number is missing").map(|text| text.parse::<u64>());
    let mut settings = Settings::new(&config::Log::default(), NODE);
    settings.directory = arguments.get(1).ok_or("which directory?")?.into();
    settings.reserve_bytes = 0;
    if arguments.get(2).is_some_and(|what| what == "write") {
        let (events, tenants) = (number(3)??, number(4)??);
        settings.segment_bytes = number(5)?? << 10;
        let (log, _) = EmbeddedLog::open(&settings, SystemClock::shared())?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        for from in (0..events).step_by(usize::try_from(TOGETHER)?) {
            let appends: Vec<_> = (from..events.min(from + TOGETHER))
                .map(|nth| event(nth, tenants).map(|event| log.append(event)))
                .collect::<Result<_, _>>()?;
            for append in appends {
                runtime.block_on(append)?;
            }
        }
        log.close()?;
        return Ok(());
    }
    let (before, started) = (resident_kib(), Instant::now());
    settings.segment_bytes = 1 << 20;
    let (log, _) = EmbeddedLog::open(&settings, SystemClock::shared())?;
    let (took, stat) = (started.elapsed(), log.stat());
    let lane = &stat.lanes[0];
    println!("{} events in {} segments, {} MiB on disk", lane.records, lane.segments, lane.disk_bytes >> 20);
    println!("opened in {took:?}; {before} KiB resident before, {} KiB after", resident_kib());
    Ok(())
}
