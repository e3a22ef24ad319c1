//! What each kind grants.

use super::Subject;
use super::asks::{Asks, LONG, leg, lessee, metered, spec};
use crate::quota::answer::{Answer, Denial};
use crate::quota::key::Level;
use crate::quota::op::{Body, Describe};
use crate::quota::rule::{Kind, RuleSpec};

pub async fn unspent_units_are_counted_once<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    asks.take(&bucket, 5).await;
    let mut more = leg(&bucket, 5, 5);
    more.unspent = 4;
    let Answer::Granted(leases) = asks.acquire(&[more]).await else { panic!("four and one were not granted") };
    assert_eq!(leases[0].units, 5);
    assert_eq!(asks.view(&bucket).await.used, 6);
    // More than the lease had is not believed: it is granted, and counted.
    let mut more = leg(&bucket, 6, 6);
    more.unspent = 6;
    assert!(matches!(asks.acquire(&[more]).await, Answer::Granted(_)));
    assert_eq!(asks.view(&bucket).await.used, 12);
}

pub async fn headers_only_lower<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 100));
    let mut asks = Asks::new(subject);
    let wid = asks.take(&bucket, 5).await.tally.wid;
    asks.observe(&bucket, wid, Some(100), Some(98)).await;
    assert_eq!(asks.view(&bucket).await.used, 5);
    // In any order, the least that remains holds.
    for remaining in [60, 40, 70, 40] {
        asks.observe(&bucket, wid, Some(100), Some(remaining)).await;
    }
    assert_eq!(asks.view(&bucket).await.used, 60);
    // Another window's says nothing, and what cannot be is not believed.
    asks.observe(&bucket, wid + 7, Some(100), Some(0)).await;
    asks.observe(&bucket, wid, Some(10), Some(200)).await;
    asks.observe(&bucket, wid, Some(90), None).await;
    let view = asks.view(&bucket).await;
    assert!(view.used == 60 && view.limit_seen.is_some_and(|seen| seen <= 90));
    let (_, answer) = asks.drain(&bucket, 100).await;
    assert!(matches!(answer, Answer::Denied { why: Denial::Exhausted, .. }));
    assert!(asks.view(&bucket).await.used <= 90);
}

pub async fn slots_are_kept_by_renewal_and_come_back_without<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "slots", RuleSpec { lease_ms: 400, ..spec(Kind::Concurrency, 3) });
    let mut asks = Asks::new(subject);
    let lease = asks.take(&bucket, 2).await;
    assert_eq!(lease.units, 2);
    for _ in 0..3 {
        asks.subject.pass(200).await;
        match asks.renew(&bucket, 2).await {
            Answer::Renewed(leases) => assert_eq!(leases[0].units, 2),
            answer => panic!("a renewal was answered {answer:?}"),
        }
    }
    let mut other = Asks { lessee: lessee(2, "one"), seq: 0, ..asks };
    other.take(&bucket, 1).await;
    assert!(matches!(other.acquire(&[leg(&bucket, 2, 2)]).await, Answer::Denied { why: Denial::Exhausted, .. }));
    // A slot that is given back is free at once, one that is not renewed when its time is over.
    let mut asks = Asks { lessee: lessee(1, "one"), seq: 4, ..other };
    assert!(matches!(asks.renew(&bucket, 1).await, Answer::Renewed(_)));
    assert_eq!(asks.view(&bucket).await.used, 2);
    asks.subject.pass(450).await;
    let mut third = Asks { lessee: lessee(3, "one"), seq: 0, ..asks };
    assert_eq!(third.take(&bucket, 3).await.units, 3);
}

pub async fn a_fixed_window_grants_its_cap_and_the_next_begins_anew<S: Subject>(subject: &mut S) {
    let kind = Kind::Fixed { window_ms: 3_000, offset_ms: 700 };
    let bucket = metered(Level::Connection, "fixed", spec(kind, 7));
    let mut asks = Asks::new(subject);
    // To the beginning of a window, so that all is within one.
    let (_, answer) = asks.drain(&bucket, 100).await;
    let Answer::Denied { retry_ms, why: Denial::Exhausted, .. } = answer else { panic!("it ended with {answer:?}") };
    asks.subject.pass(retry_ms + 5).await;
    let first = asks.take(&bucket, 1).await;
    let (more, _) = asks.drain(&bucket, 100).await;
    assert_eq!(1 + more, 7);
    asks.subject.pass(3_000).await;
    let second = asks.take(&bucket, 1).await;
    assert!(second.tally.wid > first.tally.wid && second.tally.units == 1);
    assert_eq!(asks.view(&bucket).await.used, 1);
    assert_eq!(asks.give_back(&bucket, asks.seq, &first, 1).await, 0, "a unit of another window came back");
    assert!(matches!(asks.acquire(&[leg(&bucket, 8, 8)]).await, Answer::Denied { why: Denial::OverCap, .. }));
}

pub async fn a_sliding_window_grants_its_cap_in_any_span<S: Subject>(subject: &mut S) {
    let kind = Kind::Sliding { window_ms: 2_000, slots: 10 };
    let bucket = metered(Level::Connection, "sliding", RuleSpec { lease_ms: 200, ..spec(kind, 20) });
    let mut asks = Asks::new(subject);
    asks.take(&bucket, 15).await;
    asks.subject.pass(1_000).await;
    let (units, answer) = asks.drain(&bucket, 100).await;
    assert_eq!(units, 5);
    let Answer::Denied { retry_ms, why: Denial::Exhausted, .. } = answer else { panic!("it ended with {answer:?}") };
    assert!((900..=1_600).contains(&retry_ms), "{retry_ms}");
    // The fifteen are out of it after the window, a slot and what a lease may be late; the five are not.
    asks.subject.pass(retry_ms + 5).await;
    let (units, _) = asks.drain(&bucket, 100).await;
    assert_eq!(units, 15);
}

pub async fn a_bucket_refills<S: Subject>(subject: &mut S) {
    // A lease that is a second late costs ten of the burst, and a guard of 50 ms another.
    let kind = Kind::Bucket { window_ms: 1_000, burst: 40 };
    let bucket = metered(Level::Connection, "bucket", spec(kind, 10));
    let mut asks = Asks::new(subject);
    let lease = asks.take(&bucket, 29).await;
    assert!(lease.ttl_ms <= 1_000);
    let answer = asks.acquire(&[leg(&bucket, 20, 20)]).await;
    let Answer::Denied { retry_ms, why: Denial::Exhausted, .. } = answer else { panic!("answered {answer:?}") };
    assert!((1_500..=2_000).contains(&retry_ms), "{retry_ms}");
    asks.subject.pass(retry_ms).await;
    asks.take(&bucket, 20).await;
    assert!(matches!(asks.acquire(&[leg(&bucket, 41, 41)]).await, Answer::Denied { why: Denial::OverCap, .. }));
}

pub async fn a_settlement_is_counted_once<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "points", spec(LONG, 1_000));
    let mut asks = Asks::new(subject);
    let wid = asks.take(&bucket, 100).await.tally.wid;
    for _ in 0..2 {
        asks.settle(&bucket, 1, wid, 100, 30).await;
    }
    assert_eq!(asks.view(&bucket).await.used, 30);
    for _ in 0..2 {
        asks.settle(&bucket, 2, wid, 10, 60).await;
    }
    assert_eq!(asks.view(&bucket).await.used, 80);
    // No more comes back than was granted, and nothing of another window.
    asks.settle(&bucket, 3, wid, 5_000, 0).await;
    assert_eq!(asks.view(&bucket).await.used, 50);
    asks.settle(&bucket, 4, wid + 1, 50, 0).await;
    assert_eq!(asks.view(&bucket).await.used, 50);
}

pub async fn a_change_of_rule_resets_nothing<S: Subject>(subject: &mut S) {
    let at = |kind, cap, cfgver| metered(Level::Connection, "changing", RuleSpec { cfgver, ..spec(kind, cap) });
    let mut asks = Asks::new(subject);
    let lease = asks.take(&at(LONG, 100, 1), 60).await;
    // More: at once. The lease lives.
    let more = asks.take(&at(LONG, 200, 2), 1).await;
    assert_eq!(more.generation, lease.generation);
    let view = asks.view(&at(LONG, 200, 2)).await;
    assert!(view.used == 61 && view.rule.cap == 200);
    // Less, also less than is used: nothing until the window is over, and leases are void.
    let answer = asks.acquire(&[leg(&at(LONG, 50, 3), 1, 1)]).await;
    assert!(matches!(answer, Answer::Denied { why: Denial::Exhausted, .. }), "{answer:?}");
    let view = asks.view(&at(LONG, 50, 3)).await;
    assert!(view.used == 61 && view.generation > lease.generation);
    // An older rule is not taken up.
    let answer = asks.acquire(&[leg(&at(LONG, 200, 2), 1, 1)]).await;
    assert!(matches!(answer, Answer::Denied { why: Denial::Exhausted, .. }), "{answer:?}");
    // Of a bucket that refills, debts stay what they were in units, at whatever rate.
    let slow = |cap, cfgver| {
        let kind = Kind::Bucket { window_ms: 3_600_000, burst: 100 };
        metered(Level::Connection, "refilling", RuleSpec { cfgver, ..spec(kind, cap) })
    };
    asks.take(&slow(100, 1), 60).await;
    for (cap, cfgver) in [(10, 2), (400, 3), (100, 4)] {
        assert!(matches!(asks.acquire(&[leg(&slow(cap, cfgver), 90, 90)]).await, Answer::Denied { .. }));
        assert!((59..=61).contains(&asks.view(&slow(cap, cfgver)).await.used));
    }
}

pub async fn buckets_are_described_page_by_page<S: Subject>(subject: &mut S) {
    let mut asks = Asks::new(subject);
    assert!(asks.page(None, 10).await.is_empty());
    for number in 0..7 {
        asks.take(&metered(Level::Connection, &format!("p{number}"), spec(LONG, 100)), 1).await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = asks.page(after, 3).await;
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        seen.extend(page.into_iter().map(|view| view.key.policy.to_string()));
    }
    assert_eq!(seen, ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
    let view = asks.view(&metered(Level::Connection, "p3", spec(LONG, 100))).await;
    assert_eq!((view.used, view.room, view.park, view.refusal), (1, 99, None, None));
    assert_eq!((view.holders.len(), view.holders[0].units, view.holders[0].holder), (1, 1, asks.lessee.holder));
    // One alone, whatever its neighbours are called.
    asks.take(&metered(Level::Connection, "p", spec(LONG, 100)), 1).await;
    asks.take(&metered(Level::Connection, "p3.b", spec(LONG, 100)), 1).await;
    for policy in ["p", "p0", "p3", "p3.b", "p6"] {
        let key = metered(Level::Connection, policy, spec(LONG, 100)).key;
        let Some(Describe { after, limit: 1 }) = Describe::only(&key) else { panic!("{key} has no description") };
        let alone: Vec<_> = asks.page(after, 1).await.into_iter().map(|view| view.key).collect();
        assert_eq!(alone, [(*key).clone()]);
    }
    let described = Body::Describe(Describe { after: None, limit: 0 });
    assert!(matches!(asks.ask(described).await, Answer::Malformed(_)));
}
