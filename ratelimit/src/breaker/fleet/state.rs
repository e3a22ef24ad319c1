//! A fleet's breaker as bytes, for a register that several nodes share.
//!
//! ```text
//! version 1 | phase 1 | level 1 | good 1 | remaining 4 (ms) | suspected 4 (ms) | probe 8 | written 8 (ms) | holders 2 |
//!          holder…
//! holder:  id 8 | window 8 | spent 8 | age 4 (ms) | latest | before                      integers little-endian
//! ```
//!
//! Times are *how long from when it was written*, and when that was by the keeper's clock: whoever reads works out how
//! much of them has passed and goes on by its own monotonic clock. A keeper's clock that went back shows no time as
//! passed, one that went forward too much: what then ends early is an open time (one probe goes out early) and the worth
//! of counts. The lease of a probe has no time at all: who did not take it watches it for its whole length
//! ([`super::standing`]), so that no clock's step makes a second probe.
//!
//! `suspected` is how long ago it was, and one more, or 0. `spent` is 0, or one more than the window up to which all are. Holders that are stale are not written.
//!
//! Whatever the bytes are, what is read is open for no longer than the rules' longest time, and has no more than
//! [`HOLDERS_MAX`] holders.

use super::tally::{Tally, take};
use super::{FleetBreaker, FleetRules, Gate, HOLDERS_MAX, Holder, State};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 30;
const HOLDER_BYTES_MAX: usize = 28 + 2 * (1 + 8 + 2 * 33);

/// The longest that is written.
pub(super) const STATE_BYTES_MAX: usize = HEAD_BYTES + HOLDERS_MAX * HOLDER_BYTES_MAX;

/// Why bytes are no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadState {
    #[error("a fleet breaker's state of version {0} is not known")]
    Version(u8),
    #[error("a fleet breaker's state is cut short, or says what cannot be")]
    Malformed,
}

/// When something was read, by both clocks.
#[expect(clippy::struct_field_names, reason = "each is a time in ms")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// The node's monotonic clock before the register was asked, and when it had answered.
    pub(super) asked_ms: u64,
    pub(super) answered_ms: u64,
    /// The keeper's, in between.
    pub(super) keeper_ms: u64,
}

impl Reading {
    /// What the keeper's clock shows at a moment of the node's.
    pub(super) fn keeper_ms_at(&self, now_ms: u64) -> u64 {
        self.keeper_ms.saturating_add(now_ms.saturating_sub(self.answered_ms))
    }
}

/// The state as of `now_ms`; `reading` is the latest, which says what the keeper's clock shows now.
pub(super) fn write(fleet: &FleetBreaker, rules: &FleetRules, reading: Reading, now_ms: u64) -> Vec<u8> {
    let (phase, good, remaining_ms) = match fleet.gate.state {
        State::Closed { .. } => (0, 0, 0),
        State::Open { until_ms } => (1, 0, short(until_ms.saturating_sub(now_ms))),
        State::HalfOpen { good, is_out: false, .. } => (2, good, 0),
        State::HalfOpen { good, is_out: true, .. } => (3, good, 0),
    };
    let suspected = fleet.suspected_ms.map_or(0, |since_ms| short(now_ms.saturating_sub(since_ms)).saturating_add(1));
    let fresh = || fleet.holders.iter().filter(|holder| is_fresh(holder, rules, now_ms)).take(HOLDERS_MAX);
    let mut bytes = vec![VERSION, phase, fleet.gate.level, good];
    bytes.extend(remaining_ms.to_le_bytes());
    bytes.extend(suspected.to_le_bytes());
    bytes.extend(fleet.probe.to_le_bytes());
    bytes.extend(reading.keeper_ms_at(now_ms).to_le_bytes());
    bytes.extend(u16::try_from(fresh().count()).unwrap_or(u16::MAX).to_le_bytes());
    for holder in fresh() {
        let spent = holder.spent.map_or(0, |spent| spent.saturating_add(1));
        for number in [holder.id, holder.window, spent] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(short(now_ms.saturating_sub(holder.heard_ms)).to_le_bytes());
        holder.latest.pack(&mut bytes);
        holder.before.pack(&mut bytes);
    }
    bytes
}

/// The state in the reader's time. A probe that is out is so for a whole lease from here.
pub(super) fn read(bytes: &[u8], rules: &FleetRules, reading: Reading) -> Result<FleetBreaker, BadState> {
    let mut rest = bytes;
    match take::<1>(&mut rest) {
        Some([VERSION]) => {}
        Some([version]) => return Err(BadState::Version(version)),
        None => return Err(BadState::Malformed),
    }
    let fleet = read_rest(&mut rest, rules, reading).ok_or(BadState::Malformed)?;
    if rest.is_empty() { Ok(fleet) } else { Err(BadState::Malformed) }
}

fn read_rest(rest: &mut &[u8], rules: &FleetRules, reading: Reading) -> Option<FleetBreaker> {
    let [phase, level, good] = take(rest)?;
    let remaining_ms = u64::from(u32::from_le_bytes(take(rest)?).min(rules.gate.open_max_ms));
    let suspected = u32::from_le_bytes(take(rest)?).checked_sub(1);
    let probe = u64::from_le_bytes(take(rest)?);
    let passed_ms = reading.keeper_ms.saturating_sub(u64::from_le_bytes(take(rest)?));
    let good = good.min(rules.gate.probes_to_close.saturating_sub(1));
    let state = match phase {
        0 => State::Closed { since_ms: reading.answered_ms },
        // From before the question: a state that is handed on does not grow by the way it takes.
        1 => State::Open { until_ms: reading.asked_ms.saturating_add(remaining_ms.saturating_sub(passed_ms)) },
        2 => State::HalfOpen { good, probe_until_ms: reading.answered_ms, is_out: false },
        3 => {
            State::HalfOpen { good, probe_until_ms: reading.answered_ms.saturating_add(rules.watch_ms()), is_out: true }
        }
        _ => return None,
    };
    let holders = read_holders(rest, rules, reading, passed_ms)?;
    let since_ms = |age_ms| reading.answered_ms.saturating_sub(u64::from(age_ms).saturating_add(passed_ms));
    Some(FleetBreaker { gate: Gate { state, level }, holders, probe, suspected_ms: suspected.map(since_ms) })
}

fn read_holders(rest: &mut &[u8], rules: &FleetRules, reading: Reading, passed_ms: u64) -> Option<Vec<Holder>> {
    let count = usize::from(u16::from_le_bytes(take(rest)?));
    if count > HOLDERS_MAX {
        return None;
    }
    let mut holders: Vec<Holder> = Vec::new();
    for _ in 0..count {
        let [id, window, spent] = [(); 3].map(|()| take(rest).map(u64::from_le_bytes));
        let (id, window, spent) = (id?, window?, spent?);
        let age_ms = u64::from(u32::from_le_bytes(take(rest)?)).saturating_add(passed_ms);
        let (latest, before) = (Tally::unpack(rest)?, Tally::unpack(rest)?);
        if window == u64::MAX || holders.iter().any(|holder| holder.id == id) {
            return None;
        }
        // A machine that has just started counts from near zero: what is older than that is left out here.
        if age_ms < u64::from(rules.fresh_ms) {
            let heard_ms = reading.answered_ms.saturating_sub(age_ms);
            holders.push(Holder { id, heard_ms, window, latest, before, spent: spent.checked_sub(1) });
        }
    }
    Some(holders)
}

fn is_fresh(holder: &Holder, rules: &FleetRules, now_ms: u64) -> bool {
    now_ms.saturating_sub(holder.heard_ms) < u64::from(rules.fresh_ms)
}

fn short(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
