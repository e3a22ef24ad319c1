//! A manifest's `[[action]]`, as it is written.

use serde_json::Value;

use super::input::Json;
use super::{Encoding, Method, PathTemplate, ReplayClass, StatusRange};
use crate::connector::manifest::sentence;
use crate::connector::quota::{JsonPath, json_path};
use crate::form::{Choice, Flag, List, Located, Maybe, Placed, Table, Text, needed, settings, text};

settings! {
    /// One action.
    pub(crate) struct ActionTable {
        /// Its name, unique in the manifest: lower case letters, digits and `_`. Automations say `CONNECTOR.NAME`.
        name: Option<Located<String>> = None, needed(Maybe(Placed(action_name()))), live, "Automations name it.";
        /// What it does, for people.
        title: String = String::new(), needed(sentence()), live, "For people.";
        /// `idempotent`: doing it twice is doing it once; `checkable`: the provider can be asked whether it was done; `unsafe`.
        class: Option<Located<ReplayClass>> = None, needed(Maybe(Placed(class()))), live,
            "It decides what happens after a crash, so that nobody guesses it: in doubt it is `unsafe`.";
        /// Why the class is another than the method's.
        reason: String = String::new(), sentence(), live,
            "A POST that is idempotent without a key, or a PUT that is not, contradicts RFC 9110.";
        /// Of POST: it changes nothing at the provider. GET, HEAD and OPTIONS change nothing anyway.
        reads: Option<Located<bool>> = None, Maybe(Placed(Flag)), live, "A search is often a POST.";
        /// `GET`, `HEAD`, `OPTIONS`, `PUT`, `DELETE`, `POST` or `PATCH`.
        method: Option<Method> = None, needed(Maybe(method())), live, "The provider decides.";
        /// Path behind the connection's `base_url`; `{field}` is a member of the input, percent-encoded.
        path: Option<Located<PathTemplate>> = None, needed(Maybe(Placed(path()))), live, "The provider decides.";
        /// Parameters: `name = "{field}"`, or a constant. What is not in the input is left out.
        query: Option<Located<Value>> = None, Maybe(Placed(strings("parameters"))), live, "The provider decides.";
        /// Headers: `Name = "{field}"`, or a constant.
        headers: Option<Located<Value>> = None, Maybe(Placed(strings("headers"))), live, "The provider decides.";
        /// The body: a table in which a text that is `{field}` stands for that member, and `{*}` for all members that stand nowhere else.
        body: Option<Located<Value>> = None, Maybe(Placed(Json { kind: "body" })), live,
            "Without it, POST, PUT and PATCH have `{*}`, and others have none.";
        /// `json`; `form`, nested as `a[b]=c`; or `form-repeated`, lists by repeating the name.
        encoding: Option<Located<Encoding>> = None, Maybe(Placed(encoding())), live, "Without it, `json`.";
        /// JSON Schema of the input (draft 2020-12). A `$ref` leads to `#/$defs/NAME` of the same schema and not round, a `pattern` has no look-around: so nothing is fetched, and what an input costs is bounded.
        input: Option<Located<Value>> = None, needed(Maybe(Placed(Json { kind: "JSON Schema" }))), live,
            "What does not fit is refused before a call.";
        /// Of `checkable`: how the provider is asked whether it was done.
        check: Option<Located<CheckTable>> = None, Maybe(Placed(Table)), live, "";
        /// Where in the answer the output is.
        output: Option<JsonPath> = None, Maybe(json_path()), live, "Without it, the whole answer.";
        /// URL where it was read.
        source: Option<String> = None, Maybe(sentence()), live, "Without it, the action is recalled and not read.";
    }

    /// How the provider is asked whether an action was done.
    pub(crate) struct CheckTable {
        /// `GET`, `HEAD` or `POST`.
        method: Option<Method> = None, needed(Maybe(method())), live, "The provider decides.";
        /// As that of the action.
        path: Option<Located<PathTemplate>> = None, needed(Maybe(Placed(path()))), live, "The provider decides.";
        /// As that of the action.
        query: Option<Located<Value>> = None, Maybe(Placed(strings("parameters"))), live, "The provider decides.";
        /// As those of the action.
        headers: Option<Located<Value>> = None, Maybe(Placed(strings("headers"))), live, "The provider decides.";
        /// As that of the action; only of POST.
        body: Option<Located<Value>> = None, Maybe(Placed(Json { kind: "body" })), live, "";
        /// What the answer has when it was done.
        happened: Option<TestTable> = None, needed(Maybe(Table)), live, "An answer that fits neither says nothing.";
        /// What the answer has when it was not done.
        not_happened: Option<TestTable> = None, needed(Maybe(Table)), live, "An answer that fits neither says nothing.";
        /// Where in that answer the action's output is.
        output: Option<JsonPath> = None, Maybe(json_path()), live, "Without it, the whole answer.";
    }

    /// What an answer must have.
    pub(crate) struct TestTable {
        /// Its status is one of these.
        status: Vec<StatusRange> = Vec::new(), needed(List(status(), 1..=8)), live, "The provider decides.";
        /// A place in its body, at which there is something.
        at: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live, "Without it, the status is enough.";
        /// It is this: `{field}`, an effect's key, or a constant.
        equals: Option<Located<String>> = None, Maybe(Placed(sentence())), live, "";
        /// There is nothing at it.
        absent: Option<Located<bool>> = None, Maybe(Placed(Flag)), live, "";
    }
}

/// A table of texts.
const fn strings(kind: &'static str) -> Json {
    Json { kind }
}

const fn class() -> Choice<ReplayClass> {
    Choice(&[
        ("idempotent", ReplayClass::Idempotent),
        ("checkable", ReplayClass::Checkable),
        ("unsafe", ReplayClass::Unsafe),
    ])
}

const fn method() -> Choice<Method> {
    Choice(&[
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("POST", Method::Post),
        ("PATCH", Method::Patch),
    ])
}

const fn encoding() -> Choice<Encoding> {
    Choice(&[("json", Encoding::Json), ("form", Encoding::Form), ("form-repeated", Encoding::FormRepeated)])
}

pub(in crate::connector) const fn status() -> Text<StatusRange> {
    text("status, or a range of them", "500-599", StatusRange::parse, |range| range.show())
}

const fn path() -> Text<PathTemplate> {
    text("path", "/v1/customers/{customer}", PathTemplate::parse, PathTemplate::to_string)
}

const fn action_name() -> Text<String> {
    text(
        "name of an action",
        "create_customer",
        |text| {
            let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if plain && (1..=64).contains(&text.len()) {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is no name of an action; write lower case letters, digits and _"))
            }
        },
        String::clone,
    )
}
