//! Units that a call has, until it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::quota::op::Why;

use super::leases::Taken;
use super::parked::Parked;
use super::service::Inner;
use super::tell::Seen;

/// What was taken of one lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    /// The lease that it is of; 0: it is of what is set aside.
    pub(super) lease_seq: u64,
    /// The operation that was under way then, or the last one.
    pub(super) ask: u64,
    pub(super) generation: u64,
    pub(super) wid: u64,
    pub(super) expires_ms: u64,
    pub(super) units: u32,
}

impl Term {
    pub(super) const NONE: Self = Self { lease_seq: 0, ask: 0, generation: 0, wid: 0, expires_ms: 0, units: 0 };

    pub(super) const fn is_of_lease(&self) -> bool {
        self.lease_seq != 0
    }
}

/// Why units may not be spent any more. Nothing was sent under them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Spoilt {
    #[error("the lease of level {leg} is over")]
    Expired { leg: usize },
    #[error("level {leg} was parked")]
    Void { leg: usize },
    #[error("the window of level {leg} is over")]
    Window { leg: usize },
}

impl Spoilt {
    pub const fn leg(self) -> usize {
        match self {
            Self::Expired { leg } | Self::Void { leg } | Self::Window { leg } => leg,
        }
    }
}

/// Units of every level for one call. Dropped before [`Self::sent`], they are there again; after that, rates are
/// spent, and slots of concurrency come free when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the units back"]
pub struct Held {
    inner: Arc<Inner>,
    taken: Taken,
    is_sent: AtomicBool,
}

impl Held {
    pub(super) fn new(inner: Arc<Inner>, taken: Taken) -> Self {
        Self { inner, taken, is_sent: AtomicBool::new(false) }
    }

    /// Whether the request may be written. Ask right before it is: what was right when the call was queued may be over.
    pub fn check(&self) -> Result<(), Parked> {
        let now_ms = self.inner.now_ms();
        let leases = &self.inner.leases;
        leases.check(&self.taken, now_ms).map_err(|spoilt| leases.spoilt(&self.taken, spoilt, now_ms))
    }

    /// The request is being written: from here on it counts, whatever becomes of it, unless [`Self::not_sent`] is said.
    pub fn sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// It turned out that nothing was sent, although it was begun: the units are there again once this is dropped.
    pub fn not_sent(&self) {
        self.is_sent.store(false, Ordering::Relaxed);
    }

    /// What the call really cost at a level whose estimate was another.
    pub fn settle(&mut self, leg: usize, actual: u32) {
        self.inner.leases.settle(&mut self.taken, leg, actual, self.inner.now_ms());
        self.inner.notify();
    }

    /// The provider refused the call, and says for how long (or the profile of the provider does).
    pub fn throttled(&self, leg: usize, delta_ms: u64, why: Why) {
        self.inner.leases.throttled(&self.taken, leg, delta_ms, why, self.inner.now_ms());
        self.inner.notify();
    }

    /// What the response's headers say of a level.
    pub fn observed(&self, leg: usize, seen: Seen) {
        self.inner.leases.observed(&self.taken, leg, seen, self.inner.now_ms());
    }

    pub fn route(&self) -> &super::Route {
        self.taken.route()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_sent = *self.is_sent.get_mut();
        let effects = self.inner.leases.finish(&self.taken, is_sent, self.inner.now_ms());
        Inner::dispatch(&self.inner, effects);
    }
}
