//! Every shipped limit is one that leases can be counted by.

use config::connector::quota::Ceiling;

use super::*;
use crate::quota::{Kind, Level, Name, Rule};

const COUNTING: Counting =
    Counting { cfgver: 1, lease_ms: 500, slot_lease_ms: 60_000, guard_ms: 500, skew_ms: 2_000, now_unix_ms: DATE_MS };

#[test]
fn every_shipped_limit_makes_a_rule() {
    let (app, connection) = (Name::parse("-").unwrap(), Name::parse("conn_1").unwrap());
    let scopes = Scopes { connection: &connection, region: None, source: None, app: &app };
    let mut count = 0;
    for manifest in Catalogue::shipped().unwrap().manifests() {
        let profile = &manifest.quota;
        for (place, limit) in (0..).zip(&*profile.limits) {
            let tiers = 0..u8::try_from(profile.tiers.len().max(1)).unwrap();
            for spec in tiers.map(|tier| rule_spec(limit, limit.of_tier(tier), &COUNTING)) {
                Rule::checked(spec).unwrap_or_else(|fault| panic!("{} {}: {fault}", manifest.connector, limit.name));
                count += 1;
            }
            assert_eq!(profile.cap(place, &Ceiling::default(), None), Some(limit.of_tier(0)));
        }
        let call = Call { method: "POST", path: "/gmail/v1/users/me/messages/send", throttles_before: 0 };
        for rule in limits(profile, (&Ceiling::default(), None), &call, &scopes, &COUNTING) {
            let scope = if rule.key.level == Level::Connection { &connection } else { &app };
            assert_eq!(&rule.key.scope, scope);
        }
    }
    assert!(count >= 80, "{count}");
}

#[test]
fn a_call_costs_and_counts_where_its_profile_says() {
    let (app, connection) = (Name::parse("-").unwrap(), Name::parse("conn_1").unwrap());
    let scopes = Scopes { connection: &connection, region: None, source: None, app: &app };
    let of = |name: &str, method, path| -> Vec<String> {
        let manifest = manifest(name);
        let call = Call { method, path, throttles_before: 0 };
        let rules = limits(&manifest.quota, (&Ceiling::default(), None), &call, &scopes, &COUNTING);
        rules.into_iter().map(|rule| format!("{} {}", rule.key, rule.cost)).collect()
    };
    assert_eq!(
        of("google", "POST", "/gmail/v1/users/me/messages/send"),
        ["app:-:gmail-project 100", "connection:conn_1:gmail-user 100"]
    );
    assert_eq!(of("google", "POST", "/%67mail/v1/users/me/messages/%73end").len(), 2, "encoded is no way out");
    assert!(of("google", "GET", "/drive/v3/files").is_empty());
    assert_eq!(of("shopify", "POST", "/admin/api/2026-01/graphql.json"), ["connection:conn_1:graphql 10"]);
    let slack = of("slack", "POST", "/api/chat.postMessage");
    assert!(slack.len() == 1 && slack[0].starts_with("connection:conn_1:tier-3."), "{slack:?}");
    assert_ne!(slack, of("slack", "POST", "/api/chat.update"), "each method for itself");
    assert_eq!(of("airtable", "GET", "/v0/appA/x")[0], of("airtable", "GET", "/v0/appA/y")[0]);
    assert_ne!(of("airtable", "GET", "/v0/appA/x")[0], of("airtable", "GET", "/v0/appB/x")[0]);
    let github = of("github", "GET", "/search/code");
    assert_eq!(github, ["connection:conn_1:search 1", "connection:conn_1:concurrent 1", "connection:conn_1:points 1"]);
    let manifest = manifest("zoom");
    let (_, day) = manifest.quota.limit("heavy-day").unwrap();
    let Kind::Calendar { bounds_ms } = rule_spec(day, (5, None), &COUNTING).kind else { panic!("no calendar") };
    assert_eq!(bounds_ms, [1_774_483_200_000, 1_774_569_600_000, 1_774_656_000_000]);
}
