//! Reads: from places, by endpoint and time, by id, and by groups.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;

use domain::EventId;

use super::{
    EPOCH_UNIX_MS, Subject, clock, commit, drain, endpoint, event, everything, ids, now_and_reopened, read, tenant,
};
use crate::error::{GroupError, ReadError};
use crate::log::{Filter, Scope, Start};
use crate::position::{Cursor, Place};

pub fn a_reader_goes_on_where_another_stopped(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    for n in 0..120 {
        commit(&*log, event("acme", &format!("wh_{}", n % 7), EPOCH_UNIX_MS + u64::from(n), n));
    }
    let all = ids(&everything(&*log));
    assert_eq!(all.len(), 120);
    for scope in [Scope::Operator, Scope::Tenant(tenant("acme"))] {
        let mut reader = log.reader(scope.clone(), Start::Earliest, Filter::default()).expect("it reads");
        let mut seen = Vec::new();
        for step in [0, 1, 1, 40, 60] {
            for _ in 0..step {
                seen.push(reader.next().expect("it reads").expect("there is more").id);
            }
            let text = reader.cursor().to_string();
            let cursor: Cursor = text.parse().expect("a cursor's text reads back");
            assert_eq!(cursor, reader.cursor());
            let rest = read(&*log, scope.clone(), Start::At(cursor), Filter::default());
            assert_eq!([&seen[..], &ids(&rest)].concat(), all, "{text}");
        }
    }
    // The place also holds in another process.
    let mut reader = log.reader(Scope::Operator, Start::Earliest, Filter::default()).expect("it reads");
    for _ in 0..50 {
        reader.next().expect("it reads");
    }
    let cursor = reader.cursor();
    drop((reader, log));
    let log = subject.open(clock);
    assert_eq!(ids(&read(&*log, Scope::Operator, Start::At(cursor), Filter::default())), all[50..]);
}

pub fn latest_sees_what_comes_next(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let mut on_empty = log.reader(Scope::Operator, Start::Latest, Filter::default()).expect("it reads");
    assert_eq!(on_empty.next().expect("it reads"), None);
    for n in 0..10 {
        commit(&*log, event("acme", "wh_1", EPOCH_UNIX_MS, n));
    }
    assert_eq!(drain(&mut *on_empty).len(), 10);
    let mut latest = log.reader(Scope::Operator, Start::Latest, Filter::default()).expect("it reads");
    assert_eq!(latest.next().expect("it reads"), None);
    assert_eq!(latest.cursor(), log.durable());
    for n in 10..15 {
        let new = event("acme", "wh_1", EPOCH_UNIX_MS, n);
        commit(&*log, new.clone());
        assert_eq!(latest.next().expect("it reads").map(|event| event.id), Some(new.id));
        assert_eq!(latest.next().expect("it reads"), None);
    }
    assert_eq!(ids(&drain(&mut *on_empty)).len(), 5);
}

pub fn the_newest_end_as_everything_does(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    for n in 0..300 {
        // Times apart further than an index tells, now and then, and promoted deliveries among them.
        let received = EPOCH_UNIX_MS + u64::from(n) + [0, 0, 0, 60 * 24 * 3_600_000][n as usize / 70 % 4];
        let tenant = if n % 3 == 0 { "globex" } else { "acme" };
        commit(&*log, event(tenant, &format!("wh_{tenant}_{}", n % 5), received, n));
        clock.advance(std::time::Duration::from_millis(1));
    }
    now_and_reopened(subject, &clock, log, |log| {
        for scope in [Scope::Operator, Scope::Tenant(tenant("acme")), Scope::Tenant(tenant("nobody"))] {
            for filter in [
                Filter::default(),
                Filter { from_unix_ms: Some(EPOCH_UNIX_MS + 100), ..Filter::default() },
                Filter { until_unix_ms: Some(EPOCH_UNIX_MS + 180), ..Filter::default() },
                Filter { until_unix_ms: Some(EPOCH_UNIX_MS + 60 * 24 * 3_600_000 + 220), ..Filter::default() },
            ] {
                let filters = [filter.clone(), Filter { endpoint: Some(endpoint("wh_acme_1")), ..filter }];
                for filter in
                    filters.into_iter().filter(|f| f.endpoint.is_none() || scope != Scope::Tenant(tenant("nobody")))
                {
                    let all = ids(&read(log, scope.clone(), Start::Earliest, filter.clone()));
                    for count in [0, 1, 2, 30, 200, 1_000] {
                        let newest = ids(&read(log, scope.clone(), Start::Newest(count), filter.clone()));
                        let asked = &all[all.len().saturating_sub(count)..];
                        assert!(newest.ends_with(asked), "{count} of {scope:?} {filter:?}");
                    }
                }
            }
        }
        assert_eq!(read(log, Scope::Operator, Start::Newest(0), Filter::default()), []);
        let of_endpoint = Filter { endpoint: Some(endpoint("wh_acme_1")), ..Filter::default() };
        assert_eq!(read(log, Scope::Operator, Start::Newest(7), of_endpoint).len(), 7, "and no more are read");
    });
}

pub fn endpoint_and_time_select(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    // Received out of order on purpose: a promoted delivery is appended long after it was received.
    let time = |n: u32| EPOCH_UNIX_MS + u64::from(n * 37 % 200);
    let all: Vec<_> = (0..200).map(|n| event("acme", &format!("wh_{}", n % 3), time(n), n)).collect();
    for event in &all {
        commit(&*log, event.clone());
    }
    now_and_reopened(subject, &clock, log, |log| {
        for scope in [Scope::Operator, Scope::Tenant(tenant("acme"))] {
            for (which, from, until) in [
                (None, None, None),
                (None, Some(50), Some(51)),
                (Some(1), None, Some(100)),
                (Some(2), Some(100), None),
                (Some(0), Some(20), Some(180)),
                (Some(9), None, None),
                (Some(1), Some(60), Some(60)),
            ] {
                let filter = Filter {
                    endpoint: which.map(|n: u32| endpoint(&format!("wh_{n}"))),
                    from_unix_ms: from.map(|ms: u64| EPOCH_UNIX_MS + ms),
                    until_unix_ms: until.map(|ms: u64| EPOCH_UNIX_MS + ms),
                };
                let expected: Vec<_> = all
                    .iter()
                    .filter(|event| filter.endpoint.as_ref().is_none_or(|endpoint| *endpoint == event.endpoint))
                    .filter(|event| filter.takes_time(event.received_unix_ms))
                    .map(|event| event.id)
                    .collect();
                let mut stored = ids(&read(log, scope.clone(), Start::Earliest, filter.clone()));
                if which.is_none() {
                    // Between endpoints there is no order.
                    stored.sort_by_key(|id| all.iter().position(|event| event.id == *id));
                }
                assert_eq!(stored, expected, "{filter:?}");
            }
        }
    });
}

pub fn an_id_finds_its_event(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    let mut all = Vec::new();
    for n in 0..200_u32 {
        // Every tenth waited for a week before it was promoted.
        let received = EPOCH_UNIX_MS + u64::from(n) - if n % 10 == 0 { 7 * 24 * 3_600_000 } else { 0 };
        let event = event(if n % 2 == 0 { "acme" } else { "globex" }, &format!("wh_{}", n % 2), received, n);
        all.push((event.clone(), commit(&*log, event)));
    }
    now_and_reopened(subject, &clock, log, |log| {
        for (event, appended) in &all {
            for scope in [Scope::Operator, Scope::Tenant(event.tenant.clone())] {
                let found = log.by_id(&scope, event.id).expect("it reads").expect("it is there");
                super::assert_same(&found, event);
                assert_eq!((&found.position, found.sequence), (&appended.position, appended.sequence));
            }
        }
        let mut absent = *all[0].0.id.as_bytes();
        absent[15] ^= 0x80;
        assert_eq!(log.by_id(&Scope::Operator, EventId::from_bytes(absent)).expect("it reads"), None);
        assert_eq!(log.by_id(&Scope::Operator, EventId::from_bytes([0xff; 16])).expect("it reads"), None);
    });
}

pub fn a_reader_follows_a_writer(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let events = 1_500_u32;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let appends: Vec<_> =
                (0..events).map(|n| log.append(event("acme", &format!("wh_{}", n % 3), EPOCH_UNIX_MS, n))).collect();
            for append in appends {
                append.wait().expect("a healthy log commits");
            }
        });
        for who in [Scope::Operator, Scope::Tenant(tenant("acme"))] {
            let log = &*log;
            scope.spawn(move || {
                let mut reader = log.reader(who, Start::Earliest, Filter::default()).expect("it reads");
                let mut last = [None; 3];
                let mut seen = 0;
                while seen < events {
                    let Some(event) = reader.next().expect("it reads") else {
                        thread::yield_now();
                        continue;
                    };
                    seen += 1;
                    let which = usize::from(event.endpoint.as_str().as_bytes()[3] - b'0');
                    assert_eq!(
                        event.sequence,
                        last[which].map_or(1, |last: u64| last + 1),
                        "no gap, no repeat, of {}",
                        event.endpoint
                    );
                    last[which] = Some(event.sequence);
                }
                assert_eq!(reader.next().expect("it reads"), None);
            });
        }
        writer.join().expect("the writer ends well");
    });
}

/// One event at a time, so that a reader is at the end again and again, where an index that lags behind what readers
/// are shown would lose one.
pub fn an_index_is_never_behind_the_durable_end(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let events = 400_u32;
    thread::scope(|scope| {
        for who in [Scope::Operator, Scope::Tenant(tenant("acme"))] {
            let log = &*log;
            scope.spawn(move || {
                let mut reader = log.reader(who, Start::Earliest, Filter::default()).expect("it reads");
                for number in 0..events {
                    let event = loop {
                        match reader.next().expect("it reads") {
                            Some(event) => break event,
                            None => thread::yield_now(),
                        }
                    };
                    assert_eq!(event.sequence, u64::from(number) + 1, "no gap, no repeat");
                }
            });
        }
        for number in 0..events {
            commit(&*log, event("acme", "wh_1", EPOCH_UNIX_MS, number));
        }
    });
}

pub fn a_place_that_never_was_is_refused(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let appended = commit(&*log, event("acme", "wh_1", EPOCH_UNIX_MS, 1));
    let mut cursor = Cursor::default();
    cursor.set(appended.position.lane, Place { epoch: appended.epoch, offset: u64::MAX });
    let refused = log.reader(Scope::Operator, Start::At(cursor), Filter::default()).and_then(|mut r| r.next());
    assert!(matches!(refused, Err(ReadError::NoSuchPlace { .. })), "{refused:?}");
}

pub fn groups_keep_their_places(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    for n in 0..30 {
        commit(&*log, event("acme", "wh_1", EPOCH_UNIX_MS, n));
    }
    assert_eq!(log.groups().cursor("runner").expect("it reads"), None);
    let mut reader = log.reader(Scope::Operator, Start::Earliest, Filter::default()).expect("it reads");
    for _ in 0..12 {
        reader.next().expect("it reads");
    }
    log.groups().commit("runner", &reader.cursor()).expect("it commits");
    let all = ids(&everything(&*log));
    drop((reader, log));

    let log = subject.open(clock);
    assert_eq!(log.groups().list().expect("it lists"), ["runner"]);
    let cursor = log.groups().cursor("runner").expect("it reads").expect("the group has a place");
    assert_eq!(ids(&read(&*log, Scope::Operator, Start::At(cursor), Filter::default())), all[12..]);
    assert!(matches!(log.groups().commit("../runner", &Cursor::default()), Err(GroupError::Name(_))));
    assert!(log.groups().remove("runner").expect("it removes"));
    assert_eq!(log.groups().cursor("runner").expect("it reads"), None);
}

pub fn whoever_waits_is_told_of_what_comes(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without a driver");
    let mut changes = log.changes();
    let is_told = |changes: &mut crate::Changes| {
        let mut context = Context::from_waker(Waker::noop());
        pin!(changes.changed()).as_mut().poll(&mut context).is_ready()
    };
    for n in 0..20 {
        assert!(!is_told(&mut changes), "nothing has come");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || commit(&*log, event("acme", &format!("wh_{n}"), EPOCH_UNIX_MS, n)))
        };
        // Waits for as long as it takes; who is told finds it.
        runtime.block_on(changes.changed());
        assert_eq!(everything(&*log).len(), n as usize + 1);
        writer.join().expect("the writer commits");
    }
    drop(log);
    assert!(!is_told(&mut changes), "a log that has gone tells nothing");
}
