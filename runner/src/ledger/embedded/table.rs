//! Where every run is that somebody may append to: the compare of compare-and-append.
//!
//! It holds all runs that are not over, and those that lately were. What is judged by it is judged on the journal's writer
//! thread, one commit after the other ([`Table::take`]), so that of two commits with the same expectation one comes second.
//!
//! **A batch that fails.** What a commit changes is pending until its batch is durable ([`Table::committed`]) and undone if it
//! never will be ([`Table::rolled_back`]). Nobody is refused for what is only pending: a refusal tells that the run *has* gone
//! on, and whoever was told so would not try again. He waits until the batch is settled, and is judged anew.
//!
//! **Runs that are long over** are not here, and must not be admitted again all the same. Whoever appends to a run that he
//! does not find here looks for it in the index, and [pins](Table::pin) the run first. A run leaves the table only when the
//! index has all of it, and only while nobody has pinned it. So either the look-up finds it in the index, or it is still in
//! the table when the writer's thread judges: there is no moment at which it is in neither.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::TenantId;
use eventlog::segment::Position;
use tokio::sync::watch;

use crate::ids::RunId;
use crate::ledger::codec::{Heading, Turn};
use crate::ledger::rules::{Head, Lapse, Standing, Wake};
use crate::ledger::store::{AppendError, Commit, Committed};

/// Largest sequence that an entry has room for.
const SEQ_MAX: u64 = (1 << 30) - 1;

/// What stands for a tenant's name where four bytes have to do: 32 bits of its hash. It tells a fault of ours; whose records
/// are read is compared by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TenantTag(pub(super) u32);

impl TenantTag {
    pub(super) fn of(tenant: &TenantId) -> Self {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&blake3::hash(tenant.as_bytes()).as_bytes()[..4]);
        Self(u32::from_le_bytes(bytes))
    }
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) tenant: TenantTag,
    /// Of the last record.
    pub(super) seq: u64,
    /// In force.
    pub(super) lease: u64,
    pub(super) is_over: bool,
    /// Its last commit is not durable yet, and may never be.
    pub(super) is_pending: bool,
}

/// The same in 16 bytes: there are as many as there are open runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    lease: u64,
    tenant: TenantTag,
    /// 30 bits of sequence; then over, pending.
    seq_and_flags: u32,
}

const OVER: u32 = 1 << 30;
const PENDING: u32 = 1 << 31;

impl Entry {
    fn new(known: Known) -> Self {
        let seq = u32::try_from(known.seq.min(SEQ_MAX)).unwrap_or(0);
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let seq_and_flags = seq | flag(known.is_over, OVER) | flag(known.is_pending, PENDING);
        Self { lease: known.lease, tenant: known.tenant, seq_and_flags }
    }

    fn known(self) -> Known {
        Known {
            tenant: self.tenant,
            seq: u64::from(self.seq_and_flags & !(OVER | PENDING)),
            lease: self.lease,
            is_over: self.seq_and_flags & OVER != 0,
            is_pending: self.seq_and_flags & PENDING != 0,
        }
    }
}

/// A durable commit, for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) run: RunId,
    pub(super) tenant: TenantTag,
    pub(super) first: u64,
    pub(super) count: u16,
    pub(super) lease: u64,
    pub(super) turn: Turn,
    pub(super) position: Position,
}

impl Pointer {
    pub(super) fn new(heading: &Heading, position: Position) -> Self {
        Self {
            run: heading.run,
            tenant: TenantTag::of(&heading.tenant),
            first: heading.first,
            count: heading.count,
            lease: heading.lease,
            turn: heading.turn,
            position,
        }
    }
}

/// Why a commit is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    No(AppendError),
    /// It would be for what is only pending: ask again when more than so many batches are settled.
    Unsettled(u64),
    /// Its records were made under another lease than the one in force: make them anew.
    LeaseMoved,
}

/// A commit of the batch that is being written.
#[derive(Debug)]
struct Pending {
    pointer: Pointer,
    before: Option<Entry>,
}

#[derive(Debug)]
struct State {
    runs: HashMap<RunId, Entry>,
    open: usize,
    pins: HashMap<RunId, u32>,
    /// In the order of the batch.
    pending: Vec<Pending>,
    /// Runs that are over, those that were so first in front: run, sequence, and how many commits were there with that.
    recent: VecDeque<(RunId, u64, u64)>,
    /// Durable commits since it was opened.
    commits: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    state: Mutex<State>,
    /// Counts batches that became durable or never will.
    settled: watch::Sender<u64>,
    recent_max: usize,
}

/// Keeps a run from leaving the table.
#[derive(Debug)]
pub(super) struct Pin {
    table: Arc<Table>,
    run: RunId,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.table.state();
        if let Some(pins) = state.pins.get_mut(&self.run) {
            *pins -= 1;
            if *pins == 0 {
                state.pins.remove(&self.run);
            }
        }
    }
}

impl Table {
    pub(super) fn new(recent_max: usize) -> Self {
        let state = State {
            runs: HashMap::new(),
            open: 0,
            pins: HashMap::new(),
            pending: Vec::new(),
            recent: VecDeque::new(),
            commits: 0,
        };
        Self { state: Mutex::new(state), settled: watch::Sender::new(0), recent_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Changes under this lock are single steps that do not panic in between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pin(self: &Arc<Self>, run: RunId) -> Pin {
        *self.state().pins.entry(run).or_default() += 1;
        Pin { table: Arc::clone(self), run }
    }

    pub(super) fn look(&self, run: RunId) -> Option<Known> {
        self.state().runs.get(&run).map(|entry| entry.known())
    }

    /// Puts in what the index knows of a run that whoever asks has pinned.
    pub(super) fn restore(&self, run: RunId, known: Known) {
        let mut state = self.state();
        if state.runs.contains_key(&run) {
            return;
        }
        state.set(run, Some(Entry::new(known)));
        if known.is_over {
            state.recent.push_back((run, known.seq, 0));
        }
    }

    pub(super) fn settled(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    /// Durable commits since it was opened. All that were acknowledged are among them.
    pub(super) fn commits(&self) -> u64 {
        self.state().commits
    }

    /// Runs that are not over.
    pub(super) fn open_runs(&self) -> Vec<RunId> {
        self.state().runs.iter().filter(|(_, entry)| !entry.known().is_over).map(|(run, _)| *run).collect()
    }

    /// How many runs are not over, and how many are here at all.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.open, state.runs.len())
    }

    /// Bytes that runs take here, with what the map has set aside.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        // Of each slot a byte more, for the map itself; seven of eight slots are ever used.
        self.state().runs.capacity() * 8 / 7 * (size_of::<(RunId, Entry)>() + 1)
    }

    /// Judges a commit whose records were made under this lease, and enters it as pending. Only on the writer's thread.
    pub(super) fn take(&self, commit: &Commit, heading: &Heading) -> Result<Committed, Refusal> {
        let mut state = self.state();
        let entry = state.runs.get(&commit.run).copied();
        let after = judge(entry.map(Entry::known), commit).map_err(|refusal| {
            if entry.is_some_and(|entry| entry.known().is_pending) {
                Refusal::Unsettled(*self.settled.borrow())
            } else {
                Refusal::No(refusal)
            }
        })?;
        if after.lease != heading.lease {
            return Err(Refusal::LeaseMoved);
        }
        let tenant = entry.map_or_else(|| TenantTag::of(&commit.tenant), |entry| entry.tenant);
        let is_over = after.standing == Standing::Terminal;
        let known = Known { tenant, seq: after.seq, lease: after.lease, is_over, is_pending: true };
        let pointer = Pointer { tenant, ..Pointer::new(heading, Position::START) };
        state.pending.push(Pending { pointer, before: entry });
        state.set(commit.run, Some(Entry::new(known)));
        Ok(after.committed())
    }

    /// The batch is durable: its commits are at these places. Says how many there were by now, and what is to be indexed. Where
    /// there are not as many as were taken, something is wrong with our own account, and the journal has to be read: none.
    pub(super) fn committed(&self, positions: &[Position]) -> (u64, Option<Vec<Pointer>>) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        state.commits += positions.len() as u64;
        let fits = pending.len() == positions.len();
        let mut pointers = Vec::with_capacity(pending.len());
        for (at, Pending { mut pointer, .. }) in pending.into_iter().enumerate() {
            pointer.position = positions.get(at).copied().unwrap_or(Position::START);
            pointers.push(pointer);
            let commits = state.commits;
            if let Some(entry) = state.runs.get_mut(&pointer.run) {
                entry.seq_and_flags &= !PENDING;
                let known = entry.known();
                if known.is_over {
                    state.recent.push_back((pointer.run, known.seq, commits));
                }
            }
        }
        let commits = state.commits;
        drop(state);
        self.settled.send_modify(|settled| *settled += 1);
        (commits, fits.then_some(pointers))
    }

    /// The batch will never be durable: all is as it was before it.
    pub(super) fn rolled_back(&self) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        if pending.is_empty() {
            return;
        }
        for Pending { pointer, before } in pending.into_iter().rev() {
            state.set(pointer.run, before);
        }
        drop(state);
        self.settled.send_modify(|settled| *settled += 1);
    }

    /// Lets go of runs that are over, down to as many as are to be remembered, and of no run that the index has not wholly:
    /// it has so many commits.
    pub(super) fn evict(&self, indexed: u64) {
        let mut state = self.state();
        for _ in 0..state.recent.len() {
            if state.recent.len() <= self.recent_max || state.recent.front().is_none_or(|front| front.2 > indexed) {
                return;
            }
            let Some((run, seq, commits)) = state.recent.pop_front() else { return };
            let Some(known) = state.runs.get(&run).map(|entry| entry.known()) else { continue };
            if state.pins.contains_key(&run) || known.is_pending {
                state.recent.push_back((run, seq, commits));
            } else if known.is_over && known.seq == seq {
                state.set(run, None);
            }
        }
    }
}

impl State {
    fn set(&mut self, run: RunId, entry: Option<Entry>) {
        let is_open = |entry: Option<Entry>| usize::from(entry.is_some_and(|entry| !entry.known().is_over));
        let before = match entry {
            Some(entry) => self.runs.insert(run, entry),
            None => self.runs.remove(&run),
        };
        self.open = self.open + is_open(entry) - is_open(before);
    }
}

/// The run after the commit, or why not.
pub(super) fn judge(known: Option<Known>, commit: &Commit) -> Result<Head, AppendError> {
    if commit.expected > SEQ_MAX - crate::ledger::rules::BODIES_MAX as u64 {
        return Err(AppendError::Invalid("a run has no more than 2^30 records"));
    }
    let Some(known) = known else { return Head::after(None, commit, Lapse::Known) };
    if known.tenant != TenantTag::of(&commit.tenant) {
        return Err(AppendError::Tenant);
    }
    let head = Head {
        tenant: commit.tenant.clone(),
        seq: known.seq,
        lease: known.lease,
        owner: Box::default(),
        lease_until_unix_ms: 0,
        wake: Wake::At(0),
        standing: if known.is_over { Standing::Terminal } else { Standing::Open },
    };
    Head::after(Some(&head), commit, Lapse::Known)
}

#[cfg(test)]
mod tests;
