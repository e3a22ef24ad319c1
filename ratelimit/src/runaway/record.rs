//! A watched key on disk.
//!
//! ```text
//! version 1 | state 1 | flags 1 | hour 4 | count in it 4 | hours 168 | when 8 | baseline 4 | factor 2 | until 8
//! ```
//!
//! Integers are little-endian, times Unix milliseconds, zero where a field has no meaning. `state` is 0 fine, 1
//! throttled, 2 paused. What was not seen is unknown: if the hour of the record has passed, it and the hours since are
//! not learned. `when` is for a pause the moment it began; for a throttle the milliseconds that were left until it may
//! become a pause, and these go on where they stopped, since nobody demanded anything while the node was down: no clock is
//! asked. Whether the bytes are what was written is for
//! their keeper to check; any bytes that are read do no more than watch one key wrongly.

use super::baseline::{Baseline, HOURS};
use super::table::{SPIKE_FACTOR_MAX, SPIKE_MS_MAX, Spike};
use super::watch::{HOUR_MS, State, Watch, hour_of};
use crate::moment::Now;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 33 + HOURS;

const VERSION: u8 = 1;
const FINE: u8 = 0;
const THROTTLED: u8 = 1;
const PAUSED: u8 = 2;
/// No throttle waits longer than a day before it may pause, whatever a record says.
const PAUSE_MS_MAX: u64 = 24 * HOUR_MS;
/// The hour may be learned if it goes on.
const HOUR_IS_LEARNED: u8 = 1;

/// Why bytes are no record of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    #[error("a baseline's record has {RECORD_BYTES} bytes, not {0}")]
    Length(usize),
    #[error("a baseline's record of version {0} is not known")]
    Version(u8),
    #[error("a baseline's record is in a state {0} that is not known")]
    State(u8),
    #[error("a baseline's record has flags {0:#04x} that are not known")]
    Flags(u8),
    #[error("a throttle or pause in a baseline's record has no baseline")]
    NoBaseline,
}

pub(super) fn write(watch: &Watch, now: Now) -> [u8; RECORD_BYTES] {
    let (state, when_ms, baseline) = match watch.state {
        State::Fine => (FINE, 0, 0),
        State::Throttled { pause_at_ms, baseline } => (THROTTLED, pause_at_ms.saturating_sub(now.mono_ms), baseline),
        State::Paused { since_unix_ms, baseline } => (PAUSED, since_unix_ms, baseline),
    };
    let spike = watch.spike.unwrap_or(Spike { factor: 0, until_unix_ms: 0 });
    let mut bytes = Vec::with_capacity(RECORD_BYTES);
    bytes.extend([VERSION, state, u8::from(watch.is_hour_learned) * HOUR_IS_LEARNED]);
    bytes.extend(watch.hour.to_le_bytes());
    bytes.extend(watch.hour_count.to_le_bytes());
    bytes.extend(watch.hours.codes());
    bytes.extend(when_ms.to_le_bytes());
    bytes.extend(baseline.to_le_bytes());
    bytes.extend(spike.factor.to_le_bytes());
    bytes.extend(spike.until_unix_ms.to_le_bytes());
    bytes.try_into().expect("the fields above are as long as a record")
}

pub(super) fn read(bytes: &[u8], now: Now) -> Result<Watch, BadRecord> {
    if bytes.len() != RECORD_BYTES {
        return Err(BadRecord::Length(bytes.len()));
    }
    let mut rest = bytes;
    let [version, state, flags] = take(&mut rest);
    if version != VERSION {
        return Err(BadRecord::Version(version));
    }
    if flags & !HOUR_IS_LEARNED != 0 {
        return Err(BadRecord::Flags(flags));
    }
    let hour = u32::from_le_bytes(take(&mut rest));
    let count = u32::from_le_bytes(take(&mut rest));
    let mut hours = Baseline::from_codes(take(&mut rest));
    let when_ms = u64::from_le_bytes(take(&mut rest));
    let baseline = u32::from_le_bytes(take(&mut rest));
    let spike =
        Spike { factor: u16::from_le_bytes(take(&mut rest)), until_unix_ms: u64::from_le_bytes(take(&mut rest)) };

    let state = match state {
        FINE => State::Fine,
        THROTTLED | PAUSED if baseline == 0 => return Err(BadRecord::NoBaseline),
        THROTTLED => State::Throttled { pause_at_ms: now.mono_ms.saturating_add(when_ms.min(PAUSE_MS_MAX)), baseline },
        PAUSED => State::Paused { since_unix_ms: when_ms, baseline },
        unknown => return Err(BadRecord::State(unknown)),
    };
    let is_same_hour = hour == hour_of(now);
    if !is_same_hour {
        forget_unseen(&mut hours, hour, hour_of(now));
    }
    let is_live = spike.factor > 1 && now.unix_ms < spike.until_unix_ms;
    let mut watch = Watch::begin(hours, now);
    watch.state = state;
    watch.spike = is_live.then(|| Spike {
        factor: spike.factor.min(SPIKE_FACTOR_MAX),
        until_unix_ms: spike.until_unix_ms.min(now.unix_ms.saturating_add(SPIKE_MS_MAX)),
    });
    if is_same_hour {
        watch.hour_count = count;
        watch.is_hour_learned = flags & HOUR_IS_LEARNED != 0;
    }
    Ok(watch)
}

/// From the hour that was in progress up to the present one nothing is known, whichever way the clock went.
fn forget_unseen(hours: &mut Baseline, from: u32, present: u32) {
    hours.set(from, None);
    let unseen = present.saturating_sub(from).min(u32::try_from(HOURS).unwrap_or(u32::MAX));
    for ahead in 0..unseen {
        hours.set(from.wrapping_add(ahead), None);
    }
}

/// The next bytes of a record whose whole length was checked.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (taken, left) = rest.split_first_chunk().expect("a record's fields are as long as a record");
    *rest = left;
    *taken
}
