//! From connections to the application: a provider that does not say what it throttles, and throttles several
//! connections of one application at nearly the same time, means the application.
//!
//! Only throttles that name nothing are noted here. What is kept is bounded: [`CONNECTIONS`] connections of
//! [`APPLICATIONS_MAX`] applications, as digests under a key of this process, so that names cost nothing and nobody
//! outside can choose two that are taken for one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Distinct connections that mean the application.
pub const CONNECTIONS: usize = 3;

/// Within what time, in milliseconds.
pub const WITHIN_MS: u64 = 10_000;

/// Applications that are looked at: far more than one platform has. At the bound, the one that was quiet the longest
/// is forgotten.
pub const APPLICATIONS_MAX: usize = 1_024;

/// Which connections were throttled lately.
#[derive(Debug, Default)]
pub struct Spread {
    keys: RandomState,
    applications: HashMap<u64, Recent>,
}

/// Connections and when each was throttled last, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Recent([Option<(u64, u64)>; CONNECTIONS]);

impl Recent {
    fn newest_ms(&self) -> u64 {
        self.0.iter().flatten().map(|(_, at_ms)| *at_ms).max().unwrap_or(0)
    }

    /// Whether as many as are kept were throttled lately.
    fn note(&mut self, connection: u64, now_ms: u64) -> bool {
        for slot in &mut self.0 {
            let is_old = slot.is_some_and(|(_, at_ms)| now_ms.saturating_sub(at_ms) >= WITHIN_MS);
            let is_own = slot.is_some_and(|(known, _)| known == connection);
            if is_old || is_own {
                *slot = None;
            }
        }
        let oldest = self.0.iter_mut().min_by_key(|slot| slot.map_or(0, |(_, at_ms)| at_ms.saturating_add(1)));
        if let Some(slot) = oldest {
            *slot = Some((connection, now_ms));
        }
        self.0.iter().all(Option::is_some)
    }
}

impl Spread {
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a connection was throttled, at `now_ms` of a monotonic clock. Whether the application is to be parked:
    /// it is the third connection, or one more, within ten seconds.
    pub fn note(&mut self, application: &str, connection: &str, now_ms: u64) -> bool {
        let (application, connection) = (self.keys.hash_one(application), self.keys.hash_one(connection));
        if self.applications.len() >= APPLICATIONS_MAX && !self.applications.contains_key(&application) {
            self.forget(now_ms);
        }
        self.applications.entry(application).or_default().note(connection, now_ms)
    }

    /// Applications that are looked at now.
    pub fn len(&self) -> usize {
        self.applications.len()
    }

    pub fn is_empty(&self) -> bool {
        self.applications.is_empty()
    }

    /// Forgets those that are quiet, or else the one that was quiet the longest.
    fn forget(&mut self, now_ms: u64) {
        self.applications.retain(|_, recent| now_ms.saturating_sub(recent.newest_ms()) < WITHIN_MS);
        if self.applications.len() >= APPLICATIONS_MAX {
            let oldest = self.applications.iter().min_by_key(|(_, recent)| recent.newest_ms()).map(|(key, _)| *key);
            oldest.and_then(|key| self.applications.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_connection_within_ten_seconds_means_the_application() {
        let mut spread = Spread::new();
        assert!(!spread.note("app", "a", 0));
        assert!(!spread.note("app", "b", 1));
        assert!(!spread.note("app", "b", 2), "the same again is one");
        assert!(!spread.note("other", "c", 3), "and of another application none");
        assert!(spread.note("app", "c", 9_999));
        assert!(spread.note("app", "d", 10_000), "and so is every further one");
    }

    #[test]
    fn what_is_ten_seconds_old_does_not_count() {
        for (third_ms, means) in [(9_999, true), (10_000, false), (10_001, false)] {
            let mut spread = Spread::new();
            spread.note("app", "a", 0);
            spread.note("app", "b", 5_000);
            assert_eq!(spread.note("app", "c", third_ms), means, "{third_ms}");
        }
        let mut again = Spread::new();
        again.note("app", "a", 0);
        again.note("app", "b", 1);
        again.note("app", "a", 9_000);
        assert!(!again.note("app", "c", 10_001), "b is old, a was throttled again");
        assert!(again.note("app", "b", 18_999), "a at 9,000 is within ten seconds");
    }

    #[test]
    fn a_clock_that_goes_back_ages_nothing() {
        let mut spread = Spread::new();
        spread.note("app", "a", 50_000);
        spread.note("app", "b", 50_000);
        assert!(spread.note("app", "c", 10));
    }

    #[test]
    fn applications_are_bounded_and_the_quiet_go_first() {
        let mut spread = Spread::new();
        spread.note("hot", "a", 100_000);
        spread.note("hot", "b", 100_000);
        for number in 0..10_000_u64 {
            spread.note(&format!("app-{number}"), "a", 100_001 + number / 2_000);
            assert!(spread.len() <= APPLICATIONS_MAX);
        }
        assert!(!spread.note("hot", "c", 100_010), "it was the oldest, and is forgotten");
        spread.note("new", "a", 900_000);
        assert_eq!(spread.len(), 1, "the quiet ones go once there is no room");
    }
}
