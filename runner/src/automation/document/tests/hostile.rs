//! Documents that mean harm.

use super::*;

fn quick(text: &str, format: Format) -> Option<Faults> {
    let began = now();
    let read = Draft::read(text, format);
    // Unoptimised, beside other tests.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}: {}", began.elapsed(), explain::cut(text, 80));
    read.err()
}

#[test]
fn aliases_do_not_multiply() {
    let first = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]".to_owned();
    let rest = (1..10).map(|level| format!("a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 9].join(", ")));
    let laughs = [first].into_iter().chain(rest).collect::<Vec<_>>().join("\n");
    let told = quick(&laughs, Format::Yaml).unwrap().to_string();
    assert!(told.contains("no YAML"), "{told}");

    let mut quadratic = format!("a: &a {}\nb: [", "x".repeat(100_000));
    quadratic.push_str(&"*a,".repeat(40_000));
    quadratic.push_str("1]\n");
    assert!(quick(&quadratic, Format::Yaml).is_some());

    let merged = format!("base: &b {{{}}}\nall:\n{}", "k: 1, ".repeat(100), "  - <<: *b\n".repeat(5000));
    assert!(quick(&merged, Format::Yaml).is_some());
    assert!(quick("a: &a [*a]\n", Format::Yaml).is_some());
    // A few are what they are there for.
    let shared =
        "name: n\nnodes:\n  - &a {id: a, type: transform, value: &v [1, 2]}\n  - {id: b, type: transform, value: *v}\n";
    assert!(quick(shared, Format::Yaml).is_none());
}

#[test]
fn whatever_nests_is_refused_and_does_not_recurse() {
    let times = |text: &str| text.repeat(DOCUMENT_BYTES_MAX / text.len());
    for text in [
        times("["),
        times("{a: "),
        times("- "),
        times("? "),
        times("{"),
        times("!a "),
        times("&a "),
        times("[&a "),
        times("a:\n "),
        times("\"\\u"),
    ] {
        assert!(quick(&text, Format::Yaml).is_some());
        assert!(quick(&text, Format::Json).is_some());
    }
    assert!(quick(&times("[1,"), Format::Json).is_some());
    assert!(quick(&times("{\"a\":"), Format::Json).is_some());
    assert!(
        quick(&format!("name: n\nnodes: [{{id: a, type: transform, value: {}}}]", "[],".repeat(10)), Format::Yaml)
            .is_some()
    );
}

#[test]
fn keys_do_not_make_paths_of_any_length() {
    let key = "k".repeat(20_000);
    let text = format!("{{\"{key}\": {{\"{key}\": [{}0]}}}}", "{},".repeat(20_000));
    let told = quick(&text, Format::Yaml).unwrap();
    assert!(told.0.iter().all(|fault| fault.path.len() < 500 && fault.message.len() < 1000), "{told}");
}

#[test]
fn nothing_of_yaml_but_values_comes_through() {
    for text in [
        "--- 1\n--- 2\n",
        "!!python/object:os.system x\n",
        "!include /etc/passwd\n",
        "!!set {a, b}\n",
        "? [a]\n: 1\n",
        "a: .inf\n",
        "a: .nan\n",
        "1: a\n1.0: b\n",
    ] {
        assert!(quick(text, Format::Yaml).is_some(), "{text}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "a",
            "b",
            "transform",
            "branch",
            "graph",
            "delay",
            "http.request",
            "stripe.x",
            "${1}",
            "${steps.a.output}",
            "a.x",
            "1s",
            "conn_a",
            "wh_1",
            ""
        ])
        .prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let key = prop::sample::select(vec![
            "id",
            "type",
            "name",
            "nodes",
            "after",
            "when",
            "value",
            "cases",
            "case",
            "node",
            "credential",
            "path",
            "trigger",
            "endpoint",
            "endpoints",
            "retryPolicy",
            "timeoutMs",
            "for",
            "until",
            "action",
            "input",
            "x y",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..8)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Documents that are mostly sound.
fn document() -> impl Strategy<Value = Value> {
    let ids = || prop::sample::select(vec!["a", "b", "c", "d"]);
    let node = (
        ids(),
        prop::sample::select(vec!["transform", "branch", "delay", "graph", "http.request"]),
        prop::option::of(prop::collection::vec(ids(), 0..3)),
        value(),
    )
        .prop_map(|(id, kind, after, value)| {
            let mut node = match kind {
                "transform" => json!({ "value": value }),
                "branch" => json!({ "cases": [{ "case": "x", "when": "true" }] }),
                "delay" => json!({ "for": "1s" }),
                "graph" => json!({ "nodes": [{ "id": "a", "type": "transform", "value": value }] }),
                _ => json!({ "credential": "conn_a", "path": "/", "body": value }),
            };
            node["id"] = json!(id);
            node["type"] = json!(kind);
            if let Some(after) = after {
                node["after"] = json!(after);
            }
            node
        });
    prop::collection::vec(node, 1..5).prop_map(|all| nodes(Value::Array(all)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        drop(Draft::read(&text, Format::Json));
        drop(Draft::read(&text, Format::Yaml));
    }

    #[test]
    fn no_yaml_makes_it_panic(text in "[-:?&*!|>{}\\[\\],#'\"% \n\tab1~<.]{0,120}") {
        drop(Draft::read(&text, Format::Yaml));
    }

    #[test]
    fn no_value_makes_it_panic(value in value()) {
        drop(read(&value));
    }

    /// What is sound by our reading is sound by the schema that is published, and the other way round but for what no schema
    /// can say: names, circles, expressions.
    #[test]
    fn the_published_schema_says_what_is_read(document in document(), extra in prop::option::of(("[a-z]{1,8}", value()))) {
        let mut document = document;
        if let Some((key, value)) = extra {
            document["nodes"][0][key] = value;
        }
        let validator = schema_validator();
        match read(&document) {
            Ok(draft) => {
                prop_assert!(validator.is_valid(&document), "{document}");
                // And it is the same behind its canonical form.
                let again = Draft::read(draft.json(), Format::Json).unwrap();
                prop_assert_eq!(again.digest(), draft.digest());
                // In YAML, of which JSON is a part, as well.
                let yaml = Draft::read(draft.json(), Format::Yaml);
                prop_assert_eq!(yaml.map(|draft| draft.digest()), Ok(draft.digest()));
            }
            Err(faults) if !validator.is_valid(&document) => drop(faults),
            Err(faults) => {
                let by_hand = ["circle", "there already", "not before", "no node", "no step", "itself", "CEL", "called", "`}`", "keys", "time", "graph", "takes", "function", "expression", "nothing", "there is no"];
                prop_assert!(faults.0.iter().all(|fault| by_hand.iter().any(|part| fault.message.contains(part))), "{faults}\n{document}");
            }
        }
    }
}

fn schema_validator() -> &'static jsonschema::Validator {
    static VALIDATOR: std::sync::LazyLock<jsonschema::Validator> =
        std::sync::LazyLock::new(|| jsonschema::draft202012::new(&published_schema()).unwrap());
    &VALIDATOR
}
