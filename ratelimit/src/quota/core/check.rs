//! The bounds of an operation, before anything is done.

use std::sync::Arc;

use crate::quota::answer::Malformed;
use crate::quota::key::BucketKey;
use crate::quota::op::{Acquire, Body, DEMAND_MILLI_MAX, LEGS_MAX, Op, PAGE_MAX, Renew, Settle, Tally, WEIGHT_MAX};
use crate::quota::rule::CAP_MAX;

/// Integers up to here are exact in a store that counts in doubles.
const EXACT_MAX: u64 = 1 << 53;

/// Which bound the operation breaks, if it breaks one.
pub(in crate::quota) fn malformed(op: &Op) -> Option<Malformed> {
    match &op.body {
        Body::Acquire(acquire) => acquiring(acquire),
        Body::GiveBack(back) => legs(back.legs.iter().map(|leg| &leg.key))
            .or_else(|| back.legs.iter().find_map(|leg| seq(leg.seq).or_else(|| count(u64::from(leg.units))))),
        Body::Renew(renew) => renewing(renew),
        Body::Observe(observe) => {
            let counts = [observe.limit.map(u64::from), observe.remaining.map(u64::from)];
            counts.into_iter().flatten().find_map(count)
        }
        Body::Settle(settle) => settling(settle),
        Body::Describe(describe) if !(1..=PAGE_MAX).contains(&describe.limit) => Some(Malformed::Page),
        Body::Penalise(_) | Body::Release(_) | Body::Reset(_) | Body::Describe(_) => None,
    }
}

fn acquiring(acquire: &Acquire) -> Option<Malformed> {
    let share = acquire.share;
    let is_share = (1..=WEIGHT_MAX).contains(&share.weight)
        && share.floor_permille <= share.ceiling_permille
        && (1..=1_000).contains(&share.ceiling_permille);
    if !is_share {
        return Some(Malformed::Share);
    }
    legs(acquire.legs.iter().map(|leg| &leg.bucket.key)).or_else(|| {
        acquire.legs.iter().find_map(|leg| {
            if leg.want < leg.least.max(leg.unspent) {
                return Some(Malformed::Want);
            }
            if leg.demand_milli > DEMAND_MILLI_MAX {
                return Some(Malformed::Share);
            }
            seq(leg.seq)
                .or_else(|| count(u64::from(leg.want)))
                .or_else(|| tally(leg.tally))
                .or_else(|| heard(leg.heard))
        })
    })
}

fn renewing(renew: &Renew) -> Option<Malformed> {
    legs(renew.legs.iter().map(|leg| &leg.bucket.key)).or_else(|| {
        renew.legs.iter().find_map(|leg| {
            if leg.bucket.rule.is_rate() {
                return Some(Malformed::Renewal);
            }
            seq(leg.seq).or_else(|| count(u64::from(leg.held))).or_else(|| heard(leg.heard))
        })
    })
}

fn settling(settle: &Settle) -> Option<Malformed> {
    seq(settle.seq).or_else(|| count(u64::from(settle.estimate))).or_else(|| count(u64::from(settle.actual)))
}

fn legs<'a>(keys: impl Iterator<Item = &'a Arc<BucketKey>>) -> Option<Malformed> {
    let keys: Vec<_> = keys.take(LEGS_MAX + 1).collect();
    if !(1..=LEGS_MAX).contains(&keys.len()) {
        return Some(Malformed::Legs);
    }
    let is_twice = keys.iter().enumerate().any(|(at, key)| keys[..at].contains(key));
    is_twice.then_some(Malformed::Twice)
}

fn seq(seq: u64) -> Option<Malformed> {
    if (1..=EXACT_MAX).contains(&seq) { None } else { Some(Malformed::Seq) }
}

fn count(units: u64) -> Option<Malformed> {
    if units <= u64::from(CAP_MAX) { None } else { Some(Malformed::Count) }
}

fn heard(generation: u64) -> Option<Malformed> {
    if generation <= EXACT_MAX { None } else { Some(Malformed::Count) }
}

fn tally(tally: Tally) -> Option<Malformed> {
    let is_exact = tally.wid <= EXACT_MAX && tally.units <= EXACT_MAX && tally.before <= EXACT_MAX;
    if is_exact { None } else { Some(Malformed::Count) }
}
