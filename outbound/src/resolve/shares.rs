//! How many look-ups are under way for each tenant.
//!
//! Whoever may call `*.example.com` may well answer for it, and let every question wait: a tenant that asks for names of
//! its own without end would have every look-up of the node. So each has a share of them, and whoever is over it is
//! refused for that. A name counts once, however many calls wait for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::TenantId;

use super::ResolveError;
use crate::authority::HostName;

/// Counts them. Holds only who has some: bounded by the calls under way.
#[derive(Debug)]
pub(super) struct Shares {
    max: usize,
    /// How many wait for each name.
    under_way: Mutex<HashMap<TenantId, HashMap<HostName, usize>>>,
}

/// One that waits; its place is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Asking<'s> {
    shares: &'s Shares,
    tenant: &'s TenantId,
    name: &'s HostName,
}

impl Shares {
    pub(super) fn new(max: usize) -> Self {
        Self { max, under_way: Mutex::default() }
    }

    /// One more call of the tenant waits for the name, if it has room for that.
    pub(super) fn begin<'s>(&'s self, tenant: &'s TenantId, name: &'s HostName) -> Result<Asking<'s>, ResolveError> {
        let mut under_way = self.under_way();
        let names = under_way.entry(tenant.clone()).or_default();
        // With a maximum of 0, nobody is there without a name.
        if names.len() >= self.max.max(1) && !names.contains_key(name) {
            return Err(ResolveError::TenantBusy);
        }
        *names.entry(name.clone()).or_insert(0) += 1;
        Ok(Asking { shares: self, tenant, name })
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<TenantId, HashMap<HostName, usize>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut under_way = self.shares.under_way();
        let Some(names) = under_way.get_mut(self.tenant) else { return };
        if let Some(waiting) = names.get_mut(self.name) {
            *waiting -= 1;
            if *waiting == 0 {
                names.remove(self.name);
            }
        }
        if names.is_empty() {
            under_way.remove(self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_once_and_who_has_none_is_not_kept() {
        let shares = Shares::new(2);
        let [acme, other] = ["acme", "other"].map(|id| TenantId::parse(id).unwrap());
        let [a, b, c] = ["a.example", "b.example", "c.example"].map(|name| HostName::parse(name).unwrap());
        let first = shares.begin(&acme, &a).unwrap();
        let again = shares.begin(&acme, &a).unwrap();
        let second = shares.begin(&acme, &b).unwrap();
        assert_eq!(shares.begin(&acme, &c).unwrap_err(), ResolveError::TenantBusy);
        let theirs = shares.begin(&other, &c).unwrap();
        drop(first);
        assert_eq!(shares.begin(&acme, &c).unwrap_err(), ResolveError::TenantBusy, "the name is still waited for");
        drop(again);
        drop(shares.begin(&acme, &c).unwrap());
        drop((second, theirs));
        assert!(shares.under_way().is_empty());
    }
}
