//! Says that something changed: the appliance's file, a tenant's file, or a secret.
//!
//! It only says so; what changed is found by loading again, which parses nothing that is as it was. Events come from
//! inotify where that works, and from looking again every few seconds where it does not: on network file systems,
//! and where the limit of watches is used up.
//!
//! Events follow a link once, when they are set up: of what a link leads to later, or of a file that is written through
//! one, nothing is heard. So somebody looks beside the events too, less often.

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

/// Between two looks beside events: who switches a link waits no longer than for most deployments to go through.
const BESIDE: Duration = Duration::from_secs(30);

/// A directory that takes long to look at is looked at less often: at most a fiftieth of a core.
const SHARE: u32 = 50;

/// How much a look gives way to deliveries, as a reload does.
const NICENESS: i32 = 10;

/// How often somebody looks.
#[derive(Debug, Clone, Copy)]
struct Every {
    alone: Duration,
    beside: Duration,
}

/// What is watched.
#[derive(Debug, Clone)]
struct Watched {
    file: PathBuf,
    tenants: PathBuf,
    /// Files elsewhere that are only looked at: certificates, which are exchanged days before they end.
    others: Vec<PathBuf>,
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
    /// be had, it looks again every ten seconds, and where they can, every thirty, for what events do not say. Start it
    /// before the files are loaded: what changes after this call is told.
    pub fn start(file: &Path, appliance: &Appliance) -> Self {
        let tenants = appliance.tenants.directory.clone();
        let others = [appliance.egress.tls.files(), appliance.runner.api.files()].concat();
        let watched = Watched { file: absolute(file), tenants: absolute(&tenants), others };
        Self::with(watched, Every { alone: POLL, beside: BESIDE }, SystemClock::shared(), false)
    }

    fn with(watched: Watched, every: Every, clock: Arc<dyn Clock>, only_poll: bool) -> Self {
        let (sender, changes) = watch::channel(0);
        let remote = only_poll || poll::is_remote(&watched.tenants) || poll::is_remote(&watched.file);
        let events = if remote { None } else { events_of(&watched) };
        let seen = poll::look(&watched);
        let started = pipe().and_then(|(stopped, stop)| {
            let body = move || {
                // Everybody may lower a priority: only a sandbox can refuse it, and then the looks are felt.
                if let Err(error) = rustix::process::nice(NICENESS) {
                    tracing::debug!(%error, "watching keeps its priority");
                }
                let watch = Watch { watched, every, stopped, changes: sender, clock };
                watch.run(events, seen, remote);
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
    every: Every,
    stopped: PipeReader,
    changes: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

impl Watch {
    fn run(&self, mut events: Option<Events>, mut seen: u64, remote: bool) {
        loop {
            let went_on = match events.take() {
                Some(events) => self.listen(events, seen).map(|seen| (None, seen)),
                None => self.look_again(seen, remote),
            };
            let Some(next) = went_on else { return };
            (events, seen) = next;
        }
    }

    /// Until it is time to stop, or until there are no events any more: then what was seen last.
    fn listen(&self, mut events: Events, mut seen: u64) -> Option<u64> {
        let mut next = self.clock.monotonic().saturating_add(self.every.beside);
        loop {
            let heard = match self.wait(Some(&events), Some(next.saturating_sub(self.clock.monotonic()))) {
                Woken::Stop => return None,
                Woken::TimeUp | Woken::Heard(Heard::Nothing) => Heard::Nothing,
                Woken::Heard(first) => {
                    let more = &mut |time| self.wait(Some(&events), Some(time));
                    settle(first, more, &*self.clock)?
                }
            };
            if heard == Heard::Nothing && self.clock.monotonic() < next {
                continue;
            }
            // Looked at before it is told: what changes from here on is another change.
            let (now, pause) = self.look(self.every.beside);
            next = self.clock.monotonic().saturating_add(pause);
            let unheard = heard == Heard::Nothing;
            if unheard && now == seen {
                continue;
            }
            seen = now;
            if unheard || heard == Heard::Elsewhere {
                // Anew, and not what is missing: the watches of what was moved away, and of where a link led, go with the
                // old ones.
                drop(events);
                let Some(anew) = events_of(&self.watched) else {
                    self.tell();
                    return Some(seen);
                };
                events = anew;
            }
            self.tell();
        }
    }

    /// Until it is time to stop, or until there are events: what kept them away may pass, such as too many open files.
    fn look_again(&self, mut seen: u64, remote: bool) -> Option<(Option<Events>, u64)> {
        let mut pause = self.every.alone;
        while self.wait(None, Some(pause)) != Woken::Stop {
            let began = self.clock.monotonic();
            // Before the look, so that nothing is missed in between.
            let events = if remote { None } else { Events::start(&self.watched).ok() };
            let tried = self.clock.monotonic().saturating_sub(began);
            let now;
            (now, pause) = self.look(self.every.alone);
            pause = pause.max(tried * SHARE);
            if now != seen {
                seen = now;
                self.tell();
            }
            if events.is_some() {
                return Some((events, seen));
            }
        }
        None
    }

    /// What is seen, and how long to wait until the next look.
    fn look(&self, pause: Duration) -> (u64, Duration) {
        let began = self.clock.monotonic();
        let now = poll::look(&self.watched);
        (now, pause.max(self.clock.monotonic().saturating_sub(began) * SHARE))
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
