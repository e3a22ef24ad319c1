//! Looks at the centre for routes that are new: that their applications are watched, and whether what they only heed is
//! parked already. Of what is leased, an answer would tell; of what is only heeded nothing is ever asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::quota::key::{Application, BucketKey};
use crate::quota::op::{Body, Describe, Op};

use super::bucket::Bucket;
use super::route::Route;

/// Looks that wait. One that is too many is not done: the park is heard of when it is said anew.
const LOOKS_MAX: usize = 65_536;
/// How soon a look is tried again that had no answer.
const AGAIN_MS: u64 = 1_000;

/// What is to be looked at.
#[derive(Debug)]
pub(super) struct Look {
    bucket: Arc<Bucket>,
    /// Nothing of it is leased, so that its park has to be asked for.
    is_heeded: bool,
    due_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Queues>);

/// Each in the order of time: nobody looks for what is due.
#[derive(Debug, Default)]
struct Queues {
    /// Due when they came.
    fresh: VecDeque<Look>,
    /// All of them wait for as long.
    failed: VecDeque<Look>,
}

impl Queues {
    fn len(&self) -> usize {
        self.fresh.len() + self.failed.len()
    }
}

impl Look {
    pub(super) fn application(&self) -> &Application {
        &self.bucket.app.name
    }

    pub(super) fn is_of(&self, key: &BucketKey) -> bool {
        *self.bucket.key == *key
    }

    /// The description of this bucket alone, if there is anything to ask.
    pub(super) fn op(&self) -> Option<Op> {
        let describe = self.is_heeded.then(|| Describe::only(&self.bucket.key))??;
        Some(Op { application: self.application().clone(), body: Body::Describe(describe) })
    }
}

impl Looks {
    /// Takes up what of a route nobody looked at; whether there is something.
    pub(super) fn begin(&self, route: &Route, now_ms: u64) -> bool {
        let leased = route.len();
        let mut looks = self.queues();
        let before = looks.len();
        for (at, station) in route.stations().enumerate() {
            let (bucket, is_heeded) = (&station.bucket, at >= leased);
            let is_new = bucket.app.begins_to_watch() | (is_heeded && bucket.begins_to_heed());
            if is_new && looks.len() < LOOKS_MAX {
                looks.fresh.push_back(Look { bucket: Arc::clone(bucket), is_heeded, due_ms: now_ms });
            }
        }
        looks.len() > before
    }

    /// Looks at these once more.
    pub(super) fn again(&self, buckets: Vec<Arc<Bucket>>, now_ms: u64) {
        let mut looks = self.queues();
        let room = LOOKS_MAX.saturating_sub(looks.len());
        let buckets = buckets.into_iter().take(room);
        looks.fresh.extend(buckets.map(|bucket| Look { bucket, is_heeded: true, due_ms: now_ms }));
    }

    /// Nobody answered.
    pub(super) fn failed(&self, look: Look, now_ms: u64) {
        let mut looks = self.queues();
        if looks.len() < LOOKS_MAX {
            looks.failed.push_back(Look { due_ms: now_ms + AGAIN_MS, ..look });
        }
    }

    pub(super) fn next(&self, now_ms: u64) -> Option<Look> {
        let mut looks = self.queues();
        let is_due = looks.failed.front().is_some_and(|look| look.due_ms <= now_ms);
        if is_due { looks.failed.pop_front() } else { looks.fresh.pop_front() }
    }

    pub(super) fn next_due_ms(&self) -> u64 {
        let looks = self.queues();
        let firsts = looks.fresh.front().into_iter().chain(looks.failed.front());
        firsts.map(|look| look.due_ms).min().unwrap_or(u64::MAX)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
