//! The scheme that a tenant declares, read by its schema: every fault at its key, and what is sound stays.
//!
//! The types of `config::scheme` say what a declaration is, and their schema says the same as data. Reading by the
//! schema goes on behind a fault, which `serde` does not. What is misread has a stand-in where it must be there, so that
//! the rest can be compiled and judged.

use std::str::FromStr;
use std::sync::LazyLock;

use domain::text::Untrusted;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeString, DeTable, DeValue, ValueDeserializer};

use super::Form;
use crate::document::{Document, nearest};
use crate::scheme::{Condition, ParseTextError, SchemeDeclaration, Span, ValueSource, When, Window};

/// A scheme as a tenant declares it; `config::scheme` says its keys.
pub(crate) struct Declared;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| schema(false));

/// With its parts by name, or each in its place.
fn schema(inline: bool) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = inline;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<SchemeDeclaration>().to_value()
}

impl Form<SchemeDeclaration> for Declared {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<SchemeDeclaration> {
        let value = read(document, &SCHEMA, at)?;
        match SchemeDeclaration::deserialize(ValueDeserializer::from(Spanned::new(at.span(), value))) {
            Ok(declaration) => Some(declaration),
            Err(fault) => {
                document.fault(fault.span().unwrap_or_else(|| at.span()), fault.message().to_owned());
                None
            }
        }
    }

    fn show(&self, _: &SchemeDeclaration) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "scheme".into()
    }

    fn schema(&self) -> Value {
        schema(true)
    }
}

/// What a value of the schema is.
enum Kind {
    Text,
    /// A text of a form of its own: how it is read, and one that can be.
    Form(fn(&str) -> Result<(), ParseTextError>, &'static str),
    Words(Vec<&'static str>),
    Number {
        least: u64,
        most: u64,
    },
    Flag,
    List(&'static Value),
    /// A table of the file's own keys.
    Map(&'static Value),
    Table {
        properties: &'static serde_json::Map<String, Value>,
        required: Vec<&'static str>,
    },
}

fn is<T: FromStr<Err = ParseTextError>>(text: &str) -> Result<(), ParseTextError> {
    text.parse::<T>().map(drop)
}

impl Kind {
    fn of(schema: &'static Value) -> Self {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            return match name {
                "ValueSource" => Self::Form(is::<ValueSource>, "header:X"),
                "Condition" => Self::Form(is::<Condition>, "form"),
                "Span" => Self::Form(is::<Span>, "1s"),
                "When" => Self::Form(is::<When>, "empty-body"),
                "Window" => Self::Form(is::<Window>, "unlimited"),
                _ => Self::of(&SCHEMA["$defs"][name]),
            };
        }
        // A key that may be left out: what it is, or null.
        if let Some(either) = schema["anyOf"].as_array().and_then(|either| either.first()) {
            return Self::of(either);
        }
        let mut words = Vec::new();
        collect_words(schema, &mut words);
        if !words.is_empty() {
            return Self::Words(words);
        }
        let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
        match (kind, schema["properties"].as_object()) {
            (_, Some(properties)) => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                Self::Table { properties, required }
            }
            (Some("object"), None) => Self::Map(&schema["additionalProperties"]),
            (Some("array"), _) => Self::List(&schema["items"]),
            (Some("boolean"), _) => Self::Flag,
            (Some("integer"), _) => Self::Number {
                least: schema["minimum"].as_u64().unwrap_or(0),
                most: schema["maximum"].as_u64().unwrap_or(u64::MAX),
            },
            _ => Self::Text,
        }
    }

    fn said(&self) -> String {
        match self {
            Self::Text => "a string".into(),
            Self::Form(_, example) => format!("a string, such as \"{example}\""),
            Self::Words(words) => format!("one of {}", words.join(", ")),
            Self::Number { least, most } => format!("a whole number from {least} to {most}"),
            Self::Flag => "true or false".into(),
            Self::List(of) => format!("a list, each of it {}", Self::of(of).said()),
            Self::Map(_) | Self::Table { .. } => "a table".into(),
        }
    }

    /// Stands for a value that must be there and was misread.
    fn stand_in(&self) -> DeValue<'static> {
        match self {
            Self::Text => DeValue::String(DeString::default()),
            Self::Form(_, example) => DeValue::String((*example).into()),
            Self::Words(words) => DeValue::String(words.first().copied().unwrap_or_default().into()),
            Self::Number { .. } => DeValue::Integer(DeInteger::default()),
            Self::Flag => DeValue::Boolean(false),
            Self::List(_) => DeValue::Array(DeArray::new()),
            Self::Map(_) => DeValue::Table(DeTable::new()),
            Self::Table { properties, required } => {
                let each = required.iter().map(|name| (key(name), unplaced(Self::of(&properties[*name]).stand_in())));
                DeValue::Table(each.collect())
            }
        }
    }
}

fn collect_words(schema: &'static Value, words: &mut Vec<&'static str>) {
    words.extend(schema["const"].as_str());
    words.extend(schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str));
    schema["oneOf"].as_array().into_iter().flatten().for_each(|one| collect_words(one, words));
}

fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn key(name: &'static str) -> Spanned<DeString<'static>> {
    unplaced(name.into())
}

/// What of a value can be read; none where it is nothing of the kind.
fn read<'v>(document: &mut Document<'_>, schema: &'static Value, at: &Spanned<DeValue<'v>>) -> Option<DeValue<'v>> {
    let kind = Kind::of(schema);
    match (&kind, at.get_ref()) {
        (Kind::Text, DeValue::String(_)) | (Kind::Flag, DeValue::Boolean(_)) => Some(at.get_ref().clone()),
        (Kind::Form(parse, _), DeValue::String(text)) => match parse(text) {
            Ok(()) => Some(at.get_ref().clone()),
            Err(fault) => {
                document.fault(at.span(), fault.to_string());
                None
            }
        },
        (Kind::Words(words), DeValue::String(word)) => {
            let known = words.contains(&&**word);
            if !known {
                let hint = nearest(word, words)
                    .map_or_else(|| format!("write {}", kind.said()), |near| format!("did you mean \"{near}\"?"));
                let shown = Untrusted::with_limit(word.as_bytes(), 64);
                document.fault(at.span(), format!("\"{shown}\" is not known here; {hint}"));
            }
            known.then(|| at.get_ref().clone())
        }
        (Kind::Number { least, most }, DeValue::Integer(number)) => {
            let value = u64::from_str_radix(number.as_str(), number.radix()).ok();
            let fits = value.is_some_and(|value| (*least..=*most).contains(&value));
            if !fits {
                let shown = Untrusted::with_limit(number.as_str().as_bytes(), 32);
                document.fault(at.span(), format!("{shown} is out of range; write {least} to {most}"));
            }
            fits.then(|| at.get_ref().clone())
        }
        (Kind::List(of), DeValue::Array(items)) => {
            let mut list = DeArray::new();
            for (index, item) in items.iter().enumerate() {
                let read = document.within_index(index, |document| read_or_mark(document, of, item));
                // What comes behind keeps its place.
                list.push(Spanned::new(item.span(), read.unwrap_or_else(|| Kind::of(of).stand_in())));
            }
            Some(DeValue::Array(list))
        }
        (Kind::Map(of), DeValue::Table(table)) => {
            let each = table.iter().filter_map(|(name, item)| {
                Some((name.clone(), Spanned::new(item.span(), read_or_mark(document, of, item)?)))
            });
            Some(DeValue::Table(each.collect()))
        }
        (Kind::Table { properties, required }, DeValue::Table(table)) => {
            let known: Vec<&'static str> = properties.keys().map(String::as_str).collect();
            document.refuse_unknown(table, &known);
            let mut read = DeTable::new();
            for (name, of) in *properties {
                let is_required = required.contains(&name.as_str());
                let value = document.within(name, |document| {
                    let Some(value) = table.get(name.as_str()) else {
                        missing(document, name, of, at, is_required);
                        return None;
                    };
                    read_or_mark(document, of, value).map(|read| Spanned::new(value.span(), read))
                });
                let value = value.or_else(|| is_required.then(|| unplaced(Kind::of(of).stand_in())));
                read.extend(value.map(|value| (key(name), value)));
            }
            Some(DeValue::Table(read))
        }
        _ => {
            document.wrong_type(at, &kind.said());
            None
        }
    }
}

fn read_or_mark<'v>(document: &mut Document<'_>, of: &'static Value, at: &Spanned<DeValue<'v>>) -> Option<DeValue<'v>> {
    let read = read(document, of, at);
    if read.is_none() {
        document.mark_misread();
    }
    read
}

fn missing(document: &mut Document<'_>, name: &str, of: &'static Value, table: &Spanned<DeValue<'_>>, required: bool) {
    if document.is_garbled(&table.span()) {
        document.mark_misread();
    } else if required {
        let kind = Kind::of(of).said();
        document.missing(table.span(), format!("is missing; write `{name} = …`, {kind}"));
        document.mark_misread();
    }
}
