//! Watches that no part of what the runner keeps goes unnoticed: a directory that is empty looks as one that is new, and a
//! segment that is missing at a journal's front as one that was trimmed.
//!
//! Where each journal begins is kept in a file beside them all. What is another journal by the next start keeps the runner
//! from opening, since events would begin no run and runs would be performed twice; of a first segment that is gone it says
//! so, and performs what it can read. Whoever means it removes the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use eventlog::segment::{Beginning, Gone, Journal};
use runner::automation::EmbeddedDefinitions;
use runner::ledger::embedded::EmbeddedLedger;

const FILE: &str = "beginnings";

/// Longest file that is read: three lines, and what an editor may have left.
const FILE_BYTES_MAX: u64 = 4_096;

#[derive(Debug)]
pub(super) struct Beginnings {
    path: PathBuf,
    ledger: Arc<EmbeddedLedger>,
    definitions: Arc<EmbeddedDefinitions>,
    alarms: Vec<String>,
    /// What is in the file.
    kept: Mutex<String>,
}

impl Beginnings {
    /// Holds what was opened against what was there before.
    ///
    /// # Errors
    /// A journal is another one than it was: in a sentence, with what can be done.
    pub(super) fn new(
        directory: &Path,
        ledger: Arc<EmbeddedLedger>,
        definitions: Arc<EmbeddedDefinitions>,
    ) -> Result<Self, String> {
        let path = directory.join(FILE);
        let kept = read(&path).map_err(|fault| format!("{}: {fault}", path.display()))?;
        let known = parse(&kept);
        let mut alarms = Vec::new();
        let file = path.display();
        for (name, journal) in journals(&ledger, &definitions) {
            match known.get(name).and_then(|known| journal.gone_since(known)) {
                Some(Gone::Log) => {
                    return Err(format!(
                        "the journal of the {name} is another one than it was: its directory was emptied or put in \
                         another's place. Put it back; to begin without it, remove {file}"
                    ));
                }
                Some(Gone::Segment(segment)) => alarms.push(format!(
                    "runner: the {name} has lost the segment {segment}, which was not trimmed: put it back and start \
                     again; to go on without it, remove {file} and start again"
                )),
                None => {}
            }
        }
        for alarm in &alarms {
            tracing::error!("{alarm}");
        }
        let beginnings = Self { path, ledger, definitions, alarms, kept: Mutex::new(kept) };
        beginnings.keep();
        Ok(beginnings)
    }

    pub(super) fn alarms(&self) -> &[String] {
        &self.alarms
    }

    /// Writes down where the journals begin, if that is another place than it was. Blocks. Of one that has lost something
    /// nothing is written: it is to be told again at the next start.
    pub(super) fn keep(&self) {
        if !self.alarms.is_empty() {
            return;
        }
        let mut text = String::new();
        for (name, journal) in journals(&self.ledger, &self.definitions) {
            // Writing to a string does not fail.
            let _written = writeln!(text, "{name} {}", journal.beginning());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if *kept == text {
            return;
        }
        match put(&self.path, &text) {
            Ok(()) => *kept = text,
            Err(fault) => {
                tracing::warn!(%fault, "where the runner's journals begin could not be written down; it is tried again");
            }
        }
    }
}

fn journals<'j>(ledger: &'j EmbeddedLedger, definitions: &'j EmbeddedDefinitions) -> [(&'static str, &'j Journal); 3] {
    let [journal, history] = ledger.journals();
    [journal, history, ("definitions", definitions.journal())]
}

fn read(path: &Path) -> io::Result<String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(fault) => return Err(fault),
    };
    io::read_to_string(io::Read::take(file, FILE_BYTES_MAX))
}

/// A line that does not read says nothing.
fn parse(text: &str) -> BTreeMap<&str, Beginning> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(name, beginning)| Some((name, beginning.parse().ok()?))).collect()
}

/// Whole, or not at all.
fn put(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    fs::File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()
}
