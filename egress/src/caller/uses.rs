//! `calls_max`: how often a grant was used, on this node.
//!
//! Counted by issuer and id, not by the token's text, until the grant ends. Every call that is identified counts, also
//! one that policy then refuses: the bound is on what a stolen grant is good for. A restart forgets the counts, and
//! every node of a fleet counts for itself; an issuer that needs an exact number bounds it where the effect is.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

/// Grants that are counted at once. Only who holds an issuer's key can add one, each of them ends within 15 minutes, and
/// when it is full a further one is refused: uncounted would be unbounded.
const GRANTS_MAX: usize = 262_144;

/// Parts with a lock each.
const SHARDS: usize = 16;

/// Of issuer and id.
pub(super) type CountedAs = [u8; 16];

#[derive(Debug)]
pub(super) struct Uses {
    shards: [Mutex<HashMap<CountedAs, Used>>; SHARDS],
    per_shard_max: usize,
}

#[derive(Debug)]
struct Used {
    calls: u32,
    expires_ms: u64,
}

impl Uses {
    pub(super) fn new() -> Self {
        Self::bounded(GRANTS_MAX)
    }

    fn bounded(grants_max: usize) -> Self {
        Self { shards: Default::default(), per_shard_max: grants_max.div_ceil(SHARDS) }
    }

    /// Counts one call, if there is one left.
    #[must_use]
    pub(super) fn take(&self, counted_as: CountedAs, calls_max: NonZeroU32, expires_ms: u64, now_ms: u64) -> bool {
        let shard = &self.shards[usize::from(counted_as[0]) % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = shard.get_mut(&counted_as) {
            // Two grants with one id are one grant: it ends when the later of them does.
            used.expires_ms = used.expires_ms.max(expires_ms);
            let is_left = used.calls < calls_max.get();
            used.calls += u32::from(is_left);
            return is_left;
        }
        if shard.len() >= self.per_shard_max {
            shard.retain(|_, used| used.expires_ms > now_ms);
            if shard.len() >= self.per_shard_max {
                return false;
            }
        }
        shard.insert(counted_as, Used { calls: 1, expires_ms });
        true
    }

    /// Forgets grants that have ended.
    pub(super) fn sweep(&self, now_ms: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, used| used.expires_ms > now_ms);
            if shard.len() < shard.capacity() / 4 {
                shard.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

    #[test]
    fn a_grant_is_good_for_so_many_calls() {
        let uses = Uses::new();
        let take = |id, now| uses.take([id; 16], TWO, 1_000, now);
        assert_eq!([take(1, 0), take(1, 0), take(1, 0), take(1, 0)], [true, true, false, false]);
        assert!(take(2, 0));
        uses.sweep(999);
        assert!(!take(1, 999));
        uses.sweep(1_000);
        assert!(take(1, 1_000), "it was forgotten, since it ended");
    }

    #[test]
    fn when_it_is_full_a_further_grant_is_refused_and_none_forgotten() {
        let uses = Uses::bounded(SHARDS * 2);
        let id = |n: u8| {
            let mut id = [0; 16];
            id[1] = n;
            id
        };
        assert!(uses.take(id(1), TWO, 1_000, 0) && uses.take(id(2), TWO, 2_000, 0));
        assert!(!uses.take(id(3), TWO, 9_000, 999));
        assert!(uses.take(id(1), TWO, 1_000, 999) && !uses.take(id(1), TWO, 1_000, 999));
        assert!(uses.take(id(3), TWO, 9_000, 1_000), "the first has ended");
        assert!(!uses.take(id(4), TWO, 9_000, 1_000));
    }
}
