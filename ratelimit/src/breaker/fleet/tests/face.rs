//! What one node, or three, do in turn.

use super::world::{BAD, LEASE_MS, World, provider, settings};
use crate::breaker::fleet::{FleetRules, FleetSettings};
use crate::breaker::{Outcome, Phase, Weight};
use crate::pair::ProviderKey;

fn open(world: &mut World) {
    world.calls(0, 0..6, 1, BAD);
    world.exchange(0);
    assert_eq!(world.nodes[0].breakers.phase(provider()), Phase::Open);
}

/// The others hear of it by the list.
fn spread_the_word(world: &mut World) {
    for node in 0..world.nodes.len() {
        world.exchange_board(node);
        world.exchange(node);
    }
}

#[test]
fn what_works_is_not_exchanged_and_has_no_standing() {
    let mut world = World::new(settings(), 1);
    world.calls(0, 0..40, 3, Outcome::Answered);
    // A fault in 120 calls is not worth a word.
    world.calls(0, 0..1, 1, BAD);
    world.exchange(0);
    assert_eq!(world.nodes[0].breakers.troubled(), 0);
    assert_eq!(world.sum(|counters| counters.exchanges), 0);
}

#[test]
fn a_breaker_opens_for_all_and_one_call_of_all_nodes_is_the_probe() {
    let mut world = World::new(settings(), 3);
    open(&mut world);
    spread_the_word(&mut world);
    for node in 0..3 {
        let looked = world.refusal(node);
        let refused = world.admit(node).unwrap_err();
        assert_eq!(looked, Some(refused), "a look says what a call would meet");
        assert!(refused.phase == Phase::Open && (1..=100).contains(&refused.retry_after_ms), "{refused:?}");
    }
    world.advance(100);
    // Who comes first is refused; the lease is fetched, and the next one has it.
    for node in 0..3 {
        assert_eq!(world.admit(node).unwrap_err().phase, Phase::Open);
        world.exchange(node);
    }
    assert_eq!(world.sum(|counters| counters.leases), 1);
    assert!(world.admit(1).is_err() && world.admit(2).is_err());
    assert!(world.refusal(0).is_none() && world.refusal(1).is_some(), "it is there to be had, and a look takes none");
    let first = world.admit(0).unwrap();
    assert!(first.is_probe() && world.admit(0).is_err());
    world.report(0, 1, first, Outcome::Answered);
    world.exchange(0);
    // The second of two, at another node, where a call has wanted it before.
    world.exchange(2);
    let second = world.admit(2).unwrap();
    assert!(second.is_probe());
    world.report(2, 1, second, Outcome::Answered);
    world.exchange(2);
    for node in 0..3 {
        world.exchange(node);
        assert!(!world.admit(node).unwrap().is_probe(), "{node}");
        assert_eq!(world.refusal(node), None);
    }
    assert_eq!((world.sum(|counters| counters.opened), world.sum(|counters| counters.closed)), (1, 1));
}

#[test]
fn a_bad_probe_opens_it_again_and_a_lost_one_is_given_up_by_who_has_seen_it_for_a_lease() {
    let mut world = World::new(settings(), 2);
    open(&mut world);
    spread_the_word(&mut world);
    world.advance(100);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    let probe = world.admit(0).unwrap();
    world.report(0, 1, probe, BAD);
    world.exchange(0);
    assert_eq!(world.nodes[0].breakers.phase(provider()), Phase::Open);
    world.advance(200);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    let _lost = world.admit(0).unwrap();
    world.exchange(1);
    // Whatever the keeper's clock says: it is watched by one's own.
    world.wire.net().keeper_ms += 1_000;
    world.advance(LEASE_MS + 99);
    world.exchange(1);
    assert!(world.admit(1).is_err());
    world.exchange(1);
    assert!(world.admit(1).is_err());
    world.advance(1);
    assert!(world.admit(1).is_err());
    world.exchange(1);
    assert!(world.admit(1).unwrap().is_probe());
}

#[test]
fn what_others_write_meanwhile_prolongs_neither_a_probe_nor_an_opening() {
    let mut world = World::new(settings(), 2);
    open(&mut world);
    spread_the_word(&mut world);
    let until = |world: &World| world.now(1).mono_ms + world.admit(1).unwrap_err().retry_after_ms;
    let first = until(&world);
    // The keeper's clock goes back, and there is something to write at each time.
    for _ in 0..3 {
        world.advance(20);
        world.wire.net().keeper_ms -= 50_000;
        world.nodes[0].breakers.tallies.count(provider(), crate::PairKey::of(1, 1), Weight::Bad, world.now(0));
        world.exchange(0);
        world.exchange(1);
        assert_eq!(until(&world), first);
    }
    world.advance(40);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    let _lost = world.admit(0).unwrap();
    for _ in 0..5 {
        world.exchange(1);
        world.nodes[0].breakers.tallies.count(provider(), crate::PairKey::of(1, 1), Weight::Bad, world.now(0));
        world.exchange(0);
        world.advance(100);
    }
    world.exchange(1);
    assert!(world.admit(1).is_err());
    world.exchange(1);
    assert!(world.admit(1).unwrap().is_probe(), "a lease and a claim after it was first seen");
}

#[test]
fn what_a_node_could_not_say_while_it_was_open_is_not_said_afterwards() {
    let mut world = World::new(settings(), 2);
    world.calls(1, 0..6, 2, BAD);
    open(&mut world);
    // It hears of the opening, and what it has to say is lost.
    world.begin(1, false);
    world.wire.net().deliver(0);
    world.poll();
    world.wire.net().lose(0);
    world.poll();
    world.advance(100);
    for _ in 0..2 {
        assert!(world.admit(0).is_err());
        world.exchange(0);
        let probe = world.admit(0).unwrap();
        world.report(0, 1, probe, Outcome::Answered);
        world.exchange(0);
    }
    for _ in 0..3 {
        world.exchange(1);
        assert_eq!(world.nodes[1].breakers.phase(provider()), Phase::Closed);
    }
    assert_eq!(world.sum(|counters| counters.opened), 1);
}

#[test]
fn a_lease_that_no_call_takes_goes_to_another_node() {
    let mut world = World::new(settings(), 2);
    open(&mut world);
    spread_the_word(&mut world);
    world.advance(100);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    world.advance(100);
    assert!(world.admit(0).is_err(), "its claim is over");
    world.exchange(0);
    world.exchange(1);
    assert!(world.admit(1).is_err());
    world.exchange(1);
    assert!(world.admit(1).unwrap().is_probe());
}

#[test]
fn who_finds_its_own_name_has_the_lease_though_the_answer_was_lost() {
    let mut world = World::new(settings(), 1);
    open(&mut world);
    world.advance(100);
    assert!(world.admit(0).is_err());
    world.begin(0, false);
    world.wire.net().deliver(0);
    world.poll();
    // The write arrives, and its answer does not.
    world.wire.net().repeat(0);
    world.poll();
    assert_eq!(world.sum(|counters| counters.failures), 1);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    assert!(world.admit(0).unwrap().is_probe());
}

#[test]
fn one_nodes_broken_network_is_outvoted_by_those_whose_calls_succeed() {
    let hearing = FleetSettings { rules: FleetRules { hear_ms: 300, ..settings().rules }, ..settings() };
    let mut world = World::new(hearing, 3);
    world.calls(0, 0..6, 1, BAD);
    for node in 1..3 {
        world.calls(node, 0..20, 1, Outcome::Answered);
    }
    world.exchange(0);
    assert_eq!(world.nodes[0].breakers.phase(provider()), Phase::Closed, "the others are heard first");
    spread_the_word(&mut world);
    world.advance(300);
    world.calls(0, 0..6, 1, BAD);
    world.exchange(0);
    assert_eq!(world.sum(|counters| counters.opened), 0, "12 of 52 calls");
    // And where it fails for them as well it opens.
    for node in 1..3 {
        world.calls(node, 0..20, 2, BAD);
        world.exchange(node);
    }
    world.advance(300);
    world.exchange(1);
    assert_eq!(world.sum(|counters| counters.opened), 1);
}

#[test]
fn what_was_counted_before_it_opened_opens_nothing_again() {
    let mut world = World::new(settings(), 1);
    let late: Vec<_> = (0..6).map(|_| world.admit(0).unwrap()).collect();
    open(&mut world);
    for _ in 0..2 {
        world.advance(100);
        assert!(world.admit(0).is_err());
        world.exchange(0);
        let probe = world.admit(0).unwrap();
        world.report(0, 1, probe, Outcome::Answered);
        world.exchange(0);
    }
    assert_eq!(world.nodes[0].breakers.phase(provider()), Phase::Closed);
    for (tenant, ticket) in (0..).zip(late) {
        world.report(0, tenant, ticket, BAD);
    }
    world.exchange(0);
    assert_eq!(world.sum(|counters| counters.opened), 1);
    open(&mut world);
}

#[test]
fn without_a_register_a_node_goes_by_its_own_counts_and_later_probes_by_itself() {
    let mut world = World::new(FleetSettings { alone_ms: 500, ..settings() }, 2);
    world.calls(0, 0..6, 1, BAD);
    world.fail(0);
    assert_eq!(world.nodes[0].breakers.phase(provider()), Phase::Open);
    world.advance(499);
    assert!(world.admit(0).is_err());
    world.fail(0);
    assert!(world.admit(0).is_err(), "somebody else's probe might be out");
    world.advance(1);
    world.fail(0);
    let probe = world.admit(0).unwrap();
    assert!(probe.is_probe() && world.admit(0).is_err());
    world.report(0, 1, probe, Outcome::Answered);
    world.fail(0);
    assert!(world.admit(0).is_err());
    world.fail(0);
    let probe = world.admit(0).unwrap();
    world.report(0, 1, probe, Outcome::Answered);
    world.fail(0);
    assert!(!world.admit(0).unwrap().is_probe());
    let counters = world.nodes[0].breakers.counters();
    assert_eq!((counters.failures, counters.alone, counters.exchanges), (6, 4, 0));
}

#[test]
fn a_register_that_forgot_is_told_again_and_one_that_cannot_be_read_begins_anew() {
    let mut world = World::new(settings(), 2);
    open(&mut world);
    let open_state = world.wire.net().snapshot();
    spread_the_word(&mut world);
    world.advance(100);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    let _probe = world.admit(0).unwrap();
    world.exchange(1);
    for has_older in [false, true] {
        // Nothing, or a state from before the lease.
        if has_older {
            world.wire.net().take_over(open_state.clone());
        } else {
            world.wire.net().flush();
        }
        assert!(world.admit(1).is_err());
        world.exchange(1);
        world.exchange(1);
        assert!(world.admit(1).is_err(), "the probe is still out");
    }
    assert_eq!(world.nodes[1].breakers.counters().forgotten, 2);
    for junk in [b"\x02".as_slice(), b"junk", &[1; 70]] {
        world.wire.net().set(provider(), junk);
        world.exchange(1);
        assert!(!world.admit(1).unwrap().is_probe(), "a new breaker is closed");
    }
    assert_eq!(world.nodes[1].breakers.counters().unreadable, 3);
}

#[test]
fn who_did_not_see_the_lease_that_was_lost_waits_for_it_all_the_same() {
    let mut world = World::new(settings(), 2);
    open(&mut world);
    spread_the_word(&mut world);
    world.advance(100);
    assert!(world.admit(0).is_err());
    world.exchange(0);
    let _probe = world.admit(0).unwrap();
    world.wire.net().flush();
    for passed_ms in [0, LEASE_MS, 99] {
        world.advance(passed_ms);
        assert!(world.admit(1).is_err());
        world.exchange(1);
        assert!(world.admit(1).is_err(), "{passed_ms}");
    }
    world.advance(1);
    assert!(world.admit(1).is_err());
    world.exchange(1);
    assert!(world.admit(1).unwrap().is_probe());
}

#[test]
fn providers_in_trouble_are_bounded_and_chance_makes_room_for_what_is_nearly_open() {
    let world = World::new(settings(), 1);
    let (breakers, now) = (&world.nodes[0].breakers, world.now(0));
    let fail = |of: u64, tenants: u64| {
        for tenant in 0..tenants {
            let key = ProviderKey::from_u64(of);
            let ticket = breakers.admit(key, now).unwrap();
            breakers.report(key, crate::PairKey::of(tenant, 1), ticket, BAD, crate::breaker::Faults::ALL, now);
        }
    };
    for of in 1..=5 {
        fail(of, 1);
    }
    breakers.look(now);
    assert_eq!((breakers.troubled(), breakers.counters().untracked), (4, 1));
    fail(6, 6);
    assert_eq!(breakers.troubled(), 4);
    assert!(breakers.with(ProviderKey::from_u64(6), |_| ()).is_some());
}
