//! What breakers and runaways know, kept over the process in the journal: written as it changes, read at the next start.
//!
//! **An open breaker** is written when it opens and dropped when it closes: the line in the journal is on its way before
//! the caller of [`Watcher::breaker`] goes on, and on disk within milliseconds. **A baseline** is written once an hour, a
//! part of all with each sweep, when its key is throttled or paused, and at the end. After a crash an hour is missing.
//!
//! A note that is not what was written is dropped and counted ([`note`]), and so is one of a record that is not known. What
//! cannot be written now (the journal takes nothing, or its queue is full) is counted, and breakers are written again with
//! the next sweep.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::Clock;
use egress::quota::{Watcher, Whose};
use ratelimit::breaker::{self, Breakers};
use ratelimit::quota::{InProcess, NoteKind};
use ratelimit::runaway::{self, Runaways, Verdict};
use ratelimit::{Bounds, Now, PAIR_KEY_BYTES, PairKey};

use super::figures::InForce;
use super::lines::Lines;
use super::note;

/// How often tables are swept: the length of a runaway's sample.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(20);
/// Sweeps in which every baseline is written once: an hour.
const TURNS: u64 = 180;
/// Notes that are queued before the disk is waited for: a hundredth of what the journal's queue holds.
const QUEUED_MAX: usize = 512;

/// Breakers: those of what fails now, some 200 bytes each.
const BREAKERS: Bounds = Bounds { per_tenant: 256, total: 1 << 18 };
/// Keys that are watched, and as many notes: some 600 bytes each in memory, 150 MiB for all.
const RUNAWAYS: Bounds = Bounds { per_tenant: 1_024, total: 1 << 18 };

/// The guards whose records outlive the process: one of each for all calls of this node.
#[derive(Debug, Clone)]
pub(crate) struct Guards {
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) runaways: Arc<Runaways>,
}

impl Guards {
    pub(super) fn new() -> Self {
        Self { breakers: Arc::new(Breakers::new(BREAKERS)), runaways: Arc::new(Runaways::new(RUNAWAYS)) }
    }
}

/// Keeps them.
#[derive(Debug)]
pub(crate) struct Keeper {
    journal: InProcess,
    pub(super) guards: Guards,
    rules: Arc<InForce>,
    /// The one that the guards are asked by.
    clock: Arc<dyn Clock>,
    lines: Lines,
    /// Held while a record is read and queued, so that the last one that is queued of a key is its latest.
    noted: Mutex<Noted>,
    pub(super) counts: Counts,
}

/// Keys that have a note.
#[derive(Debug, Default)]
struct Noted {
    breakers: HashSet<PairKey>,
    baselines: HashSet<PairKey>,
    /// A breaker's note could not be written.
    owes: bool,
    turn: u64,
}

impl Noted {
    fn of(&mut self, kind: NoteKind) -> &mut HashSet<PairKey> {
        match kind {
            NoteKind::Breaker => &mut self.breakers,
            NoteKind::Baseline => &mut self.baselines,
        }
    }
}

/// What the keeper counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) restored: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) unwritten: AtomicU64,
    /// As of the last sweep.
    pub(super) throttled: AtomicU64,
    pub(super) paused: AtomicU64,
}

/// What a restart found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) breakers: usize,
    pub(super) baselines: usize,
    pub(super) damaged: usize,
}

impl Keeper {
    /// Takes up what the journal has.
    pub(super) fn new(journal: InProcess, guards: Guards, rules: Arc<InForce>, clock: Arc<dyn Clock>) -> Self {
        let lines = Lines::new(Arc::clone(&clock));
        let keeper = Self { journal, guards, rules, clock, lines, noted: Mutex::default(), counts: Counts::default() };
        let Restored { breakers, baselines, damaged } = keeper.restore();
        if damaged > 0 {
            tracing::error!(damaged, "notes of breakers and baselines are not what was written: they are dropped");
        }
        tracing::info!(breakers, baselines, "breakers and baselines are as they were");
        keeper
    }

    fn restore(&self) -> Restored {
        let (rules, now) = (self.rules.now(), self.now());
        let mut restored = Restored::default();
        let mut noted = self.noted();
        for (key, bytes) in self.journal.notes(NoteKind::Breaker) {
            let read = note::open(NoteKind::Breaker, &key, &bytes);
            let is_kept = match read {
                Some((pair, record)) => match self.guards.breakers.restore(pair, &rules.breaker, record, now) {
                    Ok(breaker::Restored::Open { .. } | breaker::Restored::Known) => {
                        noted.breakers.insert(pair);
                        restored.breakers += 1;
                        true
                    }
                    Ok(breaker::Restored::Stale | breaker::Restored::NoRoom) => false,
                    Err(_) => damaged(&mut restored),
                },
                None => damaged(&mut restored),
            };
            if !is_kept {
                self.drop_note(NoteKind::Breaker, &key);
            }
        }
        for (key, bytes) in self.journal.notes(NoteKind::Baseline) {
            let read = note::open(NoteKind::Baseline, &key, &bytes);
            let is_kept = match read {
                Some((pair, record)) => match self.guards.runaways.restore(pair, record, now) {
                    Ok(runaway::Restored::Watched | runaway::Restored::Known) => {
                        noted.baselines.insert(pair);
                        restored.baselines += 1;
                        true
                    }
                    Ok(runaway::Restored::NoRoom) => false,
                    Err(_) => damaged(&mut restored),
                },
                None => damaged(&mut restored),
            };
            if !is_kept {
                self.drop_note(NoteKind::Baseline, &key);
            }
        }
        let count = |counter: &AtomicU64, number: usize| counter.fetch_add(number as u64, Ordering::Relaxed);
        count(&self.counts.restored, restored.breakers + restored.baselines);
        count(&self.counts.damaged, restored.damaged);
        restored
    }

    /// Sweeps for as long as the node serves.
    pub(super) async fn keep_sweeping(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            self.sweep().await;
        }
    }

    /// Forgets what says nothing any more, and its notes; writes the baselines whose turn it is. What looks at whole tables
    /// is kept off the threads that answer.
    pub(super) async fn sweep(self: &Arc<Self>) {
        let keeper = Arc::clone(self);
        let Ok(due) = tokio::task::spawn_blocking(move || keeper.look()).await else {
            tracing::error!("a sweep of breakers and baselines ended in a fault of ours");
            return;
        };
        self.write(NoteKind::Baseline, due).await;
    }

    /// Everything that is to be known at the next start. The journal is handed over afterwards.
    pub(super) async fn finish(self: &Arc<Self>) {
        let mut breakers = Vec::new();
        self.guards.breakers.records(self.now(), |key, _| breakers.push(key));
        self.write(NoteKind::Breaker, breakers).await;
        let mut baselines = Vec::new();
        self.guards.runaways.verdicts(&self.rules.now().runaway, |key, _| baselines.push(key));
        self.write(NoteKind::Baseline, baselines).await;
    }

    /// Breakers that have a note: open ones.
    pub(super) fn open_breakers(&self) -> usize {
        self.noted().breakers.len()
    }

    /// The part that looks at whole tables; the baselines that are due.
    fn look(&self) -> Vec<PairKey> {
        let (now, rules) = (self.now(), self.rules.now());
        let Guards { breakers, runaways } = &self.guards;
        breakers.sweep(now);
        let mut events = Vec::new();
        runaways.sweep(&rules.runaway, now, |key, event| events.push((key, event)));
        for (key, event) in events {
            self.lines.runaway(key, None, event);
            self.keep(NoteKind::Baseline, key);
        }
        let (owes, noted, turn) = {
            let mut noted = self.noted();
            noted.turn = (noted.turn + 1) % TURNS;
            (std::mem::take(&mut noted.owes), noted.breakers.iter().copied().collect::<Vec<_>>(), noted.turn)
        };
        let mut stale: Vec<_> = noted.into_iter().filter(|key| breakers.record(*key, now).is_none()).collect();
        if owes {
            breakers.records(now, |key, _| stale.push(key));
        }
        for key in stale {
            self.keep(NoteKind::Breaker, key);
        }
        let (mut due, mut throttled, mut paused) = (HashSet::new(), 0, 0);
        runaways.verdicts(&rules.runaway, |key, verdict| {
            match verdict {
                Verdict::Fine => {}
                Verdict::Throttled { .. } => throttled += 1,
                Verdict::Paused { .. } => paused += 1,
            }
            if turn_of(key) == turn {
                due.insert(key);
            }
        });
        self.counts.throttled.store(throttled, Ordering::Relaxed);
        self.counts.paused.store(paused, Ordering::Relaxed);
        // What has a note and is forgotten.
        due.extend(self.noted().baselines.iter().filter(|key| turn_of(**key) == turn));
        due.into_iter().collect()
    }

    async fn write(&self, kind: NoteKind, keys: Vec<PairKey>) {
        for keys in keys.chunks(QUEUED_MAX) {
            for key in keys {
                self.keep(kind, *key);
            }
            // Once more and waited for: then what was queued before is on disk.
            if let Some((key, note)) = keys.last().and_then(|key| Some((key, self.note_of(kind, *key)?)))
                && self.journal.note(kind, &key.to_bytes(), Some(&note)).await.is_err()
            {
                self.counts.unwritten.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Queues the note of a key as it is now, or that there is none.
    fn keep(&self, kind: NoteKind, key: PairKey) {
        let mut noted = self.noted();
        let note = self.note_of(kind, key);
        if note.is_none() && !noted.of(kind).contains(&key) {
            return;
        }
        if self.journal.note_later(kind, &key.to_bytes(), note.as_deref()).is_err() {
            self.counts.unwritten.fetch_add(1, Ordering::Relaxed);
            noted.owes |= kind == NoteKind::Breaker;
            return;
        }
        match note {
            Some(_) => noted.of(kind).insert(key),
            None => noted.of(kind).remove(&key),
        };
    }

    fn note_of(&self, kind: NoteKind, key: PairKey) -> Option<Vec<u8>> {
        let now = self.now();
        let sealed = |record: &[u8]| note::seal(kind, key, record);
        match kind {
            NoteKind::Breaker => self.guards.breakers.record(key, now).map(|record| sealed(&record)),
            NoteKind::Baseline => self.guards.runaways.record(key, now).map(|record| sealed(&record)),
        }
    }

    fn drop_note(&self, kind: NoteKind, key: &[u8]) {
        if self.journal.note_later(kind, key, None).is_err() {
            self.counts.unwritten.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn now(&self) -> Now {
        Now::of(&*self.clock)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Keeper {
    fn breaker(&self, key: PairKey, whose: &Whose<'_>, change: breaker::Change) {
        self.keep(NoteKind::Breaker, key);
        self.lines.breaker(key, whose, change);
    }

    fn runaway(&self, key: PairKey, whose: &Whose<'_>, event: runaway::Event) {
        self.keep(NoteKind::Baseline, key);
        self.lines.runaway(key, Some(whose), event);
    }

    fn parked(&self, whose: &Whose<'_>, level: &'static str, release_ms: u64) {
        self.lines.parked(whose, level, release_ms);
    }
}

fn damaged(restored: &mut Restored) -> bool {
    restored.damaged += 1;
    false
}

/// In which sweep of an hour a key's baseline is written. Keys are digests.
fn turn_of(key: PairKey) -> u64 {
    let [.., a, b, c, d] = key.to_bytes();
    const { assert!(PAIR_KEY_BYTES >= 4) };
    u64::from(u32::from_be_bytes([a, b, c, d])) % TURNS
}
