//! Forms around forms: optional, required, with the place kept, lists.

use std::ops::{Range, RangeInclusive};

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::{Form, Row};
use crate::document::Document;

/// What a form says of itself that is what the form inside says.
macro_rules! as_inside {
    () => {
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
    };
}

/// May be left out, and then is nothing.
pub(crate) struct Maybe<F>(pub(crate) F);

impl<T, F: Form<T>> Form<Option<T>> for Maybe<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Option<T>> {
        self.0.read(document, at).map(Some)
    }

    fn show(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| "none".into(), |value| self.0.show(value))
    }

    as_inside!();
}

/// Has no default that could be written down as a value: words stand in its place.
pub(crate) struct Said<F>(F, Instead);

enum Instead {
    MadeAtStart(&'static str),
    Required,
}

/// A default that is made at start.
pub(crate) const fn shown<F>(form: F, words: &'static str) -> Said<F> {
    Said(form, Instead::MadeAtStart(words))
}

/// Must be there.
pub(crate) const fn needed<F>(form: F) -> Said<F> {
    Said(form, Instead::Required)
}

impl<T, F: Form<T>> Form<T> for Said<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        self.0.read(document, at)
    }

    fn show(&self, _: &T) -> String {
        match self.1 {
            Instead::MadeAtStart(words) => words.into(),
            Instead::Required => "required".into(),
        }
    }

    as_inside!();

    fn is_required(&self) -> bool {
        matches!(self.1, Instead::Required)
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located<T> {
    pub(crate) span: Range<usize>,
    /// Its place in the list that it is an element of, if it is one. Others of the list may be misread, and not there.
    pub(crate) index: usize,
    pub(crate) value: T,
}

/// The same form, with the place kept.
pub(crate) struct Placed<F>(pub(crate) F);

impl<T, F: Form<T>> Form<Located<T>> for Placed<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Located<T>> {
        let index = document.index();
        self.0.read(document, at).map(|value| Located { span: at.span(), index, value })
    }

    fn show(&self, value: &Located<T>) -> String {
        self.0.show(&value.value)
    }

    as_inside!();
}

/// A value and the line at which it stands: for faults that only a later stage can see. Where it stands makes no
/// difference to what it says, so two of them are equal if their values are.
#[derive(Debug, Clone)]
pub struct AtLine<T> {
    pub value: T,
    /// Counted from 1; 0 of a value that stands in no file.
    pub line: u32,
}

impl<T: PartialEq> PartialEq for AtLine<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Default> Default for AtLine<T> {
    fn default() -> Self {
        Self { value: T::default(), line: 0 }
    }
}

/// The same form, with the line kept.
pub(crate) struct Lined<F>(pub(crate) F);

impl<T, F: Form<T>> Form<AtLine<T>> for Lined<F> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<AtLine<T>> {
        let line = document.line(at.span().start);
        self.0.read(document, at).map(|value| AtLine { value, line })
    }

    fn show(&self, value: &AtLine<T>) -> String {
        self.0.show(&value.value)
    }

    as_inside!();
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
            document.mark_misread();
        }
        let mut values = Vec::with_capacity(items.len().min(*self.1.end()));
        for (index, item) in items.iter().enumerate().take(*self.1.end()) {
            values.extend(document.within_index(index, |document| {
                let read = self.0.read(document, item);
                if read.is_none() {
                    document.mark_misread();
                }
                read
            }));
        }
        // One element that was misread hides nothing of the others.
        (!values.is_empty() || items.is_empty()).then_some(values)
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
