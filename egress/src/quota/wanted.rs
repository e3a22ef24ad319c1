//! May the call go now? Runaways, breakers, leases, in this order.

use std::net::IpAddr;
use std::sync::Arc;

use outbound::Exit;
use ratelimit::breaker::Outcome;
use ratelimit::quota::Class;
use ratelimit::runaway::Verdict;
use ratelimit::signals::Call;
use ratelimit::{Now, PairKey};

use super::Quota;
use super::metering::Metering;
use super::named;
use super::park::{Park, ParkedBy};
use super::permit::{Leased, Permit, Subject};
use super::rules::QuotaRules;
use super::watcher::Whose;
use crate::Asked;
use crate::caller::Caller;
use crate::connections::Entry;
use crate::serve::Terms;

/// Where a paused caller is told to ask again: a person has to look first.
const PAUSED_MS: u64 = 60_000;

/// One hop that wants to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'w> {
    pub(crate) rules: &'w QuotaRules,
    pub(crate) caller: &'w Caller,
    pub(crate) asked: &'w Asked,
    /// The connection whose limits count: none for a destination that is not its provider's.
    pub(crate) entry: Option<&'w Entry>,
    pub(crate) terms: Terms,
}

impl Wanted<'_> {
    fn metering(&self) -> Option<&Metering> {
        self.entry.and_then(|entry| entry.connection.metering())
    }

    /// Of the breaker and the retry budget.
    fn pair(&self) -> (PairKey, Subject) {
        if let Some((entry, metering)) = self.entry.and_then(|entry| Some((entry, entry.connection.metering()?))) {
            return (metering.pair(), Subject::Connection(Arc::clone(&entry.connection)));
        }
        let destination = named::destination(&self.asked.authority);
        (PairKey::authority(&self.caller.tenant, &destination), Subject::Destination(destination.into()))
    }

    fn class(&self) -> Class {
        if self.caller.class.as_deref() == Some("bulk") { Class::Bulk } else { Class::Interactive }
    }
}

impl Quota {
    /// An attempt is wanted, whatever comes of it: is it one of somebody who ran away?
    pub(crate) fn attempt(&self, caller: &Caller, entry: Option<&Entry>, rules: &QuotaRules) -> Result<(), Park> {
        let connection = entry.and_then(|entry| Some((entry.connection.metering()?.account, entry.connection.id())));
        let connection = connection.map(|(key, id)| (key, "connection", id.as_str()));
        let automation = caller.automation.as_deref();
        let automation = automation.map(|name| (PairKey::automation(&caller.tenant, name), "automation", name));
        for (key, kind, what) in connection.into_iter().chain(automation) {
            self.attempt_of(key, &Whose { tenant: &caller.tenant, kind, what }, rules)?;
        }
        Ok(())
    }

    fn attempt_of(&self, key: PairKey, whose: &Whose<'_>, rules: &QuotaRules) -> Result<(), Park> {
        let now = Now::of(&*self.clock);
        let seen = self.runaways.attempt(key, &rules.runaway, now);
        if let Some(event) = seen.event {
            self.watcher.runaway(key, whose, event);
        }
        if seen.verdict != Verdict::Fine {
            self.names.note(key, whose);
        }
        let park = |release_ms: u64, why: &str| {
            let detail = format!("the {} wants far more than it usually does: {why}", whose.kind).into();
            Park { release_ms, level: whose.kind, by: ParkedBy::Runaway, detail }
        };
        match seen.verdict {
            Verdict::Fine => Ok(()),
            Verdict::Throttled { per_minute } => self
                .paces
                .turn(key, per_minute, now.mono_ms)
                .map_err(|wait_ms| park(wait_ms, &format!("{per_minute} a minute may go"))),
            Verdict::Paused { .. } => Err(park(PAUSED_MS, "it is paused until an operator resumes it")),
        }
    }

    /// Is the destination known not to work for this tenant? Asked before anything is looked up or leased.
    pub(crate) fn ask_breaker(self: &Arc<Self>, wanted: &Wanted<'_>) -> Result<Permit, Park> {
        let (rules, (key, subject)) = (wanted.rules.breaker, wanted.pair());
        let rules = wanted.metering().map_or(rules, |metering| metering.breaker(rules));
        let now = Now::of(&*self.clock);
        let ticket = self.breakers.admit(key, &rules, now);
        let ticket = ticket.map_err(|refused| {
            subject.with_whose(&wanted.caller.tenant, |whose| self.names.note(key, whose));
            Park {
                release_ms: refused.retry_after_ms.max(1),
                level: "tenant",
                by: ParkedBy::Breaker,
                detail: "the tenant's calls to this provider failed, and are let go one at a time".into(),
            }
        })?;
        let fleet = match wanted.metering().and_then(Metering::provider) {
            None => None,
            Some(provider) => match self.fleet.admit(provider, now) {
                Ok(admitted) => Some((provider, admitted)),
                Err(refused) => {
                    // If it was the tenant's probe, the next call is.
                    self.breakers.report(key, &rules, ticket, Outcome::Parked, now);
                    let detail =
                        "many tenants' calls to this provider failed, and the fleet lets one go at a time".into();
                    let release_ms = refused.retry_after_ms.max(1);
                    return Err(Park { release_ms, level: "provider", by: ParkedBy::Breaker, detail });
                }
            },
        };
        let whose = (wanted.caller.tenant.clone(), subject);
        Ok(Permit::new(Arc::clone(self), whose, (key, rules, wanted.rules.budget), (ticket, fleet)))
    }

    /// Units of every level that the provider counts, or when to come again.
    pub(crate) async fn lease(&self, wanted: &Wanted<'_>, exit: &Exit, permit: &mut Permit) -> Result<(), Park> {
        if let (Some(metering), Some(entry)) = (wanted.metering(), wanted.entry) {
            permit.leased = Some(self.leased(wanted, (metering, entry), exit).await?);
        }
        // Only now: a park spends nothing of the retry budget.
        permit.goes(wanted.terms.attempt);
        Ok(())
    }

    async fn leased(
        &self,
        wanted: &Wanted<'_>,
        (metering, entry): (&Metering, &Entry),
        exit: &Exit,
    ) -> Result<Box<Leased>, Park> {
        let manifest = entry.connection.connector().manifest();
        let share = wanted.rules.shares.of(&wanted.caller.tenant);
        let call = Call { method: wanted.asked.method.as_str(), path: wanted.asked.path(), throttles_before: 0 };
        let now_unix_ms = self.clock.unix_ms();
        let source = leaves_from(exit);
        let line = metering.line(manifest, &call, source, wanted.rules, (share, now_unix_ms), &self.holder);
        let Some(line) = line else {
            let detail = "the limits of this connector cannot be held together".into();
            return Err(Park { release_ms: PAUSED_MS, level: "connection", by: ParkedBy::Quota, detail });
        };
        let class = wanted.class();
        let held = self.holder.hold(&line.route, class, 1, wanted.terms.wait).await;
        let held = held.map_err(|parked| Park::of(&parked, &line.route, ""))?;
        Ok(Box::new(Leased::new(held, line, class, entry)))
    }
}

/// The address that a call leaves from, as far as it is known before it is dialled.
pub(super) fn leaves_from(exit: &Exit) -> Option<IpAddr> {
    let Exit::From(exit) = exit else { return None };
    exit.v4.map(IpAddr::V4).or_else(|| exit.v6.map(IpAddr::V6))
}
