//! Nodes and a register in any order of calls, faults of the network, deaths and steps of clocks.

use proptest::prelude::*;

use super::world::{BAD, LEASE_MS, World, provider, settings};
use crate::breaker::{Outcome, Phase};

const NODES: usize = 3;
/// Longest look back: a holder is fresh for so long, with two windows.
const LOOK_BACK_MS: u64 = 1_500 + 2 * 300;

#[derive(Debug, Clone)]
enum Step {
    /// A call of a tenant, which ends so at once; or later, if there is no outcome.
    Call(usize, u64, Option<Outcome>),
    /// The nth call that is out ends, or is heard of no more.
    Report(usize, usize, Option<Outcome>),
    Begin(usize, bool),
    Deliver(usize),
    Repeat(usize),
    Delay(usize),
    Lose(usize),
    Wait(u64),
    TurnKeeper(i64),
    TurnWall(usize, i64),
    Kill(usize),
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![6 => Just(BAD), 3 => Just(Outcome::Answered), 1 => Just(Outcome::Abandoned)]
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        16 => (node(), 0..12_u64, proptest::option::weighted(0.8, outcome())).prop_map(|(n, t, o)| Step::Call(n, t, o)),
        5 => (node(), 0..9_usize, proptest::option::weighted(0.9, outcome())).prop_map(|(n, t, o)| Step::Report(n, t, o)),
        12 => node().prop_map(|n| Step::Begin(n, false)),
        1 => node().prop_map(|n| Step::Begin(n, true)),
        24 => (0..9_usize).prop_map(Step::Deliver),
        3 => (0..9_usize).prop_map(Step::Repeat),
        3 => (0..9_usize).prop_map(Step::Delay),
        1 => (0..9_usize).prop_map(Step::Lose),
        6 => (0..60_u64).prop_map(Step::Wait),
        2 => (0..500_u64).prop_map(Step::Wait),
        1 => (-3_000..3_000_i64).prop_map(Step::TurnKeeper),
        1 => (node(), -9_000..9_000_i64).prop_map(|(n, ms)| Step::TurnWall(n, ms)),
        1 => node().prop_map(Step::Kill),
    ]
}

/// What is true, whatever anybody knows.
#[derive(Default)]
struct Truth {
    /// Calls that were admitted; until when the probe is out at the latest, and which call it is; how many there were.
    serial: u64,
    probe: Option<(u64, u64)>,
    probes: u64,
    /// Ordinary calls that ended: when, whose, and whether in a fault.
    calls: Vec<(u64, u64, bool)>,
    opened: u64,
}

struct Run {
    world: World,
    truth: Truth,
    /// Tenants from here on have no faults.
    faulty: u64,
}

impl Run {
    fn new(faulty: u64) -> Self {
        Self { world: World::new(settings(), NODES as u64), truth: Truth::default(), faulty }
    }

    fn call(&mut self, node: usize, tenant: u64, outcome: Option<Outcome>) {
        let Ok(ticket) = self.world.admit(node) else { return };
        if ticket.is_probe() {
            let now_ms = self.world.true_ms;
            if let Some((until_ms, other)) = self.truth.probe {
                assert!(until_ms <= now_ms, "two probes are out, {other} and {}", self.truth.serial);
            }
            self.truth.probe = Some((now_ms + LEASE_MS, self.truth.serial));
            self.truth.probes += 1;
        }
        self.world.nodes[node].tickets.push((self.truth.serial, ticket));
        self.truth.serial += 1;
        if outcome.is_some() {
            let last = self.world.nodes[node].tickets.len() - 1;
            self.end(node, last, tenant, outcome);
        }
    }

    fn end(&mut self, node: usize, nth: usize, tenant: u64, outcome: Option<Outcome>) {
        let tickets = &mut self.world.nodes[node].tickets;
        let Some(at) = nth.checked_rem(tickets.len()) else { return };
        let (serial, ticket) = tickets.swap_remove(at);
        // Nobody knows whether a call that is heard of no more has ended.
        let Some(outcome) = outcome else { return };
        let outcome = if outcome == BAD && tenant >= self.faulty { Outcome::Answered } else { outcome };
        if ticket.is_probe() {
            // An older one may end late.
            self.truth.probe = self.truth.probe.filter(|(_, out)| *out != serial);
        } else {
            self.truth.calls.push((self.world.true_ms, tenant, outcome == BAD));
        }
        self.world.report(node, tenant, ticket, outcome);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call(node, tenant, outcome) => self.call(node, tenant, outcome),
            Step::Report(node, nth, outcome) => self.end(node, nth, nth as u64, outcome),
            Step::Begin(node, is_board) => self.world.begin(node, is_board),
            Step::Deliver(nth) => self.world.wire.net().deliver(nth),
            Step::Repeat(nth) => self.world.wire.net().repeat(nth),
            Step::Delay(nth) => self.world.wire.net().delay(nth),
            Step::Lose(nth) => self.world.wire.net().lose(nth),
            Step::Wait(ms) => self.world.advance(ms),
            Step::TurnKeeper(ms) => {
                let mut net = self.world.wire.net();
                net.keeper_ms = net.keeper_ms.saturating_add_signed(ms);
            }
            Step::TurnWall(node, ms) => {
                let stepped_ms = self.world.unix_ms(node).saturating_add_signed(ms);
                self.world.nodes[node].clock.step_to_unix_ms(stepped_ms);
            }
            Step::Kill(node) => {
                self.truth.opened -= self.world.nodes[node].breakers.counters().opened;
                self.world.kill(node);
            }
        }
        self.world.poll();
        self.check_openings();
    }

    /// Whatever has opened had reasons: enough calls, enough tenants with faults, and half of somebody's calls.
    fn check_openings(&mut self) {
        let opened = self.world.sum(|counters| counters.opened);
        if opened == self.truth.opened {
            return;
        }
        self.truth.opened = opened;
        let since_ms = self.world.true_ms.saturating_sub(LOOK_BACK_MS);
        let recent = || self.truth.calls.iter().filter(|(at_ms, ..)| *at_ms >= since_ms);
        let failing: std::collections::BTreeSet<_> = recent().filter(|call| call.2).map(|call| call.1).collect();
        if self.truth.probes == 0 {
            assert!(failing.len() >= 3, "{} tenants had faults", failing.len());
            assert!(recent().count() >= 6, "{} calls", recent().count());
        }
    }

    /// From here on nothing goes wrong: within the longest open time, two leases and some rounds it is closed.
    fn heal(&mut self) {
        self.world.finish();
        self.faulty = 0;
        for _ in 0..60 {
            for node in 0..NODES {
                self.call(node, 1, Some(Outcome::Answered));
                self.world.exchange(node);
            }
            self.world.advance(50);
        }
        for node in 0..NODES {
            assert_eq!(self.world.nodes[node].breakers.phase(provider()), Phase::Closed);
            assert!(!self.world.admit(node).unwrap().is_probe());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn one_probe_is_out_in_the_fleet_and_nothing_wedges(steps in proptest::collection::vec(step(), 50..400)) {
        let mut run = Run::new(12);
        for step in &steps {
            run.step(step);
        }
        run.heal();
    }

    /// However loud they are: tenants fewer than the rules ask for open nothing.
    #[test]
    fn two_loud_tenants_open_nothing(steps in proptest::collection::vec(step(), 50..400)) {
        let mut run = Run::new(2);
        for step in &steps {
            run.step(step);
            prop_assert_eq!(run.truth.opened, 0);
        }
    }
}

/// Schedules are of use if they get where the rules matter.
#[test]
fn schedules_open_probe_and_close() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut opened, mut probes, mut conflicts, mut failures) = (0, 0, 0, 0);
    for _ in 0..60 {
        let steps = proptest::collection::vec(step(), 200..400).new_tree(&mut runner).unwrap().current();
        let mut run = Run::new(12);
        for step in &steps {
            run.step(step);
        }
        opened += run.truth.opened;
        probes += run.truth.probes;
        conflicts += run.world.sum(|counters| counters.conflicts);
        failures += run.world.sum(|counters| counters.failures);
    }
    assert!(opened > 20 && probes > 20 && conflicts > 20 && failures > 20, "{opened} {probes} {conflicts} {failures}");
}
