//! The rate at which somebody who ran away may go on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ratelimit::PairKey;

const MINUTE_MS: u64 = 60_000;
/// Of those who are throttled at a time. Whoever is one too many waits for room like for a turn.
const PACES_MAX: usize = 65_536;

/// When each key that is throttled may have its next turn, by the monotonic clock: evenly, and nothing saved up beyond
/// a second. Keys that are not throttled have no entry.
#[derive(Debug, Default)]
pub(super) struct Paces(Mutex<HashMap<PairKey, u64>>);

impl Paces {
    /// A turn, or how long until there is one.
    pub(super) fn turn(&self, key: PairKey, per_minute: u32, now_ms: u64) -> Result<(), u64> {
        let gap_ms = (MINUTE_MS / u64::from(per_minute.max(1))).max(1);
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paces.len() >= PACES_MAX && !paces.contains_key(&key) {
            return Err(gap_ms.max(1_000));
        }
        let next_ms = paces.entry(key).or_insert(now_ms);
        let from_ms = (*next_ms).max(now_ms.saturating_sub(1_000));
        if from_ms > now_ms {
            return Err(from_ms - now_ms);
        }
        *next_ms = from_ms + gap_ms;
        Ok(())
    }

    /// Forgets whoever could have many turns by now.
    pub(super) fn sweep(&self, now_ms: u64) {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paces.retain(|_, next_ms| next_ms.saturating_add(2_000) > now_ms);
        if paces.len() * 4 < paces.capacity() {
            paces.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod unit {
    use domain::TenantId;

    use super::*;

    #[test]
    fn turns_come_evenly_and_are_not_saved_up() {
        let (paces, key) = (Paces::default(), PairKey::automation(&TenantId::parse("acme").unwrap(), "a"));
        let mut granted = 0;
        for now_ms in 0..60_000 {
            granted += u32::from(paces.turn(key, 120, now_ms).is_ok());
        }
        assert!((120..=123).contains(&granted), "{granted}");
        let burst = (0..50).filter(|_| paces.turn(key, 120, 600_000).is_ok()).count();
        assert!(burst <= 3, "{burst}");
        let wait_ms = paces.turn(key, 120, 600_000).unwrap_err();
        assert!((1..=500).contains(&wait_ms), "{wait_ms}");
        paces.sweep(700_000);
        assert!(paces.0.lock().unwrap().is_empty());
    }
}
