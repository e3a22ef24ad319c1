//! Bytes that each tenant's events take, across all lanes: what the limit on stored bytes is compared with on
//! every delivery. Kept as events are committed and trimmed, and summed up from the segments' indexes at open.
//!
//! A tenant's name is in memory once, however many segments have events of it: a segment keeps eight bytes for each of
//! its tenants. A log of ten million events has at most ten million such pairs, whoever sends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::index::TenantTotal;

#[derive(Debug, Default)]
pub(crate) struct StoredBytes {
    tenants: Mutex<Tenants>,
}

#[derive(Debug, Default)]
struct Tenants {
    by_name: HashMap<Arc<str>, Stored>,
    /// Names of those that segments refer to.
    by_number: HashMap<u32, Arc<str>>,
    /// A number is never used for two tenants: who holds a trimmed segment's shares must not find somebody else.
    next_number: u32,
}

#[derive(Debug, Default)]
struct Stored {
    bytes: u64,
    number: Option<u32>,
    /// Segments that refer to it.
    segments: u32,
}

/// What a segment that takes no more records has of one tenant. A segment has at most 2 GiB, so four bytes count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) tenant: u32,
    bytes: u32,
}

impl Tenants {
    /// Forgets a tenant that has nothing stored any more.
    fn tidy(&mut self, name: &str) {
        let gone = self.by_name.get(name).is_some_and(|stored| stored.bytes == 0 && stored.segments == 0);
        if gone && let Some(number) = self.by_name.remove(name).and_then(|stored| stored.number) {
            self.by_number.remove(&number);
        }
    }

    fn stored(&mut self, name: &str) -> &mut Stored {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.into(), Stored::default());
        }
        self.by_name.entry(name.into()).or_default()
    }

    fn share(&mut self, total: &TenantTotal) -> Share {
        let next = self.next_number;
        let stored = self.stored(&total.tenant);
        stored.segments += 1;
        let number = *stored.number.get_or_insert(next);
        if number == next {
            self.next_number += 1;
            self.by_number.insert(number, Arc::from(&*total.tenant));
        }
        Share { tenant: number, bytes: u32::try_from(total.bytes).unwrap_or(u32::MAX) }
    }
}

impl StoredBytes {
    fn lock(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, tenant: &str) -> u64 {
        self.lock().by_name.get(tenant).map_or(0, |stored| stored.bytes)
    }

    /// What segments call this tenant, if any of them has events of it.
    pub(crate) fn number(&self, tenant: &str) -> Option<u32> {
        self.lock().by_name.get(tenant)?.number
    }

    /// Takes the lock once for a batch of records.
    pub(crate) fn batch(&self) -> StoredBatch<'_> {
        StoredBatch(self.lock())
    }

    /// A segment is known to its end, and its records were counted one by one before.
    pub(crate) fn keep_segment(&self, totals: &[TenantTotal]) -> Arc<[Share]> {
        let mut tenants = self.lock();
        totals.iter().map(|total| tenants.share(total)).collect()
    }

    /// A segment is known to its end, and its records were not counted before.
    pub(crate) fn add_segment(&self, totals: &[TenantTotal]) -> Arc<[Share]> {
        let mut tenants = self.lock();
        let add = |total: &TenantTotal| {
            let share = tenants.share(total);
            tenants.stored(&total.tenant).bytes += u64::from(share.bytes);
            share
        };
        totals.iter().map(add).collect()
    }

    /// Takes away what a trimmed segment held.
    pub(crate) fn remove_segment(&self, shares: &[Share]) {
        let mut tenants = self.lock();
        for share in shares {
            let Some(name) = tenants.by_number.get(&share.tenant).map(Arc::clone) else { continue };
            if let Some(stored) = tenants.by_name.get_mut(&name) {
                stored.bytes = stored.bytes.saturating_sub(u64::from(share.bytes));
                stored.segments = stored.segments.saturating_sub(1);
            }
            tenants.tidy(&name);
        }
    }
}

/// The sums, while a batch is added to them.
#[derive(Debug)]
pub(crate) struct StoredBatch<'a>(MutexGuard<'a, Tenants>);

impl StoredBatch<'_> {
    pub(crate) fn add(&mut self, tenant: &str, bytes: u64) {
        if let Some(stored) = self.0.by_name.get_mut(tenant) {
            stored.bytes += bytes;
        } else {
            self.0.by_name.insert(tenant.into(), Stored { bytes, ..Stored::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(tenant: &str, bytes: u64) -> TenantTotal {
        TenantTotal { tenant: tenant.into(), records: 1, bytes }
    }

    #[test]
    fn sums_follow_what_comes_and_goes() {
        let stored = StoredBytes::default();
        let mut batch = stored.batch();
        for (tenant, bytes) in [("acme", 10), ("globex", 5), ("acme", 7)] {
            batch.add(tenant, bytes);
        }
        drop(batch);
        assert_eq!((stored.of("acme"), stored.of("globex"), stored.of("nobody")), (17, 5, 0));
        let sealed = stored.keep_segment(&[total("acme", 10), total("globex", 5)]);
        assert_eq!((stored.of("acme"), stored.of("globex")), (17, 5));
        stored.remove_segment(&sealed);
        assert_eq!((stored.of("acme"), stored.of("globex")), (7, 0));
        let tenants = stored.lock();
        assert_eq!((tenants.by_name.len(), tenants.by_number.len()), (1, 1), "a tenant without events costs nothing");
        drop(tenants);
        stored.add_segment(&[total("acme", 10), total("globex", 5)]);
        assert_eq!((stored.of("acme"), stored.of("globex")), (17, 5));
    }

    #[test]
    fn a_name_is_in_memory_once_and_a_share_takes_eight_bytes() {
        assert_eq!(size_of::<Share>(), 8);
        let stored = StoredBytes::default();
        let segments: Vec<_> = (0..100).map(|_| stored.add_segment(&[total("acme", 1), total("globex", 2)])).collect();
        assert!(segments.iter().all(|shares| *shares == segments[0]));
        assert_eq!(stored.lock().by_number.len(), 2);
        assert_eq!(stored.number("globex"), Some(segments[0][1].tenant));
        for shares in &segments {
            stored.remove_segment(shares);
        }
        assert_eq!((stored.number("globex"), stored.lock().by_name.len()), (None, 0));
        assert_ne!(stored.add_segment(&[total("initech", 1)])[0], segments[0][0], "a number is not used again");
    }
}
