//! From a manifest's `[errors]` to rules: what no key can see alone.

use std::ops::Range;

use super::tables::{DeathTable, ErrorsTable, RuleTable};
use super::{BodyTest, ErrorClass, ErrorRule, ErrorRules};
use crate::document::Document;
use crate::form::Located;

fn boxed(texts: Vec<String>) -> Box<[Box<str>]> {
    texts.into_iter().map(Into::into).collect()
}

/// The document stands at the table.
pub(in crate::connector) fn build(document: &mut Document<'_>, table: ErrorsTable, span: &Range<usize>) -> ErrorRules {
    if table.sources.is_empty() && table.recalled.is_empty() {
        document
            .missing(span.clone(), "has neither sources nor recalled; write where it was read, or that it is recalled");
    }
    if !table.sources.is_empty() && table.checked.is_empty() {
        document.missing(span.clone(), "has sources and not when it was compared with them; write `checked`");
    }
    let deaths = document.within("auth_death", |document| {
        let built = table.auth_death.into_iter().map(|Located { span, index, value }| {
            let DeathTable { status, when, at, values, contains } = value;
            let class = Some(Located { span: span.clone(), index, value: ErrorClass::AuthenticationExpired });
            let rule = RuleTable { status, when, at, values, contains, class };
            document.within_index(index, |document| build_rule(document, rule, &span))
        });
        built.collect::<Vec<_>>()
    });
    let rules = document.within("rule", |document| {
        let built = table.rule.into_iter().map(|Located { span, index, value }| {
            document.within_index(index, |document| {
                if let Some(class) = &value.class
                    && class.value == ErrorClass::AuthenticationExpired
                {
                    let message = "is what errors.auth_death says; write it there, so that all of them stand together";
                    document.within("class", |document| document.fault(class.span.clone(), message));
                }
                build_rule(document, value, &span)
            })
        });
        built.collect::<Vec<_>>()
    });
    ErrorRules {
        checked: table.checked.into(),
        sources: boxed(table.sources),
        recalled: boxed(table.recalled),
        message: table.message.into(),
        details: table.details.into(),
        rules: deaths.into_iter().chain(rules).flatten().collect(),
    }
}

fn build_rule(document: &mut Document<'_>, table: RuleTable, span: &Range<usize>) -> Option<ErrorRule> {
    let RuleTable { status, when, at, values, contains, class } = table;
    if at.is_none() && !(values.is_empty() && contains.is_empty()) {
        document.missing(span.clone(), "has values and not where they stand; write `at`");
    }
    let is_success = status.iter().any(|range| range.first < 300);
    if is_success && at.is_none() && when.is_none() {
        document.missing(
            span.clone(),
            "has a status of success and nothing else; write what tells a failure from the rest",
        );
    }
    if status.is_empty() && at.is_none() && when.is_none() {
        document.missing(span.clone(), "has neither status, nor when, nor at; write what it is told by");
    }
    let body = at.map(|at| BodyTest { path: at.value, values: boxed(values), contains: boxed(contains) });
    Some(ErrorRule { statuses: status.into(), header: when.map(Into::into), body, class: class?.value })
}
