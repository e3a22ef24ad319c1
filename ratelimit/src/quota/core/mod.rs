//! The centre as a pure function: a state, a time, an operation, an answer.
//!
//! It has no clock, no I/O and no randomness of its own, so that everything it promises can be tested by sequences. A
//! store puts it behind a lock and a journal ([`crate::quota::InProcess`]), or does the same elsewhere.
//!
//! The order in which an acquire is judged: fences (`seq`), what holders tell that is not known here, learning, parks,
//! then each bucket's room, then everything at once.

mod acquire;
mod bucket;
mod bytes;
mod check;
mod entry;
mod meter;
mod packed;
mod record;
mod release;
mod shares;
mod slots;
mod sweep;
mod touch;
mod units;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::{Answer, Denial, Reply};
use super::key::{Application, BucketKey};
use super::op::{Body, Lessee, Metered, Op};
use super::rule::Rule;

use bucket::Bucket;
pub(super) use check::malformed;
use packed::{Kept, PackedKey};
pub use sweep::SweepCursor;
pub use touch::{Change, Touched};

/// Which life of the centre it is, and what it may have forgotten of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Another number in each life. Within 53 bits.
    pub id: u64,
    /// When it began, by the centre's clock.
    pub since_ms: u64,
    pub memory: Memory,
}

/// How much of what was granted before an epoch is known in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// All of it.
    Whole,
    /// All but the newest: a replica took over. Holders live and tell; within one lease's time all have.
    LostSuffix,
    /// What was journalled: windows that matter for [`JOURNALLED_MS`] or longer, and parks. Holders died with it.
    Journalled,
}

/// Rules whose grants matter for as long as this, or longer, are journalled before use.
pub const JOURNALLED_MS: u64 = 60_000;

/// Most buckets of one centre. A further one is refused.
pub const BUCKETS_MAX: usize = 4_000_000;

/// The state of a centre.
#[derive(Debug, Clone)]
pub struct Core {
    now_ms: u64,
    epoch: Epoch,
    applications: BTreeMap<Application, Buckets>,
    buckets: usize,
    buckets_max: usize,
    touched: Vec<Touched>,
}

type Buckets = BTreeMap<PackedKey, Kept>;

impl Core {
    /// A centre that has granted nothing. `buckets_max` is at most [`BUCKETS_MAX`].
    pub fn new(epoch: Epoch, buckets_max: usize) -> Self {
        Self {
            now_ms: epoch.since_ms,
            epoch,
            applications: BTreeMap::new(),
            buckets: 0,
            buckets_max: buckets_max.min(BUCKETS_MAX),
            touched: Vec::new(),
        }
    }

    /// Does one operation. A time before that of the last one counts as that: a clock that steps back grants nothing
    /// twice.
    pub fn step(&mut self, now_ms: u64, op: &Op) -> Reply {
        self.now_ms = self.now_ms.max(now_ms);
        self.touched.clear();
        let answer = match malformed(op) {
            Some(malformed) => Answer::Malformed(malformed),
            None => self.answer(op),
        };
        Reply { epoch: self.epoch.id, answer }
    }

    fn answer(&mut self, op: &Op) -> Answer {
        let application = &op.application;
        match &op.body {
            Body::Acquire(acquire) => self.acquire(application, acquire),
            Body::GiveBack(back) => self.give_back(application, back),
            Body::Renew(renew) => self.renew(application, renew),
            Body::Penalise(penalise) => self.penalise(application, penalise),
            Body::Observe(observe) => self.observe(application, observe),
            Body::Settle(settle) => self.settle(application, settle),
            Body::Release(key) => self.release(application, key),
            Body::Reset(key) => self.reset(application, key),
            Body::Describe(describe) => self.describe(application, describe),
        }
    }

    /// Begins another life of the same state.
    pub fn begin(&mut self, epoch: Epoch) {
        self.now_ms = self.now_ms.max(epoch.since_ms);
        self.epoch = epoch;
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The time of the last operation.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// How many buckets are remembered.
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    /// The bucket, at this moment and under the asker's rule; none if there is no room for another.
    fn bucket(&mut self, application: &Application, metered: &Metered) -> Option<&mut Bucket> {
        let now_ms = self.now_ms;
        let key = PackedKey::of(&metered.key);
        let is_there = self.applications.get(application).is_some_and(|buckets| buckets.contains_key(&key));
        if !is_there {
            if self.buckets >= self.buckets_max {
                return None;
            }
            self.buckets += 1;
            let fresh = Kept::Live(Box::new(Bucket::new(metered, now_ms)));
            self.applications.entry(application.clone()).or_default().insert(key.clone(), fresh);
        }
        let bucket = self.applications.get_mut(application)?.get_mut(&key)?.live()?;
        bucket.advance(Some(&metered.rule), now_ms);
        bucket.touched_ms = now_ms;
        Some(bucket)
    }

    /// The bucket, if it is there, at this moment.
    fn known_bucket(&mut self, application: &Application, key: &BucketKey) -> Option<&mut Bucket> {
        let now_ms = self.now_ms;
        let bucket = self.applications.get_mut(application)?.get_mut(&PackedKey::of(key))?.live()?;
        bucket.advance(None, now_ms);
        bucket.touched_ms = now_ms;
        Some(bucket)
    }

    /// Until the centre knows again what it may have forgotten about buckets of this rule.
    fn learning_ms(&self, rule: &Rule) -> Option<u64> {
        let span_ms = match self.epoch.memory {
            Memory::Whole => 0,
            Memory::LostSuffix => u64::from(rule.lease_ms),
            Memory::Journalled if is_journalled(rule) => 0,
            Memory::Journalled => rule.memory_ms(),
        };
        (self.epoch.since_ms + span_ms).checked_sub(self.now_ms).filter(|&ms| ms > 0)
    }

    fn touch(&mut self, application: &Application, key: &BucketKey, lessee: Option<&Lessee>, change: Change) {
        self.touched.push(Touched {
            application: application.clone(),
            key: key.clone(),
            lessee: lessee.cloned(),
            change,
        });
    }
}

/// Whether grants of the rule have to survive the process: they matter for longer than anybody would wait for.
pub fn is_journalled(rule: &Rule) -> bool {
    rule.is_rate() && rule.memory_ms() >= JOURNALLED_MS
}

fn full(leg: usize) -> Answer {
    Answer::Denied { leg: leg_number(leg), retry_ms: 1_000, why: Denial::Full }
}

fn leg_number(leg: usize) -> u8 {
    u8::try_from(leg).unwrap_or(u8::MAX)
}

fn same_rule(bucket: &Bucket) -> Arc<Rule> {
    Arc::clone(&bucket.rule)
}

#[cfg(test)]
mod tests;
