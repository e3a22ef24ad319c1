//! One lessee's lease of one bucket.

use std::sync::Arc;

use crate::quota::answer::{Denial, Lease};
use crate::quota::op::{Class, Leg, Metered, Slots, Tally, Unspent};
use crate::quota::rule::{CAP_MAX, Kind, Rule};

use super::bucket::Bucket;
use super::held::Term;
use super::pace::Pace;
use super::parked::Reason;
use super::route::{Party, Station};

/// Clocks of machines run apart by less than one in so many.
const DRIFT: u32 = 1_000;
/// Both clocks are read in whole ms.
const ROUNDING_MS: u32 = 2;
/// How often slots are looked at that may be free, and the heartbeat of those that are held, over their lease.
const BEATS: u64 = 3;
/// A block of so many may last for longer than the horizon: asking for it costs a fiftieth of an operation per call, and
/// what a crash forfeits is little.
const FEW: u32 = 50;
/// How soon to ask again after less than was asked for: what refills meanwhile is one grant for all who wait, where asking
/// at once would get one unit for one of them each time. Less than a call waits that did not ask to.
const SHORT_MS: u64 = 20;
/// How soon to ask again after a first no, and at most after many.
const REFUSED_MS: u64 = 10;
const REFUSED_MS_MAX: u64 = 250;
/// Within what time those come again who were refused of a window that is longer.
const RELEASED_WITHIN_MS: u64 = 60_000;

/// A lease, what is left of it, and what is under way about it.
///
/// Of rates `left` are units that may be spent. Of concurrency it is how many calls may be under way when another one
/// starts, and `granted` how many slots the centre counts as this lessee's.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) bucket: Arc<Bucket>,
    pub(super) party: Arc<Party>,
    pub(super) rule: Arc<Rule>,
    pub(super) hash: u64,
    tally: Tally,
    generation: u64,
    /// By the holder's clock; 0 before there was a lease.
    pub(super) expires_ms: u64,
    lease_seq: u64,
    /// The last operation that replaces the lease; it is under way, or was answered.
    pub(super) ask: u64,
    refused: Refused,
    /// When units were taken last.
    used_ms: u64,
    pub(super) pace: Pace,
    left: u32,
    granted: u32,
    /// Calls under way, of concurrency.
    in_use: u32,
    /// Of rates, of what the ask under way states as unspent, what was taken since: it is not in the new lease. Of
    /// concurrency, most calls at a time since the last heartbeat.
    since: u32,
    /// Units that waiting calls need.
    pub(super) queued: u32,
    /// Of these, interactive ones.
    pub(super) urgent: u32,
    /// The timer that is set; another one that comes up is an old one.
    pub(super) timer_ms: u64,
    /// When the next call that is parked here may come again: not all at once.
    release_ms: u64,
    /// The pass over the queue in which a call ahead was found to wait for this lease.
    pub(super) blocked_in: u32,
    pub(super) is_asking: bool,
    /// How often the centre has said no in a row.
    refusals: u8,
    /// A lease that ends with its window: nothing of it is worth giving back.
    is_last: bool,
    /// The centre began another life: the tally has to be told.
    pub(super) is_to_tell: bool,
}

/// What the centre said no to last.
#[derive(Debug, Clone, Copy)]
struct Refused {
    until_ms: u64,
    /// To so many units and more.
    units: u32,
    reason: Reason,
    /// To bulk calls only.
    is_bulk_only: bool,
    /// It said yes to less than was asked for: who cannot wait for so long asks at once.
    is_short: bool,
}

impl Refused {
    const NOTHING: Self = Self { until_ms: 0, units: 0, reason: Reason::Gone, is_bulk_only: false, is_short: false };

    fn short(now_ms: u64) -> Self {
        let reason = Reason::Denied(Denial::Exhausted);
        Self { until_ms: now_ms + SHORT_MS, units: 1, reason, is_bulk_only: false, is_short: true }
    }
}

/// Whether a call may take units of a lease now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Ready,
    /// Not before, and asking would not help.
    Refused {
        until_ms: u64,
        reason: Reason,
    },
    /// The centre has to be asked.
    Missing,
}

/// What a lease needs when it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    None,
    /// An acquire in which no call waits: a new block, the old one for longer, or a tally to tell.
    Ask,
    GiveBack,
    /// A heartbeat of so many slots.
    Beat(u32),
    /// Nothing of it matters any more.
    Drop,
}

impl Cell {
    pub(super) fn new(station: &Station, party: &Arc<Party>, now_ms: u64) -> Self {
        Self {
            bucket: Arc::clone(&station.bucket),
            party: Arc::clone(party),
            rule: Arc::clone(&station.rule),
            hash: station.hash,
            tally: Tally::default(),
            generation: 0,
            expires_ms: 0,
            lease_seq: 0,
            ask: 0,
            refused: Refused::NOTHING,
            used_ms: now_ms,
            pace: Pace::new(now_ms),
            left: 0,
            granted: 0,
            in_use: 0,
            since: 0,
            queued: 0,
            urgent: 0,
            timer_ms: u64::MAX,
            release_ms: 0,
            blocked_in: 0,
            is_asking: false,
            refusals: 0,
            is_last: false,
            is_to_tell: false,
        }
    }

    pub(super) fn is_of(&self, station: &Station, party: &Party) -> bool {
        Arc::ptr_eq(&self.bucket, &station.bucket) && self.party.tenant == party.tenant
    }

    /// Whether units of the lease may be spent, if any are left.
    pub(super) fn is_leased(&self, now_ms: u64) -> bool {
        now_ms < self.expires_ms && !self.bucket.is_void(self.generation)
    }

    /// Units that a call may take now.
    pub(super) fn free(&self, now_ms: u64) -> u32 {
        if !self.is_leased(now_ms) {
            return 0;
        }
        if self.rule.is_rate() { self.left } else { self.left.min(self.granted).saturating_sub(self.in_use) }
    }

    /// What a call of so many units meets that waits until its deadline.
    pub(super) fn standing(
        &self,
        (rule, units): (&Rule, u32),
        class: Class,
        deadline_ms: u64,
        now_ms: u64,
    ) -> Standing {
        if let Some((until_ms, why)) = self.bucket.park(now_ms) {
            return Standing::Refused { until_ms, reason: Reason::Park(why) };
        }
        if self.free(now_ms) >= units {
            return Standing::Ready;
        }
        let refused = &self.refused;
        let is_refused = now_ms < refused.until_ms
            && units >= refused.units
            && (class == Class::Bulk || !refused.is_bulk_only)
            && (refused.until_ms < deadline_ms || !refused.is_short)
            && !self.is_older_than(rule);
        if is_refused {
            return Standing::Refused { until_ms: refused.until_ms, reason: refused.reason };
        }
        Standing::Missing
    }

    /// Whether this rule is no older than the one that the lease is of, and says something else.
    fn is_older_than(&self, rule: &Rule) -> bool {
        *rule != *self.rule && rule.cfgver >= self.rule.cfgver
    }

    /// What was refused may be granted now: the bucket is as new, or its rule is another.
    pub(super) fn forgive(&mut self) {
        (self.refused, self.release_ms) = (Refused::NOTHING, 0);
    }

    /// Takes units for a call. Its standing is ready.
    pub(super) fn take(&mut self, units: u32, now_ms: u64) -> Term {
        self.used_ms = now_ms;
        if self.rule.is_rate() {
            self.left = self.left.saturating_sub(units);
            if self.is_asking {
                self.since = self.since.saturating_add(units);
            }
        } else {
            self.in_use = self.in_use.saturating_add(units);
            self.since = self.since.max(self.in_use);
        }
        Term {
            lease_seq: self.lease_seq,
            ask: self.ask,
            generation: self.generation,
            wid: self.tally.wid,
            expires_ms: self.expires_ms,
            units,
        }
    }

    /// Units of a rate that were taken and will not be spent. What a later lease has taken the place of counts as spent:
    /// the centre was not told of it as unspent, and its time is another. Whether it is there again.
    pub(super) fn put_back(&mut self, term: &Term, units: u32, now_ms: u64) -> bool {
        if term.lease_seq != self.lease_seq || !self.is_leased(now_ms) {
            return false;
        }
        self.left = self.left.saturating_add(units).min(self.granted);
        if self.is_asking && term.ask == self.ask {
            self.since = self.since.saturating_sub(units);
        }
        true
    }

    /// A call cost more than was taken for it: what is there is taken now. How much that was.
    pub(super) fn take_more(&mut self, units: u32, now_ms: u64) -> u32 {
        let more = if self.rule.is_rate() { self.free(now_ms).min(units) } else { 0 };
        if more > 0 {
            self.take(more, now_ms);
        }
        more
    }

    /// Calls that are over.
    pub(super) fn free_slots(&mut self, units: u32) {
        self.in_use = self.in_use.saturating_sub(units);
    }

    /// A leg that states what is there and asks for more. From now on what is taken is not in the answer.
    pub(super) fn leg(&mut self, least: u32, seq: u64, horizon_ms: u64, now_ms: u64) -> Leg {
        self.notice(horizon_ms, now_ms);
        let is_rate = self.rule.is_rate();
        let slot_ms = (self.rule.window_ms() / 10).clamp(10, 1_000);
        let (least, unspent, want, demand_milli) = if is_rate {
            let unspent = self.free(now_ms);
            let block = self.block(horizon_ms, now_ms);
            let more = if self.is_to_tell && least == 0 { 0 } else { block.max(self.queued) };
            let queued = u64::from(self.queued) * 1_000_000 / slot_ms;
            (least, unspent, unspent.saturating_add(more), u64::from(self.pace.rate_milli(now_ms)) + queued)
        } else {
            // Once the time is over only those count that calls are under way in.
            let unspent = if self.is_leased(now_ms) { self.granted.max(self.in_use) } else { self.in_use };
            let used = self.in_use.saturating_add(self.queued);
            let least = if least == 0 { 0 } else { self.in_use.saturating_add(least) };
            (least, unspent, used, u64::from(used) * 1_000)
        };
        (self.ask, self.is_asking) = (seq, true);
        if is_rate {
            self.since = 0;
        }
        let want = want.min(CAP_MAX).max(least).max(unspent);
        Leg {
            bucket: self.metered(),
            seq,
            least,
            want,
            unspent,
            demand_milli: demand_milli.min(crate::quota::op::DEMAND_MILLI_MAX),
            tally: self.tally,
            heard: self.bucket.heard(),
        }
    }

    /// The answer to a leg that asked for up to `wanted`: this is the lease from now on. `sent_ms` is from before the
    /// operation was sent.
    pub(super) fn grant(&mut self, lease: &Lease, wanted: u32, sent_ms: u64, horizon_ms: u64, now_ms: u64) {
        if self.generation != 0 && lease.generation > self.generation {
            let horizon_ms = self.horizon(horizon_ms);
            self.pace.parked(horizon_ms, now_ms);
        }
        self.take_lease(lease, sent_ms);
        let is_short = self.rule.is_rate() && lease.units < wanted;
        self.refused = if is_short { Refused::short(now_ms) } else { Refused::NOTHING };
        self.refusals = 0;
        if self.rule.is_rate() {
            self.granted = lease.units;
            self.left = lease.units.saturating_sub(self.since);
            self.since = 0;
            if let Kind::Fixed { .. } | Kind::Calendar { .. } = self.rule.kind {
                self.bucket.hear_window(lease.tally.wid);
            }
            if lease.units > 0 {
                self.pace.granted(self.rule.window_ms(), now_ms);
            }
        } else {
            (self.granted, self.left) = (lease.units, lease.units);
        }
    }

    fn take_lease(&mut self, lease: &Lease, sent_ms: u64) {
        self.answered();
        self.is_to_tell = false;
        self.bucket.hear(lease.generation);
        self.tally = lease.tally;
        self.generation = lease.generation;
        self.lease_seq = self.ask;
        self.is_last = self.rule.is_rate() && lease.ttl_ms < self.rule.lease_ms;
        let short_ms = lease.ttl_ms / DRIFT + ROUNDING_MS;
        self.expires_ms = sent_ms + u64::from(lease.ttl_ms.saturating_sub(short_ms));
    }

    /// When a call that is refused until then may come again: at least one unit's time after the last one that was
    /// told so, a window later at most. Of a long window it is a part: most of its units are there again at once, and who
    /// asks often must not be sent away for ever longer.
    pub(super) fn release_of(&mut self, units: u32, until_ms: u64) -> u64 {
        if !self.rule.is_rate() {
            return until_ms;
        }
        let span_ms = self.rule.window_ms().min(RELEASED_WITHIN_MS);
        let at_ms = until_ms.max(self.release_ms.min(until_ms + span_ms.max(1_000)));
        self.release_ms = at_ms + span_ms * u64::from(units) / u64::from(self.rule.cap);
        at_ms
    }

    /// Whether calls that are under way may end before the centre has anything: a slot comes free here.
    pub(super) fn may_come_free(&self) -> bool {
        !self.rule.is_rate() && self.in_use > 0
    }

    /// No operation is under way any more; unless it was granted, the lease is as it was.
    pub(super) fn answered(&mut self) {
        self.is_asking = false;
    }

    /// The centre said no, and when it may say yes if nobody else asks. Where others do, that is often too early: each
    /// no in a row waits twice as long, up to a bound that a call hardly notices.
    pub(super) fn refuse_again(&mut self, until_ms: u64, least: u32, class: Class, reason: Reason, now_ms: u64) {
        let pause_ms = (REFUSED_MS << self.refusals.min(8)).min(REFUSED_MS_MAX);
        self.refusals = self.refusals.saturating_add(1);
        self.refuse(until_ms.max(now_ms + pause_ms), least, class, reason);
    }

    /// Not before, whoever asks.
    pub(super) fn refuse(&mut self, until_ms: u64, least: u32, class: Class, reason: Reason) {
        let units = if self.rule.is_rate() { least.max(1) } else { 1 };
        let depends_on_class = matches!(reason, Reason::Denied(Denial::Share | Denial::Reserved));
        let is_bulk_only = depends_on_class && class == Class::Bulk;
        self.refused = Refused { until_ms, units, reason, is_bulk_only, is_short: false };
    }

    /// Takes note of a park since the last look: the block is halved, once.
    pub(super) fn notice(&mut self, horizon_ms: u64, now_ms: u64) {
        if self.generation != 0 && self.bucket.is_void(self.generation) {
            self.generation = 0;
            if self.rule.is_rate() {
                self.left = 0;
            }
            let horizon_ms = self.horizon(horizon_ms);
            self.pace.parked(horizon_ms, now_ms);
        }
    }

    /// How many units to ask for: what lasts for the horizon, or a few that last for as long as a long lease does.
    fn block(&self, horizon_ms: u64, now_ms: u64) -> u32 {
        let few = self.pace.block(self.horizon(u64::MAX), now_ms).min(FEW);
        self.pace.block(self.horizon(horizon_ms), now_ms).max(few)
    }

    /// How long a block is to last: no longer than its lease does.
    fn horizon(&self, horizon_ms: u64) -> u64 {
        horizon_ms.min(u64::from(self.rule.lease_ms) * 3 / 4)
    }

    /// Whether the centre said no, and asking again would not help yet.
    fn is_refused(&self, now_ms: u64) -> bool {
        now_ms < self.refused.until_ms && !self.refused.is_short
    }

    /// Whether the block ends before another one would be there.
    pub(super) fn is_running_out(&self, lead_ms: u64, now_ms: u64) -> bool {
        self.rule.is_rate()
            && !self.is_asking
            && self.left <= self.granted / 2
            && self.left < self.pace.units_in(lead_ms, now_ms)
            && now_ms >= self.refused.until_ms
            && self.bucket.park(now_ms).is_none()
    }

    /// What is to be done about the lease, when no call needs it.
    pub(super) fn care(&mut self, horizon_ms: u64, lead_ms: u64, now_ms: u64) -> Care {
        if self.is_asking {
            return Care::None;
        }
        self.notice(horizon_ms, now_ms);
        if self.is_to_tell {
            let held = self.in_use.max(self.granted);
            return if self.rule.is_rate() { Care::Ask } else { Care::Beat(held) };
        }
        if self.rule.is_rate() { self.care_of_units(horizon_ms, lead_ms, now_ms) } else { self.care_of_slots(now_ms) }
    }

    fn care_of_units(&mut self, horizon_ms: u64, lead_ms: u64, now_ms: u64) -> Care {
        let idle_ms = now_ms.saturating_sub(self.used_ms);
        if self.free(now_ms) > 0 {
            let is_ending = now_ms + lead_ms >= self.expires_ms;
            if idle_ms >= 2 * horizon_ms {
                self.pace.rest(now_ms);
                return if self.is_last { Care::None } else { Care::GiveBack };
            }
            return match (is_ending && !self.is_last, self.pace.units_in(horizon_ms, now_ms) > 0) {
                (true, true) if self.bucket.park(now_ms).is_none() && !self.is_refused(now_ms) => Care::Ask,
                (true, _) => Care::GiveBack,
                (false, _) => Care::None,
            };
        }
        let is_over = self.queued == 0 && idle_ms >= 2 * horizon_ms && now_ms >= self.kept_until_ms();
        if is_over { Care::Drop } else { Care::None }
    }

    fn care_of_slots(&mut self, now_ms: u64) -> Care {
        let is_over = self.in_use == 0 && self.queued == 0 && (self.granted == 0 || now_ms >= self.expires_ms);
        if is_over {
            let is_idle = now_ms.saturating_sub(self.used_ms) >= u64::from(self.rule.lease_ms);
            return if is_idle { Care::Drop } else { Care::None };
        }
        let kept = self.in_use.max(self.since.min(self.left));
        let lease_ms = u64::from(self.rule.lease_ms);
        let is_due = now_ms + lease_ms - lease_ms / BEATS >= self.expires_ms;
        self.since = self.in_use;
        if is_due || kept < self.granted { Care::Beat(kept) } else { Care::None }
    }

    /// When to look again.
    pub(super) fn due_ms(&self, horizon_ms: u64, lead_ms: u64, now_ms: u64) -> u64 {
        let lease_ms = u64::from(self.rule.lease_ms);
        let due_ms = if self.rule.is_rate() {
            let idle_ms = self.used_ms + 2 * horizon_ms;
            if self.free(now_ms) > 0 {
                let ending_ms = if self.is_last { self.expires_ms } else { self.expires_ms.saturating_sub(lead_ms) };
                ending_ms.min(idle_ms.max(now_ms + horizon_ms / 4))
            } else {
                idle_ms.max(self.kept_until_ms())
            }
        } else {
            let beat_ms = self.expires_ms.saturating_sub(lease_ms - lease_ms / BEATS);
            let look_ms = now_ms + horizon_ms.min(lease_ms / BEATS).max(10);
            if self.granted > 0 { beat_ms.min(look_ms) } else { self.used_ms + lease_ms }
        };
        due_ms.max(now_ms + 5)
    }

    /// Until when a centre that forgot could want to hear what was granted.
    fn kept_until_ms(&self) -> u64 {
        if self.tally.units == 0 && self.tally.before == 0 {
            return 0;
        }
        let spans = match self.rule.kind {
            Kind::Fixed { .. } | Kind::Calendar { .. } => 1,
            Kind::Anchored { .. } | Kind::Sliding { .. } | Kind::Bucket { .. } | Kind::Concurrency => 2,
        };
        self.expires_ms + spans * self.rule.memory_ms()
    }

    /// Gives the rest of the lease back. It is gone from here at once, whether or not the centre hears of it.
    pub(super) fn give_back(&mut self, now_ms: u64) -> Option<Unspent> {
        let units = if self.rule.is_rate() { self.free(now_ms) } else { self.granted.saturating_sub(self.in_use) };
        if units == 0 || self.is_asking {
            return None;
        }
        if self.rule.is_rate() {
            self.left = 0;
        } else {
            self.granted -= units;
            self.left = 0;
        }
        Some(Unspent {
            key: Arc::clone(&self.bucket.key),
            seq: self.lease_seq,
            generation: self.generation,
            wid: self.tally.wid,
            units,
        })
    }

    /// A heartbeat of so many slots; no more are used from now on.
    pub(super) fn beat(&mut self, held: u32, seq: u64) -> Slots {
        (self.ask, self.is_asking) = (seq, true);
        self.granted = held;
        Slots { bucket: self.metered(), seq, held, heard: self.bucket.heard() }
    }

    /// The answer to a heartbeat.
    pub(super) fn renewed(&mut self, lease: &Lease, sent_ms: u64) {
        self.take_lease(lease, sent_ms);
        self.left = lease.units;
    }

    pub(super) fn metered(&self) -> Metered {
        Metered { key: Arc::clone(&self.bucket.key), rule: Arc::clone(&self.rule) }
    }

    /// Takes up a newer rule or share.
    pub(super) fn refresh(&mut self, station: &Station, party: &Arc<Party>) {
        if !Arc::ptr_eq(&self.rule, &station.rule) && station.rule.cfgver >= self.rule.cfgver {
            if station.rule.is_rate() != self.rule.is_rate() {
                // Units of the one are not slots of the other.
                (self.left, self.granted, self.expires_ms, self.since) = (0, 0, 0, self.in_use);
            }
            if self.is_older_than(&station.rule) {
                self.forgive();
            }
            self.rule = Arc::clone(&station.rule);
        }
        if !Arc::ptr_eq(&self.party, party) {
            self.party = Arc::clone(party);
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Units of the lease, spent or not; of concurrency slots.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// Whether the lease has anything that the centre could count elsewhere.
    pub(super) fn is_known(&self) -> bool {
        self.tally.units > 0 || self.tally.before > 0
    }
}
