//! What must not depend on the order, and what must not change at all.

use proptest::prelude::*;

use super::super::packed::{pack, unpack};
use super::*;
use crate::quota::answer::Denial;
use crate::quota::op::{Observe, Penalise, Why};

fn op(body: Body) -> Op {
    Op { application: application(), body }
}

fn bytes(core: &mut Core, bucket: &Metered) -> Vec<u8> {
    let bucket = core.known_bucket(&application(), &bucket.key).unwrap();
    pack(bucket, &bucket.entries)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Fixed { window_ms: 10_000, offset_ms: 300 }),
        Just(Kind::Sliding { window_ms: 10_000, slots: 10 }),
        Just(Kind::Anchored { window_ms: 10_000, slots: 10 }),
        Just(Kind::Bucket { window_ms: 10_000, burst: 100 }),
        Just(Kind::Calendar { bounds_ms: [START_MS - 5_000, START_MS + 60_000, START_MS + 120_000] }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(800) })]

    /// Observations and penalties that come at one moment merge to the same, in whatever order.
    #[test]
    fn merging_has_no_order(
        kind in kinds(),
        told in prop::collection::vec((0..120_u32, prop::option::of(50..150_u32), prop::option::of(2_000..9_000_u64)), 1..6),
        parks in prop::collection::vec(1..5_000_u64, 0..4),
        swaps in prop::collection::vec((0..10_usize, 0..10_usize), 0..12),
    ) {
        let bucket = metered(Level::Connection, "b", rule(kind, 100));
        let mut before = core();
        let taken = acquire(lessee(1, "t"), vec![leg(&bucket, 1, 5, 5)]);
        let Answer::Granted(leases) = before.step(START_MS + 400, &taken).answer else { panic!("not granted") };
        let wid = leases[0].tally.wid;
        let mut ops: Vec<Op> = told
            .into_iter()
            .map(|(remaining, limit, reset_ms)| {
                let remaining = Some(remaining);
                op(Body::Observe(Observe { bucket: bucket.clone(), wid, limit, remaining, reset_ms }))
            })
            .collect();
        let generation = Some(leases[0].generation);
        ops.extend(parks.into_iter().map(|delta_ms| {
            op(Body::Penalise(Penalise { bucket: bucket.clone(), delta_ms, generation, why: Why::Provider }))
        }));
        let mut swapped = ops.clone();
        for (one, other) in swaps {
            let count = swapped.len();
            swapped.swap(one % count, other % count);
        }
        let run = |ops: &[Op]| {
            let mut core = before.clone();
            for op in ops {
                core.step(START_MS + 400, op);
            }
            bytes(&mut core, &bucket)
        };
        prop_assert_eq!(run(&ops), run(&swapped));
    }

    /// A change of cap and window leaves what was used, and a debt is the same in units at any rate.
    #[test]
    fn a_change_of_rule_keeps_what_is_used(
        kind in kinds(),
        taken in 1..60_u32,
        changes in prop::collection::vec((10..300_u32, 1..400_u64), 1..6),
    ) {
        let at = |cfgver, cap| metered(Level::Connection, "b", RuleSpec { cfgver, ..rule(kind, cap) });
        let mut core = core();
        let first = acquire(lessee(1, "t"), vec![leg(&at(1, 100), 1, taken, taken)]);
        prop_assert!(matches!(core.step(START_MS + 400, &first).answer, Answer::Granted(_)));
        let mut now_ms = START_MS + 400;
        let (mut generation, mut cap_before) = (0, 100);
        let mut drained = 0;
        for (step, (cap, wait_ms)) in changes.into_iter().enumerate() {
            // What drained under the old rate drained; nothing else did.
            if let Kind::Bucket { window_ms, .. } = kind {
                drained += wait_ms * u64::from(cap_before) / window_ms + 1;
            }
            now_ms += wait_ms;
            let metered = at(u32::try_from(step).unwrap() + 2, cap);
            core.step(now_ms, &acquire(lessee(2, "t"), vec![leg(&metered, step as u64 + 1, 0, 0)]));
            let bucket = core.known_bucket(&application(), &metered.key).unwrap();
            let used = bucket.used();
            prop_assert!(used <= u64::from(taken) && used + drained >= u64::from(taken), "{used} of {taken}");
            prop_assert_eq!(bucket.rule.cap, cap);
            prop_assert!(bucket.generation >= generation && (cap >= cap_before || bucket.generation > generation));
            (generation, cap_before) = (bucket.generation, cap);
        }
    }

    /// Within δ of a release at most α·r·δ + 1 are granted, in whatever blocks they are asked for.
    #[test]
    fn a_release_grants_no_more_than_its_pace(
        kind in kinds(),
        penalties in 1..5_u32,
        asks in prop::collection::vec((0..400_u64, 1..30_u32), 1..60),
    ) {
        let cap = 100;
        let bucket = metered(Level::Connection, "b", rule(kind, cap));
        let mut core = core();
        for _ in 0..penalties {
            let penalise = Penalise { bucket: bucket.clone(), delta_ms: 100, generation: None, why: Why::Provider };
            core.step(START_MS, &op(Body::Penalise(penalise)));
        }
        let released_ms = START_MS + 100;
        let alpha = u128::from((1_000_u64 >> penalties).max(62));
        let (mut now_ms, mut granted) = (released_ms, 0_u128);
        for (seq, (wait_ms, want)) in asks.into_iter().enumerate() {
            now_ms += wait_ms;
            // Before the first clean span gives some of it back.
            if now_ms >= released_ms + 10_000 {
                break;
            }
            let ask = acquire(lessee(1, "t"), vec![leg(&bucket, seq as u64 + 1, 1, want)]);
            if let Answer::Granted(leases) = core.step(now_ms, &ask).answer {
                granted += u128::from(leases[0].units);
            }
            let within_ms = u128::from(now_ms - released_ms);
            let window_ms = u128::from(bucket.rule.release_window_ms());
            let most = alpha * u128::from(cap) * within_ms / (1_000 * window_ms) + 1;
            prop_assert!(granted <= most, "{granted} within {within_ms} ms, {most} allowed");
        }
    }

    /// Bytes that nobody wrote are no bucket, or one that can be used; never a panic.
    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(mut bucket) = unpack(&bytes) {
            bucket.meter.used();
            bucket.forget(START_MS);
        }
        let mut core = core();
        core.restore(&bytes);
    }
}

#[test]
fn a_clock_that_steps_back_grants_nothing_twice() {
    let bucket = metered(Level::Connection, "b", rule(Kind::Fixed { window_ms: 10_000, offset_ms: 0 }, 10));
    let mut core = core();
    let ask =
        |core: &mut Core, seq, now_ms| core.step(now_ms, &acquire(lessee(1, "t"), vec![leg(&bucket, seq, 10, 10)]));
    assert!(matches!(ask(&mut core, 1, START_MS + 10_100).answer, Answer::Granted(_)));
    for (seq, now_ms) in [(2, START_MS + 100), (3, START_MS - 3_600_000), (4, 0), (5, START_MS + 19_000)] {
        assert!(matches!(ask(&mut core, seq, now_ms).answer, Answer::Denied { .. }), "at {now_ms}");
    }
    assert!(matches!(ask(&mut core, 6, START_MS + 20_000).answer, Answer::Granted(_)));
}

#[test]
fn days_are_those_that_the_caller_gives() {
    const DAY: u64 = 86_400_000;
    let at = |cfgver, bounds_ms| {
        metered(Level::Connection, "daily", RuleSpec { cfgver, ..rule(Kind::Calendar { bounds_ms }, 10) })
    };
    let first = at(1, [START_MS - 5_000, START_MS + 1_000, START_MS + 1_000 + DAY]);
    let mut core = core();
    let ask = |core: &mut Core, bucket: &Metered, seq, now_ms| {
        core.step(now_ms, &acquire(lessee(1, "t"), vec![leg(bucket, seq, 10, 10)])).answer
    };
    assert!(matches!(ask(&mut core, &first, 1, START_MS), Answer::Granted(_)));
    assert!(matches!(ask(&mut core, &first, 2, START_MS + 500), Answer::Denied { .. }));
    // The second day of those that were given; then none, until later ones are given under the same version.
    assert!(matches!(ask(&mut core, &first, 3, START_MS + 1_000), Answer::Granted(_)));
    let after_ms = START_MS + 1_000 + DAY;
    assert!(matches!(ask(&mut core, &first, 4, after_ms), Answer::Denied { why: Denial::NoWindow, .. }));
    let later = at(1, [START_MS + 1_000, after_ms, after_ms + DAY]);
    assert!(matches!(ask(&mut core, &later, 5, after_ms), Answer::Granted(_)));
    // A node that still has the earlier ones changes nothing, and midnight elsewhere resets nothing that overlaps.
    assert!(matches!(ask(&mut core, &first, 6, after_ms + 1), Answer::Denied { why: Denial::Exhausted, .. }));
    let moved = at(2, [after_ms - 3_600_000, after_ms + 3_600_000, after_ms + DAY]);
    assert!(matches!(ask(&mut core, &moved, 7, after_ms + 2), Answer::Denied { why: Denial::Exhausted, .. }));
}

#[test]
fn a_learned_end_begins_a_window_anew_and_lies_do_not() {
    let bucket = metered(Level::Connection, "b", rule(Kind::Anchored { window_ms: 10_000, slots: 10 }, 10));
    let mut core = core();
    let mut seq = 0;
    let mut ask = |core: &mut Core, now_ms, want| {
        seq += 1;
        core.step(now_ms, &acquire(lessee(1, "t"), vec![leg(&bucket, seq, want, want)])).answer
    };
    let observe = |core: &mut Core, now_ms: u64, reset_ms| {
        let wid = core.known_bucket(&application(), &bucket.key).unwrap().wid(now_ms);
        let told = Observe { bucket: bucket.clone(), wid, limit: None, remaining: None, reset_ms: Some(reset_ms) };
        core.step(now_ms, &op(Body::Observe(told)));
    };
    assert!(matches!(ask(&mut core, START_MS, 10), Answer::Granted(_)));
    observe(&mut core, START_MS + 100, 4_000);
    assert!(matches!(ask(&mut core, START_MS + 3_900, 1), Answer::Denied { .. }));
    // The window that was told to end has ended, long before ten seconds are over.
    assert!(matches!(ask(&mut core, START_MS + 4_200, 10), Answer::Granted(_)));
    // Another end so soon is none.
    observe(&mut core, START_MS + 4_300, 100);
    assert!(matches!(ask(&mut core, START_MS + 5_500, 1), Answer::Denied { .. }));
}

/// Found by a change that no schedule noticed: crediting all of it would grant what never refilled.
#[test]
fn what_comes_back_to_a_bucket_is_what_has_not_drained() {
    let bucket = metered(Level::Connection, "b", rule(Kind::Bucket { window_ms: 1_000, burst: 30 }, 1));
    let mut core = core();
    let Answer::Granted(leases) = core.step(START_MS, &acquire(lessee(1, "t"), vec![leg(&bucket, 1, 10, 10)])).answer
    else {
        panic!("not granted")
    };
    // Ten seconds later the ten have drained, unspent as they are, and nothing drains from an empty bucket.
    let now_ms = START_MS + 10_000;
    let other = acquire(lessee(2, "t"), vec![leg(&bucket, 1, 20, 20)]);
    assert!(matches!(core.step(now_ms, &other).answer, Answer::Granted(_)));
    let (generation, wid) = (leases[0].generation, leases[0].tally.wid);
    let unspent = crate::quota::op::Unspent { key: Arc::clone(&bucket.key), seq: 1, generation, wid, units: 10 };
    let back = crate::quota::op::GiveBack { lessee: lessee(1, "t"), legs: vec![unspent] };
    core.step(now_ms, &op(Body::GiveBack(back)));
    assert_eq!(core.known_bucket(&application(), &bucket.key).unwrap().used(), 20);
}

/// A unit of a sub-slot that ends 500 ms after the start may arrive another 600 ms later, and is in any window of four
/// seconds that begins before that.
#[test]
fn a_sub_slot_counts_for_as_long_as_its_leases_may_be_spent() {
    let bucket = metered(Level::Connection, "b", rule(Kind::Sliding { window_ms: 4_000, slots: 8 }, 10));
    let mut core = core();
    let ask = |core: &mut Core, seq, now_ms| {
        core.step(now_ms, &acquire(lessee(1, "t"), vec![leg(&bucket, seq, 1, 1)])).answer
    };
    for seq in 1..=10 {
        assert!(matches!(ask(&mut core, seq, START_MS), Answer::Granted(_)));
    }
    let ends_ms = START_MS + 500 + 600 + 4_000;
    for (seq, now_ms) in [(11, START_MS + 1), (12, START_MS + 4_500), (13, ends_ms - 1)] {
        match ask(&mut core, seq, now_ms) {
            Answer::Denied { retry_ms, .. } => assert_eq!(now_ms + retry_ms, ends_ms),
            answer => panic!("{answer:?} at {now_ms}"),
        }
    }
    assert!(matches!(ask(&mut core, 14, ends_ms), Answer::Granted(_)));
}

/// Who comes back in the afternoon is still known to have been granted what it remembers.
#[test]
fn a_sweep_forgets_no_tally_that_matters() {
    let bucket = metered(Level::Connection, "b", rule(Kind::Fixed { window_ms: 86_400_000, offset_ms: 0 }, 100));
    let mut core = core();
    let morning = acquire(lessee(1, "t"), vec![leg(&bucket, 1, 5, 5)]);
    let Answer::Granted(leases) = core.step(START_MS, &morning).answer else { panic!("not granted") };
    let mut now_ms = START_MS;
    for _ in 0..30 {
        now_ms += 600_000;
        core.sweep(now_ms, &mut SweepCursor::default(), 100);
    }
    let mut told = leg(&bucket, 2, 1, 1);
    (told.tally, told.heard) = (leases[0].tally, leases[0].generation);
    assert!(matches!(core.step(now_ms, &acquire(lessee(1, "t"), vec![told])).answer, Answer::Granted(_)));
    assert_eq!(core.known_bucket(&application(), &bucket.key).unwrap().used(), 6);
    // The day after there is nothing to remember.
    core.sweep(now_ms + 2 * 86_400_000, &mut SweepCursor::default(), 100);
    core.sweep(now_ms + 4 * 86_400_000, &mut SweepCursor::default(), 100);
    assert_eq!(core.buckets(), 0);
}
