//! Which automations an event begins: cached for a moment, so that a burst asks the store once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Clock, EndpointId, EventId, TenantId};
use futures_util::FutureExt;
use futures_util::future::Shared;

use crate::automation::{Automation, DefinitionStore, Scope, StoreError};
use crate::engine::{Automations, Events, PortError};
use crate::ids::{AutomationId, Version};
use crate::ledger::BoxFuture;

/// How long what the store said holds: a change made by another process is seen after that. One made here is told by
/// [`Triggers::changed`].
const HOLDS_MS: u64 = 1000;

/// Endpoints of each of the two halves of the cache. An entry is some hundred bytes; what is compiled is cached elsewhere.
const HALF: usize = 8192;

/// How far clocks of the nodes that accept events and of those that keep definitions may lie apart.
const CLOCKS_APART_MS: u64 = 60_000;

/// Versions that are looked through for one that an event may have begun before: more edits than that between an event and
/// its admission are not made.
const VERSIONS_BACK: u32 = 256;

/// An automation that events of an endpoint begin.
#[derive(Debug, Clone)]
pub struct Trigger {
    pub automation: Arc<Automation>,
    /// When this version was stored.
    pub stored_unix_ms: u64,
    /// When the automation was made. Events that came before that begin no run of it.
    pub made_unix_ms: u64,
}

/// What an event comes to for one automation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Begins,
    /// Its `when` is false.
    Not,
    /// It came before the automation was made.
    Older,
    /// Its `when` failed: where and why, in words for its author.
    Failed(Box<str>),
    /// The event is not in the log any more, and `when` asks for it.
    Gone,
}

/// Why nothing is known for the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggersFault {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Port(#[from] PortError),
}

type Found = Shared<BoxFuture<'static, Result<Arc<[Trigger]>, TriggersFault>>>;

#[derive(Clone)]
struct Cached {
    at_ms: u64,
    found: Found,
}

/// New entries come into the young half; when that is full it becomes the old one, and what was old is forgotten.
#[derive(Default)]
struct Cache {
    young: HashMap<(TenantId, EndpointId), Cached>,
    old: HashMap<(TenantId, EndpointId), Cached>,
}

/// Finds triggers, and judges events by them.
pub struct Triggers {
    definitions: Arc<dyn DefinitionStore>,
    automations: Arc<dyn Automations>,
    events: Arc<dyn Events>,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
}

impl Triggers {
    pub fn new(
        definitions: Arc<dyn DefinitionStore>,
        automations: Arc<dyn Automations>,
        events: Arc<dyn Events>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self { definitions, automations, events, clock, cache: Mutex::default() })
    }

    /// A definition of this tenant has changed: nothing that was found before holds.
    pub fn changed(&self, tenant: &TenantId) {
        let Cache { young, old } = &mut *self.lock();
        for half in [young, old] {
            half.retain(|(of, _), _| of != tenant);
        }
    }

    /// Automations that events of this endpoint begin, each in its last version. Asked at once by many, the store is asked
    /// once.
    pub async fn of_endpoint(
        self: &Arc<Self>,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> Result<Arc<[Trigger]>, TriggersFault> {
        self.cached(tenant, endpoint).await
    }

    fn cached(self: &Arc<Self>, tenant: &TenantId, endpoint: &EndpointId) -> Found {
        let now_ms = u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let key = (tenant.clone(), endpoint.clone());
        let mut cache = self.lock();
        let holds = |cached: &&Cached| now_ms.saturating_sub(cached.at_ms) < HOLDS_MS;
        if let Some(cached) = cache.young.get(&key).or_else(|| cache.old.get(&key)).filter(holds) {
            return cached.found.clone();
        }
        let (me, tenant, endpoint) = (Arc::clone(self), key.0.clone(), key.1.clone());
        let find: BoxFuture<'static, _> = Box::pin(async move { me.find(&tenant, &endpoint).await });
        let found = find.shared();
        if cache.young.len() >= HALF {
            cache.old = std::mem::take(&mut cache.young);
        }
        cache.young.insert(key, Cached { at_ms: now_ms, found: found.clone() });
        found
    }

    async fn find(&self, tenant: &TenantId, endpoint: &EndpointId) -> Result<Arc<[Trigger]>, TriggersFault> {
        let mut triggers = Vec::new();
        for (id, version) in self.definitions.triggered_by(tenant, endpoint).await? {
            // One that was deleted meanwhile begins nothing.
            if let Some(trigger) = self.trigger(tenant, id, version).await? {
                triggers.push(trigger);
            }
        }
        Ok(triggers.into())
    }

    /// A version as a trigger; none if it is not there.
    pub async fn trigger(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> Result<Option<Trigger>, TriggersFault> {
        let Some(stored_unix_ms) = self.stored_at(tenant, id, version).await? else { return Ok(None) };
        let made_unix_ms = if version == Version::MIN {
            stored_unix_ms
        } else {
            self.stored_at(tenant, id, Version::MIN).await?.unwrap_or(0)
        };
        let automation = match self.automations.load(tenant, id, version).await {
            Ok(automation) => automation,
            Err(PortError::Gone(_)) => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        if automation.tenant != *tenant || automation.id != id {
            tracing::error!(%tenant, automation = %id, "a definition is another tenant's, and begins nothing");
            return Err(PortError::Tenant.into());
        }
        Ok(Some(Trigger { automation, stored_unix_ms, made_unix_ms }))
    }

    /// When a version was stored; none if it is not there.
    async fn stored_at(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> Result<Option<u64>, TriggersFault> {
        let Some(stored) = self.definitions.get(tenant, id, Some(version)).await? else { return Ok(None) };
        if stored.tenant != *tenant || stored.id != id {
            tracing::error!(%tenant, automation = %id, "a definition is another tenant's, and begins nothing");
            return Err(StoreError::Tenant.into());
        }
        Ok(Some(stored.at_unix_ms))
    }

    /// Versions under which the event may have been admitted before: where it came before the last one was stored, all
    /// down to the one that was the last when it came. Almost always there is none.
    pub async fn earlier_versions(
        &self,
        tenant: &TenantId,
        trigger: &Trigger,
        received_unix_ms: u64,
    ) -> Result<Vec<Version>, TriggersFault> {
        let (id, last) = (trigger.automation.id, trigger.automation.version);
        let mut stored_unix_ms = trigger.stored_unix_ms;
        let mut earlier = Vec::new();
        for back in 1..=VERSIONS_BACK {
            // What came this long after a version was stored is of that version, whosever clock is ahead.
            if stored_unix_ms.saturating_add(CLOCKS_APART_MS) <= received_unix_ms {
                break;
            }
            let Some(version) = last.get().checked_sub(back).and_then(Version::new) else { break };
            let Some(at) = self.stored_at(tenant, id, version).await? else { break };
            stored_unix_ms = at;
            earlier.push(version);
        }
        Ok(earlier)
    }

    /// Does this event begin a run of it? One that came before the automation was made does not. An automation that was made
    /// later than now was made by a clock that has been put back since, or that is ahead: it is there, so that it was made
    /// now at the latest.
    pub async fn judge(&self, tenant: &TenantId, trigger: &Trigger, event: EventId) -> Result<Verdict, TriggersFault> {
        let made_unix_ms = trigger.made_unix_ms.min(self.clock.unix_ms());
        if event.received_unix_ms().saturating_add(CLOCKS_APART_MS) < made_unix_ms {
            return Ok(Verdict::Older);
        }
        if trigger.automation.trigger.when.is_none() {
            return Ok(Verdict::Begins);
        }
        let facts = match self.events.read(tenant, event).await {
            Ok(facts) => facts,
            Err(PortError::Gone(_)) => return Ok(Verdict::Gone),
            Err(fault) => return Err(fault.into()),
        };
        let automation = Arc::clone(&trigger.automation);
        // An expression may take a while within its bounds: not on a thread that others wait for.
        let holds = tokio::task::spawn_blocking(move || {
            automation.trigger.when.as_ref().map(|when| when.holds(&Scope::default().with_event(facts)))
        });
        Ok(match holds.await {
            Ok(Some(Ok(true)) | None) => Verdict::Begins,
            Ok(Some(Ok(false))) => Verdict::Not,
            Ok(Some(Err(failed))) => Verdict::Failed(failed.0),
            Err(_) => Verdict::Failed("the condition could not be evaluated".into()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Triggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Triggers").field("definitions", &self.definitions).finish_non_exhaustive()
    }
}
