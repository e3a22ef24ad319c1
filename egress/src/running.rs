//! Calls under way, for whoever wants to see them: who makes each, where it leads, since when, and what has passed.
//!
//! A call is on the list for as long as it counts as one ([`crate::Call`]). What is learnt later, its exit and what
//! counts its bytes, is set once, without a lock. So is the word that it has to end now ([`Stop`]); `rights.rs` says when.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use domain::{Clock, ConnectionId, ConnectorId};
use futures_util::task::AtomicWaker;
use listen::Halt;
use outbound::Authority;
use tokio::time::Instant;

use crate::caller::Identified;
use crate::forward::Tally;
use crate::rights::Stop;
use crate::tunnel::Live;
use crate::way::instant_of;
use crate::{Asked, Caller, CorrelationId, Entry, Way};

/// How long a request may go on beyond the end of its caller's proof; a tunnel ends with it. A call that begins in the
/// last second of a grant is not cut in the middle of a short answer, and nobody keeps a stream for longer than clocks may
/// differ anyway.
pub const GRACE: Duration = Duration::from_millis(GRACE_MS);
const GRACE_MS: u64 = crate::caller::LEEWAY_SECONDS * 1000;

/// One call under way.
#[derive(Debug)]
pub struct Running {
    /// The call's.
    pub correlation: CorrelationId,
    /// By which door it came.
    pub way: Way,
    /// Who makes it.
    pub identified: Identified,
    /// The connection that it is a call of.
    pub connection: Option<ConnectionId>,
    /// That connection's connector.
    pub connector: Option<ConnectorId>,
    /// What it asked for. Where it follows redirects, its first hop.
    pub authority: Authority,
    /// Where a redirect has led it since.
    moved: Mutex<Option<Authority>>,
    began: Instant,
    /// When it has to be over, if it is none that becomes a tunnel.
    until: Option<Instant>,
    /// When it has taken too long as a whole, unless it has become a tunnel.
    ends: Option<Instant>,
    exit: OnceLock<IpAddr>,
    carries: OnceLock<Carries>,
    stop: OnceLock<Stop>,
    waker: AtomicWaker,
}

/// What counts a call's bytes.
#[derive(Debug)]
pub(crate) enum Carries {
    /// A tunnel, or a request that became one.
    Tunnel(Arc<Live<CorrelationId>>),
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
    /// One that begins, of a connection if of one. Of the end of its caller's proof the wall clock is read now.
    pub(crate) fn new(
        correlation: CorrelationId,
        asked: &Asked,
        identified: &Identified,
        of: Option<&Entry>,
        clock: &dyn Clock,
    ) -> Self {
        let until = identified.caller.until_unix_ms;
        let until = until.map(|until| instant_of(until.saturating_add(GRACE_MS), clock.unix_ms()));
        Self {
            correlation,
            way: asked.way,
            identified: identified.clone(),
            connection: of.map(|entry| entry.connection.id().clone()),
            connector: of.map(|entry| entry.connection.connector_id().clone()),
            authority: asked.authority.clone(),
            moved: Mutex::new(None),
            began: Instant::now(),
            until,
            ends: None,
            exit: OnceLock::new(),
            carries: OnceLock::new(),
            stop: OnceLock::new(),
            waker: AtomicWaker::new(),
        }
    }

    /// Who makes it.
    pub fn caller(&self) -> &Caller {
        &self.identified.caller
    }

    /// Where it leads now: its present hop.
    pub fn leads_to(&self) -> Authority {
        lock(&self.moved).as_ref().unwrap_or(&self.authority).clone()
    }

    /// A redirect leads it on.
    pub(crate) fn moves_to(&self, authority: &Authority) {
        *lock(&self.moved) = Some(authority.clone());
    }

    /// It is a request, and may take that long. Whoever waits for its destination looks at the time, too; this is for a
    /// caller that does not take what is there, when nobody waits for the destination.
    pub(crate) fn within(mut self, total: Option<Duration>) -> Self {
        self.ends = total.and_then(|total| self.began.checked_add(total));
        self
    }

    /// Why its time is over, if it is.
    pub(crate) fn over(&self, now: Instant) -> Option<Stop> {
        let is_past = |end: Option<Instant>| end.is_some_and(|end| end <= now);
        if is_past(self.until) {
            return Some(Stop::Expired);
        }
        let is_tunnel = matches!(self.carries.get(), Some(Carries::Tunnel(_)));
        (!is_tunnel && is_past(self.ends)).then_some(Stop::TookTooLong)
    }

    /// Ends it now, whatever it waits for. The first word counts.
    pub(crate) fn stop(&self, why: Stop) {
        self.stop.get_or_init(|| why);
        // Against the fence in `carries`: of the two, one at least sees what the other has set.
        fence(Ordering::SeqCst);
        if let Some(Carries::Tunnel(live)) = self.carries.get() {
            live.stop(why.refusal());
        }
        self.waker.wake();
    }

    /// Why it has to end, if it has to.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get().copied()
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

    /// From here on it is a tunnel, or has an answer. A tunnel that opens while its call is stopped ends at once.
    pub(crate) fn carries(&self, what: Carries) {
        let what = self.carries.get_or_init(|| what);
        fence(Ordering::SeqCst);
        if let (Carries::Tunnel(live), Some(stop)) = (what, self.stopped()) {
            live.stop(stop.refusal());
        }
    }
}

impl Halt for Running {
    fn wakes(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    fn has_come(&self) -> bool {
        self.stop.get().is_some()
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
        self.those(|_| true)
    }

    /// Those that `is_meant` says yes to. They wait meanwhile, too.
    pub(crate) fn those(&self, is_meant: impl Fn(&Running) -> bool) -> Vec<Arc<Running>> {
        let mut those = Vec::new();
        for shard in &self.shards {
            those.extend(lock(shard).values().filter(|running| is_meant(running)).cloned());
        }
        those
    }

    fn shard(&self, place: u64) -> MutexGuard<'_, HashMap<u64, Arc<Running>>> {
        lock(&self.shards[usize::try_from(place % SHARDS as u64).unwrap_or_default()])
    }
}

/// Nothing in here can be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
