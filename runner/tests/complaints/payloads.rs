//! Large inputs and outputs.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_runner::failure::FailureClass;
use tidegate_runner::ledger::RunStatus;

use crate::provider::whole;
use crate::world::{World, call, step, with};

fn text_of(length: usize, of: &str) -> Bytes {
    Bytes::from(json!({ "text": of.repeat(length) }).to_string())
}

/// 40: a result that was too large was replaced by a word, and the run shows green.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_to_keep_says_so_and_nobody_goes_on_with_a_part_of_it() {
    let world = World::new();
    let uses = with(call("b", "POST"), json!({ "body": "${steps.a.output.body.text}" }));
    let run = world.run(&json!([call("a", "POST"), uses])).await;
    let body = text_of(9 << 20, "x");
    world.provider.answers("/a", [whole(200, body.clone())]);
    world.to_the_end(&world.engine("one"), run).await;
    let terminal = world.terminal(run).await;
    assert_eq!((terminal.status, terminal.class), (RunStatus::Failed, Some(FailureClass::InputExpired)));
    assert_eq!((terminal.failed_at, world.provider.called()), (Some(step("b")), vec!["/a".to_owned()]));
    let view = world.view(run).await;
    let output = view.nodes[0].output.as_ref().unwrap();
    assert_eq!((output.truncated, output.because.as_deref(), &output.value), (true, Some("too-large"), &None));
    assert!(output.bytes > body.len() as u64 && output.digest.len() == 7 + 64, "{output:?}");

    // Where nobody needs it the run is done, and its output is marked all the same.
    let alone = World::new();
    let run = alone.run(&json!([call("a", "POST")])).await;
    alone.provider.answers("/a", [whole(200, body)]);
    assert_eq!(alone.to_the_end(&alone.engine("one"), run).await.status(), RunStatus::Succeeded);
    assert!(alone.view(run).await.nodes[0].output.as_ref().unwrap().truncated);
}

/// 41: out of memory, or "invalid string length", when a history is saved or shown.
#[tokio::test(start_paused = true)]
async fn a_history_of_large_payloads_is_shown_within_a_bound() {
    // The second takes six bytes in JSON.
    for (of, each) in [("x", 1), ("\u{1}", 6)] {
        let world = World::new();
        let nodes: Vec<Value> = (0..100).map(|n| call(&format!("n{n}"), "PUT")).collect();
        for n in 0..100 {
            // Some are shown whole, and the others are in files that are not read for it.
            let length = if n % 2 == 0 { 15_000 } else { 60_000 };
            world.provider.answers(&format!("/n{n}"), [whole(200, text_of(length / each, of))]);
        }
        let run = world.run(&json!(nodes)).await;
        assert_eq!(world.to_the_end(&world.engine("one"), run).await.status(), RunStatus::Succeeded);
        let view = world.view(run).await;
        let outputs: Vec<_> = view.nodes.iter().map(|node| node.output.as_ref().unwrap()).collect();
        assert!(outputs.len() == 100 && outputs.iter().any(|output| !output.truncated));
        assert!(outputs.iter().all(|output| output.truncated == output.because.is_some()));
        assert!(outputs.iter().any(|output| output.because.as_deref() == Some("not-shown")));
        let bytes = serde_json::to_vec(&view).unwrap().len();
        assert!(bytes < 2 << 20, "{bytes}");
    }
}

/// 42: a run fails since its log has become too large.
#[tokio::test(start_paused = true)]
async fn a_run_does_not_fail_over_the_size_of_what_it_has_done() {
    let world = World::new();
    // More than 25 MB all together, each of which the next one is given.
    let mut nodes = vec![call("n0", "PUT")];
    for n in 1..28 {
        let before = format!("${{size(steps.n{}.output.body.text)}}", n - 1);
        nodes.push(with(call(&format!("n{n}"), "PUT"), json!({ "body": { "length": before } })));
    }
    for n in 0..28 {
        world.provider.answers(&format!("/n{n}"), [whole(200, text_of(1_000_000, "y"))]);
    }
    let run = world.run(&json!(nodes)).await;
    assert_eq!(world.to_the_end(&world.engine("one"), run).await.status(), RunStatus::Succeeded);
    let lengths: Vec<u64> =
        world.provider.calls().iter().skip(1).map(|made| made.body["length"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [1_000_000; 27]);
    // What is kept of it in the ledger itself is small.
    let records = world.records(run).await;
    assert!(format!("{records:?}").len() < 200_000);
    tokio::time::sleep(Duration::from_secs(1)).await;
}
