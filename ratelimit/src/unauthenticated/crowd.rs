//! Buckets of blocks of addresses: a fixed number of them, shared by hash, so that they can neither grow nor fill.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::meter::Meter;
use crate::source::{Block, Source};

/// 32 KiB. Two blocks share a bucket once in 4,096, and nobody can choose which: the hash is keyed.
const CELLS: u64 = 4096;

/// What a site and a network may fail, in sources' worth: a site is one customer, a network is many.
const SITE: u32 = 8;
const NETWORK: u32 = 64;

#[derive(Debug)]
pub(super) struct Crowd {
    site: Meter,
    network: Meter,
    hasher: RandomState,
    /// When each bucket is settled.
    cells: Box<[AtomicU64]>,
}

impl Crowd {
    pub(super) fn new(source: Meter) -> Self {
        Self {
            site: source.times(SITE),
            network: source.times(NETWORK),
            hasher: RandomState::new(),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How long until every block around this source has room.
    pub(super) fn wait_ns(&self, source: Source, now_ns: u64) -> u64 {
        let waits = source.blocks().map(|block| {
            let (meter, cell) = self.of(block);
            meter.wait_ns(cell.load(Ordering::Relaxed), now_ns)
        });
        waits[0].max(waits[1])
    }

    pub(super) fn failed(&self, source: Source, now_ns: u64) {
        for block in source.blocks() {
            let (meter, cell) = self.of(block);
            // A number by itself: nothing else is read by its order.
            cell.update(Ordering::Relaxed, Ordering::Relaxed, |settled_ns| meter.failed(settled_ns, now_ns));
        }
    }

    fn of(&self, block: Block) -> (Meter, &AtomicU64) {
        let meter = match block {
            Block::Site(_) => self.site,
            Block::Network(_) => self.network,
        };
        (meter, &self.cells[(self.hasher.hash_one(block) % CELLS) as usize])
    }
}
