//! The file itself: opened under a lock, appended to and synced, replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::iter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::frame::{self, End, Frame};

/// Largest file that is opened: many times what compaction leaves.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 30;

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("journal {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("journal {path} is in use by another process")]
    InUse { path: PathBuf },
    /// Nothing is guessed from what is left: it would forget quota that was used. Who moves the file away decides that
    /// every window begins anew.
    #[error("journal {path} is damaged at byte {offset}")]
    Damaged { path: PathBuf, offset: u64 },
    #[error("journal {path} is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge { path: PathBuf },
}

/// A journal that is open for appending, and nobody else's.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    file: File,
    /// Held for as long as this is; the operating system lets it go with the process.
    _lock: File,
    number: u64,
    bytes: u64,
}

impl JournalFile {
    /// Opens the file, gives its frames to `each`, and cuts off what a power cut left of the last. Whether there was a
    /// file.
    pub(super) fn open(path: &Path, mut each: impl FnMut(&Frame<'_>)) -> Result<(Self, bool), OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        fs::create_dir_all(directory_of(path)).map_err(failed)?;
        let lock = open_options().create(true).open(beside(path, "lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut file = open_options().read(true).create(true).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > FILE_BYTES_MAX {
            return Err(OpenError::TooLarge { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (mut number, mut synced) = (0, 0);
        let end = frame::read(&bytes, |frame| {
            if frame.number == 0 {
                synced = frame::synced(&frame);
            }
            number = frame.number + 1;
            each(&frame);
        });
        let damaged = |at: usize| OpenError::Damaged { path: path.to_owned(), offset: at as u64 };
        let whole = match end {
            End::Whole(whole) if number < synced => return Err(damaged(whole)),
            End::Whole(whole) => whole,
            End::Damaged(at) => return Err(damaged(at)),
        };
        let mut journal = Self { path: path.to_owned(), file, _lock: lock, number, bytes: whole as u64 };
        journal.cut(whole as u64).map_err(failed)?;
        Ok((journal, whole > frame::MAGIC.len()))
    }

    /// What is not whole goes; a file without its first bytes gets them.
    fn cut(&mut self, whole: u64) -> io::Result<()> {
        self.file.set_len(whole)?;
        self.file.seek(SeekFrom::End(0))?;
        if whole == 0 {
            self.file.write_all(&frame::MAGIC)?;
            self.bytes = frame::MAGIC.len() as u64;
        }
        self.file.sync_all()?;
        File::open(directory_of(&self.path))?.sync_all()
    }

    /// Appends one group. Once it returns the group survives a power cut. After an error nothing more may be appended:
    /// what is in the file behind the last whole frame is unknown.
    pub(super) fn append(&mut self, now_ms: u64, records: &[u8]) -> io::Result<()> {
        let frame = frame::write(self.number, now_ms, records);
        self.file.write_all(&frame)?;
        self.file.sync_data()?;
        self.number += 1;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// Puts a file with these records alone in its place, all or nothing.
    pub(super) fn replace(&mut self, now_ms: u64, groups: &[Vec<u8>]) -> io::Result<()> {
        let fresh_path = beside(&self.path, "new");
        let mut fresh = open_options().create(true).truncate(true).open(&fresh_path)?;
        fresh.write_all(&frame::MAGIC)?;
        let head = frame::head_of(1 + groups.len() as u64);
        let (mut number, mut bytes) = (0, frame::MAGIC.len() as u64);
        for records in iter::once(&head).chain(groups) {
            let frame = frame::write(number, now_ms, records);
            fresh.write_all(&frame)?;
            (number, bytes) = (number + 1, bytes + frame.len() as u64);
        }
        fresh.sync_all()?;
        fs::rename(&fresh_path, &self.path)?;
        File::open(directory_of(&self.path))?.sync_all()?;
        (self.file, self.number, self.bytes) = (fresh, number, bytes);
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Readable by its owner alone: it names tenants.
fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}
