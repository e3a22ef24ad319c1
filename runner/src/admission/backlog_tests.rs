//! The backlog against a log of two lanes: whatever happens, every event gets through, and the committed place is never
//! behind one that did not.

use std::collections::BTreeSet;

use domain::{NodeId, Slot};
use eventlog::position::{Lane, Place};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Append {
        tenant: usize,
        lane: usize,
    },
    /// The main reader reads so many.
    Read(usize),
    CatchUp,
    Take,
    /// One that is under way is through, or fails.
    Done(usize),
    Failed(usize),
    Crashed(usize),
    Wait(u64),
    /// Everything but the committed place is lost.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        // The first tenant is a hog.
        6 => (0..6_usize, 0..2_usize).prop_map(|(tenant, lane)| Op::Append { tenant: tenant.saturating_sub(2), lane }),
        3 => (1..9_usize).prop_map(Op::Read),
        2 => Just(Op::CatchUp),
        6 => Just(Op::Take),
        5 => any::<usize>().prop_map(Op::Done),
        1 => any::<usize>().prop_map(Op::Failed),
        1 => any::<usize>().prop_map(Op::Crashed),
        1 => (1..2000_u64).prop_map(Op::Wait),
        1 => Just(Op::Restart),
    ]
}

fn lane(number: usize) -> Lane {
    Lane { class: "default".into(), generation: 1, shard: u16::try_from(number).unwrap() }
}

fn tenant(number: usize) -> TenantId {
    TenantId::parse(&format!("tenant-{number}")).unwrap()
}

fn spot(number: usize) -> Spot {
    let [a, b, c, d] = u32::try_from(number).unwrap().to_be_bytes();
    Spot {
        event: EventId::new(1, Slot(0), NodeId(0), [0, 0, a, b, c, d]),
        endpoint: EndpointId::parse("wh_1").unwrap(),
        class: Class::Normal,
    }
}

#[derive(Debug)]
struct World {
    backlog: Backlog,
    max: usize,
    now_ms: u64,
    /// Events of each lane, by number, with their tenants.
    lanes: [Vec<(usize, usize)>; 2],
    count: usize,
    main: Cursor,
    under_way: Vec<Taken>,
    through: BTreeSet<EventId>,
}

fn offset(cursor: &Cursor, lane_number: usize) -> usize {
    cursor.place(&lane(lane_number)).map_or(0, |place| usize::try_from(place.offset).unwrap())
}

fn advance(cursor: &mut Cursor, lane_number: usize) {
    let next = offset(cursor, lane_number) as u64 + 1;
    cursor.set(lane(lane_number), Place { epoch: 1, offset: next });
}

impl World {
    fn new(max: usize) -> Self {
        Self {
            backlog: Backlog::new(max, 2),
            max,
            now_ms: 1,
            lanes: [Vec::new(), Vec::new()],
            count: 0,
            main: Cursor::default(),
            under_way: Vec::new(),
            through: BTreeSet::new(),
        }
    }

    /// The next event at a place: lanes in turn.
    fn next(&self, cursor: &Cursor) -> Option<(usize, (usize, usize))> {
        let next = |lane: usize| self.lanes[lane].get(offset(cursor, lane)).map(|event| (lane, *event));
        let first = (offset(cursor, 0) + offset(cursor, 1)) % 2;
        next(first).or_else(|| next(1 - first))
    }

    fn read(&mut self, count: usize) {
        let before = self.main.clone();
        let mut events = Vec::new();
        for _ in 0..count {
            let Some((lane, (number, of))) = self.next(&self.main) else { break };
            advance(&mut self.main, lane);
            events.push((tenant(of), spot(number)));
        }
        self.backlog.push(&before, events);
    }

    fn catch_up(&mut self) -> bool {
        let Some(part) = self.backlog.catch_up(&self.main) else { return false };
        let (mut at, mut events, mut is_end) = (part.from.clone(), Vec::new(), false);
        while events.len() < part.max {
            let Some((lane_number, (number, of))) = self.next(&at) else {
                is_end = true;
                break;
            };
            let place = Place { epoch: 1, offset: offset(&at, lane_number) as u64 };
            advance(&mut at, lane_number);
            if tenant(of) == part.tenant {
                events.push((Position { lane: lane(lane_number), place }, spot(number)));
            }
        }
        self.backlog.caught_up(part, events, &at, is_end);
        true
    }

    /// A dead letter is kept every other time.
    fn fail(&mut self, nth: usize, how: Failure) {
        let taken = self.under_way.swap_remove(nth % self.under_way.len());
        match self.backlog.failed(taken, how, self.now_ms) {
            Failed::Poison(letter) if nth.is_multiple_of(2) => {
                self.through.insert(letter.spot.event);
                self.backlog.done(letter);
            }
            Failed::Poison(letter) => self.backlog.not_kept(letter, self.now_ms),
            Failed::Waits(_) | Failed::Aside => {}
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Append { tenant, lane } => {
                self.lanes[lane].push((self.count, tenant));
                self.count += 1;
            }
            Op::Read(count) => self.read(count),
            Op::CatchUp => {
                self.catch_up();
            }
            Op::Take => self.under_way.extend(self.backlog.take(self.now_ms)),
            Op::Done(nth) if !self.under_way.is_empty() => {
                let taken = self.under_way.swap_remove(nth % self.under_way.len());
                self.through.insert(taken.spot.event);
                self.backlog.done(taken);
            }
            Op::Failed(nth) if !self.under_way.is_empty() => {
                self.fail(nth, Failure::Fault);
            }
            Op::Crashed(nth) if !self.under_way.is_empty() => self.fail(nth, Failure::Crash),
            Op::Done(_) | Op::Failed(_) | Op::Crashed(_) => {}
            Op::Wait(ms) => self.now_ms += ms,
            Op::Restart => {
                self.main = self.backlog.place(&self.main);
                self.backlog = Backlog::new(self.max, 2);
                self.under_way.clear();
            }
        }
    }

    fn check(&self) {
        assert!(self.backlog.len() <= self.max, "memory is bounded");
        let place = self.backlog.place(&self.main);
        for lane in 0..2 {
            assert!(offset(&place, lane) <= offset(&self.main, lane));
            for (number, of) in &self.lanes[lane][..offset(&place, lane)] {
                assert!(self.through.contains(&spot(*number).event), "event {number} of tenant {of} would be lost");
            }
        }
        let mut each = HashMap::new();
        self.under_way.iter().for_each(|taken| *each.entry(&taken.tenant).or_insert(0) += 1);
        assert!(each.values().all(|under_way| *under_way <= 2), "one tenant has its part of what is under way");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_event_gets_through_and_none_is_committed_before(
        max in 2..24_usize,
        ops in prop::collection::vec(op(), 1..400),
    ) {
        let mut world = World::new(max);
        for op in &ops {
            world.step(op);
            world.check();
        }
        for _ in 0..20_000 {
            if world.through.len() == world.count && world.backlog.place(&world.main) == world.main {
                break;
            }
            for op in [Op::Wait(5000), Op::Read(5), Op::CatchUp, Op::Take, Op::Done(0)] {
                world.step(&op);
            }
            world.check();
        }
        prop_assert_eq!(world.through.len(), world.count);
        prop_assert_eq!(offset(&world.main, 0) + offset(&world.main, 1), world.count);
        prop_assert_eq!(world.backlog.place(&world.main), world.main);
        prop_assert!(world.backlog.tenants.is_empty(), "nothing is kept of who has nothing");
    }
}

#[test]
fn an_entry_is_at_most_64_bytes() {
    assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
}

/// A lane that the main reader has not come to is read on in, though nothing of it is taken: else a part whose reader begins
/// with that lane would never end.
#[test]
fn a_part_ends_whatever_lies_behind_it() {
    let mut world = World::new(2);
    for _ in 0..4 {
        world.step(&Op::Append { tenant: 0, lane: 0 });
        world.step(&Op::Read(1));
    }
    for _ in 0..3 {
        world.step(&Op::Append { tenant: 0, lane: 1 });
    }
    for _ in 0..40 {
        for op in [Op::CatchUp, Op::Take, Op::Done(0)] {
            world.step(&op);
        }
        world.check();
    }
    assert_eq!((world.through.len(), world.backlog.skipped_tenants()), (4, 0));
}

/// A hog fills half of the memory and no more, and a newcomer is next.
#[test]
fn a_burst_leaves_room_and_turns_for_others() {
    let mut backlog = Backlog::new(1000, 10);
    let start = Cursor::default();
    backlog.push(&start, (0..5000).map(|number| (tenant(0), spot(number))));
    assert_eq!((backlog.len(), backlog.skipped_tenants(), backlog.skips()), (500, 1, 4500));
    backlog.push(&start, [(tenant(1), spot(9000))]);
    let turns: Vec<TenantId> = std::iter::from_fn(|| backlog.take(0)).map(|taken| taken.tenant).take(3).collect();
    assert_eq!(turns, [tenant(0), tenant(1), tenant(0)]);
}

/// A tenant that cannot be admitted waits, tries with one event at a time, and stops nobody else.
#[test]
fn who_fails_waits_alone() {
    let mut backlog = Backlog::new(1000, 10);
    backlog.push(&Cursor::default(), (0..10).map(|number| (tenant(number % 2), spot(number))));
    let broken: Vec<Taken> =
        (0..10).filter_map(|_| backlog.take(0)).filter(|taken| taken.tenant == tenant(0)).collect();
    assert_eq!(broken.len(), 5);
    let fault = Failure::Fault;
    let counted: Vec<Failed> = broken.into_iter().map(|taken| backlog.failed(taken, fault, 1000)).collect();
    let expected = [Some(1), None, None, None, None].map(Failed::Waits);
    assert_eq!(counted, expected, "one reason counts once");
    assert_eq!((backlog.take(1099), backlog.next_ms()), (None, Some(1100)));
    let again = backlog.take(1100).unwrap();
    assert_eq!((&again.tenant, backlog.take(1100)), (&tenant(0), None), "one at a time");
    assert_eq!(backlog.failed(again, fault, 1100), Failed::Waits(Some(2)));
    assert_eq!(backlog.next_ms(), Some(1300));
    let again = backlog.take(1300).unwrap();
    backlog.done(again);
    assert!(backlog.take(1300).is_some() && backlog.take(1300).is_some(), "it is well again");
}

/// Fails until it is poison or so often; the times at which it was tried.
fn try_out(backlog: &mut Backlog, how: Failure, tries: usize, mut between: impl FnMut(&mut Backlog, u64)) -> Vec<u64> {
    let (mut now_ms, mut tried) = (0, Vec::new());
    while tried.len() < tries {
        let Some(taken) = backlog.take(now_ms) else {
            now_ms = backlog.next_ms().expect("it comes again");
            continue;
        };
        tried.push(now_ms);
        if let Failed::Poison(letter) = backlog.failed(taken, how, now_ms) {
            backlog.done(letter);
            break;
        }
        between(backlog, now_ms);
    }
    tried
}

#[test]
fn what_crashes_admission_again_and_again_is_poison() {
    let mut backlog = Backlog::new(100, 10);
    backlog.push(&Cursor::default(), [(tenant(0), spot(1))]);
    let tried = try_out(&mut backlog, Failure::Crash, 100, |_, _| {});
    assert_eq!(tried, [0, 100, 300, 1_300, 3_300]);
    assert!(backlog.is_empty() && backlog.tenants.is_empty());
}

/// Alone it may be that something is not there; beside others that get through it is the event's own doing.
#[test]
fn what_fails_beside_others_is_poison_and_what_fails_alone_waits() {
    let mut alone = Backlog::new(100, 10);
    alone.push(&Cursor::default(), [(tenant(0), spot(1))]);
    let tried = try_out(&mut alone, Failure::Fault, 50, |_, _| {});
    assert_eq!((tried.len(), alone.len(), alone.aside()), (50, 1, 1));
    assert_eq!(tried[49] - tried[48], 60_000, "once a minute at last");

    let mut beside = Backlog::new(100, 10);
    beside.push(&Cursor::default(), [(tenant(0), spot(1))]);
    let mut number = 1;
    let tried = try_out(&mut beside, Failure::Fault, 50, |backlog, now_ms| {
        // While it is the tenant that waits nobody gets through.
        if backlog.aside() > 0 {
            number += 1;
            backlog.push(&Cursor::default(), [(tenant(0), spot(number))]);
            let other = backlog.take(now_ms).unwrap();
            assert_ne!(other.spot, spot(1), "the tenant goes on");
            backlog.done(other);
        }
    });
    let last = *tried.last().unwrap();
    assert!((13..16).contains(&tried.len()) && (240_000..400_000).contains(&last), "{tried:?}");
    assert_eq!(beside.aside(), 0);
}

/// What was not there comes back: those that it held up do not wait for their minute.
#[test]
fn who_was_held_up_by_a_fault_that_passes_goes_on_at_once() {
    let mut backlog = Backlog::new(1000, 10);
    backlog.push(&Cursor::default(), (0..40).map(|number| (tenant(0), spot(number))));
    let mut now_ms = 0;
    while now_ms < 60_000 {
        while let Some(taken) = backlog.take(now_ms) {
            backlog.failed(taken, Failure::Fault, now_ms);
        }
        now_ms = backlog.next_ms().unwrap();
    }
    assert!(backlog.aside() > 10);
    let mut through = 0;
    for _ in 0..100 {
        while let Some(taken) = backlog.take(now_ms) {
            backlog.done(taken);
            through += 1;
        }
    }
    assert_eq!((through, backlog.aside()), (40, 0));
}
