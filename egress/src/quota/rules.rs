//! What a reload can change of quota.

use std::collections::HashMap;

use domain::TenantId;
use ratelimit::breaker;
use ratelimit::quota::Share;
use ratelimit::retry_budget::Budget;
use ratelimit::runaway;
use ratelimit::signals::Counting;

/// By what calls are counted, held back and let go. Part of the snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaRules {
    /// How leases are counted. `cfgver` grows with each load, and `now_unix_ms` is not looked at.
    pub counting: Counting,
    pub breaker: breaker::Rules,
    pub budget: Budget,
    pub runaway: runaway::Rules,
    pub shares: Shares,
}

/// What tenants are worth where they share an application.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// Of whoever is not named.
    pub usual: Share,
    pub tenants: HashMap<TenantId, Share>,
}

impl Shares {
    pub fn of(&self, tenant: &TenantId) -> Share {
        self.tenants.get(tenant).copied().unwrap_or(self.usual)
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self { usual: Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 }, tenants: HashMap::new() }
    }
}

impl Default for QuotaRules {
    fn default() -> Self {
        Self {
            counting: Counting {
                cfgver: 1,
                lease_ms: 2_000,
                slot_lease_ms: 60_000,
                guard_ms: 500,
                skew_ms: 1_000,
                now_unix_ms: 0,
            },
            breaker: breaker::Rules::default(),
            budget: Budget::default(),
            runaway: runaway::Rules::default(),
            shares: Shares::default(),
        }
    }
}
