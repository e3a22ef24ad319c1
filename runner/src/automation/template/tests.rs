use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ids::StepId;

fn scope() -> Scope {
    let mut scope = Scope::default().with_input(json!({
        "name": "Ada", "n": 3, "big": u64::MAX, "list": [1, "a"], "none": null, "brace": "}", "long": "x".repeat(600_000),
    }));
    scope.settle(StepId::parse("a").unwrap(), "done", json!({ "id": 1 }));
    scope
}

fn step(name: &str) -> Result<StepId, String> {
    StepId::parse(name).filter(|step| step.as_str() == "a").ok_or_else(|| format!("there is no step `{name}`"))
}

fn compile(value: &Value) -> Result<Template, Vec<TemplateFault>> {
    Template::compile(value, &Names::of_run(&step))
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "reads better")]
fn render(value: Value) -> Value {
    compile(&value).unwrap_or_else(|faults| panic!("{value}: {faults:?}")).render(&scope()).unwrap()
}

#[test]
fn a_string_that_is_one_expression_is_its_value() {
    for (template, wanted) in [
        (json!("${input.n}"), json!(3)),
        (json!("${ input.big }"), json!(u64::MAX)),
        (json!("${input.list}"), json!([1, "a"])),
        (json!("${input.none}"), json!(null)),
        (json!("${{'a': {'b': input.n}}}"), json!({ "a": { "b": 3 } })),
        (
            json!({ "k": ["${steps.a.output}", 7, { "x": "${input.n + 1}" }] }),
            json!({ "k": [{ "id": 1 }, 7, { "x": 4 }] }),
        ),
    ] {
        assert_eq!(render(template.clone()), wanted, "{template}");
    }
}

#[test]
fn in_text_values_are_written_out() {
    for (template, wanted) in [
        ("Dear ${input.name}!", "Dear Ada!"),
        ("${input.name}${input.n}", "Ada3"),
        (" ${input.n}", " 3"),
        ("${input.n} of ${input.list}", "3 of [1,\"a\"]"),
        ("costs $5, or $${input.n}", "costs $5, or ${input.n}"),
        ("$$${input.n}", "$${input.n}"),
        ("$ {x} }{", "$ {x} }{"),
        ("${'}'}${\"}\"}!", "}}!"),
        ("${'\\'}'}!", "'}!"),
        ("${r'\\'}!", "\\!"),
        ("${'''a'}b'''}!", "a'}b!"),
        ("${br'}' == b'}'}!", "true!"),
        ("${{'a': 1}.a}!", "1!"),
        ("${input.n // }\n}!", "3!"),
        ("${input.brace}}", "}}"),
    ] {
        assert_eq!(render(json!(template)), json!(wanted), "{template}");
    }
}

#[test]
fn what_is_constant_is_told_so() {
    let constant = json!({ "a": [1, "$${x}", { "b": null }] });
    assert_eq!(compile(&constant).unwrap().constant(), Some(&json!({ "a": [1, "${x}", { "b": null }] })));
    assert_eq!(compile(&json!({ "a": "${input.n}" })).unwrap().constant(), None);
}

#[test]
fn all_faults_are_told_with_their_places() {
    let faults = compile(&json!({
        "a": "${input.",
        "b": ["ok", "${1 +}", "${steps.b.output} and ${nope}"],
        "c d": { "${x}": 1 },
    }))
    .unwrap_err();
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, [".a", ".b[1]", ".b[2]", ".b[2]", "[\"c d\"][\"${x}\"]"], "{faults:?}");
}

#[test]
fn null_is_no_part_of_a_text() {
    let said = compile(&json!("/customers/${input.none}")).unwrap().render(&scope()).unwrap_err().to_string();
    assert!(said.contains("is null"), "{said}");
}

#[test]
fn what_is_put_together_is_bounded() {
    for template in [json!("${input.long} ${input.long}"), json!(["${input.long}", "${input.long}"])] {
        let said = compile(&template).unwrap().render(&scope()).unwrap_err().to_string();
        assert!(said.contains("larger than 1024 KiB"), "{said}");
    }
    let many: Vec<Value> = (0..=EXPRESSIONS_MAX).map(|_| json!("${1}")).collect();
    assert_eq!(compile(&Value::Array(many)).unwrap_err().len(), 1);
}

#[test]
fn a_template_says_what_it_looks_at() {
    let needs = compile(&json!(["${event.id}", "x ${steps.a.output}"])).unwrap().needs().clone();
    assert!(needs.event && !needs.input && needs.steps.len() == 1);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ $a-c{}'\"\\\\/r\n.\u{e9}]{0,40}") {
        if let Ok(template) = compile(&json!(text)) {
            drop(template.render(&scope()));
        }
    }

    #[test]
    fn text_without_dollars_is_itself(text in "[^$]{0,60}") {
        prop_assert_eq!(render(json!(text)), json!(text));
    }
}
