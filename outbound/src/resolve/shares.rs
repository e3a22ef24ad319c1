//! How many look-ups are under way for each tenant.
//!
//! Whoever may call `*.example.com` may well answer for it, and let every question wait: a tenant that asks for names of
//! its own without end would have every look-up of the node. So each has a share of them, and whoever is over it is
//! refused while no more than one share is free, which is the others'. Before that nobody else is kept from anything by
//! it. A name counts once for each tenant, however many calls wait for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::TenantId;

use super::ResolveError;
use crate::authority::HostName;

/// Counts them. Holds only who has some: bounded by the calls under way.
#[derive(Debug)]
pub(super) struct Shares {
    share: usize,
    /// Names under way from which on a tenant has its share and no more.
    scarce_from: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// How many wait for each name.
    tenants: HashMap<TenantId, HashMap<HostName, usize>>,
    /// Of all tenants.
    names: usize,
}

/// One that waits; its place is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Asking<'s> {
    shares: &'s Shares,
    tenant: &'s TenantId,
    name: &'s HostName,
}

impl Shares {
    /// Of so many look-ups, one tenant has this share.
    pub(super) fn new(lookups: usize, share: usize) -> Self {
        // With a share of 0, nobody would be there without a name.
        let share = share.max(1);
        Self { share, scarce_from: lookups.saturating_sub(share), under_way: Mutex::default() }
    }

    /// One more call of the tenant waits for the name, if it has room for that.
    pub(super) fn begin<'s>(&'s self, tenant: &'s TenantId, name: &'s HostName) -> Result<Asking<'s>, ResolveError> {
        let mut under_way = self.under_way();
        let UnderWay { tenants, names } = &mut *under_way;
        let own = tenants.entry(tenant.clone()).or_default();
        if !own.contains_key(name) {
            if own.len() >= self.share && *names >= self.scarce_from {
                return Err(ResolveError::TenantBusy);
            }
            *names += 1;
        }
        *own.entry(name.clone()).or_insert(0) += 1;
        Ok(Asking { shares: self, tenant, name })
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut under_way = self.shares.under_way();
        let UnderWay { tenants, names } = &mut *under_way;
        let Some(own) = tenants.get_mut(self.tenant) else { return };
        if let Some(waiting) = own.get_mut(self.name) {
            *waiting -= 1;
            if *waiting == 0 {
                own.remove(self.name);
                *names -= 1;
            }
        }
        if own.is_empty() {
            tenants.remove(self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_once_and_who_has_none_is_not_kept() {
        let shares = Shares::new(4, 2);
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
        assert!(shares.under_way().tenants.is_empty());
        assert_eq!(shares.under_way().names, 0);
    }

    #[test]
    fn whoever_is_alone_has_more_than_its_share_and_leaves_one_to_the_others() {
        let shares = Shares::new(8, 2);
        let [acme, other] = ["acme", "other"].map(|id| TenantId::parse(id).unwrap());
        let names: Vec<_> = (0..8).map(|nth| HostName::parse(&format!("n{nth}.example")).unwrap()).collect();
        let mut held: Vec<_> = names[..6].iter().map(|name| shares.begin(&acme, name).unwrap()).collect();
        assert_eq!(shares.begin(&acme, &names[6]).unwrap_err(), ResolveError::TenantBusy);
        drop(shares.begin(&acme, &names[0]).unwrap());
        let theirs: Vec<_> = names[6..].iter().map(|name| shares.begin(&other, name).unwrap()).collect();
        assert_eq!(shares.begin(&other, &names[0]).unwrap_err(), ResolveError::TenantBusy);
        // What it gives back goes to the others first.
        held.pop();
        assert_eq!(shares.begin(&acme, &names[5]).unwrap_err(), ResolveError::TenantBusy);
        drop(theirs);
        drop(shares.begin(&acme, &names[5]).unwrap());
    }
}
