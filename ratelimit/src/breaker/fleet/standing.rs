//! What one node knows of one provider that is in trouble, and what it has to do about it. Pure: the register is asked
//! by [`super::exchange`].
//!
//! **The probe.** The register's state says that a probe is out, by a name; whose it is, its node alone knows. The lease
//! begins before the write that takes it is sent. A call gets it within the first quarter of the lease's length, and has
//! then a whole one; every other node gives it up one and a quarter after it has *seen* it, by its own monotonic clock.
//! So the two ends are in order whatever any wall clock does, however late the write was, and whether or not its answer
//! arrived: a node that finds its own name in the state has the lease.
//!
//! **What the register says holds**, with two exceptions. Where it cannot be reached the node counts on by itself, and
//! after `alone_ms` also probes by itself. Where it has an older version than was seen before, or none, it has forgotten;
//! who knows a breaker that is not closed writes that again.

use super::register::Kept;
use super::state::{self, BadState, Reading};
use super::{FleetBreaker, FleetRules, Refused, Report, State};
use crate::breaker::{Change, Phase, Weight};
use crate::moment::Now;

/// When to come again where the probe's lease is being asked for.
const LEASE_RETRY_MS: u64 = 1_000;

/// One node's part in one provider's breaker. All times are the node's monotonic ones.
#[derive(Debug, Default)]
pub(super) struct Standing {
    fleet: FleetBreaker,
    /// The highest version seen, 0 for none; and whether `fleet` is just that.
    version: u64,
    is_current: bool,
    /// Closed since then, as far as this node knows.
    since_ms: u64,
    /// When a call was last refused that would have been the probe.
    wanted_ms: Option<u64>,
    mine: Mine,
    attempt: Option<Attempt>,
    unreached_since_ms: Option<u64>,
    /// Whether other nodes should say what they have counted.
    pub(super) is_suspect: bool,
    /// When it was last exchanged, and when it is next.
    pub(super) asked_ms: u64,
    pub(super) due_ms: u64,
    pub(super) is_under_way: bool,
}

/// The lease that this node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mine {
    #[default]
    None,
    /// For the next call until then.
    Held { probe: u64, until_ms: u64 },
    /// A call has it.
    Out { probe: u64 },
    /// It ended so; the register does not know yet.
    Done { probe: u64, weight: Weight },
}

/// A lease that was asked for, the answer to which may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    probe: u64,
    asked_ms: u64,
}

/// What a call is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    Ordinary,
    Probe(u64),
    Refused(Refused),
    /// And the register has to be asked for the probe.
    Wanted(Refused),
}

/// With what a standing is worked out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) rules: &'a FleetRules,
    pub(super) reports: &'a [Report],
    /// A name for a probe that no other has.
    pub(super) probe: u64,
    pub(super) now: Now,
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) expected: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) ttl_ms: u64,
    pub(super) change: Option<Change>,
    fleet: FleetBreaker,
}

/// What a reading, a write or a failure meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// This node opened it or closed it.
    Changed(Change),
    /// It works again: what was counted before means nothing.
    Works,
    /// The probe is this node's.
    Leased,
    /// What the register has cannot be read.
    Unreadable(BadState),
    /// The register has lost what this node still knows.
    Forgotten,
    /// The node goes by itself.
    Alone,
}

impl Standing {
    pub(super) fn new(due_ms: u64) -> Self {
        Self { due_ms, ..Self::default() }
    }

    pub(super) fn phase(&self) -> Phase {
        self.fleet.phase()
    }

    /// Nothing is left of it but what the register has.
    pub(super) fn is_idle(&self, rules: &FleetRules, now_ms: u64) -> bool {
        self.fleet.is_closed()
            && self.mine == Mine::None
            && !self.is_under_way
            // Until then calls that were admitted before it closed may come back.
            && (self.since_ms == 0 || now_ms.saturating_sub(self.since_ms) >= u64::from(rules.gate.probe_lease_ms))
    }

    pub(super) fn admit(&mut self, rules: &FleetRules, now_ms: u64) -> Look {
        if self.fleet.is_closed() {
            return Look::Ordinary;
        }
        if let Mine::Held { probe, until_ms } = self.mine
            && now_ms < until_ms
        {
            self.mine = Mine::Out { probe };
            return Look::Probe(probe);
        }
        let phase = self.phase();
        // On a copy: the lease is the register's to grant.
        let mut gate = self.fleet.gate;
        if let Err(refused) = gate.admit(&rules.gate, now_ms) {
            return Look::Refused(refused);
        }
        self.wanted_ms = Some(now_ms);
        Look::Wanted(Refused { retry_after_ms: LEASE_RETRY_MS, phase })
    }

    /// Why [`Self::admit`] would refuse a call, without one that wants to go.
    pub(super) fn refusal(&self, rules: &FleetRules, now_ms: u64) -> Option<Refused> {
        let has_probe = matches!(self.mine, Mine::Held { until_ms, .. } if now_ms < until_ms);
        if self.fleet.is_closed() || has_probe {
            return None;
        }
        let mut gate = self.fleet.gate;
        let leased = Refused { retry_after_ms: LEASE_RETRY_MS, phase: self.phase() };
        Some(gate.admit(&rules.gate, now_ms).err().unwrap_or(leased))
    }

    /// Whether an ordinary call that was admitted then counts.
    pub(super) fn hears(&self, admitted_ms: u64) -> bool {
        self.fleet.is_closed() && admitted_ms >= self.since_ms
    }

    /// How the probe ended; whether it was the one that is out.
    pub(super) fn probed(&mut self, of: u64, weight: Weight) -> bool {
        match self.mine {
            Mine::Out { probe } if probe == of => {
                self.mine = Mine::Done { probe, weight };
                true
            }
            Mine::None | Mine::Held { .. } | Mine::Out { .. } | Mine::Done { .. } => false,
        }
    }

    /// A lease that nobody has taken goes back now; whether there is anything to tell.
    pub(super) fn let_go(&mut self) -> bool {
        if let Mine::Held { probe, .. } = self.mine {
            self.mine = Mine::Done { probe, weight: Weight::Nothing };
        }
        self.wanted_ms = None;
        matches!(self.mine, Mine::Done { .. })
    }

    /// Takes over what the register has, and says what it should have instead.
    pub(super) fn merge(&mut self, given: Given<'_>, kept: &Kept, reading: Reading) -> (Vec<Note>, Option<Write>) {
        let (rules, now_ms) = (given.rules, given.now.mono_ms);
        self.unreached_since_ms = None;
        let mut told = Vec::new();
        let mut fleet = self.known(given, kept, reading, &mut told);
        self.version = kept.version;
        self.take(rules, fleet.clone(), now_ms, &mut told);
        let is_forgotten = told.contains(&Note::Forgotten);
        self.is_current = !is_forgotten && !told.iter().any(|note| matches!(note, Note::Unreadable(_)));
        // What was counted before it closed means nothing.
        let reports = if told.contains(&Note::Works) { &[] } else { given.reports };
        let (change, is_changed) = self.advance(Given { reports, ..given }, &mut fleet);
        self.is_suspect = fleet.is_suspect();
        if let Some(since_ms) = fleet.suspected_ms {
            // It opens at the first look after everybody was heard.
            let heard_ms = since_ms.saturating_add(u64::from(rules.hear_ms));
            self.due_ms = if heard_ms > now_ms { self.due_ms.min(heard_ms) } else { self.due_ms };
        }
        if !is_changed && !is_forgotten {
            return (told, None);
        }
        let bytes = state::write(&fleet, rules, reading, now_ms);
        let ttl_ms = fleet.matters_until_ms(rules, now_ms).saturating_sub(now_ms);
        (told, Some(Write { expected: kept.version, bytes, ttl_ms, change, fleet }))
    }

    /// The write was done.
    pub(super) fn written(&mut self, rules: &FleetRules, write: Write, version: u64, now_ms: u64) -> Vec<Note> {
        let mut told: Vec<_> = write.change.map(Note::Changed).into_iter().collect();
        self.take(rules, write.fleet, now_ms, &mut told);
        (self.version, self.is_current) = (version, true);
        told
    }

    /// The register could not be reached, or did not say what became of a write.
    pub(super) fn unreached(&mut self, given: Given<'_>, asked_ms: u64, alone_ms: u64) -> Vec<Note> {
        self.is_current = false;
        let since_ms = *self.unreached_since_ms.get_or_insert(asked_ms);
        let is_alone = given.now.mono_ms.saturating_sub(since_ms) >= alone_ms;
        let mut told = if is_alone { vec![Note::Alone] } else { Vec::new() };
        let mut fleet = self.fleet.clone();
        let change = if is_alone { self.advance(given, &mut fleet).0 } else { observe(given, &mut fleet) };
        told.extend(change.map(Note::Changed));
        self.take(given.rules, fleet, given.now.mono_ms, &mut told);
        told
    }

    /// The state that the register has, in this node's time.
    fn known(&self, given: Given<'_>, kept: &Kept, reading: Reading, told: &mut Vec<Note>) -> FleetBreaker {
        let (own, rules) = (&self.fleet, given.rules);
        if kept.version == self.version && self.is_current {
            return own.clone();
        }
        let matters = !own.is_closed() && reading.answered_ms < own.matters_until_ms(rules, reading.answered_ms);
        if kept.version < self.version && matters {
            told.push(Note::Forgotten);
            return self.remembered(given);
        }
        if kept.bytes.is_empty() {
            return FleetBreaker::default();
        }
        let mut fleet = match state::read(&kept.bytes, rules, reading) {
            Ok(fleet) => fleet,
            Err(bad) => {
                told.push(Note::Unreadable(bad));
                return FleetBreaker::default();
            }
        };
        let is_same_probe = fleet.probe == own.probe;
        match (&mut fleet.gate.state, own.gate.state) {
            // The same opening: it ends when it was first said to, whatever the keeper's clock does.
            (State::Open { until_ms }, State::Open { until_ms: before }) if fleet.gate.level == own.gate.level => {
                *until_ms = (*until_ms).min(before);
            }
            // The same probe: it is watched since it was first seen.
            (
                State::HalfOpen { probe_until_ms, is_out: true, .. },
                State::HalfOpen { probe_until_ms: before, is_out: true, .. },
            ) if is_same_probe => *probe_until_ms = (*probe_until_ms).min(before),
            _ => {}
        }
        fleet
    }

    /// What this node still knows, for a register that has lost it. A probe may have gone out that neither knows of: it
    /// is waited for as if it had, under a name that nobody has.
    fn remembered(&self, given: Given<'_>) -> FleetBreaker {
        let mut fleet = self.fleet.clone();
        if fleet.probe_out().is_none() {
            let probe_until_ms = given.now.mono_ms.saturating_add(given.rules.watch_ms());
            fleet.gate.state = State::HalfOpen { good: 0, probe_until_ms, is_out: true };
            fleet.probe = given.probe;
        }
        fleet
    }

    /// What this node has to add: its counts, how its probe ended, and that it wants the next one.
    fn advance(&mut self, given: Given<'_>, fleet: &mut FleetBreaker) -> (Option<Change>, bool) {
        let Given { rules, now, .. } = given;
        let mut change = observe(given, fleet);
        let mut is_changed = !given.reports.is_empty();
        if matches!(self.mine, Mine::Held { until_ms, .. } if until_ms <= now.mono_ms) {
            self.let_go();
        }
        if let Mine::Done { probe, weight } = self.mine
            && fleet.probe_out() == Some(probe)
        {
            change = fleet.probed(rules, weight, now).or(change);
            is_changed = true;
        }
        let is_wanted = self.wanted_ms.is_some_and(|at_ms| now.mono_ms.saturating_sub(at_ms) < rules.claim_ms());
        if is_wanted && !matches!(self.mine, Mine::Held { .. } | Mine::Done { .. }) && !fleet.is_closed() {
            let attempt = self.attempt.unwrap_or(Attempt { probe: given.probe, asked_ms: now.mono_ms });
            if fleet.lease(rules, attempt.probe, now) {
                self.attempt = Some(attempt);
                is_changed = true;
            }
        }
        (change, is_changed)
    }

    /// From now on this is what is known.
    fn take(&mut self, rules: &FleetRules, fleet: FleetBreaker, now_ms: u64, told: &mut Vec<Note>) {
        if fleet.is_closed() && !self.fleet.is_closed() {
            self.since_ms = now_ms;
            self.wanted_ms = None;
            told.push(Note::Works);
        }
        self.fleet = fleet;
        let out = self.fleet.probe_out();
        if let Mine::Held { probe, .. } | Mine::Out { probe } | Mine::Done { probe, .. } = self.mine
            && out != Some(probe)
        {
            self.mine = Mine::None;
        }
        let Some(Attempt { probe, asked_ms }) = self.attempt else { return };
        let until_ms = asked_ms.saturating_add(rules.claim_ms());
        if out == Some(probe) {
            self.mine = Mine::Held { probe, until_ms };
            self.attempt = None;
            self.wanted_ms = None;
            told.push(Note::Leased);
        } else if until_ms <= now_ms {
            self.attempt = None;
        }
    }
}

/// Tells the breaker what was counted.
fn observe(given: Given<'_>, fleet: &mut FleetBreaker) -> Option<Change> {
    let mut change = None;
    for report in given.reports {
        change = fleet.observe(given.rules, report, given.now).or(change);
    }
    change
}
