//! Which buckets a connection's calls are of.
//!
//! A profile says which limits a request counts towards and what it costs; that differs by method and path, though by
//! few kinds of requests. So the way through the levels is worked out once for each kind and kept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use config::connector::quota::{Ceiling, ConnectionQuota, QuotaKind, QuotaProfile};
use config::connector::{BreakerFault, Manifest};
use domain::{ConnectionId, TenantId};
use ratelimit::breaker::{self, Fault, Faults};
use ratelimit::quota::holder::{Holder, Need, Per, Route};
use ratelimit::quota::{Application, BucketKey, CAP_MAX, Kind, LEGS_MAX, Level, Metered, Name, Rule, RuleSpec, Share};
use ratelimit::signals::{self, Call, LimitRule, Scopes};
use ratelimit::{PairKey, ProviderKey};

use super::named;
use super::rules::QuotaRules;

const DAY_MS: u64 = 86_400_000;
/// Kinds of requests that are kept for a connection. One more, and all are worked out anew: the profile splits by paths,
/// which are the tenant's.
const LINES_MAX: usize = 256;
/// Of a path as it is kept: longer ones are the tenant's to send, and not ours to keep. No name is as long.
const PART_BYTES_MAX: usize = 128;

/// The policy of a bucket that has no limit and is there to be parked: at each level of which a provider says none.
pub const HEEDED: &str = "any";

/// The rule of such a bucket. It is one that never refuses: the centre has to have one to keep a park by.
pub fn heeded_rule(counting: &signals::Counting) -> Option<Rule> {
    let rule = RuleSpec {
        cfgver: counting.cfgver,
        kind: Kind::Sliding { window_ms: 60_000, slots: 2 },
        cap: CAP_MAX,
        lease_ms: counting.lease_ms,
        guard_ms: counting.guard_ms,
        skew_ms: counting.skew_ms,
    };
    Rule::checked(rule).ok()
}

/// How calls of one connection are counted.
#[derive(Debug)]
pub struct Metering {
    tenant: Name,
    connection: Name,
    application: Application,
    ceiling: Ceiling,
    own: Option<Box<ConnectionQuota>>,
    /// The tenant and the provider: of its breaker and its retry budget.
    pair: PairKey,
    /// The account: what may run away.
    pub(super) account: PairKey,
    /// Of the fleet's breaker; none of what has no connector, where each connection is another provider's.
    provider: Option<ProviderKey>,
    /// What counts against its breaker.
    faults: Faults,
    lines: Mutex<Lines>,
}

/// Worked out for one configuration and one day.
#[derive(Debug, Default)]
struct Lines {
    cfgver: u32,
    share: Option<Share>,
    until_unix_ms: u64,
    known: HashMap<LineKey, Arc<Line>>,
}

/// What tells kinds of requests apart: per limit what it costs, and of which part of the path it is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LineKey {
    costs: Box<[Option<u32>]>,
    parts: Box<[Box<str>]>,
    source: Option<IpAddr>,
}

/// The way of one kind of request.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) route: Route,
    /// By place in the route.
    pub(super) stations: Box<[Station]>,
    /// Throttles in a row.
    pub(super) throttles: AtomicU32,
}

/// One bucket of a line.
#[derive(Debug)]
pub(super) struct Station {
    /// Place in the profile; none of a bucket that is there to be parked only.
    pub(super) limit: Option<u16>,
    pub(super) level: Level,
    pub(super) cap: u32,
}

impl Metering {
    /// Of a tenant's connection, by what the operator's file says of its connector and its own file says of it.
    pub fn new(
        tenant: &TenantId,
        connection: &ConnectionId,
        (manifest, destination): (&Manifest, &str),
        (ceiling, own): (Ceiling, Option<Box<ConnectionQuota>>),
    ) -> Self {
        let name = named::connection(tenant, connection);
        let connector = &manifest.connector;
        let (application, pair) = if manifest.is_generic() {
            (named::own_application(connector, &name), PairKey::authority(tenant, destination))
        } else {
            (named::application(connector), PairKey::connector(tenant, connector))
        };
        Self {
            tenant: named::tenant(tenant),
            connection: name,
            application,
            ceiling,
            own,
            pair,
            account: PairKey::connection(tenant, connection),
            provider: (!manifest.is_generic()).then(|| ProviderKey::of(connector)),
            faults: faults_of(manifest),
            lines: Mutex::default(),
        }
    }

    pub(crate) fn pair(&self) -> PairKey {
        self.pair
    }

    pub(super) fn provider(&self) -> Option<ProviderKey> {
        self.provider
    }

    /// The rules of its breaker.
    pub(super) fn breaker(&self, rules: breaker::Rules) -> breaker::Rules {
        breaker::Rules { counted: self.faults, ..rules }
    }

    /// Whom the provider is told apart by.
    pub(crate) fn application(&self) -> &Application {
        &self.application
    }

    #[cfg(test)]
    pub(super) fn kinds(&self) -> usize {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).known.len()
    }

    pub(super) fn tenant_name(&self) -> &Name {
        &self.tenant
    }

    pub(crate) fn account_name(&self) -> &Name {
        &self.connection
    }

    /// The way of a request. None where the profile breaks a bound of the protocol, which no file that was judged does.
    pub(super) fn line(
        &self,
        manifest: &Manifest,
        call: &Call<'_>,
        source: Option<IpAddr>,
        rules: &QuotaRules,
        (share, now_unix_ms): (Share, u64),
        holder: &Holder,
    ) -> Option<Arc<Line>> {
        let profile = &*manifest.quota;
        let key = LineKey::of(profile, call, source);
        let cfgver = rules.counting.cfgver;
        let until_unix_ms = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.cfgver != cfgver || lines.share != Some(share) || now_unix_ms >= lines.until_unix_ms {
                let until_unix_ms = until(profile, now_unix_ms);
                *lines = Lines { cfgver, share: Some(share), until_unix_ms, known: HashMap::new() };
            }
            if let Some(line) = lines.known.get(&key) {
                return Some(Arc::clone(line));
            }
            lines.until_unix_ms
        };
        let line = Arc::new(self.work_out(manifest, call, source, rules, (share, now_unix_ms), holder)?);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.known.len() >= LINES_MAX {
            lines.known.clear();
        }
        // Another configuration or another day may have come meanwhile: this is of the one before.
        if (lines.cfgver, lines.share, lines.until_unix_ms) == (cfgver, Some(share), until_unix_ms) {
            lines.known.insert(key, Arc::clone(&line));
        }
        Some(line)
    }

    fn work_out(
        &self,
        manifest: &Manifest,
        call: &Call<'_>,
        source: Option<IpAddr>,
        rules: &QuotaRules,
        (share, now_unix_ms): (Share, u64),
        holder: &Holder,
    ) -> Option<Line> {
        let source = source.map(named::source);
        let app = named::name("-");
        let scopes = Scopes { connection: &self.connection, region: None, source: source.as_ref(), app: &app };
        let counting = signals::Counting { now_unix_ms, ..rules.counting };
        let limits = signals::limits(&manifest.quota, (&self.ceiling, self.own.as_deref()), call, &scopes, &counting);
        let mut needs: Vec<(Option<u16>, Need)> = Vec::with_capacity(limits.len() + 2);
        for LimitRule { limit, key, rule, cost, .. } in limits {
            let rule = Rule::checked(rule).inspect_err(|why| {
                let (connector, limit) = (&manifest.connector, &key.policy);
                tracing::error!(%connector, %limit, %why, "a limit cannot be counted and does not hold");
            });
            let Ok(rule) = rule else { continue };
            let application = match &source {
                Some(source) if key.level == Level::Source => named::source_application(&manifest.connector, source),
                Some(_) | None => self.application.clone(),
            };
            let per = if cost == 0 { Per::Nothing } else { Per::Units(cost) };
            let bucket = Metered { key: Arc::new(key), rule: Arc::new(rule) };
            needs.push((Some(limit), Need { application, bucket, per }));
        }
        // What is throttled without a limit that is known has a bucket to be parked in, at both levels.
        for (level, scope) in [(Level::App, &app), (Level::Connection, &self.connection)] {
            if !needs.iter().any(|(_, need)| need.bucket.key.level == level) {
                needs.push((None, self.heeded(level, scope, rules)?));
            }
        }
        let all: Vec<Need> = needs.iter().map(|(_, need)| need.clone()).collect();
        let route = holder.route(&self.tenant, share, &all).inspect_err(|why| {
            let connector = &manifest.connector;
            tracing::error!(%connector, %why, most = LEGS_MAX, "limits of a connector cannot be held together");
        });
        let route = route.ok()?;
        let mut stations: Vec<(usize, Station)> = needs
            .iter()
            .filter_map(|(limit, Need { application, bucket, .. })| {
                let place = route.position(application, &bucket.key)?;
                Some((place, Station { limit: *limit, level: bucket.key.level, cap: bucket.rule.cap }))
            })
            .collect();
        stations.sort_by_key(|(place, _)| *place);
        let stations = stations.into_iter().map(|(_, station)| station).collect();
        Some(Line { route, stations, throttles: AtomicU32::new(0) })
    }

    /// A bucket without a limit.
    fn heeded(&self, level: Level, scope: &Name, rules: &QuotaRules) -> Option<Need> {
        let key = BucketKey { level, scope: scope.clone(), policy: named::name(HEEDED) };
        let bucket = Metered { key: Arc::new(key), rule: Arc::new(heeded_rule(&rules.counting)?) };
        Some(Need { application: self.application.clone(), bucket, per: Per::Nothing })
    }
}

impl LineKey {
    fn of(profile: &QuotaProfile, call: &Call<'_>, source: Option<IpAddr>) -> Self {
        let path = signals::plain_path(call.path);
        let costs = profile.limits.iter().map(|limit| limit.cost_of(call.method, &path)).collect();
        let split = profile.limits.iter().filter(|limit| limit.split_segments > 0);
        let parts = split.map(|limit| part_of(limit.bucket_of(&path))).collect();
        Self { costs, parts, source }
    }
}

/// A part of a path, or what stands for a long one.
fn part_of(path: &str) -> Box<str> {
    if path.len() <= PART_BYTES_MAX { path.into() } else { named::name(path).as_str().into() }
}

fn faults_of(manifest: &Manifest) -> Faults {
    manifest.breaker_faults.iter().fold(Faults::NONE, |faults, fault| {
        faults.with(match fault {
            BreakerFault::Dns => Fault::Dns,
            BreakerFault::Connect => Fault::Connect,
            BreakerFault::Tls => Fault::Tls,
            BreakerFault::Timeout => Fault::Timeout,
            BreakerFault::Broken => Fault::Broken,
            BreakerFault::ServerError => Fault::ServerError,
        })
    })
}

/// Until when a profile's rules are those of now: where days are counted, to the end of this one.
fn until(profile: &QuotaProfile, now_unix_ms: u64) -> u64 {
    let is_daily = profile.limits.iter().any(|limit| matches!(limit.kind, QuotaKind::Daily { .. }));
    if is_daily { now_unix_ms - now_unix_ms % DAY_MS + DAY_MS } else { u64::MAX }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn what_is_kept_of_a_path_is_bounded_and_tells_paths_apart() {
        const { assert!(ratelimit::quota::NAME_BYTES_MAX < PART_BYTES_MAX) };
        let long = |last: &str| part_of(&format!("/{}{last}", "x".repeat(60_000)));
        assert!(long("a").len() <= PART_BYTES_MAX);
        assert_ne!(long("a"), long("b"));
        assert_eq!(&*part_of("/v1/users/7"), "/v1/users/7");
    }
}
