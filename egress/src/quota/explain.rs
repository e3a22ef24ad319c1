//! What a call would meet now, for an operator. It goes the way of [`super::wanted`] and takes nothing: no attempt is
//! counted, no probe is given out, no unit is held or asked for. The way through the levels is kept as a call's would be.

use config::connector::Manifest;
use domain::{ConnectionId, TenantId};
use http::Method;
use ratelimit::quota::holder::LegView;
use ratelimit::quota::{Application, Class};
use ratelimit::signals::Call;
use ratelimit::{Now, PairKey, breaker, runaway};
use thiserror::Error;

use super::Quota;
use super::metering::Metering;
use super::names::Called;
use super::wanted::leaves_from;
use crate::governed::{Connection, PathRefused};
use crate::policy::Unseen;
use crate::snapshot::Snapshot;
use crate::{Asked, Caller, Identity};

/// A call of a connection, as somebody thinks of it.
#[derive(Debug, Clone)]
pub struct Question<'q> {
    pub tenant: &'q TenantId,
    pub role: Option<&'q str>,
    pub connection: &'q ConnectionId,
    pub method: Method,
    /// What stands behind `/c/{connection}`.
    pub path: &'q str,
    pub class: Class,
    pub automation: Option<&'q str>,
}

/// What it would meet, in the order in which it would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The connection, and the automation that is named; none of one that never called.
    pub runaways: Vec<(PairKey, Called, Option<runaway::View>)>,
    /// The rules would refuse it before anything else is asked: why.
    pub refused: Option<String>,
    /// None of a breaker that has had no fault lately: it is closed.
    pub breaker: (PairKey, Called, Option<breaker::View>),
    /// Why the fleet's breaker of the provider would refuse it.
    pub fleet: Option<breaker::Refused>,
    pub retries_left: u32,
    /// Whom the provider is told apart by.
    pub application: Application,
    /// Where calls are counted, as far as this node knows; those that are only heeded come last.
    pub levels: Vec<LegView>,
}

/// Why there is nothing to be said of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotExplained {
    #[error("the tenant has no connection of this id")]
    Connection,
    #[error("the path is none that a call may have: {0}")]
    Path(PathRefused),
    #[error("the calls of this connection are not counted")]
    Uncounted,
    #[error("the limits of this connector cannot be held together")]
    Limits,
}

impl Quota {
    /// Explains a call by what is configured and what this node knows.
    pub fn explain(&self, node: &Snapshot, question: &Question<'_>) -> Result<Explained, NotExplained> {
        let entry = node.connections.get(question.tenant, question.connection).ok_or(NotExplained::Connection)?;
        let connection = &*entry.connection;
        let asked = connection.ask(question.method.clone(), question.path).map_err(NotExplained::Path)?;
        let metering = connection.metering().ok_or(NotExplained::Uncounted)?;
        let now = Now::of(&*self.clock);
        let pair = metering.pair();
        let (kind, what) = breaker_of(connection);
        let (pool, refused) = match node.policy.decide(&caller(question), &asked, &mut Unseen) {
            Ok(allowed) => (allowed.pool, None),
            Err(denied) => (None, Some(format!("{}: {}", denied.refusal.code(), denied.by))),
        };
        Ok(Explained {
            runaways: self.runaways_of(node, question, metering, now),
            refused,
            breaker: (pair, Called { tenant: question.tenant.clone(), kind, what }, self.breakers.view(pair, now)),
            fleet: metering.provider().and_then(|provider| self.fleet.refusal(provider, now)),
            retries_left: self.budgets.remaining(pair, node.quota.budget, now),
            application: metering.application().clone(),
            levels: self.levels(node, question, (connection, metering), &asked, pool.as_deref())?,
        })
    }

    fn runaways_of(
        &self,
        node: &Snapshot,
        question: &Question<'_>,
        metering: &Metering,
        now: Now,
    ) -> Vec<(PairKey, Called, Option<runaway::View>)> {
        let tenant = question.tenant;
        let connection = (metering.account, "connection", question.connection.as_str());
        let automation = question.automation.map(|name| (PairKey::automation(tenant, name), "automation", name));
        let all = std::iter::once(connection).chain(automation);
        let seen = all.map(|(key, kind, what)| {
            let called = Called { tenant: tenant.clone(), kind, what: what.into() };
            (key, called, self.runaways.view(key, &node.quota.runaway, now))
        });
        seen.collect()
    }

    fn levels(
        &self,
        node: &Snapshot,
        question: &Question<'_>,
        (connection, metering): (&Connection, &Metering),
        asked: &Asked,
        pool: Option<&str>,
    ) -> Result<Vec<LegView>, NotExplained> {
        let manifest: &Manifest = connection.connector().manifest();
        // From where it would leave; a limit of source addresses is the application's where that is not known.
        let source = node.exits.of_tenant(pool, question.tenant).ok().as_ref().and_then(leaves_from);
        let call = Call { method: asked.method.as_str(), path: asked.path(), throttles_before: 0 };
        let terms = (node.quota.shares.of(question.tenant), self.clock.unix_ms());
        let line = metering.line(manifest, &call, source, &node.quota, terms, &self.holder);
        let line = line.ok_or(NotExplained::Limits)?;
        Ok(self.holder.explain(&line.route, question.class, 1))
    }
}

/// By what name the breaker of a connection's calls goes.
pub(crate) fn breaker_of(connection: &Connection) -> (&'static str, Box<str>) {
    if connection.connector().manifest().is_generic() {
        ("destination", super::named::destination(connection.authority()).into())
    } else {
        ("connector", connection.connector_id().as_str().into())
    }
}

fn caller(question: &Question<'_>) -> Caller {
    Caller {
        tenant: question.tenant.clone(),
        role: question.role.map(Into::into),
        identity: Identity::Token { name: "explain".into() },
        connections: None,
        destinations: None,
        run: None,
        automation: question.automation.map(Into::into),
        class: None,
        until_unix_ms: None,
    }
}
