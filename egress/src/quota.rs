//! What a call has to have before it goes: nobody's breaker against it, no runaway behind it, and units of every level
//! that its provider counts.
//!
//! ```text
//! wanted ──▶ runaways ─▶ breakers ─▶ (resolve, vet) ─▶ leases ─▶ (dial) ─▶ checked right before the request is written
//!                                                                               │
//!            what the provider says of its limits, throttles, costs  ◀── answer ┘
//! ```
//!
//! The parts are in [`ratelimit`]: pure tables for the guards, a holder of leases that asks a centre. Here they meet a
//! call: which buckets it is of ([`metering`]), what it holds while it is under way ([`permit`]), and what its answer
//! means ([`answered`]).
//!
//! Whoever has to come again later is **parked**: 429 with a release time, the level, and because of whom ([`Park`]). A
//! park spends no retry budget and is no failure of anybody's.

mod answered;
mod explain;
mod failed;
mod metering;
mod named;
mod names;
mod pace;
mod park;
mod permit;
mod rules;
mod wanted;
mod watcher;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use domain::Clock;
use ratelimit::PairKey;
use ratelimit::breaker::fleet::FleetBreakers;
use ratelimit::breaker::{Breakers, Phase};
use ratelimit::quota::holder::Holder;
use ratelimit::retry_budget::RetryBudgets;
use ratelimit::runaway::{self, Runaways, Verdict};
use ratelimit::signals::Spread;

pub(crate) use answered::take_note;
pub(crate) use explain::breaker_of;
pub use explain::{Explained, NotExplained, Question};
pub use metering::{HEEDED, Metering, heeded_rule};
pub use names::Called;
pub use park::{Park, ParkedBy};
pub use permit::Permit;
pub use rules::{QuotaRules, Shares};
pub(crate) use wanted::Wanted;
pub use watcher::{Silent, Watcher, Whose};

use names::Names;
use pace::Paces;

/// Everything of this node that stands between a call that may go and its request. It outlives every reload.
#[derive(Debug)]
pub struct Quota {
    pub clock: Arc<dyn Clock>,
    /// Leases of providers' limits.
    pub holder: Holder,
    /// Of a tenant and what it calls.
    pub breakers: Arc<Breakers>,
    /// Of a provider, for all tenants of all nodes.
    pub fleet: Arc<FleetBreakers>,
    /// Of a tenant and what it calls.
    pub budgets: RetryBudgets,
    /// Of a connection, and of an automation.
    pub runaways: Arc<Runaways>,
    pub watcher: Arc<dyn Watcher>,
    names: Names,
    spread: Mutex<Spread>,
    paces: Paces,
    /// For what must not happen in step.
    random: (RandomState, AtomicU64),
}

/// What is asked beside leases.
#[derive(Debug)]
pub struct Guards {
    pub breakers: Arc<Breakers>,
    pub fleet: Arc<FleetBreakers>,
    pub budgets: RetryBudgets,
    pub runaways: Arc<Runaways>,
}

impl Quota {
    pub fn new(
        clock: Arc<dyn Clock>,
        holder: Holder,
        Guards { breakers, fleet, budgets, runaways }: Guards,
        watcher: Arc<dyn Watcher>,
    ) -> Self {
        let (spread, paces, random) = (Mutex::default(), Paces::default(), (RandomState::new(), AtomicU64::new(0)));
        let names = Names::default();
        Self { clock, holder, breakers, fleet, budgets, runaways, watcher, names, spread, paces, random }
    }

    /// Keeps a name for as long as there is something to be said of its key: for what an operator announces.
    pub fn tell_name(&self, key: PairKey, whose: &Whose<'_>) {
        self.names.note(key, whose);
    }

    /// Who stands behind a key that is open, throttled, paused or announced, if it was told here and there was room.
    pub fn name_of(&self, key: PairKey) -> Option<Called> {
        self.names.get(key)
    }

    /// Forgets what says nothing any more. For a timer, every few seconds; breakers and runaways are swept by whoever
    /// keeps their records.
    pub fn sweep(&self) {
        let now = ratelimit::Now::of(&*self.clock);
        self.budgets.sweep(now);
        self.paces.sweep(now.mono_ms);
        // By which rules does not matter to whether there is anything.
        let rules = runaway::Rules::default();
        let is_shut = |key| self.breakers.view(key, now).is_some_and(|view| view.phase != Phase::Closed);
        let is_notable = |view: runaway::View| view.verdict != Verdict::Fine || view.spike.is_some();
        let ran_away = |key| self.runaways.view(key, &rules, now).is_some_and(is_notable);
        self.names.sweep(|key| is_shut(key) || ran_away(key));
    }

    /// Any number from 0 to this.
    fn random_up_to(&self, most: u64) -> u64 {
        let (keys, count) = &self.random;
        keys.hash_one(count.fetch_add(1, Ordering::Relaxed)) % most.saturating_add(1)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
