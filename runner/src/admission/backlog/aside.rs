//! Events that wait alone, since they could not be admitted.

use domain::TenantId;

use super::{Entry, Failure};

/// Tries before an event waits alone: a fault that passes in less than a second holds a tenant up, and changes no order.
pub(super) const TRIES: u32 = 3;

/// Events of one tenant that wait alone. One with more of them has another trouble, and waits as a whole.
pub(super) const OF_TENANT_MAX: u32 = 64;

/// Of all tenants: each look goes through all of them.
const MAX: usize = 1024;

/// Crashes of admission over one event that make it poison.
const CRASHES_MAX: u32 = 5;

/// Tries that fail, each while others of its tenant got through since the one before, that make it poison. With the waits
/// between them it is five minutes: what is not there for so long, for one event alone, does not come back by itself.
const BESIDE_MAX: u32 = 10;

/// First and longest wait of one that waits alone, in milliseconds. Each is twice the one before.
const WAIT_MS: (u64, u64) = (1_000, 60_000);

/// What has been held against an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Strikes {
    pub(super) tries: u32,
    crashes: u32,
    /// Tries that failed while others got through.
    beside: u32,
    /// How many had got through at the last one.
    through: u64,
}

impl Strikes {
    /// One more, while so many of its tenant have got through. Says whether it is poison.
    pub(super) fn strike(&mut self, how: Failure, through: u64) -> bool {
        self.crashes += u32::from(how == Failure::Crash);
        self.beside += u32::from(self.tries > 0 && through > self.through);
        self.tries = self.tries.saturating_add(1);
        self.through = through;
        self.crashes >= CRASHES_MAX || self.beside >= BESIDE_MAX
    }
}

/// All of them, each with its time on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Aside {
    all: Vec<(u64, TenantId, Entry)>,
    /// Of the first of them.
    next_ms: Option<u64>,
}

impl Aside {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.all.len() < MAX
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }

    pub(super) fn put(&mut self, tenant: &TenantId, entry: Entry, now_ms: u64) {
        let tries = entry.strikes.as_ref().map_or(0, |strikes| strikes.tries).saturating_sub(TRIES);
        let wait_ms = WAIT_MS.0.checked_shl(tries.min(32)).unwrap_or(WAIT_MS.1).min(WAIT_MS.1);
        self.all.push((now_ms.saturating_add(wait_ms), tenant.clone(), entry));
        self.set_next();
    }

    /// One of the tenant's got through: what was not there is there again, and those that it held up are due. Those that failed
    /// beside others have a trouble of their own, and wait on.
    pub(super) fn hurry(&mut self, tenant: &TenantId) {
        let mut has_hurried = false;
        for (due_ms, of, entry) in &mut self.all {
            let is_held_up = entry.strikes.as_ref().is_none_or(|strikes| strikes.beside == 0);
            if of == tenant && is_held_up && *due_ms > 0 {
                *due_ms = 0;
                has_hurried = true;
            }
        }
        if has_hurried {
            self.set_next();
        }
    }

    /// Takes those that are due.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<(TenantId, Entry)> {
        if self.next_ms.is_none_or(|next| next > now_ms) {
            return Vec::new();
        }
        let due = self.all.extract_if(.., |(due_ms, ..)| *due_ms <= now_ms).map(|(_, tenant, entry)| (tenant, entry));
        let due = due.collect();
        self.set_next();
        due
    }

    fn set_next(&mut self) {
        self.next_ms = self.all.iter().map(|(due_ms, ..)| *due_ms).min();
    }
}
