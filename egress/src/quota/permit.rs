//! What a call has while it is under way: its place with the breaker, and its units.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use domain::TenantId;
use ratelimit::breaker::fleet::FleetTicket;
use ratelimit::breaker::{self, Outcome, Ticket};
use ratelimit::quota::Class;
use ratelimit::quota::holder::{Held, Reason};
use ratelimit::retry_budget::{Attempt, Budget};
use ratelimit::{Now, PairKey, ProviderKey};

use super::Quota;
use super::explain::breaker_of;
use super::metering::Line;
use super::park::Park;
use super::watcher::Whose;
use crate::connections::Entry;
use crate::governed::Connection;

/// How often units that ran out while a connection was made are replaced.
const RENEWALS: usize = 2;

/// May go. Dropped, it gives back what was not sent, and says to the breaker that nothing is known.
#[derive(Debug)]
pub struct Permit {
    /// None: of a call that nothing counts; for tests.
    of: Option<Of>,
    pub(super) leased: Option<Box<Leased>>,
}

struct Of {
    quota: Arc<Quota>,
    tenant: TenantId,
    subject: Subject,
    pair: PairKey,
    rules: breaker::Rules,
    budget: Budget,
    tickets: Mutex<Option<Tickets>>,
}

/// Of the tenant's breaker, and of the provider's for the fleet where it has one.
type Tickets = (Ticket, Option<(ProviderKey, FleetTicket)>);

/// What the breaker of a call is of.
#[derive(Debug)]
pub(super) enum Subject {
    /// Its connector, or its destination where it has none.
    Connection(Arc<Connection>),
    Destination(Box<str>),
}

impl Subject {
    pub(super) fn with_whose<T>(&self, tenant: &TenantId, tell: impl FnOnce(&Whose<'_>) -> T) -> T {
        match self {
            Self::Connection(connection) => {
                let (kind, what) = breaker_of(connection);
                tell(&Whose { tenant, kind, what: &what })
            }
            Self::Destination(what) => tell(&Whose { tenant, kind: "destination", what }),
        }
    }
}

/// Units of a connection's call.
#[derive(Debug)]
pub(super) struct Leased {
    /// None for the moment in which they are replaced.
    held: Mutex<Option<Held>>,
    pub(super) line: Arc<Line>,
    class: Class,
    pub(super) connection: Arc<Connection>,
}

impl fmt::Debug for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Of").field("tenant", &self.tenant).field("pair", &self.pair).finish_non_exhaustive()
    }
}

impl Leased {
    pub(super) fn new(held: Held, line: Arc<Line>, class: Class, entry: &Entry) -> Self {
        Self { held: Mutex::new(Some(held)), line, class, connection: Arc::clone(&entry.connection) }
    }

    /// Does something with the units.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Held) -> T) -> Option<T> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(act)
    }

    fn replace(&self, held: Option<Held>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }
}

impl Permit {
    pub(super) fn new(
        quota: Arc<Quota>,
        (tenant, subject): (TenantId, Subject),
        (pair, rules, budget): (PairKey, breaker::Rules, Budget),
        tickets: Tickets,
    ) -> Self {
        let of = Of { quota, tenant, subject, pair, rules, budget, tickets: Mutex::new(Some(tickets)) };
        Self { of: Some(of), leased: None }
    }

    /// Of a call that nothing counts.
    pub fn unmetered() -> Self {
        Self { of: None, leased: None }
    }

    pub(super) fn quota(&self) -> Option<&Arc<Quota>> {
        self.of.as_ref().map(|of| &of.quota)
    }

    /// Whether the request may be written. To be asked right before it is: what was right when it was judged may be over.
    /// Units that ran out while a connection was made are replaced, within the budget of any call; a park is final.
    pub(crate) async fn ready(&self) -> Result<(), Park> {
        let (Some(of), Some(leased)) = (&self.of, &self.leased) else { return Ok(()) };
        for _ in 0..RENEWALS {
            let Some(Err(parked)) = leased.with(|held| held.check()) else { return Ok(()) };
            if parked.reason != Reason::Spoilt {
                return Err(Park::of(&parked, &leased.line.route, ", said while the connection was made"));
            }
            leased.replace(None);
            let held = of.quota.holder.hold(&leased.line.route, leased.class, 1, None).await;
            leased.replace(Some(
                held.map_err(|parked| Park::of(&parked, &leased.line.route, ", when the units had run out"))?,
            ));
        }
        match leased.with(|held| held.check()) {
            Some(Err(parked)) => Err(Park::of(&parked, &leased.line.route, ", again and again")),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// The request is being written from here on.
    pub(crate) fn begins(&self) {
        if let Some(leased) = &self.leased {
            leased.with(|held| held.sent());
        }
    }

    /// It is certain that nothing of it was.
    pub(crate) fn not_sent(&self) {
        if let Some(leased) = &self.leased {
            leased.with(|held| held.not_sent());
        }
    }

    /// The call goes. A first attempt earns a part of a retry. One that says to be a retry spends one, and goes also where
    /// none is left: what is told to callers is theirs to keep to.
    pub(super) fn goes(&self, attempt: Attempt) {
        if let Some(of) = &self.of {
            let _left = of.quota.budgets.admit(of.pair, of.budget, attempt, Now::of(&*of.quota.clock));
        }
    }

    /// Whether a request that a connection gave back unread may go out once more, over another one.
    pub(crate) fn may_retry(&self) -> bool {
        let Some(of) = &self.of else { return true };
        of.quota.budgets.admit(of.pair, of.budget, Attempt::Retry, Now::of(&*of.quota.clock)).is_ok()
    }

    /// Retries that are left to the tenant at this provider.
    pub(crate) fn retries_left(&self) -> Option<u32> {
        let of = self.of.as_ref()?;
        Some(of.quota.budgets.remaining(of.pair, of.budget, Now::of(&*of.quota.clock)))
    }

    /// How it ended, for the breaker; the first word counts.
    pub(crate) fn ended(&self, outcome: Outcome) {
        let Some(of) = &self.of else { return };
        let tickets = of.tickets.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((ticket, fleet)) = tickets else { return };
        let now = Now::of(&*of.quota.clock);
        if let Some((provider, ticket)) = fleet {
            of.quota.fleet.report(provider, of.pair, ticket, outcome, of.rules.counted, now);
        }
        if let Some(change) = of.quota.breakers.report(of.pair, &of.rules, ticket, outcome, now) {
            of.subject.with_whose(&of.tenant, |whose| {
                if matches!(change, breaker::Change::Opened { .. }) {
                    of.quota.names.note(of.pair, whose);
                }
                of.quota.watcher.breaker(of.pair, whose, change);
            });
        }
    }

    /// For people.
    pub(super) fn whose<'p>(&'p self, leased: &'p Leased) -> Option<Whose<'p>> {
        let of = self.of.as_ref()?;
        Some(Whose { tenant: &of.tenant, kind: "connection", what: leased.connection.id().as_str() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // A probe that proved nothing lets the next one go at once.
        self.ended(Outcome::Abandoned);
    }
}
