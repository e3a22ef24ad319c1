//! Bytes that each tenant's events take, across all lanes: what the limit on stored bytes is compared with on
//! every delivery. Kept as events are committed and trimmed, and summed up from the segments' indexes at open.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::index::Summary;

#[derive(Debug, Default)]
pub(crate) struct StoredBytes {
    tenants: Mutex<HashMap<Box<str>, u64>>,
}

impl StoredBytes {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, tenant: &str) -> u64 {
        self.lock().get(tenant).copied().unwrap_or(0)
    }

    /// Takes the lock once for a batch of records.
    pub(crate) fn batch(&self) -> StoredBatch<'_> {
        StoredBatch(self.lock())
    }

    pub(crate) fn add_segment(&self, summary: &Summary) {
        let mut batch = self.batch();
        for total in &summary.tenants {
            batch.add(&total.tenant, total.bytes);
        }
    }

    /// Takes away what a trimmed segment held.
    pub(crate) fn remove_segment(&self, summary: &Summary) {
        let mut tenants = self.lock();
        for total in &summary.tenants {
            let Some(sum) = tenants.get_mut(&total.tenant) else { continue };
            *sum = sum.saturating_sub(total.bytes);
            if *sum == 0 {
                tenants.remove(&total.tenant);
            }
        }
    }
}

/// The sums, while a batch is added to them.
#[derive(Debug)]
pub(crate) struct StoredBatch<'a>(MutexGuard<'a, HashMap<Box<str>, u64>>);

impl StoredBatch<'_> {
    pub(crate) fn add(&mut self, tenant: &str, bytes: u64) {
        if let Some(sum) = self.0.get_mut(tenant) {
            *sum += bytes;
        } else {
            self.0.insert(tenant.into(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::TenantTotal;

    #[test]
    fn sums_follow_what_comes_and_goes() {
        let stored = StoredBytes::default();
        let mut batch = stored.batch();
        for (tenant, bytes) in [("acme", 10), ("globex", 5), ("acme", 7)] {
            batch.add(tenant, bytes);
        }
        drop(batch);
        assert_eq!((stored.of("acme"), stored.of("globex"), stored.of("nobody")), (17, 5, 0));
        let total = |tenant: &str, bytes| TenantTotal { tenant: tenant.into(), records: 1, bytes };
        let segment = Summary { tenants: vec![total("acme", 10), total("globex", 5)], ..Summary::default() };
        stored.remove_segment(&segment);
        assert_eq!((stored.of("acme"), stored.of("globex")), (7, 0));
        assert_eq!(stored.lock().len(), 1, "a tenant without events costs nothing");
        stored.add_segment(&segment);
        assert_eq!((stored.of("acme"), stored.of("globex")), (17, 5));
    }
}
