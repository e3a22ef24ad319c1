//! The file of revocations: `grants.revoked` in the state directory, one JSON object a line.
//!
//! ```text
//! {"at":1764424000000,"jti":"01K…","until":1764424930000}
//! {"at":1764424000000,"run":"run_7","tenant":"acme","until":1764424930000}
//! {"at":1764424000000,"tenant":"acme"}
//! {"at":1764424600000,"tenant":"acme","lifted":true}
//! ```
//!
//! Written by whoever revokes, under a lock beside it: appended and synced before it is said to be done. When most of
//! it has ended it is written anew and put in its place. Readers take no lock. What stands behind the last line end is
//! a line that is being written, or one whose writer died before he said that it is done: a reader takes it if it is
//! whole, and the next writer takes it away if it is not.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{List, Revocation};

/// Its name in the state directory.
pub const FILE_NAME: &str = "grants.revoked";

/// Some 150,000 revocations. A file that is larger is not read, and no line is appended that would make it so.
const BYTES_MAX: u64 = 16 << 20;

/// A file that is smaller is not worth writing anew.
const COMPACTED_BYTES_MIN: usize = 64 << 10;

/// Why revocations cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RevocationFault {
    /// The file, or a directory on the way, does not let itself be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There are more revocations than are kept.
    #[error("{path}: holds more than 16 MiB", path = .path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// A line says nothing that is understood: a later version wrote it, or a hand.
    #[error("{path}:{line}: is no revocation; what the line revokes is not known", path = .path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// The first such line, counted from 1.
        line: usize,
    },
    /// An id that no grant can have.
    #[error("an id or run is 1 to 256 visible ASCII characters")]
    Label,
}

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) list: List,
    /// The first line that says nothing, counted from 1.
    pub(super) faulty_line: Option<usize>,
    lines: usize,
}

/// Which version of the file was read: it is read again when this changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Version {
    /// None if there is no file.
    pub(super) fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => Ok(Some(Self {
                device: found.dev(),
                inode: found.ino(),
                bytes: found.len(),
                changed: (found.ctime(), found.ctime_nsec()),
            })),
            Ok(_) => Err(io::Error::new(ErrorKind::Unsupported, "is no regular file")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads it. A file that is not there revokes nothing.
pub(super) fn read(path: &Path, now_ms: u64) -> Result<Contents, RevocationFault> {
    Ok(contents(&bytes(path)?, now_ms))
}

fn bytes(path: &Path) -> Result<Vec<u8>, RevocationFault> {
    let failed = |source| RevocationFault::Io { path: path.into(), source };
    let mut bytes = Vec::new();
    // Looked at before it is opened: a pipe in its place hangs nobody.
    if Version::of(path).map_err(failed)?.is_some() {
        File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    }
    if bytes.len() as u64 > BYTES_MAX { Err(RevocationFault::TooLarge { path: path.into() }) } else { Ok(bytes) }
}

fn contents(bytes: &[u8], now_ms: u64) -> Contents {
    let (lines, rest) = whole_lines(bytes);
    let mut read = Contents::default();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        read.lines += 1;
        match Revocation::of_line(line) {
            Some(revocation) => read.list.apply(revocation),
            None => read.faulty_line = read.faulty_line.or(Some(read.lines)),
        }
    }
    if let Some(revocation) = Revocation::of_line(rest) {
        read.list.apply(revocation);
    }
    read.list.forget(now_ms);
    read
}

/// Lines with their ends, and what stands behind them.
fn whole_lines(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1))
}

/// What is revoked now, the latest last.
///
/// # Errors
/// The file is there and cannot be read whole.
pub fn revoked(path: &Path, now_unix_ms: u64) -> Result<Vec<Revocation>, RevocationFault> {
    let bytes = bytes(path)?;
    if let Some(line) = contents(&bytes, now_unix_ms).faulty_line {
        return Err(RevocationFault::Line { path: path.into(), line });
    }
    let mut last: Vec<Revocation> = Vec::new();
    let mut known = HashSet::new();
    for line in bytes.split(|byte| *byte == b'\n').rev() {
        let Some(revocation) = Revocation::of_line(line) else { continue };
        if known.insert(revocation.what.clone()) && revocation.until.unix_ms() > now_unix_ms {
            last.push(revocation);
        }
    }
    last.reverse();
    Ok(last)
}

/// Adds a revocation. Once this returns, it outlives the machine's power.
///
/// # Errors
/// It is not written, or nobody can say whether it is.
pub fn revoke(path: &Path, revocation: &Revocation, now_unix_ms: u64) -> Result<(), RevocationFault> {
    let line = revocation.to_line().ok_or(RevocationFault::Label)? + "\n";
    let failed = |source| RevocationFault::Io { path: path.into(), source };
    // A node that has kept nothing yet has no directory for it either.
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let lock = open(OpenOptions::new().create(true).truncate(false).write(true), &path.with_extension("lock"));
    let lock = lock.map_err(failed)?;
    lock.lock().map_err(failed)?;
    let held = bytes(path)?;
    let read = contents(&held, now_unix_ms);
    // A line that is not understood may revoke something: nothing is built on such a file.
    if let Some(line) = read.faulty_line {
        return Err(RevocationFault::Line { path: path.into(), line });
    }
    let (lines, _) = whole_lines(&held);
    if lines.len() > COMPACTED_BYTES_MIN && read.list.len() < read.lines / 2 {
        let mut fresh = what_matters(lines, now_unix_ms);
        fresh.extend_from_slice(line.as_bytes());
        return write_anew(path, &fresh).map_err(failed);
    }
    if (lines.len() + line.len()) as u64 > BYTES_MAX {
        return Err(RevocationFault::TooLarge { path: path.into() });
    }
    append(path, lines.len() as u64, &line).map_err(failed)
}

/// The lines that are still of matter: the last about each thing, unless it has ended.
fn what_matters(lines: &[u8], now_ms: u64) -> Vec<u8> {
    let mut known = HashSet::new();
    let mut kept: Vec<&[u8]> = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n').rev() {
        let Some(revocation) = Revocation::of_line(line) else { continue };
        let matters = revocation.until.matters(now_ms);
        if known.insert(revocation.what) && matters {
            kept.push(line);
        }
    }
    kept.reverse();
    kept.concat()
}

fn append(path: &Path, whole_bytes: u64, line: &str) -> io::Result<()> {
    let mut file = open(OpenOptions::new().create(true).append(true), path)?;
    if file.metadata()?.len() > whole_bytes {
        file.set_len(whole_bytes)?;
    }
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    // A file that did not exist before has a name to be kept, too.
    if whole_bytes == 0 { sync_directory(path) } else { Ok(()) }
}

fn write_anew(path: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = open(OpenOptions::new().create(true).truncate(true).write(true), &fresh)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_directory(path)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()
}

/// Others may read it: ids are no secrets, and the appliance may run as somebody else than who revokes.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    Version::of(path)?;
    options.mode(0o644).open(path)
}

#[cfg(test)]
mod tests {
    use super::super::{Revoked, Until};
    use super::*;
    use crate::caller::testing::caller;

    const NOW: u64 = 1_764_424_000_000;

    fn grant(id: &str, until: u64) -> Revocation {
        Revocation { what: Revoked::Grant(id.into()), at_unix_ms: NOW, until: Until::UnixMs(until) }
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        assert_eq!(read(&path, NOW).unwrap().list, List::default());
        revoke(&path, &grant("g1", NOW + 1000), NOW).unwrap();
        revoke(&path, &grant("g2", NOW + 1000), NOW).unwrap();
        let list = read(&path, NOW).unwrap().list;
        assert!(list.covers(&caller("acme", "g1", None), NOW) && list.covers(&caller("acme", "g2", None), NOW));
        assert!(!list.covers(&caller("acme", "g3", None), NOW));
        let listed: Vec<_> =
            revoked(&path, NOW).unwrap().into_iter().map(|revocation| revocation.what.to_string()).collect();
        assert_eq!(listed, ["grant g1", "grant g2"]);
        assert_eq!(revoked(&path, NOW + 1000).unwrap(), []);
        let odd = Revocation { what: Revoked::Grant("a b".into()), ..grant("x", 0) };
        assert!(matches!(revoke(&path, &odd, NOW), Err(RevocationFault::Label)));
    }

    #[test]
    fn a_line_that_was_cut_off_hides_nothing_written_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        revoke(&path, &grant("g1", NOW + 1000), NOW).unwrap();
        let whole = text(&path);
        fs::write(&path, format!("{whole}{}", &whole[..whole.len() / 2])).unwrap();
        let contents = read(&path, NOW).unwrap();
        assert_eq!((contents.list.len(), contents.faulty_line), (1, None));
        revoke(&path, &grant("g2", NOW + 1000), NOW).unwrap();
        assert_eq!(text(&path).lines().count(), 2);
        assert_eq!(read(&path, NOW).unwrap().list.len(), 2);
        // Whole but for its end, as some editors leave it.
        fs::write(&path, whole.trim_end()).unwrap();
        assert_eq!(read(&path, NOW).unwrap().list.len(), 1);
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        fs::write(&path, "{\"at\":1,\"tenant\":\"acme\"}\n{\"at\":1,\"key\":\"later\"}\n").unwrap();
        let contents = read(&path, NOW).unwrap();
        assert_eq!(contents.faulty_line, Some(2));
        assert!(contents.list.covers(&caller("acme", "g", None), NOW), "what can be read is");
        assert!(matches!(revoke(&path, &grant("g1", NOW), NOW), Err(RevocationFault::Line { line: 2, .. })));
        assert_eq!(text(&path).lines().count(), 2);

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(read(&path, NOW), Err(RevocationFault::Io { .. })));
    }

    #[test]
    fn what_has_ended_is_written_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let lasting = Revocation {
            what: Revoked::Tenant(domain::TenantId::parse("acme").unwrap()),
            at_unix_ms: NOW,
            until: Until::Lifted,
        };
        let mut lines = lasting.to_line().unwrap() + "\n";
        let many = COMPACTED_BYTES_MIN / 50;
        for n in 0..many {
            lines += &(grant(&format!("g{n}"), NOW + 1000).to_line().unwrap() + "\n");
        }
        fs::write(&path, &lines).unwrap();
        revoke(&path, &grant("late", NOW + 1000), NOW).unwrap();
        assert_eq!(text(&path).lines().count(), many + 2, "nothing has ended yet");
        let later = NOW + 1000 + super::super::KEPT_MS;
        revoke(&path, &grant("later", later + 1000), later).unwrap();
        assert_eq!(text(&path).lines().count(), 2);
        let list = read(&path, later).unwrap().list;
        assert!(list.covers(&caller("acme", "x", None), later) && list.covers(&caller("beta", "later", None), later));
    }

    #[test]
    fn a_first_revocation_makes_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/of/it/grants.revoked");
        revoke(&path, &grant("one", NOW + 1), NOW).unwrap();
        assert!(text(&path).contains("one"));
    }
}
