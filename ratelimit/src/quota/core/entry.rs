//! What one lessee has of one bucket.

use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Lessee, Tally};

/// A lessee's fences, its last lease, and what it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) holder: HolderId,
    pub(super) tenant: Name,
    /// Of the last acquire or renewal that was done.
    pub(super) seq: u64,
    pub(super) settle_seq: u64,
    /// Of the lease, all of them; of concurrency, slots that are held.
    pub(super) units: u32,
    /// Given back, or lost: there is nothing left to give back.
    pub(super) is_closed: bool,
    pub(super) generation: u64,
    pub(super) granted_ms: u64,
    pub(super) ttl_ms: u32,
    /// All that was granted, credits not taken off. Its `wid` is the lease's.
    pub(super) tally: Tally,
    /// What was credited of the tally's window: never more than was granted.
    pub(super) credited: u64,
}

impl Entry {
    pub(super) fn new(lessee: &Lessee) -> Self {
        Self {
            holder: lessee.holder,
            tenant: lessee.tenant.clone(),
            seq: 0,
            settle_seq: 0,
            units: 0,
            is_closed: true,
            generation: 0,
            granted_ms: 0,
            ttl_ms: 0,
            tally: Tally::default(),
            credited: 0,
        }
    }

    pub(super) fn ends_ms(&self) -> u64 {
        self.granted_ms + u64::from(self.ttl_ms)
    }

    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.units > 0 && now_ms < self.ends_ms()
    }

    /// Takes up what the lessee remembers; how much of it was not known here and still counts. `wid` is the window of
    /// now; where windows are `continuous`, the one before counts, too.
    pub(super) fn heal(&mut self, told: Tally, wid: u64, continuous: bool) -> u64 {
        let relevant = [wid, if continuous { wid.saturating_sub(1) } else { wid }, told.wid.max(wid)];
        let mut missing = 0;
        for (at, &window) in relevant.iter().enumerate() {
            let is_new = !relevant[..at].contains(&window);
            let is_told = continuous || window == wid;
            if is_new && is_told {
                missing +=
                    granted_in(told, window, continuous).saturating_sub(granted_in(self.tally, window, continuous));
            }
        }
        if missing == 0 && told.wid <= self.tally.wid {
            return 0;
        }
        let newest = told.wid.max(self.tally.wid);
        let most = |window| granted_in(told, window, continuous).max(granted_in(self.tally, window, continuous));
        let healed = Tally {
            wid: newest,
            units: most(newest),
            before: if continuous && newest > 0 { most(newest - 1) } else { 0 },
        };
        if newest != self.tally.wid {
            // The lease of that window was lost here, or is of a window before: nothing of it can be given back.
            (self.is_closed, self.credited) = (true, 0);
        }
        self.tally = healed;
        missing
    }

    /// Counts units that are granted in the window `wid`.
    pub(super) fn count(&mut self, units: u32, wid: u64, continuous: bool) {
        let before = match self.tally {
            Tally { wid: at, .. } if at == wid => self.tally.before,
            Tally { wid: at, units, .. } if continuous && at + 1 == wid => units,
            Tally { .. } => 0,
        };
        if self.tally.wid != wid {
            self.tally.units = 0;
            self.credited = 0;
        }
        self.tally = Tally { wid, units: self.tally.units + u64::from(units), before };
    }
}

fn granted_in(tally: Tally, wid: u64, continuous: bool) -> u64 {
    if tally.wid == wid {
        tally.units
    } else if continuous && tally.wid == wid + 1 {
        tally.before
    } else {
        0
    }
}
