//! Limits of tenants and endpoints: all that a delivery asks for at once, or nothing.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use domain::Clock;

use crate::debt::Debt;
use crate::key::LimitKey;
use crate::rate::Rate;
use crate::shards::{OwnKeys, Shards};

/// What is asked of one bucket.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub key: LimitKey,
    /// `None`: this level is not limited.
    pub rate: Option<Rate>,
    /// Nothing asks for nothing and is never refused: a delivery with an empty body costs no bytes.
    pub amount: u32,
}

/// Where a bucket stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Units that can pass at once from here.
    pub remaining: u32,
    /// Until the bucket is full again, if nothing more passes.
    pub reset: Duration,
}

/// No: one bucket, or several, had no room. Nothing was spent anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// The bucket that takes longest to have room.
    pub key: LimitKey,
    pub rate: Rate,
    /// Until every bucket has room, if nothing else passes.
    pub retry_after: Duration,
    pub standing: Standing,
}

/// Buckets of all tenants and endpoints of this node.
///
/// **Granted** in any span of time is at most `rate × time + burst`, with the rates that held in it, or one amount
/// that is larger than the burst. Such an amount (a 2 MiB body against a burst of 1 MiB) passes when its bucket is
/// full and leaves it in debt for as long as its size is worth: refusing it for ever would lose it, charging less
/// would break the rate. Under steady traffic that never lets the bucket fill it waits; a burst as large as the
/// largest body that is taken avoids that.
///
/// **A reload** resets nothing: buckets are found by key, the rate comes with each ask, and a debt is counted in
/// units. A key drains at its old rate until the first ask under the new one.
///
/// **Memory** is bounded by the keys that owe something now. A settled bucket is forgotten, by [`Self::sweep`] and
/// whenever its shard would have to grow.
#[derive(Debug)]
pub struct LocalLimits {
    clock: Arc<dyn Clock>,
    buckets: Shards<Buckets>,
}

type Buckets = OwnKeys<LimitKey, Debt>;

impl LocalLimits {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, buckets: Shards::new() }
    }

    /// One bucket alone.
    pub fn check(&self, key: LimitKey, rate: Rate, amount: u32) -> Result<Standing, Over> {
        self.admit(&[Ask { key, rate: Some(rate), amount }])?;
        Ok(self.standing(key, rate))
    }

    /// Takes what is asked from every bucket, or from none.
    ///
    /// The shards of all keys are held together, taken in ascending order. Nobody ever sees a half-taken admission,
    /// so that a refusal at one level can cause none at another.
    pub fn admit<const N: usize>(&self, asks: &[Ask; N]) -> Result<(), Over> {
        let now_ns = self.now_ns();
        let mut held = self.hold(asks);
        let mut next: [Option<Debt>; N] = [None; N];
        let mut over: Option<Over> = None;

        for at in 0..N {
            let Ask { key, rate: Some(rate), amount } = asks[at] else { continue };
            // The same key may be asked twice: the second ask comes on top of the first.
            let earlier = (0..at).rev().find(|&earlier| asks[earlier].key == key).and_then(|earlier| next[earlier]);
            let before = match earlier {
                Some(debt) => debt.at_rate(rate, now_ns),
                None => recall(held.of(key), key, rate, now_ns),
            };
            next[at] = Some(before);
            match before.plus(rate, amount, now_ns) {
                Ok(after) => next[at] = Some(after),
                Err(wait) if over.is_none_or(|over| wait > over.retry_after) => {
                    over = Some(Over { key, rate, retry_after: wait, standing: before.standing(rate, now_ns) });
                }
                Err(_) => {}
            }
        }
        if let Some(over) = over {
            return Err(over);
        }
        for (ask, debt) in asks.iter().zip(next) {
            if let Some(debt) = debt {
                keep(held.of(ask.key), ask.key, debt, now_ns);
            }
        }
        Ok(())
    }

    /// Where a bucket stands, without taking anything.
    pub fn standing(&self, key: LimitKey, rate: Rate) -> Standing {
        let now_ns = self.now_ns();
        let debt = self.buckets.lock(shard_of(key)).get(&key).copied();
        debt.map_or_else(|| Debt::none(rate), |debt| debt.at_rate(rate, now_ns)).standing(rate, now_ns)
    }

    /// Forgets what is settled and gives memory back; how many buckets are left. One shard is held at a time.
    pub fn sweep(&self) -> usize {
        let now_ns = self.now_ns();
        self.buckets
            .each()
            .map(|mut buckets| {
                buckets.retain(|_, debt| !debt.is_settled(now_ns));
                let wanted = buckets.len() * 2;
                buckets.shrink_to(wanted);
                buckets.len()
            })
            .sum()
    }

    /// Buckets that are kept now, settled ones that were not swept yet among them.
    pub fn tracked(&self) -> usize {
        self.buckets.each().map(|buckets| buckets.len()).sum()
    }

    fn hold<const N: usize>(&self, asks: &[Ask; N]) -> Held<'_, N> {
        let mut wanted = asks.each_ref().map(|ask| shard_of(ask.key));
        wanted.sort_unstable();
        let mut last = None;
        // Ascending and each once: two admissions can wait for each other, never in a circle.
        Held(wanted.map(|shard| (last.replace(shard) != Some(shard)).then(|| (shard, self.buckets.lock(shard)))))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The shards of one admission, each held once.
struct Held<'a, const N: usize>([Option<(usize, MutexGuard<'a, Buckets>)>; N]);

impl<const N: usize> Held<'_, N> {
    fn of(&mut self, key: LimitKey) -> &mut Buckets {
        let wanted = shard_of(key);
        let held = self.0.iter_mut().flatten().find(|(shard, _)| *shard == wanted);
        &mut held.expect("the shard of every key that is asked for is held").1
    }
}

/// What a key owes, counted at `rate` from here on. A changed rate is written down even if the ask is then refused:
/// else a key that is refused all the time would go on draining at its old rate.
fn recall(buckets: &mut Buckets, key: LimitKey, rate: Rate, now_ns: u64) -> Debt {
    match buckets.get_mut(&key) {
        Some(debt) => {
            *debt = debt.at_rate(rate, now_ns);
            *debt
        }
        None => Debt::none(rate),
    }
}

fn keep(buckets: &mut Buckets, key: LimitKey, debt: Debt, now_ns: u64) {
    if let Some(known) = buckets.get_mut(&key) {
        *known = debt;
    } else if !debt.is_settled(now_ns) {
        if buckets.len() == buckets.capacity() {
            // About to grow. Each doubling is paid for by as many inserts, so is this.
            buckets.retain(|_, debt| !debt.is_settled(now_ns));
        }
        buckets.insert(key, debt);
    }
}

fn shard_of(key: LimitKey) -> usize {
    // A key is a hash already.
    Shards::<Buckets>::of(key.as_u64())
}

#[cfg(test)]
mod tests;
