//! A node's quota for tests, which asks nobody.

use std::sync::Arc;

use domain::{Clock, TenantId};
use ratelimit::breaker::Breakers;
use ratelimit::breaker::fleet::{FleetBreakers, FleetSettings};
use ratelimit::quota::HolderId;
use ratelimit::quota::holder::{BootClock, Holder, Settings};
use ratelimit::retry_budget::{Budget, RetryBudgets};
use ratelimit::runaway::Runaways;
use ratelimit::{Bounds, Now, PairKey, breaker};

use super::permit::Subject;
use super::{Guards, Permit, Quota, Silent};

pub(crate) fn quota() -> Arc<Quota> {
    let clock: Arc<dyn Clock> = Arc::new(BootClock::default());
    let holder = Holder::new(Settings::default(), HolderId(7), Arc::clone(&clock)).unwrap();
    let bounds = Bounds { per_tenant: 100, total: 1_000 };
    let guards = Guards {
        breakers: Arc::new(Breakers::new(bounds)),
        fleet: Arc::new(FleetBreakers::new(FleetSettings::default(), 7).unwrap()),
        budgets: RetryBudgets::new(bounds),
        runaways: Arc::new(Runaways::new(bounds)),
    };
    Arc::new(Quota::new(clock, holder, guards, Arc::new(Silent)))
}

/// Of a tenant that has so many retries left at a provider.
pub(crate) fn permit_with_retries(floor: u16) -> Permit {
    let (quota, tenant) = (quota(), TenantId::parse("acme").unwrap());
    let (pair, rules) = (PairKey::authority(&tenant, "api.example.com:80"), breaker::Rules::default());
    let ticket = quota.breakers.admit(pair, &rules, Now::of(&*quota.clock)).unwrap();
    let budget = Budget { per_mille: 0, floor, tokens_max: floor };
    let subject = Subject::Destination("api.example.com:80".into());
    Permit::new(quota, (tenant, subject), (pair, rules, budget), (ticket, None))
}
