//! All leases of a node: the pure whole.

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::quota::answer::{AskError, Reply};
use crate::quota::key::{Application, BucketKey, Level};
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Class, LEGS_MAX, Op, Share, Why};
use crate::quota::rule::{CAP_MAX, Kind, Rule};
use crate::shards::{Shards, spread};

use super::bucket::{App, Bucket, Buckets};
use super::counters::{Counters, add};
use super::health::Health;
use super::held::{Spoilt, Term};
use super::parked::{Parked, Reason};
use super::queue::{Call, Token};
use super::reserve::Reserve;
use super::route::{InvalidRoute, Need, Route};
use super::settings::{InvalidSettings, Settings};
use super::shard::Shard;
use super::tell::{Seen, Tell};

/// Integers on the protocol are exact in a double.
const SEQ_MAX: u64 = 1 << 53;
/// Longest that a release is spread by.
const SPREAD_MS_MAX: u64 = 10_000;
/// How often something is looked at that nothing is due of.
const SWEEP_MS: u64 = 250;

/// What one node holds, and who waits there. Times are ms of one clock that runs while the machine sleeps.
///
/// Nothing here does I/O: operations to be sent come back as [`Effects`], each with a ticket, and what comes of each is
/// told by [`Self::answered`]. Whoever drives this calls [`Self::tick`] when [`Self::next_due_ms`] says so.
#[derive(Debug)]
pub struct Leases<W> {
    common: Common,
    shards: Shards<Shard<W>>,
}

/// What the shards of a holder share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) settings: Settings,
    pub(super) holder: HolderId,
    pub(super) buckets: Buckets,
    pub(super) health: Health,
    pub(super) counters: Counters,
    pub(super) tell: Tell,
    pub(super) reserve: Option<Reserve>,
    /// Operations under way that replace leases.
    pub(super) asks: AtomicUsize,
    pub(super) cells: AtomicUsize,
    pub(super) waiters: AtomicUsize,
    hasher: RandomState,
    /// One for all leases: one that is forgotten and made again goes on above what it had.
    seq: AtomicU64,
    random: AtomicU64,
    swept: AtomicUsize,
    swept_ms: AtomicU64,
    is_closing: AtomicBool,
}

/// What has to be done outside.
#[derive(Debug)]
pub struct Effects<W> {
    pub sends: Vec<Sending>,
    /// What has become of those who waited.
    pub verdicts: Vec<(W, Verdict)>,
    pub(super) epochs: Vec<Arc<App>>,
}

/// An operation to be sent to the centre.
#[derive(Debug, Clone)]
pub struct Sending {
    pub ticket: Ticket,
    pub op: Arc<Op>,
}

/// Which operation an answer is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ticket {
    Ask { shard: usize, seq: u64 },
    Tell { id: u64 },
}

/// What a call meets.
#[expect(clippy::large_enum_variant, reason = "moved once or twice; a box would be an allocation for each call")]
#[derive(Debug)]
pub enum Hold {
    Held(Taken),
    Parked(Parked),
    /// A verdict follows.
    Waits,
}

#[expect(clippy::large_enum_variant, reason = "moved once or twice; a box would be an allocation for each call")]
#[derive(Debug)]
pub enum Verdict {
    Held(Taken),
    Parked(Parked),
}

/// Units of every level of a call. They have to come back by [`Leases::finish`], once.
#[derive(Debug, Clone)]
#[must_use = "units that are not finished are lost"]
pub struct Taken {
    pub(super) route: Route,
    pub(super) terms: [Term; LEGS_MAX],
}

impl Ticket {
    pub(super) fn ask(mark: u64, seq: u64) -> Self {
        Self::Ask { shard: Shards::<Shard<()>>::of(mark), seq }
    }
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self { sends: Vec::new(), verdicts: Vec::new(), epochs: Vec::new() }
    }
}

impl<W> Effects<W> {
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.verdicts.is_empty() && self.epochs.is_empty()
    }
}

impl Common {
    pub(super) fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed)
    }

    /// The centre knows of a higher one.
    pub(super) fn raise_seq(&self, seq: u64) {
        if seq < SEQ_MAX {
            self.seq.fetch_max(seq + 1, Ordering::Relaxed);
        }
    }

    /// Any number: for what must not happen in step.
    pub(super) fn random(&self) -> u64 {
        spread(self.random.fetch_add(1, Ordering::Relaxed))
    }

    /// A call is told when to come again: a tenth of the wait later at most, not everybody at once.
    pub(super) fn park(&self, route: &Route, leg: usize, until_ms: u64, reason: Reason, now_ms: u64) -> Parked {
        self.counters.parked(reason);
        let wait_ms = until_ms.saturating_sub(now_ms).max(1);
        let spread_ms = (wait_ms / 10).min(SPREAD_MS_MAX);
        let level = route.station(leg).or_else(|| route.station(0)).map_or(Level::App, super::route::Station::level);
        Parked { release_ms: wait_ms + self.random() % (spread_ms + 1), level, leg, reason }
    }
}

impl<W: Token> Leases<W> {
    /// A holder that has nothing. `seed` is any number that another node's is not, for what must not happen in step.
    pub fn new(settings: Settings, holder: HolderId, seed: u64) -> Result<Self, InvalidSettings> {
        settings.check()?;
        let common = Common {
            settings,
            holder,
            buckets: Buckets::new(),
            health: Health::default(),
            counters: Counters::default(),
            tell: Tell::default(),
            reserve: settings.degraded.map(Reserve::new),
            asks: AtomicUsize::new(0),
            cells: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            hasher: RandomState::new(),
            seq: AtomicU64::new(1),
            random: AtomicU64::new(seed),
            swept: AtomicUsize::new(0),
            swept_ms: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
        };
        Ok(Self { common, shards: Shards::new() })
    }

    /// The way of a tenant's calls.
    pub fn route(&self, tenant: &Name, share: Share, needs: &[Need]) -> Result<Route, InvalidRoute> {
        let rule_of = |rule: &Arc<Rule>| match &self.common.reserve {
            Some(reserve) => reserve.rule_of(rule),
            None => Arc::clone(rule),
        };
        Route::new(&self.common.buckets, &self.common.hasher, tenant, share, needs, rule_of)
    }

    /// Takes units of every level for a call, or none; where one is missing, the call waits for up to `wait_ms` if that
    /// may help. `token` is made only then.
    pub fn hold(
        &self,
        route: &Route,
        class: Class,
        cost: u32,
        wait_ms: u64,
        now_ms: u64,
        token: impl FnOnce() -> W,
    ) -> (Hold, Effects<W>) {
        let mut effects = Effects::default();
        if self.common.is_closing.load(Ordering::Relaxed) {
            return (Hold::Parked(self.common.park(route, 0, now_ms + 1_000, Reason::Closing, now_ms)), effects);
        }
        if let Some((leg, until_ms, why)) = route.heeded_park(now_ms) {
            return (Hold::Parked(self.common.park(route, leg, until_ms, Reason::Park(why), now_ms)), effects);
        }
        if route.is_empty() {
            return (Hold::Held(Taken { route: route.clone(), terms: [Term::NONE; LEGS_MAX] }), effects);
        }
        let deadline_ms = now_ms + wait_ms.min(self.common.settings.wait_ms_max);
        // A call costs something, and no more than there can be.
        let call = Call { route, class, cost: cost.clamp(1, CAP_MAX), deadline_ms };
        let hold = self.shard_of(route).hold(&self.common, call, now_ms, token, &mut effects);
        (hold, effects)
    }

    /// Whether the request may be written now.
    pub fn check(&self, taken: &Taken, now_ms: u64) -> Result<(), Spoilt> {
        for (leg, (term, station)) in taken.terms.iter().zip(&taken.route.0.legs).enumerate() {
            let bucket = &station.bucket;
            let is_windowed = matches!(station.rule.kind, Kind::Fixed { .. } | Kind::Calendar { .. });
            let spoilt = if now_ms >= term.expires_ms {
                Spoilt::Expired { leg }
            } else if bucket.park(now_ms).is_some() || bucket.is_void(term.generation) {
                Spoilt::Void { leg }
            } else if is_windowed && bucket.is_window_over(term.wid) {
                Spoilt::Window { leg }
            } else {
                continue;
            };
            add(&self.common.counters.spoilt, 1);
            return Err(spoilt);
        }
        match taken.route.heeded_park(now_ms) {
            Some((leg, ..)) => {
                add(&self.common.counters.spoilt, 1);
                Err(Spoilt::Void { leg })
            }
            None => Ok(()),
        }
    }

    /// When a call whose lease was spoilt may come again.
    pub fn spoilt(&self, taken: &Taken, spoilt: Spoilt, now_ms: u64) -> Parked {
        let leg = spoilt.leg();
        let park = taken.route.station(leg).and_then(|station| station.bucket.park(now_ms));
        let (until_ms, reason) = match park {
            Some((until_ms, why)) => (until_ms, Reason::Park(why)),
            None => (now_ms + 1, Reason::Spoilt),
        };
        self.common.park(&taken.route, leg, until_ms, reason, now_ms)
    }

    /// A call is over. If nothing of it was sent, its units are there again.
    pub fn finish(&self, taken: &Taken, is_sent: bool, now_ms: u64) -> Effects<W> {
        let mut effects = Effects::default();
        let is_slot = |leg: usize| !taken.route.0.legs[leg].rule.is_rate();
        if taken.route.is_empty() || is_sent && !(0..taken.route.len()).any(is_slot) {
            return effects;
        }
        let mut shard = self.shard_of(&taken.route);
        let places = shard.places(&taken.route);
        let mut is_waited_for = false;
        for (leg, term) in taken.terms.iter().enumerate().take(taken.route.len()) {
            let Some(cell) = shard.cell_mut(places[leg]).filter(|_| term.units > 0) else { continue };
            if is_slot(leg) {
                if term.is_of_lease() {
                    cell.free_slots(term.units);
                }
            } else if !is_sent && !cell.put_back(term, term.units, now_ms) {
                add(&self.common.counters.forfeited_units, u64::from(term.units));
            }
            is_waited_for |= cell.queued > 0;
        }
        if is_waited_for {
            shard.pump(&self.common, taken.route.0.party.mark, now_ms, &mut effects);
        }
        effects
    }

    /// What a call really cost at a level. What it cost less is there again; what it cost more is taken, or owed.
    pub fn settle(&self, taken: &mut Taken, leg: usize, actual: u32, now_ms: u64) {
        let Some(station) = taken.route.0.legs.get(leg).filter(|station| station.rule.is_rate()) else { return };
        let term = &mut taken.terms[leg];
        let estimate = std::mem::replace(&mut term.units, actual);
        let mut shard = self.shard_of(&taken.route);
        let place = shard.find(station, &taken.route.0.party);
        let (mut paid, mut owed) = (estimate, actual);
        if let Some(cell) = shard.cell_mut(place) {
            if actual < estimate && cell.put_back(term, estimate - actual, now_ms) {
                return;
            }
            if actual > estimate {
                paid += cell.take_more(actual - estimate, now_ms);
            }
        }
        drop(shard);
        if term.is_of_lease() && paid != owed {
            // Only the difference matters; the estimate of a debt has been paid.
            (paid, owed) = if paid > owed { (paid, owed) } else { (0, owed - paid) };
            let since_ms = term.expires_ms.saturating_sub(u64::from(station.rule.lease_ms));
            let is_kept = self.common.tell.settle(&taken.route, leg, term.wid, since_ms, (paid, owed), now_ms);
            add(&self.common.counters.dropped, u64::from(!is_kept));
        }
    }

    /// A provider refused a call, or says that nothing is left. The bucket is parked here at once and everywhere once
    /// the centre was told, which is tried until it is.
    pub fn throttled(&self, taken: &Taken, leg: usize, delta_ms: u64, why: Why, now_ms: u64) {
        let Some(station) = taken.route.station(leg) else { return };
        let term = if leg < taken.route.len() { &taken.terms[leg] } else { &Term::NONE };
        add(&self.common.counters.throttled, 1);
        let delta_ms = delta_ms.min(crate::quota::op::PARK_MS_MAX);
        station.bucket.park_until(now_ms + delta_ms, why);
        let generation = (term.is_of_lease() && term.generation > 0).then_some(term.generation);
        if let Some(generation) = generation {
            station.bucket.void(generation);
        }
        self.common.tell.penalise(station, generation, now_ms + delta_ms, why, now_ms);
    }

    /// What a response's headers say of a level.
    pub fn observed(&self, taken: &Taken, leg: usize, seen: Seen, now_ms: u64) {
        let (Some(station), Some(term)) = (taken.route.0.legs.get(leg), taken.terms.get(leg)) else { return };
        if term.is_of_lease() {
            let is_kept = self.common.tell.observe(station, term.wid, seen, now_ms);
            add(&self.common.counters.dropped, u64::from(!is_kept));
        }
    }

    /// Buckets of which nothing is held, of an application or of all.
    pub(super) fn heeded(&self, application: Option<&Application>) -> Vec<Arc<Bucket>> {
        self.common.buckets.heeded(application)
    }

    /// The centre says, unasked, that a bucket is parked for `ms` from now, or not any more (0), and that leases of
    /// before `generation` are void. A bucket that nobody here has is none of ours.
    pub fn pushed(&self, application: &Application, key: &BucketKey, generation: u64, ms: u64, why: Why, now_ms: u64) {
        let Some(bucket) = self.common.buckets.known(application, key) else { return };
        bucket.hear(generation);
        if ms > 0 {
            bucket.park_until(now_ms + ms.min(crate::quota::op::PARK_MS_MAX), why);
            return;
        }
        if !bucket.is_penalised.load(Ordering::Relaxed) {
            bucket.unpark();
        }
        // An operator's doing, and seldom: what was refused before is asked for anew.
        for mut shard in self.shards.each() {
            shard.forgive(&bucket, now_ms);
        }
    }

    /// What has come of an attempt that was sent at `sent_ms`.
    pub fn answered(&self, ticket: Ticket, sent_ms: u64, result: Result<Reply, AskError>, now_ms: u64) -> Effects<W> {
        let mut effects = Effects::default();
        match ticket {
            Ticket::Ask { shard, seq } if shard < Shards::<Shard<W>>::COUNT => {
                self.shards.lock(shard).answered(&self.common, seq, sent_ms, result, now_ms, &mut effects);
            }
            Ticket::Ask { .. } => {}
            Ticket::Tell { id } => self.common.tell.answered(&self.common.counters, id, result, now_ms),
        }
        for app in std::mem::take(&mut effects.epochs) {
            for mut shard in self.shards.each() {
                shard.tell_all(&self.common, &app, now_ms);
            }
        }
        effects
    }

    /// Does what is due. `unix_ms` is only for what is set aside for the time in which the centre is gone.
    pub fn tick(&self, now_ms: u64, unix_ms: u64) -> Effects<W> {
        let mut effects = Effects::default();
        for mut shard in self.shards.each() {
            shard.tick(&self.common, now_ms, &mut effects);
        }
        self.common.tell.tick(&self.common, now_ms, &mut effects.sends);
        if let Some(reserve) = &self.common.reserve {
            reserve.tick(now_ms, unix_ms);
        }
        if now_ms >= self.common.swept_ms.load(Ordering::Relaxed) + SWEEP_MS {
            self.common.swept_ms.store(now_ms, Ordering::Relaxed);
            let shard = self.common.swept.fetch_add(1, Ordering::Relaxed) % Shards::<Shard<W>>::COUNT;
            self.shards.lock(shard).shrink();
            self.common.buckets.sweep(shard, now_ms);
            self.common.buckets.sweep_apps();
        }
        effects
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_due_ms(&self) -> u64 {
        let sweep_ms = self.common.swept_ms.load(Ordering::Relaxed) + SWEEP_MS;
        let shards = self.shards.each().filter_map(|shard| shard.next_due_ms());
        shards.chain(self.common.tell.next_due_ms()).min().unwrap_or(sweep_ms).min(sweep_ms)
    }

    /// Nothing is taken any more, and everything that is left is given back.
    pub fn close(&self, now_ms: u64) {
        self.common.is_closing.store(true, Ordering::Relaxed);
        for mut shard in self.shards.each() {
            shard.close(&self.common, now_ms);
        }
    }

    /// Whether nothing has to be told any more.
    pub fn is_told(&self) -> bool {
        self.common.tell.is_empty()
    }

    pub fn counters(&self) -> &Counters {
        &self.common.counters
    }

    pub fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// Leases that are remembered, calls that wait, operations under way that replace leases.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.common.cells), of(&self.common.waiters), of(&self.common.asks))
    }

    pub(super) fn common(&self) -> &Common {
        &self.common
    }

    pub(super) fn shards(&self) -> &Shards<Shard<W>> {
        &self.shards
    }

    pub(super) fn shard_of(&self, route: &Route) -> std::sync::MutexGuard<'_, Shard<W>> {
        self.shards.lock(Shards::<Shard<W>>::of(route.0.party.mark))
    }
}

impl Taken {
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The latest moment at which all of it may still be spent.
    pub fn expires_ms(&self) -> u64 {
        self.terms[..self.route.len()].iter().map(|term| term.expires_ms).min().unwrap_or(0)
    }
}
