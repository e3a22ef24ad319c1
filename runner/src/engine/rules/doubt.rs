//! Whether an effect has happened: trying again, reading back, asking.

use std::time::Duration;

use super::super::ports::Notice;
use super::super::state::{Settled, Standing};
use super::super::testing::{Graph, lock, step};
use super::{Bench, cut, failed, response};
use crate::failure::FailureClass;
use crate::ledger::{Body, Choice, Kept, Outcome, ParkReason, Released, RunStatus, SendState, StepResult, Writer};

async fn bench(class: &str) -> Bench {
    Bench::new(Graph::default().call("a", &[], class).call("b", &["a"], "unsafe").build()).await
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_tried_again_even_where_it_is_unsafe_and_under_the_same_key() {
    for class in ["unsafe", "checkable", "idempotent"] {
        let bench = bench(class).await;
        bench.answers("a", [failed(SendState::NotSent, "connect-failed"), failed(SendState::NotSent, "dns-timeout")]);
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded, "{class}");
        let calls = bench.calls();
        assert_eq!(bench.called(), ["a", "a", "a", "b"]);
        assert!(calls[0].key == calls[1].key && calls[1].key == calls[2].key);
        assert_eq!(calls.iter().map(|made| made.attempt).collect::<Vec<_>>(), [1, 2, 3, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_effect_in_doubt_is_tried_again_under_the_same_key() {
    for doubt in [failed(SendState::SentNoResponse, "response-timeout"), response(500, "oops")] {
        let bench = bench("idempotent").await;
        bench.answers("a", [doubt]);
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
        let calls = bench.calls();
        assert_eq!(bench.called(), ["a", "a", "b"]);
        assert_eq!(calls[0].key, calls[1].key);
        assert_eq!(calls[0].body, calls[1].body);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_effect_in_doubt_is_never_tried_again_and_somebody_is_told() {
    for doubt in [
        failed(SendState::SentNoResponse, "response-timeout"),
        failed(SendState::PartiallySent, "response-incomplete"),
        failed(SendState::Response, "response-incomplete"),
        response(500, "oops"),
        response(302, "who knows"),
    ] {
        let bench = bench("unsafe").await;
        bench.answers("a", [doubt]);
        let state = bench.to_the_end().await;
        assert_eq!(state.status(), RunStatus::NeedsAttention);
        assert_eq!(bench.step("a").standing, Standing::Ambiguous);
        let parked = state.parked.unwrap();
        assert_eq!(parked.until_unix_ms, Some(state.deadline_unix_ms));
        assert_eq!(lock(&bench.tables.notices).len(), 1);
        // Looked at again and again, it stays so, and nobody is told twice.
        tokio::time::sleep(Duration::from_mins(30)).await;
        bench.turn().await;
        assert_eq!(bench.called(), ["a"]);
        assert!(matches!(&lock(&bench.tables.notices)[..], [Notice::Ambiguous { step: at, .. }] if *at == step("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn the_two_choices_are_to_go_on_and_to_do_it_again() {
    let go_on = bench("unsafe").await;
    go_on.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    go_on.to_the_end().await;
    let run = go_on.run;
    go_on.acts.resolve(&super::tenant(), run, &step("a"), Choice::ContinueAcceptGap, "ann").await.unwrap();
    assert_eq!(go_on.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(go_on.called(), ["a", "b"]);
    assert_eq!(go_on.step("a").settled(), Some(&Settled::Gap));

    let again = bench("unsafe").await;
    again.answers("a", [failed(SendState::SentNoResponse, "response-timeout"), response(500, "oops")]);
    again.to_the_end().await;
    for _ in 0..2 {
        again.acts.resolve(&super::tenant(), run, &step("a"), Choice::RetryAcceptDuplicate, "ann").await.unwrap();
        again.to_the_end().await;
    }
    // Twice in doubt, twice accepted; a retry has the same key.
    assert_eq!(again.called(), ["a", "a", "a", "b"]);
    assert_eq!(again.calls()[0].key, again.calls()[2].key);
    assert_eq!(again.terminal().status, RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_that_nobody_decides_about_ends_at_the_deadline_and_says_so() {
    let bench = bench("unsafe").await;
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    bench.to_the_end().await;
    tokio::time::sleep(Duration::from_hours(2)).await;
    bench.to_the_end().await;
    let terminal = bench.terminal();
    assert_eq!((terminal.status, terminal.failed_at), (RunStatus::EndedAmbiguous, Some(step("a"))));
    assert_eq!((terminal.class, bench.called().len()), (Some(FailureClass::Ambiguous), 1));
}

#[tokio::test(start_paused = true)]
async fn a_checkable_effect_is_read_back_first_with_an_intent_of_its_own() {
    for (says, called) in [("yes", vec!["a", "read-back", "b"]), ("no", vec!["a", "read-back", "a", "b"])] {
        let bench = bench("checkable").await;
        bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
        bench.answers("read-back", [response(200, says)]);
        assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded, "{says}");
        assert_eq!(bench.called(), called);
        let is_read_back = |body: &Body| matches!(body, Body::Intent(intent) if intent.is_read_back);
        assert_eq!(bench.records().iter().filter(|record| is_read_back(&record.body)).count(), 1);
        assert!(bench.calls().iter().take(3).all(|made| made.step == "b" || made.key == bench.calls()[0].key));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_back_that_fails_is_made_again_and_one_that_does_not_tell_asks_somebody() {
    let bench = bench("checkable").await;
    bench.answers("a", [response(500, "oops")]);
    let fails = [response(500, "later"), failed(SendState::SentNoResponse, "response-timeout"), response(200, "maybe")];
    bench.answers("read-back", fails);
    let state = bench.to_the_end().await;
    assert_eq!(bench.called(), ["a", "read-back", "read-back", "read-back"]);
    assert_eq!(state.parked.unwrap().reason, ParkReason::Ambiguous);
    bench.acts.resolve(&super::tenant(), bench.run, &step("a"), Choice::ContinueAcceptGap, "ann").await.unwrap();
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_read_back_is_not_made_for_ever() {
    let bench = bench("checkable").await;
    bench.answers("a", [response(500, "oops")]);
    bench.answers("read-back", std::iter::repeat_n(response(500, "later"), 50));
    let state = bench.to_the_end().await;
    assert_eq!(state.parked.unwrap().reason, ParkReason::Ambiguous);
    assert_eq!(bench.called().len(), 1 + 8);
}

#[tokio::test(start_paused = true)]
async fn a_run_does_not_end_over_a_doubt_although_another_step_has_failed() {
    let graph = Graph::default().call("a", &[], "unsafe").call("c", &[], "unsafe").call("d", &[], "idempotent");
    let bench = Bench::new(graph.build()).await;
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    bench.answers("c", [response(400, "no")]);
    bench.answers_after("d", Duration::from_secs(1), [failed(SendState::SentNoResponse, "response-timeout")]);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::NeedsAttention);
    assert_eq!(bench.called(), ["a", "c", "d"], "it asks first, and d has to wait for its backoff");
    tokio::time::sleep(Duration::from_secs(2)).await;
    bench.to_the_end().await;
    assert_eq!(bench.called(), ["a", "c", "d", "d"]);
    bench.acts.resolve(&super::tenant(), bench.run, &step("a"), Choice::ContinueAcceptGap, "ann").await.unwrap();
    bench.to_the_end().await;
    assert_eq!((bench.terminal().status, bench.terminal().failed_at), (RunStatus::Failed, Some(step("c"))));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_lasts_is_tried_as_often_as_it_may_be() {
    let bench = bench("idempotent").await;
    bench.answers("a", std::iter::repeat_n(response(500, "oops"), 9));
    bench.to_the_end().await;
    let terminal = bench.terminal();
    assert_eq!((terminal.class, bench.called().len()), (Some(FailureClass::AttemptsExhausted), 4));
    let Some(Settled::Failed { detail, .. }) = bench.step("a").settled().cloned() else { panic!() };
    assert!(detail.contains("provider-unavailable") && detail.contains("may have happened"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_that_it_has_done_nothing_is_believed() {
    let bench = bench("unsafe").await;
    bench.answers("a", [response(409, "locked"), response(404, "gone")]);
    bench.to_the_end().await;
    assert_eq!((bench.terminal().class, bench.called().len()), (Some(FailureClass::NotFound), 2));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_later_try_does_not_hide_that_an_earlier_one_may_have_had_its_effect() {
    let bench = bench("idempotent").await;
    bench.answers("a", [failed(SendState::SentNoResponse, "response-timeout"), response(400, "no")]);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Failed);
    let Some(Settled::Failed { class, detail }) = bench.step("a").settled().cloned() else { panic!() };
    assert_eq!(class, FailureClass::InvalidRequest);
    assert!(detail.contains("an earlier try may have had its effect"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_late_refusal_of_one_try_does_not_end_the_doubt_about_another() {
    let bench = bench("unsafe").await;
    let unknown = || failed(SendState::SentNoResponse, "response-timeout");
    bench.answers("a", [unknown(), unknown()]);
    bench.to_the_end().await;
    bench.acts.resolve(&super::tenant(), bench.run, &step("a"), Choice::RetryAcceptDuplicate, "ann").await.unwrap();
    bench.to_the_end().await;
    let first = bench.step("a").doubt.unwrap().attempts[0];
    let result = StepResult::Failed { class: FailureClass::InvalidRequest, detail: "no".into() };
    let late = Outcome { step: step("a"), attempt: first, result, provider: None };
    bench.append(Writer::Anyone, vec![Body::LateOutcome(late)]).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::NeedsAttention);
    assert_eq!(bench.step("a").doubt.unwrap().attempts.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_twice_over_is_harmless_both_times() {
    let bench = Bench::new(Graph::default().call("a", &[], "harmless").build()).await;
    bench.answers_after("read-back", Duration::from_secs(9), [response(200, "done")]);
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.acts.cancel(&super::tenant(), bench.run, "ann").await.unwrap();
        // Somebody appends between the decision to give up and its commit.
        bench.ledger.next(crate::ledger::memory::Fault::Late(Duration::from_secs(3)));
        bench.nudges.send_modify(|nudge| *nudge += 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.append(Writer::Anyone, vec![Body::Released(Released { by: "ann".into() })]).await;
    };
    let _ended = tokio::join!(bench.turn(), cancel);
    assert_eq!((bench.terminal().status, bench.terminal().class), (RunStatus::Cancelled, None));
}

/// A success is one, however much of it is kept; and what nobody can read is not called anything else.
#[tokio::test(start_paused = true)]
async fn a_success_that_is_larger_than_is_kept_is_a_success() {
    for class in ["unsafe", "checkable", "idempotent", "harmless"] {
        for is_whole in [true, false] {
            let bench = bench(class).await;
            bench.answers(if class == "harmless" { "read-back" } else { "a" }, [cut("x,y,z", is_whole)]);
            assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded, "{class}");
            let Some(Settled::Done { output }) = bench.step("a").settled().cloned() else { panic!() };
            assert_eq!((output.bytes, output.digest), (9 << 20, [9; 32]));
            let kept = bytes::Bytes::from_static(b"x,y,z");
            assert_eq!(output.kept, if is_whole { Kept::Truncated(kept) } else { Kept::Beginning(kept) });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_success_stands_in_the_part_that_is_not_kept_it_is_said_so() {
    let unread = || cut("{\"ok\":", true);
    let asks = bench("unsafe").await;
    asks.answers("a", [unread()]);
    assert_eq!(asks.to_the_end().await.status(), RunStatus::NeedsAttention);

    let reads_back = bench("checkable").await;
    reads_back.answers("a", [unread()]);
    reads_back.answers("read-back", [response(200, "yes")]);
    assert_eq!(reads_back.to_the_end().await.status(), RunStatus::Succeeded);

    // Again it would be as large again.
    for class in ["idempotent", "harmless"] {
        let stops = bench(class).await;
        stops.answers(if class == "harmless" { "read-back" } else { "a" }, [unread()]);
        assert_eq!(stops.to_the_end().await.status(), RunStatus::Failed);
        assert_eq!((stops.terminal().class, stops.called().len()), (Some(FailureClass::AnswerTooLarge), 1));
        let Some(Settled::Failed { detail, .. }) = stops.step("a").settled().cloned() else { panic!() };
        assert_eq!(detail.contains("may have happened"), class == "idempotent", "{detail}");
    }

    // A read-back that cannot be read does not tell.
    let blind = bench("checkable").await;
    blind.answers("a", [failed(SendState::SentNoResponse, "response-timeout")]);
    blind.answers("read-back", [unread()]);
    assert_eq!(blind.to_the_end().await.status(), RunStatus::NeedsAttention);
    assert_eq!(blind.called(), ["a", "read-back"]);
}
