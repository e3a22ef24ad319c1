//! Views of runs as they come about.

use bytes::Bytes;
use domain::{ConnectionId, TenantId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::failure::FailureClass;
use crate::ids::{EffectKey, LogicalAttempt, RunId};
use crate::index::{RunRow, Word as _};
use crate::ledger::conformance::made::{self, step};
use crate::ledger::{
    Ambiguity, Attempt, Body, CancelRequested, Cause, Intent, Kept, Outcome, ParkReason, Parked, Payload, Provider,
    Record, RunStatus, SendState, StepResult, Terminal,
};

const NOW: u64 = made::WRITTEN_UNIX_MS;

/// A run, a second between two records.
struct Run(Vec<Record>);

impl Run {
    fn new(bodies: impl IntoIterator<Item = Body>) -> Self {
        let mut run = Self(Vec::new());
        for body in std::iter::once(made::admitted()).chain(bodies) {
            run.push(body);
        }
        run
    }

    fn push(&mut self, body: Body) {
        let seq = self.0.len() as u64 + 1;
        let tenant = TenantId::parse("acme").unwrap();
        let at_unix_ms = NOW + (seq - 1) * 1_000;
        self.0.push(Record { run: RunId::from_bytes([7; 16]), tenant, seq, lease: 1, at_unix_ms, body });
    }

    async fn view(&self) -> ExecutionView {
        self.view_with(Limits::default()).await
    }

    async fn view_with(&self, limits: Limits) -> ExecutionView {
        let plan = plan();
        let now_unix_ms = NOW + self.0.len() as u64 * 1_000;
        let connectors: &dyn Connectors = &Stripe;
        let known = Known { plan: Some(&plan), now_unix_ms, limits, connectors: Some(connectors), ..Known::default() };
        execution(&self.0, &known).await.unwrap()
    }
}

#[derive(Debug)]
struct Stripe;

impl Connectors for Stripe {
    fn connector(&self, _: &TenantId, connection: &ConnectionId) -> Option<Box<str>> {
        (connection.as_str() == "conn_stripe").then(|| "stripe".into())
    }
}

fn plan() -> Plan {
    let node = |id: &str, kind, after: &[&str]| PlanNode {
        id: step(id),
        kind,
        action: (kind == "call").then(|| "stripe.create_charge".into()),
        connection: (kind == "call").then(|| "conn_stripe".into()),
        after: after.iter().map(|after| (*after).into()).collect(),
    };
    let nodes =
        vec![node("decide", "branch", &[]), node("charge", "call", &["decide.yes"]), node("mail", "call", &["charge"])];
    Plan { name: "Orders to cash".into(), nodes }
}

fn at(logical: u32, physical: u32) -> Attempt {
    Attempt { logical: LogicalAttempt::new(logical).unwrap(), physical }
}

fn payload(value: &Value) -> Payload {
    made::payload(value.to_string().into_bytes())
}

fn intent(attempt: Attempt, is_read_back: bool) -> Body {
    let step = step("charge");
    Body::Intent(Intent {
        effect: EffectKey::new(RunId::from_bytes([7; 16]), &step, attempt.logical),
        step,
        attempt,
        is_read_back,
        connection: Some(ConnectionId::parse("conn_stripe").unwrap()),
        input: payload(&json!({"amount": 1200})),
    })
}

fn provider(send_state: SendState, status: Option<u16>, message: Option<&str>) -> Provider {
    Provider {
        send_state,
        status,
        message: message.map(Into::into),
        request_id: Some("req_9".into()),
        correlation: Some("tg_5".into()),
    }
}

fn outcome(name: &str, attempt: Attempt, result: StepResult, provider: impl Into<Option<Provider>>) -> Body {
    Body::Outcome(Outcome { step: step(name), attempt, result, provider: provider.into() })
}

fn failed(class: FailureClass) -> StepResult {
    StepResult::Failed { class, detail: "what it was".into() }
}

fn decided() -> Body {
    outcome("decide", at(1, 1), StepResult::Done { output: payload(&json!("yes")) }, None)
}

fn end(status: RunStatus, class: Option<FailureClass>) -> Body {
    Body::Terminal(Terminal { status, failed_at: class.map(|_| step("charge")), class })
}

/// A charge that was tried twice, and refused.
fn refused() -> Run {
    let unreachable = provider(SendState::NotSent, None, None);
    let declined = provider(SendState::Response, Some(400), Some("Your card was \u{1b}[31mdeclined"));
    Run::new([
        made::lease(1, "one", 1_000),
        decided(),
        intent(at(1, 1), false),
        outcome("charge", at(1, 1), failed(FailureClass::Unreachable), unreachable),
        intent(at(1, 2), false),
        outcome("charge", at(1, 2), failed(FailureClass::InvalidRequest), declined),
        end(RunStatus::Failed, Some(FailureClass::InvalidRequest)),
    ])
}

fn node<'a>(view: &'a ExecutionView, id: &str) -> &'a NodeView {
    view.nodes.iter().find(|node| node.id == id).unwrap()
}

#[tokio::test]
async fn a_failure_says_what_it_was_and_what_to_do() {
    let view = refused().view().await;
    let json = json(&view);
    for (pointer, wanted) in [
        ("/status", json!("failed")),
        ("/failedAt", json!("charge")),
        ("/durationMs", json!(7_000)),
        ("/cause/kind", json!("event")),
        ("/automationName", json!("Orders to cash")),
        ("/nodes/0/status", json!("succeeded")),
        ("/nodes/0/chosen", json!("yes")),
        ("/nodes/1/id", json!("charge")),
        ("/nodes/1/type", json!("call")),
        ("/nodes/1/status", json!("failed")),
        ("/nodes/1/durationMs", json!(3_000)),
        ("/nodes/1/input/value", json!({"amount": 1200})),
        ("/nodes/1/input/truncated", json!(false)),
        ("/nodes/1/output", Value::Null),
        ("/nodes/1/errorClass", json!("invalid-request")),
        ("/nodes/1/provider", json!("stripe")),
        ("/nodes/1/providerMessage", json!("Your card was \u{1b}[31mdeclined")),
        ("/nodes/1/userAction", json!(FailureClass::InvalidRequest.action())),
        ("/nodes/1/attempts/0/attempt", json!("1.1")),
        ("/nodes/1/attempts/0/why", json!("first")),
        ("/nodes/1/attempts/0/sendState", json!("not-sent")),
        ("/nodes/1/attempts/0/errorClass", json!("unreachable")),
        ("/nodes/1/attempts/0/durationMs", json!(1_000)),
        ("/nodes/1/attempts/1/why", json!("retry")),
        ("/nodes/1/attempts/1/providerStatus", json!(400)),
        ("/nodes/1/attempts/1/providerRequestId", json!("req_9")),
        ("/nodes/1/attempts/1/correlationId", json!("tg_5")),
        ("/nodes/2/status", json!("not-reached")),
        ("/next/0/act", json!("rerun")),
        ("/next/0/node", json!("charge")),
    ] {
        assert_eq!(json.pointer(pointer), Some(&wanted), "{pointer}");
    }
    let keys: Vec<_> = node(&view, "charge").attempts.iter().map(|attempt| attempt.effect_key.clone()).collect();
    assert!(keys[0].as_deref().unwrap().starts_with("eff_") && keys[0] == keys[1], "a retry has the same key");
    assert!(view.summary.starts_with("charge failed: The provider did not accept the request."), "{}", view.summary);
    assert!(
        view.summary.contains("“Your card was  [31mdeclined”.") && !view.summary.contains('\u{1b}'),
        "{}",
        view.summary
    );
    assert_eq!(serde_json::from_value::<ExecutionView>(json).unwrap(), view, "and it can be read again");
}

#[tokio::test]
async fn on_a_terminal_it_says_first_what_to_do() {
    let text = draw(&refused().view().await);
    let wanted = "\
run_0w3ge1r70w3ge1r70w3ge1r70w  failed  after 7.0 s
  automation  Orders to cash aut_0c1g60r30c1g60r30c1g60r30c version 1
  because of  event";
    assert!(text.starts_with(wanted), "{text}");
    let wanted = "
  What to do
    tidegate runs rerun run_0w3ge1r70w3ge1r70w3ge1r70w --node charge
    tidegate runs replay run_0w3ge1r70w3ge1r70w3ge1r70w

  ✓ decide  succeeded    0 ms   → yes
      out  \"yes\"
  ✗ charge  failed       3.0 s         ← decide.yes
      call           stripe.create_charge through conn_stripe (stripe)
      error          invalid-request: The provider did not accept the request.
      detail         what it was
      provider said  Your card was \\u{1b}[31mdeclined
      next           Compare the node's input with the provider's message, correct it, and re-run the node.
      in             {\"amount\":1200}
      1.1  first  08:00:03.000  1.0 s  not-sent       unreachable      request req_9  egress tg_5  key eff_";
    assert!(text.contains(wanted), "{text}");
    assert!(
        text.contains("\n      1.2  retry  08:00:05.000  1.0 s  response  400  invalid-request  request req_9"),
        "{text}"
    );
    let text = draw_for(&refused().view().await, &TenantId::parse("acme").unwrap());
    assert!(text.contains("tidegate runs replay --tenant acme run_0w3ge"), "{text}");
    assert!(text.contains("\n  · mail    not-reached                ← charge\n"), "{text}");
}

#[tokio::test]
async fn an_effect_in_doubt_is_left_to_somebody_and_the_choice_is_told() {
    let sent = provider(SendState::SentNoResponse, None, None);
    let mut run = Run::new([
        made::lease(1, "one", 1_000),
        decided(),
        intent(at(1, 1), false),
        outcome("charge", at(1, 1), StepResult::Ambiguous(Ambiguity::NoAnswer), sent),
        Body::Parked(Parked { reason: ParkReason::Ambiguous, step: Some(step("charge")), until_unix_ms: None }),
        Body::Parked(Parked { reason: ParkReason::Ambiguous, step: None, until_unix_ms: Some(NOW + 3_600_000) }),
    ]);
    let view = run.view().await;
    assert_eq!((&*view.status, &*node(&view, "charge").status), ("needs-attention", "needs-attention"));
    assert!(
        view.summary.starts_with("Nobody knows whether charge has had its effect: it was sent"),
        "{}",
        view.summary
    );
    assert_eq!(view.next[0].choices, ["continue-accept-gap", "retry-accept-duplicate"]);
    let text = draw(&view);
    assert!(text.contains("--node charge --choice retry-accept-duplicate"), "{text}");
    assert_eq!(node(&view, "charge").attempts[0].result, "ambiguous");

    // Its answer comes after all; and somebody chooses.
    let Body::LateOutcome(mut late) = made::late_outcome("charge", 1) else { unreachable!() };
    late.result = StepResult::Done { output: payload(&json!({"id": "ch_1"})) };
    run.push(Body::LateOutcome(late));
    run.push(made::resolved("charge", 1));
    let view = run.view().await;
    let charge = node(&view, "charge");
    assert_eq!(charge.late_outcomes.len(), 1);
    assert_eq!((&*charge.late_outcomes[0].result, &*charge.status), ("done", "gap-accepted"));
    assert_eq!((&*charge.choices[0].choice, &*charge.choices[0].by), ("continue-accept-gap", "ann@example.com"));
    assert!(draw(&view).contains("by ann@example.com at 2027-01-15T"), "{}", draw(&view));
}

/// A 503 is an answer, and no proof that nothing was done.
#[tokio::test]
async fn an_answer_that_leaves_it_in_doubt_is_not_called_none() {
    let down = provider(SendState::Response, Some(503), Some("down"));
    let run = Run::new([
        made::lease(1, "one", 1_000),
        intent(at(1, 1), false),
        outcome("charge", at(1, 1), StepResult::Ambiguous(Ambiguity::NoAnswer), down),
        Body::Parked(Parked { reason: ParkReason::Ambiguous, step: Some(step("charge")), until_unix_ms: None }),
        Body::Parked(Parked { reason: ParkReason::Ambiguous, step: None, until_unix_ms: Some(NOW + 3_600_000) }),
    ]);
    let view = run.view().await;
    let said = "it was answered with 503, which does not say if it was done";
    assert_eq!(node(&view, "charge").attempts[0].detail.as_deref(), Some(said));
    assert!(view.summary.contains(said), "{}", view.summary);
}

/// What is in doubt when a run is over is left to nobody's choice: what to do about it has to be something that can be done.
#[tokio::test]
async fn a_doubt_of_a_run_that_is_over_is_not_to_be_chosen_about() {
    let of = |status| {
        Run::new([
            made::lease(1, "one", 1_000),
            intent(at(1, 1), false),
            made::cancel_requested(),
            outcome("charge", at(1, 1), StepResult::Ambiguous(Ambiguity::NoAnswer), None),
            end(status, None),
        ])
    };
    for status in [RunStatus::Cancelled, RunStatus::EndedAmbiguous] {
        let view = of(status).view().await;
        let charge = node(&view, "charge");
        assert_eq!(&*charge.status, "ambiguous");
        let what = charge.user_action.as_deref().unwrap();
        assert!(!what.contains("choose") && view.summary.contains(what), "{what} {}", view.summary);
        assert_eq!((&*view.next[0].act, view.next[0].node.as_deref()), ("rerun", Some("charge")), "{status:?}");
    }
}

/// What to do is told as commands that can be pasted.
#[tokio::test]
async fn a_dead_connection_is_told_with_the_command_that_ends_the_wait() {
    let revoked = provider(SendState::Response, Some(401), Some("revoked"));
    let run = Run::new([
        made::lease(1, "one", 1_000),
        intent(at(1, 1), false),
        outcome("charge", at(1, 1), failed(FailureClass::AuthenticationExpired), revoked),
        Body::Parked(Parked { reason: ParkReason::NeedsReconnect, step: None, until_unix_ms: Some(NOW + 3_600_000) }),
    ]);
    let text = draw_for(&run.view().await, &TenantId::parse("acme").unwrap());
    assert!(text.contains("\n    tidegate runs reconnected --tenant acme conn_stripe\n"), "{text}");
}

#[tokio::test]
async fn each_attempt_says_why_it_was_made() {
    let put_off = StepResult::Deferred { until_unix_ms: NOW + 90_000, reason: ParkReason::Provider };
    let run = Run::new([
        made::lease(1, "one", 1_000),
        intent(at(1, 1), false),
        outcome("charge", at(1, 1), put_off, None),
        intent(at(1, 2), false),
        made::lease(2, "two", 1_000),
        outcome("charge", at(1, 2), StepResult::Ambiguous(Ambiguity::WorkerLost), None),
        intent(at(1, 3), true),
        outcome("charge", at(1, 3), failed(FailureClass::NotFound), None),
        intent(at(1, 4), false),
        outcome("charge", at(1, 4), StepResult::Ambiguous(Ambiguity::NoAnswer), None),
        intent(at(1, 5), false),
        outcome("charge", at(1, 5), failed(FailureClass::Conflict), None),
        end(RunStatus::Failed, Some(FailureClass::Conflict)),
        made::rerun("charge", 2),
        made::lease(3, "three", 1_000),
        intent(at(2, 1), false),
    ]);
    let view = run.view().await;
    let charge = node(&view, "charge");
    let why: Vec<_> =
        charge.attempts.iter().map(|attempt| (&*attempt.attempt, &*attempt.why, &*attempt.result)).collect();
    let wanted = [
        ("1.1", "first", "deferred"),
        ("1.2", "after-park", "ambiguous"),
        ("1.3", "read-back", "failed"),
        ("1.4", "not-happened", "ambiguous"),
        ("1.5", "no-answer", "failed"),
        ("2.1", "rerun", "open"),
    ];
    assert_eq!(why, wanted);
    assert_eq!(charge.attempts[0].next_attempt_at.as_deref(), Some("2027-01-15T08:01:30.000Z"));
    assert_eq!((&*charge.status, &*view.status), ("running", "running"));
    assert_ne!(charge.attempts[0].effect_key, charge.attempts[5].effect_key, "who asks again asks for another effect");
    assert_eq!((charge.choices[0].choice.as_str(), view.crashes), ("rerun", 1));
    assert_eq!(charge.error_class, None, "what it was before is with its attempts");
}

#[tokio::test]
async fn a_view_is_bounded_and_says_what_it_leaves_out() {
    let mut run = Run::new([made::lease(1, "one", 1_000), decided()]);
    for physical in 1..=500 {
        run.push(intent(at(1, physical), false));
        let result = StepResult::Failed { class: FailureClass::Timeout, detail: "x".repeat(100_000).into() };
        run.push(outcome("charge", at(1, physical), result, None));
    }
    let view = run.view().await;
    let charge = node(&view, "charge");
    assert_eq!((charge.attempts.len(), charge.attempts_omitted), (20, 480));
    assert_eq!(charge.attempts[19].attempt, "1.500");
    assert!(json(&view).to_string().len() < 100_000);
    assert!(draw(&view).contains("480 earlier attempts are not shown"));
    let one = run.view_with(Limits { nodes_max: 1, ..Limits::default() }).await;
    assert_eq!((one.nodes.len(), one.nodes_omitted), (1, 2));
    assert!(draw(&one).contains("… 2 more nodes"));
}

#[tokio::test]
async fn one_node_alone_has_all_of_its_attempts() {
    let run = refused();
    let only = step("charge");
    let known = Known { only: Some(&only), limits: Limits::of_one_node(), ..Known::default() };
    let view = execution(&run.0, &known).await.unwrap();
    assert_eq!((view.nodes.len(), view.nodes_omitted, view.nodes[0].attempts.len()), (1, 0, 2));
    let node = view.nodes.into_iter().next().unwrap();
    let drawn = draw_node(&NodeOfRun { run_id: view.id, run_status: view.status, node });
    assert!(drawn.starts_with("run_0w3ge1r70w3ge1r70w3ge1r70w  failed\n  ✗ charge  failed"), "{drawn}");
    assert_eq!(execution(&run.0[1..], &known).await, None, "without its admission it is no run");
}

#[tokio::test]
async fn a_payload_of_a_node_is_found_as_it_is_kept() {
    let run = refused();
    let of = |name: &str, part| payload_of(&run.0, &step(name), part);
    assert_eq!(of("charge", Part::Input), Some(payload(&json!({"amount": 1200}))));
    assert_eq!(of("charge", Part::Output), None, "nothing came of it");
    assert_eq!(of("decide", Part::Output), Some(payload(&json!("yes"))));
    assert_eq!(of("mail", Part::Input), None);
}

#[tokio::test]
async fn a_dead_letter_can_be_put_away_and_says_who_did() {
    let mut run = Run::new([made::lease(1, "one", 1_000), end(RunStatus::EndedAmbiguous, None)]);
    let view = run.view().await;
    assert!(view.is_dead_letter && view.next.last().is_some_and(|next| next.act == "dismiss"), "{:?}", view.next);
    let text = draw_for(&view, &TenantId::parse("acme").unwrap());
    assert!(text.contains("\n    tidegate runs dismiss --tenant acme run_"), "{text}");
    run.push(made::dismissed());
    let view = run.view().await;
    assert!(!view.is_dead_letter && view.next.iter().all(|next| next.act != "dismiss"), "{:?}", view.next);
    let text = draw(&view);
    assert!(text.contains("put away    by ann at 2027-01-15T08:00:03.000Z: the customer was called"), "{text}");
}

#[tokio::test]
async fn a_replay_of_a_run_by_hand_is_a_replay() {
    let mut run = refused();
    let Body::Admitted(admitted) = &mut run.0[0].body else { panic!() };
    admitted.cause = Cause::Again { of: RunId::from_bytes([1; 16]), replay: "rep_1".into(), by: "ann".into() };
    let view = run.view().await;
    assert_eq!(
        (&*view.cause.kind, view.cause.replay.as_deref(), view.execution_id.as_deref()),
        ("replay", Some("rep_1"), None)
    );
    assert!(draw(&view).contains("because of  replay rep_1 of run_04"), "{}", draw(&view));
}

#[tokio::test]
async fn one_worker_is_one() {
    let one = Body::Quarantined(crate::ledger::Quarantined { crashes: 1, reason: "it crashed".into() });
    let view = Run::new([made::lease(1, "one", 1_000), one]).view().await;
    assert!(view.summary.starts_with("It was set aside: 1 worker was lost over it. An operator"), "{}", view.summary);
    assert!(draw(&view).contains("crashes     1 worker was lost over it"), "{}", draw(&view));
}

#[tokio::test]
async fn what_is_cut_says_so_on_a_terminal() {
    let mut run = Run::new([made::lease(1, "one", 1_000)]);
    let whole = b"0123456789".repeat(1_000);
    let kept = Kept::Truncated(Bytes::copy_from_slice(&whole[..100]));
    let output = Payload { bytes: 10_000, digest: *blake3::hash(&whole).as_bytes(), kept };
    run.push(outcome("decide", at(1, 1), StepResult::Done { output }, None));
    let text = draw(&run.view().await);
    assert!(text.contains("… [10000 bytes, too large to be kept whole, blake3:"), "{text}");
}

#[tokio::test]
async fn a_connection_that_was_dead_before_it_was_called_is_named_and_so_is_what_says_that_it_works() {
    let park = Body::Parked(Parked { reason: ParkReason::NeedsReconnect, step: None, until_unix_ms: None });
    let view = Run::new([made::lease(1, "one", 1_000), decided(), park]).view().await;
    assert!(view.summary.starts_with("The authentication of connection conn_stripe"), "{}", view.summary);
    let text = draw_for(&view, &TenantId::parse("acme").unwrap());
    let wanted = "\n    connect conn_stripe anew\n    tidegate runs reconnected --tenant acme conn_stripe\n";
    assert!(text.contains(wanted), "{text}");
}

#[tokio::test]
async fn of_a_run_that_is_over_nobody_is_asked_to_choose() {
    let begun = [made::lease(1, "one", 1_000), decided(), intent(at(1, 1), false)];
    let ended = [made::cancel_requested(), end(RunStatus::Cancelled, None)];
    let view = Run::new(begun.into_iter().chain(ended)).view().await;
    let charge = node(&view, "charge");
    assert_eq!(charge.status, "ambiguous");
    assert_eq!(charge.user_action.as_deref(), Some("Look at the provider; if it has not happened, re-run the node."));
}

#[tokio::test]
async fn null_is_drawn_as_such() {
    let mut run = Run::new([made::lease(1, "one", 1_000)]);
    run.push(outcome("decide", at(1, 1), StepResult::Done { output: payload(&json!(null)) }, None));
    let sent = serde_json::to_value(run.view().await).unwrap();
    let text = draw(&serde_json::from_value(sent).unwrap());
    assert!(text.contains("out  null\n"), "{text}");
}

#[tokio::test]
async fn statuses_have_sentences_and_words() {
    let park = |reason| Body::Parked(Parked { reason, step: None, until_unix_ms: Some(NOW + 60_000) });
    let lease = || made::lease(1, "one", 1_000);
    let cases: Vec<(Vec<Body>, &str, &str)> = vec![
        (vec![], "queued", "It waits for a worker."),
        (vec![lease(), intent(at(1, 1), false)], "running", "Under way: charge."),
        (vec![lease(), park(ParkReason::Quota)], "parked", "It waits until 2027-01-15T08:01:00.000Z: the quota"),
        (vec![lease(), park(ParkReason::NeedsReconnect)], "needs-attention", "The authentication of a connection"),
        (vec![lease(), made::quarantined()], "quarantined", "It was set aside: 3 workers"),
        (vec![lease(), end(RunStatus::Succeeded, None)], "succeeded", "It is done."),
        (vec![Body::CancelRequested(CancelRequested { by: "ann".into() })], "queued", "It is being cancelled."),
        (
            vec![lease(), intent(at(1, 1), false), made::cancel_requested(), end(RunStatus::Cancelled, None)],
            "cancelled",
            "It was cancelled by ann while charge was under way",
        ),
        (vec![lease(), end(RunStatus::TimedOut, None)], "timed-out", "Its deadline, 2027-01-15T09:00:00.000Z, came."),
        (vec![lease(), end(RunStatus::EndedAmbiguous, None)], "ended-ambiguous", "It ended, and nobody knows"),
    ];
    for (bodies, status, sentence) in cases {
        let view = Run::new(bodies).view().await;
        assert_eq!(view.status, status);
        assert!(view.summary.starts_with(sentence), "{}", view.summary);
        assert!(draw(&view).contains(status));
    }
    let words: std::collections::BTreeSet<_> = NodeStatus::ALL.iter().map(|status| status.word()).collect();
    assert_eq!(words.len(), NodeStatus::ALL.len());
}

#[test]
fn lines_stand_in_columns() {
    let rows = [refused().0, Run::new([made::lease(1, "one", 1_000), made::parked(None, Some(NOW))]).0];
    let views: Vec<_> = rows.iter().map(|records| line(&RunRow::fold(records).unwrap())).collect();
    assert_eq!(
        (views[0].error_class.as_deref(), views[0].failed_at.as_deref()),
        (Some("invalid-request"), Some("charge"))
    );
    let text = lines(&views);
    let rows: Vec<_> = text.lines().collect();
    assert_eq!(rows.len(), 3);
    let column = rows[0].find("STATUS").unwrap();
    assert!(rows[1][column..].starts_with("failed") && rows[2][column..].starts_with("parked"), "{text}");
    assert!(rows[1].ends_with("invalid-request at charge"), "{text}");
    assert_eq!(lines(&[]), "");
    let gone = of_row(&RunRow::fold(&refused().0).unwrap(), NOW);
    assert!(gone.is_expired && draw(&gone).contains("past their retention"));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[\\x00-\\x1f\\x7f-\\u{9f}\u{202e}a]{0,40}", Just("é".repeat(3_000))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever others wrote, and whatever a server sends: no control character reaches a terminal, and nothing panics.
    #[test]
    fn nothing_moves_the_cursor(texts in proptest::collection::vec(any_text(), 6), picks in proptest::collection::vec(0..12_usize, 0..40)) {
        let [message, detail, by, name, output, reason] = &texts[..] else { unreachable!() };
        let said = provider(SendState::Response, Some(500), Some(message));
        let bodies = |pick: usize| match pick {
            0 => made::lease(9, "one", 1),
            1 => intent(at(1, 1), false),
            2 => intent(at(1, 2), true),
            3 => outcome("charge", at(1, 1), StepResult::Failed { class: FailureClass::Timeout, detail: (&**detail).into() }, said.clone()),
            4 => outcome("charge", at(1, 2), StepResult::Done { output: made::payload(output.clone().into_bytes()) }, said.clone()),
            5 => outcome("decide", at(1, 1), StepResult::Done { output: payload(&json!(output)) }, None),
            6 => made::late_outcome("charge", 1),
            7 => Body::Parked(Parked { reason: ParkReason::ALL[output.len() % 8], step: None, until_unix_ms: Some(u64::MAX) }),
            8 => Body::CancelRequested(CancelRequested { by: (&**by).into() }),
            9 => Body::Quarantined(crate::ledger::Quarantined { crashes: 1, reason: (&**reason).into() }),
            10 => made::rerun("charge", 2),
            _ => end(RunStatus::ALL[5 + output.len() % 5], Some(FailureClass::Timeout)),
        };
        let run = Run::new(picks.into_iter().map(bodies));
        let mut view = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run.view());
        let visible = |text: &str| text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}'));
        prop_assert!(visible(&draw(&view)));
        prop_assert!(draw(&view).len() < 100_000);
        // A server that is not ours can say anything.
        view.id.clone_from(name);
        view.summary.clone_from(detail);
        view.status.clone_from(message);
        view.automation_name = Some(by.clone());
        view.next = vec![NextAct { act: "rerun".into(), node: Some(reason.clone()), connection: None, choices: vec![name.clone()] }];
        for node in &mut view.nodes {
            (node.id, node.status) = (name.clone(), reason.clone());
            node.after = vec![message.clone()];
            for attempt in &mut node.attempts {
                (attempt.why, attempt.at) = (by.clone(), Some(output.clone()));
            }
        }
        prop_assert!(visible(&draw(&view)));
    }
}

/// What people script against is what the page says.
#[test]
fn the_page_has_every_word() {
    let page = include_str!("../../../docs/executions.md");
    let statuses = RunStatus::ALL.iter().map(|status| status.word()).chain(NodeStatus::ALL.iter().map(|it| it.word()));
    let others = ParkReason::ALL.iter().map(|reason| reason.word()).chain(SendState::ALL.iter().map(|it| it.word()));
    let classes = crate::ledger::QueueClass::ALL.iter().map(|class| class.word());
    let choices = crate::ledger::Choice::ALL.iter().map(|choice| choice.word());
    for word in statuses.chain(others).chain(classes).chain(choices) {
        assert!(page.contains(&format!("`{word}`")), "{word}");
    }
    let run = Run::new([made::lease(1, "one", 1_000), intent(at(1, 1), false)]);
    let view = json(&tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run.view()));
    for object in [&view, &view["nodes"][1], &view["nodes"][1]["attempts"][0]] {
        for key in object.as_object().unwrap().keys().filter(|key| !["at", "detail"].contains(&&***key)) {
            assert!(page.contains(&format!("`{key}`")) || page.contains(&format!("`{key}[]`")), "{key}");
        }
    }
}
