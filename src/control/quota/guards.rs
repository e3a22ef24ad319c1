//! Breakers and runaways: who they are of, how they stand, and what an operator does about one.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use domain::text::Untrusted;
use domain::{ConnectorId, TenantId};
use egress::quota::{Called, Whose};
use outbound::Authority;
use ratelimit::breaker::{self, Change, Phase};
use ratelimit::runaway::{self, Event, Spike, Verdict};
use ratelimit::{Now, PAIR_KEY_BYTES, PairKey};

use super::acts::check_reason;
use super::wire::{
    Acted, BreakerLine, GuardAct, GuardWord, Guarded, Guards, GuardsQuery, LIMIT_MAX, REASON_BYTES_MAX, RunawayLine,
    SpikeLine, WhoLine,
};
use super::{Desk, DeskError, Peer};
use crate::control::time::rfc3339;

/// Half of a key is its tenant's.
const TENANT_BYTES: usize = PAIR_KEY_BYTES / 2;

impl Desk {
    /// Breakers of pairs that had a fault lately, those that are shut for longest first. Looks at all of them.
    pub(crate) fn breakers(&self, query: &GuardsQuery) -> Result<Guards<BreakerLine>, DeskError> {
        let limit = limit(query)?;
        let mut found = Vec::new();
        self.quota.breakers.views(self.now(), |key, view| {
            if is_of(key, query.tenant.as_ref()) && (view.phase != Phase::Closed || !query.notable) {
                found.push((key, view));
            }
        });
        found.sort_unstable_by_key(|(key, view)| {
            (view.phase == Phase::Closed, Reverse(view.retry_after_ms), Reverse(view.faults), key.to_bytes())
        });
        let all = found.len();
        found.truncate(limit);
        let names = self.names(found.iter().map(|(key, _)| *key));
        let lines = found.into_iter().map(|(key, view)| breaker(who(key, names.get(&key)), Some(view)));
        Ok(Guards { all, lines: lines.collect() })
    }

    /// Keys that are watched: paused ones first, then throttled ones, then who wants most.
    pub(crate) fn runaways(&self, query: &GuardsQuery) -> Result<Guards<RunawayLine>, DeskError> {
        let limit = limit(query)?;
        let rules = self.snapshot.load().quota.runaway;
        let mut found = Vec::new();
        self.quota.runaways.views(&rules, self.now(), |key, view| {
            let is_notable = view.verdict != Verdict::Fine || view.spike.is_some();
            if is_of(key, query.tenant.as_ref()) && (is_notable || !query.notable) {
                found.push((key, view));
            }
        });
        found.sort_unstable_by_key(|(key, view)| {
            let rank = match view.verdict {
                Verdict::Paused { .. } => 0,
                Verdict::Throttled { .. } => 1,
                Verdict::Fine => 2,
            };
            (rank, view.spike.is_none(), Reverse(view.wanted), key.to_bytes())
        });
        let all = found.len();
        found.truncate(limit);
        let names = self.names(found.iter().map(|(key, _)| *key));
        let lines = found.into_iter().map(|(key, view)| runaway(who(key, names.get(&key)), Some(view)));
        Ok(Guards { all, lines: lines.collect() })
    }

    /// Does something about one.
    pub(crate) fn guard(&self, asked: &GuardAct, peer: Peer) -> Result<Acted, DeskError> {
        check_reason(&asked.reason)?;
        let (key, called) = self.guarded(&asked.of, asked.act)?;
        let (now, whose) = (self.now(), called.as_ref().map(Called::whose));
        let (done, said) = match asked.act {
            GuardWord::CloseBreaker => {
                let done = self.quota.breakers.reset(key);
                if let Some(whose) = whose.filter(|_| done) {
                    self.quota.watcher.breaker(key, &whose, Change::Closed);
                }
                (done, if done { "closed, and what it counted is forgotten" } else { "it has had no fault lately" })
            }
            GuardWord::Resume => {
                let done = self.quota.runaways.resume(key, now);
                match whose.filter(|_| done) {
                    Some(whose) => self.quota.watcher.runaway(key, &whose, Event::Ended),
                    // Nobody can be named, but a crash within the hour would pause it again.
                    None if done => self.quota.watcher.announced(key),
                    None => {}
                }
                (done, if done { "resumed" } else { "it is neither throttled nor paused" })
            }
            GuardWord::Announce { factor, until_unix_ms } => {
                let spike = Spike { factor, until_unix_ms };
                let announced = self.quota.runaways.announce(key, spike, now);
                announced.map_err(|fault| DeskError::Refused(fault.to_string()))?;
                if let Some(whose) = whose {
                    self.quota.tell_name(key, &whose);
                }
                self.quota.watcher.announced(key);
                (true, "announced, on this node")
            }
            GuardWord::Withdraw => {
                let done = self.quota.runaways.withdraw(key, now);
                if done {
                    self.quota.watcher.announced(key);
                }
                (done, if done { "withdrawn" } else { "nothing is announced of it" })
            }
        };
        if done {
            let name = who(key, called.as_ref()).name;
            let (of, act) = (Untrusted::with_limit(name.as_bytes(), 1024), asked.act);
            let reason = Untrusted::with_limit(asked.reason.as_bytes(), REASON_BYTES_MAX);
            tracing::info!(%of, ?act, %reason, uid = peer.uid, "an operator decided about a breaker or a runaway");
        }
        Ok(Acted { done, said: said.to_owned(), park: None })
    }

    /// The key that is meant, and its name if there is one.
    fn guarded(&self, of: &Guarded, act: GuardWord) -> Result<(PairKey, Option<Called>), DeskError> {
        let refused = |why: String| Err(DeskError::Refused(why));
        let named = |tenant: &TenantId, kind, what: &str| Called { tenant: tenant.clone(), kind, what: what.into() };
        let (key, called) = match of {
            Guarded::Connector { tenant, what } => match ConnectorId::parse(what) {
                Ok(connector) => (PairKey::connector(tenant, &connector), named(tenant, "connector", what)),
                Err(fault) => return refused(format!("that is no connector: {fault}")),
            },
            Guarded::Destination { tenant, what } => match Authority::with_port(what.as_bytes()) {
                Ok(authority) => {
                    let what = authority.to_string();
                    (PairKey::authority(tenant, &what), named(tenant, "destination", &what))
                }
                Err(fault) => return refused(format!("that is no host:port: {fault}")),
            },
            Guarded::Connection { tenant, what } => {
                // A name that was mistyped would be watched for a week, and nobody would be spared.
                let is_known = self.snapshot.load().connections.get(tenant, what).is_some();
                if matches!(act, GuardWord::Announce { .. }) && !is_known {
                    return refused("the tenant has no connection of this id here".to_owned());
                }
                (PairKey::connection(tenant, what), named(tenant, "connection", what.as_str()))
            }
            Guarded::Automation { tenant, what } if !what.is_empty() && what.len() <= REASON_BYTES_MAX => {
                (PairKey::automation(tenant, what), named(tenant, "automation", what))
            }
            Guarded::Automation { .. } => return refused("that is no automation's name".to_owned()),
            Guarded::Key(digits) => {
                let is_key = digits.len() == 2 * PAIR_KEY_BYTES && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let Some(number) = is_key.then(|| u128::from_str_radix(digits, 16).ok()).flatten() else {
                    return refused(format!("a key is {} hexadecimal digits", 2 * PAIR_KEY_BYTES));
                };
                let key = PairKey::from_bytes(number.to_be_bytes());
                return Ok((key, self.names([key]).remove(&key)));
            }
        };
        Ok((key, Some(called)))
    }

    /// Who stands behind keys: as calls have told, else as it follows from what is configured. What neither says has no
    /// name here: destinations and automations of before a restart that have not called since.
    fn names(&self, keys: impl IntoIterator<Item = PairKey>) -> HashMap<PairKey, Called> {
        let (mut names, mut unknown) = (HashMap::new(), HashSet::new());
        for key in keys {
            if let Some(called) = self.quota.name_of(key) {
                names.insert(key, called);
            } else {
                unknown.insert(key);
            }
        }
        if unknown.is_empty() {
            return names;
        }
        for (tenant, entry) in self.snapshot.load().connections.iter() {
            let connection = &entry.connection;
            let account = PairKey::connection(tenant, connection.id());
            if unknown.remove(&account) {
                let what = connection.id().as_str().into();
                names.insert(account, Called { tenant: tenant.clone(), kind: "connection", what });
            }
            if let Some(key) = connection.breaker_key().filter(|key| unknown.remove(key)) {
                let (kind, what) = connection.breaker_name();
                names.insert(key, Called { tenant: tenant.clone(), kind, what });
            }
        }
        names
    }

    fn now(&self) -> Now {
        Now::of(&*self.quota.clock)
    }
}

fn limit(query: &GuardsQuery) -> Result<usize, DeskError> {
    if (1..=LIMIT_MAX).contains(&query.limit) {
        return Ok(query.limit as usize);
    }
    Err(DeskError::Refused(format!("1 to {LIMIT_MAX} can be asked for")))
}

fn is_of(key: PairKey, tenant: Option<&TenantId>) -> bool {
    tenant.is_none_or(|tenant| {
        key.to_bytes()[..TENANT_BYTES] == PairKey::automation(tenant, "").to_bytes()[..TENANT_BYTES]
    })
}

pub(super) fn who(key: PairKey, called: Option<&Called>) -> WhoLine {
    let digits = format!("{:032x}", u128::from_be_bytes(key.to_bytes()));
    let name = match called.map(Called::whose) {
        Some(Whose { tenant, kind: "automation", what }) => format!("{tenant}/automation:{what}"),
        Some(Whose { tenant, what, .. }) => format!("{tenant}/{what}"),
        None => format!("key:{digits}"),
    };
    WhoLine {
        name,
        key: digits,
        tenant: called.map(|called| called.tenant.clone()),
        kind: called.map(|called| called.kind.to_owned()),
        what: called.map(|called| called.what.clone().into_string()),
    }
}

pub(super) fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Closed => "closed",
        Phase::Open => "open",
        Phase::HalfOpen => "half-open",
    }
}

/// None: it has had no fault lately.
pub(super) fn breaker(who: WhoLine, view: Option<breaker::View>) -> BreakerLine {
    let phase = word(view.map_or(Phase::Closed, |view| view.phase));
    BreakerLine {
        who,
        phase: phase.to_owned(),
        retry_ms: view.map_or(0, |view| view.retry_after_ms),
        times: view.map_or(0, |view| view.times),
        calls: view.map_or(0, |view| view.calls),
        faults: view.map_or(0, |view| view.faults),
    }
}

/// None: it never called.
pub(super) fn runaway(who: WhoLine, view: Option<runaway::View>) -> RunawayLine {
    let (state, throttled_to, paused_since) = match view.map_or(Verdict::Fine, |view| view.verdict) {
        Verdict::Fine => ("fine", None, None),
        Verdict::Throttled { per_minute } => ("throttled", Some(per_minute), None),
        Verdict::Paused { since_unix_ms } => ("paused", None, Some(rfc3339(since_unix_ms))),
    };
    let spike = view.and_then(|view| view.spike);
    RunawayLine {
        who,
        state: state.to_owned(),
        throttled_to,
        paused_since,
        baseline: view.map(|view| view.baseline),
        trigger: view.map(|view| view.trigger),
        wanted: view.map_or(0, |view| view.wanted),
        announced: spike.map(|spike| SpikeLine { factor: spike.factor, until: rfc3339(spike.until_unix_ms) }),
    }
}
