//! The breakers of all pairs of this node.

use std::sync::atomic::{AtomicU64, Ordering};

use super::gate::{Admission, Gate, Phase, Refused, State, Ticket};
use super::outcome::{Outcome, Weight};
use super::record::{self, BadRecord, RECORD_BYTES};
use super::rules::Rules;
use super::window::Window;
use crate::moment::Now;
use crate::pair::PairKey;
use crate::pair_table::{Bounds, Entry, PairTable};
use crate::shards::spread;

/// One pair that had a fault.
#[derive(Debug)]
struct Breaker {
    gate: Gate,
    window: Window,
    /// Counted faults in a row.
    row: u16,
    /// When all of this means nothing any more, on the monotonic clock.
    settled_ms: u64,
}

impl Entry for Breaker {
    fn is_settled(&self, now: Now) -> bool {
        self.settled_ms <= now.mono_ms
    }

    fn worth(&self) -> Option<u64> {
        match self.gate.state {
            State::Closed { .. } => Some(self.settled_ms),
            State::Open { .. } | State::HalfOpen { .. } => None,
        }
    }
}

/// What an outcome changed. Each is worth a line in the log and a write of the pair's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It opened, or opened again after a bad probe; `times` in a row.
    Opened {
        for_ms: u64,
        times: u8,
    },
    Closed,
}

/// How a pair stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub phase: Phase,
    /// When asking may help, in ms from now; 0 where the next call is let out.
    pub retry_after_ms: u64,
    /// How often it opened in a row.
    pub times: u8,
    /// Calls of the window, and how many of them were faults; none are counted while it is not closed.
    pub calls: u32,
    pub faults: u32,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// Open for so long; zero: the next call is a probe.
    Open { for_ms: u64 },
    /// Past its open time for longer than the rules remember.
    Stale,
    /// The pair has an entry already, which knows better.
    Known,
    /// The table is full.
    NoRoom,
}

/// Breakers of pairs. What they guarantee is said in [`super`].
///
/// Every call is `admit`, then `report` with the ticket, under the same key; rules come with both, as the snapshot
/// of the configuration has them.
#[derive(Debug)]
pub struct Breakers {
    pairs: PairTable<Breaker>,
    untracked: AtomicU64,
}

impl Breakers {
    pub fn new(bounds: Bounds) -> Self {
        Self { pairs: PairTable::new(bounds), untracked: AtomicU64::new(0) }
    }

    /// May a call go out?
    pub fn admit(&self, key: PairKey, rules: &Rules, now: Now) -> Result<Ticket, Refused> {
        let admitted = self.pairs.with(key, now, |breaker| match breaker {
            None => Ok(Admission::Ordinary { admitted_ms: now.mono_ms }),
            Some(breaker) => {
                let admitted = breaker.gate.admit(rules, now.mono_ms);
                if let Ok(Admission::Probe { until_ms }) = admitted {
                    breaker.remember(rules, until_ms);
                }
                admitted
            }
        });
        admitted.map(Ticket)
    }

    /// How a call ended that was admitted.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up")]
    pub fn report(&self, key: PairKey, rules: &Rules, ticket: Ticket, outcome: Outcome, now: Now) -> Option<Change> {
        let weight = outcome.weight(rules.counted);
        let salt = spread(key.tenant() ^ spread(key.subject() ^ now.mono_ms));
        let Ticket(admission) = ticket;
        let hear = |breaker: &mut Breaker| breaker.hear(rules, admission, weight, now.mono_ms, salt);
        let begins = weight == Weight::Bad && matches!(admission, Admission::Ordinary { .. });
        if !begins {
            return self.pairs.with(key, now, |breaker| breaker.and_then(hear));
        }
        self.pairs.with_new(key, now, Breaker::new, hear).unwrap_or_else(|_| {
            self.untracked.fetch_add(1, Ordering::Relaxed);
            None
        })
    }

    /// The phase a pair is in. Open is said also of one that is past its open time: nobody probed yet.
    pub fn phase(&self, key: PairKey, now: Now) -> Phase {
        self.pairs.with(key, now, |breaker| breaker.map_or(Phase::Closed, |breaker| breaker.gate.phase()))
    }

    /// How a pair stands, for people; none of a pair that has had no fault lately. Nothing is taken: also of one that is
    /// past its open time the probe is still there to be had.
    pub fn view(&self, key: PairKey, now: Now) -> Option<View> {
        self.pairs.with(key, now, |breaker| breaker.map(|breaker| breaker.view(now)))
    }

    /// Every pair that had a fault lately. One shard is held at a time: `read` should be quick.
    pub fn views(&self, now: Now, mut read: impl FnMut(PairKey, View)) {
        self.pairs.each(|key, breaker| {
            if !breaker.is_settled(now) {
                read(key, breaker.view(now));
            }
        });
    }

    /// An operator closes a pair's breaker and forgets all about it; whether there was anything to forget. What is
    /// out is still out: its outcome counts as any call's.
    pub fn reset(&self, key: PairKey) -> bool {
        self.pairs.forget(key)
    }

    /// The record to keep of a pair; `None`: drop the one that was kept.
    pub fn record(&self, key: PairKey, now: Now) -> Option<[u8; RECORD_BYTES]> {
        self.pairs.with(key, now, |breaker| record::write(&breaker?.gate, now))
    }

    /// Every record that is worth keeping now, for a snapshot or a hand-over.
    pub fn records(&self, now: Now, mut keep: impl FnMut(PairKey, [u8; RECORD_BYTES])) {
        self.pairs.each(|key, breaker| {
            if let Some(bytes) = record::write(&breaker.gate, now).filter(|_| !breaker.is_settled(now)) {
                keep(key, bytes);
            }
        });
    }

    /// Takes up a record that another process, or this node before, has kept.
    pub fn restore(&self, key: PairKey, rules: &Rules, bytes: &[u8], now: Now) -> Result<Restored, BadRecord> {
        let read = record::read(bytes, rules, now)?;
        let memory_ms = u64::from(rules.memory_ms).saturating_sub(read.past_ms);
        if memory_ms == 0 {
            return Ok(Restored::Stale);
        }
        if self.pairs.with(key, now, |breaker| breaker.is_some()) {
            return Ok(Restored::Known);
        }
        let until_ms = now.mono_ms.saturating_add(read.remaining_ms);
        let breaker = || Breaker {
            gate: Gate { state: State::Open { until_ms }, level: read.level },
            settled_ms: until_ms.saturating_add(memory_ms),
            ..Breaker::new()
        };
        Ok(match self.pairs.with_new(key, now, breaker, |_| ()) {
            Ok(()) => Restored::Open { for_ms: read.remaining_ms },
            Err(_) => Restored::NoRoom,
        })
    }

    /// Forgets what means nothing any more and gives memory back; how many entries are left.
    pub fn sweep(&self, now: Now) -> usize {
        self.pairs.sweep(now, |_, _| {})
    }

    /// Entries that are kept now.
    pub fn tracked(&self) -> usize {
        self.pairs.len()
    }

    /// Faults of pairs that had no room for a breaker, since the start.
    pub fn untracked(&self) -> u64 {
        self.untracked.load(Ordering::Relaxed)
    }
}

impl Breaker {
    fn new() -> Self {
        Self { gate: Gate::NEW, window: Window::default(), row: 0, settled_ms: 0 }
    }

    fn view(&self, now: Now) -> View {
        let (calls, faults) = self.window.sums();
        View {
            phase: self.gate.phase(),
            retry_after_ms: self.gate.retry_after_ms(now.mono_ms),
            times: self.gate.level,
            calls,
            faults,
        }
    }

    fn remember(&mut self, rules: &Rules, from_ms: u64) {
        self.settled_ms = self.settled_ms.max(from_ms.saturating_add(u64::from(rules.memory_ms)));
    }

    fn hear(&mut self, rules: &Rules, admission: Admission, weight: Weight, now_ms: u64, salt: u64) -> Option<Change> {
        if !self.gate.hears(admission) {
            return None;
        }
        match admission {
            Admission::Probe { .. } => self.gate.probed(rules, weight, now_ms, salt),
            Admission::Ordinary { .. } => self.count(rules, weight, now_ms, salt),
        }
        match (admission, self.gate.state) {
            (_, State::Open { until_ms }) => {
                self.remember(rules, until_ms);
                Some(Change::Opened { for_ms: until_ms.saturating_sub(now_ms), times: self.gate.level })
            }
            (Admission::Probe { .. }, State::Closed { .. }) => {
                self.remember(rules, now_ms);
                Some(Change::Closed)
            }
            (Admission::Probe { .. }, State::HalfOpen { .. })
            | (Admission::Ordinary { .. }, State::Closed { .. } | State::HalfOpen { .. }) => None,
        }
    }

    /// Opens only at a fault: a good call may complete the volume, but is no reason to stop.
    fn count(&mut self, rules: &Rules, weight: Weight, now_ms: u64, salt: u64) {
        match weight {
            Weight::Nothing => {}
            Weight::Good => {
                self.row = 0;
                self.window.count(now_ms, rules.slot_ms, false);
            }
            Weight::Bad => {
                self.row = self.row.saturating_add(1);
                self.window.count(now_ms, rules.slot_ms, true);
                self.remember(rules, now_ms);
                let (calls, faults) = self.window.sums();
                let is_share = faults * 100 >= calls * u32::from(rules.fault_percent);
                if self.row >= rules.consecutive_faults || (calls >= rules.volume_min && is_share) {
                    self.gate.open(rules, now_ms, salt);
                    self.window = Window::default();
                    self.row = 0;
                }
            }
        }
    }
}
