use std::sync::Arc;

use config::connector::quota::{Ceiling, QuotaLimit, RequestMatch};
use config::connector::{Catalogue, Manifest};
use domain::{ConnectionId, SystemClock, TenantId};
use ratelimit::quota::holder::{BootClock, Holder, Settings};
use ratelimit::quota::{HolderId, LEGS_MAX, Level};
use ratelimit::signals::Call;

use super::metering::{Line, Metering};
use super::rules::{QuotaRules, Shares};

fn holder() -> Holder {
    Holder::new(Settings::default(), HolderId(7), Arc::new(BootClock::default())).unwrap()
}

fn metering(manifest: &Manifest) -> Metering {
    let (tenant, connection) = (TenantId::parse("acme").unwrap(), ConnectionId::parse("crm").unwrap());
    Metering::new(&tenant, &connection, (manifest, "api.example.com:443"), (Ceiling::default(), None))
}

fn line(metering: &Metering, manifest: &Manifest, method: &str, path: &str, holder: &Holder) -> Arc<Line> {
    let call = Call { method, path, throttles_before: 0 };
    let (share, now_unix_ms) = (Shares::default().usual, SystemClock::shared().unix_ms());
    let source = Some("192.0.2.1".parse().unwrap());
    metering.line(manifest, &call, source, &QuotaRules::default(), (share, now_unix_ms), holder).unwrap()
}

/// Every kind of request that a profile tells apart, and one that it does not.
fn requests(manifest: &Manifest) -> Vec<(String, String)> {
    let of = |one: &RequestMatch| {
        let methods = if one.methods.is_empty() { vec!["GET".into()] } else { one.methods.to_vec() };
        let paths = if one.paths.is_empty() { vec!["/".into()] } else { one.paths.to_vec() };
        methods.into_iter().flat_map(move |method| {
            paths.iter().map(|path| (method.to_string(), path.replace('*', "x"))).collect::<Vec<_>>()
        })
    };
    let told = |limit: &QuotaLimit| {
        let costs = limit.costs.iter().map(|(one, _)| one.clone());
        limit.counts.iter().chain(&limit.except).cloned().chain(costs).flat_map(|one| of(&one)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = manifest.quota.limits.iter().flat_map(told).collect();
    all.extend(["GET", "POST", "DELETE"].map(|method| (method.to_owned(), "/v1/anything/else".to_owned())));
    all
}

#[test]
fn every_request_of_every_connector_can_be_counted_by_all_of_its_limits() {
    let (holder, catalogue) = (holder(), Catalogue::shipped().unwrap());
    let mut limited = 0;
    for manifest in catalogue.manifests() {
        let metering = metering(manifest);
        for (method, path) in requests(manifest) {
            let line = line(&metering, manifest, &method, &path, &holder);
            let counted = manifest.quota.limits.iter().filter(|limit| limit.cost_of(&method, &path).is_some()).count();
            let of_limits = line.stations.iter().filter(|station| station.limit.is_some()).count();
            assert_eq!(of_limits, counted, "{}: {method} {path}", manifest.connector);
            assert!(line.route.len() <= LEGS_MAX);
            for level in [Level::App, Level::Connection] {
                let any = line.stations.iter().any(|station| station.level == level);
                assert!(any, "{}: {method} {path} has nothing at {level} to be parked", manifest.connector);
            }
            limited += of_limits;
        }
    }
    assert!(limited > 100, "{limited}");
}

#[test]
fn lines_are_worked_out_once_for_a_kind_of_request() {
    let (holder, catalogue) = (holder(), Catalogue::shipped().unwrap());
    let manifest = catalogue.manifests().find(|manifest| manifest.connector.as_str() == "hubspot").unwrap();
    let metering = metering(manifest);
    let first = line(&metering, manifest, "GET", "/crm/v3/objects/contacts/1", &holder);
    let again = line(&metering, manifest, "GET", "/crm/v3/objects/contacts/2", &holder);
    assert!(Arc::ptr_eq(&first, &again));
    for number in 0..1_000 {
        line(&metering, manifest, "GET", &format!("/x{number}/y"), &holder);
    }
    // Kinds are bounded, whatever a tenant asks for.
    assert!(metering.kinds() <= 256, "{}", metering.kinds());
}

#[test]
fn tenants_share_an_application_and_never_a_connection() {
    let (holder, catalogue) = (holder(), Catalogue::shipped().unwrap());
    let manifest = catalogue.manifests().find(|manifest| !manifest.is_generic()).unwrap();
    let generic = catalogue.manifests().find(|manifest| manifest.is_generic()).unwrap();
    let of = |tenant: &str, manifest: &Manifest| {
        let (tenant, connection) = (TenantId::parse(tenant).unwrap(), ConnectionId::parse("crm").unwrap());
        let metering =
            Metering::new(&tenant, &connection, (manifest, "api.example.com:443"), (Ceiling::default(), None));
        let line = line(&metering, manifest, "GET", "/", &holder);
        let keys = (0..line.stations.len()).map(|at| line.route.key(at).unwrap());
        let keys: Vec<_> = keys.map(|(application, key)| (key.level, format!("{application}/{key}"))).collect();
        let at = |level| keys.iter().find(|(other, _)| *other == level).map(|(_, key)| key.clone()).unwrap();
        (at(Level::App), at(Level::Connection))
    };
    let (one, two) = (of("acme", manifest), of("beta", manifest));
    assert_eq!(one.0, two.0);
    assert_ne!(one.1, two.1);
    // What has no connector is each one's own.
    assert_ne!(of("acme", generic).0, of("beta", generic).0);
}
