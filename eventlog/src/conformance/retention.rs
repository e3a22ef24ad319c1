//! Retention: what trimming may drop, and what it must not.

use std::sync::Arc;
use std::time::Duration;

use super::{
    EPOCH_UNIX_MS, SHORT_AGE, Subject, clock, commit, drain, event, everything, ids, now_and_reopened, read, tenant,
};
use crate::error::ReadError;
use crate::event::NewEvent;
use crate::log::{Filter, Scope, Start};

/// Enough events to fill more than one of anybody's smallest segments.
const MANY: u32 = 400;

fn short(n: u32) -> NewEvent {
    let mut event = event("acme", "wh_short", EPOCH_UNIX_MS + u64::from(n), n);
    event.retention = "short".into();
    event
}

pub fn trim_drops_what_is_over_age_and_nothing_else(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    let kept: Vec<_> =
        (0..MANY).map(|n| commit(&*log, event("acme", "wh_long", EPOCH_UNIX_MS, 10_000 + n)).id).collect();
    let old: Vec<_> = (0..MANY).map(|n| commit(&*log, short(n)).id).collect();
    assert_eq!(log.trim().expect("it trims").records, 0, "nothing is over age yet");

    clock.advance(SHORT_AGE + Duration::from_secs(1));
    let young: Vec<_> = (MANY..MANY + 10).map(|n| commit(&*log, short(n)).id).collect();
    let trimmed = log.trim().expect("it trims");
    assert!(trimmed.records > 0 && trimmed.segments > 0 && trimmed.bytes > 0, "{trimmed:?}");

    now_and_reopened(subject, &clock, log, |log| {
        let stored = ids(&everything(log));
        let of = |ids: &[domain::EventId]| stored.iter().filter(|id| ids.contains(id)).copied().collect::<Vec<_>>();
        assert_eq!(of(&kept), kept, "another class keeps what is within its own age");
        assert_eq!(of(&young), young);
        let left = of(&old);
        assert!(old.ends_with(&left) && left.len() < old.len(), "what is left is the newer part: {}", left.len());
        assert_eq!(log.by_id(&Scope::Operator, old[0]).expect("it reads"), None);
        assert!(log.by_id(&Scope::Operator, young[0]).expect("it reads").is_some());
    });
}

pub fn what_was_trimmed_is_named_and_not_passed_over(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    for n in 0..MANY {
        commit(&*log, short(n));
    }
    let scopes = [Scope::Operator, Scope::Tenant(tenant("acme"))];
    let mut readers = scopes.map(|scope| log.reader(scope, Start::Earliest, Filter::default()).expect("it reads"));
    for reader in &mut readers {
        reader.next().expect("it reads").expect("there is one");
    }
    let early = readers[0].cursor();
    let end = log.durable();

    clock.advance(SHORT_AGE + Duration::from_secs(1));
    let young = commit(&*log, short(MANY));
    log.trim().expect("it trims");
    for reader in &mut readers {
        // What it has in memory it may still yield, without a gap; then it says what happened under it.
        let mut last = 1;
        let fault = loop {
            match reader.next() {
                Ok(Some(event)) => {
                    assert_eq!(event.sequence, last + 1, "a gap was passed over");
                    last = event.sequence;
                }
                Ok(None) => break None,
                Err(fault) => break Some(fault),
            }
        };
        assert!(matches!(fault, Some(ReadError::Trimmed { .. })), "{fault:?}");
        assert!(!reader.skip_damage(), "nothing is damaged");
        assert!(reader.skip_trimmed());
        assert_eq!(ids(&drain(&mut **reader)), ids(&everything(&*log)), "who is told to goes on with what is left");
        assert!(!reader.skip_trimmed());
    }
    for scope in [Scope::Operator, Scope::Tenant(tenant("acme"))] {
        let refused =
            log.reader(scope.clone(), Start::At(early.clone()), Filter::default()).and_then(|mut reader| reader.next());
        assert!(matches!(refused, Err(ReadError::Trimmed { .. })), "{refused:?}");
        let rest = read(&*log, scope, Start::At(end.clone()), Filter::default());
        assert_eq!(ids(&rest), [young.id], "who had read everything has lost nothing");
    }
}

pub fn stored_bytes_follow_appends_trims_and_reopens(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(Arc::clone(&clock));
    assert_eq!(log.stored_bytes(&tenant("acme")), 0);
    commit(&*log, short(0));
    let one = log.stored_bytes(&tenant("acme"));
    assert!(one >= short(0).body.len() as u64, "{one}");
    for n in 1..MANY {
        commit(&*log, short(n));
    }
    commit(&*log, event("globex", "wh_9", EPOCH_UNIX_MS, 9_000));
    let (acme, globex) = (log.stored_bytes(&tenant("acme")), log.stored_bytes(&tenant("globex")));
    assert!(acme > one && globex > 0);

    drop(log);
    let log = subject.open(Arc::clone(&clock));
    assert_eq!((log.stored_bytes(&tenant("acme")), log.stored_bytes(&tenant("globex"))), (acme, globex));

    clock.advance(SHORT_AGE + Duration::from_secs(1));
    let trimmed = log.trim().expect("it trims");
    assert!(trimmed.bytes > 0);
    assert_eq!(log.stored_bytes(&tenant("acme")), acme - trimmed.bytes);
    assert_eq!(log.stored_bytes(&tenant("globex")), globex);
    let acme = log.stored_bytes(&tenant("acme"));
    drop(log);
    let log = subject.open(clock);
    assert_eq!((log.stored_bytes(&tenant("acme")), log.stored_bytes(&tenant("globex"))), (acme, globex));
    let total: u64 = log.stat().lanes.iter().map(|lane| lane.event_bytes).sum();
    assert_eq!(total, acme + globex);
}
