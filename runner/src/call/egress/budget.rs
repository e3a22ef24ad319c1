//! Retries that egress says are left. At none, further ones wait here: they are put off and not made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::Clock;

use super::super::Call;
use super::Budgeted;

/// How long nothing is retried after "none is left": a budget gains ten a minute (`docs/quota.md`).
const WAIT_MS: u64 = 6_000;

/// Pairs that are remembered. Beyond, the oldest word is as good as none: egress counts all the same.
const PAIRS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Budget {
    clock: Arc<dyn Clock>,
    /// Until when, by the wall clock in milliseconds.
    spent: Mutex<HashMap<Budgeted, u64>>,
}

impl Budget {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, spent: Mutex::default() }
    }

    /// Until when this retry has to wait. First tries never do.
    pub(super) fn spent(&self, call: &Call) -> Option<u64> {
        if call.attempt <= 1 {
            return None;
        }
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let until = *spent.get(&(call.tenant.clone(), call.connection.clone()))?;
        (self.clock.unix_ms() < until).then_some(until)
    }

    pub(super) fn heard(&self, call: &Call, left: Option<u32>) {
        let Some(left) = left else { return };
        let pair = (call.tenant.clone(), call.connection.clone());
        let now = self.clock.unix_ms();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if left > 0 {
            spent.remove(&pair);
            return;
        }
        if spent.len() >= PAIRS_MAX {
            spent.retain(|_, until| now < *until);
        }
        if spent.len() < PAIRS_MAX {
            spent.insert(pair, now.saturating_add(WAIT_MS));
        }
    }
}
