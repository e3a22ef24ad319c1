//! Retention, by the rules that all engines with tiers keep: details for days, the rest for months, the id for ever.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::made::{admission, intent, late_outcome, lease, outcome, parked, rerun, tenant, terminal};
use super::{anyone, bodies, made, read, refused, take, under};
use crate::ids::RunId;
use crate::ledger::payloads::{Bounds, Fetched, PayloadStore};
use crate::ledger::record::{Body, Kept, Outcome, Payload, Record, Result as StepResult, RunStatus};
use crate::ledger::store::{AppendError, Committed, LedgerStore};

const DAY: Duration = Duration::from_hours(24);

/// An engine with tiers under test, whose ages are those of [`Ages::default`](crate::ledger::embedded::Ages): 14 days of
/// details, 180 of the rest.
#[async_trait]
pub trait Retaining: Send {
    /// An empty ledger. Called once.
    async fn open(&mut self) -> Arc<dyn LedgerStore>;

    fn payloads(&self) -> Arc<dyn PayloadStore>;

    /// Lets everything that is there become older.
    async fn grow_old(&mut self, by: Duration);

    /// Passes, until all that is over age has gone.
    async fn retain(&mut self);
}

/// Expands to one test per rule over the engine that the expression makes.
#[macro_export]
macro_rules! retention_conformance {
    (@each $subject:expr; $($scenario:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $scenario() {
                let mut subject = $subject;
                $crate::ledger::conformance::$scenario(&mut subject).await;
            }
        )+
    };
    ($subject:expr) => {
        $crate::retention_conformance! { @each $subject;
            what_is_young_stays_whole,
            details_go_and_what_is_open_keeps_its_own,
            a_stored_payload_stays_as_long_as_an_open_run_needs_it,
            what_has_lost_its_details_goes_on,
            at_last_the_id_alone_is_left,
        }
    };
}

/// A run that is over after one step; five records.
async fn over(ledger: &dyn LedgerStore, run: RunId) {
    take(ledger, admission(run)).await;
    let all = vec![lease(1, "one", 1000), intent("a", 1), outcome("a", 1), terminal(RunStatus::Succeeded)];
    take(ledger, under(1, run, 1, all)).await;
}

/// A run that waits for somebody with what it has; five records.
async fn open(ledger: &dyn LedgerStore, run: RunId, output: Body) {
    take(ledger, admission(run)).await;
    take(ledger, under(1, run, 1, vec![lease(1, "one", 1000), intent("a", 1), output, parked(None, None)])).await;
}

async fn ends(ledger: &dyn LedgerStore, run: RunId) {
    let end = vec![lease(2, "two", 1000), terminal(RunStatus::Succeeded)];
    ledger.renew(run, 1, 0).await.expect("nobody works on it");
    take(ledger, under(2, run, 5, end)).await;
}

fn payloads_of(records: &[Record]) -> Vec<Payload> {
    records.iter().filter_map(|record| record.body.payload()).cloned().collect()
}

fn without_payloads(mut records: Vec<Record>) -> Vec<Record> {
    for payload in records.iter_mut().filter_map(|record| record.body.payload_mut()) {
        payload.kept = Kept::Expired;
    }
    records
}

async fn stored(subject: &dyn Retaining, bytes: &Bytes) -> (Payload, Body) {
    let kept = subject.payloads().keep(tenant("acme"), bytes.clone(), Bounds::default()).await;
    let payload = kept.expect("a healthy store keeps");
    assert_eq!(payload.kept, Kept::Stored);
    let result = StepResult::Done { output: payload.clone() };
    let outcome = Outcome { step: made::step("a"), attempt: made::attempt(1), result, provider: None };
    (payload, Body::Outcome(outcome))
}

async fn fetched(subject: &dyn Retaining, payload: &Payload) -> Fetched {
    subject.payloads().fetch(tenant("acme"), payload).await.expect("a healthy store reads")
}

pub async fn what_is_young_stays_whole(subject: &mut dyn Retaining) {
    let ledger = subject.open().await;
    let large = Bytes::from(vec![7; 20_000]);
    let (payload, output) = stored(subject, &large).await;
    over(&*ledger, made::run(1)).await;
    open(&*ledger, made::run(2), output).await;
    let before = [read(&*ledger, made::run(1)).await, read(&*ledger, made::run(2)).await];
    subject.grow_old(DAY * 13).await;
    subject.retain().await;
    assert_eq!([read(&*ledger, made::run(1)).await, read(&*ledger, made::run(2)).await], before);
    assert_eq!(fetched(subject, &payload).await, Fetched::Whole(large));
}

pub async fn details_go_and_what_is_open_keeps_its_own(subject: &mut dyn Retaining) {
    let ledger = subject.open().await;
    for number in 0..20 {
        over(&*ledger, made::run(number)).await;
    }
    open(&*ledger, made::run(100), outcome("a", 1)).await;
    let mut before = Vec::new();
    for number in (0..20).chain([100]) {
        before.push(read(&*ledger, made::run(number)).await);
    }
    subject.grow_old(DAY * 15).await;
    subject.retain().await;
    for (number, before) in (0..20).chain([100]).zip(before) {
        let now = read(&*ledger, made::run(number)).await;
        let payloads = payloads_of(&now);
        if number < 20 {
            assert!(payloads.iter().all(|payload| payload.kept == Kept::Expired), "{payloads:?}");
        } else {
            for (payload, was) in payloads.iter().zip(payloads_of(&before)) {
                let Kept::Inline(bytes) = was.kept else { super::unexpected("it was small") };
                assert_eq!(fetched(subject, payload).await, Fetched::Whole(bytes), "it may be needed");
            }
        }
        assert_eq!(without_payloads(now), without_payloads(before), "everything else is as it was");
    }
}

pub async fn a_stored_payload_stays_as_long_as_an_open_run_needs_it(subject: &mut dyn Retaining) {
    let ledger = subject.open().await;
    let large = Bytes::from(vec![9; 3 << 20]);
    let (payload, output) = stored(subject, &large).await;
    let (stray, _) = stored(subject, &Bytes::from(vec![8; 20_000])).await;
    open(&*ledger, made::run(1), output).await;
    for _ in 0..3 {
        subject.grow_old(DAY * 15).await;
        subject.retain().await;
        assert_eq!(fetched(subject, &payload).await, Fetched::Whole(large.clone()));
    }
    assert_eq!(fetched(subject, &stray).await, Fetched::Expired, "no record names it");
    ends(&*ledger, made::run(1)).await;
    subject.grow_old(DAY * 15).await;
    subject.retain().await;
    assert_eq!(fetched(subject, &payload).await, Fetched::Expired);
}

pub async fn what_has_lost_its_details_goes_on(subject: &mut dyn Retaining) {
    let ledger = subject.open().await;
    let run = made::run(1);
    over(&*ledger, run).await;
    subject.grow_old(DAY * 15).await;
    subject.retain().await;
    assert_eq!(take(&*ledger, anyone(run, 5, vec![late_outcome("a", 1)])).await, Committed { seq: 6, lease: 1 });
    assert_eq!(take(&*ledger, anyone(run, 6, vec![rerun("a", 2)])).await, Committed { seq: 7, lease: 1 });
    let again = vec![lease(2, "two", 1000), outcome("a", 1), terminal(RunStatus::Succeeded)];
    take(&*ledger, under(2, run, 7, again)).await;
    assert_eq!(bodies(&*ledger, run).await.len(), 10);
    subject.grow_old(DAY * 15).await;
    subject.retain().await;
    let records = read(&*ledger, run).await;
    assert_eq!(records.len(), 10);
    assert!(payloads_of(&records).iter().all(|payload| payload.kept == Kept::Expired), "those of later, too");
}

pub async fn at_last_the_id_alone_is_left(subject: &mut dyn Retaining) {
    let ledger = subject.open().await;
    for number in 0..20 {
        over(&*ledger, made::run(number)).await;
    }
    subject.grow_old(DAY * 15).await;
    subject.retain().await;
    subject.grow_old(DAY * 160).await;
    subject.retain().await;
    assert_eq!(read(&*ledger, made::run(3)).await.len(), 5, "it is not old enough");
    subject.grow_old(DAY * 20).await;
    subject.retain().await;
    for number in 0..20 {
        let run = made::run(number);
        assert!(read(&*ledger, run).await.is_empty());
        assert!(
            matches!(refused(&*ledger, admission(run)).await, AppendError::Conflict { .. }),
            "it was admitted once"
        );
        let again = anyone(run, 5, vec![rerun("a", 2)]);
        assert!(matches!(refused(&*ledger, again).await, AppendError::Invalid(_)));
    }
    // And what comes anew is whole.
    over(&*ledger, made::run(50)).await;
    subject.retain().await;
    assert_eq!(payloads_of(&read(&*ledger, made::run(50)).await).len(), 2);
    assert!(payloads_of(&read(&*ledger, made::run(50)).await).iter().all(|payload| payload.kept != Kept::Expired));
}
