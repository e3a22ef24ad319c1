//! One value in 64 pieces, each behind its own lock, so that requests of different tenants seldom meet.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than most machines have cores.
const COUNT: u8 = 64;

#[derive(Debug)]
pub(crate) struct Shards<T>(Box<[Shard<T>]>);

/// A cache line of its own, so that neighbours do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard<T>(Mutex<T>);

impl<T: Default> Shards<T> {
    pub(crate) const COUNT: usize = COUNT as usize;

    pub(crate) fn new() -> Self {
        Self((0..COUNT).map(|_| Shard::default()).collect())
    }

    /// The shard of a hash. The tables inside are indexed by the lower half of a hash and tagged by its top seven
    /// bits, so the choice is made by bits in between.
    pub(crate) fn of(hash: u64) -> usize {
        ((hash >> 40) % u64::from(COUNT)) as usize
    }

    /// Nothing panics while it holds a shard, and what is in one is valid after every single write: a poisoned lock
    /// says nothing.
    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, T> {
        self.0[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, one after the other; never two at once.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        (0..self.0.len()).map(|shard| self.lock(shard))
    }
}
