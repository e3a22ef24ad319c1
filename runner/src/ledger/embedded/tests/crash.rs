//! Processes and machines that end: what was acknowledged is there, and nothing is there in part.

use std::collections::HashMap;
use std::process::{Command, Stdio};

use eventlog::segment::storage::{Faults, FaultyStorage};

use super::*;

/// Appends until the power goes: acknowledged sequences by run.
async fn append_until_dark(ledger: &EmbeddedLedger, storage: &FaultyStorage, acknowledged: &mut HashMap<u64, u64>) {
    let mut number = 0;
    while !storage.is_out() {
        number = (number + 1) % 9;
        let seq = acknowledged.get(&number).copied().unwrap_or(0);
        let next = match seq {
            0 => admission(run(number)),
            seq => commit("acme", run(number), seq, Writer::Anyone, vec![late_outcome("a", 1); 3]),
        };
        match ledger.append(next).await {
            // What was not acknowledged may be there all the same.
            Ok(Committed { seq, .. }) | Err(AppendError::Conflict { seq }) => drop(acknowledged.insert(number, seq)),
            Err(AppendError::Unavailable(_) | AppendError::Full) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_lose_nothing_that_was_acknowledged() {
    for seed in 0..6_u64 {
        let memory = MemoryStorage::new();
        let mut rig = Rig::small(Arc::new(memory.clone()));
        let mut acknowledged = HashMap::new();
        for round in 0..8 {
            let cut = 5 + (seed * 31 + round * 17) % 60;
            let faults = Faults { power_cut_after: Some(cut), ..Faults::default() };
            let storage = FaultyStorage::new(memory.clone(), seed * 100 + round, faults);
            rig.settings.storage = Arc::new(storage.clone());
            if let Ok((ledger, opened)) = rig.try_open() {
                assert_eq!(opened.damage, [], "a power cut is no damage");
                append_until_dark(&ledger, &storage, &mut acknowledged).await;
            }
            memory.power_cut(seed ^ round);
            if round % 3 == 2 {
                rig.lose_index();
            }
            rig.settings.storage = Arc::new(memory.clone());
            let ledger = rig.ledger();
            for (number, seq) in &acknowledged {
                let there = read(&ledger, run(*number)).await;
                assert!(there.len() as u64 >= *seq, "seed {seed}, round {round}");
                assert_eq!(there.len() % 3, 1, "commits are whole");
                assert_dense(&there);
            }
            assert_dense(&all(&ledger).await);
        }
    }
}

const CHILD: &str = "ledger::embedded::tests::crash::a_child_that_appends";
const CHILD_DIRECTORY: &str = "TIDEGATE_TEST_LEDGER";

/// Not for itself: the other one starts it and kills it. It prints what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "how a test says to its own child where to work")]
async fn a_child_that_appends() {
    use std::io::Write;
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let settings = Settings { segment_bytes: 1 << 20, reserve_bytes: 0, ..Settings::new(directory) };
    let (ledger, _) = EmbeddedLedger::open(&settings, domain::SystemClock::shared()).unwrap();
    let ledger = Arc::new(ledger);
    let writing: Vec<_> = (0..16)
        .map(|of| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                for step in 0.. {
                    let run = run(of * 1_000_000 + step);
                    match ledger.append(admission(run)).await {
                        Ok(_) => {}
                        // A child before this one.
                        Err(AppendError::Conflict { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    }
                    ledger.append(whole_life(run)).await.unwrap();
                    let mut out = io::stdout().lock();
                    writeln!(out, "acknowledged {}", of * 1_000_000 + step).unwrap();
                }
            })
        })
        .collect();
    for writing in writing {
        writing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_loses_nothing_that_it_acknowledged() {
    use std::io::{BufRead, BufReader};
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { segment_bytes: 1 << 20, reserve_bytes: 0, ..Settings::new(directory.path()) };
    let mut acknowledged = Vec::new();
    for round in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([CHILD, "--exact", "--nocapture"])
            .env(CHILD_DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        for line in lines.map_while(Result::ok) {
            let Some((_, number)) = line.split_once("acknowledged ") else { continue };
            // The kill may cut the last one.
            acknowledged.extend(number.parse::<u64>().ok().filter(|_| heard < 300 * round));
            heard += 1;
            if heard == 300 * round {
                let locked = EmbeddedLedger::open(&settings, domain::SystemClock::shared());
                assert!(matches!(locked, Err(OpenError::Locked(_))), "the child has it");
                child.kill().unwrap();
            }
        }
        assert!(heard >= 300 * round, "{heard}");
        child.wait().unwrap();
        let (ledger, opened) = EmbeddedLedger::open(&settings, domain::SystemClock::shared()).unwrap();
        assert_eq!(opened.damage, []);
        for number in &acknowledged {
            assert_eq!(read(&ledger, run(*number)).await.len(), 5);
        }
        assert_dense(&all(&ledger).await);
        drop(ledger);
        assert!(verify(&settings.storage, directory.path(), &domain::SystemClock::shared()).unwrap().is_whole());
    }
}
