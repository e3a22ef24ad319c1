//! Pairs of source and endpoint that verified of late.

use std::sync::MutexGuard;

use super::Settings;
use super::meter::Meter;
use crate::shards::{OwnKeys, Shards, spread};
use crate::source::Source;

#[derive(Debug)]
pub(super) struct Known {
    meter: Meter,
    recent_ns: u64,
    per_shard_max: usize,
    per_endpoint_max: usize,
    shards: Shards<Shard>,
}

/// Pairs by endpoint: an endpoint's own pairs are few and are looked through.
#[derive(Debug, Default)]
struct Shard {
    endpoints: OwnKeys<u64, Vec<Pair>>,
    pairs: usize,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    source: Source,
    /// When its last delivery verified.
    verified_ns: u64,
    /// When the failures since then are settled.
    settled_ns: u64,
}

impl Known {
    pub(super) fn new(meter: Meter, settings: &Settings) -> Self {
        Self {
            meter,
            recent_ns: u64::try_from(settings.known_for.as_nanos()).unwrap_or(u64::MAX),
            per_shard_max: (settings.known_max / Shards::<Shard>::COUNT).max(1),
            per_endpoint_max: settings.known_per_endpoint_max.max(1),
            shards: Shards::new(),
        }
    }

    /// How long a known pair has to wait; `None` for strangers.
    pub(super) fn wait_ns(&self, source: Source, endpoint: u64, now_ns: u64) -> Option<u64> {
        let mut shard = self.shard(endpoint);
        let pair = shard.find(source, endpoint).filter(|pair| self.is_recent(pair, now_ns))?;
        Some(self.meter.wait_ns(pair.settled_ns, now_ns))
    }

    /// Counts a failure against a known pair; `false` for strangers.
    pub(super) fn failed(&self, source: Source, endpoint: u64, now_ns: u64) -> bool {
        let mut shard = self.shard(endpoint);
        let Some(pair) = shard.find(source, endpoint).filter(|pair| self.is_recent(pair, now_ns)) else { return false };
        pair.settled_ns = self.meter.failed(pair.settled_ns, now_ns);
        true
    }

    pub(super) fn verified(&self, source: Source, endpoint: u64, now_ns: u64) {
        let mut shard = self.shard(endpoint);
        let new = Pair { source, verified_ns: now_ns, settled_ns: 0 };
        if let Some(pair) = shard.find(source, endpoint) {
            *pair = new;
        } else if self.make_room(&mut shard, endpoint, now_ns) {
            shard.endpoints.entry(endpoint).or_default().push(new);
            shard.pairs += 1;
        }
    }

    pub(super) fn sweep(&self, now_ns: u64) {
        for mut shard in self.shards.each() {
            self.forget_old(&mut shard, now_ns);
            let wanted = shard.endpoints.len() * 2;
            shard.endpoints.shrink_to(wanted);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.each().map(|shard| shard.pairs).sum()
    }

    fn is_recent(&self, pair: &Pair, now_ns: u64) -> bool {
        now_ns.saturating_sub(pair.verified_ns) < self.recent_ns
    }

    /// Is there a place for one more pair of this endpoint, once the right one has been given up?
    fn make_room(&self, shard: &mut Shard, endpoint: u64, now_ns: u64) -> bool {
        let own = shard.endpoints.get(&endpoint).map_or(0, Vec::len);
        if own >= self.per_endpoint_max {
            return shard.give_up_oldest_of(endpoint);
        }
        if shard.pairs < self.per_shard_max {
            return true;
        }
        self.forget_old(shard, now_ns);
        if shard.pairs < self.per_shard_max {
            return true;
        }
        // Full of recent ones. Whoever has a pair gives up an own one; who has none gets one of those that have more.
        let giver = if shard.endpoints.contains_key(&endpoint) { Some(endpoint) } else { shard.oldest_of_several() };
        giver.is_some_and(|giver| shard.give_up_oldest_of(giver))
    }

    fn forget_old(&self, shard: &mut Shard, now_ns: u64) {
        shard.endpoints.retain(|_, pairs| {
            pairs.retain(|pair| self.is_recent(pair, now_ns));
            !pairs.is_empty()
        });
        shard.pairs = shard.endpoints.values().map(Vec::len).sum();
    }

    fn shard(&self, endpoint: u64) -> MutexGuard<'_, Shard> {
        self.shards.lock(Shards::<Shard>::of(spread(endpoint)))
    }
}

impl Shard {
    fn find(&mut self, source: Source, endpoint: u64) -> Option<&mut Pair> {
        self.endpoints.get_mut(&endpoint)?.iter_mut().find(|pair| pair.source == source)
    }

    fn give_up_oldest_of(&mut self, endpoint: u64) -> bool {
        let Some(pairs) = self.endpoints.get_mut(&endpoint) else { return false };
        let Some((at, _)) = pairs.iter().enumerate().min_by_key(|(_, pair)| pair.verified_ns) else { return false };
        pairs.swap_remove(at);
        self.pairs -= 1;
        true
    }

    /// The endpoint whose oldest pair is the oldest of all, among those that would keep another.
    fn oldest_of_several(&self) -> Option<u64> {
        let several = self.endpoints.iter().filter(|(_, pairs)| pairs.len() > 1);
        let oldest = |pairs: &Vec<Pair>| pairs.iter().map(|pair| pair.verified_ns).min();
        several.min_by_key(|(_, pairs)| oldest(pairs)).map(|(endpoint, _)| *endpoint)
    }
}
