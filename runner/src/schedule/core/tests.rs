//! The core against a model that is too slow to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

pub(super) fn tenant(number: usize) -> TenantId {
    TenantId::parse(&format!("tenant-{number}")).unwrap()
}

/// A run's number tells its tenant in these tests.
pub(super) fn run(number: u64) -> RunId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    RunId::from_bytes(bytes)
}

pub(super) fn at(ms: u64) -> Now {
    Now { monotonic_ms: ms, unix_ms: 1_000_000 + ms }
}

fn class() -> impl Strategy<Value = QueueClass> {
    prop::sample::select(tenant::CLASSES.to_vec())
}

#[derive(Debug, Clone)]
enum Op {
    Enqueue { tenant: usize, run: u64, class: QueueClass },
    EnqueueAt { tenant: usize, run: u64, class: QueueClass, in_ms: u64 },
    Offer { tenant: usize, run: u64, class: QueueClass, in_ms: u64 },
    Nudge { tenant: usize, run: u64 },
    Remove { tenant: usize, run: u64 },
    Next,
    Finish { nth: usize, left: usize, in_ms: u64, class: QueueClass },
    Wait { ms: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let which = (0..4_usize, 0..24_u64);
    prop_oneof![
        6 => (which.clone(), class()).prop_map(|((tenant, run), class)| Op::Enqueue { tenant, run, class }),
        3 => (which.clone(), class(), 0..5000_u64)
            .prop_map(|((tenant, run), class, in_ms)| Op::EnqueueAt { tenant, run, class, in_ms }),
        1 => (which.clone(), class(), 0..5000_u64)
            .prop_map(|((tenant, run), class, in_ms)| Op::Offer { tenant, run, class, in_ms }),
        1 => which.clone().prop_map(|(tenant, run)| Op::Nudge { tenant, run }),
        1 => which.prop_map(|(tenant, run)| Op::Remove { tenant, run }),
        8 => Just(Op::Next),
        6 => (any::<usize>(), 0..6_usize, 0..5000_u64, class())
            .prop_map(|(nth, left, in_ms, class)| Op::Finish { nth, left, in_ms, class }),
        2 => (0..3000_u64).prop_map(|ms| Op::Wait { ms }),
    ]
}

/// What is known of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Queued,
    Parked { until: u64 },
    Running { slot: u32, is_nudged: bool },
}

#[derive(Debug)]
struct Model {
    core: Core,
    limits: Limits,
    now: u64,
    runs: BTreeMap<(usize, u64), Is>,
    left_out: u64,
}

/// A run belongs to one tenant: four tenants have the same numbers of runs of their own.
fn id_of((tenant, number): (usize, u64)) -> RunId {
    run(tenant as u64 * 1000 + number)
}

impl Model {
    fn now(&self) -> Now {
        at(self.now)
    }

    fn count(&self, is: impl Fn(&Is) -> bool) -> usize {
        self.runs.values().filter(|state| is(state)).count()
    }

    fn queued(&self) -> usize {
        self.count(|is| matches!(is, Is::Queued))
    }

    fn parked(&self) -> usize {
        self.count(|is| matches!(is, Is::Parked { .. }))
    }

    fn hand_in(&mut self, key: (usize, u64), until: u64, taken: Taken) {
        let is_due = until <= self.now().unix_ms;
        let (queued, parked) = (self.queued(), self.parked());
        let limits = &self.limits;
        let expected = match self.runs.get_mut(&key) {
            Some(Is::Running { is_nudged, .. }) => {
                *is_nudged = true;
                Taken::Nudged
            }
            Some(state @ Is::Parked { .. }) if is_due => {
                *state = Is::Queued;
                Taken::Queued
            }
            Some(Is::Parked { until: known }) if until < *known => {
                *known = until;
                Taken::Parked
            }
            Some(Is::Queued | Is::Parked { .. }) => Taken::Known,
            None if is_due && queued >= limits.queued_max as usize => Taken::LeftOut,
            None if !is_due && parked >= limits.parked_max as usize => Taken::LeftOut,
            None if is_due => {
                self.runs.insert(key, Is::Queued);
                Taken::Queued
            }
            None => {
                self.runs.insert(key, Is::Parked { until });
                Taken::Parked
            }
        };
        self.left_out += u64::from(taken == Taken::LeftOut);
        assert_eq!(taken, expected, "{key:?}");
    }

    fn finish(&mut self, nth: usize, left: usize, in_ms: u64, class: QueueClass) {
        let running = self.runs.iter().filter_map(|(key, is)| match is {
            Is::Running { slot, is_nudged } => Some((*key, *slot, *is_nudged)),
            Is::Queued | Is::Parked { .. } => None,
        });
        let running: Vec<_> = running.collect();
        let Some((key, slot, is_nudged)) = running.get(nth % running.len().max(1)).copied() else { return };
        let now = self.now();
        let until = now.unix_ms + in_ms;
        let parked = |until: u64| if until <= now.unix_ms { Is::Queued } else { Is::Parked { until } };
        let has_room = self.parked() < self.limits.parked_max as usize;
        let (left, next) = match left {
            0 => (Left::Over, is_nudged.then_some(Is::Queued)),
            1 => (Left::Elsewhere, None),
            2 => (Left::Parked { until_unix_ms: None, class }, is_nudged.then_some(Is::Queued)),
            3 if is_nudged => (Left::Parked { until_unix_ms: Some(until), class }, Some(Is::Queued)),
            3 => {
                let next = parked(until);
                let fits = next == Is::Queued || has_room;
                self.left_out += u64::from(!fits);
                (Left::Parked { until_unix_ms: Some(until), class }, fits.then_some(next))
            }
            4 => (Left::Again { at_unix_ms: until }, Some(Is::Parked { until })),
            _ => (Left::Crashed, None),
        };
        self.core.finish(now, slot, left);
        if left == Left::Crashed {
            let due = self.core.slab.find(id_of(key)).map(|at| *self.core.slab.get(at)).unwrap();
            assert!(matches!(due.state, State::Parked | State::HeldBack));
            assert!((1000..=300_000).contains(&(due.at - now.unix_ms)), "a crashed run waits");
            self.runs.insert(key, Is::Parked { until: due.at });
            return;
        }
        match next {
            Some(next) => self.runs.insert(key, next),
            None => self.runs.remove(&key),
        };
    }

    fn step(&mut self, op: &Op) {
        let now = self.now();
        match *op {
            Op::Enqueue { tenant: of, run, class } => {
                let taken = self.core.enqueue(now, &tenant(of), Member::of(0), id_of((of, run)), class);
                self.hand_in((of, run), 0, taken);
            }
            Op::EnqueueAt { tenant: of, run, class, in_ms } => {
                let until = now.unix_ms + in_ms;
                let taken = self.core.enqueue_at(now, &tenant(of), Member::of(0), id_of((of, run)), class, until);
                self.hand_in((of, run), until, taken);
            }
            Op::Offer { tenant: of, run, class, in_ms } => {
                let until = now.unix_ms + in_ms;
                let is_known = self.runs.contains_key(&(of, run));
                let taken = self.core.offer(now, &tenant(of), Member::of(0), id_of((of, run)), class, until);
                if is_known {
                    assert_eq!(taken, Taken::Known);
                } else {
                    self.hand_in((of, run), until, taken);
                }
            }
            Op::Nudge { tenant: of, run } => {
                let taken = self.core.nudge(now, &tenant(of), Member::of(0), id_of((of, run)));
                self.hand_in((of, run), 0, taken);
                // Of another tenant it is nobody's.
                if self.runs.contains_key(&(of, run)) {
                    let other = self.core.nudge(now, &tenant(of + 1), Member::of(0), id_of((of, run)));
                    assert_eq!(other, Taken::Mismatch);
                }
            }
            Op::Remove { tenant: of, run } => {
                let key = (of, run);
                let waits = matches!(self.runs.get(&key), Some(Is::Queued | Is::Parked { .. }));
                assert!(!self.core.remove(&tenant(of + 1), id_of(key)), "another tenant's");
                assert_eq!(self.core.remove(&tenant(of), id_of(key)), waits);
                if waits {
                    self.runs.remove(&key);
                }
            }
            Op::Next => self.next(),
            Op::Finish { nth, left, in_ms, class } => self.finish(nth, left, in_ms, class),
            Op::Wait { ms } => {
                self.now += ms;
                let now = self.now();
                while !self.core.release(now, 3) {}
                for is in self.runs.values_mut() {
                    if matches!(is, Is::Parked { until } if *until <= now.unix_ms) {
                        *is = Is::Queued;
                    }
                }
            }
        }
    }

    fn next(&mut self) {
        let now = self.now();
        let running = self.count(|is| matches!(is, Is::Running { .. }));
        let Some(picked) = self.core.next(now) else {
            // Nobody waits who may have a slot: none is free, or all that wait hold some and the rest is for newcomers.
            let free = self.limits.slots as usize - running;
            let tenant_running = |of: usize| {
                self.runs.iter().filter(|((t, _), is)| *t == of && matches!(is, Is::Running { .. })).count()
            };
            for ((of, _), _) in self.runs.iter().filter(|(_, is)| matches!(is, Is::Queued)) {
                let held = tenant_running(*of);
                let at_its_bound = held >= self.limits.tiers[0].slots_max as usize;
                let kept = held > 0 && free <= self.limits.newcomers() as usize;
                assert!(free == 0 || at_its_bound || kept, "a slot is free, and tenant {of} waits");
            }
            return;
        };
        let key = *self.runs.keys().find(|key| id_of(**key) == picked.run).expect("a run that was handed in");
        assert_eq!(tenant(key.0), picked.tenant);
        assert_eq!(self.runs[&key], Is::Queued, "nothing runs twice");
        self.runs.insert(key, Is::Running { slot: picked.slot, is_nudged: false });
        assert!(running < self.limits.slots as usize, "no more slots than there are");
    }

    fn check(&self) {
        let counts = self.core.counts();
        assert_eq!(counts.queued.iter().sum::<u64>(), self.queued() as u64);
        assert_eq!(counts.parked, self.parked() as u64);
        assert_eq!(counts.running, self.count(|is| matches!(is, Is::Running { .. })) as u64, "no slot is lost");
        assert_eq!(counts.left_out, self.left_out);
        let due = self.runs.values().filter_map(|is| if let Is::Parked { until } = is { Some(*until) } else { None });
        assert_eq!(self.core.next_unix_ms(), due.min());
        let slots: BTreeSet<u32> = self
            .runs
            .values()
            .filter_map(|is| if let Is::Running { slot, .. } = is { Some(*slot) } else { None })
            .collect();
        assert_eq!(slots.len() as u64, counts.running, "a slot has one run");
        let waiting: BTreeSet<usize> =
            self.runs.iter().filter(|(_, is)| matches!(is, Is::Queued)).map(|((of, _), _)| *of).collect();
        assert!(counts.waiting <= waiting.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_model_does(
        slots in 1..9_u32,
        slots_max in 1..9_u32,
        queued_max in 4..40_u32,
        parked_max in 4..40_u32,
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let limits = Limits { slots, tiers: vec![Tier { slots_max, reserve: 0 }], queued_max, parked_max };
        prop_assert_eq!(limits.check(), Ok(()));
        let core = Core::new(limits.clone());
        let mut model = Model { core, limits, now: 0, runs: BTreeMap::new(), left_out: 0 };
        for op in &ops {
            model.step(op);
            model.check();
        }
        // Everything that waits gets its turn, and in the end nothing is left, of tenants neither.
        for _ in 0..10_000 {
            if model.runs.is_empty() {
                break;
            }
            model.step(&Op::Wait { ms: 301_000 });
            model.next();
            model.step(&Op::Finish { nth: 0, left: 1, in_ms: 0, class: QueueClass::Bulk });
            model.check();
        }
        prop_assert!(model.runs.is_empty(), "{:?}", model.runs);
        for _ in 0..4 {
            model.now += 61_000;
            model.core.release(model.now(), 1);
        }
        prop_assert_eq!(model.core.counts().tenants, 0);
    }

    /// Tiers: what is reserved is there for whom it is reserved, and nobody has more than his bound.
    #[test]
    fn tiers_keep_what_is_reserved(
        reserve in 0..4_u32,
        slots_max in 1..8_u32,
        steps in prop::collection::vec((0..6_usize, any::<bool>()), 1..200),
    ) {
        let tiers = vec![Tier { slots_max: 8, reserve: 0 }, Tier { slots_max, reserve }];
        let limits = Limits { slots: 8, tiers, queued_max: 1000, parked_max: 4 };
        prop_assert_eq!(limits.check(), Ok(()));
        let mut core = Core::new(limits);
        let tier_of = |of: usize| u8::from(of % 2 == 1);
        let mut running: Vec<(u32, usize)> = Vec::new();
        for (nth, (of, finishes)) in (0_u64..).zip(steps) {
            core.enqueue(at(nth), &tenant(of), Member::of(tier_of(of)), run(nth), QueueClass::Interactive);
            if finishes && let Some((slot, _)) = running.pop() {
                core.finish(at(nth), slot, Left::Over);
            }
            while let Some(picked) = core.next(at(nth)) {
                let of = (0..6).find(|of| tenant(*of) == picked.tenant).unwrap();
                running.push((picked.slot, of));
            }
            let held = |wanted: u8| running.iter().filter(|(_, of)| tier_of(*of) == wanted).count();
            prop_assert!(held(0) <= (8 - reserve) as usize, "the first tier has none of the second's");
            for of in [1, 3, 5] {
                prop_assert!(running.iter().filter(|(_, other)| *other == of).count() <= slots_max as usize);
            }
            // Tenants of the second tier that hold nothing never wait while its reserve is not used up.
            let waits = |of: usize| core.queued_of(&tenant(of), QueueClass::Interactive) > 0;
            if held(1) < reserve as usize {
                prop_assert!([1, 3, 5].iter().all(|of| !waits(*of) || running.iter().any(|(_, other)| other == of)));
            }
        }
    }
}

fn fill(core: &mut Core, of: usize, class: QueueClass, runs: std::ops::Range<u64>) {
    for number in runs {
        core.enqueue(at(0), &tenant(of), Member::of(0), run(number), class);
    }
}

#[test]
fn tenants_take_turns_however_much_they_have() {
    let mut core = Core::new(Limits::of_slots(1));
    fill(&mut core, 0, QueueClass::Interactive, 0..100);
    for of in 1..5_u64 {
        fill(&mut core, usize::try_from(of).unwrap(), QueueClass::Bulk, of * 1000..of * 1000 + 3);
    }
    let mut order = Vec::new();
    for ms in 0..15 {
        let picked = core.next(at(ms)).unwrap();
        order.push(picked.tenant.to_string().pop().unwrap());
        core.finish(at(ms), picked.slot, Left::Over);
    }
    assert_eq!(order.iter().collect::<String>(), "012340123401234");
}

#[test]
fn interactive_is_first_and_nothing_of_a_tenant_starves() {
    let mut core = Core::new(Limits::of_slots(1));
    for (nth, class) in (0_u64..).zip(tenant::CLASSES) {
        fill(&mut core, 0, class, nth * 1000..nth * 1000 + 100);
    }
    let mut got = [0; 4];
    for ms in 0..64 {
        let picked = core.next(at(ms)).unwrap();
        got[class_index(picked.class)] += 1;
        core.finish(at(ms), picked.slot, Left::Over);
    }
    assert_eq!(got, [48, 8, 4, 4]);
    // A share that nobody uses goes to who is first.
    let mut core = Core::new(Limits::of_slots(1));
    fill(&mut core, 0, QueueClass::Interactive, 0..20);
    fill(&mut core, 0, QueueClass::Bulk, 1000..1020);
    let mut got = [0; 4];
    for ms in 0..16 {
        let picked = core.next(at(ms)).unwrap();
        got[class_index(picked.class)] += 1;
        core.finish(at(ms), picked.slot, Left::Over);
    }
    assert_eq!(got, [15, 0, 0, 1]);
}

#[test]
fn the_last_slots_are_for_tenants_that_hold_none() {
    let mut core = Core::new(Limits::of_slots(32));
    fill(&mut core, 0, QueueClass::Interactive, 0..100);
    let mut held = 0;
    while core.next(at(0)).is_some() {
        held += 1;
    }
    assert_eq!(held, 30, "two of 32 are kept");
    fill(&mut core, 1, QueueClass::Bulk, 1000..1010);
    assert_eq!(core.next(at(1)).unwrap().tenant, tenant(1), "at once, though no turn has ended");
    assert_eq!(core.next(at(1)), None);
}

/// Two tenants that both have work share evenly; one that had everything while it was alone is not stopped for it.
#[test]
fn who_is_over_the_cap_keeps_one_slot_and_no_more() {
    const SECOND: u64 = 1000;
    let mut core = Core::new(Limits::of_slots(4));
    fill(&mut core, 0, QueueClass::Interactive, 0..2000);
    let mut running: Vec<(u64, Picked)> = Vec::new();
    let mut held_by_hog = Vec::new();
    // Turns take a second. The second tenant comes after two minutes.
    for second in 0..180 {
        if second == 120 {
            fill(&mut core, 1, QueueClass::Interactive, 10_000..12_000);
        }
        let now = at(second * SECOND);
        for (_, picked) in running.extract_if(.., |(until, _)| *until <= second).collect::<Vec<_>>() {
            core.finish(now, picked.slot, Left::Over);
        }
        while let Some(picked) = core.next(now) {
            running.push((second + 1, picked));
        }
        held_by_hog.push(running.iter().filter(|(_, picked)| picked.tenant == tenant(0)).count());
    }
    assert!(held_by_hog[..120].iter().all(|held| *held == 3), "alone it has all but the newcomers' slot");
    let behind = &held_by_hog[121..148];
    assert!(behind.iter().all(|held| *held == 1), "over the cap, one slot: {behind:?}");
    assert!(held_by_hog[170..].contains(&2), "and its share again: {:?}", &held_by_hog[150..]);
}

#[test]
fn what_is_left_out_is_asked_for_when_there_is_room_or_when_it_is_due() {
    let mut core = Core::new(Limits { queued_max: 4, parked_max: 4, ..Limits::of_slots(1) });
    fill(&mut core, 0, QueueClass::Interactive, 0..4);
    assert_eq!(core.enqueue(at(0), &tenant(0), Member::of(0), run(9), QueueClass::Interactive), Taken::LeftOut);
    assert!(!core.wants_scan(at(0).unix_ms), "no room yet");
    for ms in 0..2 {
        let picked = core.next(at(ms)).unwrap();
        core.finish(at(ms), picked.slot, Left::Over);
    }
    assert!(core.wants_scan(at(2).unix_ms));
    assert!(!core.wants_scan(at(2).unix_ms), "once");
    for number in 20..25 {
        let until = at(10_000 + number).unix_ms;
        let taken = core.enqueue_at(at(2), &tenant(0), Member::of(0), run(number), QueueClass::Retry, until);
        assert_eq!(taken, if number == 24 { Taken::LeftOut } else { Taken::Parked });
    }
    assert!(!core.wants_scan(at(10_000).unix_ms), "not due");
    assert!(core.wants_scan(at(10_024).unix_ms));
}

#[test]
fn each_crash_in_a_row_waits_longer_and_a_good_turn_ends_it() {
    let mut core = Core::new(Limits::of_slots(1));
    let mut now = 0;
    let mut waits = Vec::new();
    core.enqueue(at(0), &tenant(0), Member::of(0), run(1), QueueClass::Interactive);
    for left in [Left::Crashed, Left::Crashed, Left::Crashed, Left::Again { at_unix_ms: 0 }, Left::Crashed] {
        let picked = core.next(at(now)).unwrap();
        core.finish(at(now), picked.slot, left);
        let due = core.next_unix_ms().unwrap();
        waits.push(due.saturating_sub(at(now).unix_ms));
        now = (due + 1).saturating_sub(at(0).unix_ms).max(now);
        core.release(at(now), 10);
    }
    assert_eq!(waits, [1000, 2000, 4000, 0, 1000]);
    assert_eq!((crash_delay_ms(60), crash_delay_ms(255)), (300_000, 300_000));
}

#[test]
fn a_run_that_moves_up_keeps_what_it_has_waited() {
    let mut core = Core::new(Limits::of_slots(1));
    core.enqueue(at(0), &tenant(0), Member::of(0), run(1), QueueClass::Bulk);
    assert_eq!(core.enqueue(at(500), &tenant(0), Member::of(0), run(1), QueueClass::Interactive), Taken::Known);
    let picked = core.next(at(700)).unwrap();
    assert_eq!((picked.class, picked.waited_ms, picked.is_alone), (QueueClass::Interactive, 700, true));
    assert_eq!(core.queued_of(&tenant(0), QueueClass::Bulk), 0);
}

/// As many turns as there can be of these tenants, each with runs without end.
fn filled(core: &mut Core, tenants: std::ops::Range<usize>, of: impl Fn(usize) -> Member) -> Vec<(u32, usize)> {
    for nth in 0..40 {
        for number in tenants.clone() {
            core.enqueue(at(0), &tenant(number), of(number), run(number as u64 * 1000 + nth), QueueClass::Interactive);
        }
    }
    let mut held = Vec::new();
    while let Some(picked) = core.next(at(0)) {
        held.push((picked.slot, tenants.clone().find(|number| tenant(*number) == picked.tenant).unwrap()));
    }
    held
}

fn held_by(held: &[(u32, usize)], number: usize) -> usize {
    held.iter().filter(|(_, of)| *of == number).count()
}

#[test]
fn a_tenant_may_have_a_bound_of_its_own_below_its_tiers() {
    let tiers = vec![Tier { slots_max: 5, reserve: 0 }];
    let mut core = Core::new(Limits { tiers, ..Limits::of_slots(20) });
    let own = [u32::MAX, 2, 9, 0];
    let held = filled(&mut core, 0..4, |number| Member { tier: 0, slots_max: own[number] });
    assert_eq!([0, 1, 2, 3].map(|number| held_by(&held, number)), [5, 2, 5, 0]);
}

#[test]
fn tiers_change_while_runs_wait_and_are_under_way() {
    let all = |slots_max| vec![Tier { slots_max, reserve: 0 }];
    let mut core = Core::new(Limits { tiers: all(100), ..Limits::of_slots(16) });
    let mut held = filled(&mut core, 0..2, |_| Member::of(0));
    assert_eq!(held.len(), 15, "the last one is a newcomer's");

    // The second tenant has half of the slots for itself from now on, and the first no more than four.
    let tiers = vec![Tier { slots_max: 4, reserve: 0 }, Tier { slots_max: 100, reserve: 8 }];
    let of = |name: &TenantId| Member::of(u8::from(*name == tenant(1)));
    core.set_tiers(tiers, of).unwrap();
    for _ in 0..24 {
        let (slot, _) = held.remove(0);
        core.finish(at(0), slot, Left::Over);
        while let Some(picked) = core.next(at(0)) {
            held.push((picked.slot, usize::from(picked.tenant == tenant(1))));
        }
    }
    assert_eq!(held_by(&held, 0), 4, "{held:?}");
    assert!(held_by(&held, 1) >= 8);

    // What cannot be kept changes nothing.
    let all_of_them = vec![Tier { slots_max: 1, reserve: 16 }];
    let fault = core.set_tiers(all_of_them, |_| Member::of(0));
    assert_eq!(fault, Err(LimitsFault::Reserve { reserved: 16, slots: 16 }));
    // A tier that is gone, with the members that it had.
    core.set_tiers(all(100), |_| Member::of(7)).unwrap();
    for (slot, _) in held {
        core.finish(at(0), slot, Left::Over);
    }
    while let Some(picked) = core.next(at(0)) {
        core.finish(at(0), picked.slot, Left::Over);
    }
    assert_eq!((core.counts().running, core.counts().queued), (0, [0; 4]));
}

/// What the ledger says could go on is taken up, but for what is held back since it crashed its worker or could not be read.
#[test]
fn what_can_go_on_is_claimed_and_what_is_held_back_is_not() {
    let mut core = Core::new(Limits::of_slots(3));
    let claim = |core: &mut Core, number| core.claim(at(0), &tenant(0), Member::of(0), run(number), QueueClass::Retry);
    let until = Some(at(60_000).unix_ms);
    for (number, left) in [
        (1, Left::Parked { until_unix_ms: until, class: QueueClass::ParkedRelease }),
        (2, Left::Crashed),
        (3, Left::Again { at_unix_ms: at(60_000).unix_ms }),
    ] {
        core.enqueue(at(0), &tenant(0), Member::of(0), run(number), QueueClass::Interactive);
        let picked = core.next(at(0)).unwrap();
        core.finish(at(0), picked.slot, left);
    }
    assert_eq!([1, 2, 3].map(|number| claim(&mut core, number)), [Taken::Queued, Taken::Known, Taken::Known]);
    assert_eq!((claim(&mut core, 1), claim(&mut core, 4)), (Taken::Known, Taken::Queued), "once");
    assert_eq!(core.claim(at(0), &tenant(1), Member::of(0), run(1), QueueClass::Retry), Taken::Mismatch);
    let running = [core.next(at(0)).unwrap(), core.next(at(0)).unwrap()].map(|picked| picked.run);
    assert_eq!(running, [run(1), run(4)]);
    assert_eq!(claim(&mut core, 1), Taken::Known, "it is under way");
    // Somebody who acts is another matter, and so is its time.
    assert_eq!(core.enqueue(at(0), &tenant(0), Member::of(0), run(3), QueueClass::Interactive), Taken::Queued);
    assert_eq!(core.next_unix_ms(), Some(at(1000).unix_ms));
    core.release(at(1000), 10);
    assert_eq!(core.counts().parked, 0);
}

/// What is said elsewhere is heard by who has the run, and by nobody else.
#[test]
fn what_is_heard_wakes_what_is_here() {
    let mut core = Core::new(Limits::of_slots(1));
    let hear = |core: &mut Core, number| core.heard(at(0), &tenant(0), Member::of(0), run(number));
    assert_eq!(hear(&mut core, 1), Taken::Known);
    assert_eq!(core.counts().queued, [0; 4], "another has it");
    core.enqueue(at(0), &tenant(0), Member::of(0), run(1), QueueClass::Interactive);
    assert_eq!(hear(&mut core, 1), Taken::Known, "it is asked anyway");
    let picked = core.next(at(0)).unwrap();
    assert_eq!(hear(&mut core, 1), Taken::Nudged);
    let until_unix_ms = Some(at(60_000).unix_ms);
    core.finish(at(0), picked.slot, Left::Parked { until_unix_ms, class: QueueClass::ParkedRelease });
    let picked = core.next(at(0)).expect("what was said during its turn is looked at");
    core.finish(at(0), picked.slot, Left::Parked { until_unix_ms, class: QueueClass::ParkedRelease });
    assert_eq!(hear(&mut core, 1), Taken::Queued);
    let picked = core.next(at(0)).unwrap();
    core.finish(at(0), picked.slot, Left::Crashed);
    assert_eq!(hear(&mut core, 1), Taken::Known, "it is held back");
}
