//! Fair shares: the level itself, and a hog among many.

use proptest::prelude::*;

use super::super::shares::{Claim, level};
use super::*;
use crate::quota::answer::Denial;

fn sum(claims: &[Claim], lambda: u64) -> u64 {
    claims.iter().map(|claim| (lambda * claim.weight).max(claim.least).min(claim.most)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// The level is the largest at which all is within the capacity: weighted max-min, with floors and ceilings.
    #[test]
    fn the_level_is_exact(
        claims in prop::collection::vec((1..5_u64, 0..30_u64, 0..400_u64), 1..12),
        capacity in 0..1_500_u64,
    ) {
        let claims: Vec<_> = claims
            .into_iter()
            .map(|(weight, least, more)| Claim { weight, least: least * weight, most: (least + more) * weight })
            .collect();
        let lambda = level(&claims, capacity);
        let floors = sum(&claims, 0);
        prop_assert!(sum(&claims, lambda) <= capacity.max(floors));
        let is_all = claims.iter().all(|claim| lambda * claim.weight >= claim.most);
        prop_assert!(is_all || floors > capacity || sum(&claims, lambda + 1) > capacity, "{lambda} is not the largest");
    }
}

/// A provider's 100 a second. Who asks when, how much it got, and how long it waited.
struct Crowd {
    core: Core,
    bucket: Metered,
    seqs: Vec<u64>,
    waiting: Vec<Vec<u64>>,
    got: Vec<u64>,
    waits_ms: Vec<Vec<u64>>,
}

impl Crowd {
    /// One try of a tenant, for up to `want` of its queue.
    fn serve(&mut self, at: usize, share: Share, rate_milli: u64, now_ms: u64) -> bool {
        let queued = self.waiting[at].len() as u64;
        if queued == 0 {
            return false;
        }
        self.seqs[at] += 1;
        let mut leg = leg(&self.bucket, self.seqs[at], 1, u32::try_from(queued.min(5)).unwrap());
        // What arrives, and what is behind: the call that asks is one that arrives.
        leg.demand_milli = rate_milli + (queued - 1) * 1_000;
        let acquire =
            Acquire { lessee: lessee(1, &format!("t{at}")), class: Class::Interactive, share, legs: vec![leg] };
        let op = Op { application: application(), body: Body::Acquire(acquire) };
        match self.core.step(now_ms, &op).answer {
            Answer::Granted(leases) => {
                for asked_ms in self.waiting[at].drain(..leases[0].units as usize) {
                    self.waits_ms[at].push(now_ms - asked_ms);
                    self.got[at] += 1;
                }
                true
            }
            Answer::Denied { why: Denial::Share | Denial::Exhausted | Denial::Guard, .. } => false,
            answer => panic!("answered {answer:?}"),
        }
    }
}

/// Runs tenants of so many calls a second for `seconds`; what each got, and its waits in order.
fn crowd(kind: Kind, cap: u32, rates: &[u64], shares: &[Share], seconds: u64) -> (Vec<u64>, Vec<Vec<u64>>) {
    let bucket = metered(Level::App, "shared", RuleSpec { lease_ms: 100, guard_ms: 20, ..rule(kind, cap) });
    let count = rates.len();
    let mut crowd = Crowd {
        core: core(),
        bucket,
        seqs: vec![0; count],
        waiting: vec![Vec::new(); count],
        got: vec![0; count],
        waits_ms: vec![Vec::new(); count],
    };
    for tick in 0..seconds * 100 {
        let now_ms = START_MS + tick * 10;
        for (&rate, waiting) in rates.iter().zip(&mut crowd.waiting) {
            let due = (tick + 1) * rate / 100 - tick * rate / 100;
            let room = 2_000_usize.saturating_sub(waiting.len());
            waiting.extend((0..due).map(|_| now_ms).take(room));
        }
        // The hog is always the first to ask.
        for at in 0..count {
            while crowd.serve(at, shares[at], rates[at] * 1_000, now_ms) {}
        }
    }
    crowd.waits_ms.iter_mut().for_each(|waits| waits.sort_unstable());
    (crowd.got, crowd.waits_ms)
}

#[test]
fn twenty_small_tenants_get_all_they_ask_beside_a_hog() {
    for kind in [
        Kind::Bucket { window_ms: 1_000, burst: 100 },
        Kind::Fixed { window_ms: 10_000, offset_ms: 0 },
        Kind::Sliding { window_ms: 10_000, slots: 20 },
    ] {
        let cap = if matches!(kind, Kind::Bucket { .. }) { 100 } else { 1_000 };
        let rates: Vec<u64> = std::iter::once(1_000).chain(std::iter::repeat_n(4, 20)).collect();
        let (got, waits_ms) = crowd(kind, cap, &rates, &[SHARE; 21], 60);
        let small: u64 = got[1..].iter().sum();
        assert!(small >= 20 * 4 * 60 * 96 / 100, "{kind:?}: the small ones got {small}");
        let mut waits: Vec<u64> = waits_ms[1..].iter().flatten().copied().collect();
        waits.sort_unstable();
        let p99_ms = waits[waits.len() * 99 / 100];
        assert!(p99_ms <= 1_000, "{kind:?}: p99 is {p99_ms} ms");
        let total: u64 = got.iter().sum();
        let least = if matches!(kind, Kind::Sliding { .. }) { 83 } else { 93 };
        assert!(total >= 6_000 * least / 100, "{kind:?}: {total} of 6000");
    }
}

#[test]
fn backlogged_tenants_get_in_proportion_to_their_weights() {
    let weight = |weight| Share { weight, ..SHARE };
    let shares = [weight(1), weight(2), weight(5)];
    let (got, _) = crowd(Kind::Bucket { window_ms: 1_000, burst: 100 }, 100, &[500; 3], &shares, 60);
    let per_weight = [got[0], got[1] / 2, got[2] / 5];
    let (least, most) = (per_weight.iter().min().unwrap(), per_weight.iter().max().unwrap());
    // One block of five and what a slot of 100 ms has.
    assert!(most - least <= 5 + 13, "{got:?}");
}

#[test]
fn a_floor_and_a_ceiling_bound_a_share() {
    let shares = [
        Share { weight: 1, floor_permille: 500, ceiling_permille: 1_000 },
        Share { weight: 8, floor_permille: 0, ceiling_permille: 100 },
        SHARE,
    ];
    let (got, _) = crowd(Kind::Bucket { window_ms: 1_000, burst: 100 }, 100, &[500; 3], &shares, 60);
    let percent: Vec<u64> = got.iter().map(|units| units * 100 / 6_000).collect();
    assert!((48..=52).contains(&percent[0]) && (9..=11).contains(&percent[1]) && percent[2] >= 33, "{percent:?}");
}

#[test]
fn slots_of_concurrency_are_asked_back_for_who_has_none() {
    let bucket = metered(Level::App, "slots", rule(Kind::Concurrency, 10));
    let mut core = core();
    let ask = |core: &mut Core, now_ms, at: u128, seq, least, want, held| {
        let mut leg = leg(&bucket, seq, least, want);
        leg.unspent = held;
        core.step(now_ms, &acquire(lessee(at, &format!("t{at}")), vec![leg])).answer
    };
    let mut held = 0;
    for seq in 1..=10 {
        let Answer::Granted(leases) = ask(&mut core, START_MS, 1, seq, held + 1, held + 1, held) else { panic!() };
        held = leases[0].units;
    }
    assert_eq!(held, 10);
    assert!(matches!(ask(&mut core, START_MS + 1, 2, 1, 1, 10, 0), Answer::Denied { why: Denial::Exhausted, .. }));
    let slots = crate::quota::op::Slots { bucket: bucket.clone(), seq: 11, held: 10, heard: 0 };
    let renew = crate::quota::op::Renew { lessee: lessee(1, "t1"), legs: vec![slots] };
    let op = Op { application: application(), body: Body::Renew(renew) };
    let Answer::Renewed(leases) = core.step(START_MS + 2, &op).answer else { panic!() };
    // Both want ten: five each.
    assert_eq!(leases[0].units, 5);
}

/// A slot that begins when the window is used up has nothing, and no share: it says nothing of the next ones.
#[test]
fn nobody_waits_for_a_share_for_longer_than_it_takes_to_change() {
    let bucket = metered(Level::App, "main", rule(Kind::Sliding { window_ms: 10_000, slots: 40 }, 1_000));
    let mut core = core();
    // Nearly all of it is taken while nobody else wants any.
    for seq in 1..=98 {
        let mut leg = leg(&bucket, seq, 10, 10);
        leg.demand_milli = 0;
        assert!(matches!(core.step(START_MS, &acquire(lessee(1, "first"), vec![leg])).answer, Answer::Granted(_)));
    }
    let (mut longest_ms, mut shares) = (0, 0);
    for round in 1..600 {
        for tenant in 0..5 {
            let mut leg = leg(&bucket, round, 6, 6);
            leg.demand_milli = 100_000;
            let op = acquire(lessee(1, &format!("t{tenant}")), vec![leg]);
            let answer = core.step(START_MS + round * 50, &op).answer;
            if let Answer::Denied { why: Denial::Share, retry_ms, .. } = answer {
                (longest_ms, shares) = (longest_ms.max(retry_ms), shares + 1);
            }
        }
    }
    assert!(shares > 0 && longest_ms <= 2_000, "{shares} times, for {longest_ms} ms at most");
}
