//! Names, rules and routes that all measurements are made of.

use std::sync::Arc;

use ratelimit::quota::holder::{Need, Per};
use ratelimit::quota::{Application, BucketKey, Kind, Level, Metered, Name, Rule, RuleSpec, Share};

pub(super) const SHARE: Share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).expect("letters, digits and dashes")
}

pub(super) fn application(of: &str) -> Application {
    Application { provider: name("bench"), name: name(of) }
}

/// A rule whose leases are valid for so long.
pub(super) fn rule(kind: Kind, cap: u32, lease_ms: u32, guard_ms: u32) -> Arc<Rule> {
    let spec = RuleSpec { cfgver: 1, kind, cap, lease_ms, guard_ms, skew_ms: 0 };
    Arc::new(Rule::checked(spec).expect("its figures are within their bounds"))
}

pub(super) fn metered(level: Level, scope: &str, rule: &Arc<Rule>) -> Metered {
    let key = BucketKey { level, scope: name(scope), policy: name("main") };
    Metered { key: Arc::new(key), rule: Arc::clone(rule) }
}

pub(super) fn need(application: &Application, level: Level, scope: &str, rule: &Arc<Rule>) -> Need {
    Need { application: application.clone(), bucket: metered(level, scope, rule), per: Per::Cost }
}
