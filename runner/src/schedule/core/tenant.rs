//! One tenant's queues, and whose turn it is among tenants.

use domain::TenantId;

use super::limits::Member;
use super::slab::{NONE, Slab, State};
use super::window::Window;
use crate::ledger::QueueClass;

/// In the order in which they are served.
pub(super) const CLASSES: [QueueClass; 4] =
    [QueueClass::Interactive, QueueClass::Retry, QueueClass::ParkedRelease, QueueClass::Bulk];

pub(super) fn class_index(class: QueueClass) -> usize {
    match class {
        QueueClass::Interactive => 0,
        QueueClass::Retry => 1,
        QueueClass::ParkedRelease => 2,
        QueueClass::Bulk => 3,
    }
}

/// Turns after which a tenant's preferences repeat.
const CYCLE: u8 = 16;

/// The class that is looked at before all others in a turn. Interactive is first in twelve of sixteen turns, and the
/// others are sure of what is left, whatever waits in front of them: retries of two, releases and bulk of one each. So
/// nothing of a tenant's starves, and none of these shares is lost: who has nothing to run passes his turn on, in order.
fn preferred(turn: u8) -> QueueClass {
    match turn {
        3 | 11 => QueueClass::Retry,
        7 => QueueClass::ParkedRelease,
        15 => QueueClass::Bulk,
        _ => QueueClass::Interactive,
    }
}

/// A queue: entries linked by their numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
    pub(super) len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    fn push(&mut self, slab: &mut Slab, at: u32) {
        let last = self.tail;
        let entry = slab.get_mut(at);
        (entry.prev, entry.next) = (last, NONE);
        match last {
            NONE => self.head = at,
            last => slab.get_mut(last).next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    fn remove(&mut self, slab: &mut Slab, at: u32) {
        let (prev, next) = (slab.get(at).prev, slab.get(at).next);
        match prev {
            NONE => self.head = next,
            prev => slab.get_mut(prev).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => slab.get_mut(next).prev = prev,
        }
        self.len -= 1;
    }
}

/// Where a tenant waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: it has nothing to run, or as many slots as it may have.
    Out,
    /// Among those that hold no slot.
    Idle,
    /// Among those that hold one or more.
    Busy,
}

/// A tenant with runs here, or with slot-seconds that still count.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: TenantId,
    queues: [List; 4],
    pub(super) parked: u32,
    pub(super) running: u32,
    pub(super) tier: u8,
    /// Its own bound, which may be above its tier's.
    pub(super) slots_max: u32,
    turn: u8,
    pub(super) place: Place,
    /// Neighbours in the ring.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// When it came into the ring, as a number that counts up.
    pub(super) stamp: u64,
    pub(super) window: Option<Box<Window>>,
}

impl Tenant {
    pub(super) fn new(name: TenantId, of: Member) -> Self {
        Self {
            name,
            queues: [List::EMPTY; 4],
            parked: 0,
            running: 0,
            tier: of.tier,
            slots_max: of.slots_max,
            turn: 0,
            place: Place::Out,
            prev: NONE,
            next: NONE,
            stamp: 0,
            window: None,
        }
    }

    pub(super) fn member(&self) -> Member {
        Member { tier: self.tier, slots_max: self.slots_max }
    }

    pub(super) fn queued(&self) -> u32 {
        self.queues.iter().map(|queue| queue.len).sum()
    }

    pub(super) fn queued_of(&self, class: QueueClass) -> u32 {
        self.queues[class_index(class)].len
    }

    /// Nothing of it is here.
    pub(super) fn is_empty(&self) -> bool {
        self.queued() == 0 && self.parked == 0 && self.running == 0
    }

    pub(super) fn push(&mut self, slab: &mut Slab, at: u32, now_ms: u64) {
        let entry = slab.get_mut(at);
        (entry.state, entry.at) = (State::Queued, now_ms);
        let class = class_index(entry.class);
        self.queues[class].push(slab, at);
    }

    pub(super) fn remove(&mut self, slab: &mut Slab, at: u32) {
        let class = class_index(slab.get(at).class);
        self.queues[class].remove(slab, at);
    }

    /// Takes the run that is next.
    pub(super) fn pop(&mut self, slab: &mut Slab) -> Option<u32> {
        let first = preferred(self.turn);
        let at = std::iter::once(first).chain(CLASSES).map(|class| self.queues[class_index(class)].head);
        let at = at.into_iter().find(|head| *head != NONE)?;
        self.turn = (self.turn + 1) % CYCLE;
        self.remove(slab, at);
        Some(at)
    }

    /// Counts its slots up to now.
    pub(super) fn count(&mut self, now_ms: u64) -> u64 {
        let running = self.running;
        self.window.as_mut().map_or(0, |window| {
            window.advance(now_ms, running);
            window.total()
        })
    }
}

/// Tenants by number.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    all: Vec<Option<Tenant>>,
    free: Vec<u32>,
    by_name: std::collections::HashMap<TenantId, u32>,
}

impl Tenants {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn find(&self, name: &TenantId) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, at: u32) -> &Tenant {
        self.all[at as usize].as_ref().expect("whoever has runs or slot-seconds is there")
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Tenant {
        self.all[at as usize].as_mut().expect("whoever has runs or slot-seconds is there")
    }

    pub(super) fn add(&mut self, name: &TenantId, of: Member) -> u32 {
        let tenant = Some(Tenant::new(name.clone(), of));
        let at = if let Some(at) = self.free.pop() {
            self.all[at as usize] = tenant;
            at
        } else {
            self.all.push(tenant);
            u32::try_from(self.all.len() - 1).expect("there are no more tenants than runs")
        };
        self.by_name.insert(name.clone(), at);
        at
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Tenant)> {
        (0..).zip(&self.all).filter_map(|(at, tenant)| Some((at, tenant.as_ref()?)))
    }

    pub(super) fn remove(&mut self, at: u32) {
        if let Some(tenant) = self.all[at as usize].take() {
            self.by_name.remove(&tenant.name);
            self.free.push(at);
        }
        if self.by_name.len() * 4 < self.by_name.capacity() {
            self.by_name.shrink_to(self.by_name.len() * 2);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        // A table of the standard library has a control byte beside each place.
        self.all.capacity() * size_of::<Option<Tenant>>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_name.capacity() * (size_of::<(TenantId, u32)>() + 1) * 8 / 7
    }
}

/// Tenants in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    pub(super) head: u32,
    tail: u32,
    pub(super) len: u32,
}

impl Ring {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    pub(super) fn push(&mut self, tenants: &mut Tenants, at: u32, stamp: u64) {
        let last = self.tail;
        let tenant = tenants.get_mut(at);
        (tenant.prev, tenant.next, tenant.stamp) = (last, NONE, stamp);
        match last {
            NONE => self.head = at,
            last => tenants.get_mut(last).next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, tenants: &mut Tenants, at: u32) {
        let (prev, next) = (tenants.get(at).prev, tenants.get(at).next);
        match prev {
            NONE => self.head = next,
            prev => tenants.get_mut(prev).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => tenants.get_mut(next).prev = prev,
        }
        self.len -= 1;
    }
}
