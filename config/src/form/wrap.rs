//! Forms around forms: optional, required, with the place kept, lists.

use std::ops::{Range, RangeInclusive};

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::{Form, Row};
use crate::document::Document;

/// May be left out, and then is nothing.
pub(crate) struct Maybe<F>(pub(crate) F);

impl<T, F: Form<T>> Form<Option<T>> for Maybe<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Option<T>> {
        self.0.read(document, at).map(Some)
    }

    fn show(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| "none".into(), |value| self.0.show(value))
    }

    fn kind(&self) -> String {
        self.0.kind()
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn rows(&self) -> Vec<Row> {
        self.0.rows()
    }

    fn is_list(&self) -> bool {
        self.0.is_list()
    }
}

/// A default that is made at start and cannot be written down as a value.
pub(crate) struct Shown<F>(pub(crate) F, pub(crate) &'static str);

impl<T, F: Form<T>> Form<T> for Shown<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        self.0.read(document, at)
    }

    fn show(&self, _: &T) -> String {
        self.1.into()
    }

    fn kind(&self) -> String {
        self.0.kind()
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn rows(&self) -> Vec<Row> {
        self.0.rows()
    }

    fn is_list(&self) -> bool {
        self.0.is_list()
    }
}

/// Must be there.
pub(crate) struct Needed<F>(pub(crate) F);

impl<T, F: Form<T>> Form<T> for Needed<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        self.0.read(document, at)
    }

    fn show(&self, _: &T) -> String {
        "required".into()
    }

    fn kind(&self) -> String {
        self.0.kind()
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn rows(&self) -> Vec<Row> {
        self.0.rows()
    }

    fn is_list(&self) -> bool {
        self.0.is_list()
    }

    fn is_required(&self) -> bool {
        true
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located<T> {
    pub(crate) span: Range<usize>,
    pub(crate) value: T,
}

/// The same form, with the place kept.
pub(crate) struct Placed<F>(pub(crate) F);

impl<T, F: Form<T>> Form<Located<T>> for Placed<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Located<T>> {
        self.0.read(document, at).map(|value| Located { span: at.span(), value })
    }

    fn show(&self, value: &Located<T>) -> String {
        self.0.show(&value.value)
    }

    fn kind(&self) -> String {
        self.0.kind()
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn rows(&self) -> Vec<Row> {
        self.0.rows()
    }
}

/// A list of values of one form, bounded.
pub(crate) struct List<F>(pub(crate) F, pub(crate) RangeInclusive<usize>);

impl<T, F: Form<T>> Form<Vec<T>> for List<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Vec<T>> {
        let Some(items) = at.get_ref().as_array() else {
            document.wrong_type(at, &format!("a {}", self.kind()));
            return None;
        };
        if !self.1.contains(&items.len()) {
            let (low, high) = (self.1.start(), self.1.end());
            document.fault(at.span(), format!("has {} entries; write {low} to {high}", items.len()));
            return None;
        }
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            values.extend(document.within_index(index, |document| self.0.read(document, item)));
        }
        (values.len() == items.len()).then_some(values)
    }

    fn show(&self, values: &Vec<T>) -> String {
        format!("[{}]", values.iter().map(|value| self.0.show(value)).collect::<Vec<_>>().join(", "))
    }

    fn kind(&self) -> String {
        format!("list of {}", self.0.kind())
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": self.0.schema(), "minItems": self.1.start(), "maxItems": self.1.end() })
    }

    fn rows(&self) -> Vec<Row> {
        self.0.rows()
    }

    fn is_list(&self) -> bool {
        true
    }
}
