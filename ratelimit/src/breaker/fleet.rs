//! The fleet's breaker: one per provider, for all tenants on all nodes.
//!
//! **What is guaranteed.** It opens when, over the nodes' latest two windows, at least `tenants_min` distinct tenants had
//! faults, and these are at least `tenant_percent` of the tenants that called, and at least `fault_percent` of at least
//! `volume_min` calls failed. While it is `HalfOpen` there is one probe in the whole fleet: the lease is granted by whoever
//! holds the state (a shared store, or this process on a node alone), one state, one unit. A call that would be it is
//! refused while its node fetches the lease, and the next one has it.
//!
//! **What is not.** A node that does not reach the keeper for some time goes by its own counts and sends its own probes,
//! one at a time: a breaker spares waiting, it is no safety device. A keeper that loses what it had answered is told
//! again by the first node that knows of the opening, which then waits for a probe that may be out; where only nodes come
//! that never heard of it, the breaker is a new one, and closed. (A step of a Redis's clock by more than `memory_ms` is such
//! a loss, too.)
//!
//! **Why three conditions.** A share of calls alone lets one tenant with ten times everybody's load and a broken
//! destination stop the provider for all. A number of tenants alone opens for a busy provider where each of a few
//! tenants meets one fault in a million calls. Both together still open for the loud one plus a few of those; that most
//! *tenants* be in order is what nobody can outshout.
//!
//! **Who keeps it.** A [`Register`] does, in this process ([`ProcessRegister`]) or in the Redis that quota has. The state
//! of a provider is a value in it, with a version; every node reads it, merges what it has to say and writes it where
//! nobody was faster. [`FleetBreakers`] does that for its node, on the side: a call looks at what is known here. Nothing
//! is exchanged of providers that work.
//!
//! **Counters that merge.** A node counts for each provider by windows of its own monotonic clock, numbered upwards, and
//! sends what a window has so far ([`Report`]). Two reports of one holder's window merge by the larger numbers and the
//! union of tenants: in any order, any number of times, with any of them lost, the result is that of the latest. Windows
//! of different holders are added. Deltas would be smaller, and wrong after one repeated or lost message. Time is the
//! store's at receipt: no node's clock is compared with another's.
//!
//! **Distinct tenants** are a set of 256 bits per window, by hash: merging is *or*, counting is counting bits. Two tenants
//! on one bit count as one, so the number is never too high, and hardly too low for as few as `tenants_min`; beyond some
//! five hundred tenants both sets fill up and the share of tenants says less, the share of calls as much as ever.
//!
//! **Edges.** A holder that was not heard of for `fresh_ms` is left out: a dead node's last window opens nothing. What was
//! counted before the breaker opened, and while it was, is never counted again after it has closed. A holder beyond
//! [`HOLDERS_MAX`] is not heard until one is stale: that many nodes are evidence enough.

mod board;
mod breakers;
mod counters;
mod exchange;
mod node;
mod register;
mod rules;
mod settings;
mod standing;
mod state;
mod tally;

pub use breakers::{FleetBreakers, FleetTicket};
pub use counters::Snapshot;
pub use node::NodeTallies;
#[cfg(any(test, feature = "test-util"))]
pub use register::conformance;
pub use register::{Kept, ProcessRegister, Register, TTL_MAX, VALUE_BYTES_MAX, Written};
#[cfg(feature = "redis")]
pub(crate) use register::{TOO_LONG, ttl_ms};
pub use rules::FleetRules;
pub use settings::{BadSettings, FleetSettings};
pub use tally::{BadReport, REPORT_BYTES, Report, Tally};

use super::gate::{Admission, Gate, Phase, Refused, State, Ticket};
use super::outcome::{Outcome, Weight};
use super::record::{self, BadRecord, RECORD_BYTES};
use super::table::{Change, Restored};
use crate::moment::Now;
use crate::shards::spread;
use rules::{is_broken, is_nearly_broken};

/// Holders whose counts are kept at once.
pub const HOLDERS_MAX: usize = 256;

/// The state of one provider's breaker. All times are of one clock: the keeper's, or that of a node that has
/// [read](Register) it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetBreaker {
    gate: Gate,
    holders: Vec<Holder>,
    /// The name of the latest lease of a probe, by which nodes that share the state know theirs; 0 where it has none.
    probe: u64,
    /// Since when the counts nearly open it.
    suspected_ms: Option<u64>,
}

/// What one holder has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    id: u64,
    heard_ms: u64,
    /// The latest window that was heard of, and the one before it.
    window: u64,
    latest: Tally,
    before: Tally,
    /// Windows up to here are spent: they opened the breaker, or were while it was open. `None`: none is.
    spent: Option<u64>,
}

impl Default for FleetBreaker {
    fn default() -> Self {
        Self { gate: Gate::NEW, holders: Vec::new(), probe: 0, suspected_ms: None }
    }
}

impl FleetBreaker {
    /// A node's counts.
    pub fn observe(&mut self, rules: &FleetRules, report: &Report, now: Now) -> Option<Change> {
        let is_open = !matches!(self.gate.state, State::Closed { .. });
        let holder = self.holder(report, rules, now)?;
        holder.heard_ms = holder.heard_ms.max(now.mono_ms);
        holder.merge(report);
        if is_open {
            holder.spend();
            return None;
        }
        self.open_if_due(rules, report.holder, now)
    }

    /// May calls go out? An ordinary ticket need not be reported.
    pub fn admit(&mut self, rules: &FleetRules, now: Now) -> Result<Ticket, Refused> {
        self.gate.admit(&rules.gate, now.mono_ms).map(Ticket)
    }

    /// How the probe ended.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up")]
    pub fn report(&mut self, rules: &FleetRules, ticket: Ticket, outcome: Outcome, now: Now) -> Option<Change> {
        let Ticket(admission @ Admission::Probe { .. }) = ticket else { return None };
        if !self.gate.hears(admission) {
            return None;
        }
        self.probed(rules, outcome.weight(rules.gate.counted), now)
    }

    /// The outcome of the probe that is out.
    fn probed(&mut self, rules: &FleetRules, weight: Weight, now: Now) -> Option<Change> {
        let salt = spread(self.probe ^ now.mono_ms ^ now.unix_ms);
        self.gate.probed(&rules.gate, weight, now.mono_ms, salt);
        match self.gate.state {
            State::HalfOpen { .. } => None,
            State::Open { .. } => Some(self.opened(now)),
            State::Closed { .. } => {
                // It works again: the next failure is another one.
                self.gate.level = 0;
                Some(Change::Closed)
            }
        }
    }

    pub fn phase(&self) -> Phase {
        self.gate.phase()
    }

    /// Takes the lease of the probe under a name, if it is to be had.
    fn lease(&mut self, rules: &FleetRules, probe: u64, now: Now) -> bool {
        let Ok(Admission::Probe { until_ms }) = self.gate.admit(&rules.gate, now.mono_ms) else { return false };
        if let State::HalfOpen { probe_until_ms, .. } = &mut self.gate.state {
            *probe_until_ms = until_ms.saturating_add(rules.claim_ms());
        }
        self.probe = probe;
        true
    }

    /// The name of the probe that is out.
    fn probe_out(&self) -> Option<u64> {
        matches!(self.gate.state, State::HalfOpen { is_out: true, .. }).then_some(self.probe)
    }

    /// Whether every node should say what it has counted.
    fn is_suspect(&self) -> bool {
        self.suspected_ms.is_some() || !self.is_closed()
    }

    fn is_closed(&self) -> bool {
        matches!(self.gate.state, State::Closed { .. })
    }

    /// Until when this is worth keeping, if nothing more happens to it.
    fn matters_until_ms(&self, rules: &FleetRules, now_ms: u64) -> u64 {
        let memory_ms = u64::from(rules.gate.memory_ms);
        match self.gate.state {
            State::Closed { .. } => now_ms.saturating_add(u64::from(rules.fresh_ms)),
            State::Open { until_ms } | State::HalfOpen { probe_until_ms: until_ms, .. } => {
                until_ms.saturating_add(memory_ms)
            }
        }
    }

    /// The record to keep; `None`: drop the one that was kept.
    pub fn record(&self, now: Now) -> Option<[u8; RECORD_BYTES]> {
        record::write(&self.gate, now)
    }

    /// Takes up a record. Counts are not recorded: nodes report again within seconds.
    pub fn restore(&mut self, rules: &FleetRules, bytes: &[u8], now: Now) -> Result<Restored, BadRecord> {
        let read = record::read(bytes, &rules.gate, now)?;
        if read.past_ms >= u64::from(rules.gate.memory_ms) {
            return Ok(Restored::Stale);
        }
        if self.gate != Gate::NEW {
            return Ok(Restored::Known);
        }
        let until_ms = now.mono_ms.saturating_add(read.remaining_ms);
        self.gate = Gate { state: State::Open { until_ms }, level: read.level };
        Ok(Restored::Open { for_ms: read.remaining_ms })
    }

    fn open_if_due(&mut self, rules: &FleetRules, salt: u64, now: Now) -> Option<Change> {
        let fresh_ms = u64::from(rules.fresh_ms);
        let mut all = Tally::default();
        for holder in self.holders.iter().filter(|holder| now.mono_ms.saturating_sub(holder.heard_ms) < fresh_ms) {
            all.add(&holder.latest);
            all.add(&holder.before);
        }
        if !is_nearly_broken(rules, &all) {
            self.suspected_ms = None;
            return None;
        }
        let since_ms = *self.suspected_ms.get_or_insert(now.mono_ms);
        if now.mono_ms.saturating_sub(since_ms) < u64::from(rules.hear_ms) || !is_broken(rules, &all) {
            return None;
        }
        self.gate.open(&rules.gate, now.mono_ms, spread(salt ^ now.mono_ms));
        Some(self.opened(now))
    }

    fn opened(&mut self, now: Now) -> Change {
        self.suspected_ms = None;
        for holder in &mut self.holders {
            holder.spend();
        }
        let for_ms =
            if let State::Open { until_ms } = self.gate.state { until_ms.saturating_sub(now.mono_ms) } else { 0 };
        Change::Opened { for_ms, times: self.gate.level }
    }

    fn holder(&mut self, report: &Report, rules: &FleetRules, now: Now) -> Option<&mut Holder> {
        if let Some(at) = self.holders.iter().position(|holder| holder.id == report.holder) {
            return self.holders.get_mut(at);
        }
        if self.holders.len() >= HOLDERS_MAX {
            let fresh_ms = u64::from(rules.fresh_ms);
            self.holders.retain(|holder| now.mono_ms.saturating_sub(holder.heard_ms) < fresh_ms);
        }
        if self.holders.len() >= HOLDERS_MAX {
            return None;
        }
        self.holders.push(Holder {
            id: report.holder,
            heard_ms: now.mono_ms,
            window: report.window,
            latest: Tally::default(),
            before: Tally::default(),
            spent: None,
        });
        self.holders.last_mut()
    }
}

impl Holder {
    fn merge(&mut self, report: &Report) {
        if self.spent.is_some_and(|spent| report.window <= spent) {
            return;
        }
        if report.window > self.window {
            let is_next = report.window == self.window + 1;
            self.before = if is_next { self.latest } else { Tally::default() };
            self.latest = Tally::default();
            self.window = report.window;
        }
        if report.window == self.window {
            self.latest.join(&report.tally);
        } else if report.window + 1 == self.window {
            self.before.join(&report.tally);
        }
    }

    fn spend(&mut self) {
        self.spent = Some(self.window);
        self.latest = Tally::default();
        self.before = Tally::default();
    }
}

#[cfg(test)]
mod tests;
