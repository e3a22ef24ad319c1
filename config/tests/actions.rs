//! Actions and errors of manifests: those that are shipped, and what is wrong with others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;

use tidegate_config::connector::action::{Method, Part, ReplayClass};
use tidegate_config::connector::errors::ErrorClass;
use tidegate_config::connector::{Catalogue, GENERIC, Manifest};
use tidegate_config::{Fault, has_errors};

fn get<'c>(catalogue: &'c Catalogue, name: &str) -> &'c Manifest {
    catalogue.manifests().find(|manifest| manifest.connector.as_str() == name).unwrap()
}

#[test]
fn every_shipped_connector_has_actions_and_says_what_its_answers_mean() {
    let catalogue = Catalogue::shipped().unwrap();
    for manifest in catalogue.manifests().filter(|manifest| !manifest.is_generic()) {
        let name = manifest.connector.as_str();
        let names: BTreeSet<&str> = manifest.actions.iter().map(|action| &*action.name).collect();
        assert!(names.len() >= 3 && names.len() == manifest.actions.len(), "{name}: {names:?}");
        let classes: Vec<ReplayClass> = manifest.actions.iter().map(|action| action.class).collect();
        assert!(classes.contains(&ReplayClass::Idempotent), "{name}");
        let errors = &manifest.errors;
        assert!(errors.rules.iter().any(|rule| rule.class == ErrorClass::AuthenticationExpired), "{name}");
        assert!(!errors.message.is_empty(), "{name}");
        assert!(!errors.sources.is_empty() || !errors.recalled.is_empty(), "{name}");
        for action in &manifest.actions {
            assert!(!action.title.is_empty(), "{name}.{}", action.name);
            // What is read costs nothing to do again; what is sent or created is never taken for that without a word.
            let is_plain = action.request.method == Method::Post && !action.reads && action.reason.is_empty();
            let by_header = manifest.remembers(action.request.method, &action.request.path.to_string());
            let body = action.request.body.iter().flat_map(|(_, template)| template.parts());
            let query = action.request.query.iter().map(|(_, part)| part);
            let has_key = body.chain(query).any(|part| matches!(part, Part::Effect(_)));
            if is_plain && action.class == ReplayClass::Idempotent {
                assert!(by_header || has_key, "{name}.{}", action.name);
            }
            let sends =
                ["send", "post_message", "create_message", "publish"].iter().any(|word| action.name.starts_with(word));
            assert!(!sends || action.class == ReplayClass::Unsafe, "{name}.{}", action.name);
            if let Some(source) = &action.source {
                assert!(manifest.sources.contains(source), "{name}.{}: {source} is none of its sources", action.name);
            }
        }
    }
    assert!(get(&catalogue, GENERIC).actions.is_empty());
}

#[test]
fn an_idempotency_header_covers_what_its_provider_documents() {
    let catalogue = Catalogue::shipped().unwrap();
    let stripe = get(&catalogue, "stripe");
    assert!(stripe.remembers(Method::Post, "/v1/charges") && !stripe.remembers(Method::Delete, "/v1/charges"));
    assert_eq!(stripe.idempotency_window.unwrap().as_secs(), 24 * 3_600);
    let zendesk = get(&catalogue, "zendesk");
    assert!(
        zendesk.remembers(Method::Post, "/api/v2/tickets") && zendesk.remembers(Method::Post, "/api/v2/tickets.json")
    );
    for elsewhere in [
        "/api/v2/users",
        "/api/v2/tickets/1/tags",
        "/api/v2/tickets/create_many",
        "/api/v2/ticket",
        "/x/api/v2/tickets",
    ] {
        assert!(!zendesk.remembers(Method::Post, elsewhere), "{elsewhere}");
    }
    assert!(!get(&catalogue, "slack").remembers(Method::Post, "/chat.postMessage"));
}

const HEAD: &str = "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\nauth = { slot = \"header\", header = \"X-Key\" }\nheaders = { request = [\"X-Own\"] }\n";

/// The faults of a manifest with this text behind its first 5 lines.
fn faults(text: &str) -> Vec<Fault> {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("acme.toml"), format!("{HEAD}{text}")).unwrap();
    let (catalogue, faults) = Catalogue::default().with_directory(root.path());
    assert_eq!(catalogue.is_none(), has_errors(&faults), "{faults:?}");
    faults
}

/// An action with these lines in it, which begin in line 9.
fn action(lines: &str) -> String {
    format!(
        "[[action]]\nname = \"a\"\ntitle = \"A\"\n{lines}\ninput = {{ type = \"object\", required = [\"id\"], properties = {{ id = {{ type = \"string\" }}, note = {{}} }} }}\n"
    )
}

#[track_caller]
fn found(text: &str, key: &str, words: &str) {
    let faults = faults(text);
    assert!(
        faults.iter().any(|fault| fault.key == key && fault.message.contains(words)),
        "{key}: {words}\n{faults:#?}"
    );
}

#[test]
fn an_action_without_a_class_is_refused() {
    found(&action("method = \"GET\"\npath = \"/x/{id}\""), "action[0].class", "is missing");
}

#[test]
fn a_class_that_contradicts_its_method_gives_its_reason() {
    let of = |class: &str, method: &str, more: &str| {
        action(&format!("class = \"{class}\"\nmethod = \"{method}\"\npath = \"/x/{{id}}\"\n{more}"))
    };
    for (class, method, more, words) in [
        ("idempotent", "POST", "", "and POST is not"),
        ("idempotent", "PATCH", "", "and PATCH is not"),
        ("unsafe", "PUT", "", "PUT is idempotent"),
        ("unsafe", "DELETE", "", "DELETE is idempotent"),
        ("unsafe", "GET", "", "which may always be done again"),
        ("unsafe", "POST", "reads = true", "which may always be done again"),
        (
            "checkable",
            "POST",
            "check = { method = \"GET\", path = \"/x/{id}\", happened = { status = [\"200\"] }, not_happened = { status = [\"404\"] } }",
            "could be another's",
        ),
        (
            "unsafe",
            "POST",
            "check = { method = \"GET\", path = \"/x/{id}\", happened = { status = [\"200\"] }, not_happened = { status = [\"404\"] } }",
            "belongs to class = \"checkable\"",
        ),
    ] {
        found(&of(class, method, more), "action[0].class", words);
    }
    for (class, method, more) in [
        ("idempotent", "GET", ""),
        ("idempotent", "POST", "reads = true"),
        ("idempotent", "POST", "reason = \"It sets.\""),
        ("idempotent", "POST", "query = { key = \"{effect.key}\" }"),
        ("idempotent", "POST", "body = { id = \"{effect.uuid}\", rest = \"{*}\" }"),
        ("unsafe", "PUT", "reason = \"It adds.\""),
        ("unsafe", "POST", ""),
        (
            "checkable",
            "POST",
            "body = { id = \"{effect.hex}\" }\ncheck = { method = \"GET\", path = \"/x/{effect.hex}\", happened = { status = [\"200\"] }, not_happened = { status = [\"404\"] } }",
        ),
    ] {
        let faults = faults(&of(class, method, more));
        assert!(faults.is_empty(), "{class} {method} {more}: {faults:?}");
    }
    found(&of("checkable", "POST", "body = { id = \"{effect.hex}\" }"), "action[0].check", "is missing");
    // With the connector's own header, and only where it covers.
    let header =
        |more: &str| format!("idempotency_header = \"Idempotency-Key\"\n{more}\n{}", of("idempotent", "POST", ""));
    assert!(faults(&header("")).is_empty());
    found(&header("idempotency_for = [{ paths = [\"/y/*\"] }]"), "action[0].class", "and POST is not");
    assert!(faults(&header("idempotency_for = [{ paths = [\"/x/*\"] }]")).is_empty());
    found(&format!("idempotency_window = \"1h\"\n{}", of("unsafe", "POST", "")), "idempotency_window", "is not there");
}

#[test]
fn every_mistake_of_an_action_is_found_where_it_is() {
    let post = |more: &str| action(&format!("class = \"unsafe\"\nmethod = \"POST\"\n{more}"));
    let path = "path = \"/x/{id}\"\n";
    for (text, key, words) in [
        (post("path = \"/x/{other}\""), "action[0].path", "no property of the input"),
        (post("path = \"/x/{note}\""), "action[0].path", "need not have"),
        (post("path = \"/x/../{id}\""), "action[0].path", "empty segment"),
        (post("path = \"/x//{id}\""), "action[0].path", "empty segment"),
        (post("path = \"x/{id}\""), "action[0].path", "is no path"),
        (post("path = \"/x?{id}\""), "action[0].path", "without a query"),
        (post("path = \"/x/{id\""), "action[0].path", "brace without end"),
        (post("path = \"/x/id}\""), "action[0].path", "brace without beginning"),
        (post("path = \"/x/{effect.text}\""), "action[0].path", "is no place"),
        (post(&format!("{path}headers = {{ X-Key = \"{{id}}\" }}")), "action[0].headers", "carries the credential"),
        (
            post(&format!("{path}headers = {{ Authorization = \"{{id}}\" }}")),
            "action[0].headers",
            "carries the credential",
        ),
        (post(&format!("{path}headers = {{ X-Other = \"{{id}}\" }}")), "action[0].headers", "does not travel"),
        (post(&format!("{path}headers = {{ Host = \"x\" }}")), "action[0].headers", "no call sets"),
        (post(&format!("{path}query = {{ a = 1 }}")), "action[0].query", "that is no string"),
        (post(&format!("{path}query = {{ a = \"{{b}}\" }}")), "action[0].query", "no property of the input"),
        (post(&format!("{path}body = {{ a = [\"{{b}}\"] }}")), "action[0].body", "no property of the input"),
        (post(&format!("{path}source = 7")), "action[0].source", "write text as a string"),
        (format!("{}{}", post(path), post(path)), "action[1].name", "another action too"),
        (post(path).replace("name = \"a\"", "name = \"A.b\""), "action[0].name", "no name of an action"),
        (post(path).replace("\"object\", ", "\"text\", "), "action[0].input", "no schema of an object"),
        (post(path).replace("note = {}", "note = { pattern = \"(?=a)b\" }"), "action[0].input", "which is none"),
        (
            post(path).replace("note = {}", "note = { \"$ref\" = \"https://a.example.com/s\" }"),
            "action[0].input",
            "nothing is fetched",
        ),
        (
            post(path).replace("note = {}", "note = { \"$dynamicRef\" = \"#a\" }"),
            "action[0].input",
            "which inputs have not",
        ),
        (
            post(path).replace("note = {}", "note = { type = \"text\" }"),
            "action[0].input",
            "has a \"type\" that is none",
        ),
        (
            post(path).replace("note = {}", "note = { maxLength = -1 }"),
            "action[0].input",
            "has a \"maxLength\" that is none",
        ),
        (post(path).replace("note = {}", "note = { default = 2026-11-30 }"), "action[0].input", "has a date"),
        (post(path).replace("[\"id\"]", "[\"id\", \"gone\"]"), "action[0].input", "none of its properties"),
    ] {
        found(&text, key, words);
    }
    let get = action(
        "class = \"idempotent\"\nmethod = \"GET\"\npath = \"/x/{id}\"\nbody = { a = 1 }\nencoding = \"form\"\nreads = true",
    );
    for key in ["action[0].body", "action[0].encoding", "action[0].reads"] {
        found(&get, key, "take it out");
    }
}

#[test]
fn every_mistake_of_errors_is_found_where_it_is() {
    let top = "[errors]\nrecalled = [\"All of it.\"]\n";
    for (text, key, words) in [
        ("[errors]\n".to_owned(), "errors", "neither sources nor recalled"),
        ("[errors]\nsources = [\"https://a.example.com\"]\n".into(), "errors", "not when it was compared"),
        (format!("{top}[[errors.rule]]\nstatus = [\"404\"]\n"), "errors.rule[0].class", "is missing"),
        (
            format!("{top}[[errors.rule]]\nstatus = [\"404\"]\nclass = \"not-fuond\"\n"),
            "errors.rule[0].class",
            "did you mean \"not-found\"?",
        ),
        (
            format!("{top}[[errors.rule]]\nstatus = [\"4xx\"]\nclass = \"not-found\"\n"),
            "errors.rule[0].status[0]",
            "is no status",
        ),
        (
            format!("{top}[[errors.rule]]\nstatus = [\"499-400\"]\nclass = \"not-found\"\n"),
            "errors.rule[0].status[0]",
            "is no status",
        ),
        (
            format!("{top}[[errors.rule]]\nstatus = [\"200\"]\nclass = \"not-found\"\n"),
            "errors.rule[0]",
            "a status of success and nothing else",
        ),
        (format!("{top}[[errors.rule]]\nclass = \"not-found\"\n"), "errors.rule[0]", "what it is told by"),
        (
            format!("{top}[[errors.rule]]\nstatus = [\"400\"]\nvalues = [\"x\"]\nclass = \"not-found\"\n"),
            "errors.rule[0]",
            "not where they stand",
        ),
        (
            format!("{top}[[errors.rule]]\nat = \"code\"\nclass = \"authentication-expired\"\n"),
            "errors.rule[0].class",
            "errors.auth_death",
        ),
        (format!("{top}[[errors.auth_death]]\nat = \"a b\"\n"), "errors.auth_death[0].at", "is no place in JSON"),
    ] {
        found(&text, key, words);
    }
    assert!(faults(&format!("{top}[[errors.auth_death]]\nat = \"code\"\nvalues = [\"7\"]\n")).is_empty());
}
