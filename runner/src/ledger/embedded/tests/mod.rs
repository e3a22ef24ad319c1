//! The embedded ledger: what every engine does, and what only this one can get wrong.

mod admission;
mod crash;
mod faults;
mod figures;
mod opening;
mod retention;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::ManualClock;
use eventlog::segment::storage::MemoryStorage;
use eventlog::segment::{Backoff, RealStorage, Storage};
use tempfile::TempDir;

use super::*;
use crate::ledger::conformance::Subject;
use crate::ledger::conformance::made::*;
use crate::ledger::record::RunStatus;
use crate::ledger::store::Writer;

/// A place for a ledger: its journals in memory or on the disk, its index on the disk.
#[derive(Debug)]
struct Rig {
    directory: TempDir,
    clock: Arc<ManualClock>,
    settings: Settings,
    numbers: u64,
    /// Loses the index with each crash.
    loses_index: bool,
}

impl Rig {
    fn new(storage: Arc<dyn Storage>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            segment_bytes: 8 << 20,
            history_segment_bytes: 128 << 10,
            reserve_bytes: 0,
            batch_bytes_max: 32 << 10,
            recent_runs_max: 4,
            recent_bytes_max: 8 << 10,
            index_cache_bytes: 1 << 20,
            heal: Backoff { first: Duration::from_millis(1), max: Duration::from_millis(4) },
            storage,
            ..Settings::new(directory.path())
        };
        let clock = ManualClock::at_unix_ms(WRITTEN_UNIX_MS);
        Self { directory, clock, settings, numbers: 0, loses_index: false }
    }

    fn on_disk() -> Self {
        Self::new(Arc::new(RealStorage))
    }

    fn index(&self) -> PathBuf {
        self.directory.path().join("index")
    }

    fn try_open(&self) -> Result<(EmbeddedLedger, Opened), OpenError> {
        EmbeddedLedger::open(&self.settings, Arc::<ManualClock>::clone(&self.clock))
    }

    /// What was under way through the last one ends a moment later than it was closed.
    fn ledger(&self) -> EmbeddedLedger {
        for _ in 0..10_000 {
            match self.try_open() {
                Err(OpenError::Locked(_)) => std::thread::park_timeout(Duration::from_millis(1)),
                opened => return opened.unwrap().0,
            }
        }
        panic!("the ledger stays open")
    }

    /// With segments so small that a test has many.
    fn small(storage: Arc<dyn Storage>) -> Self {
        let mut rig = Self::new(storage);
        (rig.settings.segment_bytes, rig.settings.history_segment_bytes) = (64 << 10, 32 << 10);
        (rig.settings.batch_bytes_max, rig.settings.pack_bytes) = (8 << 10, 1 << 10);
        rig
    }

    fn lose_index(&self) {
        std::fs::remove_dir_all(self.index()).unwrap();
    }
}

#[async_trait::async_trait]
impl Subject for Rig {
    async fn open(&mut self) -> Arc<dyn LedgerStore> {
        Arc::new(self.ledger())
    }

    async fn crash(&mut self, last: Arc<dyn LedgerStore>) -> Arc<dyn LedgerStore> {
        drop(last);
        if self.loses_index {
            self.lose_index();
        }
        self.open().await
    }

    async fn pass(&mut self, _ms: u64) {
        unreachable!("scenarios of time are for shared ledgers")
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn schedules(&self) -> u32 {
        12
    }
}

async fn read(ledger: &EmbeddedLedger, run: RunId) -> Vec<Record> {
    ledger.read(&tenant("acme"), run).await.unwrap()
}

/// Everything of a run that is over after one step.
async fn live(ledger: &EmbeddedLedger, run: RunId) {
    ledger.append(admission(run)).await.unwrap();
    ledger.append(whole_life(run)).await.unwrap();
}

fn whole_life(run: RunId) -> Commit {
    let bodies = vec![lease(1, "one", 1000), intent("a", 1), outcome("a", 1), terminal(RunStatus::Succeeded)];
    commit("acme", run, 1, Writer::Lease(1), bodies)
}

/// The whole tail, in small portions.
async fn all(ledger: &EmbeddedLedger) -> Vec<Record> {
    let (mut records, mut from) = (Vec::new(), TailPosition::start());
    loop {
        let tail = ledger.tail(from, 7).await.unwrap();
        if tail.records.is_empty() {
            return records;
        }
        assert!(tail.records.len() <= 7);
        records.extend(tail.records);
        from = tail.next;
    }
}

/// Each run's records are dense from 1, and those of a run are in order.
#[track_caller]
fn assert_dense(records: &[Record]) {
    let mut last = std::collections::HashMap::new();
    for record in records {
        let before = last.insert(record.run, record.seq).unwrap_or(0);
        assert_eq!(before + 1, record.seq, "of run {}", record.run);
    }
}

mod on_disk {
    use super::*;

    crate::ledger_conformance! { Rig::on_disk() }
}

mod without_its_index {
    use super::*;

    crate::ledger_conformance! { Rig { loses_index: true, ..Rig::new(Arc::new(MemoryStorage::new())) } }
}
