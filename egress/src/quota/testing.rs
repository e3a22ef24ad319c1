//! A node's quota for tests, which asks nobody.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use config::connector::Catalogue;
use domain::{Clock, ConnectionId, Secret, TenantId};
use ratelimit::breaker::Breakers;
use ratelimit::breaker::fleet::{FleetBreakers, FleetSettings};
use ratelimit::quota::holder::{BootClock, Holder, Need, Per, Route, Settings};
use ratelimit::quota::{
    Application, BucketKey, Class, HolderId, InProcess, Kind, Level, Metered, Name, Rule, RuleSpec,
};
use ratelimit::retry_budget::{Budget, RetryBudgets};
use ratelimit::runaway::Runaways;
use ratelimit::{Bounds, Now, PairKey, breaker};

use super::metering::Line;
use super::permit::{Leased, Subject};
use super::rules::Shares;
use super::{Guards, Permit, Quota, Silent};
use crate::connections::Entry;
use crate::governed::{Connection, Connector};

pub(crate) fn quota() -> Arc<Quota> {
    let clock: Arc<dyn Clock> = Arc::new(BootClock::default());
    let holder = Holder::new(Settings::default(), HolderId(7), Arc::clone(&clock)).unwrap();
    let bounds = Bounds { per_tenant: 100, total: 1_000 };
    let guards = Guards {
        breakers: Arc::new(Breakers::new(bounds)),
        fleet: Arc::new(FleetBreakers::new(FleetSettings::default(), 7).unwrap()),
        budgets: RetryBudgets::new(bounds),
        runaways: Arc::new(Runaways::new(bounds)),
    };
    Arc::new(Quota::new(clock, holder, guards, Arc::new(Silent)))
}

/// Of a tenant that has so many retries left at a provider.
pub(crate) fn permit_with_retries(floor: u16) -> Permit {
    let (quota, tenant) = (quota(), TenantId::parse("acme").unwrap());
    let (pair, rules) = (PairKey::authority(&tenant, "api.example.com:80"), breaker::Rules::default());
    let ticket = quota.breakers.admit(pair, &rules, Now::of(&*quota.clock)).unwrap();
    let budget = Budget { per_mille: 0, floor, tokens_max: floor };
    let subject = Subject::Destination("api.example.com:80".into());
    Permit::new(quota, (tenant, subject), (pair, rules, budget), (ticket, None))
}

/// A limit of one call, which somebody counts.
pub(crate) fn one_call(quota: &Arc<Quota>) -> Route {
    let (holder, centre) = (quota.holder.clone(), InProcess::volatile(Arc::clone(&quota.clock), 10));
    tokio::spawn(async move {
        holder.run(Arc::new(centre), std::future::pending(), Duration::ZERO).await;
    });
    let name = |text| Name::parse(text).unwrap();
    let kind = Kind::Sliding { window_ms: 60_000, slots: 2 };
    let rule = RuleSpec { cfgver: 1, kind, cap: 1, lease_ms: 2_000, guard_ms: 500, skew_ms: 1_000 };
    let key = BucketKey { level: Level::Connection, scope: name("acme.crm"), policy: name("minute") };
    let bucket = Metered { key: Arc::new(key), rule: Arc::new(Rule::checked(rule).unwrap()) };
    let application = Application { provider: name("generic"), name: name("acme.crm") };
    let needs = [Need { application, bucket, per: Per::Call }];
    quota.holder.route(&name("acme"), Shares::default().usual, &needs).unwrap()
}

/// Of a call that has units.
pub(crate) async fn permit_with_units(quota: &Arc<Quota>, route: &Route) -> Permit {
    let tenant = TenantId::parse("acme").unwrap();
    let (pair, rules) = (PairKey::authority(&tenant, "api.example.com:80"), breaker::Rules::default());
    let ticket = quota.breakers.admit(pair, &rules, Now::of(&*quota.clock)).unwrap();
    let subject = Subject::Destination("api.example.com:80".into());
    let mut permit =
        Permit::new(Arc::clone(quota), (tenant, subject), (pair, rules, Budget::default()), (ticket, None));
    let held = quota.holder.hold(route, Class::Interactive, 1, Some(Duration::from_secs(2))).await.unwrap();
    let line = Line { route: route.clone(), stations: Box::new([]), throttles: AtomicU32::new(0) };
    let entry = Entry { connection: Arc::new(connection()), tls: None };
    permit.leased = Some(Box::new(Leased::new(held, Arc::new(line), Class::Interactive, &entry)));
    permit
}

fn connection() -> Connection {
    let catalogue = Catalogue::shipped().unwrap();
    let manifest = catalogue.manifests().find(|manifest| manifest.is_generic()).unwrap();
    let connector = Arc::new(Connector::new(Arc::clone(manifest)).unwrap());
    let written = config::Connection {
        id: ConnectionId::parse("crm").unwrap(),
        connector: manifest.connector.clone(),
        base_url: "https://api.example.com/".into(),
        credential: Some(0),
        tls: None,
        http2: None,
        quota: None,
        usable: true,
        line: 1,
    };
    let kind = config::CredentialKind::Bearer;
    let value = Some(Secret::new(b"key".to_vec()));
    Connection::new(&written, Some(&config::Credential { id: "cred".into(), kind, value, line: 1 }), &connector)
        .unwrap()
}
