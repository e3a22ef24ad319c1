//! One run in a guest whose disk logs every write, then power cuts at any number of moments of it: the disk as it was
//! before, the first so-and-so many writes, and, at some, pieces of what was under way.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use tidegate_tests::disk::{Disk, LoopDisk};
use tidegate_tests::guest::{ENDPOINTS, LOG_DIRECTORY, Record, Trial, appliance, kernel, run_trial};
use tidegate_tests::judge::{assert_lawful, lost};
use tidegate_tests::load::Ledger;
use tidegate_tests::patience::how_many;
use tidegate_tests::random::Random;
use tidegate_tests::write_log::Replay;

/// A moment at which the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cut {
    /// So many entries of the log are durable.
    entries: usize,
    /// Pieces of what was under way are there too.
    torn: bool,
    /// So many acknowledgements had come in.
    heard: usize,
}

/// Half of them right behind marks, where the least is durable for what was acknowledged, half of them anywhere, and a
/// third of both with the device's cache torn. In the order of the log, and none twice.
fn cuts(record: &Record, count: usize, random: &mut Random) -> BTreeSet<Cut> {
    let marks = record.writes.marks("heard");
    let entries = record.writes.entries.len();
    assert!(
        marks.len() + entries > 2 * count,
        "{} marks in {entries} entries are too few for {count} cuts",
        marks.len()
    );
    let (first, _) = marks[0];
    let mut cuts = BTreeSet::new();
    while cuts.len() < count {
        let entries = if random.within(0, 2) == 0 {
            marks[random.below(marks.len())].0
        } else {
            first + random.below(entries - first)
        };
        let before = marks.partition_point(|(at, _)| *at <= entries);
        cuts.insert(Cut { entries, torn: random.within(0, 3) == 0, heard: marks[before - 1].1 });
    }
    cuts
}

/// The disk as a cut leaves it, mounted. Cuts are made in the order of the log.
fn left(record: &Record, replay: &mut Replay<'_>, cut: Cut, random: &mut Random) -> LoopDisk {
    replay.advance(cut.entries).expect("a replay");
    let copy = record.directory.path().join("copy");
    // A file that is written over would be flushed by the file system that it lies in.
    if copy.exists() {
        std::fs::remove_file(&copy).expect("the copy before");
    }
    let status = Command::new("cp").arg("--sparse=always").args([&record.disk(), &copy]).status();
    assert!(status.expect("cp runs").success(), "no copy of the disk");
    if cut.torn {
        replay.tear(&copy, random).expect("a tear");
    }
    LoopDisk::holding(&copy).unwrap_or_else(|why| panic!("{cut:?}: {why}"))
}

/// Runs a guest and says what it did; nothing where no guest can be run.
fn recorded(sync: &str, syncs: &str, rounds: usize, random: &mut Random) -> Option<Record> {
    let kernel = kernel()?;
    let programs = [env!("CARGO_BIN_EXE_guest-load"), env!("CARGO_BIN_EXE_without-syncs")].map(Path::new);
    let record = run_trial(&kernel, &programs, Trial { sync, syncs, rounds, seed: random.draw() });
    let record = record.unwrap_or_else(|why| panic!("{why}"));
    let entries = &record.writes.entries;
    println!(
        "{sync}, syncs {syncs}: {} sent, {} acknowledged, {} marks, {} writes with FUA, {} flushes, {} entries",
        record.book.sent(),
        record.book.heard(),
        record.writes.marks("heard").len(),
        entries.iter().filter(|entry| entry.fua && !entry.flush).count(),
        entries.iter().filter(|entry| entry.flush).count(),
        entries.len(),
    );
    let (_, last) = *record.writes.marks("heard").last().expect("there were marks");
    assert_eq!(last, record.book.heard(), "the log of writes was not kept to the end");
    assert!(last > rounds * 20, "there was no load to speak of");
    Some(record)
}

/// A node on what a cut left: it comes up, has everything that was acknowledged, and calls its log whole.
async fn spared(cut: Cut, ledger: &Ledger, log: &Path) -> usize {
    println!("{cut:?}");
    let mut node = appliance(log).start().await;
    let senders = ENDPOINTS.map(|id| (id.to_owned(), node.sender(id)));
    let events = node.export();
    assert_lawful(ledger, &senders, &events);
    node.terminate().await;
    let verify = node.cli(&["log", "verify"]);
    assert_eq!(verify.status.code(), Some(0), "{cut:?}: {}", String::from_utf8_lossy(&verify.stdout));
    events.len()
}

async fn all_spared(sync: &str, rounds: usize, count: usize) {
    let mut random = Random::announced(&format!("power cuts of a guest, {sync}"));
    let Some(record) = recorded(sync, "kept", rounds, &mut random) else { return };
    let mut replay = Replay::of(&record.writes, &record.disk()).expect("the disk as it was");
    let mut judged = 0;
    for cut in cuts(&record, count, &mut random) {
        let disk = left(&record, &mut replay, cut, &mut random);
        judged += spared(cut, &record.book.as_of(cut.heard), &disk.path().join(LOG_DIRECTORY)).await;
    }
    println!("{sync}: {count} cuts, {judged} events judged, none lost");
    assert!(judged > count * 20, "the cuts left hardly anything to judge");
}

/// `TIDEGATE_GUEST_CUTS` says how many; `make torture` says more.
#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_of_a_guest_lose_nothing_that_was_written_directly() {
    let cuts = how_many("TIDEGATE_GUEST_CUTS", 20);
    all_spared("direct", 5 + cuts / 25, cuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_of_a_guest_lose_nothing_that_was_synced() {
    let cuts = how_many("TIDEGATE_GUEST_CUTS", 20).div_ceil(5);
    all_spared("fdatasync", 5 + cuts / 25, cuts).await;
}

/// The control: the same binary, with every sync left out behind its back.
#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_of_a_guest_convict_an_appliance_whose_syncs_are_skipped() {
    for sync in ["direct", "fdatasync"] {
        let mut random = Random::announced(&format!("power cuts of a guest, {sync}, syncs skipped"));
        let Some(record) = recorded(sync, "skipped", 2, &mut random) else { return };
        let mut replay = Replay::of(&record.writes, &record.disk()).expect("the disk as it was");
        let cuts: Vec<Cut> = cuts(&record, 20, &mut random).into_iter().filter(|cut| cut.heard > 0).collect();
        let mut convicted = 0;
        for cut in &cuts {
            let disk = left(&record, &mut replay, *cut, &mut random);
            let node = appliance(&disk.path().join(LOG_DIRECTORY)).prepare();
            let lost = lost(&record.book.as_of(cut.heard), &node);
            println!("{cut:?}: {lost} acknowledged events lost");
            convicted += usize::from(lost > 0);
        }
        println!("{sync}, syncs skipped: {convicted} of {} cuts took acknowledged events", cuts.len());
        // A commit of the file system's journal makes durable what lies before it, so not every cut takes something.
        assert!(convicted * 4 > cuts.len(), "{sync}: the cuts spared an appliance that never syncs");
    }
}
