//! Says that something changed: the appliance's file, a tenant's file, or a secret.
//!
//! It only says so; what changed is found by loading again, which parses nothing that is as it was. Events come from
//! inotify where that works, and from looking again every few seconds where it does not: on network file systems,
//! and where the limit of watches is used up.

mod events;
mod poll;

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use domain::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::sync::watch;

use self::events::{Events, Heard};
use crate::settings::Appliance;

/// A push writes many files: one signal once they have been quiet for this long…
const QUIET: Duration = Duration::from_millis(250);

/// …and in any case after this long, so that somebody who never stops writing cannot hold reloads up.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two looks where there are no events.
const POLL: Duration = Duration::from_secs(10);

/// What is watched.
#[derive(Debug, Clone)]
struct Watched {
    file: PathBuf,
    tenants: PathBuf,
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    changes: watch::Receiver<u64>,
    /// The thread ends when this end of the pipe is closed.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Watches the appliance's file and the tenants' directory with its secrets. It always works: where events cannot
    /// be had, it looks again every ten seconds. Start it before the files are loaded: what changes after this call
    /// is told.
    pub fn start(file: &Path, appliance: &Appliance) -> Self {
        let tenants = appliance.tenants.directory.clone();
        Self::with(Watched { file: absolute(file), tenants: absolute(&tenants) }, POLL, SystemClock::shared(), false)
    }

    fn with(watched: Watched, poll: Duration, clock: Arc<dyn Clock>, only_poll: bool) -> Self {
        let (sender, changes) = watch::channel(0);
        let remote = only_poll || poll::is_remote(&watched.tenants) || poll::is_remote(&watched.file);
        let events = if remote { None } else { events_of(&watched) };
        let seen = if events.is_none() { poll::look(&watched.file, &watched.tenants) } else { 0 };
        let started = pipe().and_then(|(stopped, stop)| {
            let body = move || {
                let watch = Watch { watched, poll, stopped, changes: sender, clock };
                match events {
                    Some(events) => watch.listen(events),
                    None => watch.look_again(seen),
                }
            };
            Ok((stop, std::thread::Builder::new().name("config-watch".into()).spawn(body)?))
        });
        if let Err(fault) = &started {
            tracing::error!(%fault, "changed files are not noticed: nothing can watch them; send SIGHUP to reload");
        }
        let (stop, thread) = started.ok().unzip();
        Self { changes, stop, thread }
    }

    /// Waits until something changed since the last time; false once nothing will be said any more.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// None where they cannot be had.
fn events_of(watched: &Watched) -> Option<Events> {
    let told = |fault: &Errno| {
        let every = crate::units::format_duration(POLL);
        tracing::warn!(%fault, every, "no events about changed files; looking again at intervals");
    };
    Events::start(watched).inspect_err(told).ok()
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Heard(Heard),
    /// Or somebody was interrupted: whoever waits looks at the clock.
    TimeUp,
    Stop,
}

/// The thread that watches.
struct Watch {
    watched: Watched,
    poll: Duration,
    stopped: PipeReader,
    changes: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

impl Watch {
    fn listen(&self, mut events: Events) {
        loop {
            let first = match self.wait(Some(&events), None) {
                Woken::Stop => return,
                Woken::TimeUp | Woken::Heard(Heard::Nothing) => continue,
                Woken::Heard(heard) => heard,
            };
            let next = &mut |time| self.wait(Some(&events), Some(time));
            let Some(heard) = settle(first, next, &*self.clock) else { return };
            if heard == Heard::Elsewhere {
                // Anew, and not what is missing: the watches of what was moved away go with the old ones.
                drop(events);
                let Some(anew) = events_of(&self.watched) else {
                    let seen = poll::look(&self.watched.file, &self.watched.tenants);
                    self.tell();
                    return self.look_again(seen);
                };
                events = anew;
            }
            self.tell();
        }
    }

    fn look_again(&self, mut seen: u64) {
        let mut pause = self.poll;
        while self.wait(None, Some(pause)) != Woken::Stop {
            let began = self.clock.monotonic();
            let now = poll::look(&self.watched.file, &self.watched.tenants);
            // A directory that takes long to look at is looked at less often: at most a fiftieth of a core.
            pause = self.poll.max(self.clock.monotonic().saturating_sub(began) * 50);
            if now != seen {
                seen = now;
                self.tell();
            }
        }
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn wait(&self, events: Option<&Events>, time: Option<Duration>) -> Woken {
        let time = time.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
        let mut on = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        on.extend(events.map(|events| PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)));
        match rustix::event::poll(&mut on, time.as_ref()) {
            // Nothing is ever written into the pipe: its other end is closed.
            Ok(_) if !on[0].revents().is_empty() => Woken::Stop,
            Ok(0) | Err(Errno::INTR) => Woken::TimeUp,
            Ok(_) => events.map_or(Woken::TimeUp, |events| Woken::Heard(events.read())),
            Err(fault) => {
                tracing::error!(%fault, "changed files are not noticed any more; send SIGHUP to reload");
                Woken::Stop
            }
        }
    }
}

/// Waits until it is quiet, and says what a burst of events came to; none where it is time to stop.
fn settle(first: Heard, next: &mut dyn FnMut(Duration) -> Woken, clock: &dyn Clock) -> Option<Heard> {
    let mut now = clock.monotonic();
    let (end, mut quiet, mut heard) = (now + PATIENCE, now + QUIET, first);
    while now < end.min(quiet) {
        match next(end.min(quiet).saturating_sub(now)) {
            Woken::Stop => return None,
            Woken::TimeUp | Woken::Heard(Heard::Nothing) => now = clock.monotonic(),
            Woken::Heard(more) => {
                heard = heard.max(more);
                now = clock.monotonic();
                quiet = now + QUIET;
            }
        }
    }
    Some(heard)
}

#[cfg(test)]
mod tests;
