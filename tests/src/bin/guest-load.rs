//! The load in the guest: an appliance that is loaded, killed and started again, and between the writes of its disk,
//! again and again, a mark that says how many acknowledgements had come in by then.
//!
//! usage: `guest-load LOG_DIRECTORY direct|fdatasync kept|skipped ROUNDS SEED BOOK`

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tidegate_tests::guest::{ENDPOINTS, appliance};
use tidegate_tests::load::{Heard, Ledger};
use tidegate_tests::random::Random;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, log, sync, syncs, rounds, seed, book] = &arguments[..] else { panic!("not these: {arguments:?}") };
    let rounds: u64 = rounds.parse().expect("a number");
    let mut ledger = Ledger::seeded(seed.parse().expect("a number"));
    let mut random = Random::seeded(ledger.seed);
    let mut appliance = appliance(Path::new(log)).set("log", "sync", &format!("\"{sync}\""));
    if syncs == "skipped" {
        appliance = appliance.under(&["without-syncs"]);
    }
    let mut node = appliance.prepare();
    let senders = ENDPOINTS.map(|id| (id.to_owned(), node.sender(id)));
    for round in 1..=rounds {
        node.start().await;
        let load = ledger.load(&senders, 2);
        let end = Instant::now() + Duration::from_millis(random.within(1000, 4000));
        while Instant::now() < end {
            mark(&ledger.heard);
            tokio::time::sleep(Duration::from_millis(random.within(1, 20))).await;
        }
        // Its next life begins with what a crash left, or with what an orderly end left.
        if round % 3 == 0 {
            node.terminate().await;
        } else {
            node.kill9().await;
        }
        ledger.settle(load).await;
        mark(&ledger.heard);
        println!("round {round} of {rounds}: {} sent, {} acknowledged", ledger.attempts.len(), ledger.heard.count());
    }
    std::fs::write(book, tidegate_tests::book::write(&ledger)).expect("the book is written");
}

/// Everything that was heard before the mark has to be durable before the mark.
fn mark(heard: &Heard) {
    // One word: the kernel splits what it is told at spaces.
    let word = format!("heard={}", heard.count());
    let status = Command::new("dmsetup").args(["message", "trial", "0", "mark", &word]).status();
    assert!(status.expect("dmsetup runs").success(), "no mark: {word}");
}
