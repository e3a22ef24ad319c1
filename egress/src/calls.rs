//! Calls under way: bounded on the node, per tenant and per caller, so that nobody's slow provider takes everybody's
//! sockets.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Caller, Identity};

/// How many at a time. A tunnel counts for as long as it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallsMax {
    /// On the node.
    pub node: u32,
    /// Of one tenant.
    pub tenant: u32,
    /// Of one caller: one grant, one token, one certificate.
    pub caller: u32,
}

/// Whose room is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallsFull {
    /// The node's: it is busy.
    Node,
    /// The tenant's.
    Tenant,
    /// The caller's.
    Caller,
}

/// Shards of the table: calls begin and end on every thread at once.
const SHARDS: usize = 16;

/// Counts them. Holds only who has some: bounded by the calls under way.
#[derive(Debug)]
pub struct Calls {
    node: AtomicU32,
    hasher: RandomState,
    shards: [Mutex<HashMap<u64, u32>>; SHARDS],
}

/// One call; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct Call {
    calls: Arc<Calls>,
    tenant: u64,
    caller: u64,
}

impl Default for Calls {
    fn default() -> Self {
        Self { node: AtomicU32::new(0), hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Calls {
    /// Counts one more, or says whose room is used up; nothing is counted then.
    pub fn begin(self: &Arc<Self>, caller: &Caller, max: &CallsMax) -> Result<Call, CallsFull> {
        let tenant = self.hasher.hash_one(("tenant", caller.tenant.as_str()));
        let who = match &caller.identity {
            Identity::Grant { issuer, id } => ("grant", &**issuer, &**id),
            Identity::Token { name } => ("token", caller.tenant.as_str(), &**name),
            Identity::Certificate { name } => ("certificate", caller.tenant.as_str(), &**name),
        };
        let who = self.hasher.hash_one(who);
        let mut node = self.node.load(Ordering::Relaxed);
        loop {
            if node >= max.node {
                return Err(CallsFull::Node);
            }
            match self.node.compare_exchange_weak(node, node + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(have) => node = have,
            }
        }
        if !self.take(tenant, max.tenant) {
            self.node.fetch_sub(1, Ordering::Relaxed);
            return Err(CallsFull::Tenant);
        }
        if !self.take(who, max.caller) {
            self.give_back(tenant);
            self.node.fetch_sub(1, Ordering::Relaxed);
            return Err(CallsFull::Caller);
        }
        Ok(Call { calls: Arc::clone(self), tenant, caller: who })
    }

    /// Under way on the node.
    pub fn under_way(&self) -> u32 {
        self.node.load(Ordering::Relaxed)
    }

    /// Two names with one 64-bit hash, keyed per process, would share a count: nobody can aim at that.
    fn take(&self, key: u64, max: u32) -> bool {
        let mut shard = self.shard(key);
        let count = shard.entry(key).or_insert(0);
        let has_room = *count < max;
        if has_room {
            *count += 1;
        } else if *count == 0 {
            shard.remove(&key);
        }
        has_room
    }

    fn give_back(&self, key: u64) {
        if let Entry::Occupied(mut count) = self.shard(key).entry(key) {
            match count.get().checked_sub(1) {
                Some(left) if left > 0 => *count.get_mut() = left,
                Some(_) | None => drop(count.remove()),
            }
        }
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, u32>> {
        let place = usize::try_from(key % SHARDS as u64).unwrap_or_default();
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.give_back(self.tenant);
        self.calls.give_back(self.caller);
        self.calls.node.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use domain::TenantId;

    use super::*;

    fn caller(tenant: &str, token: &str) -> Caller {
        Caller {
            tenant: TenantId::parse(tenant).unwrap(),
            role: None,
            identity: Identity::Token { name: token.into() },
            connections: None,
            destinations: None,
            run: None,
            automation: None,
            class: None,
            until_unix_ms: None,
        }
    }

    #[test]
    fn each_has_its_own_room_and_gets_it_back() {
        let calls = Arc::new(Calls::default());
        let max = CallsMax { node: 5, tenant: 3, caller: 2 };
        let begin = |tenant: &str, token: &str| calls.begin(&caller(tenant, token), &max);
        let one = begin("acme", "a").unwrap();
        let two = begin("acme", "a").unwrap();
        assert_eq!(begin("acme", "a").unwrap_err(), CallsFull::Caller);
        let three = begin("acme", "b").unwrap();
        assert_eq!(begin("acme", "c").unwrap_err(), CallsFull::Tenant);
        let four = begin("other", "a").unwrap();
        let five = begin("other", "a").unwrap();
        assert_eq!(begin("third", "a").unwrap_err(), CallsFull::Node);
        assert_eq!(calls.under_way(), 5);
        drop(one);
        let again = begin("acme", "a").unwrap();
        assert_eq!(calls.under_way(), 5);
        drop((two, three, four, five, again));
        assert_eq!(calls.under_way(), 0);
        assert!(calls.shards.iter().all(|shard| shard.lock().unwrap().is_empty()), "who has none is not kept");
    }

    #[test]
    fn threads_never_get_more_than_there_is() {
        let calls = Arc::new(Calls::default());
        let max = CallsMax { node: 4, tenant: 4, caller: 4 };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if let Ok(_call) = calls.begin(&caller("acme", "a"), &max) {
                            assert!(calls.under_way() <= 4);
                        }
                    }
                });
            }
        });
        assert_eq!(calls.under_way(), 0);
    }
}
