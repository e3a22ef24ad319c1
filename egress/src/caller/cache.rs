//! Grants whose signature was checked, by the hash of their text.
//!
//! It saves the check of the signature (some 50 µs) and nothing else: what can change is asked of the entry every time. Only what
//! a known issuer signed gets in, so that no forger can fill it.
//!
//! Bounded in entries and in bytes. Each shard has two halves, the young and the old: a new entry goes into the young
//! one, an old one that is used goes there too, and when the young half is full it becomes the old one, whose entries
//! are forgotten. So what is used stays, without a list to keep in order.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::grant::Grant;
use super::key::PublicKey;

/// Grants that are kept: about one per run that is under way.
pub(super) const ENTRIES_MAX: usize = 65_536;

/// Bytes of tokens that are kept, in tokens' text; what is read of them takes about twice that.
const BYTES_MAX: usize = 64 << 20;

/// Parts with a lock each, so that cores do not wait for one another.
const SHARDS: usize = 16;

/// SHA-256 of a token.
pub(super) type TokenDigest = [u8; 32];

/// What was verified, and under which issuers.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) grant: Grant,
    pub(super) key: PublicKey,
    /// Of the set of issuers: under another one, nothing of this is known.
    pub(super) generation: u64,
    /// Of issuer and id: what calls are counted under.
    pub(super) counted_as: [u8; 16],
    /// Length of the token.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    entries_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: HashMap<TokenDigest, Arc<Verified>>,
    young_bytes: usize,
    old: HashMap<TokenDigest, Arc<Verified>>,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self::bounded(ENTRIES_MAX, BYTES_MAX)
    }

    fn bounded(entries_max: usize, bytes_max: usize) -> Self {
        let per_half = |max: usize| max.div_ceil(2 * SHARDS);
        Self { shards: Default::default(), entries_max: per_half(entries_max), bytes_max: per_half(bytes_max) }
    }

    /// What is known of a token under this generation of issuers. What is known of it under another one is forgotten.
    pub(super) fn find(&self, digest: &TokenDigest, generation: u64) -> Option<Arc<Verified>> {
        let mut shard = self.shard(digest).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shard.young.get(digest) {
            if known.generation == generation {
                return Some(Arc::clone(known));
            }
            let bytes = known.bytes;
            shard.young.remove(digest);
            shard.young_bytes -= bytes;
            return None;
        }
        let known = shard.old.remove(digest).filter(|known| known.generation == generation)?;
        self.keep(&mut shard, *digest, Arc::clone(&known));
        Some(known)
    }

    pub(super) fn insert(&self, digest: TokenDigest, verified: Arc<Verified>) {
        let mut shard = self.shard(&digest).lock().unwrap_or_else(PoisonError::into_inner);
        self.keep(&mut shard, digest, verified);
    }

    /// Forgets everything, and gives the memory back.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            *shard.lock().unwrap_or_else(PoisonError::into_inner) = Shard::default();
        }
    }

    fn keep(&self, shard: &mut Shard, digest: TokenDigest, verified: Arc<Verified>) {
        if shard.young.len() >= self.entries_max || shard.young_bytes >= self.bytes_max {
            shard.old = mem::take(&mut shard.young);
            shard.young_bytes = 0;
        }
        shard.young_bytes += verified.bytes;
        if let Some(before) = shard.young.insert(digest, verified) {
            shard.young_bytes -= before.bytes;
        }
    }

    fn shard(&self, digest: &TokenDigest) -> &Mutex<Shard> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let each = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        });
        each.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn verified(generation: u64, bytes: usize) -> Arc<Verified> {
        let (grant, key) = testing::verified_grant();
        Arc::new(Verified { grant, key, generation, counted_as: [0; 16], bytes })
    }

    fn digest(n: u32) -> TokenDigest {
        *super::super::token::TokenHash::of(&n.to_be_bytes()).as_bytes()
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let cache = Cache::bounded(320, usize::MAX);
        let one = verified(1, 100);
        cache.insert(digest(0), Arc::clone(&one));
        for n in 1..5_000 {
            cache.insert(digest(n), Arc::clone(&one));
            assert!(cache.find(&digest(0), 1).is_some(), "{n}");
            assert!(cache.len() <= 320, "{}", cache.len());
        }
        assert!(cache.len() >= 160);
        assert!(cache.find(&digest(1), 1).is_none());
        cache.clear();
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn it_is_bounded_in_bytes_too() {
        let cache = Cache::bounded(usize::MAX, 64_000);
        let large = verified(1, 1_000);
        for n in 0..5_000 {
            cache.insert(digest(n), Arc::clone(&large));
            // One entry more than half of a shard may be in each half.
            assert!(cache.len() <= 64 + 2 * SHARDS, "{}", cache.len());
        }
    }

    #[test]
    fn another_set_of_issuers_knows_nothing_of_it() {
        let cache = Cache::new();
        cache.insert(digest(1), verified(1, 100));
        assert!(cache.find(&digest(1), 2).is_none());
        assert!(cache.find(&digest(1), 1).is_none(), "it was forgotten");
    }
}
