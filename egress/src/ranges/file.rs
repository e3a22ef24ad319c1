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
use crate::caller::PublicKey;
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

/// Why a book of another machine is not taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It is another one, or an older one.
    #[error("{0}")]
    GoesBack(String),
    /// Nobody has signed anything in it.
    #[error("holds no version")]
    Empty,
    /// There is no book here whose key it could go by.
    #[error("is signed by {signer}, and nothing here says whether that is the right key")]
    Unpinned {
        /// Whose it is.
        signer: PublicKey,
    },
    /// It is not that of the key that was named.
    #[error("is signed by {signer}, and not by {pinned}")]
    OtherKey {
        /// Whose it is.
        signer: PublicKey,
        /// Whose it was to be.
        pinned: PublicKey,
    },
    /// It goes over to another key than that of the book here.
    #[error("is signed by {signer}, and the one that is known by {known}")]
    NewKey {
        /// Whose it is.
        signer: PublicKey,
        /// Whose the book here is.
        known: PublicKey,
    },
}

impl NotTaken {
    /// What to do about it.
    pub fn next(&self) -> &'static str {
        match self {
            Self::GoesBack(_) | Self::Empty => "a book is written in one place; find out which one is the right one",
            Self::Unpinned { .. } => "name the public key with --key, as it came by a channel that you trust",
            Self::OtherKey { .. } => "whoever wrote it has not the key that you trust: ask where the book is written",
            Self::NewKey { .. } => {
                "ask where the book is written, by a channel that you trust; if the key was changed there, name the \
                 new one with --key, and say --new-key"
            }
        }
    }
}

/// What of a key whoever takes a book over has said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trust {
    /// It has to be signed by this one; needed where no book is here.
    pub key: Option<PublicKey>,
    /// And that may be another one than signed the book here.
    pub new_key: bool,
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

/// Takes over a book that was written elsewhere, if it is the one that is here and what came after, and the same key's.
/// Every line names the key that it was signed with: that a book is whole says nothing of whose it is.
///
/// # Errors
/// It is another book, or an older one, or another key's; or the file here cannot be read.
pub fn take_over(path: &Path, book: &Book, trust: Trust) -> Result<(), NotChanged<NotTaken>> {
    change(path, |before| may_take(before.as_ref(), book, trust).map(|()| book.clone())).map(drop)
}

fn may_take(before: Option<&Book>, book: &Book, trust: Trust) -> Result<(), NotTaken> {
    if let Some(before) = before.filter(|before| !book.continues(before)) {
        return Err(NotTaken::GoesBack(goes_back(before, book)));
    }
    let signer = book.signer().ok_or(NotTaken::Empty)?;
    let known = before.and_then(Book::signer);
    match trust.key {
        Some(pinned) if pinned != signer => return Err(NotTaken::OtherKey { signer, pinned }),
        None if known.is_none() => return Err(NotTaken::Unpinned { signer }),
        // Nobody says that it may be another key without saying which.
        None | Some(_) => {}
    }
    let may_change = trust.new_key && trust.key.is_some();
    match known.filter(|known| *known != signer && !may_change) {
        Some(known) => Err(NotTaken::NewKey { signer, known }),
        None => Ok(()),
    }
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
