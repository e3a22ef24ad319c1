//! Whose run is next: pure. It does no I/O and reads no clock.
//!
//! **Tenants** take turns: one run each, round and round. First come those that hold no slot, then those that hold some.
//! So a tenant with one run waits for at most one turn of each other tenant, however much they have.
//!
//! **The cap**: of the pool's slot-seconds of the last 60 s no tenant has more than max(5 %, pool ÷ tenants waiting,
//! 1 slot), for as long as another one waits. Who is over it is given nothing while somebody else who is not can run. It
//! keeps one slot at a time all the same: one slot is never over the cap, so what it had before is paid back and it is
//! not stopped for it. A slot is not left empty for the cap's sake.
//!
//! **Turns may be long** (a turn is a provider's answer, and nobody takes a slot away from it), and a pool that is full of
//! them helps no newcomer. So the last sixteenth of the shared slots (at least one of four) is given to tenants that hold
//! none. Beyond that a **tier** may reserve slots for its tenants, and bound the slots that one of them has; a tenant may have
//! a bound of its own below that. Both may change while runs wait and are under way ([`Core::set_tiers`]).
//!
//! **Classes** of one tenant: interactive first, and bulk never starves. See [`tenant`].
//!
//! **Memory**: a run that waits is an entry of 40 bytes, its number in the index (at most 12) and, if it is parked, in the
//! timers (at most 8). Both kinds are bounded. A run over the bound is not taken in: it stays open in the ledger, and is
//! found there when there is room or when it is due ([`Core::wants_scan`]).

mod slab;
mod tenant;
mod timers;
mod window;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use domain::TenantId;

use crate::ids::RunId;
use crate::ledger::QueueClass;
use slab::{Entry, NONE, Slab, State};
use tenant::{Place, Ring, Tenants, class_index};
use timers::Timers;
use window::Window;

pub use self::limits::{Limits, LimitsFault, Member, TIERS_MAX, Tier};

mod limits;

/// Both clocks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub monotonic_ms: u64,
    pub unix_ms: u64,
}

/// What became of a run that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Queued,
    Parked,
    /// It was queued or parked so already.
    Known,
    /// It is under way: it gets another turn behind this one.
    Nudged,
    /// There is no room. It stays in the ledger.
    LeftOut,
    /// A run of this id is another tenant's: a fault, and nothing was done.
    Mismatch,
}

/// A run that has got a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    /// Names the turn until it is over.
    pub slot: u32,
    pub tenant: TenantId,
    pub run: RunId,
    pub class: QueueClass,
    pub waited_ms: u64,
    /// The tenant holds no other slot, and nothing else of it waits: the promise is about these.
    pub is_alone: bool,
}

/// How a turn was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing more is to be done here.
    Over,
    /// Another worker has it, and looks at what was appended.
    Elsewhere,
    Parked {
        until_unix_ms: Option<u64>,
        class: QueueClass,
    },
    /// The same again, later.
    Again {
        at_unix_ms: u64,
    },
    /// The turn crashed; each time in a row it is longer until the next.
    Crashed,
}

/// Counts of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// In the order of [`QueueClass`].
    pub queued: [u64; 4],
    pub parked: u64,
    pub running: u64,
    /// Tenants that wait for a slot.
    pub waiting: u64,
    pub tenants: u64,
    /// Runs that were not taken in, since the start.
    pub left_out: u64,
}

/// The scheduler's state.
#[derive(Debug)]
pub struct Core {
    limits: Limits,
    slab: Slab,
    timers: Timers,
    tenants: Tenants,
    /// By tier: tenants that wait and hold no slot, and those that hold some.
    idle: [Ring; TIERS_MAX],
    busy: [Ring; TIERS_MAX],
    /// Slots held, by tier.
    held: [u32; TIERS_MAX],
    stamp: u64,
    counts: Counts,
    /// When what was left out is to be looked for, on the wall clock.
    scan_at_unix_ms: Option<u64>,
    /// Tenants with a window, so that those that have gone are found without looking at all.
    counted: std::collections::VecDeque<u32>,
}

impl Core {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            slab: Slab::new(),
            timers: Timers::default(),
            tenants: Tenants::default(),
            idle: [Ring::EMPTY; TIERS_MAX],
            busy: [Ring::EMPTY; TIERS_MAX],
            held: [0; TIERS_MAX],
            stamp: 0,
            counts: Counts::default(),
            scan_at_unix_ms: None,
            counted: std::collections::VecDeque::new(),
        }
    }

    /// The run can go on now. One that is under way gets another turn behind this one.
    pub fn enqueue(&mut self, now: Now, tenant: &TenantId, of: Member, run: RunId, class: QueueClass) -> Taken {
        let Some(at) = self.slab.find(run) else {
            if self.queued() >= u64::from(self.limits.queued_max) {
                return self.leave_out(now.unix_ms);
            }
            let at = self.add(tenant, of, run, class);
            self.queue(at, now);
            return Taken::Queued;
        };
        if self.tenants.get(self.slab.get(at).tenant).name != *tenant {
            return Taken::Mismatch;
        }
        match self.slab.get(at).state {
            State::Running => {
                self.slab.get_mut(at).is_nudged = true;
                Taken::Nudged
            }
            State::Queued if self.slab.get(at).class <= class => Taken::Known,
            // It moves up, behind those that are there.
            State::Queued => {
                let since = self.slab.get(at).at;
                self.unqueue(at);
                self.slab.get_mut(at).class = class;
                self.queue(at, Now { monotonic_ms: since, ..now });
                Taken::Known
            }
            State::Parked | State::HeldBack => {
                self.unpark(at);
                self.slab.get_mut(at).class = class;
                self.queue(at, now);
                Taken::Queued
            }
            State::Free => unreachable!("the index has no free entries"),
        }
    }

    /// The run can go on at a time. Of two times the earlier one holds: a run that is asked too early parks again.
    pub fn enqueue_at(
        &mut self,
        now: Now,
        tenant: &TenantId,
        of: Member,
        run: RunId,
        class: QueueClass,
        at_unix_ms: u64,
    ) -> Taken {
        if at_unix_ms <= now.unix_ms {
            return self.enqueue(now, tenant, of, run, class);
        }
        let Some(at) = self.slab.find(run) else {
            if self.timers.len() >= self.limits.parked_max as usize {
                return self.leave_out(at_unix_ms);
            }
            let at = self.add(tenant, of, run, class);
            self.park(at, at_unix_ms);
            return Taken::Parked;
        };
        if self.tenants.get(self.slab.get(at).tenant).name != *tenant {
            return Taken::Mismatch;
        }
        match self.slab.get(at).state {
            State::Running => {
                self.slab.get_mut(at).is_nudged = true;
                Taken::Nudged
            }
            State::Parked | State::HeldBack if at_unix_ms < self.slab.get(at).at => {
                let entry = self.slab.get_mut(at);
                (entry.at, entry.class) = (at_unix_ms, class);
                self.timers.earlier(&mut self.slab, at);
                Taken::Parked
            }
            State::Parked | State::HeldBack | State::Queued => Taken::Known,
            State::Free => unreachable!("the index has no free entries"),
        }
    }

    /// A run that somebody found open: as the two above for a run that is not here, and nothing for one that is.
    pub fn offer(
        &mut self,
        now: Now,
        tenant: &TenantId,
        of: Member,
        run: RunId,
        class: QueueClass,
        at_unix_ms: u64,
    ) -> Taken {
        match self.slab.find(run).map(|at| self.slab.get(at).tenant) {
            Some(at) if self.tenants.get(at).name != *tenant => Taken::Mismatch,
            Some(_) => Taken::Known,
            None => self.enqueue_at(now, tenant, of, run, class, at_unix_ms),
        }
    }

    /// The ledger says that the run can go on and that nobody works on it. What is parked here was parked before somebody
    /// has said something, perhaps to another process: it goes on now. What is held back stays so, and what waits or is under
    /// way needs nothing.
    pub fn claim(&mut self, now: Now, tenant: &TenantId, of: Member, run: RunId, class: QueueClass) -> Taken {
        match self.slab.find(run).map(|at| (self.slab.get(at).state, self.slab.get(at).tenant)) {
            Some((_, at)) if self.tenants.get(at).name != *tenant => Taken::Mismatch,
            Some((State::Queued | State::Running | State::HeldBack | State::Free, _)) => Taken::Known,
            Some((State::Parked, _)) | None => self.enqueue(now, tenant, of, run, class),
        }
    }

    /// Something was appended to the run by whoever does not work on it, perhaps in another process. Of a run that is not here
    /// nothing is to be done: whoever has it hears of it too.
    pub fn heard(&mut self, now: Now, tenant: &TenantId, of: Member, run: RunId) -> Taken {
        match self.slab.find(run).map(|at| *self.slab.get(at)) {
            None => Taken::Known,
            Some(entry) if entry.state == State::HeldBack => Taken::Known,
            Some(entry) => self.enqueue(now, tenant, of, run, entry.class),
        }
    }

    /// Somebody appended something to the run. One that is parked, or unknown, is asked now.
    pub fn nudge(&mut self, now: Now, tenant: &TenantId, of: Member, run: RunId) -> Taken {
        let known = self.slab.find(run).map(|at| self.slab.get(at));
        let class = known.map_or(QueueClass::ParkedRelease, |entry| entry.class);
        self.enqueue(now, tenant, of, run, class)
    }

    /// Takes a run away that waits; false where none does.
    pub fn remove(&mut self, tenant: &TenantId, run: RunId) -> bool {
        let Some(at) = self.slab.find(run) else { return false };
        if self.tenants.get(self.slab.get(at).tenant).name != *tenant {
            return false;
        }
        match self.slab.get(at).state {
            State::Queued => self.unqueue(at),
            State::Parked | State::HeldBack => self.unpark(at),
            State::Running | State::Free => return false,
        }
        self.forget(at);
        true
    }

    /// The slot of a run that is under way.
    pub fn slot_of(&self, run: RunId) -> Option<u32> {
        self.slab.find(run).filter(|at| self.slab.get(*at).state == State::Running)
    }

    /// Queues parked runs whose time has come, at most `max` of them; says whether it was all.
    pub fn release(&mut self, now: Now, max: usize) -> bool {
        self.sweep(now.monotonic_ms);
        for _ in 0..max {
            let Some(at) = self.timers.pop_due(&mut self.slab, now.unix_ms) else { return true };
            let tenant = self.slab.get(at).tenant;
            self.tenants.get_mut(tenant).parked -= 1;
            self.queue(at, now);
        }
        self.timers.first_unix_ms(&self.slab).is_none_or(|first| first > now.unix_ms)
    }

    /// When the next parked run is due.
    pub fn next_unix_ms(&self) -> Option<u64> {
        self.timers.first_unix_ms(&self.slab)
    }

    /// Gives a slot away, if there is one and somebody may have it.
    pub fn next(&mut self, now: Now) -> Option<Picked> {
        let tenant_at = self.next_tenant(now.monotonic_ms)?;
        let is_idle = self.tenants.get(tenant_at).running == 0;
        self.leave_ring(tenant_at);
        let tenant = self.tenants.get_mut(tenant_at);
        let at = tenant.pop(&mut self.slab).expect("who is in a ring has something queued");
        tenant.count(now.monotonic_ms);
        if tenant.window.is_none() {
            tenant.window = Some(Box::new(Window::new(now.monotonic_ms)));
            self.counted.push_back(tenant_at);
        }
        tenant.running += 1;
        let (tier, name) = (usize::from(tenant.tier), tenant.name.clone());
        let is_alone = is_idle && tenant.queued() == 0;
        self.held[tier] += 1;
        self.counts.running += 1;
        self.enter_ring(tenant_at);
        let entry = self.slab.get_mut(at);
        self.counts.queued[class_index(entry.class)] -= 1;
        let waited_ms = now.monotonic_ms.saturating_sub(entry.at);
        (entry.state, entry.is_nudged) = (State::Running, false);
        Some(Picked { slot: at, tenant: name, run: entry.run, class: entry.class, waited_ms, is_alone })
    }

    /// A turn is over. What was appended during it, that its worker may not have seen, is a reason for another one.
    pub fn finish(&mut self, now: Now, slot: u32, left: Left) {
        let entry = self.slab.get_mut(slot);
        debug_assert_eq!(entry.state, State::Running, "a turn ends once");
        if entry.state != State::Running {
            return;
        }
        let is_nudged = std::mem::take(&mut entry.is_nudged);
        entry.crashes = if left == Left::Crashed { entry.crashes.saturating_add(1) } else { 0 };
        let crashes = entry.crashes;
        let tenant_at = entry.tenant;
        self.leave_ring(tenant_at);
        let tenant = self.tenants.get_mut(tenant_at);
        tenant.count(now.monotonic_ms);
        tenant.running -= 1;
        self.held[usize::from(tenant.tier)] -= 1;
        self.counts.running -= 1;
        match left {
            Left::Over | Left::Parked { until_unix_ms: None, .. } if !is_nudged => self.forget(slot),
            Left::Elsewhere => self.forget(slot),
            Left::Parked { until_unix_ms: Some(until), class } if !is_nudged && until > now.unix_ms => {
                self.slab.get_mut(slot).class = class;
                self.park_or_leave(slot, until);
            }
            Left::Parked { class, .. } => {
                self.slab.get_mut(slot).class = class;
                self.queue(slot, now);
            }
            Left::Over => self.queue(slot, now),
            Left::Again { at_unix_ms } => self.hold_back(slot, at_unix_ms),
            Left::Crashed => {
                self.slab.get_mut(slot).class = QueueClass::Retry;
                self.hold_back(slot, now.unix_ms.saturating_add(crash_delay_ms(crashes)));
            }
        }
        self.enter_ring(tenant_at);
        self.drop_if_gone(tenant_at);
    }

    /// Other tiers from now on, and where each tenant is among them. Nobody loses a slot that he holds: who has more than he may
    /// now have is given none until he has less.
    ///
    /// It goes through all tenants with runs here.
    ///
    /// # Errors
    /// The tiers cannot be kept, and nothing has changed.
    pub fn set_tiers(&mut self, tiers: Vec<Tier>, of: impl Fn(&TenantId) -> Member) -> Result<(), LimitsFault> {
        let limits = Limits { tiers, ..self.limits.clone() };
        limits.check()?;
        let mut all: Vec<(u64, u32)> = self.tenants.all().map(|(at, tenant)| (tenant.stamp, at)).collect();
        // In the order in which they wait.
        all.sort_unstable();
        for (_, at) in &all {
            self.leave_ring(*at);
        }
        self.limits = limits;
        self.held = [0; TIERS_MAX];
        for (_, at) in all {
            let of = self.known(of(&self.tenants.get(at).name));
            let tenant = self.tenants.get_mut(at);
            (tenant.tier, tenant.slots_max) = (of.tier, of.slots_max);
            self.held[usize::from(of.tier)] += tenant.running;
            self.enter_ring(at);
        }
        Ok(())
    }

    /// Is it time to look in the ledger for runs that were left out? Answers yes once for each time that there is reason
    /// to: what is left out from then on is for the next time.
    pub fn wants_scan(&mut self, now_unix_ms: u64) -> bool {
        let has_room = self.queued() < u64::from(self.limits.queued_max - self.limits.queued_max / 4);
        let is_due = self.scan_at_unix_ms.is_some_and(|at| at <= now_unix_ms) && has_room;
        if is_due {
            self.scan_at_unix_ms = None;
        }
        is_due
    }

    /// When [`Self::wants_scan`] is to be asked.
    pub fn scan_unix_ms(&self) -> Option<u64> {
        self.scan_at_unix_ms
    }

    /// A scan did not get through: another one is wanted at this time.
    pub fn want_scan(&mut self, at_unix_ms: u64) {
        self.scan_at_unix_ms = Some(self.scan_at_unix_ms.map_or(at_unix_ms, |at| at.min(at_unix_ms)));
    }

    pub fn counts(&self) -> Counts {
        Counts {
            parked: self.timers.len() as u64,
            waiting: u64::from(self.waiting()),
            tenants: self.tenants.len() as u64,
            ..self.counts
        }
    }

    /// Runs of a tenant that wait in this class.
    pub fn queued_of(&self, tenant: &TenantId, class: QueueClass) -> u32 {
        self.tenants.find(tenant).map_or(0, |at| self.tenants.get(at).queued_of(class))
    }

    pub fn slots(&self) -> u32 {
        self.limits.slots
    }

    /// The tenants with the most slot-milliseconds of the last 60 s, at most `max` of them, the largest first.
    pub fn top(&mut self, now_ms: u64, max: usize) -> Vec<(TenantId, u64)> {
        let mut top: Vec<(u64, u32)> = Vec::with_capacity(self.counted.len());
        for at in &self.counted {
            let used = self.tenants.get_mut(*at).count(now_ms);
            top.push((used, *at));
        }
        top.sort_unstable_by(|a, b| b.cmp(a));
        top.truncate(max);
        top.retain(|(used, _)| *used > 0);
        top.into_iter().map(|(used, at)| (self.tenants.get(at).name.clone(), used)).collect()
    }

    /// Bytes that all of this has allocated.
    pub fn bytes(&self) -> usize {
        self.slab.bytes()
            + self.timers.bytes()
            + self.tenants.bytes()
            + self.counted.len() * size_of::<Window>()
            + self.counted.capacity() * size_of::<u32>()
    }

    fn queued(&self) -> u64 {
        self.counts.queued.iter().sum()
    }

    fn waiting(&self) -> u32 {
        self.idle.iter().chain(&self.busy).map(|ring| ring.len).sum()
    }

    /// Slots that are held beyond what the holders' tiers reserve.
    fn shared_held(&self) -> u32 {
        self.limits.tiers.iter().zip(self.held).map(|(tier, held)| held.saturating_sub(tier.reserve)).sum()
    }

    /// Whose turn it is.
    fn next_tenant(&mut self, now_ms: u64) -> Option<u32> {
        let shared_free = self.limits.shared().saturating_sub(self.shared_held());
        let own_free = |tier: usize, held: &[u32; TIERS_MAX]| held[tier] < self.limits.tiers[tier].reserve;
        let may = |tier: usize, kept: u32| own_free(tier, &self.held) || shared_free > kept;
        let first = |rings: &[Ring; TIERS_MAX], kept: u32| {
            let heads = (0..self.limits.tiers.len()).filter(|tier| rings[*tier].head != NONE && may(*tier, kept));
            heads.map(|tier| rings[tier].head).min_by_key(|head| self.tenants.get(*head).stamp)
        };
        if let Some(idle) = first(&self.idle, 0) {
            return Some(idle);
        }
        let first_busy = first(&self.busy, self.limits.newcomers())?;
        let tiers: Vec<usize> =
            (0..self.limits.tiers.len()).filter(|tier| may(*tier, self.limits.newcomers())).collect();
        Some(self.under_cap(&tiers, now_ms).unwrap_or(first_busy))
    }

    /// The first of those that hold slots that is not over the cap. At most twenty of a tier can be over it, for it is a
    /// twentieth of its pool or more: so few are passed over.
    fn under_cap(&mut self, tiers: &[usize], now_ms: u64) -> Option<u32> {
        let waiting = self.waiting();
        let mut found: Option<(u64, u32)> = None;
        for tier in tiers {
            let cap = self.limits.cap_slot_ms(*tier, waiting);
            let mut at = self.busy[*tier].head;
            while at != NONE {
                let tenant = self.tenants.get_mut(at);
                if found.is_some_and(|(stamp, _)| stamp < tenant.stamp) {
                    break;
                }
                if tenant.count(now_ms) < cap {
                    found = Some((tenant.stamp, at));
                    break;
                }
                at = tenant.next;
            }
        }
        found.map(|(_, at)| at)
    }

    fn leave_out(&mut self, due_unix_ms: u64) -> Taken {
        self.counts.left_out += 1;
        self.want_scan(due_unix_ms);
        Taken::LeftOut
    }

    fn add(&mut self, tenant: &TenantId, of: Member, run: RunId, class: QueueClass) -> u32 {
        let of = self.known(of);
        let tenant = match self.tenants.find(tenant) {
            Some(at) => {
                self.set_member(at, of);
                at
            }
            None => self.tenants.add(tenant, of),
        };
        self.slab.insert(Entry {
            run,
            at: 0,
            tenant,
            prev: NONE,
            next: NONE,
            class,
            state: State::Queued,
            crashes: 0,
            is_nudged: false,
        })
    }

    /// Puts an entry that is in no list into its tenant's queue.
    fn queue(&mut self, at: u32, now: Now) {
        let (tenant_at, class) = (self.slab.get(at).tenant, self.slab.get(at).class);
        self.tenants.get_mut(tenant_at).push(&mut self.slab, at, now.monotonic_ms);
        self.counts.queued[class_index(class)] += 1;
        if self.tenants.get(tenant_at).place == Place::Out {
            self.enter_ring(tenant_at);
        }
    }

    fn unqueue(&mut self, at: u32) {
        let (tenant_at, class) = (self.slab.get(at).tenant, self.slab.get(at).class);
        let tenant = self.tenants.get_mut(tenant_at);
        tenant.remove(&mut self.slab, at);
        self.counts.queued[class_index(class)] -= 1;
        if tenant.queued() == 0 {
            self.leave_ring(tenant_at);
        }
    }

    fn park(&mut self, at: u32, until_unix_ms: u64) {
        let entry = self.slab.get_mut(at);
        (entry.state, entry.at) = (State::Parked, until_unix_ms);
        let tenant = entry.tenant;
        self.timers.push(&mut self.slab, at);
        self.tenants.get_mut(tenant).parked += 1;
    }

    fn hold_back(&mut self, at: u32, until_unix_ms: u64) {
        self.park(at, until_unix_ms);
        self.slab.get_mut(at).state = State::HeldBack;
    }

    /// A run that was here already parks too, unless there is no room: then it is found in the ledger when it is due.
    fn park_or_leave(&mut self, at: u32, until_unix_ms: u64) {
        if self.timers.len() < self.limits.parked_max as usize {
            self.park(at, until_unix_ms);
        } else {
            self.leave_out(until_unix_ms);
            self.forget(at);
        }
    }

    fn unpark(&mut self, at: u32) {
        self.timers.remove(&mut self.slab, at);
        let tenant = self.slab.get(at).tenant;
        self.tenants.get_mut(tenant).parked -= 1;
    }

    /// Takes an entry away that is in no list.
    fn forget(&mut self, at: u32) {
        let tenant = self.slab.get(at).tenant;
        self.slab.remove(at);
        self.drop_if_gone(tenant);
    }

    fn enter_ring(&mut self, at: u32) {
        let tenant = self.tenants.get(at);
        let tier = usize::from(tenant.tier);
        let slots_max = tenant.slots_max.min(self.limits.tiers[tier].slots_max);
        if tenant.place != Place::Out || tenant.queued() == 0 || tenant.running >= slots_max {
            return;
        }
        self.stamp += 1;
        let (place, ring) =
            if tenant.running == 0 { (Place::Idle, &mut self.idle[tier]) } else { (Place::Busy, &mut self.busy[tier]) };
        self.tenants.get_mut(at).place = place;
        ring.push(&mut self.tenants, at, self.stamp);
    }

    /// A tier that is not there is the last.
    fn known(&self, of: Member) -> Member {
        Member { tier: of.tier.min(u8::try_from(self.limits.tiers.len() - 1).expect("tiers are few")), ..of }
    }

    /// A tenant may have come into another tier since it was here first, or have another bound.
    fn set_member(&mut self, at: u32, of: Member) {
        let tenant = self.tenants.get(at);
        let (before, running) = (tenant.member(), tenant.running);
        if before == of {
            return;
        }
        self.leave_ring(at);
        let tenant = self.tenants.get_mut(at);
        (tenant.tier, tenant.slots_max) = (of.tier, of.slots_max);
        self.held[usize::from(before.tier)] -= running;
        self.held[usize::from(of.tier)] += running;
        self.enter_ring(at);
    }

    fn leave_ring(&mut self, at: u32) {
        let tier = usize::from(self.tenants.get(at).tier);
        match std::mem::replace(&mut self.tenants.get_mut(at).place, Place::Out) {
            Place::Out => {}
            Place::Idle => self.idle[tier].remove(&mut self.tenants, at),
            Place::Busy => self.busy[tier].remove(&mut self.tenants, at),
        }
    }

    fn drop_if_gone(&mut self, at: u32) {
        let tenant = self.tenants.get(at);
        if tenant.is_empty() && tenant.window.is_none() {
            self.tenants.remove(at);
        }
    }

    /// Looks at a few of those whose slots were counted, and forgets windows that have become empty.
    fn sweep(&mut self, now_ms: u64) {
        const AT_ONCE: usize = 8;
        for _ in 0..AT_ONCE.min(self.counted.len()) {
            let Some(at) = self.counted.pop_front() else { return };
            let tenant = self.tenants.get_mut(at);
            if tenant.count(now_ms) == 0 && tenant.running == 0 {
                tenant.window = None;
                self.drop_if_gone(at);
            } else {
                self.counted.push_back(at);
            }
        }
    }
}

/// 1 s, doubled for each crash in a row, at most 5 min. What ends it is the engine's quarantine, which counts lost workers
/// in the ledger.
fn crash_delay_ms(crashes: u8) -> u64 {
    const FIRST_MS: u64 = 1000;
    const LONGEST_MS: u64 = 300_000;
    FIRST_MS.checked_shl(u32::from(crashes.saturating_sub(1))).map_or(LONGEST_MS, |delay| delay.min(LONGEST_MS))
}
