//! Call grants of runs: short-lived, and used until half their life is over.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{Clock, ConnectionId, Secret, TenantId};
use http::HeaderValue;

use super::super::Call;
use crate::ids::{AutomationId, RunId};
use crate::ledger::BoxFuture;

/// Grants that are kept: of runs that call now, since others' end within minutes.
const KEPT_MAX: usize = 16_384;

/// Signs grants, by the runner's issuer key.
pub trait Grants: Send + Sync + fmt::Debug {
    fn mint(&self, grant: GrantFor) -> BoxFuture<'_, Result<Minted, NoGrant>>;
}

/// Whose calls, and through what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFor {
    pub tenant: TenantId,
    pub connection: ConnectionId,
    pub run: RunId,
    pub automation: AutomationId,
    /// Of class `bulk`, which gives way to the tenant's other calls.
    pub is_bulk: bool,
}

#[derive(Debug)]
pub struct Minted {
    pub grant: Secret,
    pub lives: Duration,
}

/// No grant can be made, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGrant(pub Box<str>);

pub(super) struct Kept {
    grants: Arc<dyn Grants>,
    clock: Arc<dyn Clock>,
    by_run: Mutex<HashMap<(RunId, ConnectionId), One>>,
}

struct One {
    field: HeaderValue,
    /// By the monotonic clock.
    good_until: Duration,
}

impl Kept {
    pub(super) fn new(grants: Arc<dyn Grants>, clock: Arc<dyn Clock>) -> Self {
        Self { grants, clock, by_run: Mutex::default() }
    }

    pub(super) async fn of(&self, call: &Call) -> Result<HeaderValue, NoGrant> {
        let now = self.clock.monotonic();
        let key = (call.run, call.connection.clone());
        {
            let kept = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(one) = kept.get(&key).filter(|one| now < one.good_until) {
                return Ok(one.field.clone());
            }
        }
        let minted = self.grants.mint(GrantFor {
            tenant: call.tenant.clone(),
            connection: call.connection.clone(),
            run: call.run,
            automation: call.automation,
            is_bulk: call.is_bulk,
        });
        let minted = minted.await?;
        let field = HeaderValue::from_bytes(minted.grant.expose());
        let mut field = field.map_err(|_| NoGrant("it cannot stand in a field".into()))?;
        field.set_sensitive(true);
        let mut kept = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, one| now < one.good_until);
        }
        if kept.len() < KEPT_MAX {
            kept.insert(key, One { field: field.clone(), good_until: now.saturating_add(minted.lives / 2) });
        }
        Ok(field)
    }

    pub(super) fn forget(&self, call: &Call) {
        let mut kept = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&(call.run, call.connection.clone()));
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("grants", &self.grants).finish_non_exhaustive()
    }
}
