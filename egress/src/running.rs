//! Calls under way, for whoever wants to see them: who makes each, where it leads, since when, and what has passed.
//!
//! A call is on the list for as long as it counts as one ([`crate::Call`]). What is learnt later, its exit and what
//! counts its bytes, is set once, without a lock.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use domain::ConnectionId;
use outbound::Authority;
use tokio::time::Instant;

use crate::forward::Tally;
use crate::tunnel::Live;
use crate::{About, Asked, Caller, CorrelationId, Entry, Way};

/// One call under way.
#[derive(Debug)]
pub struct Running {
    /// The call's.
    pub correlation: CorrelationId,
    /// By which door it came.
    pub way: Way,
    /// Who makes it.
    pub caller: Arc<Caller>,
    /// The connection that it is a call of.
    pub connection: Option<ConnectionId>,
    /// What it asked for. Where it follows redirects, its first hop.
    pub authority: Authority,
    began: Instant,
    exit: OnceLock<IpAddr>,
    carries: OnceLock<Carries>,
}

/// What counts a call's bytes.
#[derive(Debug)]
pub(crate) enum Carries {
    /// A tunnel, or a request that became one.
    Tunnel(Arc<Live<About>>),
    /// A request whose answer has begun.
    Answer(Arc<Tally>),
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is judged, dialled, or waits for its answer.
    Waiting,
    /// Its answer comes.
    Answer,
    /// Bytes pass both ways.
    Tunnel,
}

impl Running {
    /// One that begins, of a connection if of one.
    pub(crate) fn new(correlation: CorrelationId, asked: &Asked, caller: &Arc<Caller>, of: Option<&Entry>) -> Self {
        Self {
            correlation,
            way: asked.way,
            caller: Arc::clone(caller),
            connection: of.map(|entry| entry.connection.id().clone()),
            authority: asked.authority.clone(),
            began: Instant::now(),
            exit: OnceLock::new(),
            carries: OnceLock::new(),
        }
    }

    /// How long it has been under way.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// From where it leaves; none before it is connected.
    pub fn exit(&self) -> Option<IpAddr> {
        self.exit.get().copied()
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        match self.carries.get() {
            None => Stage::Waiting,
            Some(Carries::Answer(_)) => Stage::Answer,
            Some(Carries::Tunnel(_)) => Stage::Tunnel,
        }
    }

    /// Bytes to the destination and back from it, so far. Of a request they are known once its answer has begun.
    pub fn bytes(&self) -> (u64, u64) {
        match self.carries.get() {
            None => (0, 0),
            Some(Carries::Answer(tally)) => (tally.sent_bytes(), tally.received_bytes()),
            Some(Carries::Tunnel(live)) => (live.to_destination(), live.to_client()),
        }
    }

    pub(crate) fn leaves_from(&self, exit: IpAddr) {
        // The first hop's; the others leave from the same pool.
        self.exit.get_or_init(|| exit);
    }

    pub(crate) fn carries(&self, what: Carries) {
        self.carries.get_or_init(|| what);
    }
}

/// Calls begin and end on every thread at once.
const SHARDS: usize = 16;

/// All of them: as many as are admitted.
#[derive(Debug)]
pub(crate) struct List {
    shards: [Mutex<HashMap<u64, Arc<Running>>>; SHARDS],
    next: AtomicU64,
}

impl Default for List {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), next: AtomicU64::new(0) }
    }
}

impl List {
    /// Puts one on the list, at this place.
    pub(crate) fn put(&self, running: &Arc<Running>) -> u64 {
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(place).insert(place, Arc::clone(running));
        place
    }

    pub(crate) fn remove(&self, place: u64) {
        let removed = self.shard(place).remove(&place);
        // Freed when nobody waits for the lock.
        drop(removed);
    }

    /// Every one, in no order. Beginning and ending wait while a sixteenth of them is copied.
    pub(crate) fn all(&self) -> Vec<Arc<Running>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).values().cloned());
        }
        all
    }

    fn shard(&self, place: u64) -> MutexGuard<'_, HashMap<u64, Arc<Running>>> {
        lock(&self.shards[usize::try_from(place % SHARDS as u64).unwrap_or_default()])
    }
}

/// Nothing in here can be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
