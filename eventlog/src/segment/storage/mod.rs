//! What a journal asks of a file system, as a trait: the real one, one in memory, and one that fails by seed.

mod real;

#[cfg(any(test, feature = "test-util"))]
mod faulty;
#[cfg(any(test, feature = "test-util"))]
mod memory;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(any(test, feature = "test-util"))]
pub use faulty::{Faults, FaultyStorage};
#[cfg(any(test, feature = "test-util"))]
pub use memory::MemoryStorage;
pub use real::RealStorage;

/// Reads a small file whose contents can be found again elsewhere. One that the disk does not give, or that is longer
/// than it can be, is as one with nothing in it that makes sense: there, and of no use. Errors that say nothing of the
/// file (no memory, too many open files, no permission) stay errors.
pub(crate) fn read_or_nothing(storage: &dyn Storage, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    use rustix::io::Errno;
    storage.read(path, bytes_max).or_else(|error| {
        let broken = [Errno::IO, Errno::UCLEAN, Errno::BADMSG].map(|errno| Some(errno.raw_os_error()));
        if error.kind() != io::ErrorKind::FileTooLarge && !broken.contains(&error.raw_os_error()) {
            return Err(error);
        }
        tracing::error!(file = %path.display(), %error, "damage in the log: a file beside the segments does not read");
        Ok(Some(Vec::new()))
    })
}

/// Does the file system refuse `O_DIRECT`, and nothing else?
pub(crate) fn refuses_direct(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [rustix::io::Errno::INVAL, rustix::io::Errno::OPNOTSUPP].iter().any(|e| Some(e.raw_os_error()) == code)
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Somebody else was faster, or it never was: either way it is gone.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// How a file is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// `O_DIRECT | O_DSYNC`: a write that returns is durable.
    Direct,
    /// Through the page cache: a write is durable after `sync`.
    Buffered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    pub name: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that this process may still use.
    pub free: u64,
    pub total: u64,
}

/// An open file. Dropping it closes it.
pub trait StorageFile: Send + Sync + Debug {
    /// Reads what there is, up to the buffer's length; less only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of it, or fails. In direct mode, offset, length and address are multiples of 4096.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written durable (`fdatasync`). After a failure nothing is known about any earlier write.
    fn sync(&self) -> io::Result<()>;

    fn set_len(&self, bytes: u64) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    /// Whether it is the file that `path` leads to. Where names cannot go without the file, it is.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
}

/// Held until it is dropped or its process ends, whichever way.
pub trait Lock: Send + Sync + Debug {}

pub trait Storage: Send + Sync + Debug {
    /// Makes the directory and those above it, durably. That it exists is no error.
    fn create_directory(&self, directory: &Path) -> io::Result<()>;

    fn list(&self, directory: &Path) -> io::Result<Vec<FileInfo>>;

    /// Makes a file of `bytes` zeros whose blocks are allocated and written, durably; a file of that name is
    /// replaced. Blocks that were written once need no journal of the file system when they are written again.
    fn create_zeroed(&self, path: &Path, bytes: u64) -> io::Result<()>;

    fn open_write(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>>;

    /// `Direct` reads past the page cache: what is on the disk, and not what a failed sync left to be seen. Where that
    /// is refused, the cache is dropped first.
    fn open_read(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in it durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Reads a small file whole; `None` if it is not there. Longer than `bytes_max` is an error.
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a small file: after a crash it has the old bytes or the new, whole.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// The same for a file that must not exist yet; false if it does.
    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool>;

    /// Makes a lock file that is locked before anybody can see it; `None` if the name is taken.
    fn lock_new(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// Does somebody hold the lock file of this name? A file that is not there is not held.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    fn space(&self, directory: &Path) -> io::Result<Space>;
}
