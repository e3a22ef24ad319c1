use proptest::prelude::*;

use super::super::testing::{automation_id, connection, event, step, tenant};
use super::*;
use crate::ids::Version;
use crate::ledger::{Cause, Lease, Provider, QueueClass, Released, SendState};

fn record(seq: u64, at_unix_ms: u64, body: Body) -> Record {
    Record { run: RunId::from_bytes([1; 16]), tenant: tenant(), seq, lease: 0, at_unix_ms, body }
}

fn admitted() -> Body {
    Body::Admitted(Admitted {
        automation: automation_id(),
        version: Version::MIN,
        cause: Cause::Event { event: event(), endpoint: domain::EndpointId::parse("wh_1").unwrap() },
        class: QueueClass::Interactive,
        deadline_unix_ms: 1_000,
        input: None,
    })
}

fn payload() -> Payload {
    Payload { bytes: 0, digest: [0; 32], kept: crate::ledger::Kept::Expired }
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (1..3_u32, 0..4_u32).prop_map(|(logical, physical)| Attempt { logical: logical.try_into().unwrap(), physical })
}

fn result() -> impl Strategy<Value = StepResult> {
    let class = proptest::sample::select(FailureClass::ALL);
    prop_oneof![
        Just(StepResult::Done { output: payload() }),
        Just(StepResult::Skipped),
        class.prop_map(|class| StepResult::Failed { class, detail: "".into() }),
        (0..100_u64).prop_map(|at| StepResult::Deferred { until_unix_ms: at, reason: ParkReason::Provider }),
        Just(StepResult::Ambiguous(Ambiguity::NoAnswer)),
        Just(StepResult::Ambiguous(Ambiguity::WorkerLost)),
        Just(StepResult::Ambiguous(Ambiguity::ReadBack)),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let provider = Provider {
        send_state: SendState::Response,
        status: Some(200),
        message: None,
        request_id: None,
        correlation: None,
    };
    (name(), attempt(), result()).prop_map(move |(step, attempt, result)| Outcome {
        step,
        attempt,
        result,
        provider: Some(provider.clone()),
    })
}

fn name() -> impl Strategy<Value = StepId> {
    prop_oneof![Just(step("a")), Just(step("b"))]
}

fn body() -> impl Strategy<Value = Body> {
    let reason =
        || prop_oneof![Just(ParkReason::Ambiguous), Just(ParkReason::Backoff), Just(ParkReason::NeedsReconnect)];
    prop_oneof![
        4 => (name(), attempt(), any::<bool>()).prop_map(|(step, attempt, is_read_back)| Body::Intent(Intent {
            effect: EffectKey::new(RunId::from_bytes([1; 16]), &step, attempt.logical),
            step,
            attempt,
            is_read_back,
            connection: Some(connection()),
            input: payload(),
        })),
        6 => outcome().prop_map(Body::Outcome),
        2 => outcome().prop_map(Body::LateOutcome),
        2 => (1..9_u64).prop_map(|lease| Body::Lease(Lease { lease, owner: "x".into(), until_unix_ms: 9 })),
        2 => (reason(), proptest::option::of(name())).prop_map(|(reason, step)| {
            Body::Parked(Parked { reason, step, until_unix_ms: Some(9) })
        }),
        1 => Just(Body::Released(Released { by: "x".into() })),
        1 => (name(), attempt(), any::<bool>()).prop_map(|(step, attempt, again)| Body::Resolved(Resolved {
            step,
            attempt,
            choice: if again { Choice::RetryAcceptDuplicate } else { Choice::ContinueAcceptGap },
            by: "x".into(),
        })),
        1 => (name(), 2..5_u32).prop_map(|(step, logical)| Body::Rerun(Rerun {
            step,
            logical: logical.try_into().unwrap(),
            input: None,
            by: "x".into(),
        })),
        1 => Just(Body::CancelRequested(CancelRequested { by: "x".into() })),
        1 => Just(Body::Quarantined(Quarantined { crashes: 5, reason: "x".into() })),
        1 => Just(Body::Terminal(Terminal { status: RunStatus::Failed, failed_at: None, class: None })),
        1 => Just(admitted()),
    ]
}

proptest! {
    /// Sequences that no ledger would take are among these, and fold as well.
    #[test]
    fn any_sequence_folds_and_record_by_record_is_the_same(bodies in proptest::collection::vec(body(), 0..40)) {
        let records: Vec<Record> = std::iter::once(admitted())
            .chain(bodies)
            .enumerate()
            .map(|(at, body)| record(at as u64 + 1, at as u64, body))
            .collect();
        let mut state = RunState::begin(&records[0]).unwrap();
        for record in &records[1..] {
            let doubts = state.steps.clone();
            state.apply(record);
            prop_assert_eq!(state.seq, record.seq);
            for (id, step) in &state.steps {
                // A doubt never goes by itself: only by what says more of it.
                let before = doubts.get(id).and_then(|before| before.doubt.as_ref());
                let is_gone = before.is_some() && step.doubt.is_none();
                let by = matches!(&record.body, Body::Outcome(_) | Body::Rerun(_));
                prop_assert!(!is_gone || by, "{:?}", record.body);
                prop_assert!(step.doubt.as_ref().is_none_or(|doubt| !doubt.attempts.is_empty()));
                prop_assert!(step.late.len() <= LATE_MAX);
            }
            let is_over = state.terminal.is_some();
            prop_assert_eq!(is_over, matches!(state.status(), RunStatus::Failed));
        }
        prop_assert_eq!(RunState::fold(&records), Some(state));
    }
}

#[test]
fn what_does_not_begin_with_an_admission_is_no_run() {
    assert_eq!(RunState::fold(&[]), None);
    assert_eq!(RunState::fold(&[record(1, 0, Body::Released(Released { by: "x".into() }))]), None);
}

#[test]
fn its_status_follows_from_its_records() {
    let lease = Body::Lease(Lease { lease: 1, owner: "x".into(), until_unix_ms: 9 });
    let parked = |reason, step| Body::Parked(Parked { reason, step, until_unix_ms: Some(9) });
    let terminal = Body::Terminal(Terminal { status: RunStatus::TimedOut, failed_at: None, class: None });
    let again = Rerun { step: step("a"), logical: 2.try_into().unwrap(), input: None, by: "x".into() };
    let mut state = RunState::begin(&record(1, 0, admitted())).unwrap();
    assert_eq!(state.status(), RunStatus::Queued);
    for (body, status) in [
        (lease.clone(), RunStatus::Running),
        // A step waits, and others may go on.
        (parked(ParkReason::Ambiguous, Some(step("a"))), RunStatus::Running),
        (parked(ParkReason::Backoff, None), RunStatus::Parked),
        (lease.clone(), RunStatus::Running),
        (parked(ParkReason::Ambiguous, None), RunStatus::NeedsAttention),
        (Body::CancelRequested(CancelRequested { by: "x".into() }), RunStatus::NeedsAttention),
        (lease.clone(), RunStatus::Running),
        (Body::Quarantined(Quarantined { crashes: 5, reason: "x".into() }), RunStatus::Quarantined),
        (Body::Released(Released { by: "x".into() }), RunStatus::Queued),
        (lease, RunStatus::Running),
        (terminal, RunStatus::TimedOut),
        (Body::Rerun(again), RunStatus::Queued),
    ] {
        state.apply(&record(state.seq + 1, 0, body.clone()));
        assert_eq!(state.status(), status, "{body:?}");
    }
}
