//! The centre of one process: the pure centre behind a lock, with a journal.
//!
//! **Before use.** What an operation changed of long windows and parks is in the file, synced, before the operation is
//! answered. Operations that come meanwhile go into the next group, so that there is one sync per group and none per
//! call: grants are blocks.
//!
//! **After a crash** long windows and parks are as they were. Of short windows nothing is known, so that nothing of them
//! is granted until it could no longer matter, which is less than a minute ([`Memory::Journalled`]).
//!
//! **At an upgrade** [`InProcess::hand_over`] writes everything, also slots and short windows, and lets go of the file;
//! the successor goes on from there at once. What the predecessor's calls still hold stays counted.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;
use tokio::sync::oneshot;

use super::answer::{Answer, AskError, Reply};
use super::centre::Centre;
use super::core::{Core, Epoch, Memory, SweepCursor};
use super::journal::{self, Journal, NoteBytes, NoteError, NoteKind, Notes, OpenError};
use super::op::{Body, Op};

/// Records that wait for the disk, in bytes: beyond them nothing more is done.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How often buckets that nobody uses are looked for, and how many at a time.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_BUCKETS: usize = 2_000;

/// A centre in this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InProcess(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The writer has something to do.
    wake: Condvar,
    clock: Arc<dyn Clock>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    core: Core,
    time: Time,
    notes: Notes,
    sweep: SweepCursor,
    /// The next group, and who waits for it.
    records: Vec<u8>,
    waiters: Vec<oneshot::Sender<()>>,
    /// A group is being written.
    is_writing: bool,
    life: Life,
}

/// Where a centre is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Without a file: everything is forgotten at the end.
    Volatile,
    Open,
    /// The disk failed: nothing can be promised any more, and nothing is granted.
    Failed,
    /// Handed over to a successor, or about to be.
    Closed,
}

/// The centre's time: the wall clock's, but never back. Where the wall clock is behind, time runs at half its speed
/// until the two meet: windows are then too long, never too short.
#[derive(Debug, Clone, Copy)]
struct Time {
    now_ms: u64,
    monotonic_ms: u64,
}

impl Time {
    fn read(&mut self, clock: &dyn Clock) -> u64 {
        let monotonic_ms = u64::try_from(clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let passed_ms = monotonic_ms.saturating_sub(self.monotonic_ms);
        let wall_ms = clock.unix_ms();
        if wall_ms >= self.now_ms + passed_ms {
            *self = Self { now_ms: wall_ms, monotonic_ms };
        } else if passed_ms >= 2 {
            *self = Self { now_ms: wall_ms.max(self.now_ms + passed_ms / 2), monotonic_ms };
        }
        self.now_ms
    }
}

impl InProcess {
    /// A centre whose journal is this file, which is made where there is none.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, buckets_max: usize) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        let unknown = Epoch { id: 0, since_ms: 0, memory: Memory::Whole };
        let mut core = Core::new(unknown, buckets_max);
        let (mut journal, restored) = Journal::open(path, &mut core)?;
        let mut time = Time { now_ms: restored.last_ms, monotonic_ms: 0 };
        let monotonic_ms = u64::try_from(clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        time.now_ms = time.now_ms.max(clock.unix_ms());
        time.monotonic_ms = monotonic_ms;
        let is_whole = restored.unknown == 0 && (restored.was_handed_over || !restored.was_there);
        let memory = if is_whole { Memory::Whole } else { Memory::Journalled };
        core.resume(time.now_ms);
        core.begin(Epoch { id: time.now_ms.max(restored.last_ms + 1), since_ms: time.now_ms, memory });
        journal.begin(time.now_ms).map_err(failed)?;
        let centre = Self::of(core, time, restored.notes, clock, Life::Open);
        let shared = Arc::clone(&centre.0);
        let writer = thread::Builder::new().name("quota-journal".to_owned()).spawn(move || write(&shared, journal));
        *lock(&centre.0.writer) = Some(writer.map_err(failed)?);
        Ok(centre)
    }

    /// A centre without a file, which forgets everything with the process.
    pub fn volatile(clock: Arc<dyn Clock>, buckets_max: usize) -> Self {
        let monotonic_ms = u64::try_from(clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let time = Time { now_ms: clock.unix_ms(), monotonic_ms };
        let epoch = Epoch { id: time.now_ms, since_ms: time.now_ms, memory: Memory::Whole };
        Self::of(Core::new(epoch, buckets_max), time, Notes::default(), clock, Life::Volatile)
    }

    fn of(core: Core, time: Time, notes: Notes, clock: Arc<dyn Clock>, life: Life) -> Self {
        let state = State {
            core,
            time,
            notes,
            sweep: SweepCursor::default(),
            records: Vec::new(),
            waiters: Vec::new(),
            is_writing: false,
            life,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), clock, writer: Mutex::new(None) }))
    }

    /// Writes everything down and lets go of the file. What is asked from here on is refused, and is asked of the
    /// successor. An error is that of the disk: the successor then knows what was journalled, as after a crash.
    pub fn hand_over(&self) -> Result<(), NoteError> {
        {
            let mut state = lock(&self.0.state);
            if state.life == Life::Open {
                state.life = Life::Closed;
            }
            self.0.wake.notify_all();
        }
        if let Some(writer) = lock(&self.0.writer).take() {
            writer.join().map_err(|_| NoteError::Journal)?;
        }
        match lock(&self.0.state).life {
            Life::Failed => Err(NoteError::Journal),
            Life::Volatile | Life::Open | Life::Closed => Ok(()),
        }
    }

    /// Where it is in its life.
    pub fn life(&self) -> Life {
        lock(&self.0.state).life
    }

    /// Remembers a note, or that there is none any more. It is on disk when this returns.
    pub async fn note(&self, kind: NoteKind, key: &[u8], value: Option<&[u8]>) -> Result<(), NoteError> {
        match self.put(kind, key, value, true)? {
            Some(waiter) => waiter.await.map_err(|_| NoteError::Journal),
            None => Ok(()),
        }
    }

    /// The same, on disk some time soon: for what a crash may forget the newest of.
    pub fn note_later(&self, kind: NoteKind, key: &[u8], value: Option<&[u8]>) -> Result<(), NoteError> {
        self.put(kind, key, value, false).map(drop)
    }

    /// Every note of a kind, in the order of their keys: to begin with.
    pub fn notes(&self, kind: NoteKind) -> Vec<(NoteBytes, NoteBytes)> {
        lock(&self.0.state).notes.all(kind)
    }

    fn put(&self, kind: NoteKind, key: &[u8], value: Option<&[u8]>, waits: bool) -> Result<Option<Waiter>, NoteError> {
        let mut guard = lock(&self.0.state);
        let state = &mut *guard;
        let is_taking = matches!(state.life, Life::Volatile | Life::Open) && state.records.len() < WAITING_BYTES_MAX;
        if !is_taking {
            return Err(NoteError::Journal);
        }
        state.notes.put(kind, key, value, &mut state.records)?;
        Ok(self.0.queued(state, waits))
    }

    /// Does the operation; what to wait for before its answer is given.
    fn step(&self, op: &Op) -> Result<(Reply, Option<Waiter>), AskError> {
        let mut guard = lock(&self.0.state);
        let state = &mut *guard;
        match state.life {
            Life::Volatile | Life::Open => {}
            Life::Failed => return Err(AskError::ReadOnly),
            Life::Closed => return Err(AskError::Gone),
        }
        if state.records.len() >= WAITING_BYTES_MAX {
            return Err(AskError::Busy);
        }
        let now_ms = state.time.read(self.0.clock.as_ref());
        let reply = state.core.step(now_ms, op);
        let records = state.core.records();
        for record in &records {
            journal::push_bucket(&mut state.records, record);
        }
        // What was granted before may still be on its way to the disk.
        let is_again = matches!(reply.answer, Answer::Replayed(_) | Answer::Stale { .. });
        let is_owed = !matches!(op.body, Body::Observe(_) | Body::GiveBack(_) | Body::Describe(_));
        let waits = is_owed && (!records.is_empty() || is_again && (state.is_writing || !state.records.is_empty()));
        Ok((reply, self.0.queued(state, waits)))
    }
}

type Waiter = oneshot::Receiver<()>;

#[async_trait]
impl Centre for InProcess {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        let (reply, waiter) = self.step(op)?;
        if let Some(waiter) = waiter {
            waiter.await.map_err(|_| AskError::Store("the journal cannot be written"))?;
        }
        Ok(reply)
    }
}

impl Shared {
    /// Wakes the writer where it has something to do; what to wait for where that is wanted.
    fn queued(&self, state: &mut State, waits: bool) -> Option<Waiter> {
        if state.life == Life::Volatile {
            state.records.clear();
            return None;
        }
        let waiter = waits.then(|| {
            let (sender, waiter) = oneshot::channel();
            state.waiters.push(sender);
            waiter
        });
        if waits || !state.records.is_empty() {
            self.wake.notify_all();
        }
        waiter
    }

    fn write_next(&self, journal: &mut Journal) -> bool {
        let mut state = lock(&self.state);
        while state.records.is_empty() && state.waiters.is_empty() && state.life == Life::Open {
            let waited = self.wake.wait_timeout(state, SWEEP_EVERY).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                let State { core, time, sweep, .. } = &mut *state;
                core.sweep(time.read(self.clock.as_ref()), sweep, SWEEP_BUCKETS);
                return true;
            }
        }
        let is_last = state.life == Life::Closed;
        let now_ms = state.time.read(self.clock.as_ref());
        let (records, waiters) = (std::mem::take(&mut state.records), std::mem::take(&mut state.waiters));
        // Everything that waits is in the state already, and so in what replaces the file.
        let groups =
            (is_last || journal.wants_compaction()).then(|| journal::snapshot(&state.core, &state.notes, is_last));
        state.is_writing = true;
        drop(state);
        let written = match groups {
            Some(groups) => journal.replace(now_ms, &groups),
            None if records.is_empty() => Ok(()),
            None => journal.append(now_ms, &records),
        };
        let mut state = lock(&self.state);
        state.is_writing = false;
        if written.is_err() {
            state.life = Life::Failed;
            state.waiters.clear();
            return false;
        }
        drop(state);
        for waiter in waiters {
            // Who no longer waits does not want to know.
            waiter.send(()).ok();
        }
        !is_last
    }
}

/// The writer: a group at a time, until it is handed over, the disk fails, or nobody has the centre any more.
fn write(shared: &Arc<Shared>, mut journal: Journal) {
    while shared.write_next(&mut journal) {
        if Arc::strong_count(shared) == 1 {
            // As a crash: nobody has asked for more.
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
