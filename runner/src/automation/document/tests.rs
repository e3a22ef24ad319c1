use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::ConnectionId;
use proptest::prelude::*;
use serde_json::json;

use super::bounds::*;
use super::*;
use crate::automation::graph::{Delay, Edge, Kind};
use crate::connector::{Action, Connectors, InputFault, NoAction, ReadBack, ReplaySafety, Request, Verdict};
use crate::ids::EffectKey;
use crate::ledger::QueueClass;

mod hostile;

#[expect(clippy::disallowed_methods, reason = "a test takes the real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::needless_pass_by_value, reason = "reads better")]
fn nodes(nodes: Value) -> Value {
    json!({ "name": "n", "nodes": nodes })
}

fn read(value: &Value) -> Result<Draft, Faults> {
    Draft::read(&value.to_string(), Format::Json)
}

#[track_caller]
fn compile(value: &Value) -> Automation {
    let draft = read(value).unwrap_or_else(|faults| panic!("{faults}"));
    let tenant = TenantId::parse("acme").unwrap();
    Automation::compile(&draft.into_stored(tenant, AutomationId::from_bytes([1; 16]), Version::MIN, 5, "ada")).unwrap()
}

/// Each fault as `path: message`.
#[track_caller]
fn faults(value: &Value) -> Vec<String> {
    read(value).expect_err("is sound").0.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn refused(value: &Value, wanted: &[(&str, &str)]) {
    let told = faults(value);
    for (path, part) in wanted {
        assert!(
            told.iter().any(|fault| fault.starts_with(path) && fault.contains(part)),
            "{path}: {part} in {told:#?}"
        );
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
}

fn transform(id: &str) -> Value {
    json!({ "id": id, "type": "transform", "value": 1 })
}

fn after(id: &str, after: &[&str]) -> Value {
    json!({ "id": id, "type": "transform", "value": 1, "after": after })
}

/// `b<a,c.yes` for a node `b` behind `a` and the case `yes` of `c`.
fn edges(automation: &Automation) -> Vec<String> {
    let name = |edge: &Edge| {
        let id = &automation.nodes[edge.from].id;
        edge.case.as_ref().map_or_else(|| id.to_string(), |case| format!("{id}.{case}"))
    };
    automation
        .nodes
        .iter()
        .map(|node| format!("{}<{}", node.id, node.after.iter().map(name).collect::<Vec<_>>().join(",")))
        .collect()
}

#[test]
fn a_whole_document_becomes_what_the_engine_walks() {
    let automation = compile(&json!({
        "name": "Charge and tell",
        "description": "for people",
        "trigger": { "endpoint": "wh_1", "when": "event.body.total > 0" },
        "deadlineMs": 60_000,
        "class": "bulk",
        "nodes": [
            { "id": "charge", "type": "stripe.create_charge", "credential": "conn_stripe", "effectful": true,
              "input": { "amount": "${event.body.total}" }, "timeoutMs": 5000,
              "retryPolicy": { "maxAttempts": 3, "backoffMs": 200, "maxBackoffMs": 900 }, "onFailure": "continue" },
            { "id": "decide", "type": "branch", "cases": [{ "case": "big", "when": "steps.charge.output.amount > 1000" }] },
            { "id": "wait", "type": "delay", "for": "15s", "after": ["decide.big"] },
            { "id": "mail", "type": "http.request", "credential": "conn_mail", "method": "POST", "path": "/send",
              "body": { "to": "${event.body.mail}" }, "after": ["wait", { "node": "decide", "case": "otherwise" }] },
            { "id": "sum", "type": "transform", "value": { "id": "${steps.mail.output.id}" } },
            { "id": "tell", "type": "effect", "action": "post_message", "credential": "conn_slack", "when": "steps.sum.status == 'done'" },
        ],
    }));
    assert_eq!(&*automation.name, "Charge and tell");
    assert_eq!(automation.class, QueueClass::Bulk);
    assert_eq!(automation.deadline, Duration::from_mins(1));
    assert_eq!(automation.trigger.endpoints.len(), 1);
    assert!(automation.trigger.when.is_some());
    assert_eq!(
        edges(&automation),
        ["charge<", "decide<charge", "wait<decide.big", "mail<decide.otherwise,wait", "sum<mail", "tell<sum"]
    );
    let charge = &automation.nodes[0];
    assert!(matches!(&charge.kind, Kind::Call { connection, action, .. }
        if connection.as_str() == "conn_stripe" && &**action == "stripe.create_charge"));
    assert_eq!((charge.timeout, charge.retry.attempts_max), (Duration::from_secs(5), 3));
    assert_eq!(
        (charge.retry.backoff, charge.retry.backoff_max),
        (Duration::from_millis(200), Duration::from_millis(900))
    );
    assert!(charge.continues_on_failure && charge.assertion.effectful == Some(true));
    assert!(charge.needs().event && charge.needs().steps.is_empty());
    assert!(matches!(&automation.nodes[2].kind, Kind::Delay(Delay::For(time)) if *time == Duration::from_secs(15)));
    assert!(matches!(&automation.nodes[5].kind, Kind::Call { action, .. } if &**action == "post_message"));
    assert_eq!(automation.nodes[5].needs().steps.len(), 1);
}

#[test]
fn a_node_without_after_follows_the_one_before() {
    assert_eq!(
        edges(&compile(&nodes(json!([transform("a"), transform("b"), after("c", &[]), transform("d")])))),
        ["a<", "b<a", "c<", "d<c"]
    );
    // Fan-out and join, in any order of the document.
    let automation = compile(&nodes(json!([
        after("join", &["left", "right"]),
        after("left", &["first"]),
        after("right", &["first"]),
        after("first", &[])
    ])));
    assert_eq!(edges(&automation), ["first<", "left<first", "right<first", "join<left,right"]);
}

#[test]
fn graphs_are_laid_out_flat() {
    let graph = |id: &str, nodes: Value| json!({ "id": id, "type": "graph", "nodes": nodes });
    let automation = compile(&nodes(json!([
        transform("a"),
        graph("g", json!([transform("x"), transform("y"), after("z", &[])])),
        transform("b"),
    ])));
    // What begins in the graph begins when the graph does, and what is behind it waits for all of its ends.
    assert_eq!(edges(&automation), ["a<", "g/x<a", "g/y<g/x", "g/z<a", "b<g/y,g/z"]);

    let mut gated = graph("g", json!([transform("x"), graph("h", json!([transform("deep")]))]));
    gated["when"] = json!("steps.a.output == 1");
    let inner = json!({ "id": "c", "type": "transform", "value": "${steps['g/h/deep'].output}", "after": ["g"] });
    let automation = compile(&nodes(json!([transform("a"), gated, inner])));
    assert_eq!(edges(&automation), ["a<", "g<a", "g/x<g", "g/h/deep<g/x", "c<g/h/deep"]);
    assert!(automation.nodes[1].when.is_some());

    // A name means the nearest one around.
    let automation = compile(&nodes(json!([
        transform("a"),
        graph("g", json!([transform("a"), { "id": "b", "type": "transform", "value": "${steps.a.output}" }])),
    ])));
    assert_eq!(automation.nodes[2].needs().steps.iter().next().unwrap().as_str(), "g/a");

    // A later node may name a graph that stands before its neighbour.
    let automation =
        compile(&nodes(json!([graph("g", json!([transform("x")])), transform("a"), after("b", &["g", "a"])])));
    assert_eq!(edges(&automation), ["g/x<", "a<g/x", "b<g/x,a"]);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    refused(
        &json!({
            "nmae": "x",
            "trigger": { "endpoints": ["wh_1", "nope!", "wh_1"], "when": "steps.a.output" },
            "deadlineMs": 5,
            "class": "urgent",
            "nodes": [
                { "id": "a b", "type": "transform", "value": "${1 +}" },
                { "id": "b", "type": "http.request", "credential": "stripe!", "path": "/x", "timeoutMs": "5s", "retrypolicy": {} },
                { "id": "c", "type": "http.request", "credential": "conn_a", "class": "idempotent", "path": "/${nope}" },
                { "id": "d", "type": "branch", "cases": [{ "case": "otherwise", "when": "true" }, { "case": "x", "when": "true" }, { "case": "x", "when": "1 +" }] },
                { "id": "e", "type": "fetch" },
                { "id": "f", "type": "delay" },
                { "id": "g", "type": "delay", "until": "2026-01-01 10:00" },
                { "id": "h", "type": "delay", "for": "8d" },
                { "id": "i", "type": "transform", "value": 1, "after": ["nope", "d.nope", "g.x"] },
                { "id": "i", "type": "transform", "value": 1 },
                { "type": "transform", "value": 1 },
                { "id": "k" },
                7,
            ],
        }),
        &[
            ("`name` is missing", ""),
            ("nmae: `nmae` is not known here: is `name` meant?", ""),
            ("deadlineMs", "from 1000 to"),
            ("class", "\"interactive\" or \"bulk\""),
            ("nodes[0].id", "letters"),
            ("nodes[0].value", "no CEL"),
            ("nodes[1].timeoutMs", "the text \"5s\" and has to be a whole number"),
            ("nodes[1].retrypolicy", "is `retryPolicy` meant?"),
            ("nodes[2].class", "no author's"),
            ("nodes[3].cases[0].case", "there already"),
            ("nodes[3].cases[2].case", "there already"),
            ("nodes[3].cases[2].when", "no CEL"),
            ("nodes[4].type", "has to be `http.request`"),
            ("nodes[5]", "`for`, or `until`"),
            ("nodes[6].until", "no time"),
            ("nodes[7].for", "longer than the automation's deadline"),
            ("nodes[8].after[0]", "no node `nope`"),
            ("nodes[8].after[1]", "no case `nope`"),
            ("nodes[8].after[2]", "no branch"),
            ("nodes[9].id", "there already"),
            ("nodes[10]", "`id` is missing"),
            ("nodes[11]", "`type` is missing"),
            ("nodes[12]", "is an object"),
        ],
    );
    // What could be read of a node whose surroundings are sound is compiled, and its faults are told too.
    refused(
        &json!({ "name": " x", "trigger": { "endpoint": "wh_1", "endpoints": ["wh_2"], "when": "input.x" }, "nodes": [
            { "id": "a", "type": "http.request", "credential": "??", "path": "/${nope}",
              "retryPolicy": { "backoffMs": 1000, "maxBackoffMs": 500 }, "when": "nope" },
        ] }),
        &[
            ("trigger", "`endpoint`, or `endpoints`"),
            ("trigger.when", "no `input` here"),
            ("name", "blanks"),
            ("nodes[0].credential", "no connection"),
            ("nodes[0].when", "`nope`"),
            ("nodes[0].retryPolicy.maxBackoffMs", "shorter"),
            ("nodes[0].path", "`nope`"),
        ],
    );
}

#[test]
fn a_node_sees_only_what_is_before_it() {
    let value = |id: &str, of: &str, behind: &[&str]| json!({ "id": id, "type": "transform", "value": format!("${{steps.{of}.output}}"), "after": behind });
    refused(
        &nodes(json!([value("a", "b", &[]), value("b", "a", &[])])),
        &[("nodes[0].value", "not before"), ("nodes[1].value", "not before")],
    );
    refused(&nodes(json!([value("a", "a", &[])])), &[("nodes[0].value", "this node itself")]);
    refused(&nodes(json!([value("a", "x", &[])])), &[("nodes[0].value", "no step `x`")]);
    let graph = json!({ "id": "g", "type": "graph", "nodes": [transform("x")] });
    refused(&nodes(json!([graph, value("a", "g", &["g"])])), &[("nodes[1].value", "is a graph")]);
    compile(&nodes(json!([transform("a"), transform("b"), value("c", "a", &["b"])])));
}

#[test]
fn circles_are_named() {
    refused(
        &nodes(json!([transform("x"), after("a", &["c"]), after("b", &["a"]), after("c", &["b", "x"])])),
        &[("nodes[1]", "circle: `a` before `b` before `c` before `a`")],
    );
    refused(&nodes(json!([after("a", &["a"])])), &[("nodes[0]", "circle: `a` before `a`")]);
}

#[test]
fn one_content_has_one_digest() {
    let yaml = "
# For people.
$schema: ./automation.schema.json
nodes:
  - {value: \"${1 + 1}\", id: a, type: transform}
  - id: b
    type: transform
    value:
      z: 9007199254740993
      a: no
      t: 2026-01-01
      f: 1.5
      s: 'x'
name: n
";
    let json = r#"{ "name" : "n", "nodes": [ { "id": "a", "type": "transform", "value": "${1 + 1}" },
        { "type": "transform", "id": "b", "value": { "a": "no", "z": 9007199254740993, "s": "\u0078", "t": "2026-01-01", "f": 1.5 } } ] }"#;
    let (yaml, json) = (Draft::read(yaml, Format::Yaml).unwrap(), Draft::read(json, Format::Json).unwrap());
    assert_eq!(yaml.json(), json.json());
    assert_eq!(yaml.digest(), json.digest());
    assert!(
        json.json().starts_with(r#"{"name":"n","nodes":[{"id":"a","type":"transform","value":"${1 + 1}"},{"id":"b","#)
    );
    let other = read(&nodes(json!([transform("a")]))).unwrap();
    assert_ne!(other.digest(), json.digest());
    // What is stored gives the same again.
    let again = Draft::read(json.json(), Format::Json).unwrap();
    assert_eq!((again.json(), again.digest()), (json.json(), json.digest()));
}

#[test]
fn faults_of_yaml_have_lines_and_columns() {
    let told = |text: &str| -> Vec<String> {
        Draft::read(text, Format::Yaml).unwrap_err().0.iter().map(ToString::to_string).collect()
    };
    let text = "name: n\nnodes:\n  - id: a\n    type: transform\n    value: ${1 +}\n  - id: b\n    type: transform\n    valu: 1\n";
    let faults = told(text);
    assert!(faults.iter().any(|fault| fault.starts_with("5:12: nodes[0].value: ")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.starts_with("8:11: nodes[1].valu: ")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.starts_with("6:5: nodes[1]: `value` is missing")), "{faults:?}");
    let faults = told("name: n\nnodes: [\n");
    assert!(faults[0].contains("no YAML") && faults[0].starts_with(|c: char| c.is_ascii_digit()), "{faults:?}");
    let faults = told("name: n\nname: m\nnodes: []\n");
    assert!(faults[0].contains("no YAML") && faults[0].contains("name"), "{faults:?}");
    let faults = Draft::read("{\"name\": 1, \"name\": 2}", Format::Json).unwrap_err();
    assert!(faults.to_string().contains("`name` is there twice") && faults.0[0].place.is_some(), "{faults}");
}

#[derive(Debug)]
struct Charge;

impl Action for Charge {
    fn safety(&self, _: &Value) -> ReplaySafety {
        ReplaySafety::Unsafe
    }

    fn request(&self, input: &Value, _: EffectKey) -> Result<Request, InputFault> {
        if input.get("amount").is_none_or(|amount| !amount.is_number()) {
            return Err(InputFault("amount is no number".into()));
        }
        let target = "/charges".into();
        Ok(Request { method: http::Method::POST, target, headers: Vec::new(), body: bytes::Bytes::new() })
    }

    fn is_effectful(&self, _: &Value) -> bool {
        true
    }

    fn read_back(&self, _: &Value, _: EffectKey) -> Option<Result<Request, InputFault>> {
        None
    }

    fn judge_read_back(&self, _: &Value, _: EffectKey, _: u16, _: &http::HeaderMap, _: &bytes::Bytes) -> ReadBack {
        ReadBack::Unknown
    }

    fn judge(&self, _: u16, _: &http::HeaderMap, _: &bytes::Bytes) -> Verdict {
        Verdict::Done(Value::Null)
    }

    fn judge_cut(
        &self,
        _: u16,
        _: &http::HeaderMap,
        _: &bytes::Bytes,
    ) -> Option<(crate::failure::FailureClass, Option<Box<str>>)> {
        None
    }
}

#[derive(Debug)]
struct OneConnection;

impl Connectors for OneConnection {
    fn action(&self, _: &TenantId, connection: &ConnectionId, action: &str) -> Result<Arc<dyn Action>, NoAction> {
        match (connection.as_str(), action) {
            ("conn_stripe", "charge" | "stripe.charge") => Ok(Arc::new(Charge)),
            ("conn_stripe", _) => Err(NoAction::Action { connector: "stripe".into(), action: action.into() }),
            _ => Err(NoAction::Connection(connection.clone())),
        }
    }
}

#[test]
fn connectors_are_asked_when_it_is_saved() {
    let call = |id: &str, more: Value| {
        let mut node =
            json!({ "id": id, "type": "stripe.charge", "credential": "conn_stripe", "input": { "amount": 5 } });
        for (key, value) in more.as_object().unwrap() {
            node[key] = value.clone();
        }
        node
    };
    let tenant = TenantId::parse("acme").unwrap();
    let draft = read(&nodes(json!([
        call("sound", json!({ "effectful": true, "idempotent": false })),
        call("late", json!({ "input": { "amount": "${event.body.amount}" } })),
        call("gone", json!({ "credential": "conn_x" })),
        call("unknown", json!({ "type": "stripe.refund" })),
        call("by_name", json!({ "type": "effect", "action": "refund" })),
        call("once", json!({ "idempotent": true })),
        call("quiet", json!({ "effectful": false })),
        call("bad", json!({ "input": { "amount": "five" } })),
        { "id": "in", "type": "graph", "nodes": [call("bad", json!({ "input": {} }))] },
    ])))
    .unwrap();
    let told: Vec<String> =
        draft.check(&tenant, &OneConnection).unwrap_err().0.iter().map(ToString::to_string).collect();
    let wanted = [
        ("nodes[2].credential: ", "conn_x"),
        ("nodes[3].type: ", "refund"),
        ("nodes[4].action: ", "refund"),
        ("nodes[5].idempotent: ", "contradicts"),
        ("nodes[6].effectful: ", "contradicts"),
        ("nodes[7].input: ", "amount is no number"),
        ("nodes[8].nodes[0].input: ", "amount is no number"),
    ];
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    for ((path, part), fault) in wanted.iter().zip(&told) {
        assert!(fault.starts_with(path) && fault.contains(part), "{fault}");
    }
}

#[test]
fn every_bound_holds() {
    let many: Vec<Value> = (0..=NODES_MAX).map(|at| transform(&format!("n{at}"))).collect();
    let told = faults(&nodes(Value::Array(many.clone())));
    assert!(told.iter().any(|fault| fault.contains("at most 200 nodes")), "{told:?}");
    compile(&nodes(Value::Array(many[1..].to_vec())));

    let deep = |levels: usize| {
        (0..levels).fold(transform("x"), |inner, _| json!({ "id": "g", "type": "graph", "nodes": [inner] }))
    };
    compile(&nodes(json!([deep(GRAPHS_DEEP_MAX)])));
    assert!(faults(&nodes(json!([deep(GRAPHS_DEEP_MAX + 1)])))[0].contains("at most 8 deep"));

    let long = |bytes: usize| {
        format!(
            "{{\"name\":\"n\",\"nodes\":[{{\"id\":\"a\",\"type\":\"transform\",\"value\":\"{}\"}}]}}",
            "x".repeat(bytes)
        )
    };
    assert!(Draft::read(&long(DOCUMENT_BYTES_MAX), Format::Json).unwrap_err().to_string().contains("256 KiB"));
    Draft::read(&long(DOCUMENT_BYTES_MAX - 200), Format::Json).unwrap();

    let nested = |levels: usize| {
        format!(
            "{{\"name\":\"n\",\"nodes\":[{{\"id\":\"a\",\"type\":\"transform\",\"value\":{}1{}}}]}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(Draft::read(&nested(VALUES_DEEP_MAX), Format::Json).is_err());
    assert!(Draft::read(&nested(10_000), Format::Json).is_err());
    Draft::read(&nested(VALUES_DEEP_MAX - 5), Format::Json).unwrap();

    let expressions: Vec<Value> =
        (0..150).map(|at| json!({ "id": format!("n{at}"), "type": "transform", "value": vec!["${1}"; 10] })).collect();
    let told = faults(&nodes(Value::Array(expressions)));
    assert!(told.len() == 1 && told[0].contains("at most 1000 expressions"), "{told:?}");

    let wrong: Vec<Value> = (0..150).map(|at| json!({ "id": format!("n{at}"), "type": "nope" })).collect();
    let told = faults(&nodes(Value::Array(wrong)));
    assert_eq!(told.len(), FAULTS_MAX + 1);
    assert!(told.last().unwrap().contains("more than these 100"));
    assert!(faults(&nodes(json!([]))).iter().any(|fault| fault.contains("has 0 elements and may have 1 to 200")));
    // Ids are bounded with the names around them.
    let long = "x".repeat(64);
    let deep = (0..4).fold(transform(&long), |inner, _| json!({ "id": long, "type": "graph", "nodes": [inner] }));
    assert!(faults(&nodes(json!([deep]))).iter().any(|fault| fault.contains("200 characters")));
}

#[test]
fn delays_are_until_times_that_leave_nothing_to_guess() {
    let time = |value: Value| Delay::time_of(&value);
    assert_eq!(time(json!("2026-10-25T02:30:00+02:00")), Some(1_792_888_200_000));
    assert_eq!(time(json!("2026-10-25T02:30:00+01:00")), Some(1_792_891_800_000));
    assert_eq!(time(json!("2026-10-25T02:30:00")), None);
    assert_eq!(time(json!("2026-10-25T02:30:00 Europe/Berlin")), None);
    assert_eq!(time(json!("1792888200")), None);
    assert_eq!(time(json!(1_792_888_200)), Some(1_792_888_200_000));
    assert_eq!(time(json!(1.5)), Some(1500));
    for none in [json!(-1), json!(1e300), json!(u64::MAX), json!(null), json!(true), json!([])] {
        assert_eq!(time(none), None);
    }
}
