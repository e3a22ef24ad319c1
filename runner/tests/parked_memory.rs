//! What parked runs cost in memory: of the whole process, as the system counts it.

use std::sync::Arc;

use domain::{ManualClock, TenantId};
use tidegate_runner::ids::RunId;
use tidegate_runner::ledger::QueueClass;
use tidegate_runner::schedule::{Queue, Scheduler, Settings};

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    const PAGE: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system tells");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("the second field is a number");
    pages * PAGE
}

#[test]
fn a_parked_run_costs_less_than_a_kibibyte() {
    const RUNS: u64 = 100_000;
    let clock = ManualClock::at_unix_ms(1);
    let (_scheduler, handle) = Scheduler::new(Settings::default(), Arc::<ManualClock>::clone(&clock)).unwrap();
    let before = resident_bytes();
    for number in 0..RUNS {
        let tenant = TenantId::parse(&format!("tenant-{}", number % 500)).unwrap();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        handle.enqueue_at(tenant, RunId::from_bytes(id), QueueClass::ParkedRelease, 1_000_000 + number);
    }
    let grown = resident_bytes() - before;
    let snapshot = handle.snapshot();
    println!(
        "{RUNS} parked runs: {} bytes each resident, {} counted",
        grown / RUNS,
        snapshot.memory_bytes as u64 / RUNS
    );
    assert_eq!(snapshot.counts.parked, RUNS);
    assert!(grown <= 128 * RUNS, "{grown}");
}
