//! Once, all or none, in no order; parks; failover.

use super::Subject;
use super::asks::{Asks, LONG, leg, lessee, metered, spec};
use crate::quota::answer::{Answer, Denial, Malformed};
use crate::quota::key::Level;
use crate::quota::op::{Body, Class, Leg};
use crate::quota::rule::{Kind, RuleSpec};

pub async fn the_same_acquire_is_granted_once<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let first = asks.take(&bucket, 3).await;
    asks.seq -= 1;
    let acquire = asks.next(&[leg(&bucket, 3, 3)]);
    for _ in 0..3 {
        match asks.ask(Body::Acquire(acquire.clone())).await {
            Answer::Replayed(leases) => {
                assert_eq!((leases[0].units, leases[0].tally), (first.units, first.tally));
                assert!(leases[0].ttl_ms <= first.ttl_ms);
            }
            answer => panic!("again was answered {answer:?}"),
        }
    }
    assert_eq!(asks.view(&bucket).await.used, 3);
    // Once its time is over it is not granted again either.
    asks.subject.pass(1_100).await;
    assert!(matches!(asks.ask(Body::Acquire(acquire)).await, Answer::Stale { leg: 0, seq: 1 }));
}

pub async fn what_is_late_is_stale<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let late = asks.next(&[leg(&bucket, 2, 2)]);
    asks.take(&bucket, 3).await;
    assert!(matches!(asks.ask(Body::Acquire(late)).await, Answer::Stale { leg: 0, seq: 2 }));
    assert_eq!(asks.view(&bucket).await.used, 3);
}

pub async fn all_legs_or_none<S: Subject>(subject: &mut S) {
    let wide = metered(Level::App, "wide", spec(LONG, 1_000));
    let narrow = metered(Level::Connection, "narrow", spec(LONG, 2));
    let mut asks = Asks::new(subject);
    asks.take(&narrow, 2).await;
    for legs in [[leg(&wide, 1, 5), leg(&narrow, 1, 1)], [leg(&narrow, 1, 1), leg(&wide, 1, 5)]] {
        let at = u8::from(legs[1].bucket.key == narrow.key);
        match asks.acquire(&legs).await {
            Answer::Denied { leg, retry_ms, why: Denial::Exhausted } => assert!(leg == at && retry_ms > 0),
            answer => panic!("no room was answered {answer:?}"),
        }
    }
    assert_eq!(asks.view(&wide).await.used, 0);
    asks.penalise(&narrow, 5_000, None).await;
    assert!(matches!(asks.acquire(&[leg(&wide, 1, 5), leg(&narrow, 1, 1)]).await, Answer::Parked { leg: 1, .. }));
    assert_eq!(asks.view(&wide).await.used, 0);
    // What was refused has taken no seq: the wide one alone goes on from any.
    asks.take(&wide, 1).await;
}

pub async fn units_come_back_once<S: Subject>(subject: &mut S) {
    for (policy, kind) in [
        ("fixed", LONG),
        ("sliding", Kind::Sliding { window_ms: 60_000, slots: 6 }),
        ("bucket", Kind::Bucket { window_ms: 3_600_000, burst: 100 }),
    ] {
        let bucket = metered(Level::Connection, policy, spec(kind, 100));
        let mut asks = Asks::new(subject);
        let lease = asks.take(&bucket, 5).await;
        let used = asks.view(&bucket).await.used;
        assert_eq!(asks.give_back(&bucket, asks.seq, &lease, 3).await, 3, "{policy}");
        let left = asks.view(&bucket).await.used;
        assert!((used - 3..=used - 2).contains(&left), "{policy}: {left} of {used}");
        assert_eq!(asks.give_back(&bucket, asks.seq, &lease, 2).await, 0, "{policy}");
        assert_eq!(asks.view(&bucket).await.used, left, "{policy}");
    }
}

pub async fn what_does_not_match_its_lease_does_not_come_back<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let old = asks.take(&bucket, 5).await;
    let old_seq = asks.seq;
    let lease = asks.take(&bucket, 5).await;
    assert_eq!(asks.give_back(&bucket, old_seq, &old, 1).await, 0);
    assert_eq!(asks.give_back(&bucket, asks.seq, &lease, 6).await, 0);
    let mut other = lease;
    other.generation += 1;
    assert_eq!(asks.give_back(&bucket, asks.seq, &other, 1).await, 0);
    other = lease;
    other.tally.wid += 1;
    assert_eq!(asks.give_back(&bucket, asks.seq, &other, 1).await, 0);
    asks.penalise(&bucket, 1, None).await;
    assert_eq!(asks.give_back(&bucket, asks.seq, &lease, 5).await, 0);
    assert_eq!(asks.view(&bucket).await.used, 10);
}

pub async fn a_park_stops_everything_and_the_later_one_holds<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let lease = asks.take(&bucket, 5).await;
    let acquired = asks.seq;
    let (ms, generation) = asks.penalise(&bucket, 2_000, None).await;
    assert!(ms <= 2_000 && generation > lease.generation);
    // A shorter one changes nothing, in whatever order they come.
    let (ms, later) = asks.penalise(&bucket, 100, None).await;
    assert!((1_000..=2_000).contains(&ms) && later > generation);
    let (ms, _) = asks.penalise(&bucket, 2_500, None).await;
    assert!((1_500..=2_500).contains(&ms));
    asks.seq = acquired - 1;
    let again = asks.next(&[leg(&bucket, 5, 5)]);
    assert!(matches!(asks.ask(Body::Acquire(again)).await, Answer::Stale { .. }), "a lease outlived a park");
    let Answer::Parked { ms, .. } = asks.acquire(&[leg(&bucket, 1, 1)]).await else {
        panic!("a parked bucket answered something else");
    };
    asks.subject.pass(ms - ms.min(50)).await;
    asks.subject.pass(60).await;
    assert!(asks.take(&bucket, 1).await.generation > later);
}

pub async fn calls_under_way_together_are_one_penalty<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let lease = asks.take(&bucket, 5).await;
    let (_, generation) = asks.penalise(&bucket, 1_000, Some(lease.generation)).await;
    for _ in 0..5 {
        let (_, again) = asks.penalise(&bucket, 900, Some(lease.generation)).await;
        assert_eq!(again, generation);
    }
    assert_eq!(asks.view(&bucket).await.alpha_milli, 500);
    asks.penalise(&bucket, 900, Some(generation)).await;
    assert_eq!(asks.view(&bucket).await.alpha_milli, 250);
}

pub async fn a_release_is_paced<S: Subject>(subject: &mut S) {
    // Ten a second, of which the half is released: one in 200 ms.
    let kind = Kind::Bucket { window_ms: 1_000, burst: 100 };
    let bucket = metered(Level::Connection, "bucket", RuleSpec { lease_ms: 100, ..spec(kind, 10) });
    let mut asks = Asks::new(subject);
    asks.penalise(&bucket, 100, None).await;
    asks.subject.pass(110).await;
    asks.take(&bucket, 1).await;
    match asks.acquire(&[leg(&bucket, 1, 1)]).await {
        Answer::Denied { retry_ms, why: Denial::Paced, .. } => assert!((1..=200).contains(&retry_ms)),
        answer => panic!("the second at once was answered {answer:?}"),
    }
    asks.subject.pass(210).await;
    asks.take(&bucket, 1).await;
}

/// A day of thousands is not released by its average, which is one in many seconds.
pub async fn a_release_of_a_long_window_does_not_go_by_its_average<S: Subject>(subject: &mut S) {
    // As if all of it were for ten minutes, and of that the half: one in 200 ms.
    let kind = Kind::Sliding { window_ms: 86_400_000, slots: 96 };
    let bucket = metered(Level::Connection, "day", RuleSpec { lease_ms: 100, ..spec(kind, 6_000) });
    let mut asks = Asks::new(subject);
    asks.penalise(&bucket, 100, None).await;
    asks.subject.pass(110).await;
    asks.take(&bucket, 1).await;
    match asks.acquire(&[leg(&bucket, 1, 1)]).await {
        Answer::Denied { retry_ms, why: Denial::Paced, .. } => assert!((1..=200).contains(&retry_ms)),
        answer => panic!("the second at once was answered {answer:?}"),
    }
    asks.subject.pass(210).await;
    asks.take(&bucket, 1).await;
}

pub async fn an_operator_releases_and_resets<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let lease = asks.take(&bucket, 5).await;
    asks.penalise(&bucket, 3_600_000, None).await;
    assert!(matches!(asks.acquire(&[leg(&bucket, 1, 1)]).await, Answer::Parked { .. }));
    asks.ask(Body::Release((*bucket.key).clone())).await;
    asks.take(&bucket, 1).await;
    assert_eq!(asks.view(&bucket).await.used, 6);
    asks.ask(Body::Reset((*bucket.key).clone())).await;
    let view = asks.view(&bucket).await;
    assert!(view.used == 0 && view.alpha_milli == 1_000 && view.generation > lease.generation);
    // What a holder remembers of before does not come back.
    let mut told = leg(&bucket, 1, 1);
    told.tally = lease.tally;
    assert!(matches!(asks.acquire(&[told]).await, Answer::Granted(_)));
    assert_eq!(asks.view(&bucket).await.used, 1);
    let other = metered(Level::Connection, "other", spec(LONG, 100));
    assert_eq!(asks.ask(Body::Reset((*other.key).clone())).await, Answer::NoBucket);
}

pub async fn a_failover_learns_and_heals<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    asks.take(&bucket, 3).await;
    let lease = asks.take(&bucket, 4).await;
    if !asks.subject.fail_over(1).await {
        return;
    }
    let mut told = leg(&bucket, 0, 4);
    (told.unspent, told.tally, told.heard) = (4, lease.tally, lease.generation + 5);
    let report = asks.next(&[told]);
    let Answer::Learning { ms, .. } = asks.ask(Body::Acquire(report)).await else {
        panic!("granted without knowing");
    };
    assert!((1..=1_000).contains(&ms));
    assert_eq!(asks.view(&bucket).await.used, 7);
    asks.subject.pass(ms + 1).await;
    let next = asks.take(&bucket, 1).await;
    assert!(next.generation >= lease.generation + 5, "a generation that was heard of came again");
}

pub async fn what_breaks_the_protocol_is_named<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let broken = [
        (Vec::new(), Malformed::Legs),
        (vec![leg(&bucket, 1, 1); 9], Malformed::Legs),
        (vec![leg(&bucket, 1, 1), leg(&bucket, 1, 1)], Malformed::Twice),
        (vec![leg(&bucket, 2, 1)], Malformed::Want),
        (vec![Leg { want: u32::MAX, ..leg(&bucket, 1, 1) }], Malformed::Count),
        (vec![Leg { demand_milli: u64::MAX, ..leg(&bucket, 1, 1) }], Malformed::Share),
        (vec![Leg { heard: u64::MAX, ..leg(&bucket, 1, 1) }], Malformed::Count),
    ];
    for (legs, why) in broken {
        let acquire = asks.next(&legs);
        assert_eq!(asks.ask(Body::Acquire(acquire)).await, Answer::Malformed(why));
    }
    assert!(matches!(asks.renew(&bucket, 1).await, Answer::Malformed(Malformed::Renewal)));
    asks.class = Class::Bulk;
    asks.lessee = lessee(2, "two");
    asks.seq = 0;
    asks.take(&bucket, 1).await;
}
