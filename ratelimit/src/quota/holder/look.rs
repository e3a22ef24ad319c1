//! Looks at the centre for routes that are new: that their applications are watched, and whether what they only heed is
//! parked already. Of what is leased, an answer would tell; of what is only heeded nothing is ever asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::quota::key::{Application, BucketKey};
use crate::quota::name::Name;
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
pub(super) struct Looks(Mutex<VecDeque<Look>>);

impl Look {
    pub(super) fn application(&self) -> &Application {
        &self.bucket.app.name
    }

    pub(super) fn is_of(&self, key: &BucketKey) -> bool {
        *self.bucket.key == *key
    }

    /// The description of this bucket alone, if there is anything to ask.
    pub(super) fn op(&self) -> Option<Op> {
        let application = self.application().clone();
        let after = self.is_heeded.then(|| before(&self.bucket.key))??;
        Some(Op { application, body: Body::Describe(Describe { after: Some(after), limit: 1 }) })
    }
}

/// The last key before this one, as far as names of limits go: the same without its last character, and something that
/// no limit is called behind it. It need not exist.
fn before(key: &BucketKey) -> Option<BucketKey> {
    let policy = key.policy.as_str();
    let policy = Name::parse(policy.get(..policy.len().saturating_sub(1))?).ok()?;
    Some(BucketKey { level: key.level, scope: key.scope.clone(), policy })
}

impl Looks {
    /// Takes up what of a route nobody looked at; whether there is something.
    pub(super) fn begin(&self, route: &Route, now_ms: u64) -> bool {
        let leased = route.len();
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = looks.len();
        for (at, station) in route.stations().enumerate() {
            let (bucket, is_heeded) = (&station.bucket, at >= leased);
            let is_new = bucket.app.begins_to_watch() | (is_heeded && bucket.begins_to_heed());
            if is_new && looks.len() < LOOKS_MAX {
                looks.push_back(Look { bucket: Arc::clone(bucket), is_heeded, due_ms: now_ms });
            }
        }
        looks.len() > before
    }

    /// Looks at these once more.
    pub(super) fn again(&self, buckets: Vec<Arc<Bucket>>, now_ms: u64) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LOOKS_MAX.saturating_sub(looks.len());
        looks.extend(buckets.into_iter().take(room).map(|bucket| Look { bucket, is_heeded: true, due_ms: now_ms }));
    }

    /// Nobody answered.
    pub(super) fn failed(&self, look: Look, now_ms: u64) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() < LOOKS_MAX {
            looks.push_back(Look { due_ms: now_ms + AGAIN_MS, ..look });
        }
    }

    pub(super) fn next(&self, now_ms: u64) -> Option<Look> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = looks.iter().position(|look| look.due_ms <= now_ms)?;
        looks.remove(at)
    }

    pub(super) fn next_due_ms(&self) -> u64 {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.iter().map(|look| look.due_ms).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::quota::key::Level;

    #[test]
    fn the_key_before_is_smaller_and_close() {
        let key = |policy: &str| BucketKey {
            level: Level::Connection,
            scope: Name::parse("acme.crm").unwrap(),
            policy: Name::parse(policy).unwrap(),
        };
        let before = before(&key("any")).unwrap();
        assert!(before < key("any") && before > key("a") && before == key("an"));
        assert_eq!(super::before(&key("a")), None, "no name is empty");
    }
}
