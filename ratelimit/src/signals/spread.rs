//! From connections to the application: a provider that does not say what it throttles, and throttles several
//! connections of one application at nearly the same time, means the application.
//!
//! They are not all of one tenant: whoever brings several accounts to a provider can have each of them throttled, and
//! stops nobody else by it.
//!
//! Only throttles that name nothing are noted here. What is kept is bounded: [`CONNECTIONS`] connections of
//! [`APPLICATIONS_MAX`] applications, as digests under a key of this process, so that names cost nothing and nobody
//! outside can choose two that are taken for one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Distinct connections that mean the application, if they are not all one tenant's.
pub const CONNECTIONS: usize = 3;

/// Within what time, in milliseconds.
pub const WITHIN_MS: u64 = 10_000;

/// Applications that are looked at: far more than one platform has. At the bound, the one that was quiet the longest
/// is forgotten.
pub const APPLICATIONS_MAX: usize = 1_024;

/// A connection, its tenant, and when it was throttled last, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Throttled {
    connection: u64,
    tenant: u64,
    at_ms: u64,
}

/// Which connections were throttled lately.
#[derive(Debug, Default)]
pub struct Spread {
    keys: RandomState,
    applications: HashMap<u64, Recent>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Recent([Option<Throttled>; CONNECTIONS]);

impl Recent {
    fn newest_ms(&self) -> u64 {
        self.0.iter().flatten().map(|one| one.at_ms).max().unwrap_or(0)
    }

    /// Whether as many as are kept were throttled lately, and they are not all one tenant's.
    fn note(&mut self, new: Throttled) -> bool {
        for slot in &mut self.0 {
            let is_old = slot.is_some_and(|one| new.at_ms.saturating_sub(one.at_ms) >= WITHIN_MS);
            let is_own = slot.is_some_and(|one| one.connection == new.connection);
            if is_old || is_own {
                *slot = None;
            }
        }
        let oldest = self.0.iter_mut().min_by_key(|slot| slot.map_or(0, |one| one.at_ms.saturating_add(1)));
        if let Some(slot) = oldest {
            *slot = Some(new);
        }
        let are_several = self.0.iter().flatten().any(|one| one.tenant != new.tenant);
        are_several && self.0.iter().all(Option::is_some)
    }
}

impl Spread {
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a tenant's connection was throttled, at `now_ms` of a monotonic clock. Whether the application is to be
    /// parked: it is the third connection, or one more, within ten seconds, and they are of two tenants or more.
    pub fn note(&mut self, application: &str, (tenant, connection): (&str, &str), now_ms: u64) -> bool {
        let application = self.keys.hash_one(application);
        let (tenant, connection) = (self.keys.hash_one(tenant), self.keys.hash_one((tenant, connection)));
        if self.applications.len() >= APPLICATIONS_MAX && !self.applications.contains_key(&application) {
            self.forget(now_ms);
        }
        self.applications.entry(application).or_default().note(Throttled { connection, tenant, at_ms: now_ms })
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
        assert!(!spread.note("app", ("a", "crm"), 0));
        assert!(!spread.note("app", ("b", "crm"), 1));
        assert!(!spread.note("app", ("b", "crm"), 2), "the same again is one");
        assert!(!spread.note("other", ("c", "crm"), 3), "and of another application none");
        assert!(spread.note("app", ("c", "crm"), 9_999));
        assert!(spread.note("app", ("d", "crm"), 10_000), "and so is every further one");
    }

    #[test]
    fn one_tenant_alone_does_not_mean_it_however_many_connections_it_has() {
        let mut spread = Spread::new();
        for number in 0..20 {
            assert!(!spread.note("app", ("loud", &number.to_string()), 0), "{number}");
        }
        assert!(spread.note("app", ("other", "1"), 1), "somebody else is met, too");
        assert!(spread.note("app", ("loud", "20"), 2));
        let mut again = Spread::new();
        assert!(!again.note("app", ("a", "crm"), 0));
        assert!(!again.note("app", ("b", "crm"), 0), "the same id is another tenant's other connection");
        assert!(again.note("app", ("c", "crm"), 0));
    }

    #[test]
    fn what_is_ten_seconds_old_does_not_count() {
        for (third_ms, means) in [(9_999, true), (10_000, false), (10_001, false)] {
            let mut spread = Spread::new();
            spread.note("app", ("a", "crm"), 0);
            spread.note("app", ("b", "crm"), 5_000);
            assert_eq!(spread.note("app", ("c", "crm"), third_ms), means, "{third_ms}");
        }
        let mut again = Spread::new();
        again.note("app", ("a", "crm"), 0);
        again.note("app", ("b", "crm"), 1);
        again.note("app", ("a", "crm"), 9_000);
        assert!(!again.note("app", ("c", "crm"), 10_001), "b is old, a was throttled again");
        assert!(again.note("app", ("b", "crm"), 18_999), "a at 9,000 is within ten seconds");
    }

    #[test]
    fn a_clock_that_goes_back_ages_nothing() {
        let mut spread = Spread::new();
        spread.note("app", ("a", "crm"), 50_000);
        spread.note("app", ("b", "crm"), 50_000);
        assert!(spread.note("app", ("c", "crm"), 10));
    }

    #[test]
    fn applications_are_bounded_and_the_quiet_go_first() {
        let mut spread = Spread::new();
        spread.note("hot", ("a", "crm"), 100_000);
        spread.note("hot", ("b", "crm"), 100_000);
        for number in 0..10_000_u64 {
            spread.note(&format!("app-{number}"), ("a", "crm"), 100_001 + number / 2_000);
            assert!(spread.len() <= APPLICATIONS_MAX);
        }
        assert!(!spread.note("hot", ("c", "crm"), 100_010), "it was the oldest, and is forgotten");
        spread.note("new", ("a", "crm"), 900_000);
        assert_eq!(spread.len(), 1, "the quiet ones go once there is no room");
    }
}
