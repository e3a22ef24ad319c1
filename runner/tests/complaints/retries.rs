//! Effects that are repeated and should not be.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_runner::automation::DefinitionStore;
use tidegate_runner::engine::Duplicate;
use tidegate_runner::failure::FailureClass;
use tidegate_runner::ledger::RunStatus;

use crate::process::{Fleet, Process, until};
use crate::provider::{response, silence, whole};
use crate::world::{PAY, SMS, World, acme, call, document, step, with};

/// 31: a key was promised to avoid charging twice, and keeps nobody from it but triggers.
#[tokio::test(start_paused = true)]
async fn a_retry_gives_the_provider_the_same_key_and_a_re_run_another() {
    let world = World::new();
    let charge =
        with(call("charge", "POST"), json!({ "credential": PAY, "path": "/v1/charges", "body": { "amount": 7 } }));
    let run = world.run(&json!([charge])).await;
    world.provider.answers("/v1/charges", [silence(), response(500, "{}")]);
    let engine = world.engine("one");
    assert_eq!(world.to_the_end(&engine, run).await.status(), RunStatus::Succeeded);
    world.acts().rerun(&acme(), run, &step("charge"), None, Duplicate::Accepted, "ann").await.unwrap();
    assert_eq!(world.to_the_end(&engine, run).await.status(), RunStatus::Succeeded);
    let keys: Vec<String> = world.provider.calls().into_iter().map(|made| made.key.unwrap()).collect();
    let [first, second, third, rerun] = &keys[..] else { panic!("{keys:?}") };
    assert!(first == second && second == third && third != rerun, "{keys:?}");
}

/// 31, too: where the provider knows no key, nothing is charged twice either.
#[tokio::test(start_paused = true)]
async fn what_has_no_key_is_not_repeated_and_somebody_is_asked() {
    let world = World::new();
    let send = json!({ "id": "send", "type": "twilio.send_message", "credential": SMS,
        "input": { "account": "AC1", "To": "+1", "From": "+2", "Body": "hello" } });
    let run = world.run(&json!([send])).await;
    let path = "/2010-04-01/Accounts/AC1/Messages.json";
    world.provider.answers(path, [silence()]);
    assert_eq!(world.to_the_end(&world.engine("one"), run).await.status(), RunStatus::NeedsAttention);
    assert_eq!(world.provider.count(path), 1);
    // Whoever says that it is safe all the same is not believed.
    let asserted = with(
        json!({ "id": "send", "type": "twilio.send_message", "credential": SMS, "idempotent": true }),
        json!({ "input": { "account": "AC1", "To": "+1", "From": "+2", "Body": "hello" } }),
    );
    let refused = world.try_save("acme", &document(&json!([asserted]))).await.unwrap_err();
    assert!(refused.to_string().contains("unsafe"), "{refused}");
}

/// 32: a call that had succeeded, and was paid for, is repeated by a retry of something else.
#[tokio::test(start_paused = true)]
async fn a_success_is_not_repeated_whatever_goes_wrong_behind_it() {
    let large = || whole(200, Bytes::from(format!("{{\"text\":\"{}\"}}", "x".repeat(9 << 20))));
    let uses = |source: &str| with(call("b", "PUT"), json!({ "body": source }));
    let b = || call("b", "PUT");
    let cases: [(&str, _, Value, RunStatus); 5] = [
        ("an answer that is no JSON", response(200, "<html>"), b(), RunStatus::Succeeded),
        ("an answer that is too large to keep", large(), uses("${steps.a.output.body.text}"), RunStatus::Failed),
        ("an expression that fails", response(200, "{}"), uses("${steps.a.output.body.none.such}"), RunStatus::Failed),
        ("no room for the output", response(200, "{\"n\":1}"), b(), RunStatus::Succeeded),
        ("a next step that fails for good", response(200, "{}"), b(), RunStatus::Failed),
    ];
    for (name, answer, next, ends) in cases {
        let world = World::new();
        let run = world.run(&json!([call("a", "POST"), next])).await;
        world.provider.answers_after("/a", Duration::from_secs(1), [answer]);
        if name.starts_with("a next") {
            world.provider.answers("/b", std::iter::repeat_n(response(503, "{}"), 20));
        }
        let engine = world.engine("one");
        let spoil = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            world.payloads.is_full.store(name.starts_with("no room"), Ordering::SeqCst);
            tokio::time::sleep(Duration::from_mins(1)).await;
            world.payloads.is_full.store(false, Ordering::SeqCst);
        };
        let (state, ()) = tokio::join!(world.to_the_end(&engine, run), spoil);
        assert_eq!((state.status(), world.provider.count("/a")), (ends, 1), "{name}");
    }
}

/// 33: 21 attempts within a second, each of which inserts a row.
#[tokio::test(start_paused = true)]
async fn tries_are_counted_and_lie_further_and_further_apart() {
    let world = World::new();
    let (id, version) = world.save("acme", &document(&json!([call("a", "PUT")]))).await;
    let engine = world.engine("one");
    let mut spans = Duration::ZERO;
    for n in 0..10 {
        let before = world.provider.calls().len();
        world.provider.answers("/a", std::iter::repeat_n(response(500, "{}"), 5));
        let event = world.deliver("acme", &json!({ "n": n }));
        let run = world.admit("acme", id, version, event).await;
        world.to_the_end(&engine, run).await;
        let terminal = world.terminal(run).await;
        assert_eq!((terminal.status, terminal.class), (RunStatus::Failed, Some(FailureClass::AttemptsExhausted)));
        let calls = &world.provider.calls()[before..];
        assert_eq!(calls.len(), 5);
        spans += calls[4].at - calls[0].at;
    }
    // 1, 2, 4 and 8 s at most, any part of each: 7.5 s in the mean.
    assert!(spans > Duration::from_secs(40) && spans < Duration::from_secs(110), "{spans:?} for ten of them");
    let many = with(call("a", "PUT"), json!({ "retryPolicy": { "maxAttempts": 101 } }));
    world.try_save("acme", &document(&json!([many]))).await.unwrap_err();
    let quick = with(call("a", "PUT"), json!({ "retryPolicy": { "backoffMs": 1 } }));
    world.try_save("acme", &document(&json!([quick]))).await.unwrap_err();
}

/// 34: a loop sends the same message over and over, and goes on when it was switched off.
#[tokio::test(start_paused = true)]
async fn each_message_is_sent_once_and_nothing_begins_once_it_is_switched_off() {
    let world = World::new();
    let wait = json!({ "id": "wait", "type": "delay", "for": "1h" });
    let (id, _) = world.save("acme", &document(&json!([call("a", "POST"), wait, call("b", "POST")]))).await;
    let process = Process::start(&world, "index", Fleet::Alone).await;
    world.deliver("acme", &json!({}));
    until("the first message", || world.provider.count("/a") == 1).await;
    let run = world.provider.calls()[0].run;
    process.once(&world, run, RunStatus::Parked).await;
    assert!(world.definitions.delete(&acme(), id, "ann").await.unwrap());
    world.triggers.changed(&acme());
    world.deliver("acme", &json!({}));
    tokio::time::sleep(Duration::from_hours(2)).await;
    // What had begun came to its end, and its history is there.
    assert_eq!(world.provider.called(), ["/a", "/b"]);
    assert_eq!(world.status(run).await, RunStatus::Succeeded);
    let ring =
        json!([with(call("a", "POST"), json!({ "after": ["b"] })), with(call("b", "POST"), json!({ "after": ["a"] }))]);
    let mut looped = document(&ring);
    looped["name"] = json!("a ring");
    world.try_save("acme", &looped).await.unwrap_err();
}
