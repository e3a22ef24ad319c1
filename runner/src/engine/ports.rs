//! What the engine needs of others, and is given by the composition root.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use domain::{ConnectionId, EventId, TenantId};

use crate::automation::{Automation, EventFacts};
use crate::ids::{AutomationId, RunId, StepId, Version};
use crate::ledger::{BoxFuture, Payload};

/// Versions of automations, compiled. A version never changes, so that they may be cached for ever.
pub trait Automations: Send + Sync + fmt::Debug {
    fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> BoxFuture<'_, Result<Arc<Automation>, PortError>>;
}

/// Events of the log, by their ids.
pub trait Events: Send + Sync + fmt::Debug {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>>;
}

/// Where inputs and outputs are kept: small ones in the record, large ones in a store.
pub trait Payloads: Send + Sync + fmt::Debug {
    /// Durable when the future says so, before a record names it.
    fn keep(&self, tenant: &TenantId, bytes: Bytes) -> BoxFuture<'_, Result<Payload, PortError>>;

    /// The whole of it; `Gone` where some of it is no longer kept, or never was.
    fn fetch(&self, tenant: &TenantId, payload: &Payload) -> BoxFuture<'_, Result<Bytes, PortError>>;
}

/// Whether a run may still do what it was allowed to when it began.
pub trait Authority: Send + Sync + fmt::Debug {
    fn may_call(&self, asked: Asked) -> BoxFuture<'_, Result<Permission, PortError>>;
}

/// A call of an old run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub tenant: TenantId,
    pub automation: AutomationId,
    pub run: RunId,
    pub step: StepId,
    pub connection: ConnectionId,
    pub action: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    Yes,
    /// And why not, in words for the author.
    No(Box<str>),
}

/// Who is told what somebody has to do. Called once for each thing that happens; it neither waits nor fails.
pub trait Notices: Send + Sync + fmt::Debug {
    fn tell(&self, notice: Notice);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A connection's authentication has just been found dead, by this run.
    NeedsReconnect {
        tenant: TenantId,
        connection: ConnectionId,
        run: RunId,
        reason: Box<str>,
    },
    /// Somebody has to choose about an effect.
    Ambiguous {
        tenant: TenantId,
        run: RunId,
        step: StepId,
    },
    Quarantined {
        tenant: TenantId,
        run: RunId,
        reason: Box<str>,
    },
}

/// Why a port gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// It is no longer there, or never was; asking again changes nothing.
    #[error("{0}")]
    Gone(Box<str>),
    /// Not now.
    #[error("not to be had now: {0}")]
    Unavailable(Box<str>),
    /// What was found is another tenant's: told loudly, and answered to nobody.
    #[error("what was found is another tenant's")]
    Tenant,
}
