//! Consumers' places on disk: one small file per group, replaced as a whole.
//!
//! A commit writes a new file beside the old one, syncs it, renames it over the old one and syncs the directory:
//! after a crash at any moment the group is at its old place or at its new one. Groups are few and commits are
//! batched by their nature, so a file each costs nothing and one damaged file harms one group.
//!
//! The file is text, so that an operator can look at it: a version line, the cursor, a CRC-32C of both.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::GroupError;
use crate::log::ConsumerGroups;
use crate::position::{Cursor, is_class_name};
use crate::segment::{RealStorage, Storage};

/// Most groups of one log. Each is a file; a consumer that makes up a name per run would fill the directory.
pub const GROUPS_MAX: usize = 1024;

const VERSION: &str = "tidegate-group 1";
const SUFFIX: &str = ".cursor";
/// A cursor of every lane that is allowed still fits; more is no cursor of ours and is not read into memory.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Groups under one directory.
#[derive(Debug)]
pub struct FileGroups {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    writable: bool,
    /// One writer at a time, so that groups are counted before they are made.
    writing: Mutex<()>,
}

pub(crate) fn check_name(group: &str) -> Result<(), GroupError> {
    if is_class_name(group) { Ok(()) } else { Err(GroupError::Name(group.chars().take(80).collect())) }
}

impl FileGroups {
    /// Creates the directory if need be, durably. What an interrupted commit left stays: it may be another process's,
    /// which is at it. Whoever knows that nobody else lives takes [`Self::temporary`] away.
    pub fn open(storage: Arc<dyn Storage>, directory: &Path) -> io::Result<Self> {
        storage.create_directory(directory)?;
        Ok(Self { storage, directory: directory.to_owned(), writable: true, writing: Mutex::new(()) })
    }

    /// Reads groups of a log that somebody else may be writing.
    pub fn open_read_only(directory: &Path) -> Self {
        let storage = Arc::new(RealStorage);
        Self { storage, directory: directory.to_owned(), writable: false, writing: Mutex::new(()) }
    }

    /// Files that commits are at, or that interrupted ones left.
    pub(crate) fn temporary(&self) -> io::Result<Vec<PathBuf>> {
        let mut names = self.files()?;
        names.retain(|name| {
            let of = name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.'));
            of.is_some_and(|(of, _)| of.ends_with(SUFFIX))
        });
        Ok(names.iter().map(|name| self.directory.join(name)).collect())
    }

    /// Removes those of them that nobody is at any more.
    pub(crate) fn clean(&self, left: &[PathBuf]) -> io::Result<()> {
        for path in left {
            match self.storage.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn path(&self, group: &str) -> PathBuf {
        self.directory.join(format!("{group}{SUFFIX}"))
    }

    fn files(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        let mut names = Vec::new();
        for entry in entries {
            // Names of ours are plain text.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let files = self.files()?;
        let mut names: Vec<_> = files.iter().filter_map(|name| name.strip_suffix(SUFFIX)).map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn render(cursor: &Cursor) -> String {
    let text = format!("{VERSION}\n{cursor}\n");
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{text}{sum:08x}\n")
}

fn parse(content: &str) -> Result<Cursor, &'static str> {
    let mut lines = content.lines();
    let (version, cursor, sum) = (lines.next(), lines.next(), lines.next());
    let (Some(version), Some(cursor), Some(_)) = (version, cursor, sum) else { return Err("it is cut short") };
    if version != VERSION {
        return Err("its version is unknown");
    }
    let cursor: Cursor = cursor.parse().map_err(|_| "it holds no cursor")?;
    if render(&cursor) == content { Ok(cursor) } else { Err("its checksum is wrong") }
}

impl ConsumerGroups for FileGroups {
    fn commit(&self, group: &str, cursor: &Cursor) -> Result<(), GroupError> {
        check_name(group)?;
        if !self.writable {
            return Err(GroupError::ReadOnly);
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let io = |source| GroupError::Io { group: group.to_owned(), source };
        if !self.path(group).exists() && self.names().map_err(io)?.len() >= GROUPS_MAX {
            return Err(GroupError::TooMany { max: GROUPS_MAX });
        }
        self.storage.put(&self.path(group), render(cursor).as_bytes()).map_err(io)
    }

    fn cursor(&self, group: &str) -> Result<Option<Cursor>, GroupError> {
        check_name(group)?;
        let file = match File::open(self.path(group)) {
            Ok(file) => file,
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(GroupError::Io { group: group.to_owned(), source }),
        };
        let mut content = Vec::new();
        file.take(FILE_BYTES_MAX)
            .read_to_end(&mut content)
            .map_err(|source| GroupError::Io { group: group.to_owned(), source })?;
        let damaged = |reason: &str| GroupError::Damaged { group: group.to_owned(), reason: reason.to_owned() };
        let content = std::str::from_utf8(&content).map_err(|_| damaged("it is no text"))?;
        parse(content).map(Some).map_err(damaged)
    }

    fn list(&self) -> Result<Vec<String>, GroupError> {
        self.names().map_err(|source| GroupError::List { source })
    }

    fn remove(&self, group: &str) -> Result<bool, GroupError> {
        check_name(group)?;
        if !self.writable {
            return Err(GroupError::ReadOnly);
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::remove_file(self.path(group)) {
            Ok(()) => {
                self.storage
                    .sync_directory(&self.directory)
                    .map_err(|source| GroupError::Io { group: group.to_owned(), source })?;
                Ok(true)
            }
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(GroupError::Io { group: group.to_owned(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{EmbeddedLog, Settings};
    use crate::log::EventLog;
    use crate::position::Position;
    use domain::{ManualClock, NodeId};

    fn open(directory: &Path) -> io::Result<FileGroups> {
        FileGroups::open(Arc::new(RealStorage), directory)
    }

    fn cursor(text: &str) -> Cursor {
        let position: Position = text.parse().unwrap();
        let mut cursor = Cursor::default();
        cursor.set(position.lane, position.place);
        cursor
    }

    #[test]
    fn places_survive_a_reopen_and_may_go_back() {
        let directory = tempfile::tempdir().unwrap();
        let groups = open(directory.path()).unwrap();
        assert_eq!(groups.cursor("runner").unwrap(), None);
        groups.commit("runner", &cursor("default.1.0.3.700")).unwrap();
        groups.commit("audit", &Cursor::default()).unwrap();
        drop(groups);

        let groups = open(directory.path()).unwrap();
        assert_eq!(groups.cursor("runner").unwrap(), Some(cursor("default.1.0.3.700")));
        assert_eq!(groups.cursor("audit").unwrap(), Some(Cursor::default()));
        assert_eq!(groups.list().unwrap(), ["audit", "runner"]);
        groups.commit("runner", &cursor("default.1.0.3.100")).unwrap();
        assert_eq!(groups.cursor("runner").unwrap(), Some(cursor("default.1.0.3.100")));
        assert!(groups.remove("runner").unwrap());
        assert!(!groups.remove("runner").unwrap());
        assert_eq!(groups.cursor("runner").unwrap(), None);
    }

    /// Whatever a crash leaves of the new file, the group is at its old place.
    #[test]
    fn an_interrupted_commit_leaves_the_old_place() {
        let directory = tempfile::tempdir().unwrap();
        let old = cursor("default.1.0.3.700");
        open(directory.path()).unwrap().commit("runner", &old).unwrap();
        let new = render(&cursor("default.1.0.4.12"));
        for cut in 0..new.len() {
            let left = directory.path().join("runner.cursor.77-0.tmp");
            fs::write(&left, &new[..cut]).unwrap();
            let groups = open(directory.path()).unwrap();
            assert_eq!(groups.cursor("runner").unwrap(), Some(old.clone()));
            assert_eq!(groups.list().unwrap(), ["runner"]);
            assert!(left.exists(), "it may be another process's, which is at it");
            groups.commit("runner", &old).unwrap();
            assert!(left.exists());
        }
    }

    /// Two processes of an upgrade commit the same group: each commit is whole, and none fails for the other's sake.
    #[test]
    fn two_processes_commit_one_group() {
        let directory = tempfile::tempdir().unwrap();
        let places = [cursor("default.1.0.3.700"), cursor("default.1.0.4.12")];
        std::thread::scope(|scope| {
            for place in &places {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let groups = open(directory.path()).unwrap();
                        groups.commit("runner", place).unwrap();
                        assert!(groups.cursor("runner").unwrap().is_some_and(|found| places.contains(&found)));
                    }
                });
            }
        });
    }

    #[test]
    fn what_an_interrupted_commit_left_goes_when_nobody_else_lives() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(&config::Log::default(), NodeId(1));
        settings.directory = directory.path().to_owned();
        settings.reserve_bytes = 0;
        let open = || EmbeddedLog::open(&settings, ManualClock::at_unix_ms(1)).unwrap().0;
        let log = open();
        log.groups().commit("runner", &cursor("default.1.0.3.700")).unwrap();
        let left = directory.path().join("groups/runner.cursor.00000000000000ff.tmp");
        fs::write(&left, "half").unwrap();
        let younger = open();
        assert!(left.exists(), "it may be the elder's, which is at it");
        drop((log, younger));
        let log = open();
        assert!(!left.exists());
        assert_eq!(log.groups().list().unwrap(), ["runner"]);
    }

    #[test]
    fn damage_is_named_and_never_read_as_a_place() {
        let directory = tempfile::tempdir().unwrap();
        let groups = open(directory.path()).unwrap();
        let good = render(&cursor("default.1.0.3.700")).into_bytes();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(directory.path().join("runner.cursor"), &bad).unwrap();
            assert!(matches!(groups.cursor("runner"), Err(GroupError::Damaged { .. })), "byte {at}");
            fs::write(directory.path().join("runner.cursor"), &good[..at]).unwrap();
            assert!(matches!(groups.cursor("runner"), Err(GroupError::Damaged { .. })), "cut at {at}");
        }
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let groups = open(directory.path()).unwrap();
        for name in ["", "..", "a/b", "a.b", ".new", &"a".repeat(65)] {
            assert!(matches!(groups.commit(name, &Cursor::default()), Err(GroupError::Name(_))), "{name}");
            assert!(matches!(groups.cursor(name), Err(GroupError::Name(_))), "{name}");
        }
    }

    #[test]
    fn a_read_only_view_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("groups");
        let groups = FileGroups::open_read_only(&missing);
        assert!(groups.list().unwrap().is_empty());
        assert!(matches!(groups.commit("runner", &Cursor::default()), Err(GroupError::ReadOnly)));
        assert!(matches!(groups.remove("runner"), Err(GroupError::ReadOnly)));
        assert!(!missing.exists());
    }
}
