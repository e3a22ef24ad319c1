//! What is over age goes, what may be needed stays, and a crash in between changes neither.

use std::collections::BTreeMap;

use eventlog::segment::storage::{Faults, FaultyStorage};

use super::*;
use crate::ledger::payloads::{Fetched, PayloadDirectory};
use crate::ledger::record::{Kept, Payload};

const DAY: Duration = Duration::from_hours(24);

fn payloads(rig: &Rig) -> PayloadDirectory {
    PayloadDirectory::open(rig.directory.path().join("payloads"), Arc::<ManualClock>::clone(&rig.clock)).unwrap()
}

fn retain(ledger: &EmbeddedLedger, payloads: &PayloadDirectory) -> Retained {
    tokio::task::block_in_place(|| ledger.retain(&Ages::default(), payloads)).unwrap()
}

fn payload_of(record: &Record) -> Option<Payload> {
    crate::ledger::embedded::retention::payload_of(&mut record.clone()).map(|payload| payload.clone())
}

/// The records without what retention may take.
fn bare(mut records: Vec<Record>) -> Vec<Record> {
    for payload in records.iter_mut().filter_map(crate::ledger::embedded::retention::payload_of) {
        payload.kept = Kept::Expired;
    }
    records
}

fn is_stripped(records: &[Record]) -> bool {
    records.iter().filter_map(payload_of).all(|payload| payload.kept == Kept::Expired)
}

async fn bare_runs(ledger: &EmbeddedLedger, runs: u64) -> BTreeMap<u64, Vec<Record>> {
    let mut all = BTreeMap::new();
    for number in 0..runs {
        all.insert(number, bare(read(ledger, run(number)).await));
    }
    all
}

/// What every engine with tiers keeps to.
struct Old {
    rig: Rig,
    _memory: MemoryStorage,
    ledger: Option<Arc<EmbeddedLedger>>,
    payloads: PayloadDirectory,
}

impl Old {
    fn new() -> Self {
        let (mut rig, memory) = small();
        // What is in memory of runs that were written a moment ago goes when others come, and none do here.
        rig.settings.recent_runs_max = 0;
        let payloads = payloads(&rig);
        Self { rig, _memory: memory, ledger: None, payloads }
    }
}

#[async_trait::async_trait]
impl crate::ledger::conformance::Retaining for Old {
    async fn open(&mut self) -> Arc<dyn LedgerStore> {
        let ledger = Arc::new(self.rig.ledger());
        self.ledger = Some(Arc::clone(&ledger));
        ledger
    }

    fn payloads(&self) -> Arc<dyn crate::ledger::payloads::PayloadStore> {
        Arc::new(self.payloads.clone())
    }

    async fn grow_old(&mut self, by: Duration) {
        self.rig.clock.advance(by);
    }

    /// The last segment is asked to be left by one pass, and goes with a later one.
    async fn retain(&mut self) {
        let ledger = self.ledger.as_ref().unwrap();
        let mut idle = 0;
        while idle < 20 {
            let retained = retain(ledger, &self.payloads);
            idle = if retained == Retained::default() { idle + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

mod rules {
    use super::Old;

    crate::retention_conformance! { Old::new() }
}

fn open_step(run: RunId) -> Commit {
    let bodies = vec![lease(1, "one", 1000), intent("a", 1), outcome_of("a", 1, vec![7; 3000]), parked(None, None)];
    commit("acme", run, 1, Writer::Lease(1), bodies)
}

/// Sixty runs, of which each tenth stays open; more than one segment.
async fn fill(ledger: &EmbeddedLedger, from: u64) {
    fill_with(ledger, from..from + 60).await;
}

async fn fill_with(ledger: &EmbeddedLedger, numbers: std::ops::Range<u64>) {
    for number in numbers {
        ledger.append(admission(run(number))).await.unwrap();
        let next = if number.is_multiple_of(10) { open_step(run(number)) } else { whole_life(run(number)) };
        ledger.append(next).await.unwrap();
    }
}

fn small() -> (Rig, MemoryStorage) {
    let memory = MemoryStorage::new();
    (Rig::small(Arc::new(memory.clone())), memory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_go_and_what_is_open_keeps_its_own() {
    let (rig, _memory) = small();
    let (ledger, payloads) = (rig.ledger(), payloads(&rig));
    fill(&ledger, 0).await;
    let (before, tail) = (bare_runs(&ledger, 60).await, bare(all(&ledger).await));
    let segments = ledger.core.journal.segments().len();
    assert_eq!(retain(&ledger, &payloads), Retained::default(), "all of it is young");

    rig.clock.advance(DAY * 15);
    let retained = retain(&ledger, &payloads);
    assert!(retained.moved_segments > 3 && retained.moved_commits > 50, "{retained:?}");
    assert!(ledger.core.journal.segments().len() < segments);
    assert_eq!(bare_runs(&ledger, 60).await, before);
    assert_eq!(bare(all(&ledger).await), tail, "in the same order, each once");
    assert!(is_stripped(&read(&ledger, run(1)).await));
    let open = read(&ledger, run(0)).await;
    let kept: Vec<Payload> = open.iter().filter_map(payload_of).collect();
    assert_eq!(kept.len(), 2);
    for payload in kept {
        assert_eq!(payload.kept, Kept::Stored);
        let fetched = payloads.fetch_here(&tenant("acme"), &payload).unwrap();
        let Fetched::Whole(bytes) = fetched else { panic!("{fetched:?}") };
        assert_eq!(bytes.len() as u64, payload.bytes);
    }
    // As long as it is open, and no longer.
    rig.clock.advance(DAY * 20);
    fill(&ledger, 60).await;
    assert_eq!(retain(&ledger, &payloads).payloads, 0);
    let bodies = vec![lease(2, "two", 1), terminal(RunStatus::Succeeded)];
    for number in (0..60).step_by(10) {
        ledger.append(commit("acme", run(number), 5, Writer::Lease(2), bodies.clone())).await.unwrap();
    }
    assert!(retain(&ledger, &payloads).payloads > 0);
    let payload = payload_of(&open[3]).unwrap();
    assert_eq!(payloads.fetch_here(&tenant("acme"), &payload).unwrap(), Fetched::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_goes_on() {
    let (mut rig, _memory) = small();
    rig.settings.recent_runs_max = 0;
    let (ledger, payloads) = (rig.ledger(), payloads(&rig));
    fill(&ledger, 0).await;
    rig.clock.advance(DAY * 15);
    retain(&ledger, &payloads);
    // Evidence and a re-run of one that is over, and the end of one that is not.
    let late = commit("acme", run(1), 5, Writer::Anyone, vec![late_outcome("a", 1)]);
    assert_eq!(ledger.append(late).await, Ok(Committed { seq: 6, lease: 1 }));
    let again = commit("acme", run(1), 6, Writer::Anyone, vec![rerun("a", 2)]);
    assert_eq!(ledger.append(again).await, Ok(Committed { seq: 7, lease: 1 }));
    let bodies = vec![lease(2, "two", 1), terminal(RunStatus::Succeeded)];
    ledger.append(commit("acme", run(0), 5, Writer::Lease(2), bodies)).await.unwrap();
    assert_eq!(ledger.append(admission(run(2))).await, Err(AppendError::Conflict { seq: 5 }));
    let lengths = |ledger: &Arc<EmbeddedLedger>| {
        let ledger = Arc::clone(ledger);
        async move { (read(&ledger, run(0)).await.len(), read(&ledger, run(1)).await.len()) }
    };
    let mut ledger = Arc::new(ledger);
    assert_eq!(lengths(&ledger).await, (7, 7));
    assert_dense(&all(&ledger).await);
    // The rest follows, and an index that is made anew says the same.
    fill(&ledger, 60).await;
    rig.clock.advance(DAY * 15);
    retain(&ledger, &payloads);
    for loses_index in [false, true] {
        drop(ledger);
        if loses_index {
            rig.lose_index();
        }
        ledger = Arc::new(rig.ledger());
        assert_eq!(lengths(&ledger).await, (7, 7));
        assert_eq!(ledger.stat().open_runs, 12, "five of the first, one again, six of the second");
        assert_dense(&all(&ledger).await);
        assert_eq!(ledger.append(admission(run(2))).await, Err(AppendError::Conflict { seq: 5 }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_last_the_id_alone_is_left() {
    let (mut rig, _memory) = small();
    rig.settings.recent_runs_max = 0;
    let (mut ledger, payloads) = (rig.ledger(), payloads(&rig));
    fill(&ledger, 0).await;
    rig.clock.advance(DAY * 15);
    retain(&ledger, &payloads);
    rig.clock.advance(DAY * 170);
    let held = retain(&ledger, &payloads);
    assert!(held.is_held && held.dropped_segments == 0, "runs are open that began then: {held:?}");
    assert_eq!(read(&ledger, run(1)).await.len(), 5);
    let bodies = vec![lease(2, "two", 1), terminal(RunStatus::Succeeded)];
    for number in (0..60).step_by(10) {
        ledger.append(commit("acme", run(number), 5, Writer::Lease(2), bodies.clone())).await.unwrap();
    }
    let dropped = retain(&ledger, &payloads);
    assert!(dropped.dropped_segments > 0 && !dropped.is_held, "{dropped:?}");
    for rebuilds_index in [false, true] {
        for number in [0, 1, 5] {
            assert!(read(&ledger, run(number)).await.is_empty());
            assert_eq!(ledger.append(admission(run(number))).await, Err(AppendError::Conflict { seq: 1 }));
        }
        let again = ledger.append(commit("acme", run(1), 5, Writer::Anyone, vec![rerun("a", 2)])).await;
        assert!(matches!(again, Err(AppendError::Invalid(_))), "{again:?}");
        assert_dense_from_anywhere(&all(&ledger).await);
        drop(ledger);
        rig.settings.rebuilds_index = !rebuilds_index;
        let (opened, found) = rig.try_open().unwrap();
        assert_eq!(found.read > 0, !rebuilds_index, "{found:?}");
        ledger = opened;
    }
}

/// As [`assert_dense`], where the beginnings of runs may be gone.
#[track_caller]
fn assert_dense_from_anywhere(records: &[Record]) {
    let mut last = std::collections::HashMap::new();
    for record in records {
        if let Some(before) = last.insert(record.run, record.seq) {
            assert_eq!(before + 1, record.seq, "of run {}", record.run);
        }
    }
}

/// A journal that is hardly written to leaves its segment, so that it can go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_segment_goes_too() {
    let (rig, _memory) = small();
    let (ledger, payloads) = (rig.ledger(), payloads(&rig));
    live(&ledger, run(1)).await;
    rig.clock.advance(DAY * 15);
    let mut moved = 0;
    for _ in 0..1000 {
        moved += retain(&ledger, &payloads).moved_commits;
        if moved > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(moved, 2);
    assert!(is_stripped(&read(&ledger, run(1)).await));
    assert_eq!(all(&ledger).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_that_is_under_way_misses_nothing_and_sees_nothing_twice() {
    let (rig, _memory) = small();
    let (ledger, payloads) = (Arc::new(rig.ledger()), payloads(&rig));
    for round in 0..6 {
        fill(&ledger, round * 60).await;
        rig.clock.advance(DAY * 3);
    }
    let expected = bare(all(&ledger).await);
    let retaining = {
        let (ledger, payloads, clock) = (Arc::clone(&ledger), payloads.clone(), Arc::clone(&rig.clock));
        tokio::task::spawn_blocking(move || {
            for _ in 0..18 {
                clock.advance(DAY);
                retain(&ledger, &payloads);
            }
        })
    };
    let mut walks = 0;
    while !retaining.is_finished() || walks < 2 {
        let (mut records, mut from) = (Vec::new(), TailPosition::start());
        walks += 1;
        loop {
            match ledger.tail(from, 50).await {
                Ok(tail) if tail.records.is_empty() => {
                    assert_eq!(bare(records), expected);
                    break;
                }
                Ok(tail) => {
                    records.extend(tail.records);
                    from = tail.next;
                }
                // It was in a segment that was moved: it begins again, and is told so.
                Err(ReadError::Trimmed) => break,
                Err(other) => panic!("{other}"),
            }
        }
        for number in (0..360).step_by(37) {
            assert_eq!(read(&ledger, run(number)).await.len(), 5);
        }
    }
    retaining.await.unwrap();
    assert_eq!(bare(all(&ledger).await), expected);
}

/// The power goes at every single write or sync of a pass, and each time all is there, once, and the next pass ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_step_loses_nothing_and_repeats_nothing() {
    let mut cuts = 0;
    for cut in 1.. {
        let (mut rig, memory) = small();
        let payloads = payloads(&rig);
        let (before, tail) = {
            let ledger = rig.ledger();
            fill_with(&ledger, 0..30).await;
            rig.clock.advance(DAY * 15);
            // The next process would not believe that so much time has passed, if nobody had written it down.
            for journal in [&*ledger.core.journal, &ledger.core.history] {
                journal.trim(0).unwrap();
            }
            (bare_runs(&ledger, 30).await, bare(all(&ledger).await))
        };
        let faults = Faults { power_cut_after: Some(cut), ..Faults::default() };
        let storage = FaultyStorage::new(memory.clone(), cut, faults);
        rig.settings.storage = Arc::new(storage.clone());
        let mut ended = false;
        if let Ok((ledger, _)) = rig.try_open() {
            ended =
                tokio::task::block_in_place(|| ledger.retain(&Ages::default(), &payloads)).is_ok() && !storage.is_out();
            cuts += u64::from(!ended);
            memory.power_cut(cut);
        }
        memory.power_cut(cut);
        if cut % 3 == 0 {
            rig.lose_index();
        }
        rig.settings.storage = Arc::new(memory.clone());
        let (ledger, opened) = rig.try_open().unwrap();
        assert_eq!(opened.damage, [], "cut {cut}");
        assert_eq!(opened.open_runs, 3, "cut {cut}");
        assert_eq!(bare_runs(&ledger, 30).await, before, "cut {cut}");
        assert_eq!(bare(all(&ledger).await), tail, "cut {cut}");
        retain(&ledger, &payloads);
        assert_eq!(bare_runs(&ledger, 30).await, before, "cut {cut}");
        assert_eq!(bare(all(&ledger).await), tail, "cut {cut}");
        assert!(is_stripped(&read(&ledger, run(1)).await));
        for number in [1, 10] {
            let again = ledger.append(admission(run(number))).await;
            assert_eq!(again, Err(AppendError::Conflict { seq: 5 }), "cut {cut}");
        }
        let open = read(&ledger, run(0)).await;
        for payload in open.iter().filter_map(payload_of) {
            let fetched = payloads.fetch_here(&tenant("acme"), &payload).unwrap();
            assert!(matches!(fetched, Fetched::Whole(_)), "cut {cut}");
        }
        if ended {
            break;
        }
    }
    assert!(cuts > 20, "there were steps to cut at: {cuts}");
}

/// A pass that fails goes on where it came to, and the history has everything in its order, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_holds_up_and_changes_nothing() {
    let mut failed = 0;
    for seed in 0..6 {
        let memory = MemoryStorage::new();
        let storage = FaultyStorage::new(memory.clone(), seed, Faults::default());
        let mut rig = Rig::small(Arc::new(storage.clone()));
        let payloads = payloads(&rig);
        let ledger = rig.ledger();
        fill(&ledger, 0).await;
        let (before, tail) = (bare_runs(&ledger, 60).await, bare(all(&ledger).await));
        rig.clock.advance(DAY * 15);
        storage.set_faults(Faults { write_fails: 6, sync_fails: 6, ..Faults::default() });
        for _ in 0..30 {
            let retained = tokio::task::block_in_place(|| ledger.retain(&Ages::default(), &payloads));
            failed += u64::from(retained.is_err());
            assert_eq!(bare(all(&ledger).await), tail, "seed {seed}");
        }
        storage.set_faults(Faults::default());
        while ledger.core.history.stat().unavailable.is_some() {
            tokio::task::yield_now().await;
        }
        retain(&ledger, &payloads);
        assert_eq!(bare_runs(&ledger, 60).await, before, "seed {seed}");
        assert!(is_stripped(&read(&ledger, run(1)).await));
        drop(ledger);
        rig.lose_index();
        rig.settings.storage = Arc::new(memory.clone());
        let ledger = rig.ledger();
        assert_eq!(bare(all(&ledger).await), tail, "seed {seed}");
        assert_eq!(bare_runs(&ledger, 60).await, before, "seed {seed}");
    }
    assert!(failed > 10, "passes did fail: {failed}");
}

/// What does not read is told, and does not keep all that comes behind it for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_does_not_stop_retention() {
    let (rig, memory) = small();
    let payloads = payloads(&rig);
    {
        let ledger = rig.ledger();
        fill(&ledger, 0).await;
        rig.clock.advance(DAY * 15);
        ledger.core.journal.trim(0).unwrap();
    }
    let journal = rig.directory.path().join("journal");
    let mut segments: Vec<PathBuf> = memory.files().into_iter().map(|(path, _)| path).collect();
    segments.retain(|path| path.starts_with(&journal) && path.extension().is_some_and(|e| e == "seg"));
    segments.sort();
    assert!(memory.tamper(&segments[0], |bytes| bytes[4096 + 200] ^= 1));
    let ledger = rig.ledger();
    let retained = retain(&ledger, &payloads);
    assert!(retained.damaged == 1 && retained.moved_segments > 3, "{retained:?}");
    let of_lost = ledger.read(&tenant("acme"), run(0)).await;
    assert!(matches!(of_lost, Err(ReadError::Damaged(_))), "{of_lost:?}");
    assert!(is_stripped(&read(&ledger, run(5)).await));
}
