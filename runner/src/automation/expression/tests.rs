use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::{EndpointId, EventId, NodeId, Slot};
use proptest::prelude::*;
use serde_json::json;

use super::super::scope::EventFacts;
use super::*;
use crate::ids::{AutomationId, RunId, Version};

#[expect(clippy::disallowed_methods, reason = "a test takes the real time")]
fn now() -> Instant {
    Instant::now()
}

fn steps(name: &str) -> Result<StepId, String> {
    match name {
        "charge" | "send-mail" => Ok(StepId::parse(name).unwrap()),
        "inner" => Ok(StepId::parse("outer/inner").unwrap()),
        other => Err(format!("there is no step `{other}`")),
    }
}

pub(super) fn scope_of(body: &Value) -> Scope {
    let run = RunId::from_bytes([7; 16]);
    let mut scope = Scope::new(run, AutomationId::from_bytes([1; 16]), Version::MIN, 1_796_082_654_000)
        .with_input(json!({ "amount": 7 }))
        .with_event(EventFacts {
            id: EventId::new(7, Slot(1), NodeId(1), [0; 6]),
            endpoint: EndpointId::parse("wh_1").unwrap(),
            received_unix_ms: 1_796_082_654_123,
            headers: vec![("X-Topic".into(), "a".into()), ("x-topic".into(), "b".into())],
            body: Bytes::from(serde_json::to_vec(body).unwrap()),
        });
    scope.settle(StepId::parse("charge").unwrap(), "done", json!({ "id": "ch_1", "amount": 20 }));
    scope.settle(StepId::parse("send-mail").unwrap(), "skipped", Value::Null);
    scope.settle(StepId::parse("outer/inner").unwrap(), "done", json!(5));
    scope
}

fn compile(source: &str) -> Result<Expression, Refused> {
    Expression::compile(source, &Names::of_run(&steps))
}

#[track_caller]
fn value_in(source: &str, scope: &Scope) -> Value {
    compile(source).unwrap_or_else(|why| panic!("{source}: {why}")).evaluate(scope).unwrap()
}

#[track_caller]
fn value(source: &str) -> Value {
    value_in(
        source,
        &scope_of(&json!({ "total": 1200, "items": [{ "id": "a", "n": 1 }, { "id": "b", "n": 2 }], "note": null })),
    )
}

#[track_caller]
fn failure(source: &str) -> String {
    let scope = scope_of(&json!({ "total": 1200, "note": null, "list": [1] }));
    let expression = compile(source).unwrap_or_else(|why| panic!("{source}: {why}"));
    expression.evaluate(&scope).expect_err(source).to_string()
}

#[track_caller]
fn refusal(source: &str) -> String {
    compile(source).expect_err(source).to_string()
}

#[test]
fn names_of_the_run_have_their_values() {
    for (source, wanted) in [
        ("event.body.total", json!(1200)),
        ("event.body.total > 1000", json!(true)),
        ("event.headers[\"x-topic\"]", json!("a")),
        ("event.headersAll[\"x-topic\"]", json!(["a", "b"])),
        ("event.receivedAt", json!("2026-11-30T23:50:54.123Z")),
        ("timestamp(event.receivedAt) - timestamp(run.startedAt)", json!("0.123s")),
        ("event.bodyText.contains('total')", json!(true)),
        ("event.endpoint", json!("wh_1")),
        ("input.amount * 2", json!(14)),
        ("run.version", json!(1)),
        ("steps.charge.output.id", json!("ch_1")),
        ("steps[\"send-mail\"].status", json!("skipped")),
        ("steps[\"send-mail\"].output == null", json!(true)),
        ("steps.inner.output + 1", json!(6)),
        ("steps.charge.status == 'done' ? steps.charge.output.amount : 0", json!(20)),
        ("{'id': steps.charge.output.id, 'of': [1, 2.5]}", json!({ "id": "ch_1", "of": [1, 2.5] })),
        ("event.body.items.filter(i, i.n > 1).map(i, i.id)", json!(["b"])),
        ("event.body.items.map(i, i.n > 1, i.id + '!')", json!(["b!"])),
        ("event.body.items.exists(i, i.id == 'a') && event.body.items.all(i, i.n < 3)", json!(true)),
        ("event.body.items.exists_one(i, i.n == 2)", json!(true)),
        ("size(event.body.items)", json!(2)),
        ("event.body.items[1].id", json!("b")),
        ("has(event.body.total) && !has(event.body.missing)", json!(true)),
        ("has(event.body.note)", json!(true)),
        ("event.body.note == null", json!(true)),
        ("event.body.?missing.orValue('none')", json!("none")),
        ("event.body.?total.orValue(1)", json!(1200)),
        ("event.body.?missing", json!(null)),
        ("'a1'.matches('^[a-z][0-9]$') && matches('b', 'b|c')", json!(true)),
        ("event.body.map(k, k)", json!(["items", "note", "total"])),
        ("string(3.0) + string(2u) + string(true)", json!("32true")),
        ("type(event.body.total) == int", json!(true)),
        ("b'ab'", json!("YWI=")),
        ("duration('90s')", json!("90s")),
        ("[1, 2].map(x, [3, 4].map(y, x * y))", json!([[3, 4], [6, 8]])),
    ] {
        assert_eq!(value(source), wanted, "{source}");
    }
}

#[test]
fn whole_numbers_keep_every_digit() {
    for number in
        ["9007199254740993", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e300", "0.1"]
    {
        let body: Value = serde_json::from_str(&format!("{{\"n\": {number}}}")).unwrap();
        let scope = scope_of(&body);
        for source in ["event.body.n", "[event.body.n][0]", "{'k': event.body.n}.k"] {
            assert_eq!(value_in(source, &scope), body["n"], "{source} of {number}");
        }
        assert_eq!(value_in("event.body.n == event.body.n", &scope), json!(true));
    }
    let scope = scope_of(&json!({ "n": 9_007_199_254_740_993_u64 }));
    assert_eq!(value_in("event.body.n + 1", &scope), json!(9_007_199_254_740_994_u64));
    assert_eq!(value_in("event.body.n == 9007199254740992", &scope), json!(false));
}

#[test]
fn failures_say_what_and_where() {
    for (source, wanted) in [
        ("event.body.custmer", "`event.body` has no field `custmer`"),
        ("event.body.custmer.id == 'x'", "`event.body` has no field `custmer`"),
        ("event.body.total.cents", "`event.body.total` is the number 1200, and has no field `cents`"),
        ("event.body.total.cents > 1", "`event.body.total` is the number 1200, and has no field `cents`"),
        ("event.body.note.x", "`event.body.note` is null, and has no field `x`"),
        ("steps.charge.output.nope", "`steps.charge.output` has no field `nope`"),
        ("event.body.total + 'x'", "add"),
        ("event.body.list[4]", "index"),
        ("1 / (event.body.total - 1200)", "divides by zero"),
        ("9223372036854775807 + event.body.total", "too large"),
        ("int('x')", "failed"),
        ("1.0 / 0.0", "no finite number"),
        ("type(1)", "no later node could use"),
        ("event.body.list.map(x, x.y)", "does not take"),
        // What is missing and was not asked for is not to blame.
        ("has(event.body.gone) ? event.body.gone : event.body.total > 'x'", "`>` does not take"),
    ] {
        let said = failure(source);
        assert!(said.contains(wanted), "{source}: {said}");
        assert!(said.starts_with(&format!("`{source}`")), "{said}");
    }
    assert!(compile("event.body.total").unwrap().holds(&scope_of(&json!({ "total": 1 }))).is_err());
}

#[test]
fn what_cannot_work_is_refused_when_it_is_saved() {
    for (source, wanted) in [
        ("", "missing"),
        ("1 +", "no CEL"),
        ("event.body.x ==== 2", "no CEL"),
        ("evnt.body", "nothing is called `evnt`"),
        ("steps.chrge.output", "no step `chrge`"),
        ("steps[event.body.x].output", "named, and not computed"),
        ("size(steps)", "name the step"),
        ("steps.charge.outptu", "`output` and `status`"),
        ("fetch('x')", "no function `fetch`"),
        ("event.body.items.map(x)", "is not used like this"),
        ("event.body.x.matches(event.body.y)", "stands in the expression itself"),
        ("'x'.matches('(')", "is no pattern"),
        ("'x'.matches('\\\\w{1000}{1000}')", "too large"),
        ("[1].map(event, event)", "is taken"),
        ("[1].map(x, [1].map(y, [1].map(z, 1)))", "inside one another"),
        ("Thing{a: 1}", "no message type"),
        ("@copy(1)", "no CEL"),
    ] {
        let said = refusal(source);
        assert!(said.contains(wanted), "{source}: {said}");
    }
    let event_only = Expression::compile("steps.charge.output", &Names::of_event()).unwrap_err();
    assert!(event_only.to_string().contains("no steps"), "{event_only}");
    assert!(Expression::compile("input.x", &Names::of_event()).is_err());
    assert!(Expression::compile("event.body.x", &Names::of_event()).is_ok());
}

/// 4 KiB of whatever nests, at the parser.
#[test]
fn no_source_uses_up_the_stack() {
    let times = |text: &str| text.repeat(SOURCE_BYTES_MAX / text.len());
    for source in [
        times("("),
        times("["),
        times("{1:"),
        times("!"),
        times("-"),
        format!("{}1", times("1+").trim_end_matches("1+")),
        format!("{}1", times("-").trim_end_matches('-')),
        times("a."),
        times("a.b"),
        format!("a{}", times(".b").trim_end_matches(".b")),
        times("a["),
        times("1?1:"),
        format!("{}1", "true||".repeat(600)),
        format!("{}1", "true?1:".repeat(500)),
        format!("x{}", ".map(x,x)".repeat(400)),
        format!("[1]{}", ".map(x,x+x)".repeat(300)),
        times("size("),
        times("\""),
        times("'''"),
        times("?"),
        times("\u{1F600}"),
        format!("{}1{}", "(".repeat(24), ")".repeat(24)),
        format!("{}1{}", "[".repeat(23), "]".repeat(23)),
        format!("{}1{}", "{1:".repeat(23), "}".repeat(23)),
    ] {
        let began = now();
        drop(compile(&source));
        assert!(began.elapsed() < Duration::from_secs(10), "{}: {:?}", explain::cut(&source, 20), began.elapsed());
    }
    assert!(refusal(&times("a").repeat(2)).contains("at most"));
}

/// The deepest tree that is allowed, on the stack that worker threads have.
#[test]
fn what_is_allowed_is_evaluated_on_a_small_stack() {
    let sources = [
        (0..24).fold("1".to_owned(), |inner, _| format!("[{inner}]")),
        (0..24).fold("1".to_owned(), |inner, _| format!("({inner} + 1)")),
        (0..24).fold("1".to_owned(), |inner, _| format!("size([{inner}])")),
        (0..8).fold("[1]".to_owned(), |inner, _| format!("{inner}.map(x, [x].map(y, [y, x, x, y]))")),
        (0..12).fold("true".to_owned(), |inner, _| format!("[1].all(x, true) && ({inner})")),
        (0..10).fold("'a'".to_owned(), |inner, _| format!("{{'k': {inner}}}.k")),
    ];
    for source in sources {
        let expression = match compile(&source) {
            Ok(expression) => expression,
            Err(why) => {
                assert!(why.to_string().contains("deep"), "{source}: {why}");
                continue;
            }
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
            drop(expression.evaluate(&scope_of(&json!({}))));
        });
        thread.unwrap().join().unwrap();
    }
}

/// Each of these would run for hours or fill the memory.
#[test]
fn no_expression_costs_more_than_it_may() {
    let numbers: Vec<u32> = (0..20_000).collect();
    let words: Vec<String> = (0..2000).map(|n| format!("{n:0>100}")).collect();
    let scope = scope_of(&json!({ "n": numbers, "w": words, "s": "x".repeat(500_000) }));
    for source in [
        "event.body.n.map(a, event.body.n.map(b, a * b))",
        "event.body.n.all(a, event.body.n.all(b, a * b >= 0))",
        "event.body.n.all(a, event.body.n.all(b, a / 0 == b))",
        "event.body.n.exists(a, event.body.n.exists(b, a == -1))",
        "event.body.n.exists_one(a, event.body.n.exists_one(b, a == b))",
        "event.body.n.filter(a, event.body.n.filter(b, a == b) == [])",
        "[event.body.s].map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x)",
        "[1].map(x,[x,x,x,x,x,x,x,x]).map(x,[x,x,x,x,x,x,x,x]).map(x,[x,x,x,x,x,x,x,x]).map(x,[x,x,x,x,x,x,x,x]).map(x,[x,x,x,x,x,x,x,x]).map(x,[x,x,x,x,x,x,x,x]).map(x,[x,x,x,x,x,x,x,x])",
        "[1].map(x,{'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x}).map(x,{'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x}).map(x,{'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x}).map(x,{'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x}).map(x,{'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x}).map(x,{'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x})",
        "event.body.n.all(x, !event.body.s.contains('yyyyyyyyyyyyyyyyyyyyyyyyyyy'))",
        "event.body.n.exists(x, event.body.s.matches('(x+x+)+y'))",
        "event.body.n.all(x, event.body.s == event.body.s)",
        "event.body.n.all(x, event.body.n == event.body.n)",
        "event.body.n.all(x, -1 in event.body.n || true)",
        "event.body.n.all(x, size(event.body.s) > 0)",
        "event.body.n.all(x, bytes(event.body.s) != b'')",
    ] {
        let began = now();
        let said = compile(source).unwrap().evaluate(&scope).expect_err(source).to_string();
        assert!(said.contains("too much work") || said.contains("larger than"), "{source}: {said}");
        // Unoptimised, beside other tests.
        assert!(began.elapsed() < Duration::from_secs(20), "{source}: {:?}", began.elapsed());
    }
    // And what people write is far from it.
    assert_eq!(
        value_in("size(event.body.n.filter(x, x % 2 == 0 && x > 10 && x < 15000).map(x, string(x)))", &scope),
        json!(7494)
    );
    assert_eq!(value_in("event.body.w.exists(x, x.endsWith('1999'))", &scope), json!(true));
}

#[test]
fn what_comes_out_is_bounded() {
    let scope = scope_of(&json!({ "s": "x".repeat(600_000) }));
    let said = |source: &str| compile(source).unwrap().evaluate(&scope).unwrap_err().to_string();
    assert!(said("[event.body.s, event.body.s]").contains("larger than 1024 KiB"));
    assert!(said("event.body.s + event.body.s").contains("larger than 1024 KiB"));
    assert_eq!(value_in("size(event.body.s + event.body.s)", &scope), json!(1_200_000));
    let large = scope_of(&json!({ "s": "x".repeat(1 << 20) }));
    assert!(compile("event.body").unwrap().evaluate(&large).is_err());
}

#[test]
fn an_expression_says_what_it_looks_at() {
    let needs = |source| compile(source).unwrap().needs().clone();
    assert_eq!(needs("1 + 1"), Needs::default());
    assert_eq!(needs("run.id"), Needs::default());
    let all = needs("event.body.x && input.y && steps.inner.output && [1].all(x, steps['charge'].status == 'done')");
    assert!(all.event && all.input);
    assert_eq!(all.steps, BTreeSet::from([StepId::parse("charge").unwrap(), StepId::parse("outer/inner").unwrap()]));
}

fn fragment() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "-1",
        "2.5",
        "0u",
        "'x'",
        "\"\"",
        "true",
        "null",
        "event",
        "event.body",
        "event.body.a",
        "steps.charge.output",
        "input",
        "run.id",
        "x",
        "y",
        "b'\\x00'",
        "[]",
        "{}",
        "int",
        "9223372036854775807",
        "optional.none()",
        "timestamp('2026-01-01T00:00:00Z')",
        "duration('1s')",
        "double('NaN')",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (
                two.clone(),
                prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"])
            )
                .prop_map(|((a, b), op)| format!("({a} {op} {b})")),
            (two.clone(), prop::sample::select(vec!["map", "filter", "all", "exists", "exists_one"]))
                .prop_map(|((a, b), name)| format!("{a}.{name}(x, {b})")),
            (
                inner.clone(),
                prop::sample::select(vec![
                    "size",
                    "string",
                    "int",
                    "uint",
                    "double",
                    "bool",
                    "bytes",
                    "type",
                    "timestamp",
                    "duration",
                    "dyn"
                ])
            )
                .prop_map(|(a, name)| format!("{name}({a})")),
            (two.clone(), prop::sample::select(vec!["contains", "startsWith", "endsWith", "orValue", "getHours"]))
                .prop_map(|((a, b), name)| format!("{a}.{name}({b})")),
            two.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
            two.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
            two.clone().prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            two.prop_map(|(a, b)| format!("({a} ? {b} : 1)")),
            inner.clone().prop_map(|a| format!("has({a}.a)")),
            inner.clone().prop_map(|a| format!("{a}.?a")),
            inner.clone().prop_map(|a| format!("-{a}")),
            inner.prop_map(|a| format!("!{a}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(source in "\\PC{0,60}") {
        if let Ok(expression) = compile(&source) {
            drop(expression.evaluate(&scope_of(&json!({ "a": 1 }))));
        }
    }

    #[test]
    fn nothing_that_looks_like_cel_makes_it_panic(source in fragment()) {
        if let Ok(expression) = compile(&source) {
            let scope = scope_of(&json!({ "a": { "a": [1, 2, null, "x"] } }));
            let once = expression.evaluate(&scope);
            prop_assert!(!matches!(&once, Err(why) if why.0.contains("interpreter failed")), "{source}: {once:?}");
            // Always the same, whatever the order of a map in memory is.
            prop_assert_eq!(once, expression.evaluate(&scope));
        }
    }
}

/// Figures, for whoever changes a bound: `cargo test --release -- --ignored --nocapture figures`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    let scope =
        scope_of(&json!({ "total": 1200, "items": vec![json!({ "id": "a", "n": 1 }); 1000], "n": vec![1; 20_000] }));
    for source in [
        "event.body.total",
        "event.body.total > 1000 && event.headers['x-topic'] == 'a'",
        "event.body.items.filter(i, i.n > 1 || i.id == 'b').map(i, i.id)",
        "event.body.n.map(a, event.body.n.map(b, a * b))",
    ] {
        let began = now();
        let rounds = 100;
        for _ in 0..rounds {
            std::hint::black_box(compile(source).unwrap());
        }
        let compiling = began.elapsed() / rounds;
        let expression = compile(source).unwrap();
        let began = now();
        for _ in 0..5 {
            drop(std::hint::black_box(expression.evaluate(&scope)));
        }
        println!("{source}: compiled in {compiling:?}, evaluated in {:?}", began.elapsed() / 5);
    }
}
