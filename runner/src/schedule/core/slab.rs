//! What is kept of a run that waits: 40 bytes, in chunks that never move, and found by its id.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::ids::RunId;
use crate::ledger::QueueClass;

/// No entry, no tenant.
pub(super) const NONE: u32 = u32::MAX;

/// Entries of a chunk. What grows by a chunk copies nothing: a vector that doubled would hold everybody up while it does.
const CHUNK: usize = 4096;
const CHUNK_BITS: u32 = CHUNK.trailing_zeros();

/// Tables that the index is made of, for the same reason: one of them doubles at a time.
const TABLES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// In its tenant's queue of its class.
    Queued,
    /// In the timers.
    Parked,
    /// The same, since its worker crashed or the ledger did not answer: that it could go on is no reason to ask it earlier.
    HeldBack,
    /// It has a slot.
    Running,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) run: RunId,
    /// Queued: since when, on the monotonic clock. In the timers: until when, on the wall clock. Both in milliseconds.
    pub(super) at: u64,
    pub(super) tenant: u32,
    /// Queued: the one in front. In the timers: place in the heap of timers.
    pub(super) prev: u32,
    /// Queued: the one behind. Free: the next free one.
    pub(super) next: u32,
    pub(super) class: QueueClass,
    pub(super) state: State,
    /// Turns that crashed, one after the other.
    pub(super) crashes: u8,
    /// Running: somebody appended something to the run since its turn began.
    pub(super) is_nudged: bool,
}

/// All entries, by number and by run.
#[derive(Debug)]
pub(super) struct Slab {
    chunks: Vec<Box<[Entry]>>,
    free: u32,
    index: Vec<HashTable<u32>>,
    /// Ids of runs are hashes, but what is hashed may be somebody's choice.
    hasher: RandomState,
}

impl Slab {
    pub(super) fn new() -> Self {
        let index = (0..TABLES).map(|_| HashTable::new()).collect();
        Self { chunks: Vec::new(), free: NONE, index, hasher: RandomState::new() }
    }

    pub(super) fn get(&self, at: u32) -> &Entry {
        &self.chunks[(at >> CHUNK_BITS) as usize][at as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.chunks[(at >> CHUNK_BITS) as usize][at as usize % CHUNK]
    }

    pub(super) fn find(&self, run: RunId) -> Option<u32> {
        let hash = self.hasher.hash_one(run);
        self.index[table(hash)].find(hash, |at| self.get(*at).run == run).copied()
    }

    /// Adds a run that is not there. It is in no list yet.
    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        debug_assert!(self.find(entry.run).is_none(), "a run has one entry");
        if self.free == NONE {
            self.add_chunk();
        }
        let at = self.free;
        self.free = self.get(at).next;
        *self.get_mut(at) = entry;
        let hash = self.hasher.hash_one(entry.run);
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        let hash_of = |at: &u32| hasher.hash_one(chunks[(*at >> CHUNK_BITS) as usize][*at as usize % CHUNK].run);
        self.index[table(hash)].insert_unique(hash, at, hash_of);
        at
    }

    /// Takes an entry away that is in no list any more.
    pub(super) fn remove(&mut self, at: u32) {
        let hash = self.hasher.hash_one(self.get(at).run);
        if let Ok(found) = self.index[table(hash)].find_entry(hash, |other| *other == at) {
            found.remove();
        }
        let free = self.free;
        let entry = self.get_mut(at);
        entry.state = State::Free;
        entry.next = free;
        self.free = at;
    }

    /// Bytes that are allocated, used or not.
    pub(super) fn bytes(&self) -> usize {
        let index: usize = self.index.iter().map(HashTable::allocation_size).sum();
        self.chunks.len() * CHUNK * size_of::<Entry>() + self.chunks.capacity() * size_of::<Box<[Entry]>>() + index
    }

    fn add_chunk(&mut self) {
        let first = u32::try_from(self.chunks.len() * CHUNK).expect("runs are bounded far below 2^32");
        let last = first + u32::try_from(CHUNK).expect("a chunk is small") - 1;
        let free = |at: u32| Entry {
            run: RunId::from_bytes([0; 16]),
            at: 0,
            tenant: NONE,
            prev: NONE,
            next: if at == last { NONE } else { at + 1 },
            class: QueueClass::Bulk,
            state: State::Free,
            crashes: 0,
            is_nudged: false,
        };
        self.chunks.push((first..=last).map(free).collect());
        self.free = first;
    }
}

/// The table of a hash: by bits that a table itself uses least.
fn table(hash: u64) -> usize {
    usize::try_from(hash >> 40).unwrap_or(0) % TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_40_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }
}
