//! What a running node knows of revocations.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use domain::{Clock, TenantId};
use tokio::sync::watch;

use super::List;
use super::file::{self, Contents, RevocationFault, Version};
use crate::caller::Caller;
use crate::looking::keep_looking;

/// The revocations that are in force on this node.
///
/// **When the file is faulty**, nothing that was revoked becomes valid: what was in force stays, what can still be read
/// is added, and liftings are not heeded. The fault is logged and kept for [`Revocations::fault`].
#[derive(Debug)]
pub struct Revocations {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    list: ArcSwap<List>,
    seen: Mutex<Seen>,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Seen {
    file: Which,
    fault: Option<String>,
}

/// Which file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// This one.
    This(Version),
    /// None, as there was none.
    Missing,
    /// It could not be read, and has to be read whatever it is.
    Unread,
}

impl Revocations {
    /// Reads the file in this directory.
    ///
    /// # Errors
    /// It is there and cannot be read whole: then nobody knows what is revoked, and there is no earlier list to go by.
    pub fn open(state_directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, RevocationFault> {
        let path = state_directory.join(file::FILE_NAME);
        // Before it is read: what is written in between is read again.
        let found = which(&path)?;
        let Contents { list, faulty_line, .. } = file::read(&path, clock.unix_ms())?;
        if let Some(line) = faulty_line {
            return Err(RevocationFault::Line { path, line });
        }
        let seen = Mutex::new(Seen { file: found, fault: None });
        Ok(Self { path, clock, list: ArcSwap::from_pointee(list), seen, changes: watch::Sender::new(0) })
    }

    /// Nothing is revoked, and nothing will be: for commands and tests that have no state directory.
    pub fn none(clock: Arc<dyn Clock>) -> Self {
        let seen = Mutex::new(Seen { file: Which::Missing, fault: None });
        let (list, changes) = (ArcSwap::default(), watch::Sender::new(0));
        Self { path: PathBuf::new(), clock, list, seen, changes }
    }

    /// Is this caller revoked?
    pub fn cover(&self, caller: &Caller) -> bool {
        self.list.load().covers(caller, self.clock.unix_ms())
    }

    /// Is everything revoked that is this tenant's?
    pub(in crate::caller) fn cover_all_of(&self, tenant: &TenantId) -> bool {
        self.list.load().covers_all_of(tenant, self.clock.unix_ms())
    }

    /// A number that changes whenever callers may have lost what they had: by a revocation, or by a reload. Who holds
    /// something open waits for it, and asks [`super::super::Callers::still_good`] again.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Tells everybody who waits.
    pub(in crate::caller) fn announce(&self) {
        self.changes.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// What is wrong with the file, if anything is.
    pub fn fault(&self) -> Option<String> {
        self.seen().fault.clone()
    }

    /// How many are in force or were of late, for metrics.
    pub fn count(&self) -> usize {
        self.list.load().len()
    }

    /// Looks at the file for ever, every [`LOOK_EVERY`](crate::LOOK_EVERY). Dropped when the node stops.
    pub async fn keep_looking(self: Arc<Self>) {
        keep_looking(self, "revocations", Self::look).await;
    }

    /// Looks once: reads the file again if it is another one.
    pub fn look(&self) {
        let mut seen = self.seen();
        let found = which(&self.path);
        if found.as_ref().is_ok_and(|found| *found == seen.file) {
            return;
        }
        let (file, fault) = match found {
            Err(fault) => (Which::Unread, Some(fault.to_string())),
            Ok(Which::Missing) if self.count() == 0 => (Which::Missing, None),
            Ok(Which::Missing) => (Which::Missing, Some(format!("{}: was taken away", self.path.display()))),
            Ok(found) => match self.take_in() {
                Ok(()) => (found, None),
                // It says the same until it is another file.
                Err(fault @ RevocationFault::Line { .. }) => (found, Some(fault.to_string())),
                Err(fault) => (Which::Unread, Some(fault.to_string())),
            },
        };
        match &fault {
            Some(fault) if seen.fault.as_ref() != Some(fault) => {
                tracing::error!(%fault, "revocations cannot be read: what was revoked stays so, what is new may be missed");
            }
            None if seen.fault.is_some() => tracing::info!("revocations can be read again"),
            Some(_) | None => {}
        }
        *seen = Seen { file, fault };
    }

    fn take_in(&self) -> Result<(), RevocationFault> {
        let contents = file::read(&self.path, self.clock.unix_ms())?;
        let before = self.list.load_full();
        let mut list = contents.list;
        if contents.faulty_line.is_some() {
            list.join(&before);
        }
        if list != *before {
            self.list.store(Arc::new(list));
            self.announce();
        }
        match contents.faulty_line {
            Some(line) => Err(RevocationFault::Line { path: self.path.clone(), line }),
            None => Ok(()),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn which(path: &Path) -> Result<Which, RevocationFault> {
    let version = Version::of(path).map_err(|source| RevocationFault::Io { path: path.into(), source })?;
    Ok(version.map_or(Which::Missing, Which::This))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::fs;

    use domain::ManualClock;

    use super::super::{Revocation, Revoked, Until};
    use super::*;
    use crate::caller::testing::{NOW_MS, caller};

    struct Node {
        directory: tempfile::TempDir,
        revocations: Revocations,
    }

    impl Node {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let revocations = open(&directory).unwrap();
            Self { directory, revocations }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join(file::FILE_NAME)
        }

        fn revoke(&self, what: Revoked, until: Until) {
            file::revoke(&self.path(), &Revocation { what, at_unix_ms: NOW_MS, until }, NOW_MS).unwrap();
        }

        fn covers(&self, tenant: &str) -> bool {
            self.revocations.cover(&caller(tenant, "g1", None))
        }
    }

    fn open(directory: &tempfile::TempDir) -> Result<Revocations, RevocationFault> {
        Revocations::open(directory.path(), ManualClock::at_unix_ms(NOW_MS))
    }

    fn tenant(name: &str) -> Revoked {
        Revoked::Tenant(TenantId::parse(name).unwrap())
    }

    #[test]
    fn a_line_in_the_file_is_in_force_after_a_look_and_after_a_restart() {
        let node = Node::new();
        let mut changes = node.revocations.watch();
        node.revocations.look();
        assert!(!changes.has_changed().unwrap() && !node.covers("acme"));
        node.revoke(tenant("acme"), Until::Lifted);
        node.revocations.look();
        assert!(changes.has_changed().unwrap() && node.covers("acme") && !node.covers("beta"));
        changes.mark_unchanged();
        node.revocations.look();
        assert!(!changes.has_changed().unwrap());
        assert!(open(&node.directory).unwrap().cover(&caller("acme", "g1", None)));
        node.revoke(tenant("acme"), Until::Now);
        node.revocations.look();
        assert!(changes.has_changed().unwrap() && !node.covers("acme"));
    }

    #[test]
    fn a_faulty_file_takes_nothing_back() {
        let node = Node::new();
        node.revoke(tenant("acme"), Until::Lifted);
        node.revocations.look();
        // A line that is not understood, then a lifting, which is not heeded, and a revocation, which is.
        let more = "what\n{\"at\":1,\"tenant\":\"acme\",\"lifted\":true}\n{\"at\":1,\"tenant\":\"beta\"}\n";
        fs::write(node.path(), more).unwrap();
        node.revocations.look();
        assert!(node.covers("acme") && node.covers("beta"));
        assert!(node.revocations.fault().unwrap().contains(":1:"));
        node.revocations.look();
        assert!(node.revocations.fault().is_some(), "the same file says the same");
        assert!(matches!(open(&node.directory), Err(RevocationFault::Line { line: 1, .. })), "nobody starts with it");

        fs::write(node.path(), &more["what\n".len()..]).unwrap();
        node.revocations.look();
        assert!(!node.covers("acme") && node.covers("beta") && node.revocations.fault().is_none());
    }

    #[test]
    fn a_file_that_goes_away_or_cannot_be_read_takes_nothing_back() {
        let node = Node::new();
        node.revoke(tenant("acme"), Until::Lifted);
        node.revocations.look();
        let aside = node.path().with_extension("aside");
        fs::rename(node.path(), &aside).unwrap();
        node.revocations.look();
        assert!(node.covers("acme") && node.revocations.fault().unwrap().contains("taken away"));
        fs::create_dir(node.path()).unwrap();
        node.revocations.look();
        assert!(node.covers("acme") && node.revocations.fault().unwrap().contains("no regular file"));
        fs::remove_dir(node.path()).unwrap();
        fs::rename(&aside, node.path()).unwrap();
        node.revocations.look();
        assert!(node.covers("acme") && node.revocations.fault().is_none(), "the same file is read again");
    }

    #[tokio::test]
    async fn it_keeps_looking() {
        let node = Node::new();
        let revocations = Arc::new(open(&node.directory).unwrap());
        let mut changes = revocations.watch();
        let looking = tokio::spawn(Arc::clone(&revocations).keep_looking());
        node.revoke(tenant("acme"), Until::Lifted);
        let within = Duration::from_secs(10);
        tokio::time::timeout(within, changes.changed()).await.expect("somebody looked").unwrap();
        assert!(revocations.cover(&caller("acme", "g1", None)));
        looking.abort();
    }
}
