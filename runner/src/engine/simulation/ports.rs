//! Parts of ours as they may be: they say "not now", answer late, or never.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::{ConnectionId, EndpointId, EventId, TenantId};

use super::super::ports::{Asked, Authority, Automations, Events, Payloads, Permission, PortError};
use super::super::testing::Tables;
use super::choices::Choices;
use crate::automation::{Automation, ConnectionState, DefinitionStore, EventFacts, Listed, StoreError, Stored};
use crate::ids::{AutomationId, Version};
use crate::ledger::{BoxFuture, Payload};

#[derive(Debug)]
pub(super) struct Flaky {
    pub(super) inner: Arc<Tables>,
    pub(super) choices: Arc<Choices>,
}

enum Fault {
    NotNow,
    Late(Duration),
    Never,
}

impl Flaky {
    fn fault(&self) -> Option<Fault> {
        match self.choices.one_of(4, 235) {
            0 => None,
            1 => Some(Fault::NotNow),
            2 => Some(Fault::Late(Duration::from_millis(self.choices.millis()))),
            _ => Some(Fault::Never),
        }
    }

    fn suffer<'a, T: Send + 'a, E: Send + 'a>(
        &self,
        answer: BoxFuture<'a, Result<T, E>>,
        not_now: E,
    ) -> BoxFuture<'a, Result<T, E>> {
        let fault = self.fault();
        Box::pin(async move {
            tokio::task::yield_now().await;
            match fault {
                None => {}
                Some(Fault::NotNow) => return Err(not_now),
                Some(Fault::Late(by)) => tokio::time::sleep(by).await,
                Some(Fault::Never) => std::future::pending().await,
            }
            answer.await
        })
    }

    fn port<'a, T: Send + 'a>(
        &self,
        answer: BoxFuture<'a, Result<T, PortError>>,
    ) -> BoxFuture<'a, Result<T, PortError>> {
        self.suffer(answer, PortError::Unavailable("as was drawn".into()))
    }

    fn store<T: Send + 'static>(
        &self,
        answer: BoxFuture<'static, Result<T, StoreError>>,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        self.suffer(answer, StoreError::Unavailable("as was drawn".into()))
    }
}

impl Automations for Flaky {
    fn load(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Version,
    ) -> BoxFuture<'_, Result<Arc<Automation>, PortError>> {
        self.port(self.inner.load(tenant, id, version))
    }
}

impl Events for Flaky {
    fn read(&self, tenant: &TenantId, event: EventId) -> BoxFuture<'_, Result<EventFacts, PortError>> {
        self.port(Events::read(&*self.inner, tenant, event))
    }
}

impl Payloads for Flaky {
    fn keep(&self, tenant: &TenantId, bytes: Bytes) -> BoxFuture<'_, Result<Payload, PortError>> {
        self.port(self.inner.keep(tenant, bytes))
    }

    fn fetch(&self, tenant: &TenantId, payload: &Payload) -> BoxFuture<'_, Result<Bytes, PortError>> {
        self.port(self.inner.fetch(tenant, payload))
    }
}

impl Authority for Flaky {
    fn may_call(&self, asked: Asked) -> BoxFuture<'_, Result<Permission, PortError>> {
        self.port(self.inner.may_call(asked))
    }
}

impl DefinitionStore for Flaky {
    fn put(&self, stored: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        self.inner.put(stored)
    }

    fn delete(&self, tenant: &TenantId, id: AutomationId, by: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        self.inner.delete(tenant, id, by)
    }

    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        self.inner.get(tenant, id, version)
    }

    fn by_name(&self, tenant: &TenantId, name: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        self.inner.by_name(tenant, name)
    }

    fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        self.inner.list(tenant, after, max)
    }

    fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        self.inner.triggered_by(tenant, endpoint)
    }

    fn connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        self.store(self.inner.connection_state(tenant, connection))
    }

    fn set_connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
        state: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        self.store(self.inner.set_connection_state(tenant, connection, state))
    }

    fn needing_reconnect(
        &self,
        tenant: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        self.inner.needing_reconnect(tenant)
    }
}
