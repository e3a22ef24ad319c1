//! Appends: what an acknowledgement means.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

use super::{NODE, Subject, assert_same, clock, commit, endpoint, event, everything, ids, now_and_reopened, read};
use crate::error::AppendError;
use crate::log::{Filter, Scope, Start};

pub fn what_was_acknowledged_is_there_byte_for_byte(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    let events: Vec<_> = (0..300).map(|n| event("acme", "wh_1", super::EPOCH_UNIX_MS + u64::from(n), n)).collect();
    let appended: Vec<_> = events.iter().map(|event| commit(&*log, event.clone())).collect();
    now_and_reopened(subject, &clock, log, |log| {
        let stored = everything(log);
        assert_eq!(stored.len(), events.len());
        for ((stored, new), appended) in stored.iter().zip(&events).zip(&appended) {
            assert_same(stored, new);
            assert_eq!(stored.id, appended.id);
            assert_eq!(stored.position, appended.position);
            assert_eq!((stored.node, stored.epoch, stored.sequence), (NODE, appended.epoch, appended.sequence));
        }
    });
}

pub fn order_per_endpoint_with_dense_sequences(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let endpoints = ["wh_a", "wh_b", "wh_c", "wh_d", "wh_e"];
    let appends: Vec<_> = (0..500_u32)
        .map(|n| log.append(event("acme", endpoints[n as usize % endpoints.len()], super::EPOCH_UNIX_MS, n)))
        .collect();
    for append in appends {
        append.wait().expect("a healthy log commits");
    }
    for (which, name) in endpoints.iter().enumerate() {
        let stored = read(&*log, Scope::Operator, Start::Earliest, Filter::endpoint(endpoint(name)));
        let expected: Vec<_> = (0..500_u32)
            .filter(|n| *n as usize % endpoints.len() == which)
            .map(|n| event("acme", name, super::EPOCH_UNIX_MS, n).id)
            .collect();
        assert_eq!(ids(&stored), expected);
        let sequences: Vec<_> = stored.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=100).collect::<Vec<_>>());
    }
}

pub fn an_epoch_per_open_and_order_across_them(subject: &mut dyn Subject) {
    let clock = clock();
    let mut expected = Vec::new();
    for round in 0..4_u32 {
        let log = subject.open(Arc::clone(&clock));
        for n in round * 10..round * 10 + 10 {
            let event = event("acme", "wh_1", super::EPOCH_UNIX_MS, n);
            expected.push(event.id);
            commit(&*log, event);
        }
        if round % 2 == 0 {
            log.close().expect("a healthy log closes");
        }
    }
    let log = subject.open(clock);
    let stored = everything(&*log);
    assert_eq!(ids(&stored), expected);
    let mut epochs: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for event in &stored {
        epochs.entry(event.epoch).or_default().push(event.sequence);
    }
    assert_eq!(epochs.len(), 4, "every process writes under its own epoch");
    for sequences in epochs.values() {
        assert_eq!(*sequences, (1..=10).collect::<Vec<_>>());
    }
    assert!(stored.is_sorted_by_key(|event| event.epoch), "one endpoint's events come in the order of epochs");
}

pub fn appends_from_many_threads_are_all_there_once(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    let (threads, each) = (8_u32, 200_u32);
    thread::scope(|scope| {
        for thread in 0..threads {
            let log = &*log;
            scope.spawn(move || {
                let name = format!("wh_{thread}");
                let appends: Vec<_> = (0..each)
                    .map(|n| log.append(event("acme", &name, super::EPOCH_UNIX_MS, thread * each + n)))
                    .collect();
                for append in appends {
                    append.wait().expect("a healthy log commits");
                }
            });
        }
    });
    drop(log);
    let log = subject.open(clock);
    let stored = everything(&*log);
    assert_eq!(stored.len(), (threads * each) as usize);
    assert_eq!(ids(&stored).into_iter().collect::<BTreeSet<_>>().len(), stored.len());
    for thread in 0..threads {
        let name = format!("wh_{thread}");
        let of_one: Vec<_> = stored.iter().filter(|event| event.endpoint.as_str() == name).map(|e| e.id).collect();
        let expected: Vec<_> =
            (0..each).map(|n| event("acme", &name, super::EPOCH_UNIX_MS, thread * each + n).id).collect();
        assert_eq!(of_one, expected);
    }
}

pub fn a_closed_log_takes_nothing_and_reads_on(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let queued: Vec<_> = (0..50).map(|n| log.append(event("acme", "wh_1", super::EPOCH_UNIX_MS, n))).collect();
    log.close().expect("a healthy log closes");
    for append in queued {
        append.wait().expect("what was queued before the close is committed");
    }
    assert_eq!(log.append(event("acme", "wh_1", super::EPOCH_UNIX_MS, 99)).wait(), Err(AppendError::Closed));
    log.close().expect("closing twice is closing once");
    assert_eq!(everything(&*log).len(), 50);
}

pub fn what_no_class_or_record_can_hold_is_refused(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let mut unknown = event("acme", "wh_1", super::EPOCH_UNIX_MS, 1);
    unknown.retention = "nowhere".into();
    let refused = log.append(unknown).wait();
    assert!(matches!(refused, Err(AppendError::UnknownRetention { .. })), "{refused:?}");
    let mut large = event("acme", "wh_1", super::EPOCH_UNIX_MS, 2);
    large.method = "X".repeat(300).into();
    let refused = log.append(large).wait();
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })), "{refused:?}");
    assert!(everything(&*log).is_empty());
    commit(&*log, event("acme", "wh_1", super::EPOCH_UNIX_MS, 3));
    assert_eq!(everything(&*log).len(), 1);
}
