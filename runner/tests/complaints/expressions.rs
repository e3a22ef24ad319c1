//! Texts of authors and of events that would like to be more than that.

use std::time::Duration;

use serde_json::json;
use tidegate_runner::failure::FailureClass;
use tidegate_runner::ledger::RunStatus;

use crate::world::{World, call, document, with};

/// 39: expressions that leave their language, read files, run programs and see secrets.
#[tokio::test(start_paused = true)]
async fn an_expression_reaches_nothing_but_its_run() {
    let sources = [
        "process.env",
        "require('child_process').execSync('id')",
        "this.constructor.constructor('return process')()",
        "(function(){ return this })()",
        "event.constructor.constructor('return process')()",
        "event.__proto__.polluted",
        "event['__class__']['__mro__']",
        "__import__('os').system('id')",
        "readFile('/etc/passwd')",
        "env('PATH')",
        "http('http://169.254.169.254/')",
        "credentials.conn_api",
        "run.credential",
        "steps.other.output",
        "tenants.other",
        "event.body.amount; process.exit()",
        "`${process.env}`",
        "now()",
        "random()",
    ];
    for source in sources {
        let world = World::new();
        let made = json!({ "id": "t", "type": "transform", "value": format!("${{{source}}}") });
        // Most are no expressions; others name a field that is not there, and say so.
        let Ok((id, version)) = world.try_save("acme", &document(&json!([made]))).await else { continue };
        let event = world.deliver("acme", &json!({ "amount": 7 }));
        let run = world.admit("acme", id, version, event).await;
        world.to_the_end(&world.engine("one"), run).await;
        let terminal = world.terminal(run).await;
        let class = Some(FailureClass::ExpressionFailed);
        assert_eq!((terminal.status, terminal.class), (RunStatus::Failed, class), "{source}");
    }
}

/// 39, too: what an author writes uses up the machine.
#[tokio::test]
async fn an_expression_that_would_use_up_the_machine_fails_alone_and_soon() {
    let sources = [
        "event.body.list.map(a, event.body.list.map(b, event.body.list))",
        "event.body.list.map(a, event.body.list.filter(b, event.body.text.contains(event.body.text)))",
        "event.body.list.map(a, event.body.list.map(b, event.body.text + event.body.text)).size()",
    ];
    let body = json!({ "list": (0..2_000).collect::<Vec<_>>(), "text": "x".repeat(20_000) });
    for source in sources {
        let world = World::new();
        let made = json!({ "id": "t", "type": "transform", "value": format!("${{{source}}}") });
        let run = world.run_of("acme", &document(&json!([made])), &body).await;
        let began = tokio::time::Instant::now();
        world.to_the_end(&world.engine("one"), run).await;
        assert_eq!(world.terminal(run).await.class, Some(FailureClass::ExpressionFailed), "{source}");
        assert!(began.elapsed() < Duration::from_secs(20), "{source}: {:?}", began.elapsed());
    }
    let world = World::new();
    let deep = json!([{ "id": "t", "type": "transform", "value": format!("${{{}1{}}}", "(".repeat(5_000), ")".repeat(5_000)) }]);
    world.try_save("acme", &document(&deep)).await.unwrap_err();
    let costly = json!([{ "id": "t", "type": "transform", "value": "${event.bodyText.matches('(((a{1,100}){1,100}){1,100})')}" }]);
    world.try_save("acme", &document(&costly)).await.unwrap_err();
}

/// 39, too: an event's text becomes another request than its author meant, to another place.
#[tokio::test(start_paused = true)]
async fn what_an_event_says_stays_within_the_part_of_the_request_that_it_was_put_into() {
    let hostile = [
        "../../admin",
        "..",
        "%2e%2e/admin",
        "a/b",
        "//evil.example/x",
        "https://evil.example/",
        "\\\\evil.example\\x",
        "x?admin=1",
        "x#y",
        "x HTTP/1.1\r\nX-Injected: 1",
        "x\u{0}y",
        "@evil.example",
    ];
    for text in hostile {
        let world = World::new();
        let path = json!({ "path": ["orders", "${event.body.id}", "lines"], "query": { "q": "${event.body.id}" } });
        let run = world.run_of("acme", &document(&json!([with(call("a", "GET"), path)])), &json!({ "id": text })).await;
        let state = world.to_the_end(&world.engine("one"), run).await;
        let calls = world.provider.calls();
        if calls.is_empty() {
            let class = state.terminal.unwrap().class;
            assert_eq!(class, Some(FailureClass::InputInvalid), "{text:?}");
            continue;
        }
        let path = &*calls[0].path;
        let inner = path.strip_prefix("/orders/").and_then(|rest| rest.strip_suffix("/lines"));
        let inner = inner.unwrap_or_else(|| panic!("{text:?} became {path}"));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/\\?#".contains(&byte);
        assert!(inner.bytes().all(is_plain) && !["", ".", ".."].contains(&inner), "{text:?} became {path}");
        assert!(!inner.to_ascii_lowercase().replace("%2e", ".").eq(".."), "{text:?} became {path}");
    }
}
