//! Tests of the centre: each kind and rule by hand, then everything at once by random schedules.

#![allow(clippy::wildcard_enum_match_arm, reason = "what else is answered fails the test, and is shown")]

mod fleet;
mod orders;
mod providers;
mod schedules;
mod shares;

use std::sync::Arc;

use super::*;
use crate::quota::key::Level;
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Acquire, Class, Leg, Share, Tally};
use crate::quota::rule::{Kind, RuleSpec};

/// A time at which windows of 1, 4, 10 and 60 s begin.
pub(super) const START_MS: u64 = 1_800_000_000_000;

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(super) fn application() -> Application {
    Application { provider: name("acme"), name: name("main") }
}

pub(super) fn rule(kind: Kind, cap: u32) -> RuleSpec {
    RuleSpec { cfgver: 1, kind, cap, lease_ms: 500, guard_ms: 100, skew_ms: 0 }
}

pub(super) fn metered(level: Level, policy: &str, spec: RuleSpec) -> Metered {
    let key = BucketKey { level, scope: name("c1"), policy: name(policy) };
    Metered { key: Arc::new(key), rule: Arc::new(Rule::checked(spec).unwrap()) }
}

pub(super) fn lessee(holder: u128, tenant: &str) -> Lessee {
    Lessee { holder: HolderId(holder), tenant: name(tenant) }
}

pub(super) fn leg(bucket: &Metered, seq: u64, least: u32, want: u32) -> Leg {
    let (unspent, demand_milli, tally, heard) = (0, u64::from(want) * 1_000, Tally::default(), 0);
    Leg { bucket: bucket.clone(), seq, least, want, unspent, demand_milli, tally, heard }
}

pub(super) const SHARE: Share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };

pub(super) fn acquire(lessee: Lessee, legs: Vec<Leg>) -> Op {
    let acquire = Acquire { lessee, class: Class::Interactive, share: SHARE, legs };
    Op { application: application(), body: Body::Acquire(acquire) }
}

pub(super) fn core() -> Core {
    Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, 1_000)
}
