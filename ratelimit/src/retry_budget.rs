//! Retry budgets: how many calls may be made again, per tenant and provider.
//!
//! **What is guaranteed.** In any span of time a pair retries at most `10 + 10 per minute + a tenth of its first
//! attempts` times ([`Budget::default`]). When a provider fails altogether, a fleet of callers that each retry three
//! times quadruples its load at the worst moment; here it grows by a tenth.
//!
//! **Why these numbers** and not those of AWS's SDKs (500 tokens at the start, 5 for a retry, 10 after a timeout, 1 back
//! for a success without a retry). Theirs are for one client object of one process. Here a pair is one of 100,000 on a
//! node, and a restart would hand each of them 100 retries against a provider that all share. A tenth of the calls says
//! what it does to the load, and ten a minute lets a quiet pair, which makes one call an hour, still retry it.
//!
//! **Why an entry begins with a retry.** A pair that has not retried holds its first ten and needs no entry; first
//! attempts earn only while there is one. The bound is the same, a pair that never retries costs nothing, and a minute
//! after its last retry, when the floor has come back, an entry says no more than none and is dropped.
//!
//! **A park spends nothing**: a call that quota set aside, or that a provider throttled, is let through at its release
//! time by whoever owns the park; charging it here would leave nothing for real faults.
//!
//! **Edges.** Earning stops at [`Budget::tokens_max`], the refill at [`Budget::floor`]. Where there is no room for a new
//! entry (a tenant retries at more providers within a minute than it has room for, or the table is full) a retry is
//! refused: nothing is evicted, since that would give the evicted pair its floor back early. So the bound holds without
//! exception, and room comes back within a minute. Rounding is to the strict side. After a restart every pair begins
//! with its floor again.
//!
//! Units: thousandths of a retry inside, whole retries outside, milliseconds of the monotonic clock.

use crate::moment::Now;
use crate::pair::PairKey;
use crate::pair_table::{Bounds, Entry, PairTable};

/// A pair's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Part of first attempts that is earned, in thousandths; at most 1,000.
    pub per_mille: u16,
    /// Retries that come back in a minute, and that a pair has to begin with.
    pub floor: u16,
    /// The most that can be earned.
    pub tokens_max: u16,
}

impl Default for Budget {
    /// The most is ten minutes of the floor: enough for a burst of failures of a busy pair, not for a storm.
    fn default() -> Self {
        Self { per_mille: 100, floor: 10, tokens_max: 100 }
    }
}

/// Why a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    First,
    /// Again, after a fault.
    Retry,
    /// Again, after it was set aside with a release time.
    AfterPark,
}

/// No retries are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// When the refill has one, in milliseconds from now: above zero. First attempts may earn it earlier.
    pub retry_after_ms: u64,
}

/// Thousandths.
const WHOLE: u32 = 1_000;
const MINUTE_MS: u64 = 60_000;

/// Budgets of all pairs of this node.
#[derive(Debug)]
pub struct RetryBudgets {
    pairs: PairTable<Purse>,
}

/// What a pair that retried within the last minute has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Purse {
    /// Thousandths of a retry.
    tokens: u32,
    /// Up to when the refill was given.
    filled_ms: u64,
    /// When the last retry is a minute ago.
    settled_ms: u64,
}

impl Entry for Purse {
    fn is_settled(&self, now: Now) -> bool {
        self.settled_ms <= now.mono_ms
    }

    /// None may go early: see the edges above.
    fn worth(&self) -> Option<u64> {
        None
    }
}

impl RetryBudgets {
    pub fn new(bounds: Bounds) -> Self {
        Self { pairs: PairTable::new(bounds) }
    }

    /// Pays for an attempt, or earns by it. Says how many retries are left afterwards.
    ///
    /// # Errors
    ///
    /// [`Exhausted`] for a retry alone, and nothing is spent then.
    pub fn admit(&self, key: PairKey, budget: Budget, attempt: Attempt, now: Now) -> Result<u32, Exhausted> {
        match attempt {
            Attempt::AfterPark => Ok(self.remaining(key, budget, now)),
            Attempt::First => Ok(self.pairs.with(key, now, |purse| match purse {
                None => u32::from(budget.floor),
                Some(purse) => purse.earn(budget, now.mono_ms),
            })),
            Attempt::Retry => {
                let spent =
                    self.pairs.with_new(key, now, || Purse::new(budget, now), |purse| purse.spend(budget, now.mono_ms));
                spent.unwrap_or(Err(Exhausted { retry_after_ms: MINUTE_MS }))
            }
        }
    }

    /// Whole retries that are left: what `Tidegate-Retry-Budget` says.
    pub fn remaining(&self, key: PairKey, budget: Budget, now: Now) -> u32 {
        self.pairs.with(key, now, |purse| match purse {
            None => u32::from(budget.floor),
            Some(purse) => {
                purse.fill(budget, now.mono_ms);
                purse.tokens / WHOLE
            }
        })
    }

    /// Forgets what says nothing any more and gives memory back; how many entries are left.
    pub fn sweep(&self, now: Now) -> usize {
        self.pairs.sweep(now, |_, _| {})
    }

    /// Entries that are kept now.
    pub fn tracked(&self) -> usize {
        self.pairs.len()
    }
}

impl Purse {
    fn new(budget: Budget, now: Now) -> Self {
        // It settles at once if nothing is spent: an entry that only refused would say nothing.
        Self { tokens: floor(budget), filled_ms: now.mono_ms, settled_ms: now.mono_ms }
    }

    /// Gives what time has brought: up to the floor, never beyond.
    fn fill(&mut self, budget: Budget, now_ms: u64) {
        let per_minute = u64::from(floor(budget));
        let passed_ms = now_ms.saturating_sub(self.filled_ms).min(MINUTE_MS);
        let given = passed_ms * per_minute / MINUTE_MS;
        if given > 0 || passed_ms == MINUTE_MS {
            // Only the time that was given for has passed, so that no fraction is lost by asking often.
            let used_ms = if given == 0 { passed_ms } else { (given * MINUTE_MS).div_ceil(per_minute) };
            self.filled_ms = if passed_ms == MINUTE_MS { now_ms } else { self.filled_ms + used_ms };
            let given = u32::try_from(given).unwrap_or(u32::MAX);
            self.tokens = self.tokens.max(self.tokens.saturating_add(given).min(floor(budget)));
        }
        self.tokens = self.tokens.min(most(budget));
    }

    fn earn(&mut self, budget: Budget, now_ms: u64) -> u32 {
        self.fill(budget, now_ms);
        let earned = u32::from(budget.per_mille.min(1_000));
        self.tokens = self.tokens.saturating_add(earned).min(most(budget));
        self.tokens / WHOLE
    }

    fn spend(&mut self, budget: Budget, now_ms: u64) -> Result<u32, Exhausted> {
        self.fill(budget, now_ms);
        let Some(left) = self.tokens.checked_sub(WHOLE) else {
            return Err(Exhausted { retry_after_ms: self.wait_ms(budget, now_ms) });
        };
        self.tokens = left;
        self.settled_ms = self.settled_ms.max(now_ms.saturating_add(MINUTE_MS));
        Ok(left / WHOLE)
    }

    fn wait_ms(&self, budget: Budget, now_ms: u64) -> u64 {
        let per_minute = u64::from(floor(budget));
        if per_minute < u64::from(WHOLE) {
            return MINUTE_MS;
        }
        let missing = u64::from(WHOLE.saturating_sub(self.tokens));
        let since_ms = now_ms.saturating_sub(self.filled_ms);
        (missing * MINUTE_MS).div_ceil(per_minute).saturating_sub(since_ms).max(1)
    }
}

fn floor(budget: Budget) -> u32 {
    u32::from(budget.floor) * WHOLE
}

fn most(budget: Budget) -> u32 {
    u32::from(budget.tokens_max.max(budget.floor)) * WHOLE
}

#[cfg(test)]
mod tests;
