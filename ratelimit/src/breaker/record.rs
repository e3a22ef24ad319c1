//! An open breaker on disk, in fourteen bytes.
//!
//! ```text
//! version 1 | level 1 | remaining 4 (ms) | written 8 (Unix ms)        integers little-endian
//! ```
//!
//! What is kept is *how long it still had to be open, and when that was written*, not a moment when it ends: the
//! monotonic clock means nothing to another process, and an end by the wall clock would be moved by every step of it.
//! At a restart the time that passed is the wall clock's difference, and
//!
//! - a clock that went **back** shows no time as passed: the breaker is open for the whole rest again, never longer
//!   than the rules' longest open time;
//! - a clock that went **forward** shows too much as passed: the breaker is past its open time, so that one probe goes
//!   out too early, and nothing else.
//!
//! `HalfOpen` is written as Open with nothing remaining: the probe's holder did not survive either. Closed is not written;
//! whoever keeps records drops one when its breaker closes, and one that was kept by mistake is stale after the rules'
//! memory. Whether the bytes are what was written (a torn write, another's bytes) is for the keeper to check; whatever
//! they are, they cannot keep a pair shut for longer than the rules allow.

use super::gate::{Gate, State};
use super::rules::Rules;
use crate::moment::Now;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 14;

const VERSION: u8 = 1;

/// Why bytes are no record of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    #[error("a breaker's record has {RECORD_BYTES} bytes, not {0}")]
    Length(usize),
    #[error("a breaker's record of version {0} is not known")]
    Version(u8),
}

/// `None` where there is nothing to keep.
pub(super) fn write(gate: &Gate, now: Now) -> Option<[u8; RECORD_BYTES]> {
    let remaining_ms = match gate.state {
        State::Closed { .. } => return None,
        State::Open { until_ms } => until_ms.saturating_sub(now.mono_ms),
        State::HalfOpen { .. } => 0,
    };
    let remaining_ms = u32::try_from(remaining_ms).unwrap_or(u32::MAX);
    let mut bytes = [0; RECORD_BYTES];
    bytes[0] = VERSION;
    bytes[1] = gate.level;
    bytes[2..6].copy_from_slice(&remaining_ms.to_le_bytes());
    bytes[6..].copy_from_slice(&now.unix_ms.to_le_bytes());
    Some(bytes)
}

/// What a record says now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) level: u8,
    /// Zero: past it.
    pub(super) remaining_ms: u64,
    /// How long it has been past it.
    pub(super) past_ms: u64,
}

pub(super) fn read(bytes: &[u8], rules: &Rules, now: Now) -> Result<Read, BadRecord> {
    let whole: &[u8; RECORD_BYTES] = bytes.try_into().map_err(|_| BadRecord::Length(bytes.len()))?;
    let [version, level, r0, r1, r2, r3, written @ ..] = *whole;
    if version != VERSION {
        return Err(BadRecord::Version(version));
    }
    let remaining_ms = u64::from(u32::from_le_bytes([r0, r1, r2, r3]).min(rules.open_max_ms));
    let passed_ms = now.unix_ms.saturating_sub(u64::from_le_bytes(written));
    Ok(Read {
        level: level.max(1),
        remaining_ms: remaining_ms.saturating_sub(passed_ms),
        past_ms: passed_ms.saturating_sub(remaining_ms),
    })
}
