//! What an operator sees of a node: what it holds, and why a call would be refused now.

use std::sync::Arc;

use crate::quota::key::{Application, BucketKey};
use crate::quota::name::{HolderId, Name};
use crate::quota::op::Class;

use super::cell::{Cell, Standing};
use super::leases::Leases;
use super::parked::{Parked, Reason};
use super::queue::Token;
use super::route::Route;
use super::shard::Shard;

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub application: Application,
    pub key: BucketKey,
    pub tenant: Name,
    /// Units that a call could take now; of concurrency free slots.
    pub free: u32,
    /// Units of the lease when it was granted; of concurrency slots.
    pub granted: u32,
    /// Of concurrency: calls under way.
    pub in_use: u32,
    /// Until the lease is over; 0 if it is.
    pub ttl_ms: u64,
    pub generation: u64,
    /// Units that calls of the tenant wait for.
    pub queued: u32,
    /// Thousandths of a unit per second that calls want.
    pub rate_milli: u32,
    /// An operation about it is under way.
    pub is_asking: bool,
}

/// One level of a call, as it would be met now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegView {
    pub application: Application,
    pub key: BucketKey,
    pub free: u32,
    /// Units that the call takes; 0 of a bucket whose park it only heeds.
    pub units: u32,
    /// Why it would be refused, as far as this node knows without asking.
    pub refusal: Option<Parked>,
    /// The centre would be asked.
    pub is_missing: bool,
}

impl<W: Token> Leases<W> {
    /// How a call would fare, level by level, in the order of the route's places. Nothing is taken or asked.
    pub fn explain(&self, route: &Route, class: Class, cost: u32, now_ms: u64) -> Vec<LegView> {
        let gone_ms = self.common().health.is_gone().then(|| self.common().health.shut_until_ms());
        let shard = self.shard_of(route);
        let places = shard.places(route);
        let legs = route.0.legs.iter().zip(places).enumerate().map(|(leg, (station, place))| {
            let cell = shard.cell(place);
            let standing = match (cell, station.bucket.park(now_ms)) {
                (Some(cell), _) => cell.standing((&station.rule, station.units(cost)), class, now_ms, now_ms),
                (None, Some((until_ms, why))) => Standing::Refused { until_ms, reason: Reason::Park(why) },
                (None, None) => Standing::Missing,
            };
            let no = match (standing, gone_ms) {
                (Standing::Refused { until_ms, reason }, _) => Some((until_ms, reason)),
                (Standing::Missing, Some(until_ms)) => Some((until_ms.max(now_ms + 1), Reason::Gone)),
                (Standing::Missing, None) | (Standing::Ready, _) => None,
            };
            let refusal = no.map(|(until_ms, reason)| Parked {
                release_ms: until_ms.saturating_sub(now_ms).max(1),
                level: station.level(),
                leg,
                reason,
            });
            LegView {
                application: station.bucket.app.name.clone(),
                key: (*station.bucket.key).clone(),
                free: cell.map_or(0, |cell| cell.free(now_ms)),
                units: station.units(cost),
                refusal,
                is_missing: standing == Standing::Missing,
            }
        });
        let heeded = (route.len()..).zip(&route.0.heeded).map(|(leg, station)| {
            let park = station.bucket.park(now_ms).map(|(until_ms, why)| Parked {
                release_ms: until_ms.saturating_sub(now_ms).max(1),
                level: station.level(),
                leg,
                reason: Reason::Park(why),
            });
            LegView {
                application: station.bucket.app.name.clone(),
                key: (*station.bucket.key).clone(),
                free: 0,
                units: 0,
                refusal: park,
                is_missing: false,
            }
        });
        legs.chain(heeded).collect()
    }

    /// The leases of one of [`Self::PAGES`] parts of the tenants.
    pub fn holdings(&self, page: usize, now_ms: u64) -> Vec<Holding> {
        if page >= Self::PAGES {
            return Vec::new();
        }
        let shard = self.shards().lock(page);
        shard.cells().map(|(_, cell)| holding(cell, now_ms)).collect()
    }

    /// This node's leases of one bucket, the largest first: as many as asked for, and how many there are.
    pub fn holdings_of(
        &self,
        application: &Application,
        key: &BucketKey,
        most: usize,
        now_ms: u64,
    ) -> (Vec<Holding>, usize) {
        let Some(bucket) = self.common().buckets.known(application, key) else { return (Vec::new(), 0) };
        let (mut largest, mut all) = (Vec::new(), 0);
        let cut = |views: &mut Vec<Holding>| {
            views.sort_unstable_by(|one, other| (other.granted, &one.tenant).cmp(&(one.granted, &other.tenant)));
            views.truncate(most);
        };
        for shard in self.shards().each() {
            for (_, cell) in shard.cells().filter(|(_, cell)| Arc::ptr_eq(&cell.bucket, &bucket)) {
                all += 1;
                largest.push(holding(cell, now_ms));
                if largest.len() > 2 * most {
                    cut(&mut largest);
                }
            }
        }
        cut(&mut largest);
        (largest, all)
    }

    /// Who holds all this.
    pub fn id(&self) -> HolderId {
        self.common().holder
    }

    /// Every application that anything here is of, in no order. `read` should be quick.
    pub fn each_application(&self, read: impl FnMut(&Application)) {
        self.common().buckets.each_application(read);
    }

    /// Into how many parts [`Self::holdings`] is cut.
    pub const PAGES: usize = crate::shards::Shards::<Shard<W>>::COUNT;
}

fn holding(cell: &Cell, now_ms: u64) -> Holding {
    Holding {
        application: cell.bucket.app.name.clone(),
        key: (*cell.bucket.key).clone(),
        tenant: cell.party.tenant.clone(),
        free: cell.free(now_ms),
        granted: cell.granted(),
        in_use: cell.in_use(),
        ttl_ms: cell.expires_ms.saturating_sub(now_ms),
        generation: cell.generation(),
        queued: cell.queued,
        rate_milli: cell.pace.rate_milli(now_ms),
        is_asking: cell.is_asking,
    }
}
