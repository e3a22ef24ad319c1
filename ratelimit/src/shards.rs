//! One value in 64 pieces, each behind its own lock, so that requests of different tenants seldom meet.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
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

/// A table whose keys are ours: hashes of configured names, which no sender can choose. One multiplication spreads
/// them well enough. What senders can choose, addresses, goes into tables with the standard, keyed hasher.
pub(crate) type OwnKeys<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Spread(u64);

/// The hash by which [`OwnKeys`] places a number.
pub(crate) fn spread(key: u64) -> u64 {
    const ODD: u64 = 0xd6e8_feb8_6659_fd93;
    let key = key ^ 0x9e37_79b9_7f4a_7c15;
    let high = ((u128::from(key) * u128::from(ODD)) >> 64) as u64;
    high ^ key.wrapping_mul(ODD)
}

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        // Not reached by a key of one u64; right all the same.
        for byte in bytes {
            self.0 = spread(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = spread(key);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
