//! Which buckets a call needs units of, looked up once.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::quota::key::{Application, BucketKey, Level};
use crate::quota::name::Name;
use crate::quota::op::{LEGS_MAX, Metered, Share, WEIGHT_MAX, Why};
use crate::quota::rule::{CAP_MAX, Rule};

use super::bucket::{Bucket, Buckets};

/// What a call takes of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// One unit for each call.
    Call,
    /// What the call costs: points.
    Cost,
    /// So many units for each call of the route.
    Units(u32),
    /// None: no lease is held, and nobody is asked. The call only heeds the bucket's park, and may cause one.
    Nothing,
}

/// One level of a route.
#[derive(Debug, Clone)]
pub struct Need {
    pub application: Application,
    pub bucket: Metered,
    pub per: Per,
}

/// Why there is no such route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRoute {
    #[error("has no level, or more than {LEGS_MAX} that are leased or heeded")]
    Legs,
    #[error("names a bucket twice")]
    Twice,
    #[error("has a weight, floor or ceiling out of bounds")]
    Share,
}

/// The way of a tenant's calls through the levels of a provider: built when a connection is configured, used by each
/// call, cheap to clone. A change of rules or of the tenant's share is another route; leases are found by name and stay.
#[derive(Debug, Clone)]
pub struct Route(pub(super) Arc<Stations>);

#[derive(Debug)]
pub(super) struct Stations {
    pub(super) party: Arc<Party>,
    /// Those of one application follow each other, in the order in which applications are asked.
    pub(super) legs: Box<[Station]>,
    /// Buckets of which nothing is held. Their places go on where those of `legs` end.
    pub(super) heeded: Box<[Station]>,
}

/// A tenant, and what it is worth.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Party {
    pub(super) tenant: Name,
    pub(super) mark: u64,
    pub(super) share: Share,
}

#[derive(Debug)]
pub(super) struct Station {
    pub(super) bucket: Arc<Bucket>,
    /// What the centre counts with.
    pub(super) rule: Arc<Rule>,
    /// What the provider counts with.
    pub(super) provider: Arc<Rule>,
    pub(super) per: Per,
    /// Of the lessee's lease of the bucket.
    pub(super) hash: u64,
}

impl Station {
    /// Units that a call of this cost takes.
    pub(super) fn units(&self, cost: u32) -> u32 {
        match self.per {
            Per::Cost if self.rule.is_rate() => cost,
            Per::Units(units) if self.rule.is_rate() => units.clamp(1, CAP_MAX),
            Per::Cost | Per::Call | Per::Units(_) => 1,
            Per::Nothing => 0,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.bucket.key.level
    }
}

impl Route {
    /// `rule_of` is what the centre is to count with: less than the provider's, where some is set aside.
    pub(super) fn new(
        buckets: &Buckets,
        hasher: &RandomState,
        tenant: &Name,
        share: Share,
        needs: &[Need],
        rule_of: impl Fn(&Arc<Rule>) -> Arc<Rule>,
    ) -> Result<Self, InvalidRoute> {
        let heeded = needs.iter().filter(|need| need.per == Per::Nothing).count();
        if needs.is_empty() || needs.len() - heeded > LEGS_MAX || heeded > LEGS_MAX {
            return Err(InvalidRoute::Legs);
        }
        let is_share = (1..=WEIGHT_MAX).contains(&share.weight)
            && share.floor_permille <= share.ceiling_permille
            && (1..=1_000).contains(&share.ceiling_permille);
        if !is_share {
            return Err(InvalidRoute::Share);
        }
        let name_of =
            |need: &Need| -> (Application, Arc<BucketKey>) { (need.application.clone(), Arc::clone(&need.bucket.key)) };
        if (1..needs.len()).any(|at| needs[..at].iter().any(|need| name_of(need) == name_of(&needs[at]))) {
            return Err(InvalidRoute::Twice);
        }
        let party = Arc::new(Party { tenant: tenant.clone(), mark: hasher.hash_one(tenant), share });
        // Applications in the order of their first level.
        let first = |need: &Need| needs.iter().position(|other| other.application == need.application);
        let mut sorted: Vec<&Need> = needs.iter().collect();
        sorted.sort_by_key(|need| first(need));
        let station = |need: &&Need| {
            let bucket = buckets.intern(&need.application, &need.bucket.key);
            let hash = crate::shards::spread(bucket.mark ^ party.mark);
            let provider = Arc::clone(&need.bucket.rule);
            Station { bucket, rule: rule_of(&provider), provider, per: need.per, hash }
        };
        let (heeded, leased): (Vec<&Need>, Vec<&Need>) = sorted.iter().partition(|need| need.per == Per::Nothing);
        let (legs, heeded) = (leased.iter().map(station).collect(), heeded.iter().map(station).collect());
        Ok(Self(Arc::new(Stations { party, legs, heeded })))
    }

    pub fn tenant(&self) -> &Name {
        &self.0.party.tenant
    }

    /// How many buckets a call needs units of: at most [`LEGS_MAX`].
    pub fn len(&self) -> usize {
        self.0.legs.len()
    }

    /// Whether it needs units of none, and heeds parks only.
    pub fn is_empty(&self) -> bool {
        self.0.legs.is_empty()
    }

    /// The bucket at a place. Places go by application, not in the order of the needs; those that are only heeded follow
    /// the others.
    pub fn key(&self, leg: usize) -> Option<(&Application, &Arc<BucketKey>)> {
        self.station(leg).map(|station| (&station.bucket.app.name, &station.bucket.key))
    }

    /// Where the bucket of that name stands.
    pub fn position(&self, application: &Application, key: &BucketKey) -> Option<usize> {
        let mut all = self.stations();
        all.position(|station| *station.bucket.key == *key && station.bucket.app.name == *application)
    }

    pub(super) fn station(&self, leg: usize) -> Option<&Station> {
        self.stations().nth(leg)
    }

    pub(super) fn stations(&self) -> impl Iterator<Item = &Station> {
        self.0.legs.iter().chain(&self.0.heeded)
    }

    /// The latest end of a park among the buckets that are only heeded: place, end and reason.
    pub(super) fn heeded_park(&self, now_ms: u64) -> Option<(usize, u64, Why)> {
        let parked = self.0.heeded.iter().enumerate();
        let parked = parked.filter_map(|(at, station)| {
            let (until_ms, why) = station.bucket.park(now_ms)?;
            Some((self.0.legs.len() + at, until_ms, why))
        });
        parked.max_by_key(|(_, until_ms, _)| *until_ms)
    }
}
