//! Files of the state directory that commands write and running processes read: each is written beside and put in its
//! place as a whole, under a lock.
//!
//! A file belongs to whom it belonged to before, or to the owner of the directory: what an administrator writes as root
//! has to be readable to the appliance, or it is in force nowhere.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// Which file it is: another one, or another content, is another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Version {
    /// Of the file that is there now; none if there is none.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(found) => {
                let changed = (found.ctime(), found.ctime_nsec());
                Ok(Some(Self { inode: found.ino(), bytes: found.len(), changed }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Bytes of the file.
    pub fn bytes(self) -> u64 {
        self.bytes
    }
}

/// The bytes of a file, or none where they are more than `bytes_max`.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    // Looked at before it is opened: a pipe in its place hangs nobody.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::Unsupported, "is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

/// Makes the directory and takes the lock beside the file. It is held until what is returned is dropped.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    fs::create_dir_all(directory_of(path))?;
    let lock_path = beside(path, "lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path)?;
    give_to_owner_of(&fs::metadata(directory_of(path))?, &lock_path, &lock)?;
    lock.lock()?;
    Ok(lock)
}

/// Puts these bytes in the file's place, all or nothing. Once it returns they survive a power cut.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_in_place(path, &write_beside(path, bytes)?)
}

/// The first half: what is to be there lies beside, on disk, and nobody reads it.
pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let fresh = beside(path, "new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o640).open(&fresh)?;
    let owner = fs::metadata(path).or_else(|_| fs::metadata(directory_of(path)))?;
    give_to_owner_of(&owner, &fresh, &file)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(fresh)
}

fn put_in_place(path: &Path, fresh: &Path) -> io::Result<()> {
    fs::rename(fresh, path)?;
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Where this is not allowed, better no change than one that the appliance cannot read.
fn give_to_owner_of(owner: &Metadata, path: &Path, file: &File) -> io::Result<()> {
    let own = file.metadata()?;
    let is_its = (owner.uid(), owner.gid()) == (own.uid(), own.gid());
    if is_its { Ok(()) } else { chown(path, Some(owner.uid()), Some(owner.gid())) }
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only root can give files away: elsewhere there is nothing to see.
    #[test]
    fn a_file_belongs_to_the_directorys_owner() {
        let directory = tempfile::tempdir().unwrap();
        if chown(directory.path(), Some(12_345), Some(12_346)).is_err() {
            return;
        }
        let path = directory.path().join("state");
        let owner = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.uid(), meta.gid())
        };
        drop(lock(&path).unwrap());
        replace(&path, b"a").unwrap();
        assert_eq!((owner(&path), owner(&beside(&path, "lock"))), ((12_345, 12_346), (12_345, 12_346)));
        chown(&path, Some(12_347), Some(12_348)).unwrap();
        replace(&path, b"b").unwrap();
        assert_eq!(owner(&path), (12_347, 12_348));
    }
}
