//! Who stands behind a key that an operator looks at.
//!
//! Breakers and runaways are kept by digests. What is open, throttled or paused is told of by name when that begins and
//! at each call that it stops, and the name is kept for as long as it is so. Nothing that works has one here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::TenantId;
use ratelimit::PairKey;

use super::watcher::Whose;

/// Names that are kept: some 4 MiB. One too many is not: its key is shown instead, until there is room.
const NAMES_MAX: usize = 16_384;
/// Longer than any authority, automation or id.
const TEXT_BYTES_MAX: usize = 512;

/// A tenant and what it calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Called {
    pub tenant: TenantId,
    /// `connector` or `destination` of a breaker, `connection` or `automation` of a runaway.
    pub kind: &'static str,
    pub what: Box<str>,
}

impl Called {
    pub(super) fn of(whose: &Whose<'_>) -> Self {
        Self { tenant: whose.tenant.clone(), kind: whose.kind, what: whose.what.into() }
    }

    pub fn whose(&self) -> Whose<'_> {
        Whose { tenant: &self.tenant, kind: self.kind, what: &self.what }
    }
}

#[derive(Debug, Default)]
pub(super) struct Names(Mutex<HashMap<PairKey, Called>>);

impl Names {
    pub(super) fn note(&self, key: PairKey, whose: &Whose<'_>) {
        let mut names = self.names();
        if whose.what.len() <= TEXT_BYTES_MAX && names.len() < NAMES_MAX {
            names.entry(key).or_insert_with(|| Called::of(whose));
        }
    }

    pub(super) fn get(&self, key: PairKey) -> Option<Called> {
        self.names().get(&key).cloned()
    }

    /// Forgets whoever there is nothing to be said of any more. No lock is held while that is asked.
    pub(super) fn sweep(&self, is_told_of: impl Fn(PairKey) -> bool) {
        let keys: Vec<PairKey> = self.names().keys().copied().collect();
        let over: Vec<PairKey> = keys.into_iter().filter(|key| !is_told_of(*key)).collect();
        let mut names = self.names();
        for key in over {
            names.remove(&key);
        }
        if names.len() * 4 < names.capacity() {
            names.shrink_to_fit();
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<PairKey, Called>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn names_are_bounded_and_go_with_what_they_are_of() {
        let (names, tenant) = (Names::default(), TenantId::parse("acme").unwrap());
        let key = |number: usize| PairKey::automation(&tenant, &number.to_string());
        for number in 0..NAMES_MAX + 10 {
            let what = number.to_string();
            names.note(key(number), &Whose { tenant: &tenant, kind: "automation", what: &what });
        }
        assert_eq!(&*names.get(key(3)).unwrap().what, "3");
        assert_eq!(names.get(key(NAMES_MAX)), None, "there is no room");
        names.sweep(|one| one == key(3));
        assert_eq!(names.names().len(), 1);
        assert_eq!(names.get(key(4)), None);
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        names.note(key(4), &Whose { tenant: &tenant, kind: "automation", what: &long });
        assert_eq!(names.get(key(4)), None);
    }
}
