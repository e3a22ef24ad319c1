//! What must survive the process, in one file that is appended to.
//!
//! It is state and no log: nobody reads it but the next start, and only what is newest of each bucket and note counts.
//! Groups of records are synced before anybody is told; a file that has grown to several times what it holds is
//! replaced by what it holds.

mod file;
mod frame;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use file::JournalFile;
pub use file::OpenError;

use super::core::Core;

const BUCKET: u8 = 1;
const NOTE: u8 = 2;
const NO_NOTE: u8 = 3;
const OPENED: u8 = 4;
const HANDED_OVER: u8 = 5;

/// Longest key of a note, in bytes.
pub const NOTE_KEY_BYTES_MAX: usize = 200;
/// Longest value of a note, in bytes: a baseline of a week's hours, and room.
pub const NOTE_VALUE_BYTES_MAX: usize = 4_096;
/// Most notes of one kind.
pub const NOTES_MAX: usize = 1_000_000;
/// A file is not compacted before it is this large.
const COMPACT_BYTES_MIN: u64 = 4 << 20;
/// Records of one group of a compacted file, in bytes.
const GROUP_BYTES: usize = 1 << 20;

/// What a note is about. What its bytes mean is its writer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// A breaker that is open.
    Breaker,
    /// What a connection usually does.
    Baseline,
}

impl NoteKind {
    const fn number(self) -> u8 {
        match self {
            Self::Breaker => 1,
            Self::Baseline => 2,
        }
    }
}

/// A key and a value, or either.
pub type NoteBytes = Box<[u8]>;

/// Small records of other parts, by kind and key.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<u8, BTreeMap<NoteBytes, NoteBytes>>);

/// A note that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("the key is empty or longer than {NOTE_KEY_BYTES_MAX} bytes")]
    Key,
    #[error("the value is longer than {NOTE_VALUE_BYTES_MAX} bytes")]
    Value,
    #[error("there are {NOTES_MAX} notes of this kind")]
    TooMany,
    #[error("the journal takes nothing")]
    Journal,
}

impl Notes {
    /// Takes a note, or its end, and adds the record of it.
    pub(super) fn put(
        &mut self,
        kind: NoteKind,
        key: &[u8],
        value: Option<&[u8]>,
        records: &mut Vec<u8>,
    ) -> Result<(), NoteError> {
        if !(1..=NOTE_KEY_BYTES_MAX).contains(&key.len()) {
            return Err(NoteError::Key);
        }
        if value.is_some_and(|value| value.len() > NOTE_VALUE_BYTES_MAX) {
            return Err(NoteError::Value);
        }
        let notes = self.0.entry(kind.number()).or_default();
        if value.is_some() && notes.len() >= NOTES_MAX && !notes.contains_key(key) {
            return Err(NoteError::TooMany);
        }
        frame::push(records, if value.is_some() { NOTE } else { NO_NOTE }, &note(kind.number(), key, value));
        match value {
            Some(value) => drop(notes.insert(key.into(), value.into())),
            None => drop(notes.remove(key)),
        }
        Ok(())
    }

    pub(super) fn all(&self, kind: NoteKind) -> Vec<(NoteBytes, NoteBytes)> {
        let notes = self.0.get(&kind.number()).into_iter().flatten();
        notes.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn restore(&mut self, record: &[u8], is_put: bool) -> Option<()> {
        let (&kind, rest) = record.split_first()?;
        let (&length, rest) = rest.split_first()?;
        let (key, value) = rest.split_at_checked(usize::from(length))?;
        let notes = self.0.entry(kind).or_default();
        if is_put {
            notes.insert(key.into(), value.into());
        } else {
            notes.remove(key);
        }
        Some(())
    }
}

fn note(kind: u8, key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let length = u8::try_from(key.len()).unwrap_or(u8::MAX);
    [&[kind, length], key, value.unwrap_or_default()].concat()
}

/// Adds a bucket's record to those of a group.
pub(super) fn push_bucket(records: &mut Vec<u8>, record: &[u8]) {
    frame::push(records, BUCKET, record);
}

/// What was in a file.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) notes: Notes,
    pub(super) was_there: bool,
    /// The last one to have it wrote everything down before it went.
    pub(super) was_handed_over: bool,
    pub(super) last_ms: u64,
    /// Records that are of no form that is known: of a later version, since damage is another thing.
    pub(super) unknown: u64,
}

/// The file, open.
#[derive(Debug)]
pub(super) struct Journal {
    file: JournalFile,
    compacted_bytes: u64,
}

impl Journal {
    /// Opens the file and puts its buckets into `core`.
    pub(super) fn open(path: &Path, core: &mut Core) -> Result<(Self, Restored), OpenError> {
        let mut restored =
            Restored { notes: Notes::default(), was_there: false, was_handed_over: false, last_ms: 0, unknown: 0 };
        let (file, was_there) = JournalFile::open(path, |frame| {
            restored.last_ms = restored.last_ms.max(frame.now_ms);
            for &(kind, record) in &frame.records {
                let is_known = match kind {
                    BUCKET => core.restore(record),
                    NOTE | NO_NOTE => restored.notes.restore(record, kind == NOTE).is_some(),
                    frame::SYNCED | OPENED | HANDED_OVER => true,
                    _ => false,
                };
                restored.unknown += u64::from(!is_known);
                restored.was_handed_over = kind == HANDED_OVER;
            }
        })?;
        restored.was_there = was_there;
        let compacted_bytes = file.bytes();
        Ok((Self { file, compacted_bytes }, restored))
    }

    /// From here on nothing counts as handed over until it is again.
    pub(super) fn begin(&mut self, now_ms: u64) -> io::Result<()> {
        let mut records = Vec::new();
        frame::push(&mut records, OPENED, &[]);
        self.file.append(now_ms, &records)
    }

    pub(super) fn append(&mut self, now_ms: u64, records: &[u8]) -> io::Result<()> {
        self.file.append(now_ms, records)
    }

    pub(super) fn wants_compaction(&self) -> bool {
        self.file.bytes() > COMPACT_BYTES_MIN.max(4 * self.compacted_bytes)
    }

    /// Replaces the file by these groups.
    pub(super) fn replace(&mut self, now_ms: u64, groups: &[Vec<u8>]) -> io::Result<()> {
        self.file.replace(now_ms, groups)?;
        self.compacted_bytes = self.file.bytes();
        Ok(())
    }
}

/// All that a file has to hold. `everything` is for a successor that goes on where this one stops.
pub(super) fn snapshot(core: &Core, notes: &Notes, everything: bool) -> Vec<Vec<u8>> {
    let mut groups = Vec::new();
    let mut records = Vec::new();
    let mut push = |kind: u8, record: &[u8]| {
        frame::push(&mut records, kind, record);
        if records.len() >= GROUP_BYTES {
            groups.push(std::mem::take(&mut records));
        }
    };
    core.snapshot(everything, |record| push(BUCKET, record));
    for (&kind, notes) in &notes.0 {
        for (key, value) in notes {
            push(NOTE, &note(kind, key, Some(value)));
        }
    }
    push(if everything { HANDED_OVER } else { OPENED }, &[]);
    groups.push(records);
    groups
}
