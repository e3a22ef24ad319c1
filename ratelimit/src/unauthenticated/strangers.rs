//! Buckets of sources that nobody knows: bounded, and nobody is evicted for a newcomer.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::MutexGuard;

use super::meter::Meter;
use crate::shards::Shards;
use crate::source::Source;

#[derive(Debug)]
pub(super) struct Strangers {
    meter: Meter,
    per_shard_max: usize,
    hasher: RandomState,
    shards: Shards<Shard>,
}

#[derive(Debug, Default)]
struct Shard {
    /// When each source's debt is settled.
    settled_ns: HashMap<Source, u64>,
    /// No entry is settled before this moment: a full shard is not scanned again until then.
    scan_at_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    Own,
    /// There is no place for it.
    Full,
}

impl Strangers {
    pub(super) fn new(meter: Meter, sources_max: usize) -> Self {
        Self {
            meter,
            per_shard_max: (sources_max / Shards::<Shard>::COUNT).max(1),
            hasher: RandomState::new(),
            shards: Shards::new(),
        }
    }

    /// How long this source has to wait, and whether its failures are, or would be, counted as its own.
    pub(super) fn wait_ns(&self, source: Source, now_ns: u64) -> (u64, bool) {
        let mut shard = self.shard(source);
        match shard.settled_ns.get(&source) {
            Some(settled_ns) => (self.meter.wait_ns(*settled_ns, now_ns), true),
            None => (0, shard.has_room(self.per_shard_max, now_ns)),
        }
    }

    pub(super) fn failed(&self, source: Source, now_ns: u64) -> Recorded {
        let mut shard = self.shard(source);
        if let Some(settled_ns) = shard.settled_ns.get_mut(&source) {
            *settled_ns = self.meter.failed(*settled_ns, now_ns);
            return Recorded::Own;
        }
        if !shard.has_room(self.per_shard_max, now_ns) {
            return Recorded::Full;
        }
        shard.settled_ns.insert(source, self.meter.failed(0, now_ns));
        Recorded::Own
    }

    pub(super) fn sweep(&self, now_ns: u64) {
        for mut shard in self.shards.each() {
            shard.forget_settled(now_ns);
            let wanted = shard.settled_ns.len() * 2;
            shard.settled_ns.shrink_to(wanted);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.each().map(|shard| shard.settled_ns.len()).sum()
    }

    fn shard(&self, source: Source) -> MutexGuard<'_, Shard> {
        self.shards.lock(Shards::<Shard>::of(self.hasher.hash_one(source)))
    }
}

impl Shard {
    fn has_room(&mut self, max: usize, now_ns: u64) -> bool {
        if self.settled_ns.len() >= max && now_ns >= self.scan_at_ns {
            self.forget_settled(now_ns);
        }
        self.settled_ns.len() < max
    }

    fn forget_settled(&mut self, now_ns: u64) {
        self.settled_ns.retain(|_, settled_ns| *settled_ns > now_ns);
        self.scan_at_ns = self.settled_ns.values().copied().min().unwrap_or(0);
    }
}
