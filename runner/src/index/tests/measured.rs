//! What it costs. Not run by itself; `cargo test --profile fast -p tidegate-runner -- --ignored measured --nocapture`.

use std::time::Instant;

use domain::{EndpointId, EventId, NodeId, Slot, SystemClock, TenantId};
use tokio::sync::watch;

use super::*;
use crate::ids::{AutomationId, Version};
use crate::ledger::conformance::made;
use crate::ledger::{
    Admitted, AppendError, Body, BoxFuture, Claimable, Commit, Committed, Intent, LedgerStore, Outcome, ParkReason,
    Parked, QueueClass, ReadError, StepResult, Tail, Terminal,
};

const DAY_MS: u64 = 86_400_000;
const TENANTS: u64 = 50;
/// Runs that are under way at a time: their records come in turn.
const AT_ONCE: u64 = 1_000;
/// Records of a run.
const STEPS: u64 = 7;

/// Records of as many runs as are asked for, made when they are read.
#[derive(Debug)]
struct Made {
    runs: u64,
    days: u64,
    changes: watch::Sender<u64>,
}

impl Made {
    fn record(&self, nth: u64) -> Record {
        let (lot, within) = (nth / (AT_ONCE * STEPS), nth % (AT_ONCE * STEPS));
        let (step, number) = (within / AT_ONCE, lot * AT_ONCE + within % AT_ONCE);
        let run = run_of(number);
        let at_unix_ms = BEGIN_UNIX_MS + number * (self.days * DAY_MS) / self.runs + step * 20;
        // Every second run is of the first tenant, the others of all.
        let tenant = if number.is_multiple_of(2) { 0 } else { number / 2 % TENANTS };
        let tenant = TenantId::parse(&format!("tenant-{tenant}")).unwrap();
        Record { run, tenant, seq: step + 1, lease: 1, at_unix_ms, body: body(number, step, at_unix_ms) }
    }
}

fn body(number: u64, step: u64, now: u64) -> Body {
    let endpoint = EndpointId::parse("wh_9f2c1b7a9f2c1b7a9f2c").unwrap();
    match step {
        0 => {
            let event = EventId::new(now, Slot::of("wh_1"), NodeId(7), number.to_be_bytes()[2..].try_into().unwrap());
            Body::Admitted(Admitted {
                automation: AutomationId::from_bytes([u8::try_from(number % 20).unwrap(); 16]),
                version: Version::MIN,
                cause: Cause::Event { event, endpoint },
                class: QueueClass::Interactive,
                deadline_unix_ms: now + DAY_MS,
                input: None,
            })
        }
        1 => made::lease(1, "one", 30_000),
        2 | 4 => {
            let Body::Intent(intent) = made::intent("charge", 1) else { unreachable!() };
            Body::Intent(Intent { input: made::payload(vec![b'x'; 600]), ..intent })
        }
        3 | 5 => {
            let Body::Outcome(outcome) = made::outcome("charge", 1) else { unreachable!() };
            let result = StepResult::Done { output: made::payload(vec![b'y'; 900]) };
            Body::Outcome(Outcome { result, ..outcome })
        }
        // One of a hundred waits, three fail.
        _ if number % 100 == 50 => {
            Body::Parked(Parked { reason: ParkReason::Quota, step: None, until_unix_ms: Some(now + 1_000) })
        }
        _ if number % 100 < 3 => Body::Terminal(Terminal {
            status: RunStatus::Failed,
            failed_at: Some(made::step("charge")),
            class: Some(FailureClass::InvalidRequest),
        }),
        _ => made::terminal(RunStatus::Succeeded),
    }
}

/// Spread as hashes are, and found again.
fn run_of(number: u64) -> RunId {
    let mut bytes = *made::run(number).as_bytes();
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    RunId::from_bytes(bytes)
}

impl LedgerStore for Made {
    fn append(&self, _: Commit) -> BoxFuture<'static, Result<Committed, AppendError>> {
        Box::pin(std::future::ready(Err(AppendError::Closed)))
    }

    fn read(&self, _: &TenantId, run: RunId) -> BoxFuture<'static, Result<Vec<Record>, ReadError>> {
        let number = u64::from_be_bytes(run.as_bytes()[8..].try_into().unwrap());
        let first = number / AT_ONCE * AT_ONCE * STEPS + number % AT_ONCE;
        let records = (0..STEPS).map(|step| self.record(first + step * AT_ONCE)).collect();
        Box::pin(std::future::ready(Ok(records)))
    }

    fn tail(&self, from: TailPosition, max: usize) -> BoxFuture<'static, Result<Tail, ReadError>> {
        let from = from.0.as_ref().try_into().map_or(0, u64::from_be_bytes);
        let to = (self.runs * STEPS).min(from + max as u64);
        let records = (from..to).map(|nth| self.record(nth)).collect();
        let next = TailPosition(to.to_be_bytes().into());
        Box::pin(std::future::ready(Ok(Tail { records, next })))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn renew(&self, _: RunId, _: u64, _: u64) -> BoxFuture<'static, Result<(), AppendError>> {
        Box::pin(std::future::ready(Err(AppendError::Closed)))
    }

    fn claimable(&self, _: u64, _: usize) -> BoxFuture<'static, Result<Vec<Claimable>, ReadError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

fn resident_mib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() / 256
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

fn rate(count: u64, since: Instant) -> u64 {
    count * 1_000 / u64::try_from(since.elapsed().as_millis()).unwrap().max(1)
}

async fn measure(runs: u64) {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Made { runs, days: 90, changes: watch::Sender::new(0) });
    let made_alone = {
        let began = now();
        let mut from = TailPosition::start();
        for _ in 0..50 {
            from = ledger.tail(from, 4_096).await.unwrap().next;
        }
        began.elapsed() / 50
    };
    println!("{runs} runs of {STEPS} records; a batch of 4,096 takes {made_alone:?} to make, which is in all figures");
    let before = resident_mib();
    let settings = IndexSettings::default();
    let index = RunIndex::open(directory.path(), settings.clone(), Arc::clone(&ledger) as _, SystemClock::shared())
        .await
        .unwrap();
    let (began, mut last, mut peak) = (now(), (now(), 0), 0);
    loop {
        let freshness = index.caught_up(Duration::from_secs(10)).await;
        let stat = index.stat().await.unwrap();
        let per_second = rate(stat.records - last.1, last.0);
        last = (now(), stat.records);
        peak = peak.max(resident_mib());
        println!(
            "{:>10} records, {per_second:>8}/s, {:>6} MiB on disk, {:>4} MiB in memory, {} periods",
            stat.records,
            stat.disk_bytes >> 20,
            resident_mib() - before,
            stat.periods
        );
        if !freshness.is_stale {
            break;
        }
    }
    let stat = index.stat().await.unwrap();
    println!("in all {} records/s, {} B of disk a run", rate(stat.records, began), stat.disk_bytes / runs);
    println!("memory: {} MiB more at most", peak.saturating_sub(before));
    ask(&index, runs).await;
    index.close().await;
    drop(index);
    let began = now();
    let index = RunIndex::open(directory.path(), settings, ledger, SystemClock::shared()).await.unwrap();
    println!("opened again in {:?}", began.elapsed());
    ask(&index, runs).await;
}

async fn ask(index: &RunIndex, runs: u64) {
    let tenant = TenantId::parse("tenant-0").unwrap();
    let none = RunFilter::default();
    let failed = RunFilter { statuses: RunFilter::FAILED.to_vec(), ..none.clone() };
    let automation = RunFilter { automation: Some(AutomationId::from_bytes([2; 16])), ..failed.clone() };
    let old = RunFilter { before_unix_ms: Some(BEGIN_UNIX_MS + DAY_MS), ..none.clone() };
    for (name, filter) in [("all", none), ("failed", failed), ("failed of one automation", automation), ("oldest", old)]
    {
        let mut times = Vec::new();
        for _ in 0..20 {
            let began = now();
            let page = index.list(&tenant, &filter, None, 50).await.unwrap();
            assert_eq!(page.runs.len(), 50, "{name}");
            times.push(began.elapsed());
        }
        println!("first page of 50, {name}: first {:?}, then {:?}", times[0], times[10]);
    }
    let began = now();
    for number in 0..1_000 {
        let number = number * runs / 1_000 / 2 * 2;
        assert!(index.get(&tenant, run_of(number)).await.unwrap().is_some());
    }
    println!("one run by its id: {:?}", began.elapsed() / 1_000);
    let began = now();
    for number in 0..1_000 {
        assert!(index.get(&tenant, run_of(runs + number)).await.unwrap().is_none());
    }
    println!("one that is not there: {:?}", began.elapsed() / 1_000);
    let began = now();
    let inbox = index.repair_inbox(&tenant).await.unwrap();
    println!("the inbox, {} runs: {:?}", inbox.groups.iter().map(|group| group.count).sum::<u64>(), began.elapsed());
    let began = now();
    let (mut count, mut after) = (0, None);
    loop {
        let (open, next) = index.open_runs(after, 1_000).await.unwrap();
        count += open.len();
        if next.is_none() {
            break;
        }
        after = next;
    }
    println!("all open runs, {count}: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute and a release build"]
async fn a_million_runs() {
    measure(1_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes several minutes and a release build"]
async fn ten_million_runs() {
    measure(10_000_000).await;
}
