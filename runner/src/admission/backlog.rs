//! What was read of the log and is not admitted yet: pure.
//!
//! The log is read ahead in its own order, and admitted in turns of tenants. So that one tenant's burst keeps nobody from
//! being read, nobody may have more of the memory than is free beside: who has is **skipped** from there on, and caught up
//! later by a reader of its own, from the place where skipping began to the place that the main reader had reached by then.
//! A tenant whose events cannot be admitted at all (its definitions are damaged) so stops itself alone.
//!
//! **One event that cannot be admitted does not stop its tenant**: after a few tries it is set aside ([`aside`]), still in
//! memory and before the committed place, and the tenant goes on. It comes again, ever later. What crashes admission again
//! and again, or fails while others of its tenant are admitted beside it, is **poison**: it is given out, to be kept as a
//! dead letter, and is through then.
//!
//! **The committed place** is before the oldest event that was neither admitted nor found to begin nothing: of all batches
//! that are not through, and of all tenants that are skipped or being caught up. Whoever starts there again reads some
//! events twice, and admits none twice: that is the ledger's to refuse.

mod aside;

use std::collections::{BTreeMap, HashMap, VecDeque};

use domain::{EndpointId, EventId, TenantId};
use eventlog::{Class, Cursor, Position};

use aside::{Aside, Strikes};

/// Entries that are taken in at a time when a tenant is caught up.
const CATCH_UP: usize = 4096;

/// An event that waits to be admitted: at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    pub event: EventId,
    pub endpoint: EndpointId,
    pub class: Class,
}

/// A spot with the batch that it was read in.
#[derive(Debug, Clone)]
struct Entry {
    spot: Spot,
    batch: u64,
    /// Few have any.
    strikes: Option<Box<Strikes>>,
}

/// How an admission failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Something is not there, or says no.
    Fault,
    /// It panicked.
    Crash,
}

/// What becomes of an event that could not be admitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    /// Its tenant waits. How often this has happened in a row; none: it is counted already.
    Waits(Option<u32>),
    /// It waits alone, and its tenant goes on.
    Aside,
    /// It is not to be admitted. It is not through before [`Backlog::done`] is said, and comes again where that cannot be.
    Poison(Taken),
}

/// An event whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub tenant: TenantId,
    pub spot: Spot,
    batch: u64,
    strikes: Option<Box<Strikes>>,
}

impl Taken {
    /// Times that it could not be admitted.
    pub fn tries(&self) -> u32 {
        self.strikes.as_ref().map_or(0, |strikes| strikes.tries)
    }
}

/// What was read in one go.
#[derive(Debug)]
struct Batch {
    before: Cursor,
    /// Events of it that are not through.
    left: usize,
}

#[derive(Debug, Default)]
enum Skipping {
    #[default]
    No,
    /// Events from here on were not kept.
    From(Cursor),
    /// The place that was reached of the part that ends at `to`; and whether more was skipped behind that.
    CatchingUp { at: Cursor, to: Cursor, again: bool },
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Entry>,
    under_way: usize,
    skipping: Skipping,
    /// On the monotonic clock, in milliseconds: not before.
    not_before_ms: u64,
    /// Times in a row that it could not be admitted.
    failures: u32,
    /// Events of it that got through, since it is here.
    through: u64,
    /// Events of it that are set aside.
    aside: u32,
    is_in_ring: bool,
}

/// A part of the log to read for one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatchUp {
    pub tenant: TenantId,
    pub from: Cursor,
    pub to: Cursor,
    /// Events to take in at most.
    pub max: usize,
}

/// Events by tenant.
#[derive(Debug)]
pub struct Backlog {
    entries_max: usize,
    under_way_max: usize,
    tenants: HashMap<TenantId, Waiting>,
    ring: VecDeque<TenantId>,
    /// Tenants that could not be admitted, until they are tried again.
    delayed: Vec<TenantId>,
    /// Tenants that are skipped.
    skipped: VecDeque<TenantId>,
    aside: Aside,
    batches: BTreeMap<u64, Batch>,
    next_batch: u64,
    entries: usize,
    skips: u64,
}

impl Backlog {
    /// At most so many entries in memory, and so many of one tenant under way at a time.
    pub fn new(entries_max: usize, under_way_max: usize) -> Self {
        Self {
            entries_max: entries_max.max(1),
            under_way_max: under_way_max.max(1),
            tenants: HashMap::new(),
            ring: VecDeque::new(),
            delayed: Vec::new(),
            skipped: VecDeque::new(),
            aside: Aside::default(),
            batches: BTreeMap::new(),
            next_batch: 0,
            entries: 0,
            skips: 0,
        }
    }

    /// Takes in what the main reader has read behind `before`, in order.
    pub fn push(&mut self, before: &Cursor, events: impl IntoIterator<Item = (TenantId, Spot)>) {
        let (batch, mut kept) = (self.next_batch, 0);
        self.next_batch += 1;
        for (tenant, spot) in events {
            let free = self.entries_max - self.entries;
            let waiting = self.tenants.entry(tenant.clone()).or_default();
            match &mut waiting.skipping {
                Skipping::From(_) => self.skips += 1,
                Skipping::CatchingUp { again, .. } => {
                    *again = true;
                    self.skips += 1;
                }
                Skipping::No if waiting.queue.len() + waiting.under_way >= free => {
                    waiting.skipping = Skipping::From(before.clone());
                    self.skipped.push_back(tenant);
                    self.skips += 1;
                }
                Skipping::No => {
                    waiting.queue.push_back(Entry { spot, batch, strikes: None });
                    self.entries += 1;
                    kept += 1;
                    self.enter_ring(&tenant);
                }
            }
        }
        if kept > 0 {
            self.batches.insert(batch, Batch { before: before.clone(), left: kept });
        }
    }

    /// The next part to read for a tenant that was skipped and has worked off most of what it had. `main` is where the main
    /// reader is, which reads nothing until the answer is brought by [`Self::caught_up`].
    pub fn catch_up(&mut self, main: &Cursor) -> Option<CatchUp> {
        let free = self.entries_max - self.entries;
        for _ in 0..self.skipped.len() {
            let tenant = self.skipped.pop_front()?;
            let Some(waiting) = self.tenants.get_mut(&tenant) else { continue };
            self.skipped.push_back(tenant.clone());
            let max = CATCH_UP.min(free / 2);
            if max == 0 || waiting.queue.len() >= max {
                continue;
            }
            if let Skipping::From(from) = &mut waiting.skipping {
                let at = std::mem::take(from);
                waiting.skipping = Skipping::CatchingUp { at, to: main.clone(), again: false };
            }
            if let Skipping::CatchingUp { at, to, .. } = &waiting.skipping {
                return Some(CatchUp { tenant, from: at.clone(), to: to.clone(), max });
            }
        }
        None
    }

    /// What was read of such a part, up to `at`; `is_end`: there is no more of it before the durable end.
    pub fn caught_up(
        &mut self,
        part: CatchUp,
        events: impl IntoIterator<Item = (Position, Spot)>,
        at: &Cursor,
        is_end: bool,
    ) {
        let CatchUp { tenant, from, to, .. } = part;
        let batch = self.next_batch;
        self.next_batch += 1;
        let is_through = is_end || to.lanes().all(|(lane, place)| at.place(lane).is_some_and(|at| at >= place));
        let before = earlier(&from, &to);
        let Some(waiting) = self.tenants.get_mut(&tenant) else { return };
        let mut kept = 0;
        for (position, spot) in events {
            // What lies behind is the main reader's, or is skipped and caught up the next time.
            if to.place(&position.lane).is_some_and(|to| position.place < to) {
                waiting.queue.push_back(Entry { spot, batch, strikes: None });
                kept += 1;
            }
        }
        self.entries += kept;
        match &mut waiting.skipping {
            Skipping::CatchingUp { again: true, .. } if is_through => waiting.skipping = Skipping::From(to),
            Skipping::CatchingUp { .. } if is_through => {
                waiting.skipping = Skipping::No;
                self.skipped.retain(|other| *other != tenant);
            }
            Skipping::CatchingUp { at: reached, .. } => reached.clone_from(at),
            Skipping::No | Skipping::From(_) => {}
        }
        if kept > 0 {
            self.batches.insert(batch, Batch { before, left: kept });
        }
        self.enter_ring(&tenant);
        self.drop_if_gone(&tenant);
    }

    /// The next event of the tenant whose turn it is.
    pub fn take(&mut self, now_ms: u64) -> Option<Taken> {
        self.wake(now_ms);
        self.fetch_aside(now_ms);
        let tenant = self.ring.pop_front()?;
        let waiting = self.tenants.get_mut(&tenant).expect("who is in the ring waits");
        waiting.is_in_ring = false;
        let Entry { spot, batch, strikes } = waiting.queue.pop_front().expect("who is in the ring has something");
        waiting.under_way += 1;
        self.enter_ring(&tenant);
        Some(Taken { tenant, spot, batch, strikes })
    }

    /// It is admitted, or begins nothing, or is kept as a dead letter.
    pub fn done(&mut self, taken: Taken) {
        let Taken { tenant, batch, .. } = taken;
        self.entries -= 1;
        if let Some(waiting) = self.tenants.get_mut(&tenant) {
            waiting.under_way -= 1;
            waiting.failures = 0;
            waiting.through += 1;
            if waiting.aside > 0 {
                self.aside.hurry(&tenant);
            }
        }
        if let Some(of) = self.batches.get_mut(&batch) {
            of.left -= 1;
            if of.left == 0 {
                self.batches.remove(&batch);
            }
        }
        self.enter_ring(&tenant);
        self.drop_if_gone(&tenant);
    }

    /// It could not be admitted: it comes again, first of its tenant's, and the tenant waits longer each time; or, if it has
    /// failed some times, alone.
    pub fn failed(&mut self, taken: Taken, how: Failure, now_ms: u64) -> Failed {
        const FIRST_MS: u64 = 100;
        const LONGEST_MS: u64 = 5000;
        let Taken { tenant, spot, batch, strikes } = taken;
        let Some(waiting) = self.tenants.get_mut(&tenant) else { return Failed::Waits(None) };
        let mut strikes = strikes.unwrap_or_default();
        if strikes.strike(how, waiting.through) {
            return Failed::Poison(Taken { tenant, spot, batch, strikes: Some(strikes) });
        }
        waiting.under_way -= 1;
        let is_aside = strikes.tries >= aside::TRIES && waiting.aside < aside::OF_TENANT_MAX && self.aside.has_room();
        if is_aside {
            waiting.aside += 1;
            (waiting.failures, waiting.not_before_ms) = (0, 0);
            self.aside.put(&tenant, Entry { spot, batch, strikes: Some(strikes) }, now_ms);
            self.delayed.retain(|other| *other != tenant);
            self.enter_ring(&tenant);
            return Failed::Aside;
        }
        // Those that were under way beside it fail for the same reason: they count once.
        let counts = now_ms >= waiting.not_before_ms;
        if counts {
            waiting.failures = waiting.failures.saturating_add(1);
            let delay_ms = FIRST_MS.checked_shl(waiting.failures - 1).unwrap_or(LONGEST_MS).min(LONGEST_MS);
            waiting.not_before_ms = now_ms + delay_ms;
            self.delayed.push(tenant.clone());
        }
        let failures = counts.then_some(waiting.failures);
        waiting.queue.push_front(Entry { spot, batch, strikes: Some(strikes) });
        if std::mem::take(&mut waiting.is_in_ring) {
            self.ring.retain(|other| *other != tenant);
        }
        Failed::Waits(failures)
    }

    /// What was to be through as a dead letter cannot be kept as one: it waits alone.
    pub fn not_kept(&mut self, taken: Taken, now_ms: u64) {
        let Taken { tenant, spot, batch, strikes } = taken;
        let Some(waiting) = self.tenants.get_mut(&tenant) else { return };
        waiting.under_way -= 1;
        waiting.aside += 1;
        self.aside.put(&tenant, Entry { spot, batch, strikes }, now_ms);
        self.enter_ring(&tenant);
    }

    /// When somebody who could not be admitted is tried again, or an event that is set aside, on the monotonic clock.
    pub fn next_ms(&self) -> Option<u64> {
        let tenants = self.delayed.iter().filter_map(|tenant| self.tenants.get(tenant));
        tenants.map(|waiting| waiting.not_before_ms).chain(self.aside.next_ms()).min()
    }

    /// The place to commit, where the main reader is at `main`.
    pub fn place(&self, main: &Cursor) -> Cursor {
        let skipped = self.skipped.iter().filter_map(|tenant| match &self.tenants.get(tenant)?.skipping {
            Skipping::No => None,
            Skipping::From(from) => Some([from, from]),
            // What was read behind the part was not taken: it is not passed either.
            Skipping::CatchingUp { at, to, .. } => Some([at, to]),
        });
        let batches = self.batches.values().map(|batch| &batch.before);
        batches.chain(skipped.flatten()).fold(main.clone(), |place, other| earlier(&place, other))
    }

    /// Most of the memory is in use: the main reader need not hurry, for most of what it reads is skipped.
    pub fn is_nearly_full(&self) -> bool {
        self.entries > self.entries_max / 4 * 3
    }

    /// Events in memory, those that are under way among them.
    pub fn len(&self) -> usize {
        self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Tenants that are behind what is in memory.
    pub fn skipped_tenants(&self) -> usize {
        self.skipped.len()
    }

    /// Events that were read and not kept.
    pub fn skips(&self) -> u64 {
        self.skips
    }

    /// Tenants that cannot be admitted now.
    pub fn delayed_tenants(&self) -> usize {
        self.delayed.len()
    }

    /// Events that are set aside.
    pub fn aside(&self) -> usize {
        self.aside.len()
    }

    /// When the oldest event that is in memory was received, in milliseconds since the Unix epoch: the first of each
    /// tenant's.
    pub fn oldest_unix_ms(&self) -> Option<u64> {
        self.tenants.values().filter_map(|w| w.queue.front()).map(|entry| entry.spot.event.received_unix_ms()).min()
    }

    fn wake(&mut self, now_ms: u64) {
        let mut at = 0;
        while at < self.delayed.len() {
            let is_due = self.tenants.get(&self.delayed[at]).is_none_or(|waiting| waiting.not_before_ms <= now_ms);
            if is_due {
                let tenant = self.delayed.swap_remove(at);
                if let Some(waiting) = self.tenants.get_mut(&tenant) {
                    waiting.not_before_ms = 0;
                }
                self.enter_ring(&tenant);
            } else {
                at += 1;
            }
        }
    }

    /// What was set aside and is due comes first of its tenant's.
    fn fetch_aside(&mut self, now_ms: u64) {
        for (tenant, entry) in self.aside.due(now_ms) {
            if let Some(waiting) = self.tenants.get_mut(&tenant) {
                waiting.aside -= 1;
                waiting.queue.push_front(entry);
            }
            self.enter_ring(&tenant);
        }
    }

    fn enter_ring(&mut self, tenant: &TenantId) {
        let Some(waiting) = self.tenants.get_mut(tenant) else { return };
        // Who fails is tried with one event at a time.
        let under_way_max = if waiting.failures > 0 { 1 } else { self.under_way_max };
        let may = waiting.not_before_ms == 0 && waiting.under_way < under_way_max && !waiting.queue.is_empty();
        if may && !std::mem::replace(&mut waiting.is_in_ring, true) {
            self.ring.push_back(tenant.clone());
        }
    }

    fn drop_if_gone(&mut self, tenant: &TenantId) {
        let is_gone = self.tenants.get(tenant).is_some_and(|waiting| {
            let is_delayed = waiting.not_before_ms > 0;
            waiting.queue.is_empty()
                && waiting.under_way == 0
                && waiting.aside == 0
                && !is_delayed
                && matches!(waiting.skipping, Skipping::No)
        });
        if is_gone {
            self.tenants.remove(tenant);
        }
    }
}

/// The place that is before both, lane by lane. A lane that one of them does not have is read from its beginning.
fn earlier(one: &Cursor, other: &Cursor) -> Cursor {
    let mut both = Cursor::default();
    for (lane, place) in one.lanes() {
        if let Some(others) = other.place(lane) {
            both.set(lane.clone(), place.min(others));
        }
    }
    both
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
