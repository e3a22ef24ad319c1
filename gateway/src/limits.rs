//! Step 7: the tenant's and the endpoint's limits, in events and bytes. Abuse control, not backpressure.

use std::time::Duration;

use config::Limits;
use domain::Refusal;
use eventlog::Class;
use ratelimit::{Ask, LimitKey, Over, Rate, Subject, fields};

use crate::Gateway;
use crate::accept::No;
use crate::answer::Refused;
use crate::endpoint::Endpoint;

/// What a delivery over its limit may still use where the provider would not send it again: ten times the byte
/// limit of its tenant, so that a burst after an outage is kept and a runaway sender is not.
const BULK_FACTOR: u32 = 10;

/// When to come back to a tenant whose storage is full. Room appears when a segment ages out of its retention, which is a
/// matter of hours: whoever asks every few seconds only spends connections. Where an
/// operator makes room before that, what was refused is an hour late at most.
const STORAGE_RETRY_AFTER: Duration = Duration::from_hours(1);

impl Gateway {
    /// Takes the delivery's share of every limit, or of none. Over a limit, a provider that redelivers is told
    /// when to; for one that does not, the delivery goes into the bulk class up to a hard cap of bytes.
    pub(crate) fn within_limits(&self, endpoint: &Endpoint, body_bytes: usize) -> Result<Class, No> {
        let (of_tenant, of_endpoint) = endpoint.limits();
        self.within_storage(endpoint, &of_tenant)?;
        if of_tenant.is_none() && of_endpoint.is_none() {
            return Ok(Class::Normal);
        }
        self.log_takes(endpoint)?;
        let bytes = u32::try_from(body_bytes).unwrap_or(u32::MAX);
        let (tenant, subject) = (endpoint.tenant_subject(), endpoint.subject());
        let asks = [
            ask(tenant.events(), of_tenant.events, 1),
            ask(tenant.bytes(), of_tenant.bytes, bytes),
            ask(subject.events(), of_endpoint.events, 1),
            ask(subject.bytes(), of_endpoint.bytes, bytes),
        ];
        let Err(over) = self.parts.limits.admit(&asks) else { return Ok(Class::Normal) };
        let bulk = !endpoint.redelivers() && self.within_bulk_cap(endpoint, &of_tenant, bytes);
        if bulk { Ok(Class::Bulk) } else { Err(over_limit(&asks, &over)) }
    }

    fn within_storage(&self, endpoint: &Endpoint, limits: &Limits) -> Result<(), No> {
        let Some(bytes_max) = limits.stored_bytes_max else { return Ok(()) };
        let stored = self.parts.log.stored_bytes(&endpoint.tenant().id);
        if stored < bytes_max {
            return Ok(());
        }
        let refused = Refused::from(Refusal::StorageLimited).after(STORAGE_RETRY_AFTER);
        Err(No::because(refused, format!("the tenant's events take {stored} of {bytes_max} bytes")))
    }

    /// The bucket is the tenant's, so its rate is too: not that of whichever endpoint asks.
    fn within_bulk_cap(&self, endpoint: &Endpoint, tenant: &Limits, bytes: u32) -> bool {
        let rate = tenant.bytes.unwrap_or(BULK_DEFAULT);
        let scaled = |n: u32| n.saturating_mul(BULK_FACTOR);
        let cap = config::Rate { per_second: scaled(rate.per_second), burst: scaled(rate.burst) };
        let key = Subject::tenant_bulk(&endpoint.tenant().id).bytes();
        self.parts.limits.admit(&[ask(key, Some(cap), bytes.max(1))]).is_ok()
    }
}

/// Where the tenant has no limit of bytes: what a tenant's usual traffic hardly reaches, so that ten times it, the cap, is a
/// runaway sender's.
const BULK_DEFAULT: config::Rate = config::Rate { per_second: 1 << 20, burst: 64 << 20 };

fn ask(key: LimitKey, rate: Option<config::Rate>, amount: u32) -> Ask {
    Ask { key, rate: rate.and_then(|r| Rate::new(r.per_second, r.burst)), amount }
}

fn over_limit(asks: &[Ask], over: &Over) -> No {
    let mut refused =
        Refused::from(Refusal::RateLimited).after(over.retry_after).with("ratelimit", fields::rate_limit(over));
    if let Some(policy) = fields::rate_limit_policy(asks) {
        refused = refused.with("ratelimit-policy", policy);
    }
    No::because(refused, format!("over the limit {}", over.key.label()))
}
