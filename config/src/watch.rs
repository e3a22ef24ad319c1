//! Says that something changed: the appliance's file, a tenant's file, or a secret.
//!
//! It only says so; what changed is found by loading again, which parses nothing that is as it was. Events come from
//! inotify where that works, and from looking again every few seconds where it does not: on network file systems,
//! and where the limit of watches is used up.

mod poll;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::{Clock, SystemClock};
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;

use crate::settings::Appliance;

/// A push writes many files: one signal once they have been quiet for this long…
const QUIET: Duration = Duration::from_millis(250);

/// …and in any case after this long, so that somebody who never stops writing cannot hold reloads up.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two looks where there are no events.
const POLL: Duration = Duration::from_secs(10);

/// Signals that wait to be looked at; more of them say nothing more.
const SIGNALS: usize = 16;

#[derive(Debug)]
enum Signal {
    Changed,
    /// The tenants' directory itself was replaced: the old watch looks at what is gone.
    Replaced,
    /// Events were lost: something may have changed.
    Lost,
    Stop,
}

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
    signals: SyncSender<Signal>,
    thread: Option<JoinHandle<()>>,
    polling: bool,
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
        let (signals, receiver) = sync_channel(SIGNALS);
        let (sender, changes) = watch::channel(0);
        let remote = only_poll || poll::is_remote(&watched.tenants) || poll::is_remote(&watched.file);
        let events = if remote { None } else { events(&watched, signals.clone()) };
        let polling = events.is_none();
        let seen = if polling { poll::look(&watched.file, &watched.tenants) } else { 0 };
        let body = move || match events {
            Some(events) => on_events(&watched, events, &receiver, &sender, &*clock),
            None => on_looks(&watched, poll, seen, &receiver, &sender, &*clock),
        };
        let thread = std::thread::Builder::new().name("config-watch".into()).spawn(body);
        if let Err(fault) = &thread {
            tracing::error!(%fault, "changed files are not noticed: no thread to watch them; send SIGHUP to reload");
        }
        Self { changes, signals, thread: thread.ok(), polling }
    }

    /// Waits until something changed since the last time; false once nothing will be said any more.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }

    /// Whether it looks again every few seconds, because there are no events.
    pub fn is_polling(&self) -> bool {
        self.polling
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Fails only if the thread is gone already.
        drop(self.signals.send(Signal::Stop));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Events of both, or none where they cannot be had.
fn events(watched: &Watched, signals: SyncSender<Signal>) -> Option<RecommendedWatcher> {
    let tried = || -> notify::Result<RecommendedWatcher> {
        let of = watched.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let signal = match event {
                Ok(event) => signal_of(&of, &event),
                // A watch that went: look at everything.
                Err(_) => Some(Signal::Lost),
            };
            if let Some(signal) = signal {
                // A full queue holds one that says the same.
                drop(signals.try_send(signal));
            }
        })?;
        for parent in [watched.file.parent(), watched.tenants.parent()].into_iter().flatten() {
            watcher.watch(parent, RecursiveMode::NonRecursive)?;
        }
        watcher.watch(&watched.tenants, RecursiveMode::Recursive)?;
        Ok(watcher)
    };
    match tried() {
        Ok(watcher) => Some(watcher),
        Err(fault) => {
            let every = crate::units::format_duration(POLL);
            tracing::warn!(%fault, every, "no events about changed files; looking again at intervals");
            None
        }
    }
}

fn signal_of(watched: &Watched, event: &Event) -> Option<Signal> {
    // A reload reads files; it must not be the reason for the next one.
    let reading = matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
    if reading {
        return None;
    }
    if event.need_rescan() {
        return Some(Signal::Lost);
    }
    if event.paths.contains(&watched.tenants) {
        return Some(Signal::Replaced);
    }
    let concerns = |path: &PathBuf| {
        let beside = path.parent() == watched.file.parent();
        // Mounted volumes swap a link named `..data` beside the files that lead through it.
        let swapped = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".."));
        *path == watched.file || path.starts_with(&watched.tenants) || (beside && swapped)
    };
    event.paths.iter().any(concerns).then_some(Signal::Changed)
}

fn on_events(
    watched: &Watched,
    mut watcher: RecommendedWatcher,
    signals: &Receiver<Signal>,
    changes: &watch::Sender<u64>,
    clock: &dyn Clock,
) {
    let mut seen = poll::look(&watched.file, &watched.tenants);
    while let Ok(signal) = signals.recv() {
        let Some(settled) = settle(signal, signals, clock) else { return };
        // Reading a hundred thousand files loses events by itself: only what is different now is a change. Else every
        // reload would be the reason for the next one.
        if settled == Settled::Lost {
            let now = poll::look(&watched.file, &watched.tenants);
            if std::mem::replace(&mut seen, now) == now {
                continue;
            }
        }
        if settled != Settled::Changed
            && let Err(fault) = again(&mut watcher, &watched.tenants)
        {
            tracing::warn!(%fault, "the tenants' directory cannot be watched; changes in it are noticed on SIGHUP");
        }
        changes.send_modify(|count| *count += 1);
    }
}

fn again(watcher: &mut RecommendedWatcher, tenants: &Path) -> notify::Result<()> {
    // The old watch may be gone with its directory already.
    drop(watcher.unwatch(tenants));
    match watcher.watch(tenants, RecursiveMode::Recursive) {
        // It comes back: its parent is watched.
        Err(fault) if matches!(&fault.kind, notify::ErrorKind::PathNotFound) => Ok(()),
        Err(notify::Error { kind: notify::ErrorKind::Io(fault), .. }) if fault.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        other => other,
    }
}

/// What a burst of signals came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Changed,
    Replaced,
    /// Nothing is known to have changed; something may have.
    Lost,
}

/// Waits until it is quiet; none where it is time to stop.
fn settle(first: Signal, signals: &Receiver<Signal>, clock: &dyn Clock) -> Option<Settled> {
    let until = clock.monotonic() + PATIENCE;
    let mut settled = Settled::Lost;
    let mut next = Ok(first);
    loop {
        match next {
            Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(Signal::Replaced) => settled = Settled::Replaced,
            Ok(Signal::Changed) if settled == Settled::Lost => settled = Settled::Changed,
            Ok(Signal::Changed | Signal::Lost) => {}
            Err(RecvTimeoutError::Timeout) => return Some(settled),
        }
        if clock.monotonic() >= until {
            return Some(settled);
        }
        next = signals.recv_timeout(QUIET);
    }
}

fn on_looks(
    watched: &Watched,
    every: Duration,
    mut seen: u64,
    signals: &Receiver<Signal>,
    changes: &watch::Sender<u64>,
    clock: &dyn Clock,
) {
    let mut pause = every;
    loop {
        match signals.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let began = clock.monotonic();
        let now = poll::look(&watched.file, &watched.tenants);
        // A directory that takes long to look at is looked at less often: at most a fiftieth of a core.
        pause = every.max(clock.monotonic().saturating_sub(began) * 50);
        if now != seen {
            seen = now;
            changes.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests;
