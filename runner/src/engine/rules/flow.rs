//! The graph: branches, joins, skipping, failing and waiting; and what is written when.

use std::time::Duration;

use serde_json::json;

use super::super::state::Settled;
use super::super::testing::{Graph, expression, lock, step, template};
use super::{Bench, response};
use crate::automation::{Delay, Kind};
use crate::failure::FailureClass;
use crate::ids::EffectKey;
use crate::ledger::{Body, Kept, RunStatus, StepResult};

fn output(bench: &Bench, name: &str) -> serde_json::Value {
    match bench.step(name).settled() {
        Some(Settled::Done { output }) => match &output.kept {
            Kept::Inline(bytes) => serde_json::from_slice(bytes).unwrap(),
            other @ (Kept::Stored | Kept::Truncated(_) | Kept::Beginning(_) | Kept::Expired) => panic!("{other:?}"),
        },
        other => panic!("{name} is {other:?}"),
    }
}

/// Records of one commit have one time and follow each other; here each commit is one moment of virtual time.
#[tokio::test(start_paused = true)]
async fn an_outcome_and_every_intent_that_follows_from_it_are_one_commit() {
    let graph = Graph::default()
        .call("a", &[], "unsafe")
        .transform("t", &["a"], &json!("${steps.a.output}"))
        .call("b", &["t"], "unsafe")
        .call("c", &["t"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    // Were they two commits, the second would be refused.
    let ledger = std::sync::Arc::clone(&bench.ledger);
    bench.answers_after("a", Duration::from_millis(50), [response(200, "done")]);
    let spoil = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for _ in 0..1 {
            ledger.next(crate::ledger::memory::Fault::LateReply(Duration::from_millis(500)));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let bodies: Vec<_> = bench.records().into_iter().map(|record| record.body).skip(3).collect();
        assert!(
            matches!(&bodies[..], [Body::Outcome(a), Body::Outcome(t), Body::Intent(b), Body::Intent(c)]
            if a.step == step("a") && t.step == step("t") && b.step == step("b") && c.step == step("c")),
            "{bodies:?}"
        );
        // They are durable, and that is not known yet: nothing is called.
        assert_eq!(bench.called(), ["a"]);
    };
    let (ended, ()) = tokio::join!(bench.turn(), spoil);
    assert_eq!(ended, crate::schedule::Ended::Terminal);
    assert_eq!(bench.called(), ["a", "b", "c"]);
    assert_eq!(bench.terminal().status, RunStatus::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_make_no_call_have_no_intent() {
    let graph = Graph::default().transform("t", &[], &json!({ "n": "${event.body.amount + 1}" })).branch(
        "which",
        &["t"],
        &[("big", "steps.t.output.n > 5")],
    );
    let bench = Bench::new(graph.build()).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert!(!bench.records().iter().any(|record| matches!(record.body, Body::Intent(_))));
    assert_eq!((output(&bench, "t"), output(&bench, "which")), (json!({ "n": 8 }), json!("big")));
    // Admission, then all of the rest as one.
    assert_eq!(bench.records().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_effect_key_is_that_of_run_step_and_asking_and_what_is_sent_is_rendered() {
    let bench = Bench::new(Graph::default().call("a", &[], "unsafe").build()).await;
    bench.to_the_end().await;
    let made = bench.calls().remove(0);
    assert_eq!(made.key, EffectKey::new(bench.run, &step("a"), std::num::NonZeroU32::MIN).to_string());
    let sent: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
    assert_eq!(sent["event"], json!(super::event().to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_branch_leads_one_way_and_a_join_waits_for_what_was_taken() {
    let graph = Graph::default()
        .branch("which", &[], &[("yes", "event.body.amount == 7"), ("also", "true")])
        .call("b", &["which.yes"], "unsafe")
        .call("c", &["which.also"], "unsafe")
        .call("d", &["which.otherwise"], "unsafe")
        .call("e", &["c", "d"], "unsafe")
        .call("join", &["b", "c", "e"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["b", "join"]);
    for name in ["c", "d", "e"] {
        assert_eq!(bench.step(name).settled(), Some(&Settled::Skipped), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_when_is_false_is_skipped_and_so_is_what_is_behind_it_alone() {
    let graph = Graph::default()
        .call("a", &[], "unsafe")
        .with(|node| node.when = Some(expression("event.body.amount > 100")))
        .call("b", &["a"], "unsafe")
        .call("c", &[], "unsafe")
        .call("join", &["a", "c"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(bench.called(), ["c", "join"]);
}

#[tokio::test(start_paused = true)]
async fn where_a_step_has_failed_nothing_new_is_begun_and_what_is_under_way_is_waited_for() {
    let graph = Graph::default()
        .call("a", &[], "unsafe")
        .call("slow", &[], "unsafe")
        .call("b", &["slow"], "unsafe")
        .delay("late", &[], Duration::from_mins(1));
    let bench = Bench::new(graph.build()).await;
    bench.answers("a", [response(400, "no")]);
    bench.answers_after("slow", Duration::from_secs(5), [response(200, "done")]);
    bench.to_the_end().await;
    assert_eq!(bench.called(), ["a", "slow"]);
    assert!(matches!(bench.step("slow").settled(), Some(Settled::Done { .. })));
    let terminal = bench.terminal();
    assert_eq!((terminal.status, terminal.failed_at), (RunStatus::Failed, Some(step("a"))));
    assert_eq!(terminal.class, Some(FailureClass::InvalidRequest));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_be_gone_on_from_is_the_output_of_its_step() {
    let graph = Graph::default().call("a", &[], "unsafe").with(|node| node.continues_on_failure = true).transform(
        "t",
        &["a"],
        &json!({ "was": "${steps.a.status}", "class": "${steps.a.output.class}" }),
    );
    let bench = Bench::new(graph.build()).await;
    bench.answers("a", [response(400, "no")]);
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(output(&bench, "t"), json!({ "was": "failed", "class": "invalid-request" }));
}

#[tokio::test(start_paused = true)]
async fn an_expression_that_fails_and_an_input_that_does_not_fit_fail_their_step_without_a_call() {
    let bad = json!({ "for": "a", "bad": true });
    for (kind, class) in [
        (Kind::Transform { value: template(&json!("${event.body.nothing.there}")) }, FailureClass::ExpressionFailed),
        (Kind::Delay(Delay::Until(template(&json!("tomorrow")))), FailureClass::ExpressionFailed),
        (call("unsafe", &bad), FailureClass::InputInvalid),
        (call("unheard-of", &json!({})), FailureClass::ConfigurationMissing),
    ] {
        let bench = Bench::new(Graph::default().node("a", &[], kind).build()).await;
        bench.to_the_end().await;
        assert_eq!(bench.terminal().class, Some(class));
        assert!(bench.calls().is_empty());
    }
}

fn call(action: &str, input: &serde_json::Value) -> Kind {
    Kind::Call { connection: super::super::testing::connection(), action: action.into(), input: template(input) }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_kept_fails_the_step_that_needs_it() {
    let bench = Bench::new(Graph::default().call("a", &[], "unsafe").build()).await;
    *lock(&bench.tables.has_no_event) = true;
    bench.to_the_end().await;
    assert_eq!(bench.terminal().class, Some(FailureClass::InputExpired));
    assert!(bench.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_from_when_it_began_whatever_restarts() {
    let graph = Graph::default().delay("wait", &[], Duration::from_secs(100)).call("a", &["wait"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    let began = bench.clock.started();
    bench.turn().await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let before = bench.records().len();
        bench.turn().await;
        assert_eq!(bench.records().len(), before, "it was parked as it was, and nothing is written of that");
        assert!(bench.called().is_empty());
    }
    bench.to_the_end().await;
    assert_eq!(began.elapsed().as_secs(), 100);
    assert_eq!(bench.called(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_sixteen_calls_are_under_way_at_once() {
    let graph = (0..40).fold(Graph::default(), |graph, at| graph.call(&format!("n{at}"), &[], "unsafe"));
    let bench = Bench::new(graph.build()).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!((bench.called().len(), bench.most_at_once()), (40, 16));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_nodes_without_a_call_are_more_than_one_commit_holds_and_go_through() {
    let graph = (1..200).fold(Graph::default().transform("n0", &[], &json!(0)), |graph, at| {
        graph.transform(&format!("n{at}"), &[&format!("n{}", at - 1)], &json!(at))
    });
    let bench = Bench::new(graph.build()).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert_eq!(output(&bench, "n199"), json!(199));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_what_has_not_ended() {
    let graph = Graph::default().delay("wait", &[], Duration::from_hours(3)).call("a", &["wait"], "unsafe");
    let bench = Bench::new(graph.build()).await;
    bench.to_the_end().await;
    let terminal = bench.terminal();
    assert_eq!((terminal.status, terminal.class), (RunStatus::TimedOut, Some(FailureClass::DeadlineExceeded)));
    assert!(bench.called().is_empty());
    let outcomes = bench
        .records()
        .iter()
        .filter(|it| {
            matches!(&it.body, Body::Outcome(outcome)
        if !matches!(outcome.result, StepResult::Deferred { .. }))
        })
        .count();
    assert_eq!(outcomes, 0);
}

/// A node has very many ways back to the first one.
#[tokio::test(start_paused = true)]
async fn a_ladder_of_skipped_nodes_is_planned_as_fast_as_any() {
    let mut graph = Graph::default()
        .branch("way", &[], &[("never", "false")])
        .call("a-0", &["way.never"], "unsafe")
        .call("b-0", &["way.never"], "unsafe");
    for at in 1..60 {
        let after = [format!("a-{}", at - 1), format!("b-{}", at - 1)];
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        graph = graph.call(&format!("a-{at}"), &after, "unsafe").call(&format!("b-{at}"), &after, "unsafe");
    }
    let bench = Bench::new(graph.build()).await;
    assert_eq!(bench.to_the_end().await.status(), RunStatus::Succeeded);
    assert!(bench.called().is_empty());
}
