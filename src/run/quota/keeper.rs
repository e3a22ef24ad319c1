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

/// What becomes of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    TakenUp,
    /// Past, or without room.
    Useless,
    Damaged,
}

/// What a restart found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Restored {
    breakers: usize,
    baselines: usize,
    damaged: usize,
}

impl Keeper {
    /// Takes up what the journal has.
    pub(super) fn new(journal: InProcess, guards: Guards, rules: Arc<InForce>, clock: Arc<dyn Clock>) -> Self {
        let lines = Lines::new(Arc::clone(&clock));
        let keeper = Self { journal, guards, rules, clock, lines, noted: Mutex::default(), counts: Counts::default() };
        let Restored { breakers, baselines, damaged } = keeper.restore();
        keeper.counts.restored.store((breakers + baselines) as u64, Ordering::Relaxed);
        keeper.counts.damaged.store(damaged as u64, Ordering::Relaxed);
        if damaged > 0 {
            tracing::error!(damaged, "notes of breakers and baselines are not what was written: they are dropped");
        }
        tracing::info!(breakers, baselines, "breakers and baselines are as they were");
        keeper
    }

    fn restore(&self) -> Restored {
        let (rules, now) = (self.rules.now(), self.now());
        let Guards { breakers, runaways } = &self.guards;
        let (open, damaged) =
            self.take_up(NoteKind::Breaker, |pair, record| match breakers.restore(pair, &rules.breaker, record, now) {
                Ok(breaker::Restored::Open { .. } | breaker::Restored::Known) => Note::TakenUp,
                Ok(breaker::Restored::Stale | breaker::Restored::NoRoom) => Note::Useless,
                Err(_) => Note::Damaged,
            });
        let (baselines, more) =
            self.take_up(NoteKind::Baseline, |pair, record| match runaways.restore(pair, record, now) {
                Ok(runaway::Restored::Watched | runaway::Restored::Known) => Note::TakenUp,
                Ok(runaway::Restored::NoRoom) => Note::Useless,
                Err(_) => Note::Damaged,
            });
        Restored { breakers: open, baselines, damaged: damaged + more }
    }

    /// Takes up every note of a kind, and drops those of which nothing came; how many were taken up, and how many were
    /// not what was written.
    fn take_up(&self, kind: NoteKind, mut restore: impl FnMut(PairKey, &[u8]) -> Note) -> (usize, usize) {
        let (mut taken_up, mut damaged) = (0, 0);
        for (key, bytes) in self.journal.notes(kind) {
            let read = note::open(kind, &key, &bytes);
            let note = read.map_or(Note::Damaged, |(pair, record)| restore(pair, record));
            match (note, read) {
                (Note::TakenUp, Some((pair, _))) => {
                    self.noted().of(kind).insert(pair);
                    taken_up += 1;
                    continue;
                }
                (Note::TakenUp | Note::Useless, _) => {}
                (Note::Damaged, _) => damaged += 1,
            }
            if self.journal.note_later(kind, &key, None).is_err() {
                self.counts.unwritten.fetch_add(1, Ordering::Relaxed);
            }
        }
        (taken_up, damaged)
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
        let mut events = Vec::new();
        self.guards.breakers.sweep(now);
        self.guards.runaways.sweep(&rules.runaway, now, |key, event| events.push((key, event)));
        for (key, event) in events {
            self.lines.runaway(key, None, event);
            self.keep(NoteKind::Baseline, key);
        }
        for key in self.stale_breakers(now) {
            self.keep(NoteKind::Breaker, key);
        }
        self.due_baselines(&rules.runaway)
    }

    /// Those whose note is of nothing any more, and all open ones if one could not be written.
    fn stale_breakers(&self, now: Now) -> Vec<PairKey> {
        let breakers = &self.guards.breakers;
        let (owes, noted) = {
            let mut noted = self.noted();
            (std::mem::take(&mut noted.owes), noted.breakers.iter().copied().collect::<Vec<_>>())
        };
        let mut stale: Vec<_> = noted.into_iter().filter(|key| breakers.record(*key, now).is_none()).collect();
        if owes {
            breakers.records(now, |key, _| stale.push(key));
        }
        stale
    }

    /// Those whose turn it is, watched or forgotten; on the way it is counted how many are held back.
    fn due_baselines(&self, rules: &runaway::Rules) -> Vec<PairKey> {
        let turn = {
            let mut noted = self.noted();
            noted.turn = (noted.turn + 1) % TURNS;
            noted.turn
        };
        let (mut due, mut throttled, mut paused) = (HashSet::new(), 0, 0);
        self.guards.runaways.verdicts(rules, |key, verdict| {
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

    fn announced(&self, key: PairKey) {
        // Else a crash within the hour would make a runaway of what was announced.
        self.keep(NoteKind::Baseline, key);
    }

    fn parked(&self, whose: &Whose<'_>, level: &'static str, release_ms: u64) {
        self.lines.parked(whose, level, release_ms);
    }
}

/// In which sweep of an hour a key's baseline is written. Keys are digests.
fn turn_of(key: PairKey) -> u64 {
    let [.., a, b, c, d] = key.to_bytes();
    const { assert!(PAIR_KEY_BYTES >= 4) };
    u64::from(u32::from_be_bytes([a, b, c, d])) % TURNS
}
