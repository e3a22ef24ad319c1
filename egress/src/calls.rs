//! Calls under way: bounded on the node, per tenant and per caller, so that nobody's slow provider takes everybody's
//! sockets.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::running::List;
use crate::{Caller, Identity, Running};

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
    list: List,
}

/// One call; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct Call {
    calls: Arc<Calls>,
    tenant: u64,
    caller: u64,
    /// Its place on the list.
    listed: Option<(u64, Arc<Running>)>,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            node: AtomicU32::new(0),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            list: List::default(),
        }
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
        Ok(Call { calls: Arc::clone(self), tenant, caller: who, listed: None })
    }

    /// Under way on the node.
    pub fn under_way(&self) -> u32 {
        self.node.load(Ordering::Relaxed)
    }

    /// Every call that is under way, in no order.
    pub fn list(&self) -> Vec<Arc<Running>> {
        self.list.all()
    }

    /// Those whose time is over.
    pub(crate) fn list_over(&self, now: Instant) -> Vec<Arc<Running>> {
        self.list.those(|running| running.over(now).is_some())
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

impl Call {
    /// Puts it on the list of calls, for as long as it lasts.
    pub(crate) fn shown_as(mut self, running: Running) -> Self {
        let running = Arc::new(running);
        self.listed = Some((self.calls.list.put(&running), running));
        self
    }

    /// What is known of it, if it is on the list.
    pub(crate) fn running(&self) -> Option<&Arc<Running>> {
        self.listed.as_ref().map(|(_, running)| running)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some((place, _)) = &self.listed {
            self.calls.list.remove(*place);
        }
        self.calls.give_back(self.tenant);
        self.calls.give_back(self.caller);
        self.calls.node.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use domain::{ManualClock, TenantId};

    use super::*;
    use crate::caller::Identified;

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
    fn a_call_is_on_the_list_for_as_long_as_it_lasts() {
        use crate::forward::Tally;
        use crate::running::Carries;
        use crate::{Asked, CorrelationId, Stage, Way};
        let calls = Arc::new(Calls::default());
        let max = CallsMax { node: 100, tenant: 100, caller: 100 };
        let shown = |nth: u64| {
            let who = Arc::new(caller("acme", "a"));
            let authority = outbound::Authority::with_port("api.example.com:443").unwrap();
            let id = CorrelationId::new(nth, domain::NodeId(1), [1; 8]);
            let (method, scheme) = (http::Method::GET, outbound::Scheme::Https);
            let asked = Asked { way: Way::Absolute, method, scheme, authority, path_and_query: "/".into() };
            let running = Running::new(id, &asked, &Identified::by_token(&who), None, &*ManualClock::at_unix_ms(0));
            calls.begin(&who, &max).unwrap().shown_as(running)
        };
        let mut held: Vec<_> = (0..40).map(shown).collect();
        assert_eq!(calls.list().len(), 40);
        let running = held[3].running().unwrap();
        assert_eq!((running.stage(), running.bytes(), running.exit()), (Stage::Waiting, (0, 0), None));
        let tally = Arc::new(Tally::default());
        running.carries(Carries::Answer(Arc::clone(&tally)));
        running.leaves_from([192, 0, 2, 1].into());
        tally.send(7);
        tally.receive(9);
        let id = running.correlation;
        let seen = calls.list().into_iter().find(|running| running.correlation == id).unwrap();
        assert_eq!((seen.stage(), seen.bytes()), (Stage::Answer, (7, 9)));
        assert_eq!(seen.exit(), Some([192, 0, 2, 1].into()));
        held.truncate(5);
        assert_eq!(calls.list().len(), 5);
        // Refused for want of room, or never shown: on no list.
        assert!(calls.begin(&caller("acme", "a"), &CallsMax { node: 1, ..max }).is_err());
        let _unseen = calls.begin(&caller("acme", "a"), &max).unwrap();
        assert_eq!(calls.list().len(), 5);
        drop(held);
        assert!(calls.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_go_on_for_a_moment_beyond_its_proof() {
        use std::time::Duration;

        use crate::{Asked, CorrelationId, GRACE, Stop, Way};
        let calls = Arc::new(Calls::default());
        let max = CallsMax { node: 100, tenant: 100, caller: 100 };
        let clock = ManualClock::at_unix_ms(1_000_000);
        let began = |until_unix_ms| {
            let who = Arc::new(Caller { until_unix_ms, ..caller("acme", "a") });
            let authority = outbound::Authority::with_port("api.example.com:443").unwrap();
            let id = CorrelationId::new(1, domain::NodeId(1), [1; 8]);
            let (method, scheme) = (http::Method::GET, outbound::Scheme::Https);
            let asked = Asked { way: Way::Absolute, method, scheme, authority, path_and_query: "/".into() };
            let running = Running::new(id, &asked, &Identified::by_token(&who), None, &*clock);
            calls.begin(&who, &max).unwrap().shown_as(running)
        };
        let (soon, _endless) = (began(Some(1_002_000)), began(None));
        let over = || calls.list_over(Instant::now());
        tokio::time::advance(GRACE + Duration::from_millis(1_999)).await;
        assert_eq!(over().len(), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        // The wall clock was read when it began; setting it moves nothing.
        clock.step_to_unix_ms(0);
        let [running] = &over()[..] else { panic!("{:?}", over()) };
        assert!(Arc::ptr_eq(running, soon.running().unwrap()));
        running.stop(Stop::Expired);
        running.stop(Stop::Closed);
        assert_eq!(soon.running().unwrap().stopped(), Some(Stop::Expired), "the first word counts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_when_it_has_taken_too_long_whoever_holds_it_up() {
        use std::time::Duration;

        use crate::running::Carries;
        use crate::tunnel::Tunnels;
        use crate::{Asked, CorrelationId, Stop, Way};
        let who = Arc::new(caller("acme", "a"));
        let id = CorrelationId::new(1, domain::NodeId(1), [1; 8]);
        let running = |total| {
            let authority = outbound::Authority::with_port("api.example.com:443").unwrap();
            let (method, scheme) = (http::Method::GET, outbound::Scheme::Https);
            let asked = Asked { way: Way::Absolute, method, scheme, authority, path_and_query: "/".into() };
            Running::new(id, &asked, &Identified::by_token(&who), None, &*ManualClock::at_unix_ms(0)).within(total)
        };
        let (bounded, endless, switched) =
            (running(Some(Duration::from_secs(9))), running(None), running(Some(Duration::ZERO)));
        switched.carries(Carries::Tunnel(Arc::clone(Arc::<Tunnels<CorrelationId>>::default().open(id).live())));
        tokio::time::advance(Duration::from_millis(8_999)).await;
        assert_eq!(bounded.over(Instant::now()), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(bounded.over(Instant::now()), Some(Stop::TookTooLong));
        assert_eq!((endless.over(Instant::now()), switched.over(Instant::now())), (None, None), "a WebSocket may last");
    }

    #[test]
    fn a_tunnel_that_opens_while_its_call_is_stopped_has_no_time() {
        use crate::running::Carries;
        use crate::tunnel::Tunnels;
        use crate::{Asked, CorrelationId, Stop, Way};
        let who = Arc::new(caller("acme", "a"));
        let id = CorrelationId::new(1, domain::NodeId(1), [1; 8]);
        let running = || {
            let authority = outbound::Authority::with_port("api.example.com:443").unwrap();
            let (method, scheme) = (http::Method::CONNECT, outbound::Scheme::Https);
            let asked = Asked { way: Way::Connect, method, scheme, authority, path_and_query: "".into() };
            Running::new(id, &asked, &Identified::by_token(&who), None, &*ManualClock::at_unix_ms(0))
        };
        for is_stopped_first in [true, false] {
            let (running, open) = (running(), Arc::<Tunnels<CorrelationId>>::default().open(id));
            if is_stopped_first {
                running.stop(Stop::Revoked);
            }
            running.carries(Carries::Tunnel(Arc::clone(open.live())));
            if !is_stopped_first {
                running.stop(Stop::Revoked);
            }
            assert!(open.is_stopped(), "{is_stopped_first}");
        }
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
