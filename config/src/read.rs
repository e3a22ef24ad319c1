//! Reading files that somebody else wrote: never a device or a pipe, never more than a bound.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use zeroize::Zeroize;

/// Why a file could not be read, as the end of a sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("is not there")]
    Missing,
    #[error("is no regular file")]
    NotAFile,
    #[error("is larger than {0}")]
    TooLarge(String),
    #[error("cannot be read: {0}")]
    Io(io::Error),
}

impl Unreadable {
    /// Whether it says nothing about the file, so that it may be read the next time: too many files are open, the disk
    /// failed, somebody is writing. What is said about a file stays so until somebody changes it.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Io(fault) if is_passing(fault))
    }
}

/// Whether an error of the system says nothing about what was looked at.
pub(crate) fn is_passing(fault: &io::Error) -> bool {
    use rustix::io::Errno;
    const SAID: [Errno; 11] = [
        Errno::ACCESS,
        Errno::ISDIR,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::NOENT,
        Errno::NODEV,
        Errno::NOTDIR,
        Errno::NXIO,
        Errno::OVERFLOW,
        Errno::PERM,
        Errno::XDEV,
    ];
    fault.raw_os_error().is_none_or(|raw| !SAID.contains(&Errno::from_raw_os_error(raw)))
}

impl From<io::Error> for Unreadable {
    fn from(fault: io::Error) -> Self {
        if fault.kind() == io::ErrorKind::NotFound { Self::Missing } else { Self::Io(fault) }
    }
}

impl From<rustix::io::Errno> for Unreadable {
    fn from(fault: rustix::io::Errno) -> Self {
        io::Error::from(fault).into()
    }
}

// A pipe in the place of a file must not hang the loader: opened without waiting, then looked at.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens for reading and leaves the time of the last reading as it is, where the system lets us: it does for files that
/// are this process's user's own. To read a hundred thousand files would else be to write as many inodes, half a minute
/// later and all at once, on the disk that deliveries wait for.
fn quietly<T>(open: impl Fn(OFlags) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match open(FLAGS.union(OFlags::NOATIME)) {
        Err(rustix::io::Errno::PERM) => open(FLAGS),
        other => other,
    }
}

/// The bytes of a regular file and its permission bits.
pub(crate) fn file(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, u32), Unreadable> {
    bounded(quietly(|flags| rustix::fs::open(path, flags, Mode::empty()))?, bytes_max)
}

/// A regular file, to be read.
pub(crate) fn regular(path: &Path) -> Result<File, Unreadable> {
    let file = File::from(quietly(|flags| rustix::fs::open(path, flags, Mode::empty()))?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Unreadable::NotAFile) }
}

/// At most the first bytes of a regular file.
pub(crate) fn start(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    regular(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file of a directory, like [`file`], which no symbolic link may lead out of.
pub(crate) fn beneath(directory: impl AsFd, name: &OsStr, bytes_max: u64) -> Result<(Vec<u8>, u32), Unreadable> {
    let opened = quietly(|flags| {
        match rustix::fs::openat2(&directory, name, flags, Mode::empty(), ResolveFlags::BENEATH) {
            // Kernels before 5.6 and some sandboxes do not have it: then no symbolic links at all.
            Err(rustix::io::Errno::NOSYS) => {
                rustix::fs::openat(&directory, name, flags.union(OFlags::NOFOLLOW), Mode::empty())
            }
            other => other,
        }
    });
    bounded(opened?, bytes_max)
}

fn bounded(opened: OwnedFd, bytes_max: u64) -> Result<(Vec<u8>, u32), Unreadable> {
    let file = File::from(opened);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Unreadable::NotAFile);
    }
    let too_large = || Unreadable::TooLarge(crate::units::format_bytes(bytes_max));
    if meta.len() > bytes_max {
        return Err(too_large());
    }
    // One byte of room, so that reading to the end never moves the bytes: what is moved is left behind unwiped.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
    let limit = bytes.capacity() as u64;
    let read = file.take(limit).read_to_end(&mut bytes);
    // It may have grown in between; the bound holds all the same.
    if read.is_err() || bytes.len() as u64 > meta.len() {
        bytes.zeroize();
    }
    read?;
    if bytes.is_empty() && meta.len() > 0 {
        return Err(Unreadable::Io(io::Error::other("it is being written; the next reload reads it")));
    }
    Ok((bytes, meta.permissions().mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn reading_ones_own_files_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acme.toml");
        fs::write(&path, "text").unwrap();
        // Never read since it was written: the system would note any reading of it.
        let before = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        File::open(&path).unwrap().set_times(FileTimes::new().set_accessed(before)).unwrap();
        let beside = rustix::fs::open(directory.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(file(&path, 10).unwrap().0, b"text");
        assert_eq!(start(&path, 10).unwrap(), b"text");
        assert_eq!(beneath(&beside, "acme.toml".as_ref(), 10).unwrap().0, b"text");
        assert_eq!(fs::metadata(&path).unwrap().atime(), 3_600);
    }
}
