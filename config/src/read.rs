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

/// The bytes of a regular file and its permission bits.
pub(crate) fn file(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, u32), Unreadable> {
    bounded(rustix::fs::open(path, FLAGS, Mode::empty())?, bytes_max)
}

/// A regular file, to be read.
pub(crate) fn regular(path: &Path) -> Result<File, Unreadable> {
    let file = File::from(rustix::fs::open(path, FLAGS, Mode::empty())?);
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
    let beneath = rustix::fs::openat2(&directory, name, FLAGS, Mode::empty(), ResolveFlags::BENEATH);
    let opened = match beneath {
        // Kernels before 5.6 and some sandboxes do not have it: then no symbolic links at all.
        Err(rustix::io::Errno::NOSYS) => {
            rustix::fs::openat(&directory, name, FLAGS.union(OFlags::NOFOLLOW), Mode::empty())
        }
        other => other,
    };
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
