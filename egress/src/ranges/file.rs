//! The file of a book: JSON lines. The first says which book it is and how many changes follow; each other one is a
//! change.
//!
//! ```text
//! {"tidegateEgressRanges":1,"id":"7f…","changes":2}
//! {"serial":1,"at":"2026-11-30T04:00:00Z","what":{"change":"announce","prefix":"93.184.216.0/24"},"policy":{…},…}
//! {"serial":2,…}
//! ```
//!
//! It is put in its place as a whole, under a lock. A file that is not whole is named and nothing is written over it:
//! what was promised in public is in there.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::book::Book;
use super::broken::CHANGES_MAX;
use super::change::Entry;
use crate::state_file;

/// Far more than a full book of the longest entries has.
const BYTES_MAX: u64 = 8 << 20;

const FORM: u32 = 1;

/// Why a book cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BookFault {
    /// The file does not let itself be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is no book, or a damaged one.
    #[error("{path}{line}: {what}", path = .path.display(), line = .line.map_or_else(String::new, |line| format!(":{line}")))]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where, counted from 1.
        line: Option<usize>,
        /// What is wrong.
        what: String,
    },
}

/// Why a change was not made.
#[derive(Debug)]
pub enum NotChanged<E> {
    /// The file.
    Book(BookFault),
    /// Whoever makes the change.
    Made(E),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    tidegate_egress_ranges: u32,
    id: String,
    changes: usize,
}

/// Reads a book from a file; none where there is none.
///
/// # Errors
/// It is there and cannot be read, or is not whole.
pub fn read(path: &Path) -> Result<Option<Book>, BookFault> {
    let io = |source| BookFault::Io { path: path.to_owned(), source };
    match state_file::read_bounded(path, BYTES_MAX) {
        Ok(Some(bytes)) => parse(path, &bytes).map(Some),
        Ok(None) => {
            let what = format!("holds more than {} MiB", BYTES_MAX >> 20);
            Err(BookFault::Damaged { path: path.to_owned(), line: None, what })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(error)),
    }
}

/// Reads a book from bytes. `path` is how faults call it.
///
/// # Errors
/// It is not whole.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Book, BookFault> {
    let fault = |line: Option<usize>, what: String| BookFault::Damaged { path: path.to_owned(), line, what };
    let text = str::from_utf8(bytes).map_err(|_| fault(None, "is no text".into()))?;
    let whole = text.strip_suffix('\n').ok_or_else(|| fault(None, "ends in the middle of a line".into()))?;
    let mut lines = whole.split('\n');
    let head = lines.next().unwrap_or_default();
    let head: Head = serde_json::from_str(head)
        .map_err(|error| fault(Some(1), format!("is no head of a book of exit ranges: {error}")))?;
    if head.tidegate_egress_ranges != FORM {
        return Err(fault(Some(1), "was written by a later version".into()));
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (line, number) in lines.zip(2..) {
        if entries.len() == CHANGES_MAX {
            return Err(fault(Some(number), format!("there are more than {CHANGES_MAX} changes")));
        }
        let entry = serde_json::from_str(line);
        entries.push(entry.map_err(|error| fault(Some(number), format!("is no change: {error}")))?);
    }
    if entries.len() != head.changes {
        let what = format!("is said to have {} changes, and has {}", head.changes, entries.len());
        return Err(fault(Some(1), what));
    }
    Book::of(&head.id, entries).map_err(|damage| fault(Some(damage.serial + 1), damage.what))
}

/// The bytes of its file.
pub fn to_bytes(book: &Book) -> io::Result<Vec<u8>> {
    let head = Head { tidegate_egress_ranges: FORM, id: book.id().to_owned(), changes: book.entries().len() };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    for entry in book.entries() {
        serde_json::to_writer(&mut bytes, entry)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Makes one change, alone: whoever else wants to change the book waits and sees what came of this. Once it returns, the
/// change survives a power cut.
///
/// # Errors
/// Nothing was changed.
pub fn change<E>(path: &Path, make: impl FnOnce(Option<Book>) -> Result<Book, E>) -> Result<Book, NotChanged<E>> {
    let io = |source| NotChanged::Book(BookFault::Io { path: path.to_owned(), source });
    let _held = state_file::lock(path).map_err(io)?;
    let before = read(path).map_err(NotChanged::Book)?;
    let after = make(before).map_err(NotChanged::Made)?;
    state_file::replace(path, &to_bytes(&after).map_err(io)?).map_err(io)?;
    Ok(after)
}

/// Takes over a book that was written elsewhere, if it is the one that is here and what came after.
///
/// # Errors
/// It is another book, or an older one, or the file here cannot be read.
pub fn take_over(path: &Path, book: &Book) -> Result<(), NotChanged<String>> {
    let change = change(path, |before| match before {
        Some(before) if !book.continues(&before) => Err(goes_back(&before, book)),
        Some(_) | None => Ok(book.clone()),
    });
    change.map(drop)
}

/// How a book is not what comes after the one that is known.
pub(super) fn goes_back(known: &Book, book: &Book) -> String {
    if known.id() != book.id() {
        return format!("is another book, {} and not {}", book.id(), known.id());
    }
    let differ = known.entries().iter().zip(book.entries()).position(|(one, other)| one != other);
    match differ {
        Some(at) => format!("has another version {} than the one that is known", at + 1),
        None => format!("has version {} last, and version {} is known", book.serial(), known.serial()),
    }
}

impl<E: Display> Display for NotChanged<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Book(fault) => fault.fmt(f),
            Self::Made(fault) => fault.fmt(f),
        }
    }
}
