//! Making room: which sites are forgotten, and which connections end, where there are too many.
//!
//! The bounds are of the node. What is over them goes by age, but first what belongs to tenants that have more than
//! their part of it, so that one who names thousands of hosts makes room with its own and not with the others'.
//!
//! Looking for it goes over everything there is. So a good part goes at a time, and where nothing could go, it is not
//! looked for again at once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::TenantId;
use tokio::time::Instant;

use super::{Place, Places, Share, Site};

/// Of what is bounded, what goes at a time: one of so many.
const PART: usize = 16;
/// Until it is looked again, when nothing could go: what goes over everything takes a millisecond.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How many each tenant has.
struct Parts<'a> {
    by_tenant: HashMap<&'a str, usize>,
    all: usize,
}

impl<'a> Parts<'a> {
    fn of(sites: impl Iterator<Item = (&'a Arc<Site>, usize)>) -> Self {
        let (mut by_tenant, mut all) = (HashMap::new(), 0);
        for (site, count) in sites.filter(|(_, count)| *count > 0) {
            *by_tenant.entry(site.tenant.as_str()).or_default() += count;
            all += count;
        }
        Self { by_tenant, all }
    }

    /// Whether this tenant has more than it would have if all had as much.
    fn is_over(&self, tenant: &TenantId) -> bool {
        let own = self.by_tenant.get(tenant.as_str()).copied().unwrap_or(0);
        own * self.by_tenant.len() > self.all
    }
}

impl<T: Share> Places<T> {
    /// Forgets sites that nobody uses, those first that were asked for longest ago, and retires what is idle there.
    pub(super) fn forget_some(&mut self, places_max: usize, now: Instant, ended: &mut Vec<Arc<T>>) {
        if self.sites_looked.is_some_and(|looked| now < looked + AGAIN_AFTER) {
            return;
        }
        let parts = Parts::of(self.by_site.keys().map(|site| (site, 1)));
        let free = self.by_site.iter().filter(|(_, place)| place.is_free());
        let mut free: Vec<_> =
            free.map(|(site, place)| (Reverse(parts.is_over(&site.tenant)), place.used, Arc::clone(site))).collect();
        self.sites_looked = free.is_empty().then_some(now);
        free.sort_unstable_by_key(|(is_over, used, _)| (*is_over, *used));
        for (.., site) in free.into_iter().take((places_max / PART).max(1)) {
            let gone = self.by_site.remove(&site).map(|place| place.connections).unwrap_or_default();
            self.connections -= gone.len();
            ended.extend(gone);
        }
    }

    /// Retires connections on which nobody sits, those first that are idle longest.
    pub(super) fn retire_some(&mut self, total_max: usize, now: Instant, ended: &mut Vec<Arc<T>>) {
        if self.connections_looked.is_some_and(|looked| now < looked + AGAIN_AFTER) {
            return;
        }
        let parts = Parts::of(self.by_site.iter().map(|(site, place)| (site, place.connections.len())));
        let all =
            self.by_site.iter().flat_map(|(site, place)| place.connections.iter().map(move |share| (site, share)));
        let idle = all.filter_map(|(site, share)| Some((site, share, share.idle_since()?)));
        let mut idle: Vec<_> = idle
            .map(|(site, share, since)| {
                (Reverse(parts.is_over(&site.tenant)), since, Arc::clone(site), Arc::clone(share))
            })
            .collect();
        self.connections_looked = idle.is_empty().then_some(now);
        idle.sort_unstable_by_key(|(is_over, since, ..)| (*is_over, *since));
        for (.., site, share) in idle.into_iter().take((total_max / PART).max(1)) {
            if let Some(place) = self.by_site.get_mut(&site) {
                place.connections.retain(|other| !Arc::ptr_eq(other, &share));
                self.connections -= 1;
                ended.push(share);
            }
        }
    }
}

impl<T: Share> Place<T> {
    /// Nobody is here, and nobody is on the way.
    fn is_free(&self) -> bool {
        self.dialling == 0 && self.waiting == 0 && self.connections.iter().all(|share| share.idle_since().is_some())
    }
}
