//! A bucket in words and numbers.

use egress::quota::HEEDED;
use ratelimit::quota::{Application, BucketName, BucketView, CAP_MAX, Denial, HolderId, Kind, RefusalView, Rule, Why};

use super::wire::{BucketLine, HolderLine, ParkLine, RefusalLine, RuleLine};
use crate::control::time::rfc3339;

/// As of this moment, on the node that this holder is.
pub(super) fn bucket(application: &Application, view: BucketView, here: HolderId, now_unix_ms: u64) -> BucketLine {
    let name = BucketName { application: application.clone(), key: view.key };
    let holders = view.holders.iter().map(|of| HolderLine {
        holder: of.holder.to_string(),
        here: of.holder == here,
        units: of.units,
        ttl_ms: of.ttl_ms,
    });
    BucketLine {
        bucket: name.to_string(),
        level: name.key.level.word().to_owned(),
        scope: name.key.scope.to_string(),
        policy: name.key.policy.to_string(),
        rule: rule(&name, &view.rule),
        used: view.used,
        room: view.room,
        limit_seen: view.limit_seen,
        park: view.park.map(|of| park(of.ms, of.why, now_unix_ms)),
        released_milli: view.alpha_milli,
        lambda_milli: view.lambda_milli,
        tenants: view.tenants,
        learning_ms: view.learning_ms,
        generation: view.generation,
        holders: holders.collect(),
        refusal: view.refusal.map(refusal),
    }
}

pub(super) fn park(ms: u64, why: Why, now_unix_ms: u64) -> ParkLine {
    ParkLine { ms, until: rfc3339(now_unix_ms.saturating_add(ms)), why: why.word().to_owned() }
}

fn refusal(view: RefusalView) -> RefusalLine {
    let (reason, retry_ms) = match view {
        RefusalView::Parked { ms, why } => (why.word(), ms),
        RefusalView::Learning { ms } => ("learning", ms),
        RefusalView::Denied { retry_ms, why } => (why.word(), retry_ms),
    };
    RefusalLine { reason: reason.to_owned(), retry_ms }
}

fn rule(name: &BucketName, rule: &Rule) -> RuleLine {
    let is_none = rule.cap == CAP_MAX && name.key.policy.as_str() == HEEDED;
    let kind = if is_none { "none" } else { kind(rule.kind) };
    let burst = match rule.kind {
        Kind::Bucket { burst, .. } => Some(burst),
        Kind::Fixed { .. }
        | Kind::Anchored { .. }
        | Kind::Calendar { .. }
        | Kind::Sliding { .. }
        | Kind::Concurrency => None,
    };
    RuleLine {
        kind: kind.to_owned(),
        cap: rule.cap,
        window_ms: rule.window_ms(),
        burst,
        lease_ms: rule.lease_ms,
        version: rule.cfgver,
        words: if is_none { "no limit is known: it is there to be parked".to_owned() } else { words(rule) },
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Fixed { .. } => "fixed",
        Kind::Anchored { .. } => "anchored",
        Kind::Calendar { .. } => "calendar",
        Kind::Sliding { .. } => "sliding",
        Kind::Bucket { .. } => "bucket",
        Kind::Concurrency => "concurrency",
    }
}

fn words(rule: &Rule) -> String {
    let cap = rule.cap;
    match rule.kind {
        Kind::Fixed { window_ms, offset_ms: 0 } => format!("{cap} in each {} of the clock", span(window_ms)),
        Kind::Fixed { window_ms, offset_ms } => {
            format!("{cap} in each {} of the clock, from {} on", span(window_ms), span(offset_ms))
        }
        Kind::Anchored { window_ms, .. } => {
            format!("{cap} in each {}, which begins when the provider says", span(window_ms))
        }
        Kind::Calendar { bounds_ms: [_, ends_ms, _] } => {
            format!("{cap} a day; this one ends at {}", rfc3339(ends_ms))
        }
        Kind::Sliding { window_ms, .. } => format!("{cap} in any {}", span(window_ms)),
        Kind::Bucket { window_ms, burst } => format!("{burst} at once, refilled by {cap} in each {}", span(window_ms)),
        Kind::Concurrency => format!("{cap} at a time"),
    }
}

/// Exactly, in the largest unit that it is whole in.
pub(super) fn span(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let whole = units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ms} ms"), |(unit, word)| format!("{} {word}", ms / unit))
}

/// Why units are not to be had, in a clause that goes on from the bucket's name.
pub(super) fn because(denial: Denial) -> &'static str {
    match denial {
        Denial::Exhausted => "is used up",
        Denial::Share => "has given the tenant its share of the moment",
        Denial::Reserved => "keeps what is left for interactive calls",
        Denial::Paced => "is released step by step after a park",
        Denial::Guard => "is between two windows",
        Denial::OverCap => "never has as many units as the call takes",
        Denial::NoWindow => "has no window that includes now",
        Denial::Full => "is one of more than the centre may have",
    }
}

/// The same of a park.
pub(super) fn parked_because(why: Why) -> &'static str {
    match why {
        Why::Provider => "is parked, since the provider refused a call",
        Why::Exhausted => "is parked, since the provider says that nothing is left",
        Why::Operator => "is parked by an operator",
    }
}

#[cfg(test)]
mod unit {
    use ratelimit::quota::{Level, Name, RuleSpec};

    use super::*;

    #[test]
    fn rules_are_told_as_a_provider_writes_them() {
        let of = |kind, cap, policy: &str| {
            let spec = RuleSpec { cfgver: 7, kind, cap, lease_ms: 500, guard_ms: 100, skew_ms: 0 };
            let name = |text| Name::parse(text).unwrap();
            let key = ratelimit::quota::BucketKey { level: Level::App, scope: name("-"), policy: name(policy) };
            let bucket = BucketName { application: "a:b".parse().unwrap(), key };
            let line = rule(&bucket, &Rule::checked(spec).unwrap());
            (line.kind, line.words)
        };
        let told = |kind, cap| of(kind, cap, "daily").1;
        assert_eq!(told(Kind::Fixed { window_ms: 60_000, offset_ms: 0 }, 100), "100 in each 1 min of the clock");
        assert_eq!(told(Kind::Sliding { window_ms: 10_000, slots: 10 }, 190), "190 in any 10 s");
        assert_eq!(told(Kind::Bucket { window_ms: 1_500, burst: 40 }, 2), "40 at once, refilled by 2 in each 1500 ms");
        assert_eq!(told(Kind::Concurrency, 5), "5 at a time");
        let day = Kind::Calendar { bounds_ms: [1_764_374_400_000, 1_764_460_800_000, 1_764_547_200_000] };
        assert_eq!(told(day, 9), "9 a day; this one ends at 2025-11-30T00:00:00.000Z");
        let any = Kind::Sliding { window_ms: 60_000, slots: 2 };
        assert_eq!(of(any, CAP_MAX, HEEDED).0, "none");
        assert_eq!(of(any, CAP_MAX - 1, HEEDED).0, "sliding", "a limit may be called that, too");
    }
}
