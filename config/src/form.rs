//! How a value is written in a file: reading, range, text form and schema of one kind of key, in one place.

mod declared;
mod scalar;
mod table;
mod text;
mod wrap;

use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::Document;

pub(crate) use declared::Declared;
pub(crate) use scalar::{Blocks, Bytes, Choice, Count, Flag, Moment, Span};
pub(crate) use table::{Table, object_schema};
pub(crate) use text::{Text, address, bytes_rate, events_rate, network, path, text, url};
pub use wrap::AtLine;
pub(crate) use wrap::{Lined, List, Located, Maybe, Placed, needed, shown};

/// Can the key be changed while the process runs?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The next reload puts it in force.
    Live,
    /// It is read once, at start.
    Restart,
}

/// What the reference and the schema say about one key.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: String,
    pub(crate) default: String,
    pub(crate) meaning: String,
    pub(crate) why: &'static str,
    pub(crate) effect: Effect,
    pub(crate) required: bool,
    pub(crate) schema: Value,
    /// Of a table or a list of tables: its own keys.
    pub(crate) rows: Vec<Self>,
    pub(crate) list: bool,
}

/// One way of writing values of type `T`.
pub(crate) trait Form<T> {
    /// Reads a value; says in the document what is wrong with it.
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T>;
    /// The value as it would be written.
    fn show(&self, value: &T) -> String;
    /// Type, unit and range, in words.
    fn kind(&self) -> String;
    fn schema(&self) -> Value;
    fn rows(&self) -> Vec<Row> {
        Vec::new()
    }
    fn is_list(&self) -> bool {
        false
    }
    fn is_required(&self) -> bool {
        false
    }
    /// Names the keys under `path` that differ and need a restart.
    fn restarts(&self, old: &T, new: &T, effect: Effect, path: &str, out: &mut Vec<String>)
    where
        T: PartialEq,
    {
        if effect == Effect::Restart && old != new {
            out.push(path.to_owned());
        }
    }
    /// Puts into `old` what of `new` takes effect without a restart.
    fn take_live(&self, old: &mut T, new: T, effect: Effect) {
        if effect == Effect::Live {
            *old = new;
        }
    }
}

/// A table of settings, made by `settings!`.
pub(crate) trait Settings: Sized + Default + PartialEq {
    const NAMES: &'static [&'static str];
    fn rows() -> Vec<Row>;
    fn read(document: &mut Document<'_>, table: &DeTable<'_>, span: Range<usize>) -> Self;
    fn restarts(&self, new: &Self, path: &str, out: &mut Vec<String>);
    fn take_live(&mut self, new: Self);
}

/// `settings! { struct Name { /// meaning field: Type = default, form, live|restart, "why this default"; … } }`
///
/// One row per key, and from it: the field, its default, its reading, its place in the reference and in the schema,
/// whether a change of it needs a restart, and what a reload puts in force.
macro_rules! settings {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:expr, $form:expr, $effect:ident, $why:literal;
            )+
        }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        $visibility struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::form::Settings for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field),)+];

            fn rows() -> Vec<$crate::form::Row> {
                vec![$({
                    let form = $form;
                    let default: $type = $default;
                    $crate::form::row(
                        &form, stringify!($field), &default, concat!($($doc),+), $why, settings!(@ $effect),
                    )
                },)+]
            }

            fn read(
                document: &mut $crate::document::Document<'_>,
                table: &toml::de::DeTable<'_>,
                span: std::ops::Range<usize>,
            ) -> Self {
                let mut settings = Self::default();
                // First: what is misspelt is not missing.
                document.refuse_unknown(table, Self::NAMES);
                $(
                    if let Some(value) = $crate::form::take(document, table, &span, stringify!($field), &$form) {
                        settings.$field = value;
                    }
                )+
                settings
            }

            fn restarts(&self, new: &Self, path: &str, out: &mut Vec<String>) {
                $({
                    let path = if path.is_empty() { stringify!($field).to_owned() } else { format!("{path}.{}", stringify!($field)) };
                    $crate::form::Form::restarts(&$form, &self.$field, &new.$field, settings!(@ $effect), &path, out);
                })+
            }

            fn take_live(&mut self, new: Self) {
                $($crate::form::Form::take_live(&$form, &mut self.$field, new.$field, settings!(@ $effect));)+
            }
        }
    )+};
    (@ live) => { $crate::form::Effect::Live };
    (@ restart) => { $crate::form::Effect::Restart };
}
pub(crate) use settings;

pub(crate) fn row<T>(
    form: &impl Form<T>,
    name: &'static str,
    default: &T,
    meaning: &str,
    why: &'static str,
    effect: Effect,
) -> Row {
    Row {
        name,
        kind: form.kind(),
        default: form.show(default),
        meaning: meaning.split_whitespace().collect::<Vec<_>>().join(" "),
        why,
        effect,
        required: form.is_required(),
        schema: form.schema(),
        rows: form.rows(),
        list: form.is_list(),
    }
}

pub(crate) fn take<T>(
    document: &mut Document<'_>,
    table: &DeTable<'_>,
    span: &Range<usize>,
    name: &'static str,
    form: &impl Form<T>,
) -> Option<T> {
    document.within(name, |document| {
        let Some(value) = table.get(name) else {
            if document.is_garbled(span) {
                document.mark_misread();
            } else if form.is_required() {
                document.missing(span.clone(), format!("is missing; write `{name} = …`, {}", form.kind()));
                document.mark_misread();
            }
            return None;
        };
        let read = form.read(document, value);
        if read.is_none() {
            document.mark_misread();
        }
        read
    })
}
