//! The file of kill switches: a JSON list, written beside and put in its place as a whole, under a lock.
//!
//! It belongs to whom it belonged to before, or to the owner of the directory: a switch that an administrator throws as
//! root has to be readable to the appliance, or it is in force nowhere.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use super::{Scope, Switch};

/// Its name in the state directory.
pub const FILE_NAME: &str = "egress.switches";

/// Some thousand switches; whoever needs more wants a rule.
const BYTES_MAX: u64 = 256 << 10;

/// Why switches cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SwitchesFault {
    /// The file does not let itself be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It holds something else, or more than is kept.
    #[error("{path}: {what}", path = .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A switch that names nothing.
    #[error("a switch names a tenant, a connector, a destination or a way")]
    Empty,
}

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
}

/// What the file says, and which file that was. Without a file: nothing.
pub fn read(path: &Path) -> Result<(Vec<Switch>, Option<Version>), SwitchesFault> {
    let io = |source| SwitchesFault::Io { path: path.to_owned(), source };
    let content = |what: String| SwitchesFault::Content { path: path.to_owned(), what };
    // Before it is read: what is written in between is read again.
    let Some(version) = Version::of(path).map_err(io)? else { return Ok((Vec::new(), None)) };
    if version.bytes > BYTES_MAX {
        return Err(content(format!("holds more than {} KiB", BYTES_MAX >> 10)));
    }
    let text = fs::read(path).map_err(io)?;
    let switches: Vec<Switch> =
        serde_json::from_slice(&text).map_err(|error| content(format!("is no list of switches: {error}")))?;
    if switches.iter().any(|switch| switch.scope.is_empty()) {
        return Err(SwitchesFault::Empty);
    }
    Ok((switches, Some(version)))
}

/// Throws a switch; one of the same scope is replaced. Returns when it would survive a power cut.
pub fn throw(path: &Path, switch: Switch) -> Result<(), SwitchesFault> {
    if switch.scope.is_empty() {
        return Err(SwitchesFault::Empty);
    }
    change(path, |switches| {
        switches.retain(|other| other.scope != switch.scope);
        switches.push(switch);
        true
    })
    .map(drop)
}

/// Lifts the switch of this scope. False if none is thrown.
pub fn lift(path: &Path, scope: &Scope) -> Result<bool, SwitchesFault> {
    change(path, |switches| {
        let before = switches.len();
        switches.retain(|other| other.scope != *scope);
        switches.len() < before
    })
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<Switch>) -> bool) -> Result<bool, SwitchesFault> {
    let io = |source| SwitchesFault::Io { path: path.to_owned(), source };
    fs::create_dir_all(directory_of(path)).map_err(io)?;
    let lock_path = beside(path, "lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path).map_err(io)?;
    let directory = fs::metadata(directory_of(path)).map_err(io)?;
    give_to_owner_of(&directory, &lock_path, &lock).map_err(io)?;
    lock.lock().map_err(io)?;
    let (mut switches, _) = read(path)?;
    let is_changed = change(&mut switches);
    if is_changed {
        write(path, &switches).map_err(io)?;
    }
    Ok(is_changed)
}

fn write(path: &Path, switches: &[Switch]) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(switches).map_err(io::Error::other)?;
    let fresh = beside(path, "new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o640).open(&fresh)?;
    let owner = fs::metadata(path).or_else(|_| fs::metadata(directory_of(path)))?;
    give_to_owner_of(&owner, &fresh, &file)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

/// Where this is not allowed, better no switch than one that the appliance cannot read.
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
    fn it_belongs_to_the_directorys_owner() {
        let directory = tempfile::tempdir().unwrap();
        if chown(directory.path(), Some(12_345), Some(12_346)).is_err() {
            return;
        }
        let path = directory.path().join(FILE_NAME);
        let switch = |text: &str| {
            let scope = Scope { tenant: Some(domain::TenantId::parse(text).unwrap()), ..Scope::default() };
            throw(&path, Switch { scope, since_unix_ms: 1, reason: "".into() }).unwrap();
        };
        let owner = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.uid(), meta.gid())
        };
        switch("a");
        assert_eq!((owner(&path), owner(&beside(&path, "lock"))), ((12_345, 12_346), (12_345, 12_346)));
        chown(&path, Some(12_347), Some(12_348)).unwrap();
        switch("b");
        assert_eq!(owner(&path), (12_347, 12_348));
        assert_eq!(read(&path).unwrap().0.len(), 2);
    }
}
