//! Holders, a centre and a provider that counts strictly, together and under faults.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test may"
)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures of a simulation"
)]

mod fairness;
mod faults;
mod figures;
mod operations;
mod parks;

use tidegate_ratelimit::quota::{Kind, Rule, RuleSpec};

/// A rule of each kind whose guard is as long as the longest way to the provider.
pub(crate) fn rule(kind: Kind, cap: u32, lease_ms: u32, guard_ms: u32, skew_ms: u32) -> Rule {
    Rule::checked(RuleSpec { cfgver: 1, kind, cap, lease_ms, guard_ms, skew_ms }).unwrap()
}

pub(crate) fn kinds() -> [(&'static str, Rule); 4] {
    [
        ("fixed", rule(Kind::Fixed { window_ms: 10_000, offset_ms: 0 }, 400, 800, 250, 0)),
        ("sliding", rule(Kind::Sliding { window_ms: 10_000, slots: 40 }, 400, 800, 250, 0)),
        ("bucket", rule(Kind::Bucket { window_ms: 1_000, burst: 100 }, 50, 500, 250, 0)),
        ("concurrent", rule(Kind::Concurrency, 20, 3_000, 0, 0)),
    ]
}
