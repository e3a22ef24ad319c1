//! What the ledger says about itself, and the check of all of it.

use std::path::Path;
use std::sync::Arc;

use eventlog::segment::{self, Journal, Storage};

use super::EmbeddedLedger;
use super::pack;

/// A look at the ledger, for metrics and for the operator.
#[derive(Debug, Clone)]
pub struct Stat {
    pub journal: segment::Stat,
    pub history: segment::Stat,
    /// Bytes of the index's files.
    pub index_bytes: u64,
    /// Runs that are not over.
    pub open_runs: usize,
    /// Runs in memory: those, and some that lately were.
    pub runs_in_memory: usize,
    /// About how many runs there ever were.
    pub tombstones: usize,
    /// Durable commits that the index does not have yet.
    pub unindexed: u64,
    /// Why no run is read or admitted, if so.
    pub index_failed: Option<Arc<str>>,
}

/// What a check of a ledger's files has found.
#[derive(Debug, Default)]
pub struct Report {
    pub journal: segment::Report,
    pub history: segment::Report,
    pub commits: u64,
    pub records: u64,
    /// Records of the journals whose commit does not read, as many as are worth telling.
    pub broken: Vec<String>,
}

const BROKEN_MAX: usize = 1000;

impl Report {
    /// Is everything there that should be, as it should be? Torn tails are no fault.
    pub fn is_whole(&self) -> bool {
        self.journal.is_whole() && self.history.is_whole() && self.broken.is_empty()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("the ledger's files: {0}")]
    Open(#[from] segment::OpenError),
}

impl EmbeddedLedger {
    pub fn stat(&self) -> Stat {
        let core = &self.core;
        let (open_runs, runs_in_memory) = core.table.counts();
        let progress = core.progress.borrow().clone();
        Stat {
            journal: core.journal.stat(),
            history: core.history.stat(),
            index_bytes: core.index.bytes(),
            open_runs,
            runs_in_memory,
            tombstones: core.index.tombstones(),
            unindexed: core.table.commits().saturating_sub(progress.commits),
            index_failed: progress.failed,
        }
    }
}

/// Reads all of a ledger and checks it: checksums, chains, footers, and that every commit reads. Changes nothing; a process
/// that has it open is no harm.
pub fn verify(
    storage: &Arc<dyn Storage>,
    directory: &Path,
    clock: &Arc<dyn domain::Clock>,
) -> Result<Report, VerifyError> {
    let mut report = Report {
        journal: Journal::verify_in(&**storage, &directory.join("journal"))?,
        history: Journal::verify_in(&**storage, &directory.join("history"))?,
        ..Report::default()
    };
    for name in ["history", "journal"] {
        let view = segment::View::open(Arc::clone(storage), &directory.join(name), Arc::clone(clock))?;
        let mut cursor = match view.read(segment::Position::START) {
            Ok(cursor) => cursor,
            Err(error) => {
                report.tell(name, &error.to_string());
                continue;
            }
        };
        loop {
            match cursor.next_record() {
                Ok(Some(record)) => report.record(name, &record),
                Ok(None) => break,
                // It is in the report of its journal.
                Err(_) if cursor.skip_damage() => {}
                Err(error) => {
                    report.tell(name, &error.to_string());
                    break;
                }
            }
        }
    }
    Ok(report)
}

impl Report {
    fn record(&mut self, name: &str, record: &segment::Record) {
        for commit in pack::commits(record) {
            match commit.and_then(|commit| commit.records()) {
                Ok(records) => {
                    self.commits += 1;
                    self.records += records.len() as u64;
                }
                Err(error) => self.tell(name, &error.to_string()),
            }
        }
    }

    fn tell(&mut self, name: &str, what: &str) {
        if self.broken.len() < BROKEN_MAX {
            self.broken.push(format!("{name}: {what}"));
        }
    }
}
