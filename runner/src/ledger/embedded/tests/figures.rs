//! What it costs, measured. For itself: `cargo test --release -p tidegate-runner -- --ignored --nocapture figures`.

use super::*;

const RUNS: u64 = 4_000;
const STEPS: u64 = 30;
const IN_FLIGHT: u64 = 1024;

fn attempt_of(run: RunId, expected: u64) -> Commit {
    let bodies = vec![outcome_of("create-invoice", 1, vec![b'x'; 900]), intent_of("notify-customer", vec![b'y'; 600])];
    commit("customer-4711", run, expected, Writer::Lease(1), bodies)
}

fn intent_of(name: &str, input: Vec<u8>) -> Body {
    let Body::Intent(mut intent) = intent(name, 1) else { unreachable!("it makes an intent") };
    intent.input = payload(input);
    Body::Intent(intent)
}

use crate::ledger::record::Body;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, for a release build on a machine that does nothing else"]
#[expect(clippy::disallowed_methods, clippy::cast_precision_loss, reason = "it measures, and prints seconds")]
async fn figures() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings::new(directory.path());
    let (ledger, _) = EmbeddedLedger::open(&settings, domain::SystemClock::shared()).unwrap();
    let ledger = Arc::new(ledger);
    let started = std::time::Instant::now();
    let next = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut writing = Vec::new();
    for _ in 0..IN_FLIGHT {
        let (ledger, next) = (Arc::clone(&ledger), Arc::clone(&next));
        writing.push(tokio::spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= RUNS {
                    return took;
                }
                let run = run(number);
                ledger.append(Commit { tenant: tenant("customer-4711"), ..admission(run) }).await.unwrap();
                let lease = vec![lease(1, "one", 1000)];
                ledger.append(commit("customer-4711", run, 1, Writer::Lease(1), lease)).await.unwrap();
                for step in 0..STEPS {
                    let started = std::time::Instant::now();
                    ledger.append(attempt_of(run, 2 + step * 2)).await.unwrap();
                    took.push(started.elapsed());
                }
                let end = vec![terminal(RunStatus::Succeeded)];
                ledger.append(commit("customer-4711", run, 2 + STEPS * 2, Writer::Lease(1), end)).await.unwrap();
            }
        }));
    }
    let mut took = Vec::new();
    for writing in writing {
        took.extend(writing.await.unwrap());
    }
    let seconds = started.elapsed().as_secs_f64();
    took.sort();
    let (commits, records) = (RUNS * (STEPS + 3), RUNS * (STEPS * 2 + 3));
    let at = |part: usize| took[took.len() * part / 1000].as_secs_f64() * 1e3;
    println!("{:.0} commits/s, {:.0} records/s", commits as f64 / seconds, records as f64 / seconds);
    println!("append p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms", at(500), at(990), at(999));
    let stat = ledger.stat();
    let per_step = stat.journal.record_bytes as f64 / (RUNS * STEPS) as f64;
    println!(
        "{per_step:.0} bytes a step of 1500 bytes of payload, {} batches, {} behind",
        stat.journal.batches, stat.unindexed
    );
    let started = std::time::Instant::now();
    for number in 0..1000 {
        let records = ledger.read(&tenant("customer-4711"), run(number)).await.unwrap();
        assert_eq!(records.len() as u64, STEPS * 2 + 3);
    }
    println!("a run of {} commits is read from the disk in {:.2} ms", STEPS + 3, started.elapsed().as_secs_f64());
    let started = std::time::Instant::now();
    for number in RUNS - 100..RUNS {
        ledger.read(&tenant("customer-4711"), run(number)).await.unwrap();
    }
    println!("and one that was just written in {:.2} ms", started.elapsed().as_secs_f64() * 10.0);
    drop(ledger);
    let started = std::time::Instant::now();
    let (ledger, opened) = EmbeddedLedger::open(&settings, domain::SystemClock::shared()).unwrap();
    println!("opened in {:.0} ms, {} commits read", started.elapsed().as_secs_f64() * 1e3, opened.read);
    drop(ledger);
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let started = std::time::Instant::now();
    let (_ledger, opened) = EmbeddedLedger::open(&settings, domain::SystemClock::shared()).unwrap();
    println!(
        "opened without its index in {:.0} ms, {} commits read",
        started.elapsed().as_secs_f64() * 1e3,
        opened.read
    );
}
