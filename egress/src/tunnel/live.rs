//! Tunnels that are open: what passes through each, and the way to end it from outside.
//!
//! [`Tunnels`] holds one [`Live`] for each open tunnel, for draining; its call has it, too, for being shown and stopped
//! (`running.rs`). A tunnel that is idle is asleep; an order wakes it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use crate::refusal::Refusal;

/// What an open tunnel is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// End when nothing passes, and by then at the latest.
    Drain { deadline: Instant },
    /// End now.
    Stop(Refusal),
}

/// One open tunnel. `M` is whatever its owner wants to know of it again.
#[derive(Debug)]
pub struct Live<M> {
    /// Whose it is, and where it leads.
    pub about: M,
    opened: Instant,
    to_destination: AtomicU64,
    to_client: AtomicU64,
    has_order: AtomicBool,
    order: Mutex<Option<Order>>,
    waker: AtomicWaker,
}

impl<M> Live<M> {
    /// A tunnel that is in no list: nobody can end it from outside.
    pub fn new(about: M) -> Self {
        Self {
            about,
            opened: Instant::now(),
            to_destination: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
            has_order: AtomicBool::new(false),
            order: Mutex::new(None),
            waker: AtomicWaker::new(),
        }
    }

    /// Since when it is open.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Bytes of the client's that the destination's connection took.
    pub fn to_destination(&self) -> u64 {
        self.to_destination.load(Ordering::Relaxed)
    }

    /// Bytes of the destination's that the client's connection took.
    pub fn to_client(&self) -> u64 {
        self.to_client.load(Ordering::Relaxed)
    }

    /// Ends it now, for this reason.
    pub fn stop(&self, why: Refusal) {
        self.give(Order::Stop(why));
    }

    /// Whether it is told to end now.
    #[cfg(test)]
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.order(), Some(Order::Stop(_)))
    }

    /// Ends it as soon as nothing passes, and at the deadline in any case.
    pub fn drain(&self, deadline: Instant) {
        self.give(Order::Drain { deadline });
    }

    fn give(&self, order: Order) {
        let mut held = lock(&self.order);
        // Who was told to stop is not told to take his time.
        if !matches!(*held, Some(Order::Stop(_))) {
            *held = Some(order);
        }
        drop(held);
        self.has_order.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn order(&self) -> Option<Order> {
        // An order comes once in the life of a tunnel, and this is asked every time it wakes.
        if self.has_order.load(Ordering::Acquire) { *lock(&self.order) } else { None }
    }

    /// Whom an order wakes. To be called before `order` is asked, so that none comes in between.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn sent(&self) -> &AtomicU64 {
        &self.to_destination
    }

    pub(super) fn received(&self) -> &AtomicU64 {
        &self.to_client
    }
}

/// All open tunnels. As many as its owner admits: it has no bound of its own.
#[derive(Debug)]
pub struct Tunnels<M> {
    shards: Box<[Mutex<Shard<M>>]>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Shard<M> {
    open: HashMap<u64, Arc<Live<M>>>,
    /// Set once. What opens afterwards is drained with the others.
    draining: Option<Instant>,
}

/// Opening and closing are rare beside relaying; a few locks are enough for any number of threads.
const SHARDS: usize = 16;

impl<M> Default for Tunnels<M> {
    fn default() -> Self {
        let shard = || Mutex::new(Shard { open: HashMap::new(), draining: None });
        Self { shards: std::iter::repeat_with(shard).take(SHARDS).collect(), next: AtomicU64::new(0) }
    }
}

impl<M> Tunnels<M> {
    /// Puts a tunnel on the list, for as long as what is returned lives.
    pub fn open(self: &Arc<Self>, about: M) -> Open<M> {
        let live = Arc::new(Live::new(about));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut shard = lock(self.shard(id));
        if let Some(deadline) = shard.draining {
            live.drain(deadline);
        }
        shard.open.insert(id, Arc::clone(&live));
        drop(shard);
        Open { live, id, list: Arc::clone(self) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).open.len()).sum()
    }

    /// Every one, in no order. Opening and closing wait while a sixteenth of them is copied, and not while `see` runs.
    pub fn each(&self, mut see: impl FnMut(&Live<M>)) {
        for shard in &self.shards {
            let open: Vec<_> = lock(shard).open.values().cloned().collect();
            for live in open {
                see(&live);
            }
        }
    }

    /// Ends the idle ones now, each of the others as soon as it is idle, and all of them at the deadline.
    pub fn drain(&self, deadline: Instant) {
        for shard in &self.shards {
            lock(shard).draining = Some(deadline);
        }
        self.each(|live| live.drain(deadline));
    }

    fn shard(&self, id: u64) -> &Mutex<Shard<M>> {
        // Numbers that follow each other are in different ones.
        let at = usize::try_from(id % SHARDS as u64).unwrap_or_default();
        &self.shards[at]
    }
}

/// A tunnel's place on the list.
#[derive(Debug)]
pub struct Open<M> {
    live: Arc<Live<M>>,
    id: u64,
    list: Arc<Tunnels<M>>,
}

impl<M> Open<M> {
    /// The tunnel itself, for others to look at.
    pub fn live(&self) -> &Arc<Live<M>> {
        &self.live
    }
}

impl<M> std::ops::Deref for Open<M> {
    type Target = Live<M>;

    fn deref(&self) -> &Live<M> {
        &self.live
    }
}

impl<M> Drop for Open<M> {
    fn drop(&mut self) {
        lock(self.list.shard(self.id)).open.remove(&self.id);
    }
}

/// Nothing in here can be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
