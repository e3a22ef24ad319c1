//! What a node counts of its part in the fleet's breakers: numbers of the node, never of a provider.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, each of which only grows.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) exchanges: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) alone: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) unreadable: AtomicU64,
    pub(super) forgotten: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) leases: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) untracked: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Exchanges of a provider's state with the register that were completed.
    pub exchanges: u64,
    /// Exchanges that were not, of a provider or of the list of those in trouble: the node went on with what it knew
    /// and its own counts.
    pub failures: u64,
    /// Those of them that were not for so long that the node went by itself, its probes included.
    pub alone: u64,
    /// Writes that another node's came before.
    pub conflicts: u64,
    /// States in the register that could not be read and were begun anew.
    pub unreadable: u64,
    /// States that the register had lost and got back from this node.
    pub forgotten: u64,
    /// Breakers that this node opened or closed, for the fleet or alone.
    pub opened: u64,
    pub closed: u64,
    /// Leases of a probe that this node had.
    pub leases: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Times that a provider with faults found no room, and was not exchanged.
    pub untracked: u64,
}

pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn snapshot(&self) -> Snapshot {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            exchanges: of(&self.exchanges),
            failures: of(&self.failures),
            alone: of(&self.alone),
            conflicts: of(&self.conflicts),
            unreadable: of(&self.unreadable),
            forgotten: of(&self.forgotten),
            opened: of(&self.opened),
            closed: of(&self.closed),
            leases: of(&self.leases),
            refused: of(&self.refused),
            untracked: of(&self.untracked),
        }
    }
}
