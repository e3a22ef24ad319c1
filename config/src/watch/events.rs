//! Events of inotify about what is read: the appliance's file, the tenants' directory, and the secrets in it.
//!
//! Only what changes is asked for. Reading makes no events: a reload of a hundred thousand files is no reason for the
//! next one, and loses none. A directory of secrets costs this process nothing: whatever is heard of a watch that is not one
//! of the three that are remembered is about a secret.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, Event, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

use super::Watched;

const ASKED: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// A directory itself is not what it was.
const GONE: ReadFlags = ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF).union(ReadFlags::UNMOUNT);

/// Read in one go: the kernel's own queue is no longer than this by default. Whoever writes faster than they are read
/// is heard again.
const EVENTS_AT_ONCE: usize = 16_384;

/// What events came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Heard {
    Nothing,
    Changed,
    /// Something changed, and directories are not where they were, or events were lost: what is watched has to be set up
    /// anew.
    Elsewhere,
}

#[derive(Debug)]
pub(super) struct Events {
    inotify: OwnedFd,
    file: PathBuf,
    tenants: PathBuf,
    /// The directory that the appliance's file is in, and the one that the tenants' directory is in.
    beside: i32,
    above: i32,
    /// None while there is no such directory.
    within: Option<i32>,
}

impl Events {
    /// Fails where there are not enough watches for everything.
    pub(super) fn start(watched: &Watched) -> Result<Self, Errno> {
        let Watched { file, tenants, others: _ } = watched.clone();
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let parent = |path: &Path| add_watch(&inotify, path.parent().unwrap_or(path), ASKED);
        let (beside, above) = (parent(&file)?, parent(&tenants)?);
        let within = match add_watch(&inotify, &tenants, ASKED) {
            Ok(within) => Some(within),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(fault) => return Err(fault),
        };
        let events = Self { inotify, file, tenants, beside, above, within };
        // One that cannot be listed now is told by the load.
        for entry in std::fs::read_dir(&events.tenants).into_iter().flatten().flatten() {
            events.watch_secrets(entry.file_name().as_bytes())?;
        }
        Ok(events)
    }

    fn watch_secrets(&self, name: &[u8]) -> Result<(), Errno> {
        if !is_of_secrets(name) {
            return Ok(());
        }
        match add_watch(&self.inotify, self.tenants.join(std::ffi::OsStr::from_bytes(name)), ASKED) {
            // It is gone again, or is none; that it cannot be entered is told by the load.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// What happened since the last time, without waiting.
    pub(super) fn read(&self) -> Heard {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut heard = Heard::Nothing;
        for _ in 0..EVENTS_AT_ONCE {
            match reader.next() {
                Ok(event) => heard = heard.max(self.of(&event)),
                Err(Errno::AGAIN) => break,
                Err(_) => return Heard::Elsewhere,
            }
        }
        heard
    }

    fn of(&self, event: &Event<'_>) -> Heard {
        let (flags, wd) = (event.events(), event.wd());
        let name = event.file_name().map_or(b"".as_slice(), |name| name.to_bytes());
        if flags.intersects(ReadFlags::QUEUE_OVERFLOW) {
            return Heard::Elsewhere;
        }
        if flags.intersects(ReadFlags::IGNORED) {
            // The kernel took a watch away, after it said why.
            return Heard::Nothing;
        }
        let is = |path: &Path| path.file_name().is_some_and(|own| own.as_bytes() == name);
        let around = wd == self.beside || wd == self.above;
        if (around || Some(wd) == self.within) && flags.intersects(GONE) || wd == self.above && is(&self.tenants) {
            return Heard::Elsewhere;
        }
        if Some(wd) == self.within {
            return self.in_tenants(flags, name);
        }
        if around {
            // Mounted volumes swap a link named `..data` beside the files that lead through it.
            let concerns = wd == self.beside && (is(&self.file) || name.starts_with(b".."));
            return if concerns { Heard::Changed } else { Heard::Nothing };
        }
        Heard::Changed
    }

    fn in_tenants(&self, flags: ReadFlags, name: &[u8]) -> Heard {
        if !is_of_secrets(name) {
            return Heard::Changed;
        }
        let directory = flags.intersects(ReadFlags::ISDIR);
        if directory && flags.intersects(ReadFlags::CREATE) {
            return if self.watch_secrets(name).is_ok() { Heard::Changed } else { Heard::Elsewhere };
        }
        // A deleted directory takes its watch with it; one that was moved, and where a link leads, do not.
        let moved = flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO);
        let linked = !directory && flags.intersects(ReadFlags::CREATE | ReadFlags::DELETE);
        if moved || linked { Heard::Elsewhere } else { Heard::Changed }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Tenants' secrets are in `<tenant>.secrets`, which may be a link.
fn is_of_secrets(name: &[u8]) -> bool {
    name.ends_with(b".secrets")
}
