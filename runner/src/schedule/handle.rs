//! How runs are handed in, from anywhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Clock, TenantId};
use tokio::sync::{Notify, watch};

use super::core::{Core, Left, LimitsFault, Member, Now, Picked, Taken, Tier};
use super::snapshot::{Snapshot, Turns, Waits};
use super::{Queue, Tiers};
use crate::ids::RunId;
use crate::ledger::QueueClass;

/// A way to the scheduler; cheap to clone. Nothing here waits for anybody.
#[derive(Debug, Clone)]
pub struct Handle(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Told when a slot may be given away.
    pub(super) wake: Notify,
    pub(super) clock: Arc<dyn Clock>,
    tiers: Arc<dyn Tiers>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Core,
    /// Of turns that are under way, by slot.
    nudges: HashMap<u32, watch::Sender<u64>>,
    pub(super) turns: Turns,
    waits: [Waits; 4],
    waits_alone: Waits,
    mismatches: u64,
    pub(super) scans: u64,
    pub(super) scan_failures: u64,
    pub(super) claimed: u64,
}

/// A slot that was given away.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) picked: Picked,
    pub(super) nudged: watch::Receiver<u64>,
}

impl Shared {
    pub(super) fn new(core: Core, clock: Arc<dyn Clock>, tiers: Arc<dyn Tiers>) -> Self {
        let state = State {
            core,
            nudges: HashMap::new(),
            turns: Turns::default(),
            waits: [Waits::default(); 4],
            waits_alone: Waits::default(),
            mismatches: 0,
            scans: 0,
            scan_failures: 0,
            claimed: 0,
        };
        Self { state: Mutex::new(state), wake: Notify::new(), clock, tiers }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        let monotonic_ms = u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        Now { monotonic_ms, unix_ms: self.clock.unix_ms() }
    }

    /// Queues what is due and gives away as many slots as `max`.
    pub(super) fn give(&self, max: usize) -> Vec<Given> {
        /// So many in one go, so that those who hand runs in need not wait long for the lock.
        const RELEASED_AT_ONCE: usize = 1024;
        let now = self.now();
        let mut state = self.lock();
        if !state.core.release(now, RELEASED_AT_ONCE) {
            self.wake.notify_one();
        }
        let mut given = Vec::new();
        while given.len() < max
            && let Some(picked) = state.core.next(now)
        {
            state.waits[picked.class as usize].add(picked.waited_ms);
            if picked.is_alone {
                state.waits_alone.add(picked.waited_ms);
            }
            let (sender, nudged) = watch::channel(0);
            state.nudges.insert(picked.slot, sender);
            given.push(Given { picked, nudged });
        }
        if given.len() == max {
            self.wake.notify_one();
        }
        given
    }

    pub(super) fn finish(&self, slot: u32, left: Left) {
        let now = self.now();
        let mut state = self.lock();
        state.nudges.remove(&slot);
        state.core.finish(now, slot, left);
        drop(state);
        self.wake.notify_one();
    }

    fn hand_in(&self, tenant: &TenantId, run: RunId, hand_in: impl FnOnce(&mut Core, Now, Member) -> Taken) -> Taken {
        let (now, of) = (self.now(), self.tiers.member_of(tenant));
        let mut state = self.lock();
        let first_due = state.core.next_unix_ms();
        let taken = hand_in(&mut state.core, now, of);
        match taken {
            Taken::Queued => self.wake.notify_one(),
            // Earlier than what is slept until.
            Taken::Parked if state.core.next_unix_ms() != first_due => self.wake.notify_one(),
            Taken::Nudged => state.nudge(run),
            Taken::Mismatch => state.mismatches += 1,
            Taken::Parked | Taken::Known | Taken::LeftOut => {}
        }
        drop(state);
        if taken == Taken::Mismatch {
            tracing::error!(%run, %tenant, "a run was handed in for a tenant that it is not of; nothing was done");
        }
        taken
    }
}

impl State {
    /// Tells the worker of a run that is under way.
    fn nudge(&self, run: RunId) {
        if let Some(slot) = self.core.slot_of(run)
            && let Some(sender) = self.nudges.get(&slot)
        {
            sender.send_modify(|count| *count += 1);
        }
    }
}

impl Handle {
    /// Runs of a tenant that wait in a class: by what replays are paced.
    pub fn queued_of(&self, tenant: &TenantId, class: QueueClass) -> u32 {
        self.0.lock().core.queued_of(tenant, class)
    }

    /// The tiers have changed, or where tenants belong: what waits, and what is under way, is counted anew.
    ///
    /// # Errors
    /// The tiers cannot be kept, and all is as it was.
    pub fn set_tiers(&self, tiers: Vec<Tier>) -> Result<(), LimitsFault> {
        let Shared { tiers: members, wake, .. } = &*self.0;
        let set = self.0.lock().core.set_tiers(tiers, |tenant| members.member_of(tenant));
        wake.notify_one();
        set
    }

    /// Everything that there is to be seen.
    pub fn snapshot(&self) -> Snapshot {
        const TOP: usize = 10;
        let now = self.0.now();
        let mut state = self.0.lock();
        Snapshot {
            slots: state.core.slots(),
            counts: state.core.counts(),
            top: state.core.top(now.monotonic_ms, TOP),
            waits: state.waits,
            waits_alone: state.waits_alone,
            turns: state.turns,
            mismatches: state.mismatches,
            scans: state.scans,
            scan_failures: state.scan_failures,
            claimed: state.claimed,
            memory_bytes: state.core.bytes(),
        }
    }

    /// A run that was found open.
    pub(super) fn offer(&self, tenant: &TenantId, run: RunId, class: QueueClass, at_unix_ms: u64) -> Taken {
        self.0.hand_in(tenant, run, |core, now, of| core.offer(now, tenant, of, run, class, at_unix_ms))
    }

    /// A run that the ledger says nobody works on although it could go on.
    pub(super) fn claim(&self, tenant: &TenantId, run: RunId, class: QueueClass) -> Taken {
        let taken = self.0.hand_in(tenant, run, |core, now, of| core.claim(now, tenant, of, run, class));
        if taken == Taken::Queued {
            self.0.lock().claimed += 1;
        }
        taken
    }

    /// Something was appended to the run, here or by another process, by whoever does not work on it: one that is under way
    /// here hears of it, and one that is parked here is looked at now.
    pub fn heard(&self, tenant: &TenantId, run: RunId) {
        self.0.hand_in(tenant, run, |core, now, of| core.heard(now, tenant, of, run));
    }
}

impl Queue for Handle {
    fn enqueue(&self, tenant: TenantId, run: RunId, class: QueueClass) {
        self.0.hand_in(&tenant, run, |core, now, of| core.enqueue(now, &tenant, of, run, class));
    }

    fn enqueue_at(&self, tenant: TenantId, run: RunId, class: QueueClass, at_unix_ms: u64) {
        self.0.hand_in(&tenant, run, |core, now, of| core.enqueue_at(now, &tenant, of, run, class, at_unix_ms));
    }

    fn nudge(&self, tenant: &TenantId, run: RunId) {
        self.0.hand_in(tenant, run, |core, now, of| core.nudge(now, tenant, of, run));
    }
}
