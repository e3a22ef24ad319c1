use std::collections::HashSet;

use crate::quota::holder::{Degraded, Hold, Per, Reason, Seen, Settings, Source, Spoilt};
use crate::quota::{AskError, Body, Class, Denial, Kind, Level, Op, Rule, RuleSpec, Why};

use super::bench::{Bench, fixed, need, rule};

fn bench() -> Bench {
    Bench::new(Settings::default())
}

#[test]
fn a_call_takes_of_every_level_or_of_none() {
    let mut bench = bench();
    let needs = [need("a", Level::App, "day", fixed(100)), need("a", Level::Connection, "minute", fixed(2))];
    let route = bench.route("t", &needs);
    for _ in 0..2 {
        let taken = bench.hold(&route, 1).unwrap();
        bench.finish(&taken, true);
    }
    let parked = bench.hold(&route, 1).unwrap_err();
    assert_eq!(parked.reason, Reason::Denied(Denial::Exhausted));
    assert_eq!((parked.level, parked.source()), (Level::Connection, Source::Quota));
    assert!(parked.release_ms <= 66_000, "{parked:?}");
    // The application was granted what the connection could use, or has it back: no more than a block beside it.
    bench.pass(1_500);
    assert_eq!(bench.used(&needs[0]), 2);
    assert_eq!(bench.used(&needs[1]), 2);
}

#[test]
fn what_is_held_and_heeded_can_be_looked_at() {
    let mut bench = bench();
    let day = need("a", Level::App, "day", fixed(1_000));
    let mut any = need("a", Level::Connection, "any", fixed(1_000));
    any.per = Per::Nothing;
    let needs = [day.clone(), any.clone()];
    for tenant in ["t1", "t2", "t3"] {
        let route = bench.route(tenant, &needs);
        let taken = bench.hold(&route, 1).unwrap();
        bench.finish(&taken, true);
    }
    let other = bench.route("t1", &[need("b", Level::App, "day", fixed(10))]);
    let taken = bench.hold(&other, 1).unwrap();
    bench.finish(&taken, true);

    let of = |most| bench.leases.holdings_of(&day.application, &day.bucket.key, most, bench.now_ms);
    let (all, count) = of(10);
    let mut tenants: Vec<_> = all.iter().map(|holding| holding.tenant.as_str()).collect();
    tenants.sort_unstable();
    assert_eq!((tenants, count), (vec!["t1", "t2", "t3"], 3));
    assert!(all.windows(2).all(|pair| pair[0].granted >= pair[1].granted), "{all:?}");
    let (first, count) = of(1);
    assert_eq!((first.as_slice(), count), (&all[..1], 3));
    assert_eq!(bench.leases.holdings_of(&any.application, &any.bucket.key, 10, bench.now_ms), (Vec::new(), 0));

    let mut names = Vec::new();
    bench.leases.each_application(|application| names.push(application.to_string()));
    names.sort_unstable();
    assert_eq!(names, ["acme:a", "acme:b"]);

    let route = bench.route("t1", &needs);
    let explained = |bench: &Bench| bench.leases.explain(&route, Class::Bulk, 1, bench.now_ms);
    let view = &explained(&bench)[1];
    assert_eq!((view.units, view.refusal, view.is_missing), (0, None, false));
    bench.leases.pushed(&any.application, &any.bucket.key, 1, 5_000, Why::Operator, bench.now_ms);
    let [day, any] = explained(&bench).try_into().unwrap();
    assert_eq!((day.units, day.refusal), (1, None));
    let refusal = any.refusal.unwrap();
    assert_eq!((refusal.release_ms, refusal.reason), (5_000, Reason::Park(Why::Operator)));
}

#[test]
fn a_refusal_costs_no_question_until_it_is_over() {
    let mut bench = bench();
    let route = bench.route("t", &[need("a", Level::App, "minute", fixed(1))]);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
    bench.hold(&route, 1).unwrap_err();
    let asked = bench.leases.counters().snapshot().operations;
    for _ in 0..100 {
        bench.hold(&route, 1).unwrap_err();
    }
    assert_eq!(bench.leases.counters().snapshot().operations, asked);
}

#[test]
fn who_asks_often_of_a_long_window_is_not_sent_away_for_longer_each_time() {
    const HOUR_MS: u64 = 3_600_000;
    let mut bench = bench();
    let hourly = rule(Kind::Fixed { window_ms: HOUR_MS, offset_ms: 0 }, 2);
    let route = bench.route("t", &[need("a", Level::Connection, "hourly", hourly)]);
    for _ in 0..2 {
        let taken = bench.hold(&route, 1).unwrap();
        bench.finish(&taken, true);
    }
    let ends_ms = HOUR_MS - (super::bench::START_MS + bench.now_ms) % HOUR_MS;
    for _ in 0..20 {
        let parked = bench.hold(&route, 1).unwrap_err();
        assert_eq!(parked.reason, Reason::Denied(Denial::Exhausted));
        // Those that come again at the window's end do so within a minute, and ten seconds of chance.
        assert!((ends_ms..=ends_ms + 71_000).contains(&parked.release_ms), "{parked:?}, {ends_ms} ms are left");
    }
}

#[test]
fn a_refusal_ends_when_the_bucket_is_reset() {
    let mut bench = bench();
    let needs = [need("a", Level::App, "minute", fixed(1))];
    let route = bench.route("t", &needs);
    let never = bench.route("u", &needs);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
    bench.hold(&route, 1).unwrap_err();
    let first = bench.hold(&never, 1).unwrap_err();
    let (application, key) = (&needs[0].application, &needs[0].bucket.key);
    let reset = Op { application: application.clone(), body: Body::Reset((**key).clone()) };
    bench.ask(&reset).unwrap();
    let generation = bench.generation(&needs[0]);
    bench.leases.pushed(application, key, generation, 0, Why::Operator, bench.now_ms);
    // Also for one who never had a lease, and is told its own time once the limit is used up again.
    let taken = bench.hold(&never, 1).unwrap();
    bench.finish(&taken, true);
    let again = bench.hold(&never, 1).unwrap_err();
    assert!(again.release_ms <= first.release_ms, "{again:?}, {first:?}");
}

#[test]
fn a_refusal_ends_with_the_rule_that_it_was_by() {
    let mut bench = bench();
    let before = need("a", Level::Connection, "minute", fixed(1));
    let route = bench.route("t", std::slice::from_ref(&before));
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
    bench.hold(&route, 1).unwrap_err();
    let asked = bench.leases.counters().snapshot().operations;

    // The same rule, worked out for another kind of request, is not another one.
    let same = bench.route("t", &[need("a", Level::Connection, "minute", fixed(1))]);
    bench.hold(&same, 1).unwrap_err();
    assert_eq!(bench.leases.counters().snapshot().operations, asked);

    let spec = RuleSpec { cfgver: 2, cap: 2, ..*fixed(1) };
    let raised = bench.route("t", &[need("a", Level::Connection, "minute", Rule::checked(spec).unwrap())]);
    let taken = bench.hold(&raised, 1).unwrap();
    bench.finish(&taken, true);
    bench.hold(&raised, 1).unwrap_err();
}

#[test]
fn what_was_not_sent_is_there_again() {
    let mut bench = bench();
    let route = bench.route("t", &[need("a", Level::App, "minute", fixed(1))]);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, false);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
    bench.hold(&route, 1).unwrap_err();
}

#[test]
fn what_was_not_sent_in_time_is_lost_with_its_lease() {
    let mut bench = bench();
    let bucket = rule(Kind::Sliding { window_ms: 10_000, slots: 10 }, 3);
    let needs = [need("a", Level::Connection, "ten", bucket)];
    let route = bench.route("t", &needs);
    let taken = bench.hold(&route, 1).unwrap();
    assert_eq!(bench.leases.check(&taken, bench.now_ms), Ok(()));
    let last_ms = taken.expires_ms() - 1;
    assert!(last_ms < 1_000 + 1_000, "before the centre's time is over: {last_ms}");
    assert_eq!(bench.leases.check(&taken, last_ms), Ok(()));
    assert_eq!(bench.leases.check(&taken, last_ms + 1), Err(Spoilt::Expired { leg: 0 }));
    bench.pass(2_000);
    bench.finish(&taken, false);
    assert_eq!(bench.leases.counters().snapshot().forfeited_units, 1);
}

#[test]
fn a_unit_of_an_earlier_lease_does_not_get_the_time_of_a_later_one() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(1_000))];
    let route = bench.route("t", &needs);
    let early = bench.hold(&route, 1).unwrap();
    // The lease that it is of is over by now, and there is another one.
    bench.pass(500);
    let mut later = Vec::new();
    for _ in 0..3 {
        later.push(bench.hold(&route, 1).unwrap());
    }
    let free = |bench: &Bench| bench.leases.explain(&route, Class::Bulk, 1, bench.now_ms)[0].free;
    let before = free(&bench);
    bench.finish(&early, false);
    assert_eq!(free(&bench), before);
    bench.finish(&later.pop().unwrap(), false);
    assert_eq!(free(&bench), before + 1);
}

#[test]
fn what_is_spent_while_an_answer_is_under_way_is_taken_off_it() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(10_000))];
    let route = bench.route("t", &needs);
    let mut spent = 0_u64;
    // Answers are kept for some calls, so that prefetches overlap with spending.
    for round in 0..2_000_u64 {
        let (caller, hold) = bench.begin(&route, Class::Bulk, 1, 50);
        match hold {
            Hold::Held(taken) => {
                bench.finish(&taken, true);
                spent += 1;
            }
            Hold::Parked(parked) => panic!("{parked:?}"),
            Hold::Waits => {
                bench.exchange();
                let taken = bench.verdict(caller).unwrap().unwrap();
                bench.finish(&taken, true);
                spent += 1;
            }
        }
        if round % 3 == 0 {
            bench.exchange();
        }
        bench.now_ms += 1;
        if round % 7 == 0 {
            let effects = bench.leases.tick(bench.now_ms, bench.now_ms);
            bench.take_up(effects);
        }
    }
    bench.exchange();
    let free = u64::from(bench.leases.explain(&route, Class::Bulk, 1, bench.now_ms)[0].free);
    let used = bench.used(&needs[0]);
    assert!(used >= spent + free, "{used} counted, {spent} spent, {free} held");
    let snapshot = bench.leases.counters().snapshot();
    assert!(snapshot.local > 1_900, "{snapshot:?}");
    assert!(snapshot.operations < 150, "{snapshot:?}");
}

#[test]
fn callers_of_a_cold_bucket_share_one_acquire() {
    let mut bench = bench();
    let route = bench.route("t", &[need("a", Level::Connection, "minute", fixed(100_000))]);
    let callers: Vec<u64> = (0..50).map(|_| bench.begin(&route, Class::Bulk, 1, 50).0).collect();
    assert_eq!(bench.sends.len(), 1);
    bench.exchange();
    for caller in callers {
        let taken = bench.verdict(caller).unwrap().unwrap();
        bench.finish(&taken, true);
    }
    assert!(bench.leases.counters().snapshot().operations <= 2);
}

#[test]
fn waiters_are_bounded() {
    let mut bench = Bench::new(Settings { waiters_per_tenant: 5, waiters: 8, ..Settings::default() });
    let needs = [need("a", Level::Connection, "minute", fixed(100_000))];
    let (one, other) = (bench.route("one", &needs), bench.route("other", &needs));
    let waits = |bench: &mut Bench, route| {
        (0..10).filter(|_| matches!(bench.begin(route, Class::Bulk, 1, 50).1, Hold::Waits)).count()
    };
    assert_eq!(waits(&mut bench, &one), 5);
    assert_eq!(waits(&mut bench, &other), 3);
    bench.exchange();
    assert_eq!(bench.leases.sizes().1, 0);
}

#[test]
fn leases_are_bounded_and_forgotten() {
    let mut bench = Bench::new(Settings { cells: 10, ..Settings::default() });
    let bucket = rule(Kind::Bucket { window_ms: 1_000, burst: 10 }, 10);
    let routes: Vec<_> =
        (0..20).map(|at| bench.route("t", &[need("a", Level::Connection, &format!("p{at}"), bucket)])).collect();
    let held = routes.iter().filter(|route| bench.hold(route, 1).is_ok()).count();
    assert_eq!((held, bench.leases.sizes().0), (10, 10));
    bench.pass(10_000);
    assert_eq!(bench.leases.sizes().0, 0, "nothing of them matters any more");
    assert!(bench.hold(&routes[19], 1).is_ok());
}

#[test]
fn interactive_calls_of_a_tenant_are_served_first() {
    let mut bench = bench();
    let bucket = rule(Kind::Bucket { window_ms: 1_000, burst: 2 }, 1);
    let route = bench.route("t", &[need("a", Level::Connection, "slow", bucket)]);
    let bulk: Vec<u64> = (0..2).map(|_| bench.begin(&route, Class::Bulk, 1, 30_000).0).collect();
    let urgent = bench.begin(&route, Class::Interactive, 1, 30_000).0;
    let mut order = Vec::new();
    for _ in 0..10_000 {
        bench.pass(1);
        order.extend(bench.verdicts.drain(..).map(|(caller, _)| caller));
    }
    // The first was asked for before the urgent one came; what comes then is the urgent one's.
    assert_eq!(order.len(), 3);
    assert_eq!(order.iter().position(|&caller| caller == urgent), Some(0).max(order.iter().position(|&c| c == urgent)));
    assert!(order.iter().position(|&caller| caller == urgent) < order.iter().position(|&caller| caller == bulk[1]));
}

#[test]
fn slots_come_free_and_heartbeats_keep_them() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "calls", rule(Kind::Concurrency, 2))];
    let route = bench.route("t", &needs);
    let one = bench.hold(&route, 1).unwrap();
    let other = bench.hold(&route, 1).unwrap();
    bench.hold(&route, 1).unwrap_err();
    // Longer than a lease: heartbeats keep them.
    bench.pass(5_000);
    assert_eq!(bench.used(&needs[0]), 2);
    bench.finish(&one, true);
    let again = bench.hold(&route, 1).unwrap();
    bench.finish(&again, true);
    bench.finish(&other, true);
    bench.pass(3_000);
    assert_eq!(bench.used(&needs[0]), 0);
}

#[test]
fn a_slot_that_comes_free_goes_to_who_waits() {
    let mut bench = bench();
    let route = bench.route("t", &[need("a", Level::Connection, "calls", rule(Kind::Concurrency, 1))]);
    let one = bench.hold(&route, 1).unwrap();
    let (caller, hold) = bench.begin(&route, Class::Bulk, 1, 10_000);
    assert!(matches!(hold, Hold::Waits));
    bench.pass(100);
    assert!(bench.verdict(caller).is_none());
    bench.finish(&one, true);
    assert!(bench.verdict(caller).unwrap().is_ok());
}

#[test]
fn who_finds_all_slots_in_use_is_told_to_come_again_soon() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "calls", rule(Kind::Concurrency, 2))];
    let route = bench.route("t", &needs);
    let taken = [bench.hold(&route, 1).unwrap(), bench.hold(&route, 1).unwrap()];
    // Here all are in use: one more than there are would be needed.
    let parked = bench.hold(&route, 1).unwrap_err();
    assert_eq!(parked.reason, Reason::Denied(Denial::Exhausted));
    assert!(parked.release_ms <= 600, "{parked:?}");
    // And of another tenant, which holds none.
    let parked = bench.hold(&bench.route("u", &needs), 1).unwrap_err();
    assert!(parked.release_ms <= 600, "{parked:?}");
    for taken in &taken {
        bench.finish(taken, true);
    }
    // What nobody uses any more comes back with the next heartbeat.
    bench.pass(1_000);
    let route = bench.route("u", &needs);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
}

#[test]
fn a_refusal_of_the_provider_stops_everybody_here_at_once_and_is_told_until_it_is_heard() {
    let mut bench = bench();
    let needs = [need("a", Level::App, "minute", fixed(1_000))];
    let (one, other) = (bench.route("one", &needs), bench.route("other", &needs));
    let held = bench.hold(&other, 1).unwrap();
    let refused = bench.hold(&one, 1).unwrap();
    bench.is_gone = true;
    bench.leases.throttled(&refused, 0, 5_000, Why::Provider, bench.now_ms);
    bench.finish(&refused, true);
    assert_eq!(bench.leases.check(&held, bench.now_ms), Err(Spoilt::Void { leg: 0 }));
    let parked = bench.hold(&other, 1).unwrap_err();
    assert_eq!((parked.reason, parked.source()), (Reason::Park(Why::Provider), Source::Provider));
    assert!((5_000..=5_500).contains(&parked.release_ms), "{parked:?}");
    bench.pass(2_000);
    bench.is_gone = false;
    bench.pass(2_000);
    let view = bench.used(&needs[0]);
    assert!(view > 0 && bench.leases.is_told());
    // The centre knows: it is parked there for what is left, and paced afterwards.
    let op = Op {
        application: needs[0].application.clone(),
        body: Body::Describe(crate::quota::Describe { after: None, limit: 1 }),
    };
    let crate::quota::Answer::Buckets(views) = bench.ask(&op).unwrap().answer else { panic!("not a view") };
    assert!(views[0].park.is_some_and(|park| park.ms <= 1_100), "{views:?}");
    bench.pass(1_200);
    assert!(bench.hold(&one, 1).is_ok());
}

#[test]
fn a_push_parks_and_an_operator_s_release_ends_it() {
    let mut bench = bench();
    let needs = [need("a", Level::App, "minute", fixed(1_000))];
    let route = bench.route("t", &needs);
    let held = bench.hold(&route, 1).unwrap();
    let (application, key) = (&needs[0].application, &needs[0].bucket.key);
    bench.leases.pushed(application, key, u64::MAX >> 8, 3_000, Why::Operator, bench.now_ms);
    assert_eq!(bench.leases.check(&held, bench.now_ms), Err(Spoilt::Void { leg: 0 }));
    assert_eq!(bench.hold(&route, 1).unwrap_err().reason, Reason::Park(Why::Operator));
    bench.leases.pushed(application, key, 0, 0, Why::Operator, bench.now_ms);
    assert_eq!(bench.leases.explain(&route, Class::Bulk, 1, bench.now_ms)[0].refusal, None);
}

#[test]
fn who_waits_goes_on_at_an_operator_s_release_or_reset() {
    let mut bench = bench();
    let window = Kind::Fixed { window_ms: 20_000, offset_ms: 0 };
    let needs = [need("a", Level::Connection, "minute", rule(window, 1))];
    let route = bench.route("t", &needs);
    let (application, key) = (&needs[0].application, &needs[0].bucket.key);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
    bench.hold(&route, 1).unwrap_err();
    let (caller, _) = bench.begin(&route, Class::Interactive, 1, 25_000);
    bench.pass(100);
    assert!(bench.verdict(caller).is_none());
    bench.ask(&Op { application: application.clone(), body: Body::Reset((**key).clone()) }).unwrap();
    bench.leases.pushed(application, key, 0, 0, Why::Operator, bench.now_ms);
    bench.pass(100);
    let taken = bench.verdict(caller).unwrap().unwrap();
    bench.finish(&taken, true);

    bench.leases.pushed(application, key, 0, 20_000, Why::Operator, bench.now_ms);
    let other = bench.route("t", &[need("a", Level::Connection, "other", fixed(1)), needs[0].clone()]);
    let (caller, _) = bench.begin(&other, Class::Interactive, 1, 25_000);
    bench.pass(100);
    assert!(bench.verdict(caller).is_none());
    bench.ask(&Op { application: application.clone(), body: Body::Reset((**key).clone()) }).unwrap();
    bench.leases.pushed(application, key, 0, 0, Why::Operator, bench.now_ms);
    bench.pass(100);
    assert!(bench.verdict(caller).is_some_and(|verdict| verdict.is_ok()));
}

#[test]
fn an_answer_that_never_comes_counts_as_spent_and_parks_after_the_budget() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(100))];
    let route = bench.route("t", &needs);
    let (caller, _) = bench.begin(&route, Class::Bulk, 1, 50);
    let sending = bench.sends.remove(0);
    // It was done, and nobody heard of it.
    bench.ask(&sending.op).unwrap();
    bench.pass(49);
    assert!(bench.verdict(caller).is_none());
    bench.pass(2);
    assert_eq!(bench.verdict(caller).unwrap().unwrap_err().reason, Reason::Slow);
    for _ in 0..bench.leases.settings().attempts {
        bench.answer(&sending, Err(AskError::Timeout));
    }
    assert_eq!(bench.leases.counters().snapshot().given_up, 1);
    // The same answer after that is nobody's.
    let reply = bench.ask(&sending.op).unwrap();
    bench.answer(&sending, Ok(reply));
    bench.sends.clear();
    bench.pass(200);
    let taken = bench.hold(&route, 1).unwrap();
    bench.finish(&taken, true);
    assert_eq!(bench.used(&needs[0]), 2);
}

#[test]
fn a_lost_answer_is_asked_for_again_under_the_same_seq() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(100))];
    let route = bench.route("t", &needs);
    let (caller, _) = bench.begin(&route, Class::Bulk, 1, 1_000);
    let sending = bench.sends.remove(0);
    bench.ask(&sending.op).unwrap();
    bench.answer(&sending, Err(AskError::Timeout));
    bench.pass(20);
    assert!(bench.verdict(caller).unwrap().is_ok());
    assert_eq!(bench.used(&needs[0]), 1, "granted once");
}

#[test]
fn without_a_centre_calls_are_parked_and_what_is_held_is_spent() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(10_000))];
    let route = bench.route("t", &needs);
    for _ in 0..400 {
        let taken = bench.hold(&route, 1).unwrap();
        bench.finish(&taken, true);
        bench.pass(1);
    }
    let free = bench.leases.explain(&route, Class::Bulk, 1, bench.now_ms)[0].free;
    assert!(free > 5, "{free}");
    bench.is_gone = true;
    let mut spent = 0;
    let parked = loop {
        match bench.hold(&route, 1) {
            Ok(taken) => {
                bench.finish(&taken, true);
                spent += 1;
            }
            Err(parked) => break parked,
        }
    };
    assert!(spent >= free, "{spent} of {free}");
    assert!(matches!(parked.reason, Reason::Gone | Reason::Slow), "{parked:?}");
    bench.pass(1_000);
    let asked = bench.leases.counters().snapshot().operations;
    for _ in 0..1_000 {
        assert!(bench.hold(&route, 1).is_err());
    }
    assert!(bench.leases.counters().snapshot().operations - asked <= 2, "one looks whether it is there again");
    bench.is_gone = false;
    bench.pass(6_000);
    assert!(bench.hold(&route, 1).is_ok());
}

#[test]
fn what_is_set_aside_is_spent_when_the_centre_is_gone_and_no_more() {
    let degraded = Degraded { permille: 100, nodes: 4 };
    let mut bench = Bench::new(Settings { degraded: Some(degraded), ..Settings::default() });
    let needs = [need("a", Level::Connection, "minute", fixed(400))];
    let route = bench.route("t", &needs);
    bench.is_gone = true;
    let mut spent = 0;
    for _ in 0..100 {
        if let Ok(taken) = bench.hold(&route, 1) {
            assert_eq!(bench.leases.check(&taken, bench.now_ms), Ok(()));
            bench.finish(&taken, true);
            spent += 1;
        }
        bench.pass(5);
    }
    assert_eq!(spent, 400 / 10 / 4);
    // The centre grants the rest.
    bench.is_gone = false;
    bench.pass(10_000);
    let mut granted = 0;
    while let Ok(taken) = bench.hold(&route, 1) {
        bench.finish(&taken, true);
        granted += 1;
    }
    assert_eq!(granted, 400 - 40);
}

#[test]
fn a_cost_is_settled_with_what_is_held_or_told() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "points", fixed(1_000))];
    let route = bench.route("t", &needs);
    let mut taken = bench.hold(&route, 50).unwrap();
    bench.leases.settle(&mut taken, 0, 20, bench.now_ms);
    assert_eq!(bench.leases.explain(&route, Class::Bulk, 1, bench.now_ms)[0].free, 30, "here again");
    bench.finish(&taken, true);
    let mut taken = bench.hold(&route, 10).unwrap();
    bench.leases.settle(&mut taken, 0, 60, bench.now_ms);
    bench.finish(&taken, true);
    bench.pass(2_500);
    // 20 and 60 were really spent; what was left has gone back.
    assert_eq!(bench.used(&needs[0]), 80);
}

#[test]
fn headers_are_told_seldom_and_at_once_when_little_is_left() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(100_000))];
    let route = bench.route("t", &needs);
    let observed = |bench: &mut Bench, remaining, times| {
        for _ in 0..times {
            let taken = bench.hold(&route, 1).unwrap();
            let seen = Seen { limit: Some(100_000), remaining: Some(remaining), reset_ms: None };
            bench.leases.observed(&taken, 0, seen, bench.now_ms);
            bench.finish(&taken, true);
            bench.pass(1);
        }
    };
    observed(&mut bench, 90_000, 1_000);
    let snapshot = bench.leases.counters().snapshot();
    assert!(snapshot.operations < 60, "{snapshot:?}");
    assert_eq!(bench.used(&needs[0]).max(10_000), bench.used(&needs[0]), "others spend, too");
    bench.pass(300);
    observed(&mut bench, 500, 1);
    bench.pass(2);
    assert!(bench.used(&needs[0]) >= 99_500, "{}", bench.used(&needs[0]));
}

#[test]
fn that_little_is_left_is_told_at_once_also_where_nothing_says_of_how_much() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(1_000))];
    let route = bench.route("t", &needs);
    let taken = bench.hold(&route, 1).unwrap();
    let seen = Seen { limit: None, remaining: Some(50), reset_ms: None };
    bench.leases.observed(&taken, 0, seen, bench.now_ms);
    bench.finish(&taken, true);
    bench.pass(2);
    assert!(bench.used(&needs[0]) >= 950, "{}", bench.used(&needs[0]));
}

#[test]
fn what_a_provider_counts_beyond_what_was_granted_is_an_overshoot() {
    let mut bench = bench();
    let needs = [need("a", Level::Connection, "minute", fixed(1_000))];
    let route = bench.route("t", &needs);
    let observed = |bench: &mut Bench, remaining| {
        let taken = bench.hold(&route, 1).unwrap();
        let seen = Seen { limit: Some(1_000), remaining: Some(remaining), reset_ms: None };
        bench.leases.observed(&taken, 0, seen, bench.now_ms);
        bench.finish(&taken, true);
        bench.pass(11_000);
        let snapshot = bench.leases.counters().snapshot();
        (snapshot.overshoots, snapshot.overshoot_units)
    };
    assert_eq!(observed(&mut bench, 999), (0, 0), "the one call");
    let used = bench.used(&needs[0]);
    let (overshoots, units) = observed(&mut bench, 500);
    assert_eq!(overshoots, 1);
    assert!((500 - 3 - used..=500 - used).contains(&units), "{units} beyond {used}");
    assert_eq!(observed(&mut bench, 500), (overshoots, units), "that is counted by now");
}

#[test]
fn a_shared_address_is_asked_after_the_application_whose_units_come_back() {
    let mut bench = bench();
    let needs = [need("a", Level::App, "minute", fixed(100)), need("src", Level::Source, "address", fixed(1))];
    let route = bench.route("t", &needs);
    let (_, hold) = bench.begin(&route, Class::Bulk, 1, 50);
    assert!(matches!(hold, Hold::Waits));
    let applications: HashSet<_> = bench.sends.iter().map(|sending| sending.op.application.name.clone()).collect();
    assert_eq!(applications.len(), 1, "one after the other");
    bench.exchange();
    bench.verdicts.clear();
    let parked = bench.hold(&route, 1).unwrap_err();
    assert_eq!(parked.level, Level::Source);
    bench.pass(1_500);
    assert_eq!(bench.used(&needs[0]), 1);
}

#[test]
fn a_level_that_counts_calls_takes_one_whatever_they_cost() {
    let mut bench = bench();
    let mut needs = [need("a", Level::App, "points", fixed(100)), need("a", Level::App, "calls", fixed(100))];
    needs[1].per = Per::Call;
    let route = bench.route("t", &needs);
    let taken = bench.hold(&route, 7).unwrap();
    bench.finish(&taken, true);
    assert_eq!((bench.used(&needs[0]), bench.used(&needs[1])), (7, 1));
}

#[test]
fn closing_gives_everything_back() {
    let mut bench = bench();
    let needs = [
        need("a", Level::Connection, "minute", fixed(10_000)),
        need("a", Level::Connection, "calls", rule(Kind::Concurrency, 9)),
    ];
    let route = bench.route("t", &needs);
    for _ in 0..100 {
        let taken = bench.hold(&route, 1).unwrap();
        bench.finish(&taken, true);
        bench.pass(2);
    }
    assert!(bench.used(&needs[0]) > 100 && bench.used(&needs[1]) > 0);
    bench.leases.close(bench.now_ms);
    assert_eq!(bench.hold(&route, 1).unwrap_err().reason, Reason::Closing);
    bench.pass(5);
    assert_eq!((bench.used(&needs[0]), bench.used(&needs[1])), (100, 0));
    assert!(bench.leases.is_told());
}

#[test]
fn another_life_of_the_centre_is_told_what_was_granted() {
    let mut bench = bench();
    let needs: Vec<_> = (0..12).map(|at| need("a", Level::Connection, &format!("p{at}"), fixed(100))).collect();
    let routes: Vec<_> = needs.iter().map(|need| bench.route("t", std::slice::from_ref(need))).collect();
    let empty = bench.core.clone();
    for route in &routes {
        for _ in 0..5 {
            let taken = bench.hold(route, 1).unwrap();
            bench.finish(&taken, true);
        }
    }
    // All is lost but the number of the life.
    bench.core = empty;
    let since_ms = super::bench::START_MS + bench.now_ms;
    bench.core.begin(crate::quota::Epoch { id: 2, since_ms, memory: crate::quota::Memory::LostSuffix });
    // One question tells that it is another one; the rest is told unasked, within a lease's time.
    let (_, hold) = bench.begin(&routes[0], Class::Bulk, 1, 50);
    assert!(!matches!(hold, Hold::Parked(_)));
    bench.exchange();
    bench.pass(900);
    for need in &needs {
        assert!(bench.used(need) >= 5, "{:?}: {}", need.bucket.key, bench.used(need));
    }
    assert_eq!(bench.leases.counters().snapshot().epochs, 1);
}

#[test]
fn a_lease_that_is_asked_for_often_has_few_timers() {
    let mut bench = bench();
    let bucket = rule(Kind::Bucket { window_ms: 1_000, burst: 1_000 }, 500);
    let route = bench.route("t", &[need("a", Level::Connection, "fast", bucket)]);
    for _ in 0..4_000 {
        if let Ok(taken) = bench.hold(&route, 1) {
            bench.finish(&taken, true);
        }
        bench.pass(1);
    }
    assert!(bench.leases.counters().snapshot().operations > 50);
    let timers: usize = bench.leases.shards().each().map(|shard| shard.timers.len()).sum();
    assert!(timers < 100, "{timers}");
}

#[test]
fn nobody_goes_ahead_of_who_waits_for_the_same_lease() {
    let mut bench = bench();
    let route = bench.route("t", &[need("a", Level::Connection, "points", fixed(1_000))]);
    let taken = bench.hold(&route, 3).unwrap();
    bench.finish(&taken, false);
    let (first, hold) = bench.begin(&route, Class::Bulk, 5, 50);
    assert!(matches!(hold, Hold::Waits));
    // There are units for this one, which the one before it waits to be joined by others.
    let (second, hold) = bench.begin(&route, Class::Bulk, 1, 50);
    assert!(matches!(hold, Hold::Waits));
    bench.exchange();
    let order: Vec<u64> = bench.verdicts.iter().map(|(caller, _)| *caller).collect();
    assert_eq!(order, [first, second]);
}
