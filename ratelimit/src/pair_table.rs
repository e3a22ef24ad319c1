//! A bounded table from (tenant, subject) to a small state, in which no tenant can push out another.
//!
//! **Why not one map.** A tenant chooses what it calls, so with ungoverned destinations it chooses keys without
//! end. In one bounded map its flood would evict everybody's breakers, or use up the room for new ones. Here a
//! tenant has a row of at most [`Bounds::per_tenant`] entries, and makes room only at its own expense: an entry
//! that says nothing any more goes first, then its least valuable one. Rows sit in 64 shards by tenant, so that one
//! look-up takes one lock, and a tenant that floods slows at most a 64th of the others.
//!
//! **Cost.** An absent pair costs nothing; a look-up is one hash table access and a scan of the tenant's subjects,
//! which lie side by side (8 bytes each), so it is flat in the number of tenants. Growth of a row is exact for the
//! first entry and by half afterwards: most tenants have one.
//!
//! **At the bound of all rows** ([`Bounds::total`], divided over the shards) a new entry is refused, after settled
//! rows were dropped. What a refusal means is the user's: no breaker, or no retries.

use crate::moment::Now;
use crate::pair::PairKey;
use crate::shards::{OwnKeys, Shards};

/// How many entries there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of one tenant. At least one.
    pub per_tenant: u16,
    /// Of all tenants. Rounded up to a multiple of 64.
    pub total: u32,
}

/// What a table keeps.
pub(crate) trait Entry {
    /// It says no more than no entry would: dropping it changes no answer, now or later.
    fn is_settled(&self, now: Now) -> bool;

    /// Which of a tenant's entries makes room for a new one: the lowest. `None`: it must stay.
    fn worth(&self) -> Option<u64>;
}

#[derive(Debug)]
pub(crate) struct PairTable<V> {
    per_tenant: usize,
    per_shard: usize,
    shards: Shards<Shard<V>>,
}

#[derive(Debug)]
pub(crate) struct Shard<V> {
    rows: OwnKeys<u64, Row<V>>,
    entries: usize,
    /// When room was last looked for, on the monotonic clock.
    swept_ms: Option<u64>,
}

/// A full shard is not searched for settled entries more often than this: else a flood at the bound would pay, with
/// the shard's lock held, a walk over all of it for each new key.
const SWEEP_EVERY_MS: u64 = 1_000;

/// Subjects apart from their states, so that a look-up reads few cache lines.
#[derive(Debug)]
struct Row<V> {
    subjects: Vec<u64>,
    states: Vec<V>,
}

/// There is no room for a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self { rows: OwnKeys::default(), entries: 0, swept_ms: None }
    }
}

impl<V> Default for Row<V> {
    fn default() -> Self {
        Self { subjects: Vec::new(), states: Vec::new() }
    }
}

impl<V: Entry> PairTable<V> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let shards = Shards::<Shard<V>>::COUNT;
        Self {
            per_tenant: usize::from(bounds.per_tenant.max(1)),
            per_shard: usize::try_from(bounds.total).unwrap_or(usize::MAX).div_ceil(shards).max(1),
            shards: Shards::new(),
        }
    }

    /// Looks at the entry, if there is one that still says something; settled ones are dropped when met. `act` may
    /// change it. Holds the tenant's shard meanwhile.
    pub(crate) fn with<T>(&self, key: PairKey, now: Now, act: impl FnOnce(Option<&mut V>) -> T) -> T {
        let mut shard = self.shards.lock(shard_of(key));
        let Some(row) = shard.rows.get_mut(&key.tenant()) else { return act(None) };
        let Some(at) = row.find(key) else { return act(None) };
        if !row.states[at].is_settled(now) {
            return act(Some(&mut row.states[at]));
        }
        shard.remove(key.tenant(), at);
        act(None)
    }

    /// The same, and makes the entry where there is none.
    pub(crate) fn with_new<T>(
        &self,
        key: PairKey,
        now: Now,
        new: impl FnOnce() -> V,
        act: impl FnOnce(&mut V) -> T,
    ) -> Result<T, NoRoom> {
        let mut shard = self.shards.lock(shard_of(key));
        if let Some(row) = shard.rows.get_mut(&key.tenant())
            && let Some(at) = row.find(key)
        {
            if row.states[at].is_settled(now) {
                row.states[at] = new();
            }
            return Ok(act(&mut row.states[at]));
        }
        self.make_room(&mut shard, key.tenant(), now)?;
        let row = shard.rows.entry(key.tenant()).or_default();
        let state = row.push(key.subject(), new());
        let done = act(state);
        shard.entries += 1;
        Ok(done)
    }

    /// Drops an entry, whatever it says.
    pub(crate) fn forget(&self, key: PairKey) -> bool {
        let mut shard = self.shards.lock(shard_of(key));
        let at = shard.rows.get(&key.tenant()).and_then(|row| row.find(key));
        at.is_some_and(|at| {
            shard.remove(key.tenant(), at);
            true
        })
    }

    /// Drops settled entries and gives memory back; how many are left. One shard is held at a time.
    pub(crate) fn sweep(&self, now: Now, mut each: impl FnMut(PairKey, &mut V)) -> usize {
        self.shards.each().map(|mut shard| shard.sweep(now, &mut each)).sum()
    }

    /// Reads every entry. One shard is held at a time.
    pub(crate) fn each(&self, mut read: impl FnMut(PairKey, &V)) {
        for shard in self.shards.each() {
            for (tenant, row) in &shard.rows {
                for (subject, state) in row.subjects.iter().zip(&row.states) {
                    read(PairKey::of(*tenant, *subject), state);
                }
            }
        }
    }

    /// Entries that are kept now, settled ones that were not swept yet among them.
    pub(crate) fn len(&self) -> usize {
        self.shards.each().map(|shard| shard.entries).sum()
    }

    fn make_room(&self, shard: &mut Shard<V>, tenant: u64, now: Now) -> Result<(), NoRoom> {
        if let Some(row) = shard.rows.get(&tenant)
            && row.subjects.len() >= self.per_tenant
        {
            let states = row.states.iter().enumerate();
            let settled = states.clone().find(|(_, state)| state.is_settled(now)).map(|(at, _)| at);
            let least = || states.filter_map(|(at, state)| Some((state.worth()?, at))).min().map(|(_, at)| at);
            let at = settled.or_else(least).ok_or(NoRoom)?;
            shard.remove(tenant, at);
            return Ok(());
        }
        let is_due = |swept_ms: u64| now.mono_ms.saturating_sub(swept_ms) >= SWEEP_EVERY_MS;
        if shard.entries >= self.per_shard && shard.swept_ms.is_none_or(is_due) {
            shard.sweep(now, &mut |_, _| {});
            shard.swept_ms = Some(now.mono_ms);
        }
        if shard.entries >= self.per_shard { Err(NoRoom) } else { Ok(()) }
    }
}

impl<V: Entry> Shard<V> {
    fn sweep(&mut self, now: Now, each: &mut impl FnMut(PairKey, &mut V)) -> usize {
        self.rows.retain(|tenant, row| {
            for (subject, state) in row.subjects.iter().zip(&mut row.states) {
                each(PairKey::of(*tenant, *subject), state);
            }
            row.retain(now);
            !row.subjects.is_empty()
        });
        self.entries = self.rows.values().map(|row| row.subjects.len()).sum();
        let wanted = self.rows.len() * 2;
        self.rows.shrink_to(wanted);
        self.entries
    }
}

impl<V> Shard<V> {
    fn remove(&mut self, tenant: u64, at: usize) {
        if let Some(row) = self.rows.get_mut(&tenant) {
            row.subjects.swap_remove(at);
            row.states.swap_remove(at);
            self.entries -= 1;
            if row.subjects.is_empty() {
                self.rows.remove(&tenant);
            }
        }
    }
}

impl<V> Row<V> {
    fn find(&self, key: PairKey) -> Option<usize> {
        self.subjects.iter().position(|subject| *subject == key.subject())
    }

    fn push(&mut self, subject: u64, state: V) -> &mut V {
        if self.states.len() == self.states.capacity() {
            let more = (self.states.len() / 2).max(1);
            self.subjects.reserve_exact(more);
            self.states.reserve_exact(more);
        }
        self.subjects.push(subject);
        self.states.push(state);
        self.states.last_mut().expect("one was pushed")
    }
}

impl<V: Entry> Row<V> {
    fn retain(&mut self, now: Now) {
        let mut at = 0;
        while at < self.states.len() {
            if self.states[at].is_settled(now) {
                self.subjects.swap_remove(at);
                self.states.swap_remove(at);
            } else {
                at += 1;
            }
        }
        if self.states.len() < self.states.capacity() / 2 {
            self.subjects.shrink_to_fit();
            self.states.shrink_to_fit();
        }
    }
}

fn shard_of(key: PairKey) -> usize {
    // Half of a digest already.
    Shards::<()>::of(key.tenant())
}

#[cfg(test)]
mod tests;
