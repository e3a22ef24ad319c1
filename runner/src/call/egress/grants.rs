//! Call grants of runs: short-lived, and used until half their life is over.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{Clock, ConnectionId, Secret, TenantId};
use http::HeaderValue;

use super::super::Call;
use crate::ids::{AutomationId, RunId};
use crate::ledger::BoxFuture;

/// Grants that are kept. Beyond that those that were made first go: their runs have most likely ended.
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
    state: Mutex<State>,
}

type Key = (RunId, ConnectionId);

#[derive(Default)]
struct State {
    by_run: HashMap<Key, One>,
    /// As they were made, with those that were made anew or forgotten since.
    order: VecDeque<(Key, Duration)>,
}

struct One {
    field: HeaderValue,
    /// By the monotonic clock.
    good_until: Duration,
}

impl Kept {
    pub(super) fn new(grants: Arc<dyn Grants>, clock: Arc<dyn Clock>) -> Self {
        Self { grants, clock, state: Mutex::default() }
    }

    pub(super) async fn of(&self, call: &Call) -> Result<HeaderValue, NoGrant> {
        let now = self.clock.monotonic();
        let key = (call.run, call.connection.clone());
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(one) = state.by_run.get(&key).filter(|one| now < one.good_until) {
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
        let one = One { field: field.clone(), good_until: now.saturating_add(minted.lives / 2) };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).keep(key, one, now);
        Ok(field)
    }

    pub(super) fn forget(&self, call: &Call) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.by_run.remove(&(call.run, call.connection.clone()));
    }
}

impl State {
    fn keep(&mut self, key: Key, one: One, now: Duration) {
        self.order.push_back((key.clone(), one.good_until));
        self.by_run.insert(key, one);
        while self.order.len() > KEPT_MAX || self.order.front().is_some_and(|(_, good_until)| *good_until <= now) {
            let Some((key, good_until)) = self.order.pop_front() else { return };
            if self.by_run.get(&key).is_some_and(|one| one.good_until == good_until) {
                self.by_run.remove(&key);
            }
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("grants", &self.grants).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        let mut run = [0; 16];
        run[..4].copy_from_slice(&n.to_be_bytes());
        (RunId::from_bytes(run), ConnectionId::parse("conn_a").unwrap())
    }

    fn one(good_until: u64) -> One {
        One { field: HeaderValue::from_static("grant"), good_until: Duration::from_secs(good_until) }
    }

    #[test]
    fn the_newest_are_kept_however_many_runs_there_were() {
        let (mut state, max) = (State::default(), u32::try_from(KEPT_MAX).unwrap());
        for n in 0..3 * max {
            state.keep(key(n), one(150), Duration::ZERO);
        }
        assert_eq!((state.by_run.len(), state.order.len()), (KEPT_MAX, KEPT_MAX));
        assert!((2 * max..3 * max).all(|n| state.by_run.contains_key(&key(n))));
        // Those whose time is over go with the next; one that was made anew since stays.
        state.keep(key(2 * max), one(300), Duration::from_secs(100));
        state.keep(key(0), one(310), Duration::from_secs(150));
        assert_eq!((state.by_run.len(), state.order.len()), (2, 2));
        assert!(state.by_run.contains_key(&key(2 * max)) && state.by_run.contains_key(&key(0)));
    }
}
