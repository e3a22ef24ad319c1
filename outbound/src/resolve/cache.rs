//! A cache in front of a resolver: one lookup for all who ask at once, and answers kept for a bounded time.
//!
//! An answer is kept for its TTL, between a floor and a ceiling. The floor spares the servers a query per call for names
//! with a TTL of 0; the ceiling is how long a wrong answer can last. Noes are kept too, and for a moment also failures
//! (RFC 9520), so that a name that cannot be resolved costs one timeout and not one per caller. What is kept is only the
//! answer: every use vets it again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Clock, TenantId};
use moka::future::Cache;

use super::shares::Shares;
use super::{Answer, Resolve, ResolveError};
use crate::authority::HostName;

/// How long, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// Names. 10,000 of some 500 bytes: 5 MiB. At the maximum the cache prefers names that are asked for often
    /// (`TinyLFU`), so that somebody who walks through a million names does not push the others out.
    pub names_max: u64,
    /// Shortest time for which addresses are kept.
    pub ttl_min: Duration,
    /// Longest time for which addresses are kept.
    pub ttl_max: Duration,
    /// Longest time for which "there is none" is kept; also the time when the answer does not say (RFC 2308).
    pub negative_ttl_max: Duration,
    /// How long a failure is kept: RFC 9520 wants 1 s at least and 5 min at most.
    pub failure_ttl: Duration,
    /// Names that are looked up at one time: see [`DnsSettings`](super::DnsSettings), which this is to agree with.
    pub lookups_max: usize,
    /// Of those, what one tenant may have when no more than as many are free.
    pub lookups_per_tenant_max: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            names_max: 10_000,
            ttl_min: Duration::from_secs(1),
            ttl_max: Duration::from_mins(5),
            negative_ttl_max: Duration::from_secs(30),
            failure_ttl: Duration::from_secs(1),
            lookups_max: 512,
            lookups_per_tenant_max: 128,
        }
    }
}

/// A resolver with a cache.
#[derive(Debug)]
pub struct CachedResolver<R> {
    resolver: R,
    settings: CacheSettings,
    clock: Arc<dyn Clock>,
    entries: Cache<HostName, Arc<Entry>>,
    shares: Shares,
}

#[derive(Debug)]
struct Entry {
    outcome: Result<Answer, ResolveError>,
    /// On the monotonic clock.
    expires: Duration,
}

impl<R: Resolve> CachedResolver<R> {
    /// An empty cache in front of this resolver.
    pub fn new(resolver: R, settings: CacheSettings, clock: Arc<dyn Clock>) -> Self {
        let entries = Cache::new(settings.names_max);
        let shares = Shares::new(settings.lookups_max, settings.lookups_per_tenant_max);
        Self { resolver, settings, clock, entries, shares }
    }

    /// Names that are kept, more or less; for a gauge.
    pub fn names(&self) -> u64 {
        self.entries.entry_count()
    }

    /// Forgets one name, whatever was known of it. A lookup that is under way is not stopped.
    pub async fn forget(&self, name: &HostName) {
        self.entries.invalidate(name).await;
    }

    async fn look_up(&self, name: &HostName) -> Arc<Entry> {
        let outcome = self.resolver.resolve(name).await;
        let ttl = self.ttl(&outcome);
        Arc::new(Entry { outcome, expires: self.clock.monotonic() + ttl })
    }

    fn ttl(&self, outcome: &Result<Answer, ResolveError>) -> Duration {
        let settings = &self.settings;
        match outcome {
            // Not `clamp`, which panics where an operator sets the floor above the ceiling: then the ceiling holds.
            Ok(answer) => answer.ttl.max(settings.ttl_min).min(settings.ttl_max),
            Err(ResolveError::NotFound { ttl } | ResolveError::NoAddresses { ttl }) => {
                ttl.unwrap_or(settings.negative_ttl_max).max(settings.ttl_min).min(settings.negative_ttl_max)
            }
            Err(
                ResolveError::Failed { .. }
                | ResolveError::Timeout
                | ResolveError::Unreachable
                | ResolveError::Garbled { .. },
            ) => settings.failure_ttl,
            // It says nothing about the name.
            Err(ResolveError::Busy | ResolveError::TenantBusy) => Duration::ZERO,
        }
    }

    async fn kept(&self, name: &HostName, now: Duration) -> Option<Result<Answer, ResolveError>> {
        let entry = self.entries.get(name).await.filter(|entry| now < entry.expires)?;
        Some(entry.outcome.clone())
    }

    async fn found(&self, name: &HostName, now: Duration) -> Result<Answer, ResolveError> {
        // All who come here for one name wait for one lookup; if its caller goes away, the next one takes it over.
        let lookup = Box::pin(self.look_up(name));
        let found = self.entries.entry_by_ref(name).or_insert_with_if(lookup, |kept| kept.expires <= now).await;
        found.into_value().outcome.clone()
    }
}

#[async_trait]
impl<R: Resolve> Resolve for CachedResolver<R> {
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError> {
        let now = self.clock.monotonic();
        match self.kept(name, now).await {
            Some(kept) => kept,
            None => self.found(name, now).await,
        }
    }

    async fn resolve_for(&self, tenant: &TenantId, name: &HostName) -> Result<Answer, ResolveError> {
        let now = self.clock.monotonic();
        if let Some(kept) = self.kept(name, now).await {
            return kept;
        }
        // Before it is waited for with others: whose share is used up is nobody else's matter.
        let _asking = self.shares.begin(tenant, name)?;
        self.found(name, now).await
    }
}

#[cfg(test)]
mod tests;
