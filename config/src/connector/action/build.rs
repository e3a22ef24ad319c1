//! From a manifest's `[[action]]` to an action: what no key can see alone.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use super::tables::{ActionTable, CheckTable, TestTable};
use super::{
    ActionSpec, AnswerTest, Encoding, Found, Method, Part, PathTemplate, ReadBackSpec, ReplayClass, RequestSpec,
    Template, schema,
};
use crate::connector::headers::HeaderList;
use crate::connector::manifest::{AuthSlot, CREDENTIALS};
use crate::connector::quota::RequestMatch;
use crate::connector::repeat::is_covered;
use crate::document::Document;
use crate::egress::header_name;
use crate::form::Located;

/// What of the manifest an action is judged by.
pub(in crate::connector) struct Around<'m> {
    pub(in crate::connector) travels: &'m HeaderList,
    pub(in crate::connector) auth: &'m AuthSlot,
    pub(in crate::connector) idempotency_header: Option<&'m str>,
    /// Which requests that header covers; empty: all.
    pub(in crate::connector) idempotency_for: &'m [RequestMatch],
}

impl Around<'_> {
    fn covers(&self, method: Method, path: &str) -> bool {
        self.idempotency_header.is_some() && is_covered(self.idempotency_for, method, path)
    }
}

/// The document stands at the list.
pub(in crate::connector) fn build(
    document: &mut Document<'_>,
    tables: Vec<Located<ActionTable>>,
    around: &Around<'_>,
) -> Box<[ActionSpec]> {
    let mut seen = BTreeSet::new();
    let built = tables.into_iter().filter_map(|table| {
        let index = table.index;
        document.within_index(index, |document| build_action(document, table, around, &mut seen))
    });
    built.collect()
}

fn build_action(
    document: &mut Document<'_>,
    table: Located<ActionTable>,
    around: &Around<'_>,
    seen: &mut BTreeSet<String>,
) -> Option<ActionSpec> {
    let Located { span, value: table, .. } = table;
    if let Some(name) = table.name.as_ref().filter(|name| !seen.insert(name.value.clone())) {
        let message = format!("\"{}\" is the name of another action too; give each its own", name.value);
        document.within("name", |document| document.fault(name.span.clone(), message));
    }
    let schema = table.input.and_then(|input| {
        let judged = schema::judge(&input.value);
        document.within("input", |document| match judged {
            Ok(()) => Some(input.value),
            Err(message) => {
                document.fault(input.span, message);
                None
            }
        })
    });
    let written = Written {
        method: table.method?,
        path: table.path,
        query: table.query,
        headers: table.headers,
        body: table.body,
        encoding: table.encoding,
    };
    let request = build_request(document, written, schema.as_ref(), around, true);
    let check = table.check.and_then(|check| {
        document.within("check", |document| build_check(document, check, schema.as_ref(), around)).map(Box::new)
    });
    let class = table.class?;
    let request = request?;
    let reads = request.method.is_safe() || table.reads.as_ref().is_some_and(|reads| reads.value);
    if let Some(written) = table.reads.filter(|_| request.method != Method::Post) {
        let message = "belongs to method = \"POST\": of others the method says it; take it out";
        document.within("reads", |document| document.fault(written.span, message));
    }
    let is_reasoned = !table.reason.is_empty();
    if let Some(message) = contradiction(class.value, &request, reads, is_reasoned, around) {
        document.within("class", |document| document.fault(class.span.clone(), message));
    }
    if class.value == ReplayClass::Checkable && check.is_none() {
        let message = "is missing, and class = \"checkable\" needs it: how is the provider asked?";
        document.within("check", |document| document.missing(span, message));
    }
    if class.value != ReplayClass::Checkable && check.is_some() {
        let message = "has a check, which belongs to class = \"checkable\"; take one of them out";
        document.within("class", |document| document.fault(class.span, message));
    }
    Some(ActionSpec {
        name: table.name?.value.into(),
        title: table.title.into(),
        class: class.value,
        reason: table.reason.into(),
        reads,
        request,
        input: schema?,
        check,
        output: table.output,
        source: table.source.map(Into::into),
    })
}

/// What speaks against a class, by RFC 9110 and by what the request says of itself.
fn contradiction(
    class: ReplayClass,
    request: &RequestSpec,
    reads: bool,
    is_reasoned: bool,
    around: &Around<'_>,
) -> Option<String> {
    let method = request.method.as_str();
    if reads && class != ReplayClass::Idempotent {
        return Some(format!(
            "is \"{}\" of what changes nothing, which may always be done again; write \"idempotent\"",
            class.as_str()
        ));
    }
    if is_reasoned || reads {
        return None;
    }
    match class {
        ReplayClass::Idempotent if request.method.is_idempotent() => None,
        ReplayClass::Idempotent if has_effect(request) || around.covers(request.method, &request.path.to_string()) => {
            None
        }
        ReplayClass::Idempotent => Some(format!(
            "is \"idempotent\", and {method} is not: give the connector its idempotency_header, put {{effect.key}} into the request, or write why as `reason`"
        )),
        ReplayClass::Checkable if !has_effect(request) => Some(
            "is \"checkable\", and no {effect.key} is in the request: what a read-back finds could be another's, or have been there before; put the key into it, or write as `reason` why it is told apart"
                .into(),
        ),
        ReplayClass::Checkable | ReplayClass::Unsafe if request.method.is_idempotent() => Some(format!(
            "is \"{}\", and {method} is idempotent (RFC 9110, section 9.2.2): write why this one is not as `reason`",
            class.as_str()
        )),
        ReplayClass::Checkable | ReplayClass::Unsafe => None,
    }
}

fn has_effect(request: &RequestSpec) -> bool {
    let pairs = request.query.iter().chain(&request.headers).map(|(_, part)| part);
    let body = request.body.iter().flat_map(|(_, body)| body.parts());
    pairs.chain(body).chain(request.path.places()).any(|part| matches!(part, Part::Effect(_)))
}

/// A request as it is written: of an action, or of a read-back.
struct Written {
    method: Method,
    path: Option<Located<PathTemplate>>,
    query: Option<Located<Value>>,
    headers: Option<Located<Value>>,
    body: Option<Located<Value>>,
    encoding: Option<Located<Encoding>>,
}

fn build_request(
    document: &mut Document<'_>,
    written: Written,
    schema: Option<&Value>,
    around: &Around<'_>,
    has_rest: bool,
) -> Option<RequestSpec> {
    let takes_body = !written.method.is_safe();
    let may_body = takes_body && written.method != Method::Delete;
    for (key, span) in [
        ("body", written.body.as_ref().map(|body| &body.span)),
        ("encoding", written.encoding.as_ref().map(|encoding| &encoding.span)),
    ] {
        if let Some(span) = span.filter(|_| !takes_body) {
            let message =
                format!("belongs to a request with a body, which {} has not; take it out", written.method.as_str());
            document.within(key, |document| document.fault(span.clone(), message));
        }
    }
    let path = written.path?;
    document.within("path", |document| {
        path.value.places().for_each(|part| judge_part(document, &path.span, part, schema, true));
    });
    let query = document.within("query", |document| build_pairs(document, written.query, schema));
    if let AuthSlot::Query(parameter) = around.auth
        && query.iter().any(|((name, _), _)| name.eq_ignore_ascii_case(parameter))
    {
        document.within("query", |document| document.fault(0..0, "has the parameter of the credential; take it out"));
    }
    let headers = document.within("headers", |document| {
        let mut headers = build_pairs(document, written.headers, schema);
        for ((name, _), span) in &mut headers {
            judge_header(document, name, span, around);
        }
        headers
    });
    let body = match written.body {
        Some(body) => document.within("body", |document| match Template::parse(&body.value) {
            Ok(template) => {
                template.parts().into_iter().for_each(|part| judge_part(document, &body.span, part, schema, false));
                Some(template)
            }
            Err(message) => {
                document.fault(body.span, message);
                None
            }
        }),
        None => (has_rest && may_body).then_some(Template::Rest),
    };
    let encoding = written.encoding.map_or(Encoding::Json, |encoding| encoding.value);
    let unplaced = |pairs: Vec<(Pair, Range<usize>)>| pairs.into_iter().map(|(pair, _)| pair).collect();
    Some(RequestSpec {
        method: written.method,
        path: path.value,
        query: unplaced(query),
        headers: unplaced(headers),
        body: body.filter(|_| takes_body).map(|body| (encoding, body)),
    })
}

type Pair = (Box<str>, Part);

/// Names and values of a table of texts, with the place of the table.
fn build_pairs(
    document: &mut Document<'_>,
    table: Option<Located<Value>>,
    schema: Option<&Value>,
) -> Vec<(Pair, Range<usize>)> {
    let Some(Located { span, value, .. }) = table else { return Vec::new() };
    let Some(members) = value.as_object() else {
        document.fault(span, "is a string; write a table, such as `{ limit = \"{limit}\" }`");
        return Vec::new();
    };
    let mut pairs = Vec::with_capacity(members.len());
    for (name, value) in members {
        let part = match value.as_str().map(Part::parse) {
            Some(Ok(part)) => part,
            Some(Err(message)) => {
                document.fault(span.clone(), message);
                continue;
            }
            None => {
                document.fault(
                    span.clone(),
                    format!("has a {name:?} that is no string; write a constant or \"{{field}}\""),
                );
                continue;
            }
        };
        judge_part(document, &span, &part, schema, false);
        pairs.push(((name.as_str().into(), part), span.clone()));
    }
    pairs
}

fn judge_header(document: &mut Document<'_>, name: &mut Box<str>, span: &Range<usize>, around: &Around<'_>) {
    let lower = match header_name(name) {
        Ok(lower) => lower,
        Err(message) => return document.fault(span.clone(), message),
    };
    let is_slot = matches!(around.auth, AuthSlot::Header(slot) if **slot == *lower);
    if is_slot || CREDENTIALS.contains(&lower.as_str()) {
        document.fault(span.clone(), format!("has \"{lower}\", which carries the credential; take it out"));
    } else if around.idempotency_header == Some(&lower) {
        document.fault(span.clone(), format!("has \"{lower}\", in which the effect's key stands; take it out"));
    } else if !around.travels.admits(&lower) {
        document.fault(span.clone(), format!("has \"{lower}\", which does not travel; add it to headers.request"));
    }
    *name = lower.into();
}

/// A place must be a member of the input; what a path cannot be without, the input must have.
fn judge_part(document: &mut Document<'_>, span: &Range<usize>, part: &Part, schema: Option<&Value>, is_path: bool) {
    let (Some(field), Some(schema)) = (part.field(), schema) else { return };
    if schema["properties"].get(field).is_none() {
        document.fault(span.clone(), format!("has {{{field}}}, which is no property of the input; add it there"));
    } else if is_path && !schema["required"].as_array().is_some_and(|names| names.iter().any(|name| *name == field)) {
        document.fault(span.clone(), format!("has {{{field}}}, which the input need not have; add it to `required`"));
    }
}

fn build_check(
    document: &mut Document<'_>,
    table: Located<CheckTable>,
    schema: Option<&Value>,
    around: &Around<'_>,
) -> Option<ReadBackSpec> {
    let CheckTable { method, path, query, headers, body, happened, not_happened, output } = table.value;
    let method = method?;
    if !matches!(method, Method::Get | Method::Head | Method::Post) {
        let message = format!(
            "is {}, which may change something; a read-back is GET, HEAD, or a POST that reads",
            method.as_str()
        );
        document.within("method", |document| document.fault(table.span.clone(), message));
    }
    let written = Written { method, path, query, headers, body, encoding: None };
    let request = build_request(document, written, schema, around, false);
    let happened = document.within("happened", |document| build_test(document, happened?, schema));
    let not_happened = document.within("not_happened", |document| build_test(document, not_happened?, schema));
    let (happened, not_happened) = (happened?, not_happened?);
    if happened == not_happened {
        document.fault(table.span, "has the same answer for both; write what tells them apart");
    }
    Some(ReadBackSpec { request: request?, happened, not_happened, output })
}

fn build_test(document: &mut Document<'_>, table: TestTable, schema: Option<&Value>) -> Option<AnswerTest> {
    let TestTable { status, at, equals, absent } = table;
    let is_absent = absent.as_ref().is_some_and(|absent| absent.value);
    let stray = |document: &mut Document<'_>, key, span: Range<usize>, message: &str| {
        document.within(key, |document| document.fault(span, message));
    };
    if let Some(equals) = equals.as_ref().filter(|_| at.is_none() || is_absent) {
        stray(document, "equals", equals.span.clone(), "needs at, and goes without absent");
    }
    if let Some(absent) = absent.as_ref().filter(|_| at.is_none()) {
        stray(document, "absent", absent.span.clone(), "needs at; write where there is nothing");
    }
    let found = match equals {
        _ if is_absent => Found::Nothing,
        None => Found::Something,
        Some(equals) => match Part::parse(&equals.value) {
            Ok(part) => {
                judge_part(document, &equals.span, &part, schema, false);
                Found::Equal(part)
            }
            Err(message) => {
                document.fault(equals.span, message);
                return None;
            }
        },
    };
    Some(AnswerTest { statuses: status.into(), body: at.map(|at| (at.value, found)) })
}
