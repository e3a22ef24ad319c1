//! How a value is written in a file: reading, range, text form and schema of one kind of key, in one place.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use domain::text::Untrusted;
use ipnet::IpNet;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::document::{Document, nearest};
use crate::public_url::PublicUrl;
use crate::rate::Rate;
use crate::scheme::SchemeDeclaration;
use crate::units::{format_bytes, format_duration, parse_bytes, parse_duration};

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
}

/// A table of settings, made by `settings!`.
pub(crate) trait Settings: Sized + Default + PartialEq {
    const NAMES: &'static [&'static str];
    fn rows() -> Vec<Row>;
    fn read(document: &mut Document<'_>, table: &DeTable<'_>, span: Range<usize>) -> Self;
    fn restarts(&self, new: &Self, path: &str, out: &mut Vec<String>);
}

/// `settings! { struct Name { /// meaning field: Type = default, form, live|restart, "why this default"; … } }`
///
/// One row per key, and from it: the field, its default, its reading, its place in the reference and in the schema,
/// and whether a change of it needs a restart.
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
                $(
                    if let Some(value) = $crate::form::take(document, table, &span, stringify!($field), &$form) {
                        settings.$field = value;
                    }
                )+
                document.refuse_unknown(table, Self::NAMES);
                settings
            }

            fn restarts(&self, new: &Self, path: &str, out: &mut Vec<String>) {
                $({
                    let path = if path.is_empty() { stringify!($field).to_owned() } else { format!("{path}.{}", stringify!($field)) };
                    $crate::form::Form::restarts(&$form, &self.$field, &new.$field, settings!(@ $effect), &path, out);
                })+
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
    document.within(name, |document| match table.get(name) {
        Some(value) => form.read(document, value),
        None if form.is_required() => {
            document.missing(span.clone(), format!("is missing; write `{name} = …`, {}", form.kind()));
            None
        }
        None => None,
    })
}

/// Written as a string; `parse` says what is wrong with it.
pub(crate) struct Text<T> {
    what: &'static str,
    example: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(&T) -> String,
}

pub(crate) const fn text<T>(
    what: &'static str,
    example: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(&T) -> String,
) -> Text<T> {
    Text { what, example, parse, show }
}

impl<T> Form<T> for Text<T> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(text) = at.get_ref().as_str() else {
            document.wrong_type(at, &format!("{} as a string, such as \"{}\"", self.what, self.example));
            return None;
        };
        match (self.parse)(text) {
            Ok(value) => Some(value),
            Err(message) => {
                document.fault(at.span(), message);
                None
            }
        }
    }

    fn show(&self, value: &T) -> String {
        format!("\"{}\"", (self.show)(value))
    }

    fn kind(&self) -> String {
        self.what.to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "examples": [self.example] })
    }
}

pub(crate) const fn url() -> Text<PublicUrl> {
    text("URL", "https://hooks.example.com", str::parse, PublicUrl::to_string)
}

pub(crate) const fn address() -> Text<SocketAddr> {
    text(
        "address and port",
        "127.0.0.1:8080",
        |text| {
            text.parse()
                .map_err(|_| format!("{text:?} is no address and port; write \"127.0.0.1:8080\" or \"[::]:8080\""))
        },
        SocketAddr::to_string,
    )
}

/// A network; a bare address stands for itself alone.
pub(crate) const fn network() -> Text<IpNet> {
    text(
        "network or address",
        "10.0.0.0/8",
        |text| match text.parse::<IpNet>() {
            Ok(net) if net.addr() != net.network() => {
                Err(format!("{text:?} has bits set behind its prefix; write \"{}\"", net.trunc()))
            }
            Ok(net) => Ok(net),
            Err(_) => text
                .parse::<IpAddr>()
                .map(IpNet::from)
                .map_err(|_| format!("{text:?} is no network; write \"10.0.0.0/8\", \"2001:db8::/32\" or one address")),
        },
        IpNet::to_string,
    )
}

pub(crate) const fn events_rate() -> Text<Rate> {
    text("rate of events", "100/s burst 200", Rate::parse_events, |rate| rate.show_events())
}

pub(crate) const fn bytes_rate() -> Text<Rate> {
    text("rate of bytes", "10MiB/s burst 50MiB", Rate::parse_bytes, |rate| rate.show_bytes())
}

/// Any path; relative ones are resolved against the directory of the file by the loader.
pub(crate) const fn path() -> Text<PathBuf> {
    text(
        "path",
        "/var/lib/tidegate",
        |text| match text {
            "" => Err("is empty; write a path".into()),
            text if text.contains('\0') => Err("holds a zero byte; write a path".into()),
            text => Ok(text.into()),
        },
        |path| path.display().to_string(),
    )
}

/// A whole number in a range.
pub(crate) struct Count(pub(crate) RangeInclusive<u64>);

impl<T: TryFrom<u64> + Copy + Display> Form<T> for Count {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(number) = at.get_ref().as_integer() else {
            document.wrong_type(at, &format!("a whole number from {} to {}", self.0.start(), self.0.end()));
            return None;
        };
        let value = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|value| self.0.contains(value));
        let value = value.and_then(|value| T::try_from(value).ok());
        if value.is_none() {
            let (shown, low, high) =
                (Untrusted::with_limit(number.as_str().as_bytes(), 32), self.0.start(), self.0.end());
            document.fault(at.span(), format!("{shown} is out of range; write {low} to {high}"));
        }
        value
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn kind(&self) -> String {
        format!("number, {} to {}", self.0.start(), self.0.end())
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

/// A size with its unit, in a range.
pub(crate) struct Bytes(pub(crate) RangeInclusive<u64>);

impl<T: TryFrom<u64> + TryInto<u64> + Copy> Form<T> for Bytes {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let bytes = text("a size", "25MiB", parse_bytes, |bytes| format_bytes(*bytes)).read(document, at)?;
        let value = self.0.contains(&bytes).then(|| T::try_from(bytes).ok()).flatten();
        if value.is_none() {
            let (low, high) = (format_bytes(*self.0.start()), format_bytes(*self.0.end()));
            document
                .fault(at.span(), format!("{} is out of range; write \"{low}\" to \"{high}\"", format_bytes(bytes)));
        }
        value
    }

    fn show(&self, value: &T) -> String {
        format!("\"{}\"", format_bytes((*value).try_into().unwrap_or(u64::MAX)))
    }

    fn kind(&self) -> String {
        format!("size, {} to {}", format_bytes(*self.0.start()), format_bytes(*self.0.end()))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^ *[0-9]+ *([KMGT]i?)?B$", "examples": ["25MiB"] })
    }
}

/// A duration with its unit, in a range.
pub(crate) struct Span(pub(crate) RangeInclusive<Duration>);

impl Form<Duration> for Span {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Duration> {
        let value = text("a duration", "10s", parse_duration, |it| format_duration(*it)).read(document, at)?;
        let (low, high) = (format_duration(*self.0.start()), format_duration(*self.0.end()));
        if self.0.contains(&value) {
            return Some(value);
        }
        document.fault(at.span(), format!("{} is out of range; write \"{low}\" to \"{high}\"", format_duration(value)));
        None
    }

    fn show(&self, value: &Duration) -> String {
        format!("\"{}\"", format_duration(*value))
    }

    fn kind(&self) -> String {
        format!("duration, {} to {}", format_duration(*self.0.start()), format_duration(*self.0.end()))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^ *([0-9]+(ms|s|m|h|d))+ *$", "examples": ["10s"] })
    }
}

/// `true` or `false`.
pub(crate) struct Flag;

impl Form<bool> for Flag {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<bool> {
        let value = at.get_ref().as_bool();
        if value.is_none() {
            document.wrong_type(at, "true or false");
        }
        value
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn kind(&self) -> String {
        "true or false".into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

/// One of a few words.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Form<T> for Choice<T> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(word) = at.get_ref().as_str() else {
            document.wrong_type(at, &format!("one of {}", self.kind()));
            return None;
        };
        let found = self.0.iter().find(|(name, _)| *name == word);
        if found.is_none() {
            let names: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
            let hint = nearest(word, &names).map_or_else(
                || format!("write one of {}", names.join(", ")),
                |near| format!("did you mean \"{near}\"?"),
            );
            document.fault(
                at.span(),
                format!("\"{}\" is not known here; {hint}", Untrusted::with_limit(word.as_bytes(), 64)),
            );
        }
        found.map(|(_, value)| *value)
    }

    fn show(&self, value: &T) -> String {
        let name = self.0.iter().find(|(_, it)| it == value).map_or("", |(name, _)| *name);
        format!("\"{name}\"")
    }

    fn kind(&self) -> String {
        self.0.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.0.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
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

/// A moment with its offset, in milliseconds since the Unix epoch: TOML's own form or a string.
pub(crate) struct Moment;

impl Form<u64> for Moment {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<u64> {
        let value = at.get_ref();
        let text = value.as_datetime().map(ToString::to_string).or_else(|| value.as_str().map(str::to_owned));
        let Some(text) = text else {
            document.wrong_type(at, "a moment, such as 2026-01-31T12:00:00Z");
            return None;
        };
        let moment =
            text.parse::<jiff::Timestamp>().ok().and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
        if moment.is_none() {
            document
                .fault(at.span(), format!("{text:?} is no moment with an offset; write it as 2026-01-31T12:00:00Z"));
        }
        moment
    }

    fn show(&self, _: &u64) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "moment".into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "format": "date-time" })
    }
}

/// A scheme as a tenant declares it; `config::scheme` says its keys.
pub(crate) struct Declared;

impl Form<SchemeDeclaration> for Declared {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<SchemeDeclaration> {
        match SchemeDeclaration::deserialize(ValueDeserializer::from(at.clone())) {
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
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        settings.into_generator().into_root_schema_for::<SchemeDeclaration>().to_value()
    }
}

/// A table of settings.
pub(crate) struct Table;

impl<S: Settings> Form<S> for Table {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<S> {
        let Some(table) = at.get_ref().as_table() else {
            document.wrong_type(at, "a table");
            return None;
        };
        Some(S::read(document, table, at.span()))
    }

    fn show(&self, _: &S) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "table".into()
    }

    fn schema(&self) -> Value {
        object_schema(&S::rows())
    }

    fn rows(&self) -> Vec<Row> {
        S::rows()
    }

    fn restarts(&self, old: &S, new: &S, _: Effect, path: &str, out: &mut Vec<String>) {
        old.restarts(new, path, out);
    }
}

/// JSON Schema of a table with these keys and no others.
pub(crate) fn object_schema(rows: &[Row]) -> Value {
    let mut properties = serde_json::Map::new();
    for row in rows {
        let mut schema = row.schema.clone();
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".into(), row.meaning.clone().into());
            if !row.required && row.rows.is_empty() && row.default != "none" {
                let default = toml::from_str::<serde_json::Map<String, Value>>(&format!("d = {}", row.default));
                if let Some(default) = default.ok().and_then(|mut table| table.remove("d")) {
                    object.insert("default".into(), default);
                }
            }
        }
        properties.insert(row.name.into(), schema);
    }
    let required: Vec<_> = rows.iter().filter(|row| row.required).map(|row| row.name).collect();
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}
