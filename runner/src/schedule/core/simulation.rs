//! A noisy neighbour in virtual time. The figures are in the test's output.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tests::{at, run, tenant};
use super::*;

/// One tenant of a scenario.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Runs that are there at the beginning.
    burst: u64,
    /// One more each so many milliseconds.
    every_ms: Option<u64>,
    class: QueueClass,
}

/// What tenants waited, and had.
#[derive(Debug)]
struct Outcome {
    /// By tenant, in order.
    waits_ms: Vec<Vec<u64>>,
    /// Slot-milliseconds by tenant.
    used_ms: Vec<u64>,
}

impl Outcome {
    fn quantile_ms(&self, tenants: std::ops::Range<usize>, per_mille: usize) -> u64 {
        let mut waits: Vec<u64> = self.waits_ms[tenants].iter().flatten().copied().collect();
        waits.sort_unstable();
        waits[(waits.len() * per_mille / 1000).min(waits.len() - 1)]
    }
}

/// A sequence that looks random and is always the same (Numerical Recipes' constants).
#[derive(Debug)]
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Runs take `turn_ms` on average, between half and one and a half of it; `long_per_mille` of them ten times that.
fn simulate(slots: u32, loads: &[Load], turn_ms: u64, long_per_mille: u64, seconds: u64) -> Outcome {
    let mut core = Core::new(Limits::of_slots(slots));
    let mut seeded = Seeded(7);
    let mut number = 0;
    let mut outcome = Outcome { waits_ms: vec![Vec::new(); loads.len()], used_ms: vec![0; loads.len()] };
    let mut hand_in = |core: &mut Core, of: usize, now: u64| {
        number += 1;
        core.enqueue(at(now), &tenant(of), Member::of(0), run(number), loads[of].class);
    };
    for (of, load) in loads.iter().enumerate() {
        (0..load.burst).for_each(|_| hand_in(&mut core, of, 0));
    }
    let mut ends: BinaryHeap<Reverse<(u64, u32, usize)>> = BinaryHeap::new();
    for now in 0..seconds * 1000 {
        for (of, load) in loads.iter().enumerate() {
            // Not all at the same moment.
            let phase = of as u64 * 37;
            if load.every_ms.is_some_and(|every| now >= phase && (now - phase).is_multiple_of(every)) {
                hand_in(&mut core, of, now);
            }
        }
        while let Some(Reverse((_, slot, _))) = ends.peek().filter(|Reverse((end, ..))| *end <= now) {
            core.finish(at(now), *slot, Left::Over);
            ends.pop();
        }
        core.release(at(now), 1024);
        while let Some(picked) = core.next(at(now)) {
            let of = (0..loads.len()).find(|of| tenant(*of) == picked.tenant).unwrap();
            outcome.waits_ms[of].push(picked.waited_ms);
            let factor = if seeded.below(1000) < long_per_mille { 10 } else { 1 };
            let takes = (turn_ms / 2 + seeded.below(turn_ms.max(1))) * factor;
            outcome.used_ms[of] += takes;
            ends.push(Reverse((now + takes.max(1), picked.slot, of)));
        }
    }
    outcome
}

/// The first is the hog.
fn neighbours(hog: Load, small: usize, every_ms: u64) -> Vec<Load> {
    let quiet = Load { burst: 0, every_ms: Some(every_ms), class: QueueClass::Interactive };
    std::iter::once(hog).chain(std::iter::repeat_n(quiet, small)).collect()
}

fn report(name: &str, outcome: &Outcome) {
    let (small, all) = (1..outcome.waits_ms.len(), &outcome.waits_ms);
    let of = |per_mille| outcome.quantile_ms(small.clone(), per_mille);
    println!(
        "{name}: small tenants' runs {}, wait p50 {} ms, p99 {} ms, longest {} ms; hog's runs {}, wait p50 {} ms",
        all[1..].iter().map(Vec::len).sum::<usize>(),
        of(500),
        of(990),
        of(1000),
        all[0].len(),
        outcome.quantile_ms(0..1, 500),
    );
}

#[test]
fn a_hog_of_100_000_runs_delays_twenty_small_tenants_by_less_than_a_second() {
    let hog = Load { burst: 100_000, every_ms: None, class: QueueClass::Interactive };
    let outcome = simulate(512, &neighbours(hog, 20, 500), 200, 10, 60);
    report("short turns", &outcome);
    assert!(outcome.quantile_ms(1..21, 990) <= 1000);
    assert!(outcome.waits_ms[0].len() > 95_000, "and the hog's work is done all the same");
}

/// Turns of half a minute: no slot comes free for a long time, and newcomers have theirs.
#[test]
fn long_turns_of_a_hog_delay_nobody_either() {
    let hog = Load { burst: 100_000, every_ms: None, class: QueueClass::Interactive };
    let outcome = simulate(512, &neighbours(hog, 20, 45_001), 30_000, 0, 120);
    report("turns of 30 s", &outcome);
    assert!(outcome.quantile_ms(1..21, 990) <= 1000);
}

/// The promise of a tier: whatever the others have, its tenants have the slots that it reserves; measured over two minutes of a
/// pool that everybody wants all of. What a tier reserves and does not use nobody has, and what it does not reserve is shared.
#[test]
fn a_tier_has_what_it_reserves_whatever_others_want() {
    let tiers = vec![
        Tier { slots_max: 100, reserve: 0 },
        Tier { slots_max: 100, reserve: 8 },
        Tier { slots_max: 3, reserve: 0 },
    ];
    let tier_of = |of: usize| [0, 0, 0, 0, 1, 2][of];
    let mut core = Core::new(Limits { tiers, ..Limits::of_slots(32) });
    let (mut seeded, mut number) = (Seeded(11), 0);
    let mut ends: BinaryHeap<Reverse<(u64, u32, usize)>> = BinaryHeap::new();
    let mut used = [0_u64; 6];
    let mut gold_waits = Vec::new();
    let mut most = [0_usize; 6];
    for now in 0..180_000_u64 {
        for of in 0..6 {
            // The tenant of the reserve comes after a minute, when all else is full.
            while (of != 4 || now >= 60_000) && core.queued_of(&tenant(of), QueueClass::Interactive) < 20 {
                number += 1;
                core.enqueue(at(now), &tenant(of), Member::of(tier_of(of)), run(number), QueueClass::Interactive);
            }
        }
        while let Some(Reverse((_, slot, _))) = ends.peek().filter(|Reverse((end, ..))| *end <= now) {
            core.finish(at(now), *slot, Left::Over);
            ends.pop();
        }
        core.release(at(now), 1024);
        while let Some(picked) = core.next(at(now)) {
            let of = (0..6).find(|of| tenant(*of) == picked.tenant).unwrap();
            let takes = 100 + seeded.below(400);
            used[of] += if now >= 60_000 { takes } else { 0 };
            if of == 4 && now < 60_100 {
                gold_waits.push(picked.waited_ms);
            }
            ends.push(Reverse((now + takes, picked.slot, of)));
            let held = ends.iter().filter(|Reverse((.., holder))| *holder == of).count();
            most[of] = most[of].max(held);
        }
    }
    let seconds = used.map(|ms| ms / 1000);
    println!(
        "32 slots, 8 reserved for the fifth, the sixth bounded to 3: slot-seconds of 120 s {seconds:?}, most {most:?}"
    );
    assert!(gold_waits.len() >= 8 && gold_waits.iter().take(8).all(|wait| *wait == 0), "{gold_waits:?}");
    assert!(seconds[4] >= 8 * 120 * 95 / 100, "what is reserved is had");
    assert_eq!(most[5], 3, "a bound is kept, and used");
    let others = &seconds[..4];
    let all: u64 = others.iter().sum();
    for used in others {
        assert!((all * 20 / 100..all * 30 / 100).contains(used), "those of one tier have the same: {seconds:?}");
    }
}

/// A hog whose work never ends, in a pool that is too small for all: nobody starves, and nobody has more than the cap.
#[test]
fn in_a_pool_that_is_too_small_everybody_has_the_same() {
    let heavy = Load { burst: 20_000, every_ms: None, class: QueueClass::Interactive };
    let loads = [Load { burst: 100_000, ..heavy }, heavy, heavy, heavy];
    let outcome = simulate(16, &loads, 100, 0, 120);
    println!(
        "four tenants, 16 slots: slot-seconds {:?}",
        outcome.used_ms.iter().map(|ms| ms / 1000).collect::<Vec<_>>()
    );
    let all: u64 = outcome.used_ms.iter().sum();
    for used in &outcome.used_ms {
        assert!((all / 5..all / 3).contains(used), "{used} of {all}");
    }
}

/// Turns of one tenant last ten times as long as those of others: slots, not turns, are what is shared.
#[test]
fn who_has_long_turns_has_no_more_than_its_share() {
    let mut core = Core::new(Limits::of_slots(20));
    let mut number = 0;
    let mut ends: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut used = [0_u64; 2];
    for now in 0..240_000_u64 {
        for of in 0..2 {
            while core.queued_of(&tenant(of), QueueClass::Interactive) < 50 {
                number += 1;
                core.enqueue(at(now), &tenant(of), Member::of(0), run(number), QueueClass::Interactive);
            }
        }
        while let Some(Reverse((_, slot))) = ends.peek().filter(|Reverse((end, _))| *end <= now) {
            core.finish(at(now), *slot, Left::Over);
            ends.pop();
        }
        core.release(at(now), 1024);
        while let Some(picked) = core.next(at(now)) {
            let of = usize::from(picked.tenant == tenant(1));
            let takes = [1000, 100][of];
            used[of] += if now >= 120_000 { takes } else { 0 };
            ends.push(Reverse((now + takes, picked.slot)));
        }
    }
    println!("long turns and short ones, 20 slots: slot-seconds {} and {}", used[0] / 1000, used[1] / 1000);
    let all = used[0] + used[1];
    assert!(used[0] * 100 <= all * 55, "the cap is half of the pool: {used:?}");
}

#[test]
fn a_million_parked_runs_take_less_than_128_bytes_each() {
    const RUNS: u64 = 1_000_000;
    let mut core = Core::new(Limits::default());
    let mut seeded = Seeded(3);
    for number in 0..RUNS {
        let until = at(1 + seeded.below(10_000_000)).unix_ms;
        let of = usize::try_from(number % 1000).unwrap();
        let taken = core.enqueue_at(at(0), &tenant(of), Member::of(0), run(number), QueueClass::ParkedRelease, until);
        assert_eq!(taken, Taken::Parked);
    }
    let bytes = core.bytes() as u64;
    println!("1,000,000 parked runs: {bytes} bytes, {} each", bytes / RUNS);
    assert!(bytes <= 128 * RUNS);
    // They come out in order, and slots with them.
    assert!(!core.release(at(5_000_000), 1000), "a bounded part at a time");
    assert_eq!(core.counts().queued.iter().sum::<u64>(), 1000);
    let first = core.next(at(5_000_000)).unwrap();
    assert_eq!(first.class, QueueClass::ParkedRelease);
}
